"""Where the batches lie that a reader gets."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from strandline.log.segment.log_slice import LogSlice, slice_size
from strandline.log.segment.read_verification import locate, sound_end
from strandline.log.segment.segment import Segment


def find_slice(
    segments: Sequence[Segment],
    base_offsets: Sequence[int],
    end_offset: int,
    offset: int,
    limit_offset: int,
    size_bytes_max: int,
    at_least_one: bool,
    may_block: bool,
) -> LogSlice | None:
    """Return whole batches from the one that holds `offset`, below `limit_offset`, or None if there are none.

    `end_offset` is where the log of these segments ends.
    """
    at = bisect_right(base_offsets, offset) - 1
    while at < len(segments):
        segment = segments[at]
        position = locate(segment, offset, may_block=may_block)
        if position is not None:
            if position < segment.verified_from:
                end = _verified_end(segment, position, limit_offset)
            elif limit_offset >= end_offset or (at + 1 < len(segments) and limit_offset >= base_offsets[at + 1]):
                end = segment.size_bytes
            else:
                found = locate(segment, limit_offset, may_block=may_block)
                end = segment.size_bytes if found is None else found
            size = slice_size(segment, position, end, size_bytes_max, at_least_one, may_block)
            return LogSlice(segment, position, size) if size > 0 else None
        # The cleaner took the last batches of this segment: what comes next begins the following one.
        at += 1
    return None


def _verified_end(segment: Segment, position: int, limit_offset: int) -> int:
    """Return where the batches below `limit_offset` end that are verified without a gap from `position` on."""
    stretch = sound_end(segment, position)
    end = min(stretch.end, segment.size_bytes)
    if limit_offset >= stretch.next_offset:
        return end
    # The limit lies in the stretch, and so does the batch from which it is looked for.
    found = locate(segment, limit_offset, may_block=True)
    return end if found is None else min(found, end)
