"""Removing records at the start of a partition: on request, or because the leader no longer has them.

Readers do not see them from then on. Before a request is answered the log start offset is written down, so that no
restart brings them back. Then files that hold no other records are renamed, and unlinked `file.delete.delay.ms` later
(`log.trimming`).
"""

from __future__ import annotations

from typing import Final

from strandline.errors import ErrorCode, OffsetOutOfRange, RequestError
from strandline.log.maintenance.retention import is_locked
from strandline.log.segment.segment import Segment
from strandline.log.trimming import remove_segments
from strandline.partition.delayed_operations import CommitListener
from strandline.partition.partition import Partition

UP_TO_HIGH_WATERMARK: Final = -1
"""Sent in DeleteRecords for "all that may be deleted"."""


def delete_records(partition: Partition, offset: int) -> int:
    """Remove everything below `offset`, and return the log start offset. Raises StrandlineError with nothing changed.

    An offset below the log start offset changes nothing.
    """
    if partition.log.failure is not None:
        raise partition.log.refusal()
    if "delete" not in partition.config.cleanup_policy:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {partition.topic} does not allow records to be deleted"
        )
    start_offset = partition.high_watermark if offset == UP_TO_HIGH_WATERMARK else offset
    if not 0 <= start_offset <= partition.high_watermark:
        raise OffsetOutOfRange(f"cannot delete up to {start_offset}: {partition!r}")
    if start_offset > partition.log_start_offset:
        _check_lock(partition, start_offset)
        trim(partition, start_offset)
    return partition.log_start_offset


def _check_lock(partition: Partition, start_offset: int) -> None:
    """Raise RequestError (POLICY_VIOLATION) if records below the offset are in a segment that is locked."""
    if not partition.config.retention_lock_ms:
        return
    now_ms = partition.runtime.now_ms()
    for segment in partition.log.segments:
        if segment.base_offset < start_offset and is_locked(segment, partition.config, now_ms):
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {partition!r} from offset {segment.base_offset} on are locked by "
                f"strandline.retention.lock.ms={partition.config.retention_lock_ms}",
            )


def follow_start(partition: Partition, log_start_offset: int) -> None:
    """Remove what the leader's log no longer holds: a client may have asked for that."""
    if partition.log_start_offset < log_start_offset <= partition.high_watermark:
        trim(partition, log_start_offset)


def trim(partition: Partition, start_offset: int) -> list[Segment]:
    """Move the log start to `start_offset`, and notify followers. Return the local segments that are removed."""
    log = partition.log
    if log.tier_start_offset >= 0:
        log.tier_start_offset = max(log.tier_start_offset, start_offset)
        log.leader_epochs.truncate_start(log.tier_start_offset)
    gone = log.cut_front(start_offset) if start_offset > log.log_start_offset else []
    remove_segments(log, gone)
    for listener in list(partition.append_listeners):
        listener.on_start_moved()
    serve_trims(partition)
    return gone


def trim_local(partition: Partition, start_offset: int) -> list[Segment]:
    """Remove local records of a tiered partition that the store has. Return the segments that are removed."""
    log = partition.log
    assert log.tier_start_offset >= 0, "what is not tiered is trimmed for good"
    gone = log.cut_front(start_offset)
    remove_segments(log, gone)
    return gone


def when_trimmed(partition: Partition, offset: int, listener: CommitListener) -> None:
    """Notify `listener` when no replica that is alive holds records below `offset`."""
    partition.delayed.trims.append((offset, listener))
    serve_trims(partition)


def serve_trims(partition: Partition) -> None:
    if partition.delayed.trims:
        start_offset, in_sync = partition.log_start_offset, partition.in_sync
        partition.delayed.on_trimmed(start_offset if in_sync is None else in_sync.low_watermark(start_offset))
