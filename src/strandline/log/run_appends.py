"""Appending several batches to a log with one write: a library user's single records, or what a follower fetched."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

from strandline.codec.record_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LEADER_FIELDS,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    PRODUCER_ID,
    RECORD_COUNT,
    HeaderFields,
)
from strandline.errors import CorruptLog, StrandlineError
from strandline.log.disk import Buffer
from strandline.log.log_replay import learn_marker
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment_counts import count_run

_RECORD_COUNT = itemgetter(RECORD_COUNT)


def append_run(
    log: PartitionLog, batches: Sequence[bytes], timestamps: Sequence[int], *, leader_epoch: int, now_ms: int
) -> int:
    """Give batches of one record each their offsets, and write them at the end with one call; the first offset.

    A crash may leave some of them; if this raises, none is there.
    """
    base_offset = log.log_end_offset
    if leader_epoch > log.leader_epochs.latest:
        log.begin_epoch(leader_epoch, base_offset)
    parts: list[bytes] = []
    for offset, batch in enumerate(batches, base_offset):
        parts += (LEADER_FIELDS.pack(offset, len(batch) - PREFIX_SIZE, leader_epoch), batch[LEADER_FIELDS.size :])
    data = b"".join(parts)
    last_offset = base_offset + len(batches) - 1
    segment = log.segment_for(len(data), last_offset, max(timestamps), now_ms)
    was_dirty = segment.dirty
    try:
        segment.append_run(data, base_offset, map(len, batches), timestamps)
    except OSError as error:
        log.drop_partial_batch(segment, error)
    if not was_dirty:
        log.unsynced.segments.append(segment)
    log.log_end_offset = last_offset + 1
    return base_offset


def append_fetched(log: PartitionLog, run: Buffer, headers: Sequence[HeaderFields], *, now_ms: int) -> None:
    """Write batches that a leader sent, back to back in `run`, with one call; `headers` is what `check_run` found.

    Nothing has changed if this raises.
    """
    first, last = headers[0], headers[-1]
    if first[BASE_OFFSET] < log.log_end_offset:
        raise CorruptLog(f"{log.directory}: batch {first[BASE_OFFSET]} follows {log.log_end_offset - 1}")
    last_offset = last[BASE_OFFSET] + last[LAST_OFFSET_DELTA]
    try:
        if last[LEADER_EPOCH] > log.leader_epochs.latest:
            next_offset = log.log_end_offset
            for header in headers:
                if header[LEADER_EPOCH] > log.leader_epochs.latest:
                    # Not with its first batch that is left: the leader may have cleaned away those before it.
                    log.begin_epoch(header[LEADER_EPOCH], next_offset)
                next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
        segment = log.segment_for(len(run), last_offset, last[MAX_TIMESTAMP], now_ms)
        was_dirty = segment.dirty
        try:
            segment.append_batches(run, headers)
        except OSError as error:
            log.drop_partial_batch(segment, error)
    except StrandlineError:
        log.leader_epochs.truncate_end(log.log_end_offset)
        raise
    if not was_dirty:
        log.unsynced.segments.append(segment)
    next_offset, log.log_end_offset = log.log_end_offset, last_offset + 1
    if log.observer is not None:
        is_plain = sum(map(_RECORD_COUNT, headers)) == log.log_end_offset - next_offset
        at = 0
        for header in headers:
            size = header[BATCH_LENGTH] + PREFIX_SIZE
            if header[PRODUCER_ID] >= 0:
                if header[ATTRIBUTES] & CONTROL:
                    learn_marker(log, header, run[at : at + size], segment)
                    is_plain = False
                else:
                    log.observer.note_header(header, now_ms)
            at += size
        if not is_plain:
            count_run(segment, headers, len(run), next_offset)
