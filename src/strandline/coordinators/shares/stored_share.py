"""One share partition as the share coordinator remembers it: what its last snapshot and the updates behind it say."""

from __future__ import annotations

from strandline.coordinators.shares.share_records import ShareSnapshot, ShareUpdate
from strandline.coordinators.shares.share_state import ShareState, ShareSummary
from strandline.coordinators.shares.state_batches import StateBatches


class StoredShare:
    """The state of a share partition. Records change it, those of the log and those that are written, in one way."""

    __slots__ = (
        "batches",
        "created_ms",
        "delivery_complete_count",
        "leader_epoch",
        "snapshot_epoch",
        "snapshot_offset",
        "start_offset",
        "state_epoch",
        "updates",
        "written_ms",
    )

    def __init__(self, snapshot: ShareSnapshot, snapshot_offset: int) -> None:
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        self.created_ms = snapshot.created_ms
        self.written_ms = snapshot.written_ms
        self.batches = StateBatches(snapshot.batches)
        self.updates = 0
        """Updates since the snapshot."""
        self.snapshot_offset = snapshot_offset
        """The snapshot is at this offset of the log or behind it; what is before is not needed."""

    def apply(self, update: ShareUpdate) -> None:
        """Merge what a write has brought."""
        self.leader_epoch = max(self.leader_epoch, update.leader_epoch)
        if update.start_offset != -1:
            self.start_offset = update.start_offset
        self.delivery_complete_count = update.delivery_complete_count
        self.batches.merge(update.batches)
        if self.start_offset != -1:
            self.batches.cut(self.start_offset)
        self.updates += 1

    def next_snapshot(self, now_ms: int, *, created_ms: int) -> ShareSnapshot:
        """Return the snapshot to write now."""
        return ShareSnapshot(
            self.snapshot_epoch + 1,
            self.state_epoch,
            self.leader_epoch,
            self.start_offset,
            self.delivery_complete_count,
            created_ms,
            now_ms,
            tuple(self.batches),
        )

    def state(self) -> ShareState:
        return ShareState(self.state_epoch, self.start_offset, tuple(self.batches))

    def summary(self) -> ShareSummary:
        return ShareSummary(self.state_epoch, self.leader_epoch, self.start_offset, self.delivery_complete_count)
