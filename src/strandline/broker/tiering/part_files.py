"""A file of batches, cut to those of a range of offsets: of a segment that overlaps another, a part is compacted."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from strandline.codec.record_batch import HEADER_SIZE, PREFIX_SIZE, parse_header
from strandline.errors import CorruptLog
from strandline.log.disk import Disk

PIECE_BYTES: Final = 1 << 20


def keep_batches(disk: Disk, path: Path, size_bytes: int, start_offset: int, end_offset: int) -> int:
    """Leave only the batches from `start_offset` up to `end_offset` in a file, and return their size. Blocks.

    Raises CorruptLog if the file is no row of batches.
    """
    file = disk.open(path)
    try:
        position = start = end = 0
        while position + HEADER_SIZE <= size_bytes:
            header = parse_header(file.read_at(position, HEADER_SIZE))
            if header.length + PREFIX_SIZE < HEADER_SIZE or position + header.size_bytes > size_bytes:
                raise CorruptLog(f"{path.name}: no batch begins at {position}")
            if header.last_offset < start_offset:
                start = end = position + header.size_bytes
            elif header.base_offset < end_offset:
                end = position + header.size_bytes
            else:
                break
            position += header.size_bytes
        for at in range(start, end, PIECE_BYTES):
            # Each piece moves to the front, where nothing is read any more.
            file.write_at(at - start, file.read_at(at, min(PIECE_BYTES, end - at)))
        file.truncate(end - start)
    finally:
        file.close()
    return end - start
