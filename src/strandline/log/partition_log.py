"""One partition's log: a list of segments, of which the last grows.

Nothing here knows of replicas, acknowledgements or clients. `log_end_offset` is where the next record goes;
`flushed_offset` is how far the disk is known to hold it (Kafka's recovery point); `log_start_offset` is the first
offset that may be read. `growing_log` has its end, where it grows; here is what takes records away, at either end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from strandline.errors import Closed, CorruptLog, DiskFailed, OffsetOutOfRange, StrandlineError
from strandline.log import leader_epochs as epoch_file
from strandline.log.growing_log import GrowingLog
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.log_replay import relearn
from strandline.log.maintenance.segment_deletion import Leaving
from strandline.log.rolling import sync_cuts
from strandline.log.segment.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, Segment, file_stem
from strandline.log.segment.segment_counts import count_hole


class PartitionLog(GrowingLog):
    """Open with `opening.open_log`; one loop owns it."""

    # Cutting

    def begin_cut(self, offset: int, *, tombstone_horizon: int = 0) -> bool:
        """The log is to be cut at `offset`, once a recovery point on disk that is higher has been lowered.

        From here on nothing above counts as flushed, whoever asks; whether there was such a recovery point. A follower
        whose leader has a larger `tombstone_horizon` takes that over with the cut, which need not remove anything.
        """
        self._cut_offset = offset
        self.planned_tombstone_horizon = tombstone_horizon
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
        self.planned_tombstone_horizon = 0
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

        Raises DiskFailed, and either nothing has changed, so that it may be tried again, or the log is offline. The
        epochs are written first, because a full disk refuses that; the rest needs hardly any room. If a crash comes in
        between, recovery finds the dropped epochs in the batches, from the recovery point on.
        """
        if self.failure is not None:
            raise self.refusal()
        was_begun, self._cut_offset = self._cut_offset is not None, None
        self.planned_start_offset = 0
        horizon, self.planned_tombstone_horizon = self.planned_tombstone_horizon, 0
        if offset >= self.log_end_offset:
            self.tombstone_horizon = max(self.tombstone_horizon, horizon)
            if was_begun:
                self._count_flushed_again()
            return
        # First of all: if the disk is full half way, what is gone must not be noted as flushed.
        self.flushed_offset = min(self.flushed_offset, self._safe_below(offset))
        kept = self._write_kept_epochs(offset)
        try:
            self._truncate_segments(offset)
            # Not before: batches of earlier processes are held against their epochs when they are first looked at, also
            # by threads, and those that are to go would pass for damaged.
            self.leader_epochs = kept
            self.snapshots.remove_beyond(offset)
            relearn(self, self.snapshots.restore(at_most=offset, now_ms=self.appended_ms), None)
        except (OSError, StrandlineError) as error:
            # Segments, epochs and what is known of producers no longer belong together.
            self.fail(DiskFailed(f"{self.directory}: cannot truncate to {offset}: {error}"))
            raise self.refusal() from error
        self.tombstone_horizon = max(min(self.tombstone_horizon, offset), horizon)
        self._count_flushed_again()

    def _write_kept_epochs(self, offset: int) -> LeaderEpochs:
        """Write down that the epochs from `offset` on are gone; those that stay. Raises DiskFailed; see
        `truncate_to`."""
        latest, kept = self.leader_epochs.latest, self.leader_epochs.below(offset)
        changes = kept.latest != latest
        try:
            if self.swap is not None:
                self.swap.settle()
            if changes:
                self.disk.write_whole(self.directory / epoch_file.FILE_NAME, kept.format().encode(), sync=True)
        except (OSError, StrandlineError) as error:
            failed = DiskFailed(f"{self.directory}: cannot truncate to {offset}: {error}")
            if changes and not self._has_saved(latest):
                self.fail(failed)
            self._count_flushed_again()
            raise failed from error
        return kept

    def _has_saved(self, epoch: int) -> bool:
        """Whether the file of leader epochs says that `epoch` is the newest: a write that failed may have been made."""
        try:
            text = self.disk.read_whole(self.directory / epoch_file.FILE_NAME).decode(errors="replace")
            return LeaderEpochs.parse(text).latest == epoch
        except (OSError, CorruptLog):
            return False

    def _truncate_segments(self, offset: int) -> None:
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
            # Written in part to the disk, what comes next would stand among what was cut.
            sync_cuts(self)
        self.active.is_active = True
        end_offset = self.active.resume()
        count_hole(self.active, end_offset, offset)
        if self.active.base_offset < offset > end_offset:
            # The cleaner took what came before the cut. A restart must find where the log goes on.
            self.seal(self.active)
            self.add_segment(offset, self.active.created_ms)
        self.log_end_offset = offset
        self.log_start_offset = min(self.log_start_offset, offset)

    def restart_at(self, offset: int, now_ms: int) -> None:
        """Forget everything, and go on at `offset` as a log that begins there.

        For a follower whose leader no longer has what comes next, or that was given a snapshot in its place. A crash
        on the way leaves a log that ends early, or none: as if it had fallen further behind. So its recovery point is
        lowered to 0 first, by `LogDirectory.lower_recovery_point`.

        Raises DiskFailed, and either nothing has changed, so that it may be tried again, or the log is offline. What a
        full disk refuses comes first, as in `truncate_to`.
        """
        if self.failure is not None:
            raise self.refusal()
        self._cut_offset = None
        self.planned_start_offset = 0
        horizon, self.planned_tombstone_horizon = self.planned_tombstone_horizon, 0
        files = self._make_files_ahead(offset)
        self.flushed_offset = 0
        try:
            kept = self._write_kept_epochs(-1)
        except DiskFailed:
            self._remove_quietly(files)
            raise
        self.written_start_offset = 0
        try:
            if self.leaving is not None:
                self.leaving.rename_rest()
            while self.segments:
                # The last one first: what a crash leaves is a log without its end, never one with a hole.
                gone = self.segments.pop()
                self.base_offsets.pop()
                self._delete_segment(gone)
            self.leader_epochs = kept
            self.snapshots.remove_beyond(-1)
            self.log_start_offset = self.log_end_offset = self.flushed_offset = offset
            self.tombstone_horizon = horizon
            self.has_aborted = False
            if self._flushing is not None:
                self._flushing.end_offset = min(self._flushing.end_offset, offset)
            for path in files:
                self.disk.rename(path, path.with_suffix(""))
            self.add_segment(offset, now_ms)
            self.active.is_active = True
            self.disk.sync_directory(self.directory)
        except OSError as error:
            self.fail(DiskFailed(f"{self.directory}: cannot begin at {offset}: {error.strerror}"))
            raise self.refusal() from error
        relearn(self, self.snapshots.restore(at_most=None, now_ms=self.appended_ms), None)

    def _make_files_ahead(self, offset: int) -> list[Path]:
        """The files of a segment that is to begin at `offset` when those there are have gone: until they are renamed
        no reader sees them, and `open_log` removes them. Raises DiskFailed; see `restart_at`."""
        stem = file_stem(offset)
        files = [self.directory / (stem + each + ".tmp") for each in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        try:
            for path in files:
                self.disk.open(path, create=True).close()
        except OSError as error:
            self._remove_quietly(files)
            self._count_flushed_again()
            raise DiskFailed(f"{self.directory}: cannot begin at {offset}: {error.strerror}") from error
        return files

    def _remove_quietly(self, files: list[Path]) -> None:
        with suppress(OSError):
            for path in files:
                self.disk.remove(path)

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
        if self.observer is not None:
            self.observer.clear()
        # Whoever owns the log is let go of, so that all of it is freed now: the garbage of thousands of topics would
        # keep the loop for tenths of a second one day.
        self.on_flushed = self.on_failed = self.on_flush_wanted = self.on_write_failed = self.on_damaged = None
        self.on_leaving = self.remove_files = None
