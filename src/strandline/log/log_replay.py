"""Showing every batch to a log's observer: in recovery, after a fetch, and when a truncated log is read again."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

from strandline.codec.record_batch import LEADER_EPOCH, PRODUCER_ID, BatchHeader, HeaderFields, is_marker
from strandline.log.disk import Buffer
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import Segment


def learn(
    log: PartitionLog, header: HeaderFields, marker: Buffer | None, segment: Segment | None, next_offset: int
) -> None:
    """Learn from a batch that is in the log already; `marker` is the whole batch if it is one.

    The transaction that a marker aborted is noted in `segment`, or not if that is None. `next_offset` is the one behind
    the previous batch: if the cleaner removed batches between the two, a new epoch may have begun there. Epochs are
    noted in memory only: written one by one, a crash on the way would leave a part that looks whole.
    """
    if log.observer is not None and header[PRODUCER_ID] >= 0:
        if marker is None:
            log.observer.note_header(header, log.appended_ms)
        else:
            learn_marker(log, header, marker, segment)
    if header[LEADER_EPOCH] > log.leader_epochs.latest:
        log.leader_epochs.note(header[LEADER_EPOCH], next_offset)


def learn_marker(log: PartitionLog, header: HeaderFields, marker: Buffer, segment: Segment | None) -> None:
    """Learn from a control batch of a producer, which may have ended a transaction."""
    if log.observer is not None:
        aborted = log.observer.note_marker(header, marker, log.appended_ms)
        if aborted is not None and segment is not None:
            segment.note_aborted(aborted)
            log.has_aborted = True


def relearn(log: PartitionLog, start_offset: int | None, end_offset: int | None) -> None:
    """Show the observer the batches from `start_offset` (None: the first) up to `end_offset` (None: the last)."""
    if log.observer is None:
        return
    start = log.learnt_from = log.base_offsets[0] if start_offset is None else start_offset
    for segment, header, position in _headers(log, start, end_offset):
        marker = segment.file().read_at(position, header.size_bytes) if is_marker(header) else None
        learn(log, header, marker, None, header.base_offset)


def learn_markers(log: PartitionLog, high_watermark: int) -> None:
    """Make sure that the observer knows every marker from `high_watermark` on, and what it ended.

    A snapshot knows only which transactions are open at its offset. If it was taken above the high watermark, and a
    marker lies in between, the log is read again from an older one on.
    """
    learnt_from = log.learnt_from
    if log.observer is None or learnt_from <= high_watermark:
        return
    for _, header, _ in _headers(log, high_watermark, learnt_from):
        if is_marker(header) and header.base_offset < learnt_from:
            relearn(log, log.snapshots.restore(at_most=high_watermark, now_ms=log.appended_ms), None)
            break


def _headers(
    log: PartitionLog, start_offset: int, end_offset: int | None
) -> Iterator[tuple[Segment, BatchHeader, int]]:
    """Yield segment, header and position of the batches from `start_offset` on. Blocks on the disk.

    Segments that begin at `end_offset` or later are not read: they may be torn.
    """
    for segment in log.segments[max(0, bisect_right(log.base_offsets, start_offset) - 1) :]:
        if end_offset is not None and segment.base_offset >= end_offset:
            break
        place = segment.index.position_before(max(0, start_offset - segment.base_offset))
        for header, position in segment.headers(place, may_block=True):
            if header.base_offset >= start_offset:
                yield segment, header, position
