"""Recovery of a segment after a crash: read its batches again, and distinguish a torn tail from damage.

A *torn tail* is what a kill or power cut leaves of appends that were never acknowledged: bytes at the very end that are
no whole batch, with nothing valid behind them. It is cut. So is a file that ends in the middle of a batch although
later segments hold batches: a flush syncs the older file first, and bits rot, but no file grows shorter. The power went
while both were only in memory, and only the later one was written.

*Damage* is anything else: a bad batch below the recovery point (it was on disk once), or a bad batch with a sound one
behind it, in its own segment or a later one. Cutting there would take back acknowledged records, so the log is left as
it is and CorruptLog says where.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

from strandline.codec.checksum import crc32c
from strandline.codec.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    HeaderFields,
    is_marker,
)
from strandline.errors import CorruptLog
from strandline.log.disk import Buffer, File
from strandline.log.rolling import RELATIVE_OFFSET_MAX
from strandline.log.segment.record_counts import CountsBuilder, records_in
from strandline.log.segment.segment import Segment

CHUNK_BYTES: Final = 4 * 1024 * 1024
BATCH_BYTES_MAX: Final = 1 << 30


def recover_segment(
    segment: Segment,
    *,
    recovery_point: int,
    next_offset: int,
    is_followed: bool,
    leader_epochs: Iterable[int],
    on_batch: Callable[[HeaderFields, Buffer | None, Segment, int], None],
    last_epoch: int = -1,
) -> int:
    """Check every batch of `segment`, rebuild its indexes, cut a torn tail. Return the offset after its last batch.

    `next_offset` is the smallest offset that its first batch may have; `leader_epochs` are the epochs that wrote here;
    `is_followed` says that a later segment holds batches; `last_epoch` wrote the batch before. If this raises, no file
    has changed.

    Epochs never go back in a log. A batch of an older one behind a newer was truncated, and came back because neither
    the truncation nor the new batches had been flushed: it is cut like a torn tail.
    """
    file = segment.file()
    size = file.size()
    segment.begin_rebuild()
    counting = CountsBuilder(segment.base_offset)
    position = 0
    buffer = b""
    buffer_start = 0
    epochs = set(leader_epochs)
    while position < size:
        at = position - buffer_start
        if len(buffer) - at < HEADER_SIZE or len(buffer) - at < _batch_size(buffer, at):
            wanted = CHUNK_BYTES
            if len(buffer) - at >= PREFIX_SIZE:
                wanted = max(wanted, min(_batch_size(buffer, at), BATCH_BYTES_MAX))
            buffer = file.read_at(position, min(wanted, size - position))
            buffer_start = position
            at = 0
        fault = _fault(buffer, at, next_offset, segment.base_offset)
        if fault is not None:
            place = f"{segment.path}: at position {position}, offset {next_offset}: {fault}"
            is_followed = is_followed and not _ends_early(buffer, at)
            _refuse_damage(place, file, position, size, next_offset, recovery_point, is_followed, epochs)
            file.truncate(position)
            break
        header = HEADER.unpack_from(buffer, at)
        base_offset, length, epoch, _, _, _, last_offset_delta, _, max_timestamp, _, _, _, _ = header
        if epoch < last_epoch and next_offset >= recovery_point:
            file.truncate(position)
            break
        last_epoch = epoch
        batch_size = length + PREFIX_SIZE
        last_offset = base_offset + last_offset_delta
        segment.note_batch(base_offset, last_offset, max_timestamp, position, batch_size)
        counting.add(position, batch_size, base_offset, last_offset, records_in(header))
        on_batch(header, buffer[at : at + batch_size] if is_marker(header) else None, segment, next_offset)
        epochs.add(epoch)
        next_offset = last_offset + 1
        position += batch_size
    segment.rewrite_indexes()
    segment.delivered = None
    segment.counts = counting.counts
    return next_offset


def _batch_size(buffer: bytes, at: int) -> int:
    return int.from_bytes(buffer[at + 8 : at + 12], "big", signed=True) + PREFIX_SIZE


def _fault(buffer: bytes, at: int, next_offset: int, segment_base_offset: int) -> str | None:
    """Return what is wrong with the batch at `at`, if anything."""
    if len(buffer) - at < HEADER_SIZE:
        return f"{len(buffer) - at} bytes are too few for a batch header"
    base_offset, length, _, magic, crc, _, last_offset_delta, _, _, _, _, _, _ = HEADER.unpack_from(buffer, at)
    batch_size = length + PREFIX_SIZE
    if magic != MAGIC or batch_size < HEADER_SIZE or last_offset_delta < 0:
        return "these bytes are no batch header"
    if len(buffer) - at < batch_size:
        return f"the batch of {batch_size} bytes ends after {len(buffer) - at}"
    if crc32c(memoryview(buffer)[at + CRC_START : at + batch_size]) != crc:
        return "the CRC is wrong"
    if base_offset < next_offset:
        return f"base offset {base_offset} follows {next_offset - 1}"
    if base_offset + last_offset_delta - segment_base_offset > RELATIVE_OFFSET_MAX:
        # The base offset lies outside the CRC, so that a leader can write it; this is the check it gets.
        return f"base offset {base_offset} cannot lie in this segment"
    return None


def _ends_early(buffer: bytes, at: int) -> bool:
    """Return whether the file, of which `buffer` is the end, ends within the batch at `at`."""
    return len(buffer) - at < HEADER_SIZE or len(buffer) - at < _batch_size(buffer, at)


def _refuse_damage(
    place: str,
    file: File,
    position: int,
    size: int,
    next_offset: int,
    recovery_point: int,
    is_followed: bool,
    leader_epochs: set[int],
) -> None:
    """Return if what begins at `position` is a torn tail. Raise CorruptLog if it is anything else."""
    if next_offset < recovery_point:
        why = f"Everything below offset {recovery_point} had reached the disk"
    elif is_followed:
        why = "A later segment holds batches"
    else:
        sound = _find_sound_batch(file, position + 1, size, next_offset, leader_epochs)
        if sound is None:
            return
        why = f"A sound batch follows at position {sound}"
    raise CorruptLog(
        f"{place}. {why}, so this is damage, not a torn tail. Nothing was cut. "
        "Restore the partition from a replica or a backup"
    )


def _find_sound_batch(file: File, start: int, size: int, next_offset: int, leader_epochs: set[int]) -> int | None:
    """Return the position of a whole batch with a right CRC and a later offset, if there is one behind the fault.

    A batch is recognized by its leader epoch followed by the magic byte; that pattern is searched at the speed of C and
    only what it finds is checked.
    """
    patterns = [struct.pack(">ib", epoch, MAGIC) for epoch in sorted(leader_epochs | {0})]
    overlap = HEADER_SIZE
    position = start
    while position < size:
        data = file.read_at(position, min(CHUNK_BYTES, size - position))
        for pattern in patterns:
            found = data.find(pattern)
            while found != -1:
                begin = position + found - PREFIX_SIZE
                if begin >= start and _is_sound(file, begin, size, next_offset):
                    return begin
                found = data.find(pattern, found + 1)
        if position + len(data) >= size:
            break
        position += max(1, len(data) - overlap)
    return None


def _is_sound(file: File, position: int, size: int, next_offset: int) -> bool:
    head = file.read_at(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return False
    base_offset, length, _, _, crc, *_ = HEADER.unpack(head)
    batch_size = length + PREFIX_SIZE
    if base_offset < next_offset or batch_size < HEADER_SIZE or position + batch_size > size:
        return False
    return bool(crc32c(file.read_at(position + CRC_START, batch_size - CRC_START)) == crc)
