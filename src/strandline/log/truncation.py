"""Truncating a log at its end, or restarting it elsewhere: what a follower does whose log diverges from its leader's.

First `begin_truncation`; then the owner writes the lower recovery point to disk; then `truncate_to` or `restart_at`.
"""

from __future__ import annotations

from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from strandline.errors import CorruptLog, DiskFailed, StrandlineError
from strandline.log import leader_epochs as epoch_file
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.log_replay import relearn
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.file_names import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, file_stem
from strandline.log.segment.read_verification import locate
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_counts import count_hole


def begin_truncation(log: PartitionLog, offset: int, *, tombstone_horizon: int = 0) -> bool:
    """Count nothing above `offset` as flushed from here on. Return whether a recovery point on disk must be lowered.

    A follower whose leader has a larger `tombstone_horizon` takes that over with the truncation, even if nothing is
    removed.
    """
    log.cut_offset = offset
    log.planned_tombstone_horizon = tombstone_horizon
    offset = _safe_below(log, offset)
    log.planned_start_offset = 0
    log.unsynced.limit(offset)
    if log.flushed_offset <= offset:
        return False
    log.flushed_offset = offset
    return True


def _safe_below(log: PartitionLog, offset: int) -> int:
    """Return up to where a log is sure to be recovered after a crash during its truncation to `offset`.

    A cleaned segment may end before the next one begins. Recovery then finds that the log ends there.
    """
    at = bisect_left(log.base_offsets, offset) - 1
    return offset if at < 0 or at == len(log.segments) - 1 else log.base_offsets[at]


def cancel_truncation(log: PartitionLog) -> None:
    """Give up the truncation that was begun."""
    log.cut_offset = None
    log.planned_tombstone_horizon = 0
    _count_flushed_again(log)


def _count_flushed_again(log: PartitionLog) -> None:
    """Ask for a flush, because a truncation lowered `flushed_offset`. Without one, pending acknowledgements would
    wait until the next append."""
    if log.flushed_offset < log.log_end_offset:
        log.unsynced.add(log.active)
        log.want_flush()


def drop_segments(log: PartitionLog, first: int) -> None:
    """Delete the segments from index `first` on."""
    while len(log.segments) > first:
        gone = log.segments.pop()
        log.base_offsets.pop()
        _delete_segment(log, gone)
    log.active = log.segments[-1]


def _delete_segment(log: PartitionLog, segment: Segment) -> None:
    log.unsynced.discard(segment)
    segment.delete(log.remove_files)


def truncate_to(log: PartitionLog, offset: int) -> None:
    """Remove everything from `offset` on; it must be the start of a batch or the end.

    A recovery point on disk above `offset` is lowered first: see `LogDirectory.lower_recovery_point`. The removed
    segments and epochs are off the disk when this returns. So no power cut brings them back among later batches.

    Raises DiskFailed. Then either nothing has changed and the caller may try again, or the log is offline. The epochs
    are written first, because a full disk refuses that; the rest needs hardly any room. If a crash comes in between,
    recovery finds the dropped epochs in the batches, from the recovery point on.
    """
    if log.failure is not None:
        raise log.refusal()
    was_begun, log.cut_offset = log.cut_offset is not None, None
    log.planned_start_offset = 0
    horizon, log.planned_tombstone_horizon = log.planned_tombstone_horizon, 0
    if offset >= log.log_end_offset:
        log.tombstone_horizon = max(log.tombstone_horizon, horizon)
        if was_begun:
            _count_flushed_again(log)
        return
    # First, so that records that are gone never count as flushed, even if the disk fails half way.
    log.flushed_offset = min(log.flushed_offset, _safe_below(log, offset))
    kept = _write_kept_epochs(log, offset)
    try:
        _truncate_segments(log, offset)
        # Not before: threads verify unread batches against these epochs, and would take those above for damaged.
        log.leader_epochs = kept
        log.snapshots.remove_beyond(offset)
        relearn(log, log.snapshots.restore(at_most=offset, now_ms=log.appended_ms), None)
    except (OSError, StrandlineError) as error:
        # Segments, epochs and producer state no longer agree.
        log.fail(DiskFailed(f"{log.directory}: cannot truncate to {offset}: {error}"))
        raise log.refusal() from error
    log.tombstone_horizon = max(min(log.tombstone_horizon, offset), horizon)
    _count_flushed_again(log)


def _write_kept_epochs(log: PartitionLog, offset: int) -> LeaderEpochs:
    """Remove the epochs from `offset` on from the file. Return those that stay. Raises DiskFailed as `truncate_to`."""
    latest, kept = log.leader_epochs.latest, log.leader_epochs.below(offset)
    changes = kept.latest != latest
    try:
        if log.swap is not None:
            log.swap.settle()
        if changes:
            log.disk.write_whole(log.directory / epoch_file.FILE_NAME, kept.format().encode(), sync=True)
    except (OSError, StrandlineError) as error:
        failed = DiskFailed(f"{log.directory}: cannot truncate to {offset}: {error}")
        if changes and not _has_saved(log, latest):
            log.fail(failed)
        _count_flushed_again(log)
        raise failed from error
    return kept


def _has_saved(log: PartitionLog, epoch: int) -> bool:
    """Return whether `epoch` is the newest in the file of leader epochs: a write that failed may have been made."""
    try:
        text = log.disk.read_whole(log.directory / epoch_file.FILE_NAME).decode(errors="replace")
        return LeaderEpochs.parse(text).latest == epoch
    except (OSError, CorruptLog):
        return False


def _truncate_segments(log: PartitionLog, offset: int) -> None:
    # What is written from here on is not covered by the flush that is under way.
    log.unsynced.limit(offset)
    count = len(log.segments)
    drop_segments(log, max(1, bisect_left(log.base_offsets, offset)))
    if len(log.segments) < count:
        log.disk.sync_directory(log.directory)
    position = locate(log.active, offset, may_block=True)
    if position is not None:
        log.active.truncate(position, offset)
        log.cuts += 1
        log.unsynced.add(log.active)
        # Else a power cut might leave parts of later batches among the removed ones.
        log.sync_cuts()
    log.active.is_active = True
    end_offset = log.active.resume()
    count_hole(log.active, end_offset, offset)
    if log.active.base_offset < offset > end_offset:
        # The cleaner removed the batches before `offset`. The name of a new segment keeps it for a restart.
        log.seal(log.active)
        log.add_segment(offset, log.active.created_ms)
    log.log_end_offset = offset
    log.log_start_offset = min(log.log_start_offset, offset)
    log.tier_start_offset = min(log.tier_start_offset, offset)


class Former(NamedTuple):
    """What a log must know of the records before its first one, which are in a store."""

    leader_epochs: LeaderEpochs
    producer_snapshot: bytes | None
    tier_start_offset: int


def restart_at(log: PartitionLog, offset: int, now_ms: int, former: Former | None = None) -> None:
    """Remove everything, and begin an empty log at `offset`.

    A follower does this if its leader no longer has the next records, or sent a snapshot in their place. A crash on
    the way leaves a log that ends early, or none, as if the follower were further behind. So its recovery point is
    lowered to 0 first, by `LogDirectory.lower_recovery_point`.

    Raises DiskFailed as `truncate_to` does. What a full disk refuses comes first.
    """
    if log.failure is not None:
        raise log.refusal()
    log.cut_offset = None
    log.planned_start_offset = 0
    horizon, log.planned_tombstone_horizon = log.planned_tombstone_horizon, 0
    files = _make_files_ahead(log, offset)
    log.flushed_offset = 0
    try:
        kept = _write_kept_epochs(log, -1)
    except DiskFailed:
        _remove_quietly(log, files)
        raise
    log.written_start_offset = 0
    try:
        if log.trimmed is not None:
            log.trimmed.rename_rest()
        while log.segments:
            # The last one first: a crash leaves a log without its end, never one with a hole.
            gone = log.segments.pop()
            log.base_offsets.pop()
            _delete_segment(log, gone)
        log.leader_epochs = kept
        log.snapshots.remove_beyond(-1)
        log.log_start_offset = log.log_end_offset = log.flushed_offset = offset
        if log.tier_start_offset >= 0:
            log.tier_start_offset = offset
        log.tombstone_horizon = horizon
        log.has_aborted = False
        log.unsynced.limit(offset)
        if former is not None:
            # Before the first segment has its name: a log that begins at `offset` must know what lies before it.
            log.tier_start_offset, log.leader_epochs = former.tier_start_offset, former.leader_epochs.below(offset)
            known = log.leader_epochs.format().encode()
            log.disk.write_whole(log.directory / epoch_file.FILE_NAME, known, sync=True)
            if former.producer_snapshot is not None:
                log.snapshots.adopt(offset, former.producer_snapshot)
        for path in files:
            log.disk.rename(path, path.with_suffix(""))
        log.add_segment(offset, now_ms)
        log.active.is_active = True
        log.disk.sync_directory(log.directory)
    except OSError as error:
        log.fail(DiskFailed(f"{log.directory}: cannot begin at {offset}: {error.strerror}"))
        raise log.refusal() from error
    relearn(log, log.snapshots.restore(at_most=None, now_ms=log.appended_ms), None)


def _make_files_ahead(log: PartitionLog, offset: int) -> list[Path]:
    """Make the files of the segment that is to begin at `offset`, under names that `open_log` removes after a crash.
    Raises DiskFailed as `restart_at`."""
    stem = file_stem(offset)
    files = [log.directory / (stem + each + ".tmp") for each in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
    try:
        for path in files:
            log.disk.open(path, create=True).close()
    except OSError as error:
        _remove_quietly(log, files)
        _count_flushed_again(log)
        raise DiskFailed(f"{log.directory}: cannot begin at {offset}: {error.strerror}") from error
    return files


def _remove_quietly(log: PartitionLog, files: list[Path]) -> None:
    with suppress(OSError):
        for path in files:
            log.disk.remove(path)
