"""The batches of a slice of the log, as a share partition acquires them: by their headers, as far as it looks."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final

from strandline.codec.record_batch import BatchHeader
from strandline.log.segment.aborted_transactions import AbortedRanges, aborted_segments
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.segment import ColdRead
from strandline.partition.partition import Partition

TRANSACTIONS_MAX: Final = 1_000_000
"""Aborted transactions that are looked at for one slice."""


class SliceBatches:
    """Batches from the first of a slice on; each is read when it is asked for."""

    __slots__ = ("_bases", "_end", "_headers", "_lasts", "_positions", "_read", "_slice")

    def __init__(self, records: LogSlice, *, may_block: bool) -> None:
        """Read the first header. Raises ColdRead if the disk must be read for it and `may_block` is not set."""
        self._slice = records
        self._end = records.position + records.size_bytes
        self._read = records.segment.headers(records.position, may_block=may_block, end=self._end)
        self._headers: list[BatchHeader] = []
        self._bases: list[int] = []
        self._lasts: list[int] = []
        self._positions: list[int] = []
        header, position = next(self._read)
        self._add(header, position)

    @property
    def first_offset(self) -> int:
        return self._bases[0]

    def cover(self, offset: int) -> int:
        lasts = self._lasts
        while lasts[-1] < offset:
            try:
                header, position = next(self._read)
            except (StopIteration, ColdRead):
                # What is not in the page cache is left to the next request, which begins there.
                return lasts[-1]
            if position + header.size_bytes > self._end:
                return lasts[-1]
            self._add(header, position)
        return lasts[bisect_left(lasts, offset)]

    def bases(self, first: int, last: int) -> list[int]:
        return self._bases[bisect_left(self._bases, first) : bisect_right(self._bases, last)]

    def _add(self, header: BatchHeader, position: int) -> None:
        self._headers.append(header)
        self._bases.append(header.base_offset)
        self._lasts.append(header.last_offset)
        self._positions.append(position)

    def cut(self, first: int, last: int) -> LogSlice:
        """Return the batches that hold these offsets. The caller releases the slice."""
        begin = bisect_left(self._lasts, first)
        end = bisect_right(self._bases, last) - 1
        position = self._positions[begin]
        size = self._positions[end] + self._headers[end].size_bytes - position
        return LogSlice(self._slice.segment, position, size)

    def aborted(self, partition: Partition) -> list[tuple[int, int]]:
        """Return first and last offsets of the batches, of those read, that belong to aborted transactions."""
        if not partition.log.has_aborted:
            return []
        ranges = AbortedRanges(self._bases[0], self._lasts[-1] + 1, transactions_max=TRANSACTIONS_MAX)
        for segment in aborted_segments(partition.log, self._bases[0]):
            if ranges.collect(segment.load_transaction_index(may_block=True)):
                break
        if not ranges:
            return []
        return [(header.base_offset, header.last_offset) for header in self._headers if ranges.has(header)]


def load_aborted(partition: Partition, offset: int, *, may_block: bool) -> None:
    """Load what `SliceBatches.aborted` needs. Raises ColdRead if the disk must be read and `may_block` is not set."""
    for segment in aborted_segments(partition.log, offset):
        segment.load_transaction_index(may_block=may_block)
