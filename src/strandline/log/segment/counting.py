"""How many records a reader gets between two offsets of a log, exactly.

Counting is a generator like a search by time (`time_lookup` says what it yields): what memory and the page cache know
is counted at once, the rest a share per turn of the loop, with a thread where the disk is waited for. A segment without
counts is walked over, header by header, once; they are written beside it then. One at a time does so (`OPENS`).

Aborted transactions are known by the `.txnindex` files. In a segment that they reach into, a second count without their
records is made as far as it is wanted, and takes the place of the first when the segment is sealed and all in it is
decided. Below the last stable offset decisions are final, so it only ever grows.

The log may be cut, trimmed or cleaned meanwhile: `LogChanged` says that what was counted is of two logs.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from strandline.codec.columns.shares import RecordScan
from strandline.codec.record_batch import HEADER_SIZE, BatchHeader
from strandline.errors import BatchTooLarge, WorldError
from strandline.log.segment.aborted_transactions import AbortedRanges, aborted_segments
from strandline.log.segment.header_walk import headers_in
from strandline.log.segment.record_counts import Count, CountsBuilder, RecordCounts, records_in
from strandline.log.segment.segment import WALK_CHUNK_BYTES, ColdRead, Segment
from strandline.log.segment.segment_counts import load_counts, write_counts
from strandline.log.segment.time_lookup import OPENED_RECORDS_MAX, OPENS, RECORDS_PER_TURN_MAX, Part, opened, read_part

if TYPE_CHECKING:
    from strandline.log.partition_log import PartitionLog

HEADERS_PER_TURN_MAX: Final = 250
"""Batches that are walked over in one turn of the loop: half a millisecond."""
TRANSACTIONS_MAX: Final = 1_000
"""Aborted transactions that are gathered for one stretch of a walk; the next stretch gathers its own."""
ALL: Final = 1 << 62
COLD_CHUNK_BYTES: Final = 256 * 1024
"""What a thread reads where the page cache has nothing."""
_LARGE_BATCH_BYTES: Final = 4 * 1024
"""Behind a batch of this size only the next header is read, and not what comes with it."""


class _Stopped(Enum):
    SHARE_DONE = 0
    COLD = 1


class LogChanged(WorldError):
    """Segments were cut, trimmed or replaced while they were counted: count again."""


def is_plain(log: PartitionLog, start_offset: int, end_offset: int) -> bool:
    """Return whether every offset of the range is known to be a record that readers get, without looking anywhere."""
    if log.has_aborted:
        return False
    bases = log.base_offsets
    first, behind = max(0, bisect_right(bases, start_offset) - 1), bisect_left(bases, end_offset)
    for at in range(first, behind):
        segment = log.segments[at]
        counts = segment.counts
        if counts is None or counts.last.offset > max(start_offset, bases[at]):
            return False
        if segment is not log.active and counts.end_offset is not None and counts.end_offset < bases[at + 1]:
            return False
    return True


def count_between(log: PartitionLog, start_offset: int, end_offset: int, *, excludes_aborted: bool) -> Part[int]:
    """The records from one offset up to another, which is not in the middle of a batch."""
    if start_offset >= end_offset:
        return 0
    first = max(0, bisect_right(log.base_offsets, start_offset) - 1)
    behind = bisect_left(log.base_offsets, end_offset)
    segments = log.segments[first:behind]
    ends = [*log.base_offsets[first + 1 : behind + 1], log.log_end_offset][: len(segments)]
    cuts = log.cuts
    total = 0
    yield from _load_counts(log, segments)
    for segment, segment_end in zip(segments, ends, strict=True):
        if segment.deleted:
            raise LogChanged(f"{segment} is gone")
        counts = segment.counts
        if (
            counts is not None
            and (counts.excludes_aborted or not excludes_aborted or not log.has_aborted)
            and start_offset <= segment.base_offset < segment_end <= end_offset
            and segment is not log.active
        ):
            # All of it counts: its file need not be opened.
            total += counts.total(segment_end)
            continue
        segment.retain()
        try:
            counting = _Segment(log, segment, segment_end)
            total += yield from counting.count(start_offset, end_offset, excludes_aborted=excludes_aborted)
        finally:
            segment.release()
    if log.cuts != cuts or any(segment.deleted for segment in segments) or log.log_start_offset > start_offset:
        raise LogChanged(f"{log.directory.name} was changed")
    return total


def _load_counts(log: PartitionLog, segments: Sequence[Segment]) -> Part[None]:
    """Read the files of sealed segments that are not in memory yet, all at once."""
    unknown = [segment for segment in segments if segment.counts is None and segment is not log.active]
    if not unknown:
        return
    loaded = yield lambda: [load_counts(segment) for segment in unknown]
    for segment, counts in zip(unknown, loaded, strict=True):
        if segment.counts is None and counts is not None and not segment.deleted:
            # Of those in the middle only the sum is wanted.
            is_end = segment is segments[0] or segment is segments[-1]
            segment.counts = counts if is_end else counts.without_entries()


class _Segment:
    """One segment while it is retained and counted."""

    def __init__(self, log: PartitionLog, segment: Segment, end_offset: int) -> None:
        self.log = log
        self.segment = segment
        self.end_offset = end_offset

    @property
    def is_active(self) -> bool:
        return self.segment is self.log.active

    def count(self, start_offset: int, end_offset: int, *, excludes_aborted: bool) -> Part[int]:
        start, end = max(start_offset, self.segment.base_offset), min(end_offset, self.end_offset)
        counts = yield from self._counts()
        may_have_aborted = excludes_aborted and not counts.excludes_aborted and self.log.has_aborted
        if may_have_aborted and (yield from self._reach_aborted(start, end)):
            counts = yield from self._delivered(end)
        below_start = 0 if start <= self.segment.base_offset else (yield from self._below(counts, start))
        return (yield from self._below(counts, end)) - below_start

    # Counts

    def _counts(self) -> Part[RecordCounts]:
        segment = self.segment
        if segment.counts is None:
            yield OPENS
            # The search before this one may have counted the same segment.
            if segment.counts is None:
                yield from self._walk_all()
        counts = segment.counts
        if counts is None:
            raise LogChanged(f"{segment} was cut")
        if self.is_active:
            # What it grows by is plain, or is noted.
            counts.end_offset = None
        return counts

    def _walk_all(self) -> Part[None]:
        segment, log, cuts = self.segment, self.log, self.log.cuts
        builder = CountsBuilder(segment.base_offset)
        # A segment that grows meanwhile is followed to its end, and known from there on: the last share is not left.
        yield from self._walk(builder, None, None)
        if log.cuts != cuts or segment.deleted:
            raise LogChanged(f"{segment} was cut")
        counts = builder.counts
        if self.is_active:
            if builder.next_offset < log.log_end_offset:
                counts.note(segment.size_bytes, 0, builder.next_offset, log.log_end_offset - 1, 0)
            counts.end_offset = None
        segment.counts = counts
        if not self.is_active:
            yield partial(_write, segment, segment.path, counts)

    def _delivered(self, end_offset: int) -> Part[RecordCounts]:
        """Counts without aborted records, from the segment's beginning up to `end_offset`."""
        segment = self.segment
        builder = segment.delivered or CountsBuilder(segment.base_offset, excludes_aborted=True)
        aborted = yield from self._aborted(builder.next_offset, end_offset)
        is_done = segment.delivered is builder and aborted.end_offset >= end_offset
        if not is_done or self._advance(builder, end_offset, aborted) is not None:
            yield OPENS
            builder = segment.delivered or CountsBuilder(segment.base_offset, excludes_aborted=True)
            # No other search may use it until it is whole again.
            segment.delivered = None
            cuts = self.log.cuts
            reached = builder.next_offset
            while reached < end_offset and builder.position < segment.size_bytes:
                aborted = yield from self._aborted(reached, end_offset)
                yield from self._walk(builder, aborted.end_offset, aborted)
                reached = aborted.end_offset
                yield None
            if self.log.cuts != cuts or segment.deleted:
                raise LogChanged(f"{segment} was cut")
            segment.delivered = builder
        if not self.is_active and builder.position >= segment.size_bytes:
            # All of it is decided: no search will need anything else.
            segment.counts, segment.delivered = builder.counts, None
            yield partial(_write, segment, segment.path, builder.counts)
        return builder.counts

    def _walk(self, builder: CountsBuilder, end_offset: int | None, aborted: AbortedRanges | None) -> Part[None]:
        """Show `builder` the batches that it has not seen, up to the segment's end or `end_offset`."""
        while (stopped := self._advance(builder, end_offset, aborted)) is not None:
            if stopped is _Stopped.SHARE_DONE:
                yield None
                self._refuse_closed()
            else:
                left = self.segment.size_bytes - builder.position
                chunk = yield partial(self.segment.file().read_at, builder.position, min(left, COLD_CHUNK_BYTES))
                self._refuse_closed()
                if not self._show(builder, chunk, end_offset, aborted):
                    return

    def _refuse_closed(self) -> None:
        """Raise the failure of a log that was closed or deleted meanwhile."""
        if self.log.failure is not None:
            raise self.log.refusal()

    def _advance(
        self, builder: CountsBuilder, end_offset: int | None, aborted: AbortedRanges | None
    ) -> _Stopped | None:
        """Count a share. Return why there is more to do, or None if it is done."""
        segment, file = self.segment, self.segment.file()
        shown = last_bytes = 0
        while builder.position < segment.size_bytes:
            if shown >= HEADERS_PER_TURN_MAX:
                return _Stopped.SHARE_DONE
            size = HEADER_SIZE if last_bytes > _LARGE_BATCH_BYTES else WALK_CHUNK_BYTES
            before = builder.position
            chunk = file.read_at_nowait(before, min(size, segment.size_bytes - before))
            if chunk is None:
                return _Stopped.COLD
            batches = self._show(builder, chunk, end_offset, aborted)
            if not batches:
                break
            shown += batches
            last_bytes = (builder.position - before) // batches
        return None

    def _show(self, builder: CountsBuilder, chunk: bytes, end_offset: int | None, aborted: AbortedRanges | None) -> int:
        """Show `builder` the batches that begin in `chunk`; how many they are, 0 if `end_offset` comes first."""
        shown = 0
        for header, at in headers_in(self.segment.path, chunk, builder.position):
            if end_offset is not None and header.base_offset >= end_offset:
                break
            records = 0 if aborted is not None and aborted.has(header) else records_in(header)
            builder.add(at, header.size_bytes, header.base_offset, header.last_offset, records)
            shown += 1
        return shown

    # Offsets

    def _below(self, counts: RecordCounts, offset: int) -> Part[int]:
        """The records of the segment below an offset."""
        if counts.end_offset is not None:
            offset = min(offset, counts.end_offset)
        known = counts.remembered(offset)
        if known is not None:
            return known
        if offset < counts.last.offset and not counts.has_entries:
            whole = yield partial(load_counts, self.segment)
            if whole is None or whole.last != counts.last:
                self.segment.counts = None
                raise LogChanged(f"{self.segment} lost its counts")
            counts = whole
            if self.segment.is_open and not self.segment.deleted:
                self.segment.counts = whole
        count, is_plain = counts.before(offset)
        if is_plain:
            return count.records + offset - count.offset
        aborted = None
        if counts.excludes_aborted and self.log.has_aborted:
            aborted = yield from self._aborted(count.offset, offset, transactions_max=ALL)
        records = yield from self._walk_to(count, offset, aborted)
        counts.remember(offset, records)
        return records

    def _walk_to(self, count: Count, offset: int, aborted: AbortedRanges | None) -> Part[int]:
        """Count on by headers, from a count to an offset that lies not far behind it."""
        segment = self.segment
        records, position = count.records, count.position
        while position < segment.size_bytes:
            chunk = yield from read_part(segment, position, min(WALK_CHUNK_BYTES, segment.size_bytes - position))
            self._refuse_closed()
            for header, at in headers_in(segment.path, chunk, position):
                if header.base_offset >= offset:
                    return records
                here = 0 if aborted is not None and aborted.has(header) else records_in(header)
                if header.last_offset >= offset:
                    return records + (yield from self._within(header, at, offset, here))
                records += here
                position = at + header.size_bytes
        return records

    def _within(self, header: BatchHeader, position: int, offset: int, records: int) -> Part[int]:
        """The records of one batch below an offset; `records` are all that count."""
        if records in (0, header.last_offset_delta + 1):
            return min(records, offset - header.base_offset)
        if records > OPENED_RECORDS_MAX:
            raise BatchTooLarge(f"{self.segment}: the batch of {records} records at {header.base_offset} is not opened")
        batch = yield from read_part(self.segment, position, header.size_bytes)
        payload = yield from opened(batch, header)
        scan = RecordScan(header, payload, records_max=RECORDS_PER_TURN_MAX)
        below = 0
        while scan.has_more:
            scan.step()
            found = bisect_left(scan.offsets, offset)
            below += found
            if found < len(scan.offsets):
                break
            if scan.has_more:
                yield None
        return below

    def _reach_aborted(self, start_offset: int, end_offset: int) -> Part[bool]:
        """Whether an aborted transaction reaches into a range."""
        return bool((yield from self._aborted(start_offset, end_offset, transactions_max=1)))

    def _aborted(
        self, start_offset: int, end_offset: int, *, transactions_max: int | None = None
    ) -> Part[AbortedRanges]:
        """The aborted transactions that reach into a range, or into a first part of it if they are more than that.

        Their markers may lie in later segments.
        """
        ranges = AbortedRanges(start_offset, end_offset, transactions_max=transactions_max or TRANSACTIONS_MAX)
        for segment in aborted_segments(self.log, start_offset):
            try:
                index = segment.load_transaction_index(may_block=False)
            except ColdRead:
                segment.retain()
                try:
                    index = yield partial(segment.load_transaction_index, may_block=True)
                finally:
                    segment.release()
            if ranges.collect(index):
                break
        return ranges


def _write(segment: Segment, path: Path, counts: RecordCounts) -> None:
    """Keep what was counted for the next time."""
    if not path.stem.isdecimal():
        # It is being replaced, or replaces another, and has no name of its own.
        return
    write_counts(segment, counts, path)
