"""Which transactions were aborted: the `.txnindex` file beside a segment, in Kafka's format.

    34 bytes an entry:  version int16 = 0, producer id int64, first offset int64 (of its first batch),
                        last offset int64 (of its marker), last stable offset int64 (when the marker was written)

An entry stands beside the segment that holds the marker. Entries grow by last offset and by last stable offset, so a
reader's range is found by two searches: it begins with the first transaction that ends behind the range's start, and it
ends where the last stable offset has passed the range's end: nothing that is aborted later can reach back into it.

Like the other indexes it lives in memory while its segment grows, and reaches the file when the segment is rolled or
closed; after a crash it is rebuilt. A segment in which nothing was aborted has no file.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from typing import Final, NamedTuple

from strandline.errors import CorruptLog
from strandline.log.segment.index import forget_unwritten

VERSION: Final = 0
_ENTRY = struct.Struct(">hqqqq")
ENTRY_SIZE: Final = _ENTRY.size


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """Of the marker."""
    last_stable_offset: int


class TransactionIndex:
    __slots__ = ("first_offsets", "last_offsets", "producer_ids", "stable_offsets", "unwritten")

    def __init__(self) -> None:
        self.producer_ids = array("q")
        self.first_offsets = array("q")
        self.last_offsets = array("q")
        self.stable_offsets = array("q")
        self.unwritten = bytearray()
        """Entries that the file lacks."""

    @classmethod
    def parse(cls, data: bytes, *, base_offset: int) -> TransactionIndex:
        """Return the entries of a file; CorruptLog if they cannot be those of the segment at `base_offset`.

        A reader that misses an aborted transaction takes its records for committed ones, so nothing is guessed.
        """
        if len(data) % ENTRY_SIZE:
            raise CorruptLog(f"transaction index of {len(data)} bytes")
        index = cls()
        last = base_offset - 1
        for version, producer_id, first_offset, last_offset, stable_offset in _ENTRY.iter_unpack(data):
            if version != VERSION or last_offset <= last or first_offset > last_offset:
                raise CorruptLog(f"transaction index with version {version}, offsets {first_offset} to {last_offset}")
            index._add(producer_id, first_offset, last_offset, stable_offset)
            last = last_offset
        return index

    def _add(self, producer_id: int, first_offset: int, last_offset: int, stable_offset: int) -> None:
        self.producer_ids.append(producer_id)
        self.first_offsets.append(first_offset)
        self.last_offsets.append(last_offset)
        self.stable_offsets.append(stable_offset)

    def append(self, aborted: AbortedTransaction) -> None:
        assert not self.last_offsets or aborted.last_offset > self.last_offsets[-1], "markers come in their order"
        self._add(*aborted)
        self.unwritten += _ENTRY.pack(VERSION, *aborted)

    def truncate(self, offset: int) -> None:
        """Forget transactions whose markers lie at `offset` or behind it."""
        count = bisect_left(self.last_offsets, offset)
        forget_unwritten(self.unwritten, (len(self) - count) * ENTRY_SIZE)
        for column in (self.producer_ids, self.first_offsets, self.last_offsets, self.stable_offsets):
            del column[count:]

    @property
    def written_bytes(self) -> int:
        """Return how much of the file holds entries that are known here."""
        return len(self) * ENTRY_SIZE - len(self.unwritten)

    def collect(self, start_offset: int, end_offset: int, found: list[tuple[int, int]]) -> bool:
        """Add those that overlap a range to `found`: (producer id, first offset); whether no later one can overlap."""
        for at in range(bisect_left(self.last_offsets, start_offset), len(self.last_offsets)):
            if self.first_offsets[at] < end_offset:
                found.append((self.producer_ids[at], self.first_offsets[at]))
            if self.stable_offsets[at] >= end_offset:
                return True
        return False

    def entries(self) -> list[AbortedTransaction]:
        columns = zip(self.producer_ids, self.first_offsets, self.last_offsets, self.stable_offsets, strict=True)
        return [AbortedTransaction(*each) for each in columns]

    def to_bytes(self) -> bytes:
        return b"".join(_ENTRY.pack(VERSION, *each) for each in self.entries())

    def __len__(self) -> int:
        return len(self.last_offsets)
