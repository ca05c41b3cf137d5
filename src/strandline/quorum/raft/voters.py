"""Who votes: a voter is a node id and the id of the directory its log is in; a voter set is a value.

A disk that was replaced has another directory id, so the node on it is no longer the voter whose votes and entries
were lost with the old one. Where only `controller.quorum.voters` names the voters, no directory ids are known (they
are zero), and a voter with an empty disk passes for the old one, as in Kafka: do not empty the disk of such a voter
while another is behind.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from strandline.codec.messages.voters_record import Endpoint, KRaftVersionFeature, VotersRecord
from strandline.codec.messages.voters_record import Voter as VoterEntry
from strandline.ids import ZERO_UUID

if TYPE_CHECKING:
    from uuid import UUID

UNKNOWN_ID = -1


class Peer(NamedTuple):
    """Where a request goes. `node_id` is UNKNOWN_ID for a bootstrap server, of which only the address is known."""

    node_id: int
    host: str
    port: int


class ReplicaKey(NamedTuple):
    """One replica of the log: its node and its directory (zero where that is unknown)."""

    node_id: int
    directory_id: UUID = ZERO_UUID


@dataclass(frozen=True, slots=True)
class Voter:
    """`host` and `port` are of the listener that voters reach each other by."""

    node_id: int
    host: str
    port: int
    directory_id: UUID = ZERO_UUID
    listener_name: str = "CONTROLLER"

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)

    @property
    def peer(self) -> Peer:
        return Peer(self.node_id, self.host, self.port)


class VoterSet:
    """The voters, by id in ascending order; never changed, only replaced."""

    __slots__ = ("_by_id", "majority", "node_ids")

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self._by_id = {voter.node_id: voter for voter in sorted(voters, key=lambda voter: voter.node_id)}
        self.node_ids = tuple(self._by_id)
        self.majority = len(self._by_id) // 2 + 1

    def __iter__(self) -> Iterator[Voter]:
        return iter(self._by_id.values())

    def __len__(self) -> int:
        return len(self._by_id)

    def __eq__(self, other: object) -> bool:
        return self._by_id == other._by_id if isinstance(other, VoterSet) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self._by_id.values()))

    def __repr__(self) -> str:
        return f"VoterSet({list(self._by_id.values())!r})"

    def get(self, node_id: int) -> Voter | None:
        return self._by_id.get(node_id)

    def holds(self, key: ReplicaKey) -> bool:
        """Return whether `key` votes: the id, and the directory too if the set knows it."""
        voter = self._by_id.get(key.node_id)
        return voter is not None and voter.directory_id in (ZERO_UUID, key.directory_id)

    def others(self, node_id: int) -> list[Voter]:
        return [voter for voter in self._by_id.values() if voter.node_id != node_id]

    def record(self) -> VotersRecord:
        """Return the record for the log and the bootstrap snapshot."""
        return VotersRecord(
            voters=[
                VoterEntry(
                    voter_id=voter.node_id,
                    voter_directory_id=voter.directory_id,
                    endpoints=[Endpoint(name=voter.listener_name, host=voter.host, port=voter.port)],
                    kraft_version_feature=KRaftVersionFeature(min_supported_version=0, max_supported_version=1),
                )
                for voter in self
            ]
        )

    @classmethod
    def of_record(cls, record: VotersRecord) -> VoterSet:
        """Return the voters of a record; one without an endpoint gets the address ("", 0)."""
        voters = []
        for entry in record.voters:
            endpoint = entry.endpoints[0] if entry.endpoints else Endpoint()
            voters.append(Voter(entry.voter_id, endpoint.host, endpoint.port, entry.voter_directory_id, endpoint.name))
        return cls(voters)


class VoterHistory:
    """Which voter set holds from which offset on. The newest counts, committed or not; truncation takes it back."""

    __slots__ = ("_offsets", "_sets")

    def __init__(self, voters: VoterSet) -> None:
        self._offsets = [-1]
        self._sets = [voters]

    @property
    def newest(self) -> VoterSet:
        return self._sets[-1]

    def add(self, offset: int, voters: VoterSet) -> None:
        assert offset > self._offsets[-1], (offset, self._offsets[-1])
        self._offsets.append(offset)
        self._sets.append(voters)

    def replace(self, offset: int, voters: VoterSet) -> None:
        """Take the voters of a snapshot that ends at `offset`; earlier ones are forgotten."""
        self._offsets = [offset - 1]
        self._sets = [voters]

    def truncate_to(self, end_offset: int) -> None:
        """Forget what stood at `end_offset` and above; the oldest set stays."""
        count = max(1, bisect_right(self._offsets, end_offset - 1))
        del self._offsets[count:]
        del self._sets[count:]
