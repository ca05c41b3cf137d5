"""One partition's log: a list of segments, of which the last grows.

Nothing here knows of replicas, acknowledgements or clients. `log_end_offset` is where the next record goes;
`flushed_offset` is how far the disk is known to hold it (Kafka's recovery point); `log_start_offset` is the first
offset that may be read.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING

from strandline.codec.record_batch import (
    CONTROL,
    LEADER_FIELDS,
    PREFIX_SIZE,
    BatchHeader,
    HeaderFields,
)
from strandline.errors import Closed, CorruptLog, DiskFailed, OffsetOutOfRange, StrandlineError
from strandline.log import leader_epochs as epoch_file
from strandline.log.counted import count_hole, count_run, save_counts
from strandline.log.disk import Buffer, Disk
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.learning import learn_marker, relearn
from strandline.log.leaving import Leaving
from strandline.log.log_slice import FlushJob
from strandline.log.observer import BatchObserver
from strandline.log.open_files import OpenFiles
from strandline.log.readable_log import ReadableLog
from strandline.log.record_counts import RecordCounts
from strandline.log.rolling import is_due_to_roll, sync_cuts
from strandline.log.segment import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, Segment
from strandline.log.snapshots import Snapshots
from strandline.topic_config import TopicConfig

if TYPE_CHECKING:
    from strandline.log.swapping import Swap

_RECORD_COUNT = itemgetter(12)


class PartitionLog(ReadableLog):
    """Open with `opening.open_log`; one loop owns it."""

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
        self.unsynced_directories: list[Path] = []
        self._unsynced_indexes: list[Path] = []
        self.dirty_segments: list[Segment] = []
        self._flushing: FlushJob | None = None
        self._cut_offset: int | None = None
        self.cuts = self.synced_cuts = 0
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

    def close(self) -> None:
        """Write out indexes and a snapshot, sync, and close the files, whatever the disk says to that."""
        try:
            if self.failure is None:
                if self.swap is not None:
                    self.swap.settle()
                self.active.write_indexes()
                save_counts(self.active)
                self.active.cut_preallocated()
                self._sync_transaction_index(self.active)
                self.snapshots.save(self.log_end_offset)
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
        last_offset = base_offset + header[6]
        if leader_epoch > self.leader_epochs.latest:
            self._begin_epoch(leader_epoch, base_offset)
        LEADER_FIELDS.pack_into(batch, 0, base_offset, header[1], leader_epoch)
        self._write(batch, base_offset, last_offset, header[8], now_ms)
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
        if first[0] < self.log_end_offset:
            raise CorruptLog(f"{self.directory}: batch {first[0]} follows {self.log_end_offset - 1}")
        last_offset = last[0] + last[6]
        try:
            if last[2] > self.leader_epochs.latest:
                for header in headers:
                    if header[2] > self.leader_epochs.latest:
                        self._begin_epoch(header[2], header[0])
            segment = self._segment_for(len(run), last_offset, last[8], now_ms)
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
                size = header[1] + PREFIX_SIZE
                if header[9] >= 0:
                    if header[5] & CONTROL:
                        learn_marker(self, header, run[at : at + size], segment)
                        is_plain = False
                    else:
                        self.observer.note_header(header)
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

    # Cutting

    def begin_cut(self, offset: int) -> bool:
        """The log is to be cut at `offset`, once a recovery point on disk that is higher has been lowered.

        From here on nothing above counts as flushed, whoever asks; whether there was such a recovery point.
        """
        self._cut_offset = offset
        offset = self._safe_below(offset)
        self.planned_start_offset = 0
        if self._flushing is not None:
            self._flushing.end_offset = min(self._flushing.end_offset, offset)
        if self.flushed_offset <= offset:
            return False
        self.flushed_offset = offset
        return True

    def _safe_below(self, offset: int) -> int:
        """Up to where a log that is cut at `offset` is sure to be found again after a crash on the way.

        A segment that the cleaner was at may end before the next one begins: a recovery finds that it ends there.
        """
        at = bisect_left(self.base_offsets, offset) - 1
        return offset if at < 0 or at == len(self.segments) - 1 else self.base_offsets[at]

    @property
    def is_being_cut(self) -> bool:
        return self._cut_offset is not None

    def leave_uncut(self) -> None:
        """The cut that was begun is not made after all."""
        self._cut_offset = None
        self._count_flushed_again()

    def _count_flushed_again(self) -> None:
        """For the sake of a cut less counts as flushed than is. Only a flush brings that up again, and nothing else may
        come that asks for one: whoever waits for it would wait for ever."""
        if self.flushed_offset < self.log_end_offset:
            if self.active not in self.dirty_segments:
                self.active.dirty = True
                self.dirty_segments.append(self.active)
            self.want_flush()

    def truncate_to(self, offset: int) -> None:
        """Forget everything from `offset` on; it must be the start of a batch or the end.

        Whoever keeps the recovery point of this log has it written down first, if it is above `offset`: see
        `LogDirectory.lower_recovery_point`. What was dropped is off the disk when this returns, so that no power cut
        can bring a dropped segment, or a dropped epoch, back behind batches that are appended from now on.
        """
        self._cut_offset = None
        self.planned_start_offset = 0
        if offset >= self.log_end_offset:
            return
        if self.swap is not None:
            self.swap.settle()
        # First of all: if the disk is full half way, what is gone must not be noted as flushed.
        self.flushed_offset = min(self.flushed_offset, self._safe_below(offset))
        if self._flushing is not None:
            # What is written from here on is not covered by the flush that is under way.
            self._flushing.end_offset = min(self._flushing.end_offset, offset)
        count = len(self.segments)
        self.drop_segments(max(1, bisect_left(self.base_offsets, offset)))
        if len(self.segments) < count:
            self.disk.sync_directory(self.directory)
        position = self.active.locate(offset, may_block=True)
        if position is not None:
            self.active.truncate(position, offset)
            self.cuts += 1
            if self.active not in self.dirty_segments:
                self.dirty_segments.append(self.active)
        self.active.is_active = True
        end_offset = self.active.resume()
        count_hole(self.active, end_offset, offset)
        if self.active.base_offset < offset > end_offset:
            # The cleaner took what came before the cut. A restart must find where the log goes on.
            self.seal(self.active)
            self.add_segment(offset, self.active.created_ms)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)
        if self.leader_epochs.truncate_end(offset):
            self.save_leader_epochs(sync=True)
        self._count_flushed_again()
        self.snapshots.remove_beyond(offset)
        relearn(self, self.snapshots.restore(at_most=self.log_end_offset), None)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Forget everything, and go on at `offset` as a log that begins there.

        For a follower whose leader no longer has what comes next, or that was given a snapshot in its place. A crash
        on the way leaves a log that ends early, or none: as if it had fallen further behind. So its recovery point is
        lowered to 0 first, by `LogDirectory.lower_recovery_point`.
        """
        if self.failure is not None:
            raise self.refusal()
        self.flushed_offset = 0
        self.planned_start_offset = self.written_start_offset = 0
        try:
            if self.leaving is not None:
                self.leaving.rename_rest()
            if self.swap is not None:
                self.swap.settle()
            while self.segments:
                # The last one first: what a crash leaves is a log without its end, never one with a hole.
                gone = self.segments.pop()
                self.base_offsets.pop()
                self._delete_segment(gone)
            self.leader_epochs = LeaderEpochs()
            self.save_leader_epochs(sync=True)
            self.snapshots.remove_beyond(-1)
            self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
            self.has_aborted = False
            self._cut_offset = None
            if self._flushing is not None:
                self._flushing.end_offset = min(self._flushing.end_offset, offset)
            self.add_segment(offset, now_ms)
            self.active.is_active = True
            self.disk.sync_directory(self.directory)
        except OSError as error:
            self.fail(DiskFailed(f"{self.directory}: cannot begin at {offset}: {error.strerror}"))
            raise self.refusal() from error
        relearn(self, self.snapshots.restore(at_most=None), None)

    def drop_segments(self, first: int) -> None:
        """Delete the segments from the one at place `first` on."""
        while len(self.segments) > first:
            gone = self.segments.pop()
            self.base_offsets.pop()
            self._delete_segment(gone)
        self.active = self.segments[-1]

    def _delete_segment(self, segment: Segment) -> None:
        if segment in self.dirty_segments:
            self.dirty_segments.remove(segment)
        segment.delete(self.remove_files)

    def trim(self, start_offset: int) -> None:
        """Records below `start_offset` are gone; segments that hold nothing else are deleted."""
        epochs_start = list(self.leader_epochs.start_offsets)
        for segment in self.cut_front(start_offset):
            segment.delete()
        if self.leader_epochs.start_offsets != epochs_start:
            self.save_leader_epochs()

    def let_go(self, segments: Sequence[Segment]) -> None:
        """Have the files go of segments that were cut off the front: when the owner sees fit, else here and now."""
        if self.on_leaving is None:
            for segment in segments:
                segment.delete()
        elif segments:
            if self.leaving is None:
                self.leaving = Leaving()
            for segment in segments:
                segment.begin_delete(self.remove_files)
            self.leaving.add(segments)
            self.on_leaving(self)

    def cut_front(self, start_offset: int) -> list[Segment]:
        """Records below `start_offset` are gone; the segments that held nothing else, for the caller to delete.

        Oldest first: a crash in between must not leave a hole. The file of leader epochs is left as it is: when the log
        is opened, what is below the start is cut off that, too.
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
            if segment in self.dirty_segments:
                self.dirty_segments.remove(segment)
        self.leader_epochs.truncate_start(start_offset)
        return gone

    def delete(self, target: Path) -> None:
        """Move the directory to `target` and be offline. Readers that hold a segment go on reading it."""
        if self.leaving is not None:
            self.leaving.stop()
        if self.swap is not None:
            self.swap.abandon()
        self.disk.rename(self.directory, target)
        self.failure = Closed(f"{self.directory} was deleted")
        for segment in self.segments:
            segment.abandon()
        # Whoever owns the log is let go of, so that all of it is freed now: the garbage of thousands of topics would
        # keep the loop for tenths of a second one day.
        self.on_flushed = self.on_failed = self.on_flush_wanted = self.on_write_failed = self.on_damaged = None
        self.on_leaving = self.remove_files = None

    def sync_with_next_flush(self, path: Path) -> None:
        """A small file beside the log (`partition.metadata`) that must be safe before any record is."""
        self._unsynced_indexes.append(path)
