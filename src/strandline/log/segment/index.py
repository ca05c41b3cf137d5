"""Sparse indexes of a segment, in Kafka's files.

    .index      8 bytes an entry:   relative offset int32 (the last of a batch), position int32 (where it begins)
    .timeindex  12 bytes an entry:  timestamp int64 (the largest so far), relative offset int32 (of its batch)

An index of the active segment lives in memory; entries reach the file when the segment is flushed, rolled or closed,
because after a crash they are rebuilt from the log anyway. Kafka preallocates the files of its active segment and
leaves zeroes behind when it is killed: reading stops at the first entry that does not grow.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import lt
from typing import Final

ORDER_SHARE: Final = 4096
"""Entries that are compared in one go."""
OFFSET_ENTRY_SIZE: Final = 8
TIME_ENTRY_SIZE: Final = 12
_OFFSET_ENTRY = struct.Struct(">II")
_TIME_ENTRY = struct.Struct(">qI")
_SWAP = sys.byteorder == "little"


def forget_unwritten(unwritten: bytearray, size_bytes: int) -> None:
    """Forget the last `size_bytes` of an index; `unwritten` is the end of it that its file lacks."""
    del unwritten[max(0, len(unwritten) - size_bytes) :]


class OffsetIndex:
    """Where in the file to begin looking for an offset."""

    __slots__ = ("positions", "relative_offsets", "unwritten")

    def __init__(self) -> None:
        self.relative_offsets = array("I")
        self.positions = array("I")
        self.unwritten = bytearray()
        """Entries that the file lacks."""

    @classmethod
    def parse(cls, data: bytes) -> OffsetIndex:
        index = cls()
        whole = array("I")
        whole.frombytes(data[: len(data) - len(data) % OFFSET_ENTRY_SIZE])
        if _SWAP:
            whole.byteswap()
        offsets, positions = whole[0::2], whole[1::2]
        index.relative_offsets = offsets
        index.positions = positions
        # Entries grow strictly. Usually all do; zeroes of a preallocated tail are found from the end.
        count = len(offsets)
        while count and positions[count - 1] == 0:
            count -= 1
        del offsets[count:]
        del positions[count:]
        return index

    def is_plausible(self, *, size_bytes: int, index_interval_bytes: int) -> bool:
        """Return whether this can be the index of a log of that size; if not, it is rebuilt. Looks at the ends only."""
        if not len(self.positions):
            return size_bytes <= 2 * index_interval_bytes
        return self.positions[-1] < size_bytes and self.relative_offsets[-1] >= self.relative_offsets[0]

    def is_ordered(self, size_bytes: int) -> bool:
        """Return whether every entry lies behind the one before it, in a log of that size. Looks at all of them."""
        if not len(self.positions):
            return True
        for entries in (self.relative_offsets, self.positions):
            # In shares: a thread that does this keeps the loop from running meanwhile.
            for first in range(0, len(entries), ORDER_SHARE):
                share = entries[first : first + ORDER_SHARE + 1]
                if not all(map(lt, share, share[1:])):
                    return False
        return self.positions[-1] < size_bytes

    def append(self, relative_offset: int, position: int) -> None:
        self.relative_offsets.append(relative_offset)
        self.positions.append(position)
        self.unwritten += _OFFSET_ENTRY.pack(relative_offset, position)

    def position_before(self, relative_offset: int) -> int:
        """Return the position of a batch that begins at or before the one with this offset."""
        at = bisect_right(self.relative_offsets, relative_offset)
        return self.positions[at - 1] if at else 0

    def span_of(self, relative_offset: int) -> tuple[int, int]:
        """Return the position before the batch with this offset, and the next known start of a batch, or -1.

        A batch of one record lies between them, if the index is exact; one of many records may begin at the second.
        """
        at = bisect_right(self.relative_offsets, relative_offset)
        positions = self.positions
        return positions[at - 1] if at else 0, positions[at] if at < len(positions) else -1

    def boundary_before(self, position: int) -> int:
        """Return the last known start of a batch at or before `position`; 0 if none is known."""
        at = bisect_right(self.positions, position)
        return self.positions[at - 1] if at else 0

    def offset_behind(self, position: int, base_offset: int) -> int | None:
        """The last offset of the first known batch that begins at or behind `position`; None if none is known."""
        at = bisect_left(self.positions, position)
        return base_offset + self.relative_offsets[at] if at < len(self.positions) else None

    def truncate(self, relative_offset: int, position: int) -> None:
        """Forget entries of offsets from `relative_offset` on, or of places from `position` on."""
        count = len(self.relative_offsets)
        while count and (self.relative_offsets[count - 1] >= relative_offset or self.positions[count - 1] >= position):
            count -= 1
        forget_unwritten(self.unwritten, (len(self) - count) * OFFSET_ENTRY_SIZE)
        del self.relative_offsets[count:]
        del self.positions[count:]

    @property
    def written_bytes(self) -> int:
        """Return how much of the file holds entries that are known here."""
        return len(self) * OFFSET_ENTRY_SIZE - len(self.unwritten)

    def to_bytes(self) -> bytes:
        return b"".join(map(_OFFSET_ENTRY.pack, self.relative_offsets, self.positions))

    def __len__(self) -> int:
        return len(self.positions)


class TimeIndex:
    """From a time to the offset where looking begins."""

    __slots__ = ("relative_offsets", "timestamps", "unwritten")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.relative_offsets = array("I")
        self.unwritten = bytearray()
        """Entries that the file lacks."""

    @classmethod
    def parse(cls, data: bytes) -> TimeIndex:
        index = cls()
        last = -1
        for timestamp, relative_offset in _TIME_ENTRY.iter_unpack(data[: len(data) - len(data) % TIME_ENTRY_SIZE]):
            if timestamp <= last or (timestamp == 0 and relative_offset == 0):
                break
            index.timestamps.append(timestamp)
            index.relative_offsets.append(relative_offset)
            last = timestamp
        return index

    def maybe_append(self, timestamp: int, relative_offset: int) -> None:
        """Add an entry if it moves time on; equal or older times add nothing to a look-up."""
        if timestamp < 0 or (len(self.timestamps) and timestamp <= self.timestamps[-1]):
            return
        self.timestamps.append(timestamp)
        self.relative_offsets.append(relative_offset)
        self.unwritten += _TIME_ENTRY.pack(timestamp, relative_offset)

    def last(self) -> tuple[int, int]:
        """Return the largest timestamp and its relative offset; (-1, 0) when empty."""
        if not len(self.timestamps):
            return -1, 0
        return self.timestamps[-1], self.relative_offsets[-1]

    def relative_offset_before(self, timestamp: int) -> int:
        """Return an offset at or before the first record of that time or later."""
        # The entry says: up to this offset nothing is later than its timestamp. So the last entry *below* the wanted
        # time is a safe place to begin.
        low, high = 0, len(self.timestamps)
        while low < high:
            middle = (low + high) // 2
            if self.timestamps[middle] < timestamp:
                low = middle + 1
            else:
                high = middle
        return self.relative_offsets[low - 1] if low else 0

    def truncate(self, relative_offset: int) -> None:
        count = len(self.relative_offsets)
        while count and self.relative_offsets[count - 1] >= relative_offset:
            count -= 1
        forget_unwritten(self.unwritten, (len(self) - count) * TIME_ENTRY_SIZE)
        del self.timestamps[count:]
        del self.relative_offsets[count:]

    @property
    def written_bytes(self) -> int:
        """Return how much of the file holds entries that are known here."""
        return len(self) * TIME_ENTRY_SIZE - len(self.unwritten)

    def to_bytes(self) -> bytes:
        return b"".join(map(_TIME_ENTRY.pack, self.timestamps, self.relative_offsets))

    def __len__(self) -> int:
        return len(self.timestamps)
