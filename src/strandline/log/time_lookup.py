"""From a time to an offset: the first record at or after it, exact inside a batch.

Works on a list of segments rather than on the log, so that a thread can do it where the page cache does not hold the
way: the segments are held by the caller, and the log may roll meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import BatchHeader
from strandline.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression
from strandline.log.segment import ColdRead, Segment

OPENED_BYTES_MAX: Final = 16 * 1024 * 1024
OPENED_RECORDS_MAX: Final = 500_000
"""What a batch may become when a look-up opens it; more would stall the loop and take memory for one answer."""


class FoundTime(NamedTuple):
    offset: int
    timestamp: int
    leader_epoch: int


def find_time(
    segments: Sequence[Segment], timestamp_ms: int, *, start_offset: int, limit_offset: int, may_block: bool
) -> FoundTime | None:
    """The first record from `start_offset` on, below `limit_offset`, that is not older than `timestamp_ms`."""
    for segment in segments:
        if segment.base_offset >= limit_offset:
            return None
        segment.load_indexes(may_block=may_block)
        if 0 <= segment.largest_timestamp_ms() < timestamp_ms:
            continue
        begin = segment.time_index.relative_offset_before(timestamp_ms)
        position = segment.index.position_before(begin)
        for header, at in segment.headers(position, may_block=may_block):
            if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
                continue
            found = _first_in_batch(segment, header, at, timestamp_ms, start_offset, may_block)
            if found is not None:
                return found if found.offset < limit_offset else None
    return None


def _first_in_batch(
    segment: Segment, header: BatchHeader, position: int, timestamp_ms: int, start_offset: int, may_block: bool
) -> FoundTime | None:
    file = segment.file()
    batch = file.read_at(position, header.size_bytes) if may_block else file.read_at_nowait(position, header.size_bytes)
    if batch is None:
        raise ColdRead
    # A batch that cannot be opened, or is a bomb, is answered with its beginning: the reader who starts there misses
    # nothing, and one producer's nonsense does not take the look-up away from everybody.
    beginning = FoundTime(max(header.base_offset, start_offset), header.max_timestamp, header.leader_epoch)
    if header.record_count > OPENED_RECORDS_MAX:
        return beginning
    try:
        columns = decode_batch(batch, size_bytes_max=OPENED_BYTES_MAX)
    except (CorruptBatch, BatchTooLarge, UnsupportedCompression):
        return beginning
    for offset, timestamp in zip(columns.offsets, columns.timestamps, strict=True):
        if timestamp >= timestamp_ms and offset >= start_offset:
            return FoundTime(offset, timestamp, header.leader_epoch)
    return None


def find_latest_time(
    segments: Sequence[Segment], *, start_offset: int, limit_offset: int, may_block: bool
) -> FoundTime | None:
    """The first record that carries the largest timestamp below `limit_offset`."""
    largest = -1
    for segment in segments:
        if segment.base_offset >= limit_offset:
            break
        segment.load_indexes(may_block=may_block)
        if segment.largest_timestamp_ms() <= largest and segment.largest_timestamp_ms() >= 0:
            continue
        for header, _ in segment.headers(0, may_block=may_block):
            if header.last_offset >= limit_offset:
                break
            if header.last_offset >= start_offset:
                largest = max(largest, header.max_timestamp)
    if largest < 0:
        return None
    return find_time(segments, largest, start_offset=start_offset, limit_offset=limit_offset, may_block=may_block)
