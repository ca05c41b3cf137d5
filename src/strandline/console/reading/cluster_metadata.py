"""The topics, partitions and brokers of a cluster, in little memory: 100,000 partitions take 10 MB."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from strandline.cli.cluster.state import BrokerState, ClusterState, PartitionState
from strandline.client.cluster_client import ClusterClient
from strandline.client.large_answers import walk_metadata
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """A topic, where its partitions are, and what a list of thousands of topics shows of them."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionState, ...]
    error_code: int = 0
    replication_factor: int = field(init=False)
    health: str = field(init=False)

    def __post_init__(self) -> None:
        most = max((len(each.replicas) for each in self.partitions), default=0)
        object.__setattr__(self, "replication_factor", most)
        object.__setattr__(self, "health", _health(self.partitions, self.error_code))


@dataclass(frozen=True)
class ClusterMetadata:
    """What Metadata says of a cluster at one moment."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerState]
    topics: Mapping[str, TopicPlaces]
    partitions: tuple[PartitionState, ...] = field(init=False, repr=False)
    """Those of all topics, ordered by topic."""
    _state: ClusterState = field(init=False, repr=False)
    digest: bytes = b""
    """Of the answer: as long as it stays the same nothing has changed."""

    def __post_init__(self) -> None:
        every = tuple(each for name in sorted(self.topics) for each in self.topics[name].partitions)
        object.__setattr__(self, "partitions", every)
        brokers = tuple(self.brokers[each] for each in sorted(self.brokers))
        object.__setattr__(self, "_state", ClusterState(self.cluster_id, brokers, every))

    def address(self, node_id: int) -> tuple[str, int] | None:
        broker = self.brokers.get(node_id)
        return None if broker is None else (broker.host, broker.port)

    def state(self) -> ClusterState:
        """Return what the judgement of a cluster begins with."""
        return self._state


def read_metadata(client: ClusterClient, before: ClusterMetadata | None = None) -> ClusterMetadata:
    """Ask any broker for all topics that the user may see. Return `before` if it answers the same again."""

    def read(body: memoryview, at: int, version: int) -> ClusterMetadata:
        digest = hashlib.blake2b(body[at:], digest_size=16).digest()
        if before is not None and before.digest == digest:
            return before
        answer = walk_metadata(body, at, version)
        brokers = {each.node_id: BrokerState(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
        # The same few sets of brokers hold thousands of partitions.
        sets: dict[tuple[int, ...], tuple[int, ...]] = {}
        topics = {told.name or "": _places(told, sets) for told in answer.topics}
        return ClusterMetadata(answer.cluster_id, answer.controller_id, brokers, topics, digest)

    return client.read_any(MetadataRequest(topics=None, allow_auto_topic_creation=False), read)


def _health(partitions: tuple[PartitionState, ...], error_code: int) -> str:
    if error_code:
        return "unknown"
    if any(each.leader is None for each in partitions):
        return "offline"
    # Almost always the two are one object, or equal.
    is_lacking = any(each.in_sync is not each.replicas and each.missing for each in partitions)
    return "replicas missing" if is_lacking else "ok"


def _places(told: MetadataResponseTopic, sets: dict[tuple[int, ...], tuple[int, ...]]) -> TopicPlaces:
    name = told.name or ""

    def shared(ids: list[int]) -> tuple[int, ...]:
        found = tuple(ids)
        return sets.setdefault(found, found)

    partitions = [
        PartitionState(
            name,
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            shared(each.replica_nodes),
            shared(each.isr_nodes),
        )
        for each in told.partitions
    ]
    partitions.sort(key=lambda each: each.index)
    return TopicPlaces(name, told.topic_id, told.is_internal, tuple(partitions), told.error_code)
