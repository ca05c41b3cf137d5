"""The second half of a cleaning: copy what stays of a group of segments, in order, into one new segment."""

from __future__ import annotations

from array import array
from pathlib import Path

from strandline.codec.columns._clean import RecordSieve
from strandline.codec.record_batch import (
    HAS_DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    Buffer,
    is_marker,
    parse_header,
)
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import PeerError
from strandline.log.cleaning.cleaned_segment import CleanedSegment
from strandline.log.cleaning.job import CannotClean, CleaningJob, SourceSegment
from strandline.log.cleaning.reading import Pace, SegmentReader, open_batch, whole_batch
from strandline.log.cleaning.rebuilding import empty_batch, rebuild_batch
from strandline.log.cleaning.transactions import PassedTransactions
from strandline.log.disk import Disk
from strandline.log.segment.file_names import LOG_SUFFIX, file_stem
from strandline.log.segment.transaction_index import AbortedTransaction

RUNS_AT_FIRST = 1024
NEVER_MS = -1
"""A time before each delete horizon."""


class GroupCopier:
    """A copy of a log's segments in one pass, from the first: transactions reach from one to the next."""

    def __init__(
        self,
        job: CleaningJob,
        disk: Disk,
        sieve: RecordSieve,
        aborted: list[AbortedTransaction],
        pace: Pace,
        *,
        clean_up_to: int,
    ) -> None:
        self._job = job
        self._disk = disk
        self._sieve = sieve
        self._pace = pace
        self._latest_offset = clean_up_to - 1
        self._transactions = PassedTransactions(aborted, is_whole=job.sets_horizons)
        self._now_ms = job.now_ms
        self._runs = array("q", (0,)) * (2 * RUNS_AT_FIRST)
        self._path: Path = job.directory
        self._markers_kept = {
            (producer_id, epoch) for producer_id, epoch, *last_offsets in job.active_producers if -1 in last_offsets
        }
        self._kept_empty = {
            last_offset: producer_id
            for producer_id, _, *last_offsets in job.active_producers
            for last_offset in last_offsets
            if last_offset >= 0
        }
        # Where the round ends, the last offset must still be found: the end of a log may be nothing but this batch.
        self._kept_empty.setdefault(job.end_offset - 1, -1)
        self.bytes_read = 0
        self.control_records_read = 0
        self.control_records_kept = 0
        self.aborted_records = 0
        self._marker_removed = -1

    @property
    def removed_below(self) -> int:
        """The offset behind the last tombstone or marker that was removed because its time is over; 0 if none was."""
        return max(self._sieve.tombstone_removed, self._marker_removed) + 1

    def copy(self, group: list[SourceSegment], target: CleanedSegment) -> None:
        for segment in group:
            self._now_ms = self._job.now_ms if segment.base_offset < self._job.horizons_below else NEVER_MS
            self._path = self._job.directory / (file_stem(segment.base_offset) + LOG_SUFFIX)
            self._sieve.begin_segment(segment.base_offset, segment.end_offset)
            reader = SegmentReader(
                self._disk, self._path, segment.size_bytes, piece_bytes=self._job.io_buffer_bytes, pace=self._pace
            )
            try:
                while piece := reader.read():
                    used_bytes = self._copy_piece(piece, target)
                    target.write()
                    self.bytes_read += used_bytes
                    reader.advance(used_bytes, piece)
            finally:
                reader.close()

    def _copy_piece(self, piece: bytes, target: CleanedSegment) -> int:
        """Copy what stays of the whole batches in `piece`; how many bytes they were."""
        view = memoryview(piece)
        position = 0
        while True:
            kept: list[tuple[int, int, int, int, int, int]] = []
            try:
                position, is_sifted = self._sieve.sift_batches(
                    piece, position, self._latest_offset, self._now_ms, self._kept_empty, kept, self._runs
                )
                self._copy_whole(view, kept, target)
                batch = whole_batch(view, position)
                if batch is None:
                    return position
                if is_sifted:
                    self._put_sifted(parse_header(batch), piece, batch, target)
                else:
                    self._copy_batch(batch, target)
            except (PeerError, IndexError) as error:
                raise CannotClean(f"{self._path.name}: {error}") from error
            position += len(batch)

    def _copy_whole(
        self, view: memoryview, kept: list[tuple[int, int, int, int, int, int]], target: CleanedSegment
    ) -> None:
        """Batches that stay as they are, neighbours with one part."""
        start = end = 0
        for base_offset, last_offset, max_timestamp_ms, position, size_bytes, records in kept:
            target.note(base_offset, last_offset, max_timestamp_ms, size_bytes, records)
            if position != end:
                if end > start:
                    target.add_run(view[start:end])
                start = position
            end = position + size_bytes
        if end > start:
            target.add_run(view[start:end])

    def _copy_batch(self, batch: memoryview, target: CleanedSegment) -> None:
        """One that is compressed, part of a transaction, without records, or damaged."""
        header, payload = open_batch(batch, self._path)
        self._sieve.pass_batch(header.base_offset, header.last_offset)
        if header.is_control:
            self._copy_control(header, payload, batch, target)
        elif self._transactions.is_aborted(header):
            self.aborted_records += header.record_count
            self._put_empty(header, target)
        elif header.record_count == 0:
            self._put_empty(header, target)
        else:
            payload = bytes(payload)
            if 2 * header.record_count > len(self._runs):
                self._runs = array("q", (0,)) * (2 * header.record_count)
            horizon_ms = header.delete_horizon_ms
            self._sieve.sift(
                payload,
                0,
                len(payload),
                header.record_count,
                header.base_offset,
                header.last_offset_delta,
                0 if header.attributes & LOG_APPEND_TIME else header.base_timestamp,
                self._latest_offset,
                horizon_ms is None or self._now_ms < horizon_ms,
                self._runs,
            )
            self._put_sifted(header, payload, batch, target)

    def _put_sifted(self, header: BatchHeader, payload: Buffer, batch: memoryview, target: CleanedSegment) -> None:
        """Copy what the sieve left of a data batch, whose records lie at `runs` of `payload`."""
        sieve = self._sieve
        if sieve.kept == 0:
            self._put_empty(header, target)
            return
        # Not for a batch that this round ends in: its horizon would count for tombstones, too, that no round has been
        # at, and the next one could take them together with the values that they delete. (Kafka's cleaner does.)
        is_whole = header.last_offset <= self._latest_offset
        may_go = is_whole and self._job.sets_horizons
        needs_horizon = may_go and sieve.kept_tombstones > 0 and not header.attributes & HAS_DELETE_HORIZON
        if sieve.kept == header.record_count and not needs_horizon:
            target.add(batch, header.base_offset, header.last_offset, header.max_timestamp, sieve.kept)
            return
        made, max_timestamp_ms = rebuild_batch(
            header,
            payload,
            self._runs,
            sieve.run_count,
            records=sieve.kept,
            max_timestamp_ms=sieve.max_timestamp,
            delete_horizon_ms=self._new_horizon_ms() if needs_horizon else None,
        )
        target.add(made, header.base_offset, header.last_offset, max_timestamp_ms, sieve.kept)

    def _copy_control(self, header: BatchHeader, payload: Buffer, batch: memoryview, target: CleanedSegment) -> None:
        marker = parse_marker(batch) if is_marker(header) else None
        is_unneeded, aborted = self._transactions.close(header, marker)
        if aborted is not None:
            target.note_aborted(aborted)
        self.control_records_read += header.record_count
        horizon_ms = header.delete_horizon_ms
        if header.record_count == 0 or (is_unneeded and horizon_ms is not None and horizon_ms <= self._now_ms):
            if header.record_count:
                self._marker_removed = header.last_offset
            self._put_empty(header, target)
            return
        self.control_records_kept += header.record_count
        if not is_unneeded or horizon_ms is not None:
            target.add(batch, header.base_offset, header.last_offset, header.max_timestamp, 0)
            return
        made, max_timestamp_ms = rebuild_batch(
            header,
            payload,
            (0, len(payload)),
            1,
            records=header.record_count,
            max_timestamp_ms=header.max_timestamp,
            delete_horizon_ms=self._new_horizon_ms(),
        )
        target.add(made, header.base_offset, header.last_offset, max_timestamp_ms, 0)

    def _new_horizon_ms(self) -> int:
        return self._job.now_ms + self._job.delete_retention_ms

    def _put_empty(self, header: BatchHeader, target: CleanedSegment) -> None:
        """Copy a batch without its records if its place must stay."""
        if self._must_hold_place(header):
            made = empty_batch(header)
            assert len(made) == HEADER_SIZE, "a header alone"
            target.add(made, header.base_offset, header.last_offset, header.max_timestamp, 0)

    def _must_hold_place(self, header: BatchHeader) -> bool:
        if header.last_offset == self._job.end_offset - 1:
            return True
        if header.producer_id < 0:
            return False
        if header.is_control and (header.producer_id, header.producer_epoch) in self._markers_kept:
            return True
        return self._kept_empty.get(header.last_offset) == header.producer_id
