"""What must hold of a simulated quorum after every event, whatever the faults.

| invariant | in words |
|---|---|
| one-leader | an epoch has one leader |
| epoch-monotonic | a replica's epoch never goes back, not even by a restart |
| watermark-monotonic | a high watermark never goes back in one life, and never passes the log end |
| one-vote | a voter that gave its vote in an epoch, and let the answer leave, gives no other there |
| majority | what a leader calls committed is on the disks of a majority |
| durable | and stays: no majority of the voters that are left lacks it |
| committed-stable | a committed entry is never another one, on any replica |
| leader-heard | a leader that no majority fetches from steps down in time |
| leader-complete | a new leader has every committed entry |
| leader-keeps | a leader never cuts its log, nor replaces it by a snapshot |
| snapshot | a snapshot holds exactly what was committed before its end |
| acknowledged | an acknowledged operation is committed where the client was told |
| refused | no replica meets what no correct peer says |
| liveness | with all faults healed there is a leader, new operations are acknowledged, and everybody catches up |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.simulator.raft.log import Entry, Kept

from strandline.quorum.raft.raft_log import SnapshotId

if TYPE_CHECKING:
    from tests.simulator.raft.node import SimulatedReplica

    from strandline.quorum.raft.voters import ReplicaKey, VoterSet


LEADER_ALONE_S = 3.1
"""How long a leader may go on that no majority fetches from: one and a half fetch timeouts, and a moment."""


class Violation(AssertionError):
    """An invariant does not hold; the message begins with its name."""


def chain(digest: int, entry: Entry) -> int:
    # Hashes of whole numbers do not depend on PYTHONHASHSEED.
    return hash((digest, entry[0], entry[1]))


class Oracle:
    def __init__(self, voters: VoterSet) -> None:
        self.voters = voters
        self.committed: list[Entry] = []
        self.committed_by: dict[int, int] = {}
        """By epoch: up to where its leader committed."""
        self.digests = [0]
        """`digests[n]` stands for all entries before offset n."""
        self.leaders: dict[int, int] = {}
        self.votes: dict[tuple[ReplicaKey, int], ReplicaKey] = {}
        self.epochs: dict[ReplicaKey, int] = {}
        self.disks: dict[ReplicaKey, Kept] = {}
        self.voter_keys: list[ReplicaKey] = []
        """Of the disks that the voters began with."""
        self.wiped: set[ReplicaKey] = set()
        """Voters whose disks are gone: what they told a leader before counts, but they vote no more."""

    def check(self, replica: SimulatedReplica) -> None:
        """After every event, of the replica it happened to; the others have not changed."""
        raft, log = replica.raft, replica.log
        epoch, high_watermark = raft.epoch, raft.high_watermark
        seen_epoch = self.epochs.get(replica.key, -1)
        if epoch < seen_epoch:
            raise Violation(f"epoch-monotonic: {replica} went from {seen_epoch} back to {epoch}")
        if epoch > seen_epoch:
            # Not every time: the hash of a key costs as much as the rest of this.
            self.epochs[replica.key] = epoch
        if high_watermark < replica.high_watermark_seen or high_watermark > log.end_offset:
            seen = replica.high_watermark_seen
            raise Violation(f"watermark-monotonic: {replica} {seen} -> {high_watermark}, end {log.end_offset}")
        replica.high_watermark_seen = high_watermark
        if raft.is_leader:
            self._check_leader(replica, epoch)
        elif replica.leading is not None:
            replica.leading = None

    def _check_leader(self, replica: SimulatedReplica, epoch: int) -> None:
        log = replica.log
        if self.leaders.setdefault(epoch, replica.node_id) != replica.node_id:
            raise Violation(f"one-leader: {self.leaders[epoch]} and {replica.node_id} lead epoch {epoch}")
        if replica.leading is None or replica.leading[0] != epoch:
            replica.leading = (epoch, log.end_offset)
            replica.heard = {voter.node_id: replica.world.now for voter in self.voters}
            replica.world.on_new_leader(replica)
            # A candidate may learn of its votes late: what leaders of later epochs committed meanwhile it cannot have.
            count = max((end for by, end in self.committed_by.items() if by < epoch), default=0)
            if log.end_offset <= count or not self._agrees(replica, count - 1):
                raise Violation(f"leader-complete: {replica} leads {epoch} without all of {count} committed entries")
        elif log.end_offset < replica.leading[1]:
            raise Violation(f"leader-keeps: {replica} cut its log to {log.end_offset}")
        else:
            replica.leading = (epoch, log.end_offset)
        replica.heard[replica.node_id] = now = replica.world.now
        heard_at = sorted(replica.heard.values(), reverse=True)[self.voters.majority - 1]
        if heard_at + LEADER_ALONE_S < now and not replica.is_catching_up:
            raise Violation(f"leader-heard: {replica} leads {epoch}, no majority fetched for {now - heard_at:.1f} s")

    def _agrees(self, replica: SimulatedReplica, offset: int) -> bool:
        log = replica.log
        if offset < log.start_offset:
            return True
        return offset < log.end_offset and log.entry(offset) == self.committed[offset]

    def note_vote(self, voter: ReplicaKey, epoch: int, candidate: ReplicaKey) -> None:
        """A granted vote leaves, or a candidate's own goes to disk."""
        if self.votes.setdefault((voter, epoch), candidate) != candidate:
            before = self.votes[voter, epoch]
            raise Violation(f"one-vote: {voter.node_id} voted for {before.node_id} and {candidate.node_id} in {epoch}")

    def note_committed(self, replica: SimulatedReplica, before: int, offset: int) -> None:
        """`replica` moved its high watermark from `before` to `offset`."""
        log, committed = replica.log, self.committed
        if replica.raft.is_leader:
            epoch = replica.raft.epoch
            self.committed_by[epoch] = max(offset, self.committed_by.get(epoch, 0))
        begin, known = max(before, log.start_offset), min(offset, len(committed))
        if begin < known:
            self._check_range(replica, begin, known)
        if offset > known:
            if not replica.raft.is_leader:
                raise Violation(f"majority: {replica} takes {offset - 1} for committed, which no leader said")
            for at in range(max(begin, known), offset):
                entry = log.entry(at)
                committed.append(entry)
                self.digests.append(chain(self.digests[-1], entry))
        if replica.raft.is_leader and offset > 0:
            holders = [key for key in self.voter_keys if self._is_on_disk(key, offset - 1)]
            if len(holders) < self.voters.majority:
                raise Violation(f"majority: only {len(holders)} voters have {offset - 1} on disk")

    def _is_on_disk(self, key: ReplicaKey, offset: int) -> bool:
        """With it, all before it is; see `committed-stable`."""
        return self.disks[key].holds(offset, self.committed[offset].epoch)

    def check_durable(self) -> None:
        """After a crash, an installed snapshot, a wiped disk."""
        if not self.committed:
            return
        last = len(self.committed) - 1
        left = [key for key in self.voter_keys if key not in self.wiped]
        lacking = [key for key in left if not self._is_on_disk(key, last)]
        if len(lacking) >= self.voters.majority:
            raise Violation(f"durable: {last} is on the disks of {len(left) - len(lacking)} voters only")

    def check_snapshot(self, snapshot_id: SnapshotId, content: bytes) -> None:
        end = snapshot_id.end_offset
        is_known = end <= len(self.committed) and self.committed[end - 1].epoch == snapshot_id.epoch
        if not is_known or content != self.snapshot_content(end):
            raise Violation(f"snapshot: {snapshot_id} is not what was committed")

    def snapshot_content(self, end_offset: int) -> bytes:
        """As long as it is old, to some degree, so that some need many pieces."""
        return (b"%d " % self.digests[end_offset]) * (1 + end_offset % 7)

    def check_whole(self, replica: SimulatedReplica) -> None:
        """Entry by entry; between phases."""
        self._check_range(replica, replica.log.start_offset, replica.raft.high_watermark)

    def _check_range(self, replica: SimulatedReplica, begin: int, end: int) -> None:
        log = replica.log
        ours, theirs = self.committed[begin:end], log.entries[begin - log.start_offset : end - log.start_offset]
        if ours != theirs:
            at = next(at for at, entry in enumerate(ours) if at >= len(theirs) or theirs[at] != entry)
            other = theirs[at] if at < len(theirs) else None
            raise Violation(f"committed-stable: {replica} has {other} at {begin + at}, committed is {ours[at]}")
