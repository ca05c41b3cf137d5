"""What groups know of topics: names, ids, numbers of partitions and racks, through a door that the node opens.

The shard is pure and asks `Topics`. The driver answers from its image of the cluster and says `TopicsChanged` when a
topic came, went or grew. Whether any of that concerns a group is seen by one number, the hash of all it subscribes to.
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Protocol

from strandline.ids import ZERO_UUID


@dataclass(frozen=True, slots=True)
class TopicFacts:
    name: str
    id: uuid.UUID
    partitions: int
    racks: tuple[tuple[str, ...], ...] = ()
    """For each partition the racks of its replicas in order; nothing at all if no broker has a rack."""
    hash: int = field(default=0, init=False, compare=False)
    """The hash of all fields above: two topics with the same hash give the same assignment."""

    def __post_init__(self) -> None:
        # The same on every node and in every process, which Python's own hash is not.
        described = b"%b\0%d\0%b" % (self.id.bytes, self.partitions, self.name.encode("utf-8", "surrogatepass"))
        if self.racks:
            described += repr(self.racks).encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(described, digest_size=8).digest()
        object.__setattr__(self, "hash", int.from_bytes(digest, "big", signed=True))


class Topics(Protocol):
    """The topics of the cluster as of now."""

    def named(self, name: str) -> TopicFacts | None: ...

    def by_id(self, topic_id: uuid.UUID) -> TopicFacts | None: ...

    def names(self) -> Iterable[str]:
        """Yield every topic, in the same order as long as nothing changes."""


class FixedTopics:
    """Topics that are known beforehand; none, if nothing is said."""

    def __init__(self, topics: Iterable[TopicFacts] = ()) -> None:
        self._by_name: Mapping[str, TopicFacts] = {topic.name: topic for topic in topics}
        self._by_id = {topic.id: topic for topic in self._by_name.values()}

    def named(self, name: str) -> TopicFacts | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: uuid.UUID) -> TopicFacts | None:
        return self._by_id.get(topic_id)

    def names(self) -> Iterable[str]:
        return self._by_name


def is_replaced(topics: Topics, name: str, topic_id: uuid.UUID) -> bool:
    """Return whether another topic than the one with this id has the name now; the zero id fits every topic."""
    found = topics.named(name)
    return found is not None and ZERO_UUID != topic_id != found.id


def metadata_hash(topics: Topics, names: Set[str]) -> int:
    """Return a hash of everything that an assignment of these topics depends on; 0 if none of them exists.

    It is stored with the group's epoch, so a coordinator that takes over sees whether it is still true. Kafka keeps a
    number of its own making there: a group that moves between the two is assigned once more, and nothing else.
    """
    together = 0
    for name in names:
        facts = topics.named(name)
        if facts is not None:
            # Each name comes once, so nothing cancels out, and the order does not matter.
            together ^= facts.hash
    return together
