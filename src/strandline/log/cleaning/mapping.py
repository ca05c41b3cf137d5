"""The first half of a cleaning: read the dirty part and learn each key's last offset, as far as the map has room."""

from __future__ import annotations

import os
from typing import Final

from strandline.codec.columns import _clean
from strandline.codec.record_batch import is_marker, parse_header
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import PeerError
from strandline.log.cleaning.job import CannotClean, CleaningJob, SourceSegment
from strandline.log.cleaning.reading import Pace, SegmentReader, open_batch, whole_batch
from strandline.log.cleaning.transactions import PassedTransactions
from strandline.log.disk import Disk
from strandline.log.segment.file_names import LOG_SUFFIX, file_stem
from strandline.log.segment.transaction_index import AbortedTransaction

SLOTS_MIN: Final = 16


def make_sieve(job: CleaningJob) -> _clean.RecordSieve:
    """With a map as large as it may be, or as the dirty part can need: an offset holds one key at most."""
    slots_allowed = job.dedupe_buffer_bytes // _clean.SLOT_BYTES
    if int(slots_allowed * job.load_factor) < 1 or slots_allowed < 2:
        raise CannotClean(
            f"log.cleaner.dedupe.buffer.size leaves {job.dedupe_buffer_bytes} bytes, in which not one key has room; "
            "raise it, or lower log.cleaner.threads"
        )
    needed = int((job.end_offset - job.first_dirty_offset) / job.load_factor) + SLOTS_MIN
    slots = min(slots_allowed, needed)
    # The secret decides only where in the table a key lies: no outcome depends on it.
    return _clean.RecordSieve(slots, max(1, int(slots * job.load_factor)), os.urandom(16))


class MapBuilder:
    def __init__(
        self, job: CleaningJob, disk: Disk, sieve: _clean.RecordSieve, aborted: list[AbortedTransaction], pace: Pace
    ) -> None:
        self._job = job
        self._disk = disk
        self._sieve = sieve
        self._pace = pace
        self._transactions = PassedTransactions(aborted)
        self._passed_offset = job.first_dirty_offset
        self._path = job.directory
        self.bytes_read = 0

    def build(self) -> int:
        """Fill the map from the first dirty offset on; the offset up to which it knows all keys.

        That is the end of what may be cleaned, or the first record whose key found no room.
        """
        for segment in self._job.segments:
            if segment.end_offset > self._job.first_dirty_offset and not self.learn_segment(segment):
                return self.learned_up_to
        return self._job.end_offset

    @property
    def learned_up_to(self) -> int:
        """Where the map was full."""
        return max(self._passed_offset, self._sieve.learned_offset + 1)

    def learn_segment(self, segment: SourceSegment) -> bool:
        """Learn the keys of one segment, the next one. Return whether the map had room."""
        self._path = self._job.directory / (file_stem(segment.base_offset) + LOG_SUFFIX)
        self._sieve.begin_segment(segment.base_offset, segment.end_offset)
        reader = SegmentReader(
            self._disk, self._path, segment.size_bytes, piece_bytes=self._job.io_buffer_bytes, pace=self._pace
        )
        try:
            while piece := reader.read():
                used_bytes, has_room = self._learn_piece(piece)
                self.bytes_read += used_bytes
                if not has_room:
                    return False
                reader.advance(used_bytes, piece)
        finally:
            reader.close()
        return True

    def _learn_piece(self, piece: bytes) -> tuple[int, bool]:
        """(bytes of whole batches that were learned, whether the map has room)."""
        view = memoryview(piece)
        position = 0
        while True:
            try:
                position = self._sieve.learn_batches(piece, position, self._job.first_dirty_offset)
                batch = whole_batch(view, position)
                if batch is None:
                    return position, True
                if not self._learn_batch(batch):
                    return position, False
            except (PeerError, IndexError) as error:
                raise CannotClean(f"{self._path.name}: {error}") from error
            position += len(batch)

    def _learn_batch(self, batch: memoryview) -> bool:
        """One that is compressed, part of a transaction, damaged, or that the map had no room for."""
        header = parse_header(batch)
        self._sieve.pass_batch(header.base_offset, header.last_offset)
        if header.last_offset < self._job.first_dirty_offset:
            return True
        header, payload = open_batch(batch, self._path)
        if header.is_control:
            self._transactions.close(header, parse_marker(batch) if is_marker(header) else None)
        elif not self._transactions.is_aborted(header) and not self._sieve.learn(
            bytes(payload),
            0,
            len(payload),
            header.record_count,
            header.base_offset,
            header.last_offset_delta,
            self._job.first_dirty_offset,
        ):
            return False
        self._passed_offset = header.last_offset + 1
        return True
