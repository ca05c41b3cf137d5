"""One partition's log: a list of segments, of which the last grows.

Nothing here knows of replicas, acknowledgements or clients. `log_end_offset` is where the next record goes;
`flushed_offset` is how far the disk is known to hold it (Kafka's recovery point); `log_start_offset` is the first
offset that may be read. `run_appends` writes several batches at once, `truncation` and `trimming` remove records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

from strandline.codec.record_batch import (
    BATCH_LENGTH,
    LAST_OFFSET_DELTA,
    LEADER_FIELDS,
    MAX_TIMESTAMP,
    BatchHeader,
    HeaderFields,
)
from strandline.config.topic_config import TopicConfig
from strandline.errors import Closed, CorruptLog, DamagedRecords, DiskFailed, OffsetOutOfRange, StrandlineError
from strandline.log import leader_epochs as epoch_file
from strandline.log.checkpoints import NOTHING_NOTED, EndNotes
from strandline.log.disk import Buffer, Disk
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.maintenance.segment_deletion import TrimmedSegments
from strandline.log.observer import BatchObserver
from strandline.log.rolling import is_due_to_roll
from strandline.log.segment.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX
from strandline.log.segment.header_walk import headers_in
from strandline.log.segment.log_slice import FlushJob, LogSlice
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.record_counts import RecordCounts
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_counts import save_counts
from strandline.log.segment.slice_lookup import find_slice
from strandline.log.snapshots import ProducerSnapshots
from strandline.log.unsynced import Unsynced


class Replacement(Protocol):
    """The replacement of segments under way (`SegmentReplacement`)."""

    end_offset: int

    def settle(self) -> None: ...
    def abandon(self) -> None: ...


class PartitionLog:
    """A log that `log_loader.open_log` opened and that one loop owns."""

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
        self.segments: list[Segment] = []
        self.base_offsets: list[int] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.failure: StrandlineError | None = None
        self.config = config
        self.disk = disk
        self.open_files = open_files
        self.observer = observer
        self.snapshots = ProducerSnapshots(directory, disk, observer)
        self.leader_epochs = LeaderEpochs()
        self.flushed_offset = 0
        self.appended_ms = 0
        """When the newest batch was appended, or the log opened: no batch was appended later than this."""
        self.has_aborted = False
        """Whether a transaction was ever aborted here, as far as the segments know."""
        self.tier_start_offset = -1
        """Where a tiered log starts, in the store or here, while `log_start_offset` is its local start; else -1."""
        self.learnt_from = 0
        """The observer was shown every batch from here on; what lies before, it has from a snapshot."""
        self.on_failed: Callable[[StrandlineError], None] | None = None
        self.on_damaged: Callable[[DamagedRecords], None] | None = None
        """Called when a reader meets damaged batches."""
        self.on_flushed: Callable[[], None] | None = None
        self.on_flush_wanted: Callable[[], None] | None = None
        self.on_write_failed: Callable[[OSError], None] | None = None
        """Called when the disk refuses an append, for example because it is full. The log stays whole and readable."""
        self.trimmed: TrimmedSegments | None = None
        """Segments cut off the front whose files are still to be renamed."""
        self.on_trimmed: Callable[[PartitionLog], None] | None = None
        """Called when there are some: the owner writes the start down, then has the files renamed and removed."""
        self.remove_files: Callable[[Callable[[], None]], object] | None = None
        """Runs what unlinks the files of a segment without readers. Without it the log does that at once."""
        self.planned_start_offset = 0
        """Where the log is about to start. Written down before readers see it, so that the start never goes back."""
        self.written_start_offset = 0
        self.tombstone_horizon = 0
        """Below it tombstones and markers may be gone: a replica that ends there may hold what they delete."""
        self.planned_tombstone_horizon = 0
        """The next `tombstone_horizon`. Written down before anything is appended that depends on it."""
        self.unsynced = Unsynced()
        self.cut_offset: int | None = None
        """Where the log is about to be truncated: nothing above counts as flushed."""
        self.cuts = self.synced_cuts = 0
        """How often the log was truncated, and how many of these truncations are on disk."""
        self._written_out_at = -1
        """The log end for which `write_out` last ran."""
        self.noted = NOTHING_NOTED
        self.swap: Replacement | None = None
        """The replacement of segments under way. Any other change of the files has it settle first."""
        self.swaps = 0
        """How many replacements were completed."""

    # Reading

    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def fail(self, error: StrandlineError) -> None:
        """Take the log offline: it rejects reads and writes until a restart."""
        if self.failure is None:
            self.failure = error
            if self.on_failed is not None:
                self.on_failed(error)

    def refusal(self) -> StrandlineError:
        """Return a copy of the failure to raise. The original would keep every frame alive that it passed through."""
        assert self.failure is not None
        return type(self.failure)(str(self.failure))

    def read(
        self,
        offset: int,
        *,
        size_bytes_max: int,
        limit_offset: int | None = None,
        at_least_one: bool = True,
        may_block: bool = True,
    ) -> LogSlice | None:
        """Return whole batches from the one that holds `offset`, below `limit_offset`; None if there are none yet.

        At most `size_bytes_max` bytes; with `at_least_one` the first batch is returned whole even if it is larger. The
        caller releases the slice. Raises ColdRead if the disk must be read to find it and `may_block` is not set.
        """
        if self.failure is not None:
            raise self.refusal()
        limit = self.log_end_offset if limit_offset is None else limit_offset
        if not self.log_start_offset <= offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"offset {offset} is outside {self.log_start_offset} to {self.log_end_offset} of {self.directory.name}"
            )
        if offset >= limit:
            return None
        try:
            return find_slice(
                self.segments,
                self.base_offsets,
                self.log_end_offset,
                offset,
                limit,
                size_bytes_max,
                at_least_one,
                may_block,
            )
        except DamagedRecords as error:
            if self.on_damaged is not None:
                self.on_damaged(error)
            raise
        except OSError as error:
            raise DiskFailed(f"{self.directory}: cannot read: {error.strerror}") from error

    def segment_of(self, offset: int) -> Segment | None:
        """Return the segment in which to look for `offset`."""
        at = bisect_right(self.base_offsets, offset) - 1
        return self.segments[at] if at >= 0 else None

    def end_of(self, base_offset: int) -> int:
        """Return an offset above all of a segment's: where the next one begins, or the log ends."""
        at = bisect_right(self.base_offsets, base_offset)
        return self.base_offsets[at] if at < len(self.base_offsets) else self.log_end_offset

    def batches(self) -> Iterator[bytes]:
        """Yield every batch from the log start to the end. Blocks on the disk."""
        offset = self.log_start_offset
        while offset < self.log_end_offset and (piece := self.read(offset, size_bytes_max=1 << 20)) is not None:
            try:
                data = piece.read()
            finally:
                piece.release()
            for header, at in headers_in(self.directory, data, 0):
                if len(data) - at < header.size_bytes:
                    break
                yield data[at : at + header.size_bytes]
                offset = header.last_offset + 1

    # Segments

    def new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment(
            self.directory,
            base_offset,
            disk=self.disk,
            open_files=self.open_files,
            index_interval_bytes=self.config.index_interval_bytes,
            created_ms=now_ms,
            want_flush=self.want_flush,
        )

    def adopt(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.base_offsets.append(segment.base_offset)
        self.active = segment

    def add_segment(self, base_offset: int, now_ms: int) -> None:
        """Make an empty segment, the one that grows from now on."""
        segment = self.new_segment(base_offset, now_ms)
        try:
            segment.create(size_bytes=self.config.segment_bytes if self.config.preallocate else 0)
        except OSError:
            # After a restart, files that stay would stand before records that went into the old segment.
            segment.delete()
            raise
        if self.observer is not None:
            # Only an observer tells which batches are markers.
            segment.counts = RecordCounts(base_offset)
        self.adopt(segment)
        self.unsynced.directories.append(self.directory)

    def save_leader_epochs(self) -> None:
        """Write the file of leader epochs. The next flush syncs it, along with the batches."""
        path = self.directory / epoch_file.FILE_NAME
        self.disk.write_whole(path, self.leader_epochs.format().encode(), sync=False)
        self.sync_with_next_flush(path)
        self.unsynced.directories.append(self.directory)

    def write_out(self, *, keeps_notes: bool = False) -> None:
        """Write the indexes, counts and producers that only memory holds. The next flush syncs what must be synced.

        A caller that keeps `noted` for the next start saves the files that would be empty. Most are, among thousands of
        logs, and making files takes longest.
        """
        if self._written_out_at == self.log_end_offset:
            return
        if self.swap is not None:
            self.swap.settle()
        self.active.write_indexes()
        counts, observer = self.active.counts, self.observer
        is_plain = keeps_notes and counts is not None and counts.is_plain
        is_blank = keeps_notes and observer is not None and observer.is_blank
        self.noted = EndNotes(self.log_end_offset if is_plain else -1, self.log_end_offset if is_blank else -1)
        if not is_plain:
            save_counts(self.active)
        if self.active.cut_preallocated():
            self.unsynced.add(self.active)
        self._sync_transaction_index(self.active)
        if not is_blank:
            self.snapshots.save(self.log_end_offset)
        self._written_out_at = self.log_end_offset

    def close(self) -> None:
        """Write out indexes and a snapshot, sync, and close the files, even if the disk fails."""
        try:
            if self.failure is None:
                self.write_out()
                self.flush_now()
        finally:
            if self.trimmed is not None:
                self.trimmed.stop()
            for segment in self.segments:
                segment.close()
            self.failure = self.failure or Closed(f"{self.directory} was closed")

    # Appending

    def append(self, batch: memoryview | bytearray, header: HeaderFields, *, leader_epoch: int, now_ms: int) -> int:
        """Give `batch` its offsets, in place, and write it at the end. Return its base offset.

        `header` is what `check_batch` returned. Nothing has changed if this raises.
        """
        base_offset = self.log_end_offset
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        if leader_epoch > self.leader_epochs.latest:
            self.begin_epoch(leader_epoch, base_offset)
        LEADER_FIELDS.pack_into(batch, 0, base_offset, header[BATCH_LENGTH], leader_epoch)
        self._write(batch, base_offset, last_offset, header[MAX_TIMESTAMP], now_ms)
        return base_offset

    def append_as_is(self, batch: Buffer, header: BatchHeader, *, now_ms: int) -> None:
        """Write a batch that has its offsets already: fetched from a leader, or the controller's own."""
        if header.base_offset < self.log_end_offset:
            raise CorruptLog(f"{self.directory}: batch {header.base_offset} follows {self.log_end_offset - 1}")
        if header.leader_epoch > self.leader_epochs.latest:
            self.begin_epoch(header.leader_epoch, header.base_offset)
        self._write(batch, header.base_offset, header.last_offset, header.max_timestamp, now_ms)

    def _write(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        segment = self.segment_for(len(batch), last_offset, max_timestamp_ms, now_ms)
        was_dirty = segment.dirty
        try:
            segment.append(batch, base_offset, last_offset, max_timestamp_ms)
        except OSError as error:
            self.drop_partial_batch(segment, error)
        if not was_dirty:
            self.unsynced.segments.append(segment)
        self.log_end_offset = last_offset + 1

    def begin_epoch(self, epoch: int, start_offset: int) -> None:
        """Remember a new leader's epoch before its first batch is written."""
        if self.failure is not None:
            raise self.refusal()
        self.leader_epochs.note(epoch, start_offset)
        try:
            self.save_leader_epochs()
        except OSError as error:
            self.leader_epochs.truncate_end(start_offset)
            if self.on_write_failed is not None:
                self.on_write_failed(error)
            raise DiskFailed(f"{self.directory}: cannot append: {error.strerror}") from error

    def segment_for(self, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> Segment:
        """Return the segment for the next bytes: the active one, or a new one if that is full or old."""
        if self.failure is not None:
            raise self.refusal()
        if now_ms > self.appended_ms:
            self.appended_ms = now_ms
        segment = self.active
        if segment.size_bytes and (
            segment.size_bytes + size_bytes > self.config.segment_bytes
            or is_due_to_roll(segment, self.config, last_offset, max_timestamp_ms, now_ms)
        ):
            self.roll(now_ms)
            return self.active
        return segment

    def drop_partial_batch(self, segment: Segment, error: OSError) -> None:
        """Undo a write that failed, perhaps half way, and raise DiskFailed."""
        # As the last epoch, one without a batch would look like a divergence with nothing to truncate.
        self.leader_epochs.truncate_end(self.log_end_offset)
        if self.on_write_failed is not None:
            self.on_write_failed(error)
        try:
            segment.file().truncate(segment.size_bytes)
        except OSError as second:
            self.fail(DiskFailed(f"{segment.path}: {error.strerror}, and the rest cannot be cut: {second.strerror}"))
        # The cut goes to the disk before anything that comes after it counts. Else a power cut may bring the part back,
        # and recovery would take what was flushed behind it for what never was.
        self.unsynced.add(segment)
        raise DiskFailed(f"{segment.path}: cannot append: {error.strerror}") from error

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end."""
        try:
            self.sync_cuts()
            self.seal(self.active)
            self.snapshots.save(self.log_end_offset)
            self.add_segment(self.log_end_offset, now_ms)
            # A sealed segment goes to disk in the background, so that recovery has one segment to read.
            self.want_flush()
        except OSError as error:
            # The old segment stays the last one; what was made of the new one is found again or overwritten.
            self.active.is_active = True
            self.leader_epochs.truncate_end(self.log_end_offset)
            if self.on_write_failed is not None:
                self.on_write_failed(error)
            raise DiskFailed(f"{self.directory}: cannot roll: {error.strerror}") from error

    def sync_cuts(self) -> None:
        """Have it on disk that the last segment was cut, before there is anything behind it.

        A power cut might take the cut back and not what came after: what was cut would stand in front of that again.
        """
        if self.synced_cuts < self.cuts:
            try:
                self.active.file().datasync()
            except OSError as error:
                self.fail(DiskFailed(f"{self.directory}: flush failed: {error}"))
                raise self.refusal() from error
            self.synced_cuts = self.cuts

    def seal(self, segment: Segment) -> None:
        segment.seal()
        if segment.cut_preallocated():
            # Its size is to be on disk before a batch behind it counts: recovery takes zeros in the middle for damage.
            self.unsynced.add(segment)
        self.unsynced.files += [segment.path.with_suffix(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        self._sync_transaction_index(segment)

    def _sync_transaction_index(self, segment: Segment) -> None:
        # After a clean stop or a roll the batches are not read again, so the loss of this file would go unnoticed.
        if segment.has_transaction_index:
            self.sync_with_next_flush(segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX))
            self.unsynced.directories.append(self.directory)

    # Flushing

    def want_flush(self) -> None:
        """Ask the owner for a flush soon."""
        if self.on_flush_wanted is not None:
            self.on_flush_wanted()

    @property
    def unflushed(self) -> int:
        return self.log_end_offset - self.flushed_offset

    def begin_flush(self) -> FlushJob | None:
        """Return what must be synced for everything appended so far to be safe; None if nothing."""
        if self.failure is not None:
            return None
        try:
            job = self.unsynced.begin(self.disk, self.log_end_offset if self.cut_offset is None else self.cut_offset)
        except OSError as error:
            self.fail(DiskFailed(f"{self.directory}: cannot flush: {error}"))
            return None
        if job is not None:
            job.cuts = self.cuts
        return job

    def end_flush(self, job: FlushJob, error: BaseException | None) -> None:
        self.unsynced.job = None
        for segment in job.segments:
            segment.release()
        if error is not None:
            # After a failed fsync the kernel may have dropped the pages: trying again would lie. Never retry.
            self.fail(DiskFailed(f"{self.directory}: flush failed: {error}"))
            return
        self.synced_cuts = max(self.synced_cuts, job.cuts)
        self.flushed_offset = max(self.flushed_offset, min(job.end_offset, self.log_end_offset))
        if self.on_flushed is not None:
            self.on_flushed()

    def flush_now(self) -> None:
        """Flush and wait for it; only where nothing else runs (closing, recovery, tools)."""
        under_way = self.unsynced.job
        if under_way is not None and self.failure is None:
            # A flush is under way in a thread, where a disk that hangs may hold it. Sync here what it was to sync.
            try:
                under_way.run()
            except OSError as error:
                self.fail(DiskFailed(f"{self.directory}: flush failed: {error}"))
        job = self.begin_flush()
        if job is None:
            if self.failure is not None:
                raise self.refusal()
            self.flushed_offset = self.log_end_offset
            return
        try:
            job.run()
        except OSError as error:
            self.end_flush(job, error)
            raise DiskFailed(f"{self.directory}: flush failed: {error}") from error
        self.end_flush(job, None)

    def sync_with_next_flush(self, path: Path) -> None:
        """Sync a small file beside the log (`partition.metadata`) before any record counts as flushed."""
        self.unsynced.files.append(path)

    # Trimming

    def cut_front(self, start_offset: int) -> list[Segment]:
        """Remove the records below `start_offset`. Return the segments that hold no others, for the caller to delete.

        Oldest first: a crash in between must not leave a hole. The file of epochs is trimmed when the log is opened.
        """
        if not self.log_start_offset <= start_offset <= self.log_end_offset:
            raise OffsetOutOfRange(
                f"cannot trim to {start_offset}: the log holds {self.log_start_offset} to {self.log_end_offset}"
            )
        if self.swap is not None and start_offset >= self.swap.end_offset:
            self.swap.settle()
        self.log_start_offset = start_offset
        count = max(0, min(len(self.segments) - 1, bisect_right(self.base_offsets, start_offset) - 1))
        gone = self.segments[:count]
        del self.segments[:count], self.base_offsets[:count]
        for segment in gone:
            self.unsynced.discard(segment)
        # Epochs of records in the store are needed to find them there.
        self.leader_epochs.truncate_start(start_offset if self.tier_start_offset < 0 else self.tier_start_offset)
        return gone

    def delete(self, target: Path) -> None:
        """Move the directory to `target` and be offline. Readers that hold a segment go on reading it."""
        if self.trimmed is not None:
            self.trimmed.stop()
        if self.swap is not None:
            self.swap.abandon()
        self.disk.rename(self.directory, target)
        self.failure = Closed(f"{self.directory} was deleted")
        for segment in self.segments:
            segment.abandon()
        if self.observer is not None:
            self.observer.clear()
        # Without references to its owner the log is freed now. As garbage, thousands of logs would one day stall the
        # loop for tenths of a second.
        self.on_flushed = self.on_failed = self.on_flush_wanted = self.on_write_failed = self.on_damaged = None
        self.on_trimmed = self.remove_files = None
