"""The state of one replica, and every way from one role to another.

Epoch and vote change only through `remember`, which puts a `Save` before all effects that follow from the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from strandline.codec.messages.leader_change_message import LeaderChangeMessage
from strandline.codec.messages.leader_change_message import Voter as VoterEntry
from strandline.quorum.raft.effects import (
    Effect,
    Flush,
    HighWatermark,
    LeaderKnown,
    Leading,
    NoLongerLeading,
    Save,
    SendRequest,
)
from strandline.quorum.raft.messages import VERSIONS
from strandline.quorum.raft.raft_log import RaftLog
from strandline.quorum.raft.roles import (
    NEVER,
    Candidate,
    Fetching,
    Follower,
    Leader,
    Prospective,
    ReplicaProgress,
    Resigned,
    Role,
    Unattached,
)
from strandline.quorum.raft.state_files import QuorumState
from strandline.quorum.raft.timing import RaftTiming
from strandline.quorum.raft.voters import UNKNOWN_ID, Peer, ReplicaKey, VoterHistory, VoterSet

if TYPE_CHECKING:
    from random import Random

    from strandline.codec.message import Message

EPOCH_LAST: Final = 2**31 - 2
"""A later epoch is rejected, because the one after it would not fit the wire."""


class RaftState:
    def __init__(
        self,
        *,
        key: ReplicaKey,
        cluster_id: str | None,
        voters: VoterSet,
        bootstrap_servers: tuple[tuple[str, int], ...],
        may_vote: bool,
        state: QuorumState,
        log: RaftLog,
        timing: RaftTiming,
        random: Random,
    ) -> None:
        self.key = key
        self.node_id = key.node_id
        self.cluster_id = cluster_id
        self.history = VoterHistory(voters)
        self.bootstrap_servers = bootstrap_servers
        self.may_vote = may_vote
        self.log = log
        self.timing = timing
        self.random = random
        self.effects: list[Effect] = []
        self.saved = state
        self.epoch = max(state.leader_epoch, log.last_epoch)
        is_same = self.epoch == state.leader_epoch
        self.voted = ReplicaKey(state.voted_id, state.voted_directory_id) if is_same and state.voted_id >= 0 else None
        self.epoch_leader_id = state.leader_id if is_same else UNKNOWN_ID
        """The leader of `epoch`, once it is known; the role says whether it still leads."""
        latest = log.latest_snapshot
        self.high_watermark = max(log.start_offset, latest.end_offset if latest is not None else 0)
        self.fetching = Fetching()
        self.role: Role = Unattached(NEVER)
        self.heard_leader: tuple[int, float] | None = None
        """Which leader answered us last, and when."""
        self._told: tuple[int, int] = (-1, UNKNOWN_ID)

    # What holds now

    @property
    def voters(self) -> VoterSet:
        return self.history.newest

    @property
    def is_voter(self) -> bool:
        return self.may_vote and self.history.newest.holds(self.key)

    @property
    def leader(self) -> Peer | None:
        role = self.role
        if isinstance(role, Follower):
            return role.leader
        if isinstance(role, Leader):
            own = self.voters.get(self.node_id)
            return own.peer if own is not None else None
        return None

    @property
    def leader_id(self) -> int:
        role = self.role
        if isinstance(role, Follower):
            return role.leader.node_id
        return self.node_id if isinstance(role, Leader) else UNKNOWN_ID

    @property
    def last(self) -> tuple[int, int]:
        """(last epoch, end offset): what votes are decided by."""
        return self.log.last_epoch, self.log.end_offset

    def peer_of(self, node_id: int) -> Peer | None:
        voter = self.voters.get(node_id)
        return voter.peer if voter is not None and voter.port > 0 else None

    def is_wrong_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is not None and self.cluster_id is not None and cluster_id != self.cluster_id

    def send(self, to: Peer, request: Message, extra_s: float = 0.0) -> None:
        timeout_s = self.timing.request_timeout_s + extra_s
        self.effects.append(SendRequest(to, request, VERSIONS[type(request)], timeout_s))

    def learn_voters(self, voters: VoterSet, offset: int) -> None:
        """Take the voters of a record at `offset`. A leader counts them from now on, with what it knows of each."""
        if voters == self.voters:
            return
        self.history.add(offset, voters)
        role = self.role
        if isinstance(role, Leader):
            others = voters.others(self.node_id)
            role.voters = {
                voter.node_id: role.voters.get(voter.node_id) or ReplicaProgress(voter.key) for voter in others
            }
            role.check_at = min(role.check_at, role.since + self.timing.check_quorum_s) if others else NEVER
            role.begin_at = role.since if others else NEVER

    # From role to role

    def become_unattached(
        self, epoch: int, now: float, *, election_in_s: float | None = None, retries: int = 0
    ) -> None:
        """Become unattached, in this epoch or a later one."""
        if election_in_s is None:
            election_in_s = self.timing.election_timeout(self.random)
        self._enter(Unattached(now + election_in_s if self.is_voter else NEVER, retries), epoch)

    def become_prospective(self, now: float, retries: int = 0) -> None:
        last_leader = self.role.leader if isinstance(self.role, Follower) else None
        ends_at = now + self.timing.election_timeout(self.random)
        self._enter(Prospective(ends_at, last_leader, retries), self.epoch)

    def become_candidate(self, now: float) -> None:
        """Stand in an epoch of our own, with our vote for ourselves on disk before anybody is asked."""
        retries = self.role.retries if isinstance(self.role, Prospective) else 0
        self._enter(Candidate(now + self.timing.election_timeout(self.random), retries), self.epoch + 1, voted=self.key)

    def become_leader(self, granting: list[int], now: float) -> None:
        others = self.voters.others(self.node_id)
        message = LeaderChangeMessage(
            leader_id=self.node_id,
            voters=[VoterEntry(voter.node_id, voter.directory_id) for voter in self.voters],
            granting_voters=[
                VoterEntry(voter.node_id, voter.directory_id) for voter in self.voters if voter.node_id in granting
            ],
        )
        offset = self.log.append_leader_change(message, self.epoch)
        role = Leader(now, offset, {voter.node_id: ReplicaProgress(voter.key) for voter in others})
        if others:
            role.check_at = now + self.timing.check_quorum_s
            role.begin_at = now
        self._enter(role, self.epoch, leader_id=self.node_id)
        self.effects.append(Flush())

    def become_follower(self, epoch: int, leader: Peer, now: float, *, fetch_in_s: float | None = None) -> None:
        fetch_by = now + (self.timing.fetch_timeout(self.random) if fetch_in_s is None else fetch_in_s)
        self._enter(Follower(leader, fetch_by), epoch, leader_id=leader.node_id)

    def become_resigned(self, now: float) -> None:
        role = self.role
        assert isinstance(role, Leader), role
        # The most caught up stands first; the id decides among equals, so that all see the same order.
        behind = sorted(role.voters.values(), key=lambda progress: (-progress.end_offset, progress.key.node_id))
        ends_at = now + self.timing.election_timeout(self.random)
        resigned = Resigned(ends_at, [progress.key for progress in behind], dict.fromkeys(role.voters, now))
        self._enter(resigned, self.epoch)

    def learn(self, epoch: int, leader_id: int, leader: Peer | None, now: float) -> bool:
        """Take the leader of `epoch` from a peer; return whether that changed anything."""
        if epoch < self.epoch or epoch > EPOCH_LAST:
            return False
        peer = None
        if leader_id >= 0 and leader_id != self.node_id:
            peer = leader or self.peer_of(leader_id)
        if epoch > self.epoch:
            if peer is not None:
                self.become_follower(epoch, peer, now)
            else:
                self.become_unattached(epoch, now)
            return True
        role = self.role
        if peer is None or isinstance(role, Leader | Resigned | Follower):
            return False
        if isinstance(role, Prospective) and role.last_leader is not None and role.last_leader.node_id == leader_id:
            return False  # We stand because we hear nothing of it.
        self.become_follower(epoch, peer, now)
        return True

    def _enter(self, role: Role, epoch: int, *, voted: ReplicaKey | None = None, leader_id: int = UNKNOWN_ID) -> None:
        assert epoch >= self.epoch, (epoch, self.epoch)
        before, led_epoch = self.role, self.epoch
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted = None
            self.epoch_leader_id = UNKNOWN_ID
        if leader_id >= 0:
            self.epoch_leader_id = leader_id
        if voted is not None:
            self.voted = voted
        self.role = role
        self.fetching.reset()
        self.remember()
        if isinstance(before, Leader):
            self.effects.append(NoLongerLeading(led_epoch))
        if self._told != (self.epoch, self.leader_id):
            self._told = (self.epoch, self.leader_id)
            self.effects.append(LeaderKnown(self.epoch, self.leader_id, self.leader))

    def remember(self) -> None:
        """Save epoch, vote and leader, if they are news."""
        voted = self.voted or ReplicaKey(UNKNOWN_ID)
        state = QuorumState(self.epoch, self.epoch_leader_id, voted.node_id, voted.directory_id)
        if state != self.saved:
            self.saved = state
            self.effects.append(Save(state))

    # The high watermark

    def raise_high_watermark(self, offset: int) -> None:
        if offset <= self.high_watermark:
            return
        self.high_watermark = offset
        self.effects.append(HighWatermark(offset))
        role = self.role
        if isinstance(role, Leader) and not role.is_announced and offset > role.start_offset:
            role.is_announced = True
            self.effects.append(Leading(self.epoch))

    def append(self, batch: Any) -> int:
        offset = self.log.append(batch, self.epoch)
        self.effects.append(Flush())
        return offset
