"""What a leader answers to a Fetch of its log, before any bytes are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID
from strandline.quorum.raft.raft_log import EpochEnd, RaftLog, SnapshotId
from strandline.quorum.raft.voters import ReplicaKey

if TYPE_CHECKING:
    from uuid import UUID

UNLIMITED = 2**63 - 1


@dataclass(frozen=True, slots=True)
class ReplicaFetch:
    """The facts of one Fetch request for `__cluster_metadata-0`; `replica_id` -1 is a client, which may read too."""

    replica_id: int
    current_leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    replica_directory_id: UUID = ZERO_UUID
    high_watermark: int = UNLIMITED
    """What the replica knows of the high watermark (Fetch 18): behind ours, it is answered at once."""
    cluster_id: str | None = None

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.replica_id, self.replica_directory_id)


@dataclass(frozen=True, slots=True)
class ReplicaFetchAnswer:
    """What goes into the answer. Without error, divergence and snapshot: the entries from `fetch_offset` on.

    `may_wait`: there is nothing to tell yet. The driver keeps the request, at most as long as its max wait says, asks
    `Raft.answer_fetch` again after each append, high watermark or loss of the lead, and sends what it says then.
    A replica (`replica_id` >= 0) gets entries up to the log end; a client only below `high_watermark`.
    """

    error: ErrorCode
    leader_id: int
    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    diverging: EpochEnd | None = None
    snapshot: SnapshotId | None = None
    may_wait: bool = False

    @property
    def has_records(self) -> bool:
        return self.error == ErrorCode.NONE and self.diverging is None and self.snapshot is None


def check_position(log: RaftLog, offset: int, epoch: int) -> EpochEnd | SnapshotId | None:
    """Return None if the entry before `offset` is of `epoch` here, too; else where to truncate, or a snapshot."""
    earliest = log.earliest_snapshot
    if earliest is not None:
        start = log.start_offset
        is_before = offset < start or epoch < earliest.epoch
        # Right at the start there is no entry to compare with but the last one in the snapshot.
        is_other = offset == start != 0 and offset == earliest.end_offset and epoch != earliest.epoch
        if is_before or is_other:
            return log.latest_snapshot
    end = log.end_of_epoch(epoch)
    if end.epoch != epoch or end.end_offset < offset:
        return end
    return None


def truncation_point(log: RaftLog, diverging: EpochEnd) -> int:
    """Return how far our log can agree with that of a leader with this `diverging.epoch`."""
    own = log.end_of_epoch(diverging.epoch)
    if own.epoch == diverging.epoch:
        return min(own.end_offset, diverging.end_offset, log.end_offset)
    return min(own.end_offset, log.end_offset)
