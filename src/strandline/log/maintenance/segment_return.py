"""Bringing a segment back in front of a log, which an object store kept meanwhile.

The files are written under names that count for nothing (`.cleaned`), then synced, then renamed, the log last. Only
with a synced directory does the segment become the first one of the log. A crash before the last rename leaves the log
as it was. After it the log begins with the segment, whose records the next one continues.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from strandline.codec.record_batch import BatchHeader
from strandline.errors import DiskFailed
from strandline.log.cleaning.job import CLEANED_SUFFIX
from strandline.log.disk import File
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.transaction_index import TransactionIndex


class ReturningSegment:
    """The files of a segment that is to come before the first one. A thread writes, the loop does all else."""

    def __init__(self, partition_log: PartitionLog, base_offset: int) -> None:
        self._log = partition_log
        self._disk = partition_log.disk
        self._directory = partition_log.directory
        self._edge = partition_log.base_offsets[0]
        self.base_offset = base_offset
        self.size_bytes = 0
        self._written_bytes = 0
        self._since_index_entry = 0
        self._first_timestamp_ms = -1
        self._max_timestamp_ms = -1
        self._offset_of_max_timestamp = base_offset
        self._index = OffsetIndex()
        self._time_index = TimeIndex()
        self._suffixes = [INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX]
        self._file: File | None = None

    def _path(self, suffix: str, behind: str = "") -> Path:
        return self._directory / (file_stem(self.base_offset) + suffix + behind)

    def note(self, header: BatchHeader) -> None:
        """Account for the next batch, whose bytes `write` gets."""
        relative, size_bytes = header.last_offset - self.base_offset, header.size_bytes
        if header.max_timestamp > self._max_timestamp_ms:
            self._max_timestamp_ms, self._offset_of_max_timestamp = header.max_timestamp, header.last_offset
        if not self.size_bytes:
            self._first_timestamp_ms = header.max_timestamp
        if self._since_index_entry > self._log.config.index_interval_bytes:
            self._index.append(relative, self.size_bytes)
            self._time_index.maybe_append(self._max_timestamp_ms, self._offset_of_max_timestamp - self.base_offset)
            self._since_index_entry = 0
        self._since_index_entry += size_bytes
        self.size_bytes += size_bytes

    # In a thread

    def write(self, data: bytes) -> None:
        if self._file is None:
            for suffix in (*self._suffixes, TRANSACTION_INDEX_SUFFIX):
                self._disk.remove(self._path(suffix, CLEANED_SUFFIX))
            self._file = self._disk.open(self._path(LOG_SUFFIX, CLEANED_SUFFIX), create=True)
        self._file.write_at(self._written_bytes, data)
        self._written_bytes += len(data)

    def finish(self, transactions: TransactionIndex) -> None:
        """Complete and sync the files."""
        assert self._file is not None
        assert self._written_bytes == self.size_bytes, "what was noted is what was written"
        self._file.datasync()
        self.close()
        self._time_index.maybe_append(self._max_timestamp_ms, self._offset_of_max_timestamp - self.base_offset)
        beside = {INDEX_SUFFIX: self._index.to_bytes(), TIME_INDEX_SUFFIX: self._time_index.to_bytes()}
        if len(transactions):
            self._suffixes.insert(0, TRANSACTION_INDEX_SUFFIX)
            beside[TRANSACTION_INDEX_SUFFIX] = transactions.to_bytes()
        for suffix, content in beside.items():
            self._disk.write_whole(self._path(suffix, CLEANED_SUFFIX), content, sync=True)

    def sync_names(self) -> None:
        self._disk.sync_directory(self._directory)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    # On the loop

    @property
    def is_wanted(self) -> bool:
        """Return whether the log still begins where it did when this was begun."""
        return self._log.failure is None and bool(self._log.base_offsets) and self._log.base_offsets[0] == self._edge

    def rename(self) -> None:
        """Give the files their names. On the loop, so that nothing else changes the log meanwhile."""
        for suffix in self._suffixes:
            self._disk.rename(self._path(suffix, CLEANED_SUFFIX), self._path(suffix))

    def take_place(self) -> None:
        """Make it the first segment of the log. The names are synced."""
        partition_log = self._log
        if partition_log.swap is not None:
            partition_log.swap.settle()
        if not self.is_wanted:
            self.discard()
            raise DiskFailed(f"{self._directory.name}: the log begins elsewhere by now")
        segment = partition_log.new_segment(self.base_offset, partition_log.segments[0].created_ms)
        segment.size_bytes = self.size_bytes
        segment.first_timestamp_ms = self._first_timestamp_ms
        segment.max_timestamp_ms = self._max_timestamp_ms
        segment.offset_of_max_timestamp = self._offset_of_max_timestamp
        segment.has_transaction_index = TRANSACTION_INDEX_SUFFIX in self._suffixes
        partition_log.segments.insert(0, segment)
        partition_log.base_offsets.insert(0, self.base_offset)
        partition_log.has_aborted = partition_log.has_aborted or segment.has_transaction_index
        partition_log.log_start_offset = max(self.base_offset, partition_log.tier_start_offset)

    def discard(self) -> None:
        """Remove the files: they are not those of the log."""
        self.close()
        if self._log.failure is None:
            with suppress(OSError):
                for suffix, behind in self._names():
                    self._disk.remove(self._path(suffix, behind))

    def _names(self) -> Iterator[tuple[str, str]]:
        for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX):
            yield suffix, CLEANED_SUFFIX
            if self.base_offset not in self._log.base_offsets:
                yield suffix, ""
