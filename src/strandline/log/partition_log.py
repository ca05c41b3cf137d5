"""One partition's log: a list of segments, of which the last grows.

Nothing here knows of replicas, acknowledgements or clients. `log_end_offset` is where the next record goes;
`flushed_offset` is how far the disk is known to hold it (Kafka's recovery point); `log_start_offset` is the first
offset that may be read.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, Protocol

from strandline.codec.record_batch import HEADER_SIZE, LEADER_FIELDS, PREFIX_SIZE, BatchHeader, HeaderFields
from strandline.errors import Closed, CorruptLog, DiskFailed, OffsetOutOfRange, StrandlineError
from strandline.log import leader_epochs as epoch_file
from strandline.log.disk import Buffer, Disk, File
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.open_files import OpenFiles
from strandline.log.recovery import recover_segment
from strandline.log.segment import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    file_stem,
)
from strandline.topic_config import TopicConfig

RELATIVE_OFFSET_MAX: Final = 2**31 - 1
INDEX_ENTRY_BYTES: Final = 8


class BatchObserver(Protocol):
    """Who learns of every batch in the log, and keeps snapshots of what it learnt: the partition's producers."""

    def note_header(self, header: HeaderFields) -> None: ...
    def snapshot(self) -> bytes: ...
    def restore(self, data: bytes) -> None: ...
    def clear(self) -> None: ...


class NoObserver:
    def note_header(self, header: HeaderFields) -> None:
        pass

    def snapshot(self) -> bytes:
        return b""

    def restore(self, data: bytes) -> None:
        pass

    def clear(self) -> None:
        pass


class LogSlice:
    """Whole batches in one segment's file, held until `release`."""

    __slots__ = ("position", "segment", "size_bytes")

    def __init__(self, segment: Segment, position: int, size_bytes: int) -> None:
        segment.retain()
        self.segment = segment
        self.position = position
        self.size_bytes = size_bytes

    def read(self) -> bytes:
        return self.segment.file().read_at(self.position, self.size_bytes)

    def release(self) -> None:
        self.segment.release()


class FlushJob:
    """What one flush has to sync; `run` is called in a thread."""

    __slots__ = ("_directories", "_disk", "_files", "_paths", "end_offset", "segments")

    def __init__(
        self, disk: Disk, segments: list[Segment], paths: list[Path], directories: list[Path], end_offset: int
    ) -> None:
        for segment in segments:
            segment.retain()
        self.segments = segments
        self.end_offset = end_offset
        self._disk = disk
        self._files: list[File] = [segment.file() for segment in segments]
        self._paths = paths
        self._directories = directories

    def run(self) -> None:
        for file in self._files:
            file.datasync()
        for path in self._paths:
            if self._disk.exists(path):
                index = self._disk.open(path)
                try:
                    index.datasync()
                finally:
                    index.close()
        for directory in self._directories:
            self._disk.sync_directory(directory)


class PartitionLog:
    """Open with `PartitionLog.open`; one loop owns it."""

    def __init__(
        self,
        directory: Path,
        config: TopicConfig,
        *,
        disk: Disk,
        open_files: OpenFiles,
        observer: BatchObserver | None = None,
    ) -> None:
        self.directory = directory
        self.config = config
        self.disk = disk
        self.open_files = open_files
        self.observer: BatchObserver = observer or NoObserver()
        self.leader_epochs = LeaderEpochs()
        self.segments: list[Segment] = []
        self.base_offsets: list[int] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushed_offset = 0
        self.failure: StrandlineError | None = None
        self.on_flushed: Callable[[], None] | None = None
        self.on_failed: Callable[[StrandlineError], None] | None = None
        self.on_rolled: Callable[[], None] | None = None
        self._unsynced_directories: list[Path] = []
        self._unsynced_indexes: list[Path] = []
        self._dirty: list[Segment] = []

    # Opening and closing

    @classmethod
    def open(
        cls,
        directory: Path,
        config: TopicConfig,
        *,
        disk: Disk,
        open_files: OpenFiles,
        now_ms: int,
        observer: BatchObserver | None = None,
        clean: bool = False,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> PartitionLog:
        """Open the log in `directory`, making it if there is none.

        Unless the last shutdown was `clean`, batches from the recovery point's segment on are checked and a torn tail
        is cut. Damage that is no torn tail raises CorruptLog and changes nothing.
        """
        log = cls(directory, config, disk=disk, open_files=open_files, observer=observer)
        if not disk.exists(directory):
            disk.make_directory(directory)
            log._unsynced_directories.append(directory.parent)
        log._load_leader_epochs()
        log._load_segments(now_ms)
        if not log.segments:
            log.log_end_offset = log.log_start_offset = max(0, log_start_offset)
            log._add_segment(log.log_end_offset, now_ms)
        else:
            log.log_start_offset = max(log.segments[0].base_offset, log_start_offset)
            log._recover(recovery_point=recovery_point, clean=clean)
            log.log_start_offset = min(log.log_start_offset, log.log_end_offset)
        log.flushed_offset = min(recovery_point, log.log_end_offset) if not clean else log.log_end_offset
        log.active.is_active = True
        return log

    def _load_leader_epochs(self) -> None:
        path = self.directory / epoch_file.FILE_NAME
        if self.disk.exists(path):
            try:
                self.leader_epochs = LeaderEpochs.parse(self.disk.read_whole(path).decode())
            except CorruptLog:
                # A file torn by a crash before it was ever synced; recovery learns the epochs again from the batches.
                self.leader_epochs = LeaderEpochs()

    def _save_leader_epochs(self) -> None:
        self.disk.write_whole(self.directory / epoch_file.FILE_NAME, self.leader_epochs.format().encode())

    def _load_segments(self, now_ms: int) -> None:
        for name in self.disk.names(self.directory):
            path = self.directory / name
            if name.endswith((DELETED_SUFFIX, ".tmp")):
                self.disk.remove(path)
            elif name.endswith(LOG_SUFFIX):
                self._adopt(self._new_segment(int(name[: -len(LOG_SUFFIX)]), now_ms))
        for segment in self.segments:
            segment.size_bytes = self.disk.size(segment.path)

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment(
            self.directory,
            base_offset,
            disk=self.disk,
            open_files=self.open_files,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
        )

    def _adopt(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def _add_segment(self, base_offset: int, now_ms: int) -> None:
        segment = self._new_segment(base_offset, now_ms)
        segment.create()
        self._adopt(segment)
        self._unsynced_directories.append(self.directory)

    def _recover(self, *, recovery_point: int, clean: bool) -> None:
        first_unchecked = len(self.segments)
        if not clean:
            first_unchecked = max(0, bisect_right(self.base_offsets, recovery_point) - 1)
            first_unchecked = next(
                (at for at, segment in enumerate(self.segments[:first_unchecked]) if not self._has_index(segment)),
                first_unchecked,
            )
        checked_from = self.segments[first_unchecked].base_offset if first_unchecked < len(self.segments) else None
        replay_from = self._restore_observer(checked_from)
        if checked_from is None:
            self._load_tail(self.active)
        if checked_from is None or replay_from < checked_from:
            self._replay_headers(replay_from, checked_from)
        self.log_end_offset = self._end_of_last_segment() if checked_from is None else checked_from
        for segment in self.segments[first_unchecked:]:
            self.log_end_offset = recover_segment(
                segment,
                recovery_point=recovery_point,
                next_offset=max(segment.base_offset, self.log_end_offset),
                leader_epochs=self.leader_epochs.epochs,
                on_batch=self._learn,
            )
            if segment is not self.active:
                self._seal(segment)
            if segment.dirty:
                self._dirty.append(segment)
        if checked_from is not None:
            if self.leader_epochs.truncate_end(self.log_end_offset):
                self._save_leader_epochs()
            self._dirty = [segment for segment in self.segments[first_unchecked:] if segment.size_bytes]
            for segment in self._dirty:
                segment.dirty = True
        self._remove_snapshots_beyond(self.log_end_offset)

    def _has_index(self, segment: Segment) -> bool:
        return segment.index.is_plausible(
            size_bytes=segment.size_bytes, index_interval_bytes=self.config.index_interval_bytes
        )

    def _learn(self, header: HeaderFields) -> None:
        self.observer.note_header(header)
        if header[2] > self.leader_epochs.latest and self.leader_epochs.note(header[2], header[0]):
            self._save_leader_epochs()

    def _restore_observer(self, at_most: int | None) -> int:
        """Load the newest usable snapshot at or below `at_most`; the offset from which batches must be replayed."""
        offsets = sorted(self._snapshot_offsets(), reverse=True)
        for offset in offsets:
            if at_most is not None and offset > at_most:
                continue
            try:
                self.observer.restore(self.disk.read_whole(self._snapshot_path(offset)))
            except CorruptLog:
                # Torn by a crash: the log itself knows everything that a snapshot knows, only slower.
                self.disk.remove(self._snapshot_path(offset))
                continue
            return offset
        self.observer.clear()
        return self.segments[0].base_offset

    def _replay_headers(self, start_offset: int, end_offset: int | None) -> None:
        """Show the observer the batches from `start_offset` up to `end_offset` (None: to the end)."""
        for position, segment in enumerate(self.segments):
            if end_offset is not None and segment.base_offset >= end_offset:
                break
            following = self.base_offsets[position + 1] if position + 1 < len(self.segments) else None
            if following is not None and following <= start_offset:
                continue
            at = segment.index.position_before(max(0, start_offset - segment.base_offset))
            for header, _ in segment.headers(at, may_block=True):
                if header.base_offset >= start_offset:
                    self._learn(header)

    def _load_tail(self, segment: Segment) -> None:
        """A segment that will grow again needs its index and time index in memory, and where the last entry stands."""
        segment.use_indexes(segment.index, segment.time_index)
        segment.bytes_since_index_entry = segment.size_bytes - segment.index.boundary_before(segment.size_bytes)
        segment.max_timestamp_ms, relative = segment.time_index.last()
        segment.offset_of_max_timestamp = segment.base_offset + relative
        for header, position in segment.headers(0, may_block=True):
            segment.first_timestamp_ms = header.max_timestamp
            assert position == 0
            break

    def _end_of_last_segment(self) -> int:
        """The offset after the last batch, found from the last index entry on."""
        segment = self.active
        end = segment.base_offset
        start = segment.index.boundary_before(segment.size_bytes)
        for header, _ in segment.headers(start, may_block=True):
            end = header.last_offset + 1
            if header.max_timestamp > segment.max_timestamp_ms:
                segment.max_timestamp_ms = header.max_timestamp
                segment.offset_of_max_timestamp = header.last_offset
        return end

    def close(self) -> None:
        """Write out indexes and a snapshot, sync, and close the files."""
        if self.failure is None:
            self.active.write_indexes()
            self._save_snapshot()
            self.flush_now()
        for segment in self.segments:
            segment.close()
        self.failure = self.failure or Closed(f"{self.directory} was closed")

    # Snapshots

    def _snapshot_path(self, offset: int) -> Path:
        return self.directory / (file_stem(offset) + SNAPSHOT_SUFFIX)

    def _snapshot_offsets(self) -> Iterator[int]:
        for name in self.disk.names(self.directory):
            if name.endswith(SNAPSHOT_SUFFIX):
                yield int(name[: -len(SNAPSHOT_SUFFIX)])

    def _save_snapshot(self) -> None:
        """Keep what the observer knows as of the log end; the file is checked when read, so it need not be synced."""
        data = self.observer.snapshot()
        if data:
            self.disk.write_whole(self._snapshot_path(self.log_end_offset), data)

    def _remove_snapshots_beyond(self, end_offset: int) -> None:
        """Snapshots of what was cut must not be found by a later recovery."""
        for offset in list(self._snapshot_offsets()):
            if offset > end_offset:
                self.disk.remove(self._snapshot_path(offset))

    # Appending

    def append(self, batch: memoryview | bytearray, header: HeaderFields, *, leader_epoch: int, now_ms: int) -> int:
        """Give `batch` its offsets, in place, and write it at the end; its base offset.

        `header` is what `check_batch` returned. Nothing has changed if this raises.
        """
        base_offset = self.log_end_offset
        last_offset = base_offset + header[6]
        if leader_epoch > self.leader_epochs.latest:
            self.leader_epochs.note(leader_epoch, base_offset)
            self._save_leader_epochs()
        LEADER_FIELDS.pack_into(batch, 0, base_offset, header[1], leader_epoch)
        self._write(batch, base_offset, last_offset, header[8], now_ms)
        return base_offset

    def append_as_is(self, batch: Buffer, header: BatchHeader, *, now_ms: int) -> None:
        """Write a batch that has its offsets already: fetched from a leader, or the controller's own."""
        if header.base_offset < self.log_end_offset:
            raise CorruptLog(f"{self.directory}: batch {header.base_offset} follows {self.log_end_offset - 1}")
        if self.leader_epochs.note(header.leader_epoch, header.base_offset):
            self._save_leader_epochs()
        self._write(batch, header.base_offset, header.last_offset, header.max_timestamp, now_ms)

    def _write(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        if self.failure is not None:
            raise self.failure
        segment = self.active
        if segment.size_bytes and self._must_roll(segment, len(batch), last_offset, max_timestamp_ms, now_ms):
            self.roll(now_ms)
            segment = self.active
        was_dirty = segment.dirty
        try:
            segment.append(batch, base_offset, last_offset, max_timestamp_ms)
        except OSError as error:
            self._drop_partial_batch(segment, error)
        if not was_dirty:
            self._dirty.append(segment)
        self.log_end_offset = last_offset + 1

    def _drop_partial_batch(self, segment: Segment, error: OSError) -> None:
        """A write failed, perhaps half way (a full disk): leave the log as it was, and say so."""
        try:
            segment.file().truncate(segment.size_bytes)
        except OSError as second:
            self.fail(DiskFailed(f"{segment.path}: {error.strerror}, and the rest cannot be cut: {second.strerror}"))
        raise DiskFailed(f"{segment.path}: cannot append: {error.strerror}") from error

    def _must_roll(self, segment: Segment, size: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> bool:
        config = self.config
        if segment.size_bytes + size > config.segment_bytes:
            return True
        if last_offset - segment.base_offset > RELATIVE_OFFSET_MAX:
            return True
        # As Kafka does: by the records' own time where they have one, else by the age of the segment.
        began_ms = segment.first_timestamp_ms
        age_ms = max_timestamp_ms - began_ms if began_ms >= 0 else now_ms - segment.created_ms
        if age_ms > config.segment_ms:
            return True
        return len(segment.index) >= config.segment_index_bytes // INDEX_ENTRY_BYTES

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end."""
        try:
            self._seal(self.active)
            self._save_snapshot()
            self._add_segment(self.log_end_offset, now_ms)
            if self.on_rolled is not None:
                self.on_rolled()
        except OSError as error:
            # The old segment stays the last one; what was made of the new one is found again or overwritten.
            self.active.is_active = True
            raise DiskFailed(f"{self.directory}: cannot roll: {error.strerror}") from error

    def _seal(self, segment: Segment) -> None:
        segment.seal()
        self._unsynced_indexes += [segment.path.with_suffix(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]

    # Flushing

    @property
    def unflushed(self) -> int:
        return self.log_end_offset - self.flushed_offset

    def begin_flush(self) -> FlushJob | None:
        """What must be synced for everything appended so far to be safe; None if nothing."""
        if self.failure is not None or (not self._dirty and not self._unsynced_directories):
            return None
        segments = self._dirty
        directories = list(dict.fromkeys(self._unsynced_directories))
        self._dirty = []
        indexes = self._unsynced_indexes
        self._unsynced_directories = []
        self._unsynced_indexes = []
        for segment in segments:
            segment.dirty = False
        return FlushJob(self.disk, segments, indexes, directories, self.log_end_offset)

    def end_flush(self, job: FlushJob, error: BaseException | None) -> None:
        for segment in job.segments:
            segment.release()
        if error is not None:
            # After a failed fsync the kernel may have dropped the pages: trying again would lie. Never retry.
            self.fail(DiskFailed(f"{self.directory}: flush failed: {error}"))
            return
        self.flushed_offset = max(self.flushed_offset, min(job.end_offset, self.log_end_offset))
        if self.on_flushed is not None:
            self.on_flushed()

    def flush_now(self) -> None:
        """Flush and wait for it; only where nothing else runs (closing, recovery, tools)."""
        job = self.begin_flush()
        if job is None:
            self.flushed_offset = self.log_end_offset
            return
        try:
            job.run()
        except OSError as error:
            self.end_flush(job, error)
            raise DiskFailed(f"{self.directory}: flush failed: {error}") from error
        self.end_flush(job, None)

    def fail(self, error: StrandlineError) -> None:
        """The log is offline from here on: reads and writes are refused until a restart."""
        if self.failure is None:
            self.failure = error
            if self.on_failed is not None:
                self.on_failed(error)

    # Reading

    def read(
        self,
        offset: int,
        *,
        size_bytes_max: int,
        limit_offset: int | None = None,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> LogSlice | None:
        """Whole batches from the one that holds `offset`, below `limit_offset`; None if there are none (yet).

        At most `size_bytes_max` bytes, save that the first batch is given whole if `at_least_one`. The caller releases
        the slice. Raises ColdRead if the page cache does not know the way and `may_block` is not set.
        """
        if self.failure is not None:
            raise self.failure
        limit = self.log_end_offset if limit_offset is None else limit_offset
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside {self.log_start_offset} to {self.log_end_offset} of {self.directory.name}"
            )
        if offset >= limit:
            return None
        at = bisect_right(self.base_offsets, offset) - 1
        while at < len(self.segments):
            segment = self.segments[at]
            position = segment.locate(offset, may_block=may_block)
            if position is not None:
                end = self._limit_position(at, limit, may_block)
                size = _slice_size(segment, position, end, size_bytes_max, at_least_one, may_block)
                return LogSlice(segment, position, size) if size > 0 else None
            # The cleaner took the last batches of this segment: what comes next begins the following one.
            at += 1
        return None

    def segment_of(self, offset: int) -> Segment | None:
        """The segment in which to look for `offset`."""
        at = bisect_right(self.base_offsets, offset) - 1
        return self.segments[at] if at >= 0 else None

    def _limit_position(self, at: int, limit_offset: int, may_block: bool) -> int:
        """Where in segment `at` the batches below `limit_offset` end."""
        segment = self.segments[at]
        if limit_offset >= self.log_end_offset:
            return segment.size_bytes
        if at + 1 < len(self.segments) and limit_offset >= self.base_offsets[at + 1]:
            return segment.size_bytes
        position = segment.locate(limit_offset, may_block=may_block)
        return segment.size_bytes if position is None else position

    def batches(self, start_offset: int | None = None) -> Iterator[bytes]:
        """Every batch from `start_offset` (default: the log start) to the end, each as bytes. Blocks on the disk."""
        offset = self.log_start_offset if start_offset is None else start_offset
        while offset < self.log_end_offset:
            piece = self.read(offset, size_bytes_max=1 << 20)
            if piece is None:
                return
            try:
                data = piece.read()
            finally:
                piece.release()
            at = 0
            while len(data) - at >= HEADER_SIZE:
                size = int.from_bytes(data[at + 8 : at + 12], "big") + PREFIX_SIZE
                if len(data) - at < size:
                    break
                yield data[at : at + size]
                header_end = at + 27
                offset = (
                    int.from_bytes(data[at : at + 8], "big") + int.from_bytes(data[at + 23 : header_end], "big") + 1
                )
                at += size

    # Cutting

    def truncate_to(self, offset: int) -> None:
        """Forget everything from `offset` on; it must be the start of a batch or the end."""
        if offset >= self.log_end_offset:
            return
        while len(self.segments) > 1 and self.active.base_offset >= offset:
            gone = self.segments.pop()
            self.base_offsets.pop()
            if gone in self._dirty:
                self._dirty.remove(gone)
            gone.delete()
            self.active = self.segments[-1]
            self.active.is_active = True
        position = self.active.locate(offset, may_block=True)
        if position is not None:
            self.active.truncate(position, offset)
            if self.active not in self._dirty:
                self._dirty.append(self.active)
        self.log_end_offset = offset
        self.flushed_offset = min(self.flushed_offset, offset)
        self.log_start_offset = min(self.log_start_offset, offset)
        if self.leader_epochs.truncate_end(offset):
            self._save_leader_epochs()
        self._remove_snapshots_beyond(offset)
        self._replay_all()

    def _replay_all(self) -> None:
        self._replay_headers(self._restore_observer(self.log_end_offset), None)

    def trim(self, start_offset: int) -> None:
        """Records below `start_offset` are gone; segments that hold nothing else are deleted."""
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"cannot trim to {start_offset}: the log holds {self.log_start_offset} to {self.log_end_offset}"
            )
        self.log_start_offset = start_offset
        while len(self.segments) > 1 and self.base_offsets[1] <= start_offset:
            segment = self.segments.pop(0)
            self.base_offsets.pop(0)
            if segment in self._dirty:
                self._dirty.remove(segment)
            segment.delete()
        if self.leader_epochs.truncate_start(start_offset):
            self._save_leader_epochs()

    def delete(self, target: Path) -> None:
        """Move the directory to `target` and be offline. Readers that hold a segment go on reading it."""
        self.disk.rename(self.directory, target)
        self.failure = Closed(f"{self.directory} was deleted")
        for segment in self.segments:
            segment.abandon()

    def sync_with_next_flush(self, path: Path) -> None:
        """A small file beside the log (`partition.metadata`) that must be safe before any record is."""
        self._unsynced_indexes.append(path)

    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)


def _slice_size(
    segment: Segment, position: int, end: int, size_bytes_max: int, at_least_one: bool, may_block: bool
) -> int:
    """How many bytes from `position`, ending between batches."""
    if end - position <= size_bytes_max:
        return end - position
    boundary = segment.index.boundary_before(position + max(0, size_bytes_max))
    if boundary > position:
        return boundary - position
    # No index entry in reach: one batch at a time, or as many bytes as asked with a batch cut at the end, which
    # readers drop. A first batch that does not fit is sent whole or not at all.
    first = segment.batch_size_at(position, may_block=may_block)
    if first > size_bytes_max:
        return first if at_least_one else 0
    return size_bytes_max
