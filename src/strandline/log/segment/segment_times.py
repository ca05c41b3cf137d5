"""The newest time in a segment that an earlier process filled, read from its files; for threads.

It is the last entry of the time index, which a sealed segment completes. Where there is none, because the index was
lost or the records carry no time, the headers of its batches are read, and if they know of none either, the file's own
time counts, as in Kafka.
"""

from __future__ import annotations

from typing import Final

from strandline.codec.record_batch import HEADER, HEADER_SIZE, PREFIX_SIZE, BatchHeader
from strandline.errors import CorruptLog
from strandline.log.disk import Disk
from strandline.log.segment.file_names import TIME_INDEX_SUFFIX
from strandline.log.segment.index import TIME_ENTRY_SIZE, TimeIndex
from strandline.log.segment.segment import Segment

HEADERS_MAX: Final = 20_000
"""Batches of a segment without a time index whose headers are read; one that has more is judged by its file's time."""


def read_newest_ms(segment: Segment) -> int:
    """The newest time in the segment, as it is on disk. OSError if it is gone; CorruptLog if it cannot be read."""
    disk, path = segment.disk, segment.path.with_suffix(TIME_INDEX_SUFFIX)
    newest = _last_entry_ms(disk, segment) if disk.exists(path) else -1
    if newest >= 0:
        return newest
    newest, is_all = _newest_of_batches_ms(disk, segment)
    return newest if newest >= 0 and is_all else max(newest, disk.modified_ms(segment.path))


def _last_entry_ms(disk: Disk, segment: Segment) -> int:
    path = segment.path.with_suffix(TIME_INDEX_SUFFIX)
    size = disk.size(path)
    if not size:
        return -1
    if size % TIME_ENTRY_SIZE == 0:
        file = disk.open(path)
        try:
            entry = file.read_at(size - TIME_ENTRY_SIZE, TIME_ENTRY_SIZE)
        finally:
            file.close()
        newest = int.from_bytes(entry[:8], "big", signed=True)
        if len(entry) == TIME_ENTRY_SIZE and newest > 0:
            return newest
    # Kafka, killed, leaves zeroes behind the entries.
    return TimeIndex.parse(disk.read_whole(path)).last()[0]


def _newest_of_batches_ms(disk: Disk, segment: Segment) -> tuple[int, bool]:
    """Return the newest time among the first batches, and whether these are all."""
    newest, position = -1, 0
    file = disk.open(segment.path)
    try:
        for _ in range(HEADERS_MAX):
            if position >= segment.size_bytes:
                return newest, True
            data = file.read_at(position, HEADER_SIZE)
            header = BatchHeader._make(HEADER.unpack(data)) if len(data) == HEADER_SIZE else None
            if header is None or header.length < HEADER_SIZE - PREFIX_SIZE:
                raise CorruptLog(f"{segment.path}: no record batch at position {position}")
            newest = max(newest, header.max_timestamp)
            position += header.length + PREFIX_SIZE
    finally:
        file.close()
    return newest, False
