"""One segment: a file of record batches, its two indexes, and the readers that still hold it.

A segment's file is opened on demand and may be closed behind its back by `OpenFiles`, except while a reader holds it
(`retain`): a queued slice must never point at a descriptor that meanwhile names another file. A deleted segment's
files are unlinked when the last reader lets go.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from strandline.codec.record_batch import PREFIX_SIZE, BatchHeader, HeaderFields
from strandline.log.disk import Buffer, Disk, File
from strandline.log.segment import segment_files
from strandline.log.segment.digest import DIGEST_SUFFIX
from strandline.log.segment.file_names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    file_stem,
)
from strandline.log.segment.header_walk import headers_in
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.record_counts import CountsBuilder, RecordCounts
from strandline.log.segment.segment_counts import cut_counts, resume_counts, save_counts
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from strandline.log.segment.unverified import Unverified

TAIL_BATCHES_MAX: Final = 512
"""Batches at the end whose places are remembered, so that readers at the tail ask neither index nor disk."""
WALK_CHUNK_BYTES: Final = 16 * 1024


class ColdRead(Exception):
    """The bytes are not in the page cache, or not verified: repeat the call after a thread has read them."""


class SegmentFiles(Protocol):
    """The open files of all segments: `OpenFiles`, which bounds their number."""

    def open(self, segment: Segment, *, create: bool = False) -> File: ...
    def adopt(self, segment: Segment, file: File) -> None: ...
    def forget(self, segment: Segment) -> None: ...


class Segment:
    __slots__ = (
        "_file",
        "_index",
        "_run",
        "_time_index",
        "_transaction_index",
        "base_offset",
        "bytes_since_index_entry",
        "counts",
        "created_ms",
        "deleted",
        "delivered",
        "dirty",
        "disk",
        "first_timestamp_ms",
        "has_transaction_index",
        "index_interval_bytes",
        "is_active",
        "is_preallocated",
        "max_timestamp_ms",
        "newest_read",
        "offset_of_max_timestamp",
        "open_files",
        "path",
        "references",
        "replacement",
        "size_bytes",
        "sync_error",
        "tail_offsets",
        "tail_positions",
        "tail_start",
        "touched",
        "unverified",
        "verified_from",
        "want_flush",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        *,
        disk: Disk,
        open_files: SegmentFiles,
        index_interval_bytes: int,
        created_ms: int,
        want_flush: Callable[[], object],
        size_bytes: int = 0,
    ) -> None:
        self.path = directory / (file_stem(base_offset) + LOG_SUFFIX)
        self.base_offset = base_offset
        self.disk = disk
        self.open_files = open_files
        self.want_flush = want_flush
        """Asks for a flush in the background, after which the file may be closed."""
        self.index_interval_bytes = index_interval_bytes
        self.size_bytes = size_bytes
        self.created_ms = created_ms
        self.first_timestamp_ms = -1
        self.max_timestamp_ms = -1
        self.newest_read: tuple[int, int] | None = None
        """(size, newest timestamp) as last read from the files: for retention, where memory does not know it."""
        self.offset_of_max_timestamp = base_offset
        self.bytes_since_index_entry = 0
        self.is_active = False
        self.is_preallocated = False
        self.dirty = False
        self.deleted = False
        self.references = 0
        self.replacement: Segment | None = None
        """The segment that replaced this one after cleaning or repair."""
        self.sync_error: OSError | None = None
        self.touched = False
        self.tail_offsets: list[int] = []
        self.tail_positions: list[int] = []
        self.tail_start = base_offset
        self.has_transaction_index = False
        """Whether there is a file of aborted transactions, or will be: most segments have none."""
        self.counts: RecordCounts | None = None
        """How many records there are; None if only the file beside it, or all headers, can tell."""
        self.delivered: CountsBuilder | None = None
        """The same without records of aborted transactions, as far as it was counted."""
        self.verified_from = 0
        """Everything from this position on was written or verified by this process."""
        self.unverified: Unverified | None = None
        """What is known of the part before, if there is any."""
        self._file: File | None = None
        self._run: Callable[[Callable[[], None]], object] | None = None
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._transaction_index: TransactionIndex | None = None

    # Files

    def file(self) -> File:
        self.touched = True
        return self._file or self.open_files.open(self)

    def attach(self, file: File) -> None:
        self._file = file

    @property
    def is_open(self) -> bool:
        return self._file is not None

    def detach(self) -> None:
        """Close what can be opened again: the file, and the indexes of a segment that no longer grows."""
        if self._file is not None:
            self._file.close()
            self._file = None
        if not self.is_active:
            self._index = None
            self._time_index = None
            self._transaction_index = None
            self.delivered = None
            if self.counts is not None:
                self.counts = self.counts.without_entries()

    def create(self, *, size_bytes: int = 0) -> None:
        """Make the files of a new, empty, active segment; its file is given `size_bytes` at once."""
        file = self.open_files.open(self, create=True)
        if size_bytes:
            file.truncate(size_bytes)
            self.is_preallocated = True
        self._index = OffsetIndex()
        self._time_index = TimeIndex()
        for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX):
            self.disk.open(self.path.with_suffix(suffix), create=True).close()
        self.is_active = True

    def _read_beside(self, suffix: str) -> bytes:
        """Return the content of the file with that suffix, empty if there is none: an index only saves reading."""
        named = self.path
        data = segment_files.read_index(self.disk, named.with_suffix(suffix))
        # In a thread, while the loop may replace the segment: then the name is another segment's.
        return data if self.path is named else b""

    @property
    def index(self) -> OffsetIndex:
        if self._index is None:
            self._index = OffsetIndex.parse(self._read_beside(INDEX_SUFFIX))
            self.file()  # An index lives as long as its file is open: `OpenFiles` bounds both.
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        if self._time_index is None:
            self._time_index = TimeIndex.parse(self._read_beside(TIME_INDEX_SUFFIX))
            self.file()
        return self._time_index

    @property
    def transaction_index(self) -> TransactionIndex:
        """Return the index, empty if the segment has none. Raises CorruptLog if the file cannot be one."""
        index = self._transaction_index
        if index is None:
            data = self._read_beside(TRANSACTION_INDEX_SUFFIX) if self.has_transaction_index else b""
            index = self._transaction_index = TransactionIndex.parse(data, base_offset=self.base_offset)
            if self.has_transaction_index:
                self.file()
        return index

    def load_transaction_index(self, *, may_block: bool) -> TransactionIndex:
        if self._transaction_index is None and self.has_transaction_index and not may_block:
            raise ColdRead
        return self.transaction_index

    def note_aborted(self, aborted: AbortedTransaction) -> None:
        """Note that a marker in this segment aborted a transaction."""
        self.transaction_index.append(aborted)
        self.has_transaction_index = True

    def load_indexes(self, *, may_block: bool) -> None:
        """Read both indexes into memory. That may block on the disk, so the loop leaves it to a thread."""
        if self._index is None or self._time_index is None:
            if not may_block:
                raise ColdRead
            _ = self.index, self.time_index

    def begin_rebuild(self) -> None:
        """Forget indexes and end; `note_batch` learns them again, then `rewrite_indexes` writes them out."""
        self._index = OffsetIndex()
        self._time_index = TimeIndex()
        self._transaction_index = TransactionIndex()
        self.size_bytes = 0
        self.max_timestamp_ms = -1
        self.offset_of_max_timestamp = self.base_offset
        self.bytes_since_index_entry = 0
        self.tail_offsets = []
        self.tail_positions = []

    def resume(self) -> int:
        """Prepare a segment to grow again, after a restart or a truncation. Return the offset after its last batch."""
        last_entry = self.index.boundary_before(self.size_bytes)
        self.bytes_since_index_entry = self.size_bytes - last_entry
        self.max_timestamp_ms, relative = self.time_index.last()
        self.offset_of_max_timestamp = self.base_offset + relative
        self.first_timestamp_ms = -1
        for header, _ in self.headers(0, may_block=True):
            self.first_timestamp_ms = header.max_timestamp
            break
        end_offset = self.base_offset
        # The time index knows the largest time up to the last entry; the batches behind it may carry a larger one.
        for header, _ in self.headers(last_entry, may_block=True):
            end_offset = header.last_offset + 1
            if header.max_timestamp > self.max_timestamp_ms:
                self.max_timestamp_ms = header.max_timestamp
                self.offset_of_max_timestamp = header.last_offset
        resume_counts(self, end_offset)
        return end_offset

    def _index_files(self) -> Iterator[tuple[Path, segment_files.AnyIndex]]:
        """Yield each index that the segment has, with the path of its file."""
        yield self.path.with_suffix(INDEX_SUFFIX), self.index
        yield self.path.with_suffix(TIME_INDEX_SUFFIX), self.time_index
        if self.has_transaction_index:
            yield self.path.with_suffix(TRANSACTION_INDEX_SUFFIX), self.transaction_index

    def rewrite_indexes(self) -> None:
        """Replace the content of the index files by what is in memory."""
        for path, index in self._index_files():
            segment_files.rewrite_index(self.disk, path, index)

    def write_indexes(self) -> None:
        """Append to the index files what only memory holds."""
        for path, index in self._index_files():
            segment_files.write_index(self.disk, path, index)

    def cut_preallocated(self) -> bool:
        """Cut off preallocated space that is not filled. Return whether there was any."""
        if not self.is_preallocated:
            return False
        self.file().truncate(self.size_bytes)
        self.is_preallocated = False
        return True

    def seal(self) -> None:
        """End the segment: complete the time index and the files."""
        self.time_index.maybe_append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)
        self.write_indexes()
        save_counts(self)
        self.is_active = False
        self.tail_offsets = []
        self.tail_positions = []

    # Writing

    def append(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Write one batch at the end. If this raises, the segment is as it was before."""
        position = self.size_bytes
        (self._file or self.file()).write_at(position, batch)
        self.note_batch(base_offset, last_offset, max_timestamp_ms, position, len(batch))
        self.dirty = True

    def append_run(self, data: Buffer, base_offset: int, sizes: Iterable[int], timestamps: Iterable[int]) -> None:
        """Write batches of one record each, back to back in `data`, with one call. If this raises, none is there."""
        position = self.size_bytes
        (self._file or self.file()).write_at(position, data)
        for offset, (size, timestamp_ms) in enumerate(zip(sizes, timestamps, strict=True), base_offset):
            self.note_batch(offset, offset, timestamp_ms, position, size)
            position += size
        self.dirty = True

    def append_batches(self, data: Buffer, headers: Iterable[HeaderFields]) -> None:
        """Write batches that lie back to back in `data`, with one call. If this raises, none is there."""
        position = self.size_bytes
        (self._file or self.file()).write_at(position, data)
        for header in headers:
            base_offset, length, _, _, _, _, last_offset_delta, _, max_timestamp, _, _, _, _ = header
            size = length + PREFIX_SIZE
            self.note_batch(base_offset, base_offset + last_offset_delta, max_timestamp, position, size)
            position += size
        self.dirty = True

    def note_batch(
        self, base_offset: int, last_offset: int, max_timestamp_ms: int, position: int, size_bytes: int
    ) -> None:
        """Account for a batch that lies at `position`: freshly appended, or found by recovery."""
        if max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = max_timestamp_ms
            self.offset_of_max_timestamp = last_offset
        if position == 0:
            self.first_timestamp_ms = max_timestamp_ms
        since = self.bytes_since_index_entry
        if since > self.index_interval_bytes:
            self.index.append(last_offset - self.base_offset, position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.offset_of_max_timestamp - self.base_offset)
            since = 0
        self.bytes_since_index_entry = since + size_bytes
        self.size_bytes = position + size_bytes
        tail = self.tail_offsets
        if not tail:
            self.tail_start = base_offset
        tail.append(last_offset)
        self.tail_positions.append(position)
        if len(tail) > TAIL_BATCHES_MAX:
            self.tail_start = tail[TAIL_BATCHES_MAX // 2 - 1] + 1
            del tail[: TAIL_BATCHES_MAX // 2]
            del self.tail_positions[: TAIL_BATCHES_MAX // 2]

    def truncate(self, position: int, next_offset: int) -> None:
        """Cut the file at `position`, the end of the batch before `next_offset`; `resume` goes on from there."""
        self.file().truncate(position)
        self.size_bytes = position
        # The digest does not cover what is written there from now on.
        self.disk.remove(self.path.with_suffix(DIGEST_SUFFIX))
        self.verified_from = min(self.verified_from, position)
        self.index.truncate(next_offset - self.base_offset, position)
        self.time_index.truncate(next_offset - self.base_offset)
        self.transaction_index.truncate(next_offset)
        for path, index in self._index_files():
            segment_files.truncate_index(self.disk, path, index)
        cut_counts(self, position)
        self.tail_offsets = []
        self.tail_positions = []
        self.dirty = True

    # Reading

    def headers(self, position: int, *, may_block: bool, end: int | None = None) -> Iterator[tuple[BatchHeader, int]]:
        """Yield batch headers and their positions from the batch at `position` to `end`, or the segment's end."""
        file = self.file()
        end = self.size_bytes if end is None else end
        while position < end:
            size = min(WALK_CHUNK_BYTES, end - position)
            chunk = file.read_at(position, size) if may_block else file.read_at_nowait(position, size)
            if chunk is None:
                raise ColdRead
            for header, at in headers_in(self.path, chunk, position):
                position = at + header.length + PREFIX_SIZE
                yield header, at

    def batch_size_at(self, position: int, *, may_block: bool) -> int:
        """Return the size of the batch at `position`."""
        tail = self.tail_positions
        if tail and position >= tail[0]:
            following = bisect_right(tail, position)
            return (tail[following] if following < len(tail) else self.size_bytes) - position
        file = self.file()
        data = file.read_at(position, PREFIX_SIZE) if may_block else file.read_at_nowait(position, PREFIX_SIZE)
        if data is None:
            raise ColdRead
        return int.from_bytes(data[8:12], "big") + PREFIX_SIZE

    # Holding and deleting

    def retain(self) -> None:
        self.file()
        self.references += 1

    def release(self) -> None:
        self.references -= 1
        assert self.references >= 0, "a segment was released more often than retained"
        if self.deleted and self.references == 0:
            self._unlink()

    def delete(self, run: Callable[[Callable[[], None]], object] | None = None) -> None:
        """Rename the files at once, and unlink them, by `run` if that is given, when no reader is left.

        Unlinking a large file takes time, so the loop leaves it to a thread. The rename comes first, because a log of
        the same name may be made before the thread runs.
        """
        self.begin_delete(run)
        try:
            self.rename_away()
        finally:
            self.release()

    def begin_delete(self, run: Callable[[Callable[[], None]], object] | None) -> None:
        """Begin to delete in steps: a thread renames the files, then the loop releases the segment."""
        self.deleted = True
        self._run = run
        self.references += 1

    def rename_away(self) -> None:
        segment_files.rename_away(self.disk, self.path)

    def _unlink(self) -> None:
        self.open_files.forget(self)
        remove = partial(segment_files.remove_renamed, self.disk, self.path)
        if self._run is None:
            remove()
        else:
            self._run(remove)

    def stand_in(self, file: File, index: OffsetIndex, transaction_index: TransactionIndex) -> None:
        """Make a replacement readable before its files have their names, by an open file and indexes in memory.

        It is retained until `end_standing_in`. Its time index is empty until then, which only costs time.
        """
        self.path = self.path.with_name(f"{file_stem(self.base_offset)}.unnamed{LOG_SUFFIX}")
        self._index, self._transaction_index = index, transaction_index
        self.open_files.adopt(self, file)
        self.references += 1

    def end_standing_in(self) -> None:
        """Use the files by their names from now on."""
        self.path = self.path.with_name(file_stem(self.base_offset) + LOG_SUFFIX)
        self._time_index = None
        self.release()

    def yield_to(self, replacement: Segment, run: Callable[[Callable[[], None]], object] | None) -> Callable[[], None]:
        """Give this segment's place to another. Readers that hold it go on; new ones find the other.

        The caller renames the files, then calls what this returns, so that the last reader may remove them.
        """
        remove = partial(segment_files.remove_renamed, self.disk, self.path)
        self.references += 1
        self.dirty = False
        self.deleted, self.replacement = True, replacement
        # From here on the name belongs to the other.
        self.path = self.path.with_name(f"{file_stem(self.base_offset)}.replaced{LOG_SUFFIX}")
        self._run = (lambda _: remove()) if run is None else (lambda _: run(remove))
        return self.release

    def abandon(self) -> None:
        """Close when the last reader releases the segment, whose directory is being removed."""
        self.deleted = True
        self.is_active = False
        self.want_flush = _ignore
        self.unverified = None
        if self.references == 0:
            self.open_files.forget(self)

    def close(self) -> None:
        self.open_files.forget(self)

    def __repr__(self) -> str:
        return f"<Segment {self.path} {self.size_bytes} bytes>"


def _ignore() -> None:
    """Do nothing: a file that is being removed needs no flush."""
