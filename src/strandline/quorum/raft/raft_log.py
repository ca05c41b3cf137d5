"""What the Raft core asks of the log: a small interface that the driver implements over `PartitionLog`, and the
simulation in memory.

Every call is synchronous and changes what the other calls see at once. Only *flushing* is asynchronous: the core emits
`Flush`, the driver flushes and calls `Raft.on_flushed`. A call that fails raises; the node must then stop taking part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from strandline.codec.messages.leader_change_message import LeaderChangeMessage


class SnapshotId(NamedTuple):
    """A snapshot holds everything before `end_offset`; `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int


class EpochEnd(NamedTuple):
    """`epoch`'s entries end before `end_offset`."""

    epoch: int
    end_offset: int


class RaftLog(Protocol):
    """`start_offset` is 0 or the end of `earliest_snapshot`, so that the epoch of the entry before it is known.

    At a start, a log that ends before its latest snapshot does (a snapshot may reach further than what was flushed)
    begins and ends where the snapshot ends.
    """

    @property
    def start_offset(self) -> int:
        """The first entry that is still there."""

    @property
    def end_offset(self) -> int:
        """Where the next entry goes."""

    @property
    def flushed_end(self) -> int:
        """Entries before it survive a power cut. Never above `end_offset`."""

    @property
    def last_epoch(self) -> int:
        """Epoch of the last entry; without entries that of the latest snapshot; 0 without either."""

    @property
    def earliest_snapshot(self) -> SnapshotId | None: ...

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The newest complete snapshot. Its end is never above the high watermark of the replica that made it."""

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Return the largest epoch up to `epoch` that has entries here, and its end offset.

        `EpochEnd(epoch, start_offset)` if all entries have larger epochs (`LeaderEpochs.end_offset` says the same),
        `EpochEnd(last_epoch, end_offset)` if all have smaller ones or there are none.
        """

    def append(self, batch: Any, epoch: int) -> int:
        """Append one batch of this leader's own; its base offset. `batch` is what was given to `Raft.append`."""

    def append_leader_change(self, message: LeaderChangeMessage, epoch: int) -> int:
        """Append `message` as the control record that begins `epoch`; its offset."""

    def append_fetched(self, records: Any) -> None:
        """Append the `records` of a Fetch answer as they are: whole batches, the first at `end_offset`.

        Raises PeerError, with nothing appended, if they are damaged or do not follow the end. Batches that begin below
        the end are passed over; a cut last one is left out.
        """

    def truncate_to(self, end_offset: int) -> None:
        """Drop all entries from `end_offset` on. `flushed_end` comes down with the end."""
