"""Records of the source by their offsets, for dead letters: one slice of the log in each turn of the loop."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from strandline.codec.columns import Columns, Record, decode_batch
from strandline.codec.columns.decode import read_header
from strandline.codec.record_batch import HEADER_SIZE
from strandline.errors import OffsetOutOfRange, StrandlineError
from strandline.log.cold_reads import ColdReads
from strandline.log.segment.segment import ColdRead
from strandline.partition.partition import Partition

SLICE_BYTES: Final = 1024 * 1024
COLD_READS_MAX: Final = 8
"""Reads in a thread before the loop may block on the disk."""
RECORDS_BYTES_MAX: Final = 512 * 1024
"""Bytes of keys, values and headers after which reading ends; the first record is read whatever its size."""


class SourceRecords:
    """What was found, for the first offsets that were asked for."""

    def __init__(self) -> None:
        self.offsets = 0
        """How many of the offsets were looked up."""
        self.records: dict[int, Record] = {}
        """By offset; one that is missing is gone."""
        self.controls: set[int] = set()
        """Offsets of transaction markers, which are no records."""


OnSource = Callable[[SourceRecords | None, str], object]
"""Called once, with the records or with the reason why the log cannot be read."""


class SourceReading:
    """One look-up of offsets in growing order."""

    def __init__(self, partition: Partition, offsets: Sequence[int], on_done: OnSource) -> None:
        self._partition = partition
        self._wanted = offsets
        self._on_done = on_done
        self._found = SourceRecords()
        self._size_bytes = 0
        self._cold_reads = 0

    def look(self) -> None:
        """Read the next slice, and go on in a later turn until everything is found."""
        found, partition = self._found, self._partition
        if found.offsets == len(self._wanted) or self._size_bytes >= RECORDS_BYTES_MAX:
            self._on_done(found, "")
            return
        offset = self._wanted[found.offsets]
        try:
            records = partition.read(
                offset,
                size_bytes_max=SLICE_BYTES,
                committed_only=False,
                at_least_one=True,
                may_block=self._cold_reads > COLD_READS_MAX,
            )
            content = b""
            if records is not None:
                try:
                    content = records.read()
                finally:
                    records.release()
            self._take(content)
        except ColdRead:
            self._warm(offset)
            return
        except OffsetOutOfRange:
            # Retention took it, or an unclean election.
            found.offsets += 1
        except (StrandlineError, OSError) as error:
            self._on_done(None, f"the source cannot be read: {error}")
            return
        partition.runtime.call_soon(self.look)

    def _take(self, content: bytes) -> None:
        """Take what a slice has of the offsets, up to the one that is behind it."""
        found, wanted = self._found, self._wanted
        before, at = found.offsets, 0
        while at + HEADER_SIZE <= len(content) and found.offsets < len(wanted):
            header = read_header(memoryview(content)[at:])
            end = at + header.size_bytes
            if end > len(content):
                break
            if wanted[found.offsets] <= header.last_offset:
                self._take_batch(decode_batch(memoryview(content)[at:end]))
            at = end
        if found.offsets == before:
            # No batch holds it: compaction removed it.
            found.offsets += 1

    def _take_batch(self, columns: Columns) -> None:
        found, wanted = self._found, self._wanted
        rows = {offset: row for row, offset in enumerate(columns.offsets)}
        while found.offsets < len(wanted) and wanted[found.offsets] <= columns.last_offset:
            offset = wanted[found.offsets]
            row = rows.get(offset)
            if columns.is_control and offset >= columns.base_offset:
                found.controls.add(offset)
            elif row is not None:
                record = found.records[offset] = columns.record(row)
                self._size_bytes += len(record.key or b"") + len(record.value or b"")
                self._size_bytes += sum(len(name) + len(value or b"") for name, value in record.headers)
            found.offsets += 1
            if self._size_bytes >= RECORDS_BYTES_MAX:
                return

    def _warm(self, offset: int) -> None:
        """Have a thread read what is cold into the page cache; then look again."""
        self._cold_reads += 1
        cold = ColdReads()
        cold.add(self._partition.log, offset, with_aborted=False)
        cold.begin(self._partition.runtime, SLICE_BYTES, self._on_warm)

    def _on_warm(self, error: BaseException | None) -> None:
        if error is not None:
            self._cold_reads = COLD_READS_MAX + 1
        self.look()
