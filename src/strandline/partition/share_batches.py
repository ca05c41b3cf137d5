"""The batches of a slice of the log, as a share partition acquires them: by their headers, as far as it looks.

A batch is opened only for the due times of its records, if it has any that is not due, or for their keys.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from strandline.codec.columns import Columns, decode_batch
from strandline.codec.record_batch import HEADER_SIZE, BatchHeader
from strandline.errors import StrandlineError
from strandline.log.segment.aborted_transactions import AbortedRanges, aborted_segments
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.segment import ColdRead
from strandline.partition.partition import Partition

TRANSACTIONS_MAX: Final = 1_000_000
"""Aborted transactions that are looked at for one slice."""
OPENED_BYTES_MAX: Final = 1 << 20
"""Bytes of batches that one request opens, unless the first is larger; the next request goes on."""


class SliceBatches:
    """Batches from the first of a slice on; each is read when it is asked for."""

    __slots__ = (
        "_bases",
        "_end",
        "_headers",
        "_lasts",
        "_may_block",
        "_opened",
        "_opened_bytes",
        "_positions",
        "_read",
        "_slice",
        "is_cold",
    )

    def __init__(self, records: LogSlice, *, may_block: bool) -> None:
        """Read the first header. Raises ColdRead if the disk must be read for it and `may_block` is not set."""
        self._slice = records
        self._end = records.position + records.size_bytes
        self._read = records.segment.headers(records.position, may_block=may_block, end=self._end)
        self._headers: list[BatchHeader] = []
        self._bases: list[int] = []
        self._lasts: list[int] = []
        self._positions: list[int] = []
        self._may_block = may_block
        self._opened: Columns | None = None
        """The batch that was opened last."""
        self._opened_bytes = 0
        self.is_cold = False
        """Whether the disk must be read to open a batch."""
        header, position = next(self._read)
        self._add(header, position)

    @property
    def first_offset(self) -> int:
        return self._bases[0]

    def cover(self, offset: int) -> int:
        lasts = self._lasts
        while lasts[-1] < offset:
            if self._positions[-1] + self._headers[-1].size_bytes + HEADER_SIZE > self._end:
                # A limit of bytes cuts the slice anywhere, also inside of a header.
                return lasts[-1]
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

    def undue(self, first: int, last: int, now_ms: int) -> list[tuple[int, int, int]] | None:
        at = bisect_left(self._lasts, first)
        header = self._headers[at]
        if header.max_timestamp <= now_ms or header.is_control or last < header.base_offset:
            return []
        if header.record_count == 1:
            return [(max(first, header.base_offset), last, header.max_timestamp)]
        batch = self._open(at)
        return None if batch is None else _undue_runs(batch, first, last, now_ms)

    def keys(self, first: int, last: int) -> list[tuple[int, int]] | None:
        at = bisect_left(self._lasts, first)
        if self._headers[at].is_control:
            return []
        batch = self._open(at)
        if batch is None:
            return None
        payload = bytes(batch.payload)
        return [
            (offset, hash(payload[start : start + length]))
            for offset, start, length in zip(batch.offsets, batch.key_start, batch.key_length, strict=True)
            if length >= 0 and first <= offset <= last
        ]

    def _open(self, at: int) -> Columns | None:
        """Return the records of a batch; None if it must be read from disk first, or enough were opened."""
        header = self._headers[at]
        if self._opened is not None:
            if self._opened.base_offset == header.base_offset:
                return self._opened
            if self._opened_bytes + header.size_bytes > OPENED_BYTES_MAX:
                return None
        file, position = self._slice.segment.file(), self._positions[at]
        read = file.read_at if self._may_block else file.read_at_nowait
        batch = read(position, header.size_bytes)
        if batch is None:
            self.is_cold = True
            return None
        self._opened_bytes += header.size_bytes
        try:
            self._opened = decode_batch(batch, check_crc=False)
        except StrandlineError:
            # No reader can decode it either. It is due, and has no keys.
            self._opened = Columns(header._replace(record_count=0), b"", array("q"), array("i"))
        return self._opened

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


def _undue_runs(batch: Columns, first: int, last: int, now_ms: int) -> list[tuple[int, int, int]]:
    """Return first and last offset of neighbours that are not due, and when the earliest of them is."""
    runs: list[tuple[int, int, int]] = []
    is_open = False
    for offset, due_ms in zip(batch.offsets, batch.timestamps, strict=True):
        if not first <= offset <= last:
            continue
        if due_ms <= now_ms:
            is_open = False
        elif is_open:
            runs[-1] = runs[-1][0], offset, min(runs[-1][2], due_ms)
        else:
            runs.append((offset, offset, due_ms))
            is_open = True
    return runs
