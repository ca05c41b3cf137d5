"""KRaft's pull protocol as a pure core: values in, effects out.

The driver's duties, in one place:

    raft = Raft(...); raft.start(now)
    after each input:  perform(raft.take_effects()) in order, then send the answer the input returned, if any,
                       then set the timer to `raft.deadline` and call `raft.on_time(now)` when it is due

`now` is monotonic seconds everywhere. Offsets and epochs are Kafka's. Messages are those of `codec/messages`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.quorum.raft_effects import Effect
from strandline.quorum.raft_fetch import FetchAnswer, ReplicaFetch
from strandline.quorum.raft_log import RaftLog, SnapshotId
from strandline.quorum.raft_voters import Peer, ReplicaKey, VoterSet

if TYPE_CHECKING:
    from random import Random

    from strandline.codec.message import Message
    from strandline.codec.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
    from strandline.codec.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
    from strandline.codec.messages.end_quorum_epoch_request import EndQuorumEpochRequest
    from strandline.codec.messages.end_quorum_epoch_response import EndQuorumEpochResponse
    from strandline.codec.messages.vote_request import VoteRequest
    from strandline.codec.messages.vote_response import VoteResponse
    from strandline.errors import ErrorCode
    from strandline.quorum.quorum_state import QuorumState


@dataclass(frozen=True, slots=True)
class RaftTiming:
    """`controller.quorum.*`, in seconds."""

    election_timeout_s: float = 1.0
    election_backoff_max_s: float = 1.0
    fetch_timeout_s: float = 2.0
    request_timeout_s: float = 2.0
    retry_backoff_s: float = 0.02
    fetch_max_wait_s: float = 0.5
    """How long a leader may keep a Fetch that it has nothing to answer to."""


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What DescribeQuorum tells of one replica; times are monotonic seconds, None if never."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_at: float | None
    last_caught_up_at: float | None
    is_voter: bool


class Raft:
    def __init__(
        self,
        *,
        node_id: int,
        directory_id: Any,
        cluster_id: str | None,
        voters: VoterSet,
        bootstrap_servers: tuple[tuple[str, int], ...] = (),
        may_vote: bool = True,
        state: QuorumState,
        log: RaftLog,
        timing: RaftTiming,
        random: Random,
    ) -> None:
        """`voters` may be empty on an observer. `may_vote=False` (no controller role): observer whatever they are."""

    epoch: int
    high_watermark: int
    """0 or the end of the latest snapshot after a start; then as `HighWatermark` said."""
    voters: VoterSet
    deadline: float
    """When `on_time` wants to be called; infinity if never."""

    @property
    def role(self) -> str:
        """unattached, prospective, candidate, leader, follower or resigned."""
        raise NotImplementedError

    @property
    def is_leader(self) -> bool:
        raise NotImplementedError

    @property
    def leader_id(self) -> int:
        """-1 while nobody is known to lead `epoch`."""
        raise NotImplementedError

    @property
    def leader(self) -> Peer | None:
        raise NotImplementedError

    def take_effects(self) -> list[Effect]:
        raise NotImplementedError

    def start(self, now: float) -> None:
        """Begin to take part. A quorum of one leads at once: Save, Flush, and after `on_flushed` Leading."""

    def on_time(self, now: float) -> None: ...

    def on_vote(self, request: VoteRequest, now: float) -> VoteResponse:
        raise NotImplementedError

    def on_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now: float) -> BeginQuorumEpochResponse:
        raise NotImplementedError

    def on_end_quorum_epoch(self, request: EndQuorumEpochRequest, now: float) -> EndQuorumEpochResponse:
        raise NotImplementedError

    def on_request(self, request: Message, now: float) -> Message:
        """Any of the three above, by its class."""
        raise NotImplementedError

    def on_fetch(self, fetch: ReplicaFetch, now: float) -> FetchAnswer:
        """A Fetch came: what to answer. The fetch offset counts as the replica's acknowledgement."""
        raise NotImplementedError

    def answer_fetch(self, fetch: ReplicaFetch) -> FetchAnswer:
        """The same for a request that has been waiting: judged anew, but it proves nothing of the replica any more."""
        raise NotImplementedError

    def on_fetch_snapshot(self, key: ReplicaKey, leader_epoch: int, cluster_id: str | None, now: float) -> ErrorCode:
        """A FetchSnapshot came: NONE if this node may answer it. The bytes are the driver's."""
        raise NotImplementedError

    def on_answer(self, to: Peer, request: Message, response: Message | None, now: float) -> None:
        """The answer to a `Send`, whose `to` and `request` these are; None if there was none."""

    def on_flushed(self, now: float) -> None:
        """`log.flushed_end` has moved."""

    def on_snapshot_installed(self, snapshot_id: SnapshotId, now: float) -> None:
        """`InstallSnapshot` was performed: the log begins and ends where the snapshot ends."""

    def append(self, batch: Any, now: float) -> int:
        """Append to the log of the epoch that this node leads; the base offset. NotLeader if it leads none."""
        raise NotImplementedError

    def resign(self, now: float) -> None:
        """Give up the lead, telling the voters who should be next; nothing happens on who does not lead."""

    def learn_voters(self, voters: VoterSet, offset: int) -> None:
        """A VotersRecord stands at `offset` of the log."""

    def describe(self, now: float) -> list[ReplicaFacts]:
        """Of all replicas, the leader first among voters by id, then observers; empty on who does not lead."""
        raise NotImplementedError
