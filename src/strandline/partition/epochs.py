"""Where the log of a consumer or a follower diverges from this replica's, by leader epochs."""

from __future__ import annotations

from strandline.errors import OffsetOutOfRange
from strandline.partition.partition import ANY_EPOCH, Partition


def end_of_epoch(partition: Partition, epoch: int) -> tuple[int, int]:
    """Return (the largest epoch up to `epoch`, the offset where it ended), or (-1, -1) if that is not known here."""
    epochs = partition.log.leader_epochs
    if epoch == ANY_EPOCH:
        return -1, -1
    if epochs.latest < epoch <= partition.leader_epoch:
        # Nothing was written in the current epoch yet: it begins, and every one before it ends, at the log end.
        return (
            partition.leader_epoch if epoch == partition.leader_epoch else epochs.latest,
            partition.log.log_end_offset,
        )
    return epochs.end_offset(epoch, partition.log.log_end_offset)


def divergence(partition: Partition, last_epoch: int, offset: int) -> tuple[int, int] | None:
    """Return where a log whose last record before `offset` is of `last_epoch` diverges; None if it does not.

    The result is (the largest epoch up to `last_epoch` that is here, where that one ends).
    """
    epoch, end_offset = end_of_epoch(partition, last_epoch)
    if end_offset < 0:
        raise OffsetOutOfRange(f"nothing is known here of epoch {last_epoch}: {partition!r}")
    if epoch < 0:
        # There are no records here to compare with: only records behind the end diverge.
        return (epoch, end_offset) if end_offset < offset else None
    return (epoch, end_offset) if epoch < last_epoch or end_offset < offset else None


def replica_divergence(partition: Partition, last_epoch: int, offset: int, start_offset: int) -> tuple[int, int] | None:
    """Return the same for a replica that holds records from `start_offset` to `offset`.

    If all of them lie below this log's start, and it has no record of their epoch left, the leader cannot tell
    whether they were committed. So they count as diverged.
    """
    diverging, epochs = divergence(partition, last_epoch, offset), partition.log.leader_epochs.epochs
    is_below = start_offset < offset == partition.log_start_offset
    if diverging is None and is_below and epochs and last_epoch < epochs[0]:
        return last_epoch, offset
    return diverging
