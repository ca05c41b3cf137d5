"""Opening a log: find its segments, check what a crash may have torn, learn what the batches say.

After a clean stop only the end is checked. Otherwise every batch from the recovery point's segment on is read and
checked, indexes are rebuilt, and a torn tail is cut; see `recovery` for what is torn and what is damage.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import partial
from pathlib import Path
from typing import Final

from strandline.config.remote_origin import PartitionOrigin
from strandline.config.topic_config import TopicConfig
from strandline.errors import CorruptLog
from strandline.log import leader_epochs as epoch_file
from strandline.log.checkpoints import NOTHING_NOTED, EndNotes
from strandline.log.disk import Disk
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.log_origin import beginning, know_epochs, know_transactions
from strandline.log.log_replay import learn, relearn
from strandline.log.maintenance.replacement_recovery import finish_replacements, is_unfinished
from strandline.log.observer import BatchObserver
from strandline.log.partition_log import PartitionLog
from strandline.log.recovery import recover_segment
from strandline.log.segment.batch_validation import OFFSET_LIMIT
from strandline.log.segment.file_names import DELETED_SUFFIX, LOG_SUFFIX, TRANSACTION_INDEX_SUFFIX
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.read_verification import check_tail, distrust, ends_with_gap, trust
from strandline.log.segment.record_counts import COUNTS_SUFFIX, RecordCounts
from strandline.log.segment.segment import Segment
from strandline.log.segment.transaction_index import ENTRY_SIZE
from strandline.log.trimming import trim_now
from strandline.log.truncation import drop_segments

BLANK_CHUNK_BYTES: Final = 64 * 1024


def open_log(
    directory: Path,
    config: TopicConfig,
    *,
    disk: Disk,
    open_files: OpenFiles,
    now_ms: int,
    observer: BatchObserver | None = None,
    clean: bool = False,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    cleaned_up_to: int = 0,
    noted: EndNotes = NOTHING_NOTED,
    origin: PartitionOrigin | None = None,
) -> PartitionLog:
    """Open the log in `directory`, or make it if there is none.

    With `origin` a new log begins behind records that are in an object store. Below `cleaned_up_to` the cleaner may
    have removed records between segments: that is no loss. Raises CorruptLog for damage that is no torn tail, and then
    cuts nothing.
    """
    log = PartitionLog(directory, config, disk=disk, open_files=open_files, observer=observer)
    log.appended_ms = now_ms
    log_start_offset, begins_at = beginning(log_start_offset, origin)
    log.tier_start_offset = max(0, log_start_offset) if config.is_tiered else -1
    if not disk.exists(directory):
        disk.make_directory(directory)
        log.unsynced.directories.append(directory.parent)
    elif not clean:
        # The process that made these names may have been killed before it synced them. A power cut takes a file
        # without a synced name, however well its content was flushed.
        log.unsynced.directories += [directory, directory.parent]
    names = disk.names(directory)
    if is_unfinished(names):
        cleaned_up_to = max(cleaned_up_to, finish_replacements(disk, directory, names))
        names = disk.names(directory)
    told_epochs = _load_leader_epochs(log)
    has_torn_index = _load_segments(log, names, now_ms)
    know_transactions(log, origin)
    if not log.segments:
        _begin(log, begins_at, recovery_point, now_ms)
    else:
        log.log_start_offset = max(log.base_offsets[0], log_start_offset)
        try:
            if clean and not has_torn_index:
                _trust(log, recovery_point, now_ms, noted)
            else:
                _recover(log, recovery_point, cleaned_up_to if config.compact else 0)
            if told_epochs is None:
                _learn_leader_epochs(log)
            if told_epochs != log.leader_epochs.format():
                log.save_leader_epochs()
            log.snapshots.keep_useful(log.base_offsets, log.log_end_offset)
            log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
            # A crash may have come between the note of where the log starts and the end of files below.
            trim_now(log, log.log_start_offset)
        except BaseException:
            for segment in log.segments:
                segment.close()
            raise
    know_epochs(log, origin)
    log.flushed_offset = log.log_end_offset if clean else min(recovery_point, log.log_end_offset)
    log.active.is_active = True
    return log


def _begin(log: PartitionLog, offset: int, recovery_point: int, now_ms: int) -> None:
    """Make the first segment of a log that has none."""
    if recovery_point > offset:
        raise CorruptLog(
            f"{log.directory}: there is no segment, but everything below offset {recovery_point} had reached the disk. "
            "Restore the partition from a replica or a backup"
        )
    log.log_end_offset = log.log_start_offset = offset
    # A crash while the log was to begin elsewhere has left what lies before that.
    log.leader_epochs.truncate_end(offset)
    log.snapshots.remove_beyond(offset)
    log.add_segment(offset, now_ms)
    if offset:
        # Of records before it, which are in a store.
        relearn(log, log.snapshots.restore(at_most=offset, now_ms=now_ms), None)


def _load_leader_epochs(log: PartitionLog) -> str | None:
    """Read the file of leader epochs. Return its content, or None if it is missing or torn."""
    path = log.directory / epoch_file.FILE_NAME
    if log.disk.exists(path):
        try:
            text = log.disk.read_whole(path).decode(errors="replace")
            log.leader_epochs = LeaderEpochs.parse(text)
            return text
        except CorruptLog:
            # Torn by a crash before it was ever synced.
            log.leader_epochs = LeaderEpochs()
    return None


def _learn_leader_epochs(log: PartitionLog) -> None:
    """Learn the epochs from all batches: without an epoch, no divergence in it would be detected.

    Between two batches the cleaner may have removed others, whose epoch is unknown. They count as the later one's: a
    replica with more records of the earlier epoch is then truncated too far, not too little, and fetches the rest.
    """
    epochs, next_offset = LeaderEpochs(), log.base_offsets[0]
    for segment in log.segments:
        for header, _ in segment.headers(0, may_block=True):
            epochs.note(header.leader_epoch, next_offset)
            next_offset = header.last_offset + 1
    log.leader_epochs = epochs


def _load_segments(log: PartitionLog, names: list[str], now_ms: int) -> bool:
    """Find the segments by their files. Return whether a file of aborted transactions is torn."""
    has_torn_index = False
    transaction_indexes = {name for name in names if name.endswith(TRANSACTION_INDEX_SUFFIX)}
    logs = {name for name in names if name.endswith(LOG_SUFFIX)}
    for name in names:
        path = log.directory / name
        if name.endswith((DELETED_SUFFIX, ".tmp")):
            log.disk.remove(path)
        elif name.endswith(COUNTS_SUFFIX) and path.with_suffix(LOG_SUFFIX).name not in logs:
            # Kafka had the directory meanwhile, deleted the segment, and does not know this file.
            log.disk.remove(path)
        elif name.endswith(LOG_SUFFIX) and name[: -len(LOG_SUFFIX)].isdecimal():
            segment = log.new_segment(int(name[: -len(LOG_SUFFIX)]), now_ms)
            segment.size_bytes = log.disk.size(path)
            transaction_index = path.with_suffix(TRANSACTION_INDEX_SUFFIX)
            if transaction_index.name in transaction_indexes:
                segment.has_transaction_index = log.has_aborted = True
                has_torn_index = has_torn_index or log.disk.size(transaction_index) % ENTRY_SIZE != 0
            distrust(segment, log)
            log.adopt(segment)
    return has_torn_index


def _trust(log: PartitionLog, recovery_point: int, now_ms: int, noted: EndNotes) -> None:
    """Take the files as a clean stop left them. Only the end is checked, because offsets continue from there."""
    segment = log.active
    log.log_end_offset = OFFSET_LIMIT
    damage = check_tail(segment)
    if damage is None:
        segment.rewrite_indexes()
        log.log_end_offset = segment.resume()
        if segment.counts is None and log.log_end_offset == noted.plain_at:
            segment.counts = RecordCounts(segment.base_offset)
        if log.log_end_offset > recovery_point > segment.base_offset and ends_with_gap(segment):
            # Nothing else confirms the last base offset.
            raise CorruptLog(
                f"{segment.path}: the log ends at offset {log.log_end_offset}, and it was stopped at {recovery_point}"
            )
    elif recovery_point > segment.base_offset and recovery_point in (*noted, *log.snapshots.offsets()):
        # Two other files note where the log ended. So the log can go on behind the damage until that is repaired.
        log.log_end_offset = recovery_point
        if recovery_point == noted.plain_at:
            segment.counts = RecordCounts(segment.base_offset)
        log.seal(segment)
        log.add_segment(recovery_point, now_ms)
    else:
        raise damage
    if log.observer is not None and log.log_end_offset == noted.no_producers_at not in log.snapshots.offsets():
        log.observer.clear()
        learnt_from: int | None = log.log_end_offset
    else:
        learnt_from = log.snapshots.restore(at_most=log.log_end_offset, now_ms=log.appended_ms)
    relearn(log, learnt_from, None)


def _recover(log: PartitionLog, recovery_point: int, cleaned_up_to: int) -> None:
    """Read and check everything from the recovery point on, after a crash."""
    # A segment that ends at the recovery point was flushed, but perhaps not its indexes, which are written at its end.
    # A lost file of aborted transactions would look like one that never was.
    first = max(0, bisect_left(log.base_offsets, recovery_point) - 1)
    # A sealed segment below it is sound, but its index may be lost or foreign, and is then rebuilt.
    first = next((at for at, segment in enumerate(log.segments[:first]) if not _has_index(log, segment)), first)
    checked_from = log.base_offsets[first]
    relearn(log, log.snapshots.restore(at_most=checked_from, now_ms=log.appended_ms), checked_from)
    # From the recovery point on, the file and the log may disagree: a power cut, or a sync that failed, may undo a
    # truncation in one of them only. There the batches are read. Below it the log was synced together with the file,
    # and the file knows more: the cleaner may have removed an epoch's first batches.
    told_epochs = list(log.leader_epochs.epochs)
    log.leader_epochs.truncate_end(max(checked_from, recovery_point))
    log.log_end_offset = checked_from
    for at, segment in enumerate(log.segments[first:], first):
        size_bytes = segment.size_bytes
        log.log_end_offset = recover_segment(
            segment,
            recovery_point=recovery_point,
            next_offset=max(segment.base_offset, log.log_end_offset),
            is_followed=any(not _is_blank(later) for later in log.segments[at + 1 :]),
            leader_epochs=told_epochs,
            on_batch=partial(learn, log),
            last_epoch=log.leader_epochs.latest,
        )
        if log.observer is None:
            segment.counts = None
        trust(segment)
        was_cut = segment.size_bytes < size_bytes
        if segment is not log.active and (was_cut or _is_gap_behind(log, at, recovery_point, cleaned_up_to)):
            # A crash in the middle of a roll: the log goes on from the cut, not from a new segment. What that one
            # holds was never flushed either, and behind a hole it would pass for a log without one. Synced, or a power
            # cut may bring it back when the hole is no longer to be seen.
            drop_segments(log, at + 1)
            log.disk.sync_directory(log.directory)
        if segment is not log.active:
            log.seal(segment)
        # What the last process wrote may be in the kernel's memory only: it is flushed again before it counts.
        log.unsynced.add(segment)
        if segment is log.active:
            break
    if log.log_end_offset < recovery_point:
        raise CorruptLog(
            f"{log.directory}: the log ends at offset {log.log_end_offset}, but everything below {recovery_point} had "
            "reached the disk. Restore the partition from a replica or a backup"
        )
    log.leader_epochs.truncate_end(log.log_end_offset)
    # One of this recovery, or of the process before, which may have been killed before it was synced.
    log.cuts += 1


def _is_gap_behind(log: PartitionLog, at: int, recovery_point: int, cleaned_up_to: int) -> bool:
    """Whether the segment at `at` lost its unflushed end and the next did not. Below the recovery point a gap is the
    cleaner's work: it flushes what it wrote before anything counts on it. Kafka's cleaner writes no recovery point
    down, but it does note how far it has come."""
    next_offset = log.base_offsets[at + 1]
    return next_offset > cleaned_up_to and recovery_point <= log.log_end_offset < next_offset


def _is_blank(segment: Segment) -> bool:
    """Return whether the file is empty, or was given its size before a crash came and nothing but zeros is in it."""
    file = segment.file()
    return not any(
        file.read_at(position, min(BLANK_CHUNK_BYTES, segment.size_bytes - position)).strip(b"\0")
        for position in range(0, segment.size_bytes, BLANK_CHUNK_BYTES)
    )


def _has_index(log: PartitionLog, segment: Segment) -> bool:
    return _has_transaction_index(segment) and segment.index.is_plausible(
        size_bytes=segment.size_bytes, index_interval_bytes=log.config.index_interval_bytes
    )


def _has_transaction_index(segment: Segment) -> bool:
    """Return whether the file of aborted transactions can be read: without it readers would get aborted records."""
    try:
        return not segment.has_transaction_index or segment.transaction_index is not None
    except CorruptLog:
        return False
