"""What a replica remembers in each role, besides the epoch and the vote that outlive roles.

    unattached   knows the epoch, not its leader; asks around
    prospective  asks whether it would win (pre-vote), so that a replica that cannot win causes no election
    candidate    asks for votes in an epoch of its own
    leader       appends, and counts what others have fetched
    follower     fetches from the leader
    resigned     led, does not any more, and tells the voters so

`deadline` of each is when `on_time` has something to do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, TypeAlias

from strandline.quorum.raft.raft_log import SnapshotId
from strandline.quorum.raft.voters import Peer, ReplicaKey

if TYPE_CHECKING:
    from strandline.codec.message import Message

NEVER: Final = float("inf")


@dataclass(slots=True)
class Unattached:
    """`election_at` is NEVER on an observer."""

    election_at: float
    retries: int = 0

    NAME = "unattached"

    @property
    def deadline(self) -> float:
        return self.election_at


@dataclass(slots=True)
class Ballot:
    """One round of asking all voters; `waiting` has the request under way to each, by voter id."""

    granted: set[int] = field(default_factory=set)
    rejected: set[int] = field(default_factory=set)
    waiting: dict[int, Message] = field(default_factory=dict)
    retry_at: dict[int, float] = field(default_factory=dict)
    failures: int = 0

    def reopen(self, node_id: int, now: float) -> None:
        """Ask a voter once more that said no: it has changed its mind about its leader."""
        if node_id in self.rejected:
            self.rejected.discard(node_id)
            self.retry_at[node_id] = now


@dataclass(slots=True)
class Prospective:
    """`last_leader` is who led this epoch before its silence; if the round is lost, we go back to it."""

    ends_at: float
    last_leader: Peer | None
    retries: int = 0
    ballot: Ballot = field(default_factory=Ballot)

    NAME = "prospective"

    @property
    def deadline(self) -> float:
        return min(self.ends_at, *self.ballot.retry_at.values()) if self.ballot.retry_at else self.ends_at


@dataclass(slots=True)
class Candidate:
    """`has_lost`: a majority said no, and `ends_at` is when the backoff is over."""

    ends_at: float
    retries: int = 0
    has_lost: bool = False
    ballot: Ballot = field(default_factory=Ballot)

    NAME = "candidate"

    @property
    def deadline(self) -> float:
        return min(self.ends_at, *self.ballot.retry_at.values()) if self.ballot.retry_at else self.ends_at


@dataclass(slots=True)
class ReplicaProgress:
    """What the leader knows of one other replica. `end_offset` is -1 until its first fetch of this epoch."""

    key: ReplicaKey
    end_offset: int = -1
    last_fetch_at: float | None = None
    last_caught_up_at: float | None = None
    leader_end_at_fetch: int = -1
    begin: Message | None = None
    begin_at: float = 0.0

    def note(self, end_offset: int, leader_end: int, now: float) -> None:
        """It fetched at `end_offset`. Holding what was there at its fetch before, it was caught up then."""
        if end_offset >= leader_end:
            self.last_caught_up_at = now
        elif self.leader_end_at_fetch >= 0 and end_offset >= self.leader_end_at_fetch:
            self.last_caught_up_at = self.last_fetch_at
        self.end_offset = end_offset
        self.leader_end_at_fetch = leader_end
        self.last_fetch_at = now


@dataclass(slots=True)
class Leader:
    """`start_offset` is where the record stands that began the epoch; nothing counts as committed before it is."""

    since: float
    start_offset: int
    voters: dict[int, ReplicaProgress]
    observers: dict[ReplicaKey, ReplicaProgress] = field(default_factory=dict)
    is_announced: bool = False
    check_at: float = NEVER
    begin_at: float = NEVER

    NAME = "leader"

    @property
    def deadline(self) -> float:
        return min(self.check_at, self.begin_at)


@dataclass(slots=True)
class Follower:
    """`has_fetched`: the leader has answered us in this epoch, so we refuse to help others stand against it."""

    leader: Peer
    fetch_by: float
    has_fetched: bool = False

    NAME = "follower"

    @property
    def deadline(self) -> float:
        return self.fetch_by


@dataclass(slots=True)
class Resigned:
    """`untold` has the voters that have not confirmed, with the time to tell them (again)."""

    ends_at: float
    successors: list[ReplicaKey]
    untold: dict[int, float] = field(default_factory=dict)
    waiting: dict[int, Message] = field(default_factory=dict)

    NAME = "resigned"

    @property
    def deadline(self) -> float:
        return min(self.ends_at, *self.untold.values()) if self.untold else self.ends_at


@dataclass(slots=True)
class SnapshotFetch:
    """A snapshot on its way here: all bytes before `position` have come."""

    snapshot_id: SnapshotId
    position: int = 0


@dataclass(slots=True)
class Fetching:
    """The one request for entries or for a piece of a snapshot that may be under way.

    An answer counts only if it is to this very request object. So one that comes late, twice, or from an earlier leader
    is dropped, and cannot cut or extend a log that has moved on since it was asked for.
    """

    request: Message | None = None
    give_up_at: float = NEVER
    retry_at: float = 0.0
    failures: int = 0
    snapshot: SnapshotFetch | None = None
    installing: SnapshotId | None = None
    """Outlives roles: while the driver replaces the log, this replica neither fetches nor stands for election."""

    def reset(self) -> None:
        self.request = None
        self.give_up_at = NEVER
        self.retry_at = 0.0
        self.failures = 0
        self.snapshot = None


Role: TypeAlias = Unattached | Prospective | Candidate | Leader | Follower | Resigned
