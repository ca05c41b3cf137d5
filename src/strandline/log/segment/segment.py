"""One segment: a file of record batches, its two indexes, and the readers that still hold it.

A segment's file is opened on demand and may be closed behind its back by `OpenFiles`, except while a reader holds it
(`retain`): a queued slice must never point at a descriptor that meanwhile names another file. A deleted segment's
files are unlinked when the last reader lets go.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.codec.record_batch import (
    HEADER,
    HEADER_SIZE,
    PREFIX_SIZE,
    BatchHeader,
    HeaderFields,
)
from strandline.errors import CorruptLog
from strandline.log.disk import Buffer, Disk, File
from strandline.log.segment.digest import DIGEST_SUFFIX
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.read_verification import ColdRead as ColdRead
from strandline.log.segment.read_verification import Unverified, locate_checked
from strandline.log.segment.record_counts import COUNTS_SUFFIX, CountsBuilder, RecordCounts
from strandline.log.segment.segment_counts import cut_counts, resume_counts, save_counts
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex

if TYPE_CHECKING:
    from strandline.log.segment.open_files import OpenFiles

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
SEGMENT_SUFFIXES: Final = (
    LOG_SUFFIX,
    INDEX_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    COUNTS_SUFFIX,
    DIGEST_SUFFIX,
)

TAIL_BATCHES_MAX: Final = 512
"""Batches at the end whose places are remembered, so that readers at the tail ask neither index nor disk."""
WALK_CHUNK_BYTES: Final = 16 * 1024


def file_stem(offset: int) -> str:
    return f"{offset:020d}"


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
        open_files: OpenFiles,
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
        """Its size, and the newest time that its files knew then: for retention, where memory does not know it."""
        self.offset_of_max_timestamp = base_offset
        self.bytes_since_index_entry = 0
        self.is_active = False
        self.is_preallocated = False
        self.dirty = False
        self.deleted = False
        self.references = 0
        self.replacement: Segment | None = None
        """What took this segment's place, when it was cleaned or mended."""
        self.sync_error: OSError | None = None
        self.touched = False
        self.tail_offsets: list[int] = []
        self.tail_positions: list[int] = []
        self.tail_start = base_offset
        self.has_transaction_index = False
        """Whether there is a file of aborted transactions, or will be: most segments have none."""
        self.counts: RecordCounts | None = None
        """How many records there are; None if nobody knows without looking at the file beside it, or at all headers."""
        self.delivered: CountsBuilder | None = None
        """The same without those of aborted transactions, as far as somebody wanted to know."""
        self.verified_from = 0
        """From this place in the file on everything was written, or found sound, by this process."""
        self.unverified: Unverified | None = None
        """What is known of the rest, if there is any."""
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
        """What the file of that suffix holds; nothing if there is none: an index only saves looking."""
        named = self.path
        path = named.with_suffix(suffix)
        try:
            data = self.disk.read_whole(path) if self.disk.exists(path) else b""
        except FileNotFoundError:
            return b""
        # A thread reads here while the loop may swap: the name is then another segment's.
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
        """Of a segment that has none, an empty one. CorruptLog if the file cannot be one."""
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
        """A marker in this segment aborted a transaction."""
        self.transaction_index.append(aborted)
        self.has_transaction_index = True

    def load_indexes(self, *, may_block: bool) -> None:
        """See to it that both indexes are in memory. Reading them may take a disk, so a loop leaves it to a thread."""
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
        """Go on with a segment that will grow again, after a restart or a cut; the offset after its last batch."""
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

    def _index_files(self) -> Iterator[tuple[str, OffsetIndex | TimeIndex | TransactionIndex]]:
        """Each index that the segment has, with the suffix of its file."""
        yield INDEX_SUFFIX, self.index
        yield TIME_INDEX_SUFFIX, self.time_index
        if self.has_transaction_index:
            yield TRANSACTION_INDEX_SUFFIX, self.transaction_index

    def rewrite_indexes(self) -> None:
        """Replace the content of the index files by what is in memory."""
        for suffix, index in self._index_files():
            data = index.to_bytes()
            file = self.disk.open(self.path.with_suffix(suffix), create=True)
            try:
                file.truncate(len(data))
                file.write_at(0, data)
            finally:
                file.close()
            index.unwritten.clear()

    def _cut_index_files(self) -> None:
        """Cut the index files to what memory knows. What they lack is written later: a full disk would refuse that."""
        for suffix, index in self._index_files():
            path = self.path.with_suffix(suffix)
            if self.disk.exists(path):
                file = self.disk.open(path)
                try:
                    file.truncate(index.written_bytes)
                finally:
                    file.close()

    def write_indexes(self) -> None:
        """Bring the index files up to what memory knows."""
        for suffix, index in self._index_files():
            if index.unwritten:
                file = self.disk.open(self.path.with_suffix(suffix), create=True)
                try:
                    file.write_at(index.written_bytes, index.unwritten)
                finally:
                    file.close()
                # Only now: if the disk was full, the next attempt writes them again.
                index.unwritten.clear()

    def cut_preallocated(self) -> bool:
        """Take back what was preallocated and is not filled; whether there was any."""
        if not self.is_preallocated:
            return False
        self.file().truncate(self.size_bytes)
        self.is_preallocated = False
        return True

    def seal(self) -> None:
        """No more appends: complete the time index and the files."""
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
        # What is written there from now on is ours, and no digest knows it.
        self.disk.remove(self.path.with_suffix(DIGEST_SUFFIX))
        self.verified_from = min(self.verified_from, position)
        self.index.truncate(next_offset - self.base_offset, position)
        self.time_index.truncate(next_offset - self.base_offset)
        self.transaction_index.truncate(next_offset)
        self._cut_index_files()
        cut_counts(self, position)
        self.tail_offsets = []
        self.tail_positions = []
        self.dirty = True

    # Reading

    def locate(self, offset: int, *, may_block: bool) -> int | None:
        """The position of the first batch that reaches `offset`; None if the segment ends before it.

        Raises ColdRead if the page cache does not hold the way there and the caller may not wait for the disk.
        """
        tail = self.tail_offsets
        if tail and offset >= self.tail_start:
            # By last offsets: where compaction left a hole, what is wanted lies behind it.
            at = bisect_left(tail, offset)
            return self.tail_positions[at] if at < len(tail) else None
        self.load_indexes(may_block=may_block)
        if self.unverified is not None:
            return locate_checked(self, offset, may_block=may_block)
        position = self.index.position_before(offset - self.base_offset)
        for header, at in self.headers(position, may_block=may_block):
            if header.last_offset >= offset:
                return at
        return None

    def headers(self, position: int, *, may_block: bool, end: int | None = None) -> Iterator[tuple[BatchHeader, int]]:
        """Batch headers and their positions from the batch at `position` to `end`, or the end of the segment."""
        file = self.file()
        end = self.size_bytes if end is None else end
        while position < end:
            size = min(WALK_CHUNK_BYTES, end - position)
            chunk = file.read_at(position, size) if may_block else file.read_at_nowait(position, size)
            if chunk is None:
                raise ColdRead
            for header, at in self.headers_in(chunk, position):
                position = at + header.length + PREFIX_SIZE
                yield header, at

    def headers_in(self, chunk: bytes, position: int) -> Iterator[tuple[BatchHeader, int]]:
        """Headers of the batches that begin in `chunk`, which was read at `position`, and where they lie."""
        unpack = HEADER.unpack_from
        at = 0
        while len(chunk) - at >= HEADER_SIZE:
            header = BatchHeader._make(unpack(chunk, at))
            if header.length < HEADER_SIZE - PREFIX_SIZE:
                raise CorruptLog(f"{self.path}: batch length {header.length} at position {position + at}")
            yield header, position + at
            at += header.length + PREFIX_SIZE
        if at == 0:
            raise CorruptLog(f"{self.path}: {len(chunk)} bytes at position {position} are no record batch")

    def offset_behind(self, position: int, *, may_block: bool) -> int | None:
        """An offset behind all records that begin before `position`, and not far; None if only the end is known."""
        tail = self.tail_positions
        if tail and position >= tail[0]:
            at = bisect_left(tail, position)
            return self.tail_offsets[at] if at < len(tail) else None
        self.load_indexes(may_block=may_block)
        return self.index.offset_behind(position, self.base_offset)

    def batch_size_at(self, position: int, *, may_block: bool) -> int:
        """The size of the batch at `position`."""
        tail = self.tail_positions
        if tail and position >= tail[0]:
            following = bisect_right(tail, position)
            return (tail[following] if following < len(tail) else self.size_bytes) - position
        file = self.file()
        data = file.read_at(position, PREFIX_SIZE) if may_block else file.read_at_nowait(position, PREFIX_SIZE)
        if data is None:
            raise ColdRead
        return int.from_bytes(data[8:12], "big") + PREFIX_SIZE

    def largest_timestamp_ms(self) -> int:
        """The largest timestamp in the segment; -1 if that is not known."""
        return self.max_timestamp_ms if self.is_active else self.time_index.last()[0]

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
        """Rename the files out of the way at once; unlink them when no reader is left, by `run` if that is given.

        To unlink a large file takes a disk its time, and a loop leaves it to a thread. To rename takes none; it comes
        first because a log of the same name may be made before the thread had its turn.
        """
        self.begin_delete(run)
        try:
            self.rename_away()
        finally:
            self.release()

    def begin_delete(self, run: Callable[[Callable[[], None]], object] | None) -> None:
        """The same in steps: nobody finds it from here on. When its files are renamed, in a thread, it is released."""
        self.deleted = True
        self._run = run
        self.references += 1

    def rename_away(self) -> None:
        # The log itself last: without it an index would be left that belongs to nothing.
        for suffix in (SNAPSHOT_SUFFIX, *reversed(SEGMENT_SUFFIXES)):
            path = self.path.with_suffix(suffix)
            if self.disk.exists(path):
                self.disk.rename(path, path.with_name(path.name + DELETED_SUFFIX))

    def _unlink(self) -> None:
        self.open_files.forget(self)
        if self._run is None:
            self._remove_files()
        else:
            self._run(self._remove_files)

    def _remove_files(self) -> None:
        for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX):
            path = self.path.with_suffix(suffix)
            self.disk.remove(path.with_name(path.name + DELETED_SUFFIX))

    def stand_in(self, file: File, index: OffsetIndex, transaction_index: TransactionIndex) -> None:
        """Be readable before the files have their names: by an open file and what was read of the indexes.

        Until `end_standing_in` it is held. A time index that somebody asks for meanwhile is empty: that costs time.
        """
        self.path = self.path.with_name(f"{file_stem(self.base_offset)}.unnamed{LOG_SUFFIX}")
        self._index, self._transaction_index = index, transaction_index
        self.open_files.adopt(self, file)
        self.references += 1

    def end_standing_in(self) -> None:
        """The files have their names."""
        self.path = self.path.with_name(file_stem(self.base_offset) + LOG_SUFFIX)
        self._time_index = None
        self.release()

    def yield_to(self, replacement: Segment, run: Callable[[Callable[[], None]], object] | None) -> Callable[[], None]:
        """Another segment stands in this one's place: readers that hold this one go on, and nobody else finds it.

        Whoever renames its files calls what this returns when that is done: then the last reader may remove them.
        """
        names = [self.path.with_suffix(suffix).name + DELETED_SUFFIX for suffix in (*SEGMENT_SUFFIXES, SNAPSHOT_SUFFIX)]
        directory, disk = self.path.parent, self.disk

        def remove() -> None:
            for name in names:
                disk.remove(directory / name)

        self.references += 1
        self.dirty = False
        self.deleted, self.replacement = True, replacement
        # The name is the other's from here on.
        self.path = self.path.with_name(f"{file_stem(self.base_offset)}.replaced{LOG_SUFFIX}")
        self._run = (lambda _: remove()) if run is None else (lambda _: run(remove))
        return self.release

    def abandon(self) -> None:
        """The directory is being removed by somebody else; close when the last reader lets go."""
        self.deleted = True
        self.is_active = False
        self.want_flush = _nobody
        self.unverified = None
        if self.references == 0:
            self.open_files.forget(self)

    def close(self) -> None:
        self.open_files.forget(self)

    def __repr__(self) -> str:
        return f"<Segment {self.path} {self.size_bytes} bytes>"


def _nobody() -> None:
    """Of a file that goes away nothing needs to be safe."""
