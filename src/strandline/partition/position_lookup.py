"""Finding the batch of an offset: the time of its first record, and how many bytes lie behind it."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from strandline.codec.record_batch import HEADER, HEADER_SIZE, LOG_APPEND_TIME, BatchHeader
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.read_verification import locate
from strandline.log.segment.segment import ColdRead, Segment


class LocatedBatch(NamedTuple):
    """The batch that holds a position: its segment, where it lies in that, and its time.

    The time is that of the batch's first record. Opening the batch for the exact record is not worth its cost, because
    they differ by the producer's linger at most.
    """

    base_offset: int
    position: int
    timestamp_ms: int


def locate_batch(log: PartitionLog, offset: int) -> LocatedBatch | None:
    """Return the batch that holds `offset`, None if none reaches it. Raises ColdRead if the disk must be read."""
    at = max(0, bisect_right(log.base_offsets, offset) - 1)
    for segment in log.segments[at:]:
        standing = locate_batch_in(segment, offset, may_block=False)
        if standing is not None:
            return standing
    return None


def locate_batch_in(segment: Segment, offset: int, *, may_block: bool) -> LocatedBatch | None:
    """Do the same within one segment. A thread that may block on the disk retains the segment meanwhile."""
    position = locate(segment, offset, may_block=may_block)
    if position is None:
        return None
    file = segment.file()
    read = file.read_at if may_block else file.read_at_nowait
    content = read(position, HEADER_SIZE)
    if content is None:
        raise ColdRead
    if len(content) < HEADER_SIZE:
        return None
    return LocatedBatch(segment.base_offset, position, batch_time_ms(BatchHeader._make(HEADER.unpack(content))))


def batch_time_ms(header: BatchHeader) -> int:
    """Return when the first record of a batch was written; -1 if its producer did not say."""
    return header.max_timestamp if header.attributes & LOG_APPEND_TIME else header.base_timestamp


def bytes_behind(log: PartitionLog, standing: LocatedBatch) -> int | None:
    """Return the bytes from the batch to the end of the log; None if its segment is no longer there."""
    at = bisect_left(log.base_offsets, standing.base_offset)
    if at >= len(log.segments) or log.base_offsets[at] != standing.base_offset:
        return None
    return sum(segment.size_bytes for segment in log.segments[at:]) - standing.position
