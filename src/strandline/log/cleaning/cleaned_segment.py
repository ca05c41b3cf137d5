"""A segment in the making: its files bear `.cleaned` behind their names until they replace segments of the log."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup, SourceSegment
from strandline.log.cleaning.reading import Pace
from strandline.log.disk import Buffer, Disk
from strandline.log.segment.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SEGMENT_SUFFIXES,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.record_counts import COUNTS_SUFFIX, CountsBuilder
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex

SYNC_BYTES: Final = 16 * 1024 * 1024
"""Bytes between two syncs: a gigabyte that is synced at once would hold up all other writes."""


class CleanedSegment:
    def __init__(
        self, directory: Path, group: list[SourceSegment], *, disk: Disk, index_interval_bytes: int, pace: Pace
    ) -> None:
        self._directory = directory
        self._group = group
        self._disk = disk
        self._index_interval_bytes = index_interval_bytes
        self._pace = pace
        self.base_offset = group[0].base_offset
        self._parts: list[Buffer] = []
        self._position = 0
        self._written_bytes = 0
        self._synced_bytes = 0
        self._since_index_entry = 0
        self._max_timestamp_ms = -1
        self._offset_of_max_timestamp = self.base_offset
        self._records = 0
        self._index = OffsetIndex()
        self._time_index = TimeIndex()
        self._transaction_index = TransactionIndex()
        # Nothing of an aborted transaction is ever put here.
        self._counts = CountsBuilder(self.base_offset, excludes_aborted=True)
        self.remove()  # What a worker left that was killed.
        self._file = disk.open(self._path(LOG_SUFFIX), create=True)

    def _path(self, suffix: str) -> Path:
        return self._directory / (file_stem(self.base_offset) + suffix + CLEANED_SUFFIX)

    def add(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp_ms: int, records: int) -> None:
        """Append one batch; `records` are data records."""
        self._parts.append(batch)
        self.note(base_offset, last_offset, max_timestamp_ms, len(batch), records)

    def add_run(self, run: Buffer) -> None:
        """Append batches; `note` is called for each of them, before or after."""
        self._parts.append(run)

    def note(self, base_offset: int, last_offset: int, max_timestamp_ms: int, size_bytes: int, records: int) -> None:
        if max_timestamp_ms > self._max_timestamp_ms:
            self._max_timestamp_ms = max_timestamp_ms
            self._offset_of_max_timestamp = last_offset
        if self._since_index_entry > self._index_interval_bytes:
            self._index.append(last_offset - self.base_offset, self._position)
            self._time_index.maybe_append(self._max_timestamp_ms, self._offset_of_max_timestamp - self.base_offset)
            self._since_index_entry = 0
        self._counts.add(self._position, size_bytes, base_offset, last_offset, records)
        self._since_index_entry += size_bytes
        self._position += size_bytes
        self._records += records

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        self._transaction_index.append(aborted)

    def write(self) -> None:
        """Write what was put; the parts may be views of a buffer that goes away."""
        if not self._parts:
            return
        run = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        self._file.write_at(self._written_bytes, run)
        self._written_bytes += len(run)
        self._parts.clear()
        self._pace.spend(len(run))
        if self._written_bytes - self._synced_bytes >= SYNC_BYTES:
            self._file.datasync()
            self._synced_bytes = self._written_bytes

    def finish(self) -> CleanedGroup:
        """Complete and sync all files, and return the segment that they make."""
        self.write()
        assert self._position == self._written_bytes, "what was noted is what was written"
        self._file.datasync()
        self._time_index.maybe_append(self._max_timestamp_ms, self._offset_of_max_timestamp - self.base_offset)
        beside = {
            INDEX_SUFFIX: self._index.to_bytes(),
            TIME_INDEX_SUFFIX: self._time_index.to_bytes(),
            COUNTS_SUFFIX: self._counts.counts.to_bytes(self._written_bytes),
        }
        if len(self._transaction_index):
            beside[TRANSACTION_INDEX_SUFFIX] = self._transaction_index.to_bytes()
        for suffix, content in beside.items():
            self._write_beside(suffix, content)
        # Retention goes by the age of the file where records have no time; to be copied makes nothing younger.
        newest = self._directory / (file_stem(self._group[-1].base_offset) + LOG_SUFFIX)
        self._disk.set_modified_ms(self._path(LOG_SUFFIX), self._disk.modified_ms(newest))
        self._disk.sync_directory(self._directory)
        return CleanedGroup(
            base_offset=self.base_offset,
            replaced=tuple(each.base_offset for each in self._group),
            size_bytes=self._written_bytes,
            has_transaction_index=len(self._transaction_index) > 0,
            records=self._records,
            end_offset=self._group[-1].end_offset,
            max_timestamp_ms=self._max_timestamp_ms,
            offset_of_max_timestamp=self._offset_of_max_timestamp,
            suffixes=(LOG_SUFFIX, *beside),
            size_bytes_before=sum(each.size_bytes for each in self._group),
        )

    def _write_beside(self, suffix: str, content: bytes) -> None:
        file = self._disk.open(self._path(suffix), create=True)
        try:
            file.write_at(0, content)
            file.datasync()
        finally:
            file.close()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        for suffix in SEGMENT_SUFFIXES:
            self._disk.remove(self._path(suffix))
