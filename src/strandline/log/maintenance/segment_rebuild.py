"""A segment rebuilt batch by batch, to replace one that is damaged.

Sound batches of the old one are copied. The others leave a `Hole`, which is filled from another replica. So two copies
that are damaged at different places make a whole one, and little is sent.

Its files end in `.cleaned`, like those of a cleaned segment, until `segment_replacement.replace_segments` takes them,
complete and synced. The index of aborted transactions is copied from the damaged segment, because its file is sound,
followers do not get it from the leader, and markers name only producers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from strandline.codec.record_batch import (
    BASE_OFFSET,
    LAST_OFFSET_DELTA,
    PREFIX,
    PREFIX_SIZE,
    Buffer,
    HeaderFields,
    check_run,
)
from strandline.errors import CorruptLog
from strandline.log.cleaning.cleaned_segment import CleanedSegment
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup, SourceSegment
from strandline.log.cleaning.reading import Pace
from strandline.log.segment.file_names import INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX, file_stem
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.read_verification import check_at
from strandline.log.segment.record_counts import COUNTS_SUFFIX, records_in
from strandline.log.segment.segment import Segment
from strandline.log.segment.unverified import Stretch

PIECE_BYTES: Final = 1024 * 1024
EPOCH_LIMIT: Final = 2**31 - 1


class Hole(NamedTuple):
    """Offsets whose batches are damaged: from the first that is missing up to the next that is not."""

    start_offset: int
    end_offset: int


class RebuiltSegment:
    """The replacement of `segment`, which ends before `end_offset`. All methods run in a thread."""

    def __init__(self, segment: Segment, end_offset: int) -> None:
        self._damaged = segment
        self.end_offset = end_offset
        self._directory = segment.path.parent
        self._position = 0
        self._next_offset = segment.base_offset
        source = SourceSegment(segment.base_offset, segment.size_bytes, end_offset, segment.has_transaction_index)
        self._made = CleanedSegment(
            self._directory,
            [source],
            disk=segment.disk,
            index_interval_bytes=segment.index_interval_bytes,
            pace=Pace(0, is_stopped=lambda: False, sleep=lambda _: None),
        )

    def copy_some(self) -> Hole | bool:
        """Copy what is sound from where it stands: True if there is more, False at the end.

        Or what is missing, if it stands at damage; it stands behind that afterwards.
        """
        segment = self._damaged
        if self._position >= segment.size_bytes:
            return False
        stretch = self._stretch()
        if stretch.fault is not None:
            return self._skip()
        file, size = segment.file(), min(stretch.end - self._position, PIECE_BYTES)
        size = max(size, PREFIX.unpack(file.read_at(self._position, PREFIX_SIZE))[1] + PREFIX_SIZE)
        run = memoryview(file.read_at(self._position, min(size, stretch.end - self._position)))
        # Once more: these are the very bytes that are written.
        headers, size = check_run(run, next_offset=self._next_offset, leader_epoch=EPOCH_LIMIT)
        if not headers:
            raise CorruptLog(f"{segment.path}: no batch at position {self._position}, which was sound before")
        self.add(run[:size], headers)
        self._position += size
        self._next_offset = headers[-1][BASE_OFFSET] + headers[-1][LAST_OFFSET_DELTA] + 1
        return True

    def _stretch(self) -> Stretch:
        """Return what is known of the place where it stands; looked at now if nothing is."""
        segment = self._damaged
        while self._position < segment.verified_from:
            unverified = segment.unverified
            stretch = None if unverified is None else unverified.at(self._position)
            if stretch is not None:
                return stretch
            if unverified is None:
                raise CorruptLog(f"{segment.path} was given up")
            check_at(segment, self._position)
        return Stretch(self._position, segment.size_bytes, self.end_offset)

    def _skip(self) -> Hole | bool:
        start, segment = self._next_offset, self._damaged
        while self._position < segment.size_bytes:
            stretch = self._stretch()
            if stretch.fault is None:
                break
            self._position = stretch.end
        self._next_offset = self.end_offset
        if self._position < segment.size_bytes:
            self._next_offset = PREFIX.unpack(segment.file().read_at(self._position, PREFIX_SIZE))[0]
        return Hole(start, self._next_offset) if start < self._next_offset else True

    def add(self, run: Buffer, headers: Sequence[HeaderFields]) -> None:
        """Append the next batches, back to back in `run`."""
        for header in headers:
            base_offset, length, _, _, _, _, last_offset_delta, _, max_timestamp, *_ = header
            last_offset = base_offset + last_offset_delta
            self._made.note(base_offset, last_offset, max_timestamp, length + PREFIX_SIZE, records_in(header))
        self._made.add_run(run)
        self._made.write()

    def finish(self) -> CleanedGroup:
        """Complete the files and sync them."""
        damaged, disk = self._damaged, self._damaged.disk
        group = self._made.finish()
        self._made.close()
        # Those are of a cleaned segment, from which aborted records are gone. Here they are as they were.
        disk.remove(self._directory / (file_stem(group.base_offset) + COUNTS_SUFFIX + CLEANED_SUFFIX))
        suffixes = [suffix for suffix in group.suffixes if suffix != COUNTS_SUFFIX]
        if damaged.has_transaction_index:
            path = self._directory / (file_stem(group.base_offset) + TRANSACTION_INDEX_SUFFIX + CLEANED_SUFFIX)
            disk.write_whole(path, damaged.transaction_index.to_bytes(), sync=True)
            suffixes.append(TRANSACTION_INDEX_SUFFIX)
        return group._replace(suffixes=tuple(suffixes), has_transaction_index=damaged.has_transaction_index)

    def discard(self) -> None:
        self._made.close()
        self._made.remove()


def rebuild_indexes(segment: Segment) -> None:
    """Rebuild the indexes of a sealed segment from its batches. Runs in a thread."""
    index, time_index = OffsetIndex(), TimeIndex()
    since, largest_ms, largest_at = 0, -1, segment.base_offset
    for header, position in segment.headers(0, may_block=True):
        if header.max_timestamp > largest_ms:
            largest_ms, largest_at = header.max_timestamp, header.last_offset
        if since > segment.index_interval_bytes:
            index.append(header.last_offset - segment.base_offset, position)
            time_index.maybe_append(largest_ms, largest_at - segment.base_offset)
            since = 0
        since += header.size_bytes
    time_index.maybe_append(largest_ms, largest_at - segment.base_offset)
    segment.disk.write_whole(segment.path.with_suffix(INDEX_SUFFIX), index.to_bytes(), sync=True)
    segment.disk.write_whole(segment.path.with_suffix(TIME_INDEX_SUFFIX), time_index.to_bytes(), sync=True)
