"""How many records a reader gets from a segment, by offset: the `.counts` file beside it.

Offsets are more than records where a marker ended a transaction, where the cleaner took records out, and where records
of an aborted transaction lie. Everywhere else a difference of offsets is a number of records, and nothing is kept.

A *count* says at a place between two batches which offset comes next and how many records lie before it. One is kept
behind the last batch that is not plain; what follows it is plain. Before it there are sparse ones, `INTERVAL_BYTES`
apart or more: if offsets and records between two of them grew alike, what lies between is plain, too; if not, the
headers of these few batches are looked at.

    byte  0  version             int16    1
          2  flags               int16    1: the records of aborted transactions do not count
          4  crc                 uint32   CRC-32C of everything from byte 8 on
          8  size of the .log    int64    another size means that another program wrote the segment since
         16  last count          uint32 position, uint32 relative offset, uint32 records
         28  end                 uint32   relative offset behind the last batch; 2^32-1 if the segment grew until then
         32  counts before       uint32   how many, n
         36  their positions     n uint32, then their relative offsets, n uint32, then their records, n uint32

A file that a crash tore, or that is of another log, is detected by its CRC or the size, and the segment is counted
again. What is not detected: a segment that another program cut and filled again to the very same size.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_right
from typing import Final, NamedTuple

from strandline.codec.checksum import crc32c
from strandline.codec.record_batch import ATTRIBUTES, CONTROL, RECORD_COUNT, HeaderFields
from strandline.errors import CorruptLog

COUNTS_SUFFIX: Final = ".counts"
VERSION: Final = 1
INTERVAL_BYTES: Final = 16 * 1024
"""How far apart counts are: what lies between two of them is read at once to count within it."""
FOUND_MAX: Final = 256
"""Offsets of one segment of which it is remembered how many records lie below: positions are asked for again."""
_EXCLUDES_ABORTED: Final = 1
_OPEN_END: Final = 0xFFFF_FFFF
_PREFIX = struct.Struct(">hhI")
_BODY = struct.Struct(">qIIIII")
_SWAP = sys.byteorder == "little"


class Count(NamedTuple):
    """Between two batches of a segment."""

    position: int
    offset: int
    """The one behind the batch before."""
    records: int
    """In the segment, before `position`."""


class RecordCounts:
    """The counts of one segment; of a plain one there are none but the first, at its beginning."""

    __slots__ = (
        "_found",
        "_offsets",
        "_positions",
        "_records",
        "base_offset",
        "end_offset",
        "excludes_aborted",
        "last",
    )

    def __init__(self, base_offset: int, *, excludes_aborted: bool = False) -> None:
        self.base_offset = base_offset
        self.excludes_aborted = excludes_aborted
        self.end_offset: int | None = None
        """Behind the last batch; None while all that is behind `last` is plain, however far the segment grows."""
        self.last = Count(0, base_offset, 0)
        self._positions: array[int] | None = array("I")
        self._offsets = array("I")
        self._records = array("I")
        self._found: dict[int, int] = {}

    @property
    def is_plain(self) -> bool:
        """Return whether offsets are records all through the segment."""
        return self.last.position == 0 and self.end_offset is None

    @property
    def has_entries(self) -> bool:
        """Return False if the counts before the last were dropped, and must be read from the file again."""
        return self._positions is not None

    def without_entries(self) -> RecordCounts:
        """Return the same counts for the end only, in little memory."""
        if self.last.position == 0:
            return self
        small = RecordCounts(self.base_offset, excludes_aborted=self.excludes_aborted)
        small.last, small.end_offset, small._positions, small._found = self.last, self.end_offset, None, self._found
        return small

    def note(self, position: int, size_bytes: int, offset: int, last_offset: int, records: int) -> None:
        """Take note of a batch that is not plain: of which fewer `records` count than it has offsets, or with a hole
        before it. `offset` is the one behind the batch before; from the batch noted last up to there all is plain."""
        positions, last = self._positions, self.last
        assert positions is not None, "counts whose entries were let go of do not grow"
        before = Count(position, offset, last.records + offset - last.offset)
        kept_at = positions[-1] if positions else 0
        if position - kept_at > INTERVAL_BYTES:
            if kept_at < last.position < position:
                self._keep(last)
            self._keep(before)
        self.last = Count(position + size_bytes, last_offset + 1, before.records + records)

    def _keep(self, count: Count) -> None:
        assert self._positions is not None
        self._positions.append(count.position)
        self._offsets.append(count.offset - self.base_offset)
        self._records.append(count.records)

    def remember(self, offset: int, records: int) -> None:
        """Below an offset before the last count so many records were found by looking; that never changes."""
        self._found[offset] = records
        if len(self._found) > FOUND_MAX:
            del self._found[next(iter(self._found))]

    def remembered(self, offset: int) -> int | None:
        return self._found.get(offset)

    def total(self, end_offset: int) -> int:
        """The records of the whole segment, which ends at `end_offset` or, if the cleaner took the last, before."""
        if self.end_offset is not None:
            end_offset = min(end_offset, self.end_offset)
        return self.last.records + max(0, end_offset - self.last.offset)

    def before(self, offset: int) -> tuple[Count, bool]:
        """A count at or before `offset`, and whether all is plain from there to `offset`: a difference of offsets.

        `offset` does not lie behind the end. There must be entries, unless it lies behind the last count.
        """
        last, positions = self.last, self._positions
        if offset >= last.offset:
            return last, True
        assert positions is not None, "the entries were let go of"
        at = bisect_right(self._offsets, offset - self.base_offset)
        found = self._entry(at - 1) if at else Count(0, self.base_offset, 0)
        following = self._entry(at) if at < len(positions) else last
        return found, following.offset - found.offset == following.records - found.records

    def _entry(self, at: int) -> Count:
        assert self._positions is not None
        return Count(self._positions[at], self.base_offset + self._offsets[at], self._records[at])

    # File

    def to_bytes(self, size_bytes: int) -> bytes:
        """Return the file for a `.log` of that size."""
        assert self._positions is not None
        last, base_offset = self.last, self.base_offset
        end = _OPEN_END if self.end_offset is None else self.end_offset - base_offset
        body = _BODY.pack(
            size_bytes, last.position, last.offset - base_offset, last.records, end, len(self._positions)
        ) + b"".join(_big_endian(column) for column in (self._positions, self._offsets, self._records))
        return _PREFIX.pack(VERSION, _EXCLUDES_ABORTED * self.excludes_aborted, crc32c(body)) + body

    @classmethod
    def parse(cls, data: bytes, *, base_offset: int, size_bytes: int) -> RecordCounts:
        """Return the counts of a `.log` of that size; CorruptLog if the file is torn, or not of this log."""
        if len(data) < _PREFIX.size + _BODY.size:
            raise CorruptLog(f"record counts of {len(data)} bytes")
        version, flags, crc = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if version != VERSION or crc32c(body) != crc:
            raise CorruptLog("record counts with a wrong version or CRC")
        size, position, offset, records, end, entries = _BODY.unpack_from(body)
        if size != size_bytes or len(body) != _BODY.size + 3 * 4 * entries:
            raise CorruptLog(f"record counts of a log of {size} bytes, which has {size_bytes}")
        counts = cls(base_offset, excludes_aborted=bool(flags & _EXCLUDES_ABORTED))
        counts.last = Count(position, base_offset + offset, records)
        counts.end_offset = None if end == _OPEN_END else base_offset + end
        columns = [
            _from_big_endian(body[_BODY.size + 4 * entries * at : _BODY.size + 4 * entries * (at + 1)])
            for at in range(3)
        ]
        counts._positions, counts._offsets, counts._records = columns
        return counts

    def __repr__(self) -> str:
        return f"<RecordCounts of {self.base_offset}: {self.last}, end {self.end_offset}>"


class CountsBuilder:
    """A counter of a segment from its beginning: give it every batch, in order, and take `counts`.

    The cleaner writes `counts.to_bytes(size of the .log)` to `<base>.counts` (with its own suffix at first). It
    leaves no record of an aborted transaction behind, and says so: `CountsBuilder(base_offset, excludes_aborted=True)`.
    """

    __slots__ = ("counts", "position")

    def __init__(self, base_offset: int, *, excludes_aborted: bool = False) -> None:
        self.counts = RecordCounts(base_offset, excludes_aborted=excludes_aborted)
        self.counts.end_offset = base_offset
        self.position = 0
        """Where the next batch lies."""

    @property
    def next_offset(self) -> int:
        """Return the one behind the last batch."""
        end_offset = self.counts.end_offset
        assert end_offset is not None
        return end_offset

    def add(self, position: int, size_bytes: int, base_offset: int, last_offset: int, records: int) -> None:
        """Count a batch that lies at `position`; `records` is 0 for a control batch."""
        counts = self.counts
        if base_offset != counts.end_offset or records != last_offset - base_offset + 1:
            counts.note(position, size_bytes, self.next_offset, last_offset, records)
        counts.end_offset = last_offset + 1
        self.position = position + size_bytes


def records_in(header: HeaderFields) -> int:
    """Return the records of a batch that a reader is given: a control batch has none."""
    return 0 if header[ATTRIBUTES] & CONTROL else header[RECORD_COUNT]


def _big_endian(column: array[int]) -> bytes:
    if _SWAP:
        column = array("I", column)
        column.byteswap()
    return column.tobytes()


def _from_big_endian(data: memoryview) -> array[int]:
    column = array("I")
    column.frombytes(data)
    if _SWAP:
        column.byteswap()
    return column
