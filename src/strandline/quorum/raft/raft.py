"""KRaft's pull protocol as a pure core: values in, effects out.

The driver's duties, in one place:

    raft = Raft(...); raft.start(now)
    after each input:  perform(raft.take_effects()) in order, then send the answer the input returned, if any,
                       then set the timer to `raft.deadline` and call `raft.on_time(now)` when it is due

`now` is monotonic seconds everywhere. Offsets and epochs are Kafka's. Messages are those of `codec/messages`.

Known gaps: voters are static (AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter are not answered; `learn_voters` and
`VoterHistory` are what they will need). Votes are asked for in version 2 only, so every voter must know pre-votes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from strandline.codec.messages.begin_quorum_epoch_request import BeginQuorumEpochRequest
from strandline.codec.messages.end_quorum_epoch_request import EndQuorumEpochRequest
from strandline.codec.messages.fetch_request import FetchRequest
from strandline.codec.messages.fetch_snapshot_request import FetchSnapshotRequest
from strandline.codec.messages.vote_request import VoteRequest
from strandline.errors import NotLeader
from strandline.quorum.raft import elections, epochs, following, leading
from strandline.quorum.raft.effects import Effect, Flush
from strandline.quorum.raft.fetch import ReplicaFetch, ReplicaFetchAnswer
from strandline.quorum.raft.raft_log import RaftLog, SnapshotId
from strandline.quorum.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from strandline.quorum.raft.state import RaftState
from strandline.quorum.raft.timing import RaftTiming
from strandline.quorum.raft.voters import Peer, ReplicaKey, VoterSet

if TYPE_CHECKING:
    from random import Random
    from uuid import UUID

    from strandline.codec.message import Message
    from strandline.codec.messages.begin_quorum_epoch_response import BeginQuorumEpochResponse
    from strandline.codec.messages.end_quorum_epoch_response import EndQuorumEpochResponse
    from strandline.codec.messages.vote_response import VoteResponse
    from strandline.errors import ErrorCode
    from strandline.quorum.raft.state_files import QuorumState

__all__ = ["Raft", "RaftTiming", "ReplicaFacts"]


@dataclass(frozen=True, slots=True)
class ReplicaFacts:
    """What DescribeQuorum tells of one replica; times are monotonic seconds, None if never."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_at: float | None
    last_caught_up_at: float | None
    is_voter: bool


class Raft:
    """The door: every input comes in here. `raft_state` has the roles, the modules beside it what is done in them."""

    __slots__ = ("_state",)

    def __init__(
        self,
        *,
        node_id: int,
        directory_id: UUID,
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
        self._state = RaftState(
            key=ReplicaKey(node_id, directory_id),
            cluster_id=cluster_id,
            voters=voters,
            bootstrap_servers=bootstrap_servers,
            may_vote=may_vote,
            state=state,
            log=log,
            timing=timing,
            random=random,
        )

    # What holds now

    @property
    def epoch(self) -> int:
        return self._state.epoch

    @property
    def high_watermark(self) -> int:
        """The log start or the end of the latest snapshot after a start; then as `HighWatermark` said."""
        return self._state.high_watermark

    @property
    def voters(self) -> VoterSet:
        return self._state.voters

    @property
    def is_voter(self) -> bool:
        return self._state.is_voter

    @property
    def role(self) -> str:
        """unattached, prospective, candidate, leader, follower or resigned."""
        return self._state.role.NAME

    @property
    def is_leader(self) -> bool:
        return isinstance(self._state.role, Leader)

    def confirmed_at(self, now: float) -> float | None:
        """Return when a majority last followed this node; None if it does not lead."""
        state, role = self._state, self._state.role
        if not isinstance(role, Leader):
            return None
        return now if len(state.voters) == 1 else leading.confirmed_at(state, role)

    def is_confirmed(self, now: float) -> bool:
        """Return whether this node leads and no other can, because a majority followed it a moment ago."""
        confirmed_at = self.confirmed_at(now)
        return confirmed_at is not None and now - confirmed_at < self._state.timing.fetch_timeout_min_s

    @property
    def leader_id(self) -> int:
        """The leader of `epoch`; -1 while it is unknown."""
        return self._state.leader_id

    @property
    def leader(self) -> Peer | None:
        return self._state.leader

    def heard_leader(self, now: float) -> tuple[int, float] | None:
        """The last leader that answered a voter who has voted for this node, and since when at the most that is over.

        It may have been heard by others after us. But who voted for us had not heard it for a fetch timeout, and one of
        those had confirmed it last: see `confirmed_at`.
        """
        heard = self._state.heard_leader
        return None if heard is None else (heard[0], max(heard[1], now - self._state.timing.fetch_timeout_min_s))

    @property
    def deadline(self) -> float:
        """When `on_time` wants to be called; infinity if never."""
        role = self._state.role
        if isinstance(role, Follower | Unattached):
            return min(role.deadline, following.fetch_deadline(self._state))
        return role.deadline

    def take_effects(self) -> list[Effect]:
        effects = self._state.effects
        self._state.effects = []
        return effects

    # Time

    def start(self, now: float) -> None:
        """Begin to take part. A quorum of one leads at once: Save, Flush, and after `on_flushed` Leading."""
        state = self._state
        if state.log.flushed_end < state.log.end_offset:
            state.effects.append(Flush())
        leader = state.peer_of(state.epoch_leader_id) if state.epoch_leader_id != state.node_id else None
        if state.is_voter and len(state.voters) == 1:
            state.become_candidate(now)
            elections.ask(state, now)
        elif leader is not None:
            state.become_follower(state.epoch, leader, now)
        else:
            state.become_unattached(state.epoch, now)
        following.maybe_fetch(state, now)

    def on_time(self, now: float) -> None:
        state = self._state
        role = state.role
        if isinstance(role, Leader):
            leading.on_leader_time(state, role, now)
        elif isinstance(role, Resigned):
            if now >= role.ends_at:
                # This node voted for itself in the epoch that it led.
                state.become_unattached(state.epoch + 1, now)
            else:
                epochs.end_epoch(state, role, now)
        elif isinstance(role, Prospective):
            if now >= role.ends_at:
                elections.give_up_prospects(state, now)
            else:
                elections.ask(state, now)
        elif isinstance(role, Candidate):
            if now >= role.ends_at:
                self._stand(role.retries + 1, now)
            else:
                elections.ask(state, now)
        elif now >= role.deadline:
            self._miss_leader(role, now)
        following.maybe_fetch(state, now)

    def _miss_leader(self, role: Follower | Unattached, now: float) -> None:
        state = self._state
        if state.fetching.installing is not None:
            # The log is being replaced; whether it is good enough to stand with is known when that is done.
            wait_until = now + state.timing.election_timeout(state.random)
            if isinstance(role, Follower):
                role.fetch_by = wait_until
            else:
                role.election_at = wait_until
        elif state.is_voter:
            self._stand(role.retries if isinstance(role, Unattached) else 0, now)
        else:
            state.become_unattached(state.epoch, now)

    def _stand(self, retries: int, now: float) -> None:
        self._state.become_prospective(now, retries)
        elections.ask(self._state, now)

    # Requests of others

    def on_vote(self, request: VoteRequest, now: float) -> VoteResponse:
        response = elections.on_vote(self._state, request, now)
        following.maybe_fetch(self._state, now)
        return response

    def on_begin_quorum_epoch(self, request: BeginQuorumEpochRequest, now: float) -> BeginQuorumEpochResponse:
        response = epochs.on_begin(self._state, request, now)
        following.maybe_fetch(self._state, now)
        return response

    def on_end_quorum_epoch(self, request: EndQuorumEpochRequest, now: float) -> EndQuorumEpochResponse:
        response = epochs.on_end(self._state, request, now)
        following.maybe_fetch(self._state, now)
        return response

    def on_request(self, request: Message, now: float) -> Message:
        """Any of the three above, by its class."""
        if isinstance(request, VoteRequest):
            return self.on_vote(request, now)
        if isinstance(request, BeginQuorumEpochRequest):
            return self.on_begin_quorum_epoch(request, now)
        assert isinstance(request, EndQuorumEpochRequest), request
        return self.on_end_quorum_epoch(request, now)

    def on_fetch(self, fetch: ReplicaFetch, now: float) -> ReplicaFetchAnswer:
        """Answer a Fetch. The fetch offset counts as the acknowledgement of the replica."""
        return leading.on_fetch(self._state, fetch, now)

    def answer_fetch(self, fetch: ReplicaFetch) -> ReplicaFetchAnswer:
        """Answer a request that has been waiting; unlike a new one it does not show that the replica is alive."""
        return leading.answer_fetch(self._state, fetch)

    def on_fetch_snapshot(self, key: ReplicaKey, leader_epoch: int, cluster_id: str | None, now: float) -> ErrorCode:
        """Return NONE if this node may answer a FetchSnapshot. The driver reads the bytes."""
        return leading.on_fetch_snapshot(self._state, key, leader_epoch, cluster_id, now)

    # Answers, and the driver's own news

    def on_answer(self, to: Peer, request: Message, response: Any, now: float) -> None:
        """Take the answer to a `Send` with this `to` and `request`; None if there was none."""
        state = self._state
        if isinstance(request, FetchRequest):
            following.on_fetch_answer(state, to, request, response, now)
        elif isinstance(request, VoteRequest):
            elections.on_vote_answer(state, to, request, response, now)
        elif isinstance(request, FetchSnapshotRequest):
            following.on_snapshot_answer(state, to, request, response, now)
        elif isinstance(request, BeginQuorumEpochRequest):
            epochs.on_begin_answer(state, to, request, response, now)
        elif isinstance(request, EndQuorumEpochRequest):
            epochs.on_end_answer(state, to, request, response, now)
        following.maybe_fetch(state, now)

    def on_flushed(self, now: float) -> None:
        """`log.flushed_end` has moved."""
        state = self._state
        if isinstance(state.role, Leader):
            leading.advance(state, state.role)
        else:
            following.maybe_fetch(state, now)

    def on_snapshot_installed(self, snapshot_id: SnapshotId, now: float) -> None:
        """`InstallSnapshot` was performed: the log begins and ends where the snapshot ends."""
        following.on_snapshot_installed(self._state, snapshot_id, now)

    def on_snapshot_failed(self, snapshot_id: SnapshotId, now: float) -> None:
        """`SnapshotChunk` or `InstallSnapshot` could not be performed; log and image are what they were."""
        following.on_snapshot_failed(self._state, snapshot_id, now)

    # The node's own wishes

    def append(self, batch: Any, now: float) -> int:
        """Append to the log of the epoch that this node leads; the base offset. NotLeader if it leads none."""
        if not isinstance(self._state.role, Leader):
            raise NotLeader(f"this node does not lead epoch {self._state.epoch} of the metadata quorum")
        return self._state.append(batch)

    def resign(self, now: float) -> None:
        """Give up the lead, telling the voters who should be next; nothing happens on who does not lead."""
        if isinstance(self._state.role, Leader):
            leading.resign(self._state, now)

    def learn_voters(self, voters: VoterSet, offset: int) -> None:
        """Take the VotersRecord at `offset` of the log."""
        self._state.learn_voters(voters, offset)

    def describe(self, now: float) -> list[ReplicaFacts]:
        """Return facts of all replicas, voters first, each by id; empty if this node does not lead."""
        state, role = self._state, self._state.role
        if not isinstance(role, Leader):
            return []
        own = ReplicaFacts(state.key, state.log.end_offset, now, now, state.is_voter)
        others = [
            ReplicaFacts(known.key, known.end_offset, known.last_fetch_at, known.last_caught_up_at, is_voter)
            for is_voter, known in [
                *((True, known) for known in role.voters.values()),
                *((False, known) for known in role.observers.values()),
            ]
        ]
        return sorted([own, *others], key=lambda facts: (not facts.is_voter, facts.key))
