"""Validation of batches in a file: are they what was written there? Scrubbing and first reads share it.

The CRC covers a batch from byte 21 on. What lies before it is held in place by its neighbours: a base offset follows
the one before, and what comes behind follows it; a length decides which bytes the CRC is made of; the epoch is the one
that the log's own list has for that offset; the index, where it has an entry, names the last offset. So any single bit
that changed shows.

Where the cleaner left a gap, an offset may have moved within it and still lie between its neighbours: there a `digest`
of those bytes decides, if the segment has one.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final, NamedTuple

from strandline.codec.checksum import crc32c
from strandline.codec.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    Buffer,
)
from strandline.log.leader_epochs import LeaderEpochs

ANY_OFFSET: Final = -1
"""What comes before is not known: the index must name the last offset of the first batch."""
OFFSET_LIMIT: Final = 2**63 - 1
LOOSE: Final = "the index has a later offset here"
"""A fault only if the batches before do not explain it: where several batches were written at once, Kafka's index names
the last offset of all of them."""


class Checked(NamedTuple):
    size_bytes: int
    """Of whole batches that were found sound, from the beginning of the piece."""
    next_offset: int
    """The offset after the last of them."""
    fault: str | None
    """What is wrong with the batch behind them, if it is known to be wrong."""
    wanted_bytes: int = 0
    """How long a piece must be that begins behind them, for the check to go on."""
    has_gap: bool = False


def check_batches(
    piece: Buffer,
    *,
    next_offset: int,
    epochs: LeaderEpochs,
    limit_offset: int = OFFSET_LIMIT,
    entries: Sequence[tuple[int, int]] = (),
    is_end: bool,
    batches_max: int,
) -> Checked:
    """Look at the batches of `piece`, which begins with one, until one is wrong, cut off, or `batches_max` are done.

    `entries` are those of the index within and behind the piece: (place in the piece, last offset of the batch there).
    `limit_offset` is above all offsets of the segment; `is_end` says that the piece reaches the end of what is known.
    """
    view = memoryview(piece)
    size, at, has_gap = len(view), 0, False
    entry, entries_count = 0, len(entries)
    entry_at, entry_offset = entries[0] if entries else (OFFSET_LIMIT, -1)
    epoch, epoch_start, epoch_end = -1, 0, 0
    unpack, head, prefix = HEADER.unpack_from, HEADER_SIZE, PREFIX_SIZE
    while at < size and batches_max:
        batches_max -= 1
        left = size - at
        if left < head:
            fault = f"{left} bytes are too few for a batch header"
            return Checked(at, next_offset, fault if is_end else None, 0 if is_end else head, has_gap)
        base_offset, length, batch_epoch, magic, crc, _, last_offset_delta, _, _, _, _, _, _ = unpack(view, at)
        batch_size = length + prefix
        if magic != MAGIC or batch_size < head or last_offset_delta < 0:
            return Checked(at, next_offset, "these bytes are no batch header", 0, has_gap)
        last_offset = base_offset + last_offset_delta
        end = at + batch_size
        if at >= entry_at:
            if at > entry_at or last_offset > entry_offset:
                return Checked(at, next_offset, f"batch {base_offset} is not where the index has it", 0, has_gap)
            if last_offset < entry_offset and next_offset == ANY_OFFSET:
                return Checked(at, next_offset, LOOSE)
            entry += 1
            entry_at, entry_offset = entries[entry] if entry < entries_count else (OFFSET_LIMIT, -1)
        elif next_offset == ANY_OFFSET:
            return Checked(at, next_offset, "the index does not name this batch", 0, has_gap)
        if end > entry_at:
            return Checked(at, next_offset, f"a batch of {batch_size} bytes would reach into the next", 0, has_gap)
        if batch_size > left:
            fault = f"the batch of {batch_size} bytes ends after {left}"
            return Checked(at, next_offset, fault if is_end else None, 0 if is_end else batch_size, has_gap)
        if crc32c(view[at + CRC_START : end]) != crc:
            return Checked(at, next_offset, "the CRC is wrong", 0, has_gap)
        if base_offset != next_offset and next_offset != ANY_OFFSET:
            if base_offset < next_offset:
                return Checked(at, next_offset, f"base offset {base_offset} follows {next_offset - 1}", 0, has_gap)
            # A gap, or an offset that changed: the batch behind decides, because it has not moved.
            if end + prefix <= size:
                if int.from_bytes(view[end : end + 8], "big", signed=True) <= last_offset:
                    fault = f"base offset {base_offset} where {next_offset} is expected"
                    return Checked(at, next_offset, fault, 0, has_gap)
            elif not is_end:
                return Checked(at, next_offset, None, batch_size + head, has_gap)
            has_gap = True
        if last_offset >= limit_offset:
            return Checked(at, next_offset, f"offset {last_offset} lies behind {limit_offset - 1}", 0, has_gap)
        if not epoch_start <= base_offset < epoch_end:
            epoch, epoch_start, epoch_end = _epoch_span(epochs, base_offset)
        if batch_epoch != epoch and (epoch >= 0 or batch_epoch > epochs.latest >= 0):
            fault = f"batch {base_offset} is of epoch {batch_epoch}, and that offset of {epoch}"
            return Checked(at, next_offset, fault, 0, has_gap)
        next_offset = last_offset + 1
        at = end
    return Checked(at, next_offset, None, head, has_gap)


def _epoch_span(epochs: LeaderEpochs, offset: int) -> tuple[int, int, int]:
    """(the epoch that wrote `offset` or -1, from where, up to where)."""
    starts = epochs.start_offsets
    at = bisect_right(starts, offset)
    return (
        epochs.epochs[at - 1] if at else -1,
        starts[at - 1] if at else 0,
        starts[at] if at < len(starts) else OFFSET_LIMIT,
    )
