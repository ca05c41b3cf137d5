"""A log as its readers know it: where it starts and ends, its segments, and what is read at an offset."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path

from strandline.codec.record_batch import HEADER_SIZE, PREFIX_SIZE
from strandline.errors import DamagedRecords, DiskFailed, OffsetOutOfRange, StrandlineError
from strandline.log.segment.log_slice import LogSlice, slice_size
from strandline.log.segment.read_verification import sound_end
from strandline.log.segment.segment import Segment


class ReadableLog:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.segments: list[Segment] = []
        self.base_offsets: list[int] = []
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.failure: StrandlineError | None = None
        self.on_failed: Callable[[StrandlineError], None] | None = None
        self.on_damaged: Callable[[DamagedRecords], None] | None = None
        """Told that a reader met batches that are not what was written."""

    def size_bytes(self) -> int:
        return sum(segment.size_bytes for segment in self.segments)

    def fail(self, error: StrandlineError) -> None:
        """The log is offline from here on: reads and writes are refused until a restart."""
        if self.failure is None:
            self.failure = error
            if self.on_failed is not None:
                self.on_failed(error)

    def refusal(self) -> StrandlineError:
        """The failure anew. Raised itself, again and again, it would keep the frames of all who ever met it alive, and
        with them the requests that they were working on."""
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
        """Whole batches from the one that holds `offset`, below `limit_offset`; None if there are none (yet).

        At most `size_bytes_max` bytes, save that the first batch is given whole if `at_least_one`. The caller releases
        the slice. Raises ColdRead if the page cache does not know the way and `may_block` is not set.
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
            return self._find(offset, limit, size_bytes_max, at_least_one, may_block)
        except DamagedRecords as error:
            if self.on_damaged is not None:
                self.on_damaged(error)
            raise
        except OSError as error:
            raise DiskFailed(f"{self.directory}: cannot read: {error.strerror}") from error

    def _find(
        self, offset: int, limit: int, size_bytes_max: int, at_least_one: bool, may_block: bool
    ) -> LogSlice | None:
        at = bisect_right(self.base_offsets, offset) - 1
        while at < len(self.segments):
            segment = self.segments[at]
            position = segment.locate(offset, may_block=may_block)
            if position is not None:
                if position < segment.verified_from:
                    end = self._checked_end(at, position, limit)
                else:
                    end = self._limit_position(at, limit, may_block)
                size = slice_size(segment, position, end, size_bytes_max, at_least_one, may_block)
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

    def _checked_end(self, at: int, position: int, limit_offset: int) -> int:
        """The same, where only a part of the segment was found sound: `position` lies in that."""
        segment = self.segments[at]
        stretch = sound_end(segment, position)
        end = min(stretch.end, segment.size_bytes)
        if limit_offset >= stretch.next_offset:
            return end
        # The limit lies in the stretch, and so does the batch from which it is looked for.
        found = segment.locate(limit_offset, may_block=True)
        return end if found is None else min(found, end)

    def end_of(self, segment: Segment) -> int:
        """An offset above all of a segment's: where the next one begins, or the log ends."""
        at = bisect_right(self.base_offsets, segment.base_offset)
        return self.base_offsets[at] if at < len(self.base_offsets) else self.log_end_offset

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
