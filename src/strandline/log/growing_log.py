"""The end of a partition's log, where it grows: batches are appended, segments begun, and all of it flushed.

`partition_log` adds what takes records away, at either end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.codec.record_batch import (
    ATTRIBUTES,
    BASE_OFFSET,
    BATCH_LENGTH,
    CONTROL,
    LAST_OFFSET_DELTA,
    LEADER_EPOCH,
    LEADER_FIELDS,
    MAX_TIMESTAMP,
    PREFIX_SIZE,
    PRODUCER_ID,
    RECORD_COUNT,
    BatchHeader,
    HeaderFields,
)
from strandline.config.topic_config import TopicConfig
from strandline.errors import Closed, CorruptLog, DiskFailed, StrandlineError
from strandline.log import leader_epochs as epoch_file
from strandline.log.checkpoints import NOTHING_NOTED, EndNotes
from strandline.log.disk import Buffer, Disk
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.log_replay import learn_marker
from strandline.log.maintenance.segment_deletion import Leaving
from strandline.log.observer import BatchObserver
from strandline.log.readable_log import ReadableLog
from strandline.log.rolling import is_due_to_roll, sync_cuts
from strandline.log.segment.log_slice import FlushJob
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.record_counts import RecordCounts
from strandline.log.segment.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment
from strandline.log.segment.segment_counts import count_run, save_counts
from strandline.log.snapshots import Snapshots

if TYPE_CHECKING:
    from strandline.log.maintenance.segment_replacement import Swap
    from strandline.log.partition_log import PartitionLog

_RECORD_COUNT = itemgetter(RECORD_COUNT)


class GrowingLog(ReadableLog):
    def __init__(
        self,
        directory: Path,
        config: TopicConfig,
        *,
        disk: Disk,
        open_files: OpenFiles,
        observer: BatchObserver | None = None,
    ) -> None:
        super().__init__(directory)
        self.config = config
        self.disk = disk
        self.open_files = open_files
        self.observer = observer
        self.snapshots = Snapshots(directory, disk, observer)
        self.leader_epochs = LeaderEpochs()
        self.flushed_offset = 0
        self.appended_ms = 0
        """When the newest batch was appended, or the log opened: no batch was appended later than this."""
        self.has_aborted = False
        """Whether a transaction was ever aborted here, as far as the segments know."""
        self.learnt_from = 0
        """Every batch from here on was shown to the observer since it last knew nothing, or took a snapshot's word."""
        self.on_flushed: Callable[[], None] | None = None
        self.on_flush_wanted: Callable[[], None] | None = None
        self.on_write_failed: Callable[[OSError], None] | None = None
        """Told that the disk refused an append (it is full, perhaps). The log is whole, and may be read."""
        self.leaving: Leaving | None = None
        """Segments cut off the front whose files are still to be renamed."""
        self.on_leaving: Callable[[PartitionLog], None] | None = None
        """Told that there are some: the owner writes the start down, and then has them renamed and removed."""
        self.remove_files: Callable[[Callable[[], None]], object] | None = None
        """Takes what unlinks the files of a segment that nobody reads any more; else it is done at once."""
        self.planned_start_offset = 0
        """Where the log is about to start. It is written down before anybody sees the log start there, so that a start
        offset that was seen never goes back."""
        self.written_start_offset = 0
        """Where the log starts at least, after a crash."""
        self.tombstone_horizon = 0
        """Tombstones, and markers of transactions, may have been removed below this offset, here or from the log that
        this one is a copy of. What they delete is not here either. A replica that ends below it may hold that still."""
        self.planned_tombstone_horizon = 0
        """What it is about to be. It is written down before anything is appended that depends on it."""
        self.unsynced_directories: list[Path] = []
        self._unsynced_indexes: list[Path] = []
        self.dirty_segments: list[Segment] = []
        self._flushing: FlushJob | None = None
        self._cut_offset: int | None = None
        self.cuts = self.synced_cuts = 0
        self._written_out_at = -1
        self.noted = NOTHING_NOTED
        """The log end for which `write_out` last ran."""
        self.swap: Swap | None = None
        """Segments that give way to another just now. Who changes the files otherwise has it settle first."""
        self.swaps = 0
        """How often cleaned segments have taken the place of others."""

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
            # Nothing of it may stay: after a restart it would stand before records that went into the old segment.
            segment.delete()
            raise
        if self.observer is not None:
            # Without one nobody would say which batches are markers.
            segment.counts = RecordCounts(base_offset)
        self.adopt(segment)
        self.unsynced_directories.append(self.directory)

    def save_leader_epochs(self, *, sync: bool = False) -> None:
        """Write the file of leader epochs; without `sync` the next flush makes it safe, along with the batches."""
        path = self.directory / epoch_file.FILE_NAME
        self.disk.write_whole(path, self.leader_epochs.format().encode(), sync=sync)
        if not sync:
            self.sync_with_next_flush(path)
            self.unsynced_directories.append(self.directory)

    def write_out(self, *, keeps_notes: bool = False) -> None:
        """Write the indexes, counts and producers that only memory holds. The next flush syncs what must be synced.

        A caller that keeps `noted` for the next start spares files with nothing in them. Among thousands of logs these
        are most, and making files is what takes longest.
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
        if self.active.cut_preallocated() and not self.active.dirty:
            self.active.dirty = True
            self.dirty_segments.append(self.active)
        self._sync_transaction_index(self.active)
        if not is_blank:
            self.snapshots.save(self.log_end_offset)
        self._written_out_at = self.log_end_offset

    def close(self) -> None:
        """Write out indexes and a snapshot, sync, and close the files, whatever the disk says to that."""
        try:
            if self.failure is None:
                self.write_out()
                self.flush_now()
        finally:
            if self.leaving is not None:
                self.leaving.stop()
            for segment in self.segments:
                segment.close()
            self.failure = self.failure or Closed(f"{self.directory} was closed")

    # Appending

    def append(self, batch: memoryview | bytearray, header: HeaderFields, *, leader_epoch: int, now_ms: int) -> int:
        """Give `batch` its offsets, in place, and write it at the end; its base offset.

        `header` is what `check_batch` returned. Nothing has changed if this raises.
        """
        base_offset = self.log_end_offset
        last_offset = base_offset + header[LAST_OFFSET_DELTA]
        if leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        LEADER_FIELDS.pack_into(batch, 0, base_offset, header[BATCH_LENGTH], leader_epoch)
        self._write(batch, base_offset, last_offset, header[MAX_TIMESTAMP], now_ms)
        return base_offset

    def append_as_is(self, batch: Buffer, header: BatchHeader, *, now_ms: int) -> None:
        """Write a batch that has its offsets already: fetched from a leader, or the controller's own."""
        if header.base_offset < self.log_end_offset:
            raise CorruptLog(f"{self.directory}: batch {header.base_offset} follows {self.log_end_offset - 1}")
        if header.leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(header.leader_epoch, header.base_offset)
        self._write(batch, header.base_offset, header.last_offset, header.max_timestamp, now_ms)

    def _begin_epoch(self, epoch: int, start_offset: int) -> None:
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

    def append_run(self, batches: Sequence[bytes], timestamps: Sequence[int], *, leader_epoch: int, now_ms: int) -> int:
        """Give batches of one record each their offsets, and write them at the end with one call; the first offset.

        A crash may leave some of them; if this raises, none is there.
        """
        base_offset = self.log_end_offset
        if leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        parts: list[bytes] = []
        for offset, batch in enumerate(batches, base_offset):
            parts += (LEADER_FIELDS.pack(offset, len(batch) - PREFIX_SIZE, leader_epoch), batch[LEADER_FIELDS.size :])
        data = b"".join(parts)
        last_offset = base_offset + len(batches) - 1
        segment = self._segment_for(len(data), last_offset, max(timestamps), now_ms)
        was_dirty = segment.dirty
        try:
            segment.append_run(data, base_offset, map(len, batches), timestamps)
        except OSError as error:
            self._drop_partial_batch(segment, error)
        if not was_dirty:
            self.dirty_segments.append(segment)
        self.log_end_offset = last_offset + 1
        return base_offset

    def append_fetched(self, run: Buffer, headers: Sequence[HeaderFields], *, now_ms: int) -> None:
        """Write batches that a leader sent, back to back in `run`, with one call; `headers` is what `check_run` found.

        Nothing has changed if this raises.
        """
        first, last = headers[0], headers[-1]
        if first[BASE_OFFSET] < self.log_end_offset:
            raise CorruptLog(f"{self.directory}: batch {first[BASE_OFFSET]} follows {self.log_end_offset - 1}")
        last_offset = last[BASE_OFFSET] + last[LAST_OFFSET_DELTA]
        try:
            if last[LEADER_EPOCH] > self.leader_epochs.latest:
                next_offset = self.log_end_offset
                for header in headers:
                    if header[LEADER_EPOCH] > self.leader_epochs.latest:
                        # Not with its first batch that is left: the leader may have cleaned away those before it.
                        self._begin_epoch(header[LEADER_EPOCH], next_offset)
                    next_offset = header[BASE_OFFSET] + header[LAST_OFFSET_DELTA] + 1
            segment = self._segment_for(len(run), last_offset, last[MAX_TIMESTAMP], now_ms)
            was_dirty = segment.dirty
            try:
                segment.append_batches(run, headers)
            except OSError as error:
                self._drop_partial_batch(segment, error)
        except StrandlineError:
            self.leader_epochs.truncate_end(self.log_end_offset)
            raise
        if not was_dirty:
            self.dirty_segments.append(segment)
        next_offset, self.log_end_offset = self.log_end_offset, last_offset + 1
        if self.observer is not None:
            is_plain = sum(map(_RECORD_COUNT, headers)) == self.log_end_offset - next_offset
            at = 0
            for header in headers:
                size = header[BATCH_LENGTH] + PREFIX_SIZE
                if header[PRODUCER_ID] >= 0:
                    if header[ATTRIBUTES] & CONTROL:
                        learn_marker(self, header, run[at : at + size], segment)
                        is_plain = False
                    else:
                        self.observer.note_header(header, now_ms)
                at += size
            if not is_plain:
                count_run(segment, headers, len(run), next_offset)

    def _write(self, batch: Buffer, base_offset: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> None:
        segment = self._segment_for(len(batch), last_offset, max_timestamp_ms, now_ms)
        was_dirty = segment.dirty
        try:
            segment.append(batch, base_offset, last_offset, max_timestamp_ms)
        except OSError as error:
            self._drop_partial_batch(segment, error)
        if not was_dirty:
            self.dirty_segments.append(segment)
        self.log_end_offset = last_offset + 1

    def _segment_for(self, size_bytes: int, last_offset: int, max_timestamp_ms: int, now_ms: int) -> Segment:
        """Where the next bytes go: the active segment, or a new one if it is full or old."""
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

    def _drop_partial_batch(self, segment: Segment, error: OSError) -> None:
        """A write failed, perhaps half way (a full disk): leave the log as it was, and say so."""
        # An epoch without a batch, named as our last one, would be a divergence with nothing to cut.
        self.leader_epochs.truncate_end(self.log_end_offset)
        if self.on_write_failed is not None:
            self.on_write_failed(error)
        try:
            segment.file().truncate(segment.size_bytes)
        except OSError as second:
            self.fail(DiskFailed(f"{segment.path}: {error.strerror}, and the rest cannot be cut: {second.strerror}"))
        if not segment.dirty:
            # The cut goes to the disk before anything that comes after it counts. Else a power cut may bring the part
            # back, and recovery would take what was flushed behind it for what never was.
            segment.dirty = True
            self.dirty_segments.append(segment)
        raise DiskFailed(f"{segment.path}: cannot append: {error.strerror}") from error

    def roll(self, now_ms: int) -> None:
        """Begin a new segment at the log end."""
        try:
            sync_cuts(self)
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

    def seal(self, segment: Segment) -> None:
        segment.seal()
        if segment.cut_preallocated() and not segment.dirty:
            # Its size is to be on disk before a batch behind it counts: recovery takes zeros in the middle for damage.
            segment.dirty = True
            self.dirty_segments.append(segment)
        self._unsynced_indexes += [segment.path.with_suffix(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        self._sync_transaction_index(segment)

    def _sync_transaction_index(self, segment: Segment) -> None:
        """What a clean stop or a roll leaves is not read again: a file that was lost would be missed by nobody."""
        if segment.has_transaction_index:
            self.sync_with_next_flush(segment.path.with_suffix(TRANSACTION_INDEX_SUFFIX))
            self.unsynced_directories.append(self.directory)

    # Flushing

    def want_flush(self) -> None:
        """Somebody would like what is here to be on disk soon; the owner decides how."""
        if self.on_flush_wanted is not None:
            self.on_flush_wanted()

    @property
    def unflushed(self) -> int:
        return self.log_end_offset - self.flushed_offset

    def begin_flush(self) -> FlushJob | None:
        """What must be synced for everything appended so far to be safe; None if nothing."""
        if self.failure is not None or (not self.dirty_segments and not self.unsynced_directories):
            return None
        segments = self.dirty_segments
        directories = list(dict.fromkeys(self.unsynced_directories))
        try:
            end_offset = self.log_end_offset if self._cut_offset is None else self._cut_offset
            job = FlushJob(self.disk, segments, self._unsynced_indexes, directories, end_offset)
        except OSError as error:
            self.fail(DiskFailed(f"{self.directory}: cannot flush: {error}"))
            return None
        self.dirty_segments = []
        self.unsynced_directories = []
        self._unsynced_indexes = []
        for segment in segments:
            segment.dirty = False
        job.cuts = self.cuts
        self._flushing = job
        return job

    def end_flush(self, job: FlushJob, error: BaseException | None) -> None:
        self._flushing = None
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
        if self._flushing is not None and self.failure is None:
            # One is under way in a thread, and a disk that hangs may keep it there for longer than anybody waits: what
            # it was to sync is synced here.
            try:
                self._flushing.run()
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
        """A small file beside the log (`partition.metadata`) that must be safe before any record is."""
        self._unsynced_indexes.append(path)
