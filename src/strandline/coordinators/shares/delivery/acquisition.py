"""The choice of what a member gets: records that were released, in the order of offsets, then new ones.

Records that were delivered often come in ever smaller parts and by themselves, and at their last delivery one by one:
one record that kills its consumers must not archive its neighbours. The first record under a lock that timed out comes
alone: its consumer may have hung at it, and its neighbours must not wait for the next one to do so.

Where records may be held back, until they are due or behind others of their key, the two take turns: a batch of the log
becomes available, and what may be delivered of it is acquired.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from strandline.coordinators.shares.delivery.held_back import BEHIND_KEY, HeldBack
from strandline.coordinators.shares.delivery.offset_ranges import (
    ACQUIRED,
    AVAILABLE,
    GAP,
    DeliveryRange,
    OffsetRanges,
)
from strandline.coordinators.shares.delivery.record_locks import RecordLock

if TYPE_CHECKING:
    from strandline.coordinators.shares.delivery.share_settings import ShareSettings

LOOKED_MAX: Final = 1_000
"""Batches that one request looks at where records may be held back; the next request goes on."""


class LogBatches(Protocol):
    """The record batches that were read from the log, from the one that holds the next offset on."""

    @property
    def first_offset(self) -> int:
        """Return the base offset of the first batch."""

    def cover(self, offset: int) -> int:
        """Return the last offset of the first batch that ends at `offset` or behind it, else that of the last batch."""

    def bases(self, first: int, last: int) -> list[int]:
        """Return the base offsets of the batches that begin between two offsets."""

    def undue(self, first: int, last: int, now_ms: int) -> list[tuple[int, int, int]] | None:
        """Return what is not due between two offsets of a batch: first, last and earliest due time of each run.

        None if the batch cannot be opened now.
        """

    def keys(self, first: int, last: int) -> list[tuple[int, int]] | None:
        """Return the records with a key between two offsets of a batch: offset, and a hash of the key.

        None if the batch cannot be opened now.
        """


class DeliveryRanges(Protocol):
    """A share partition, as records are acquired from it."""

    ranges: OffsetRanges
    held: HeldBack
    start_offset: int
    end_offset: int

    @property
    def next_offset(self) -> int:
        """Return the first offset that may be acquired."""

    @property
    def unseen_offset(self) -> int:
        """Return the first offset that was not looked at."""

    def room(self, settings: ShareSettings) -> int:
        """Return how many new records may be acquired."""

    def append(self, new: DeliveryRange) -> None:
        """Put a range behind the end offset."""

    def offer(self, available: DeliveryRange) -> None:
        """Remember where an available range begins."""


class AcquiredRange(NamedTuple):
    """Records that a member was given."""

    first: int
    last: int
    delivery_count: int
    """How often they were delivered, this time included."""


class Acquisition:
    """One request of a member for records of one share partition."""

    __slots__ = (
        "_batches",
        "_is_strict",
        "_left",
        "_lock",
        "_looked",
        "_now_ms",
        "_partition",
        "_records_max",
        "_settings",
        "_sifted",
        "taken",
    )

    def __init__(
        self,
        partition: DeliveryRanges,
        lock: RecordLock,
        batches: LogBatches,
        settings: ShareSettings,
        *,
        records_max: int,
        is_strict: bool,
    ) -> None:
        self._partition = partition
        self._lock = lock
        self._batches = batches
        self._settings = settings
        self._records_max = self._left = records_max
        self._is_strict = is_strict
        """Whether `records_max` holds to the record; else whole batches of the log are acquired."""
        self._now_ms: int | None = None
        """The time by which records are due; None if all are."""
        self._sifted = -1
        """The due times of records up to this offset are known."""
        self._looked = 0
        """Batches that were looked at."""
        self.taken: list[AcquiredRange] = []

    def take_by_turns(self, now_ms: int | None) -> None:
        """Acquire what is available, then look at one more batch, and so on. Records are due by `now_ms` if given."""
        self._now_ms = now_ms
        while self.take_released(self._partition.next_offset) and self._look():
            pass

    def take_released(self, offset: int) -> bool:
        """Acquire available records from `offset` on. Return whether new ones may follow."""
        ranges = self._partition.ranges
        at = ranges.index(offset)
        while at < len(ranges):
            found = ranges.ranges[at]
            if self._is_far(found.first):
                return False
            if found.state == AVAILABLE and found.change is None and not found.held:
                if self._now_ms is not None and not found.count and found.first > self._sifted:
                    if not self._sift(at, self._now_ms):
                        return False
                    at = ranges.index(found.first if self.taken else self._partition.next_offset)
                    continue
                if found.is_suspect:
                    if not self.taken:
                        self._take(at, 1)
                        return False
                    at += 1
                    continue
                if found.count >= self._settings.shrinks_from:
                    if not self.taken:
                        self._take_shrunk(at)
                    return False
                if self._take(at, self._left) < found.first or self._left <= 0:
                    return False
            at += 1
        return not self._is_far(self._partition.end_offset)

    def _is_far(self, offset: int) -> bool:
        """Return whether more records than the client asked for are between: they would be sent, and not be its own."""
        return bool(self.taken) and offset - self.taken[-1].last > self._records_max

    def _take(self, at: int, records_max: int, *, is_strict: bool = False) -> int:
        """Acquire a range, or the beginning of it. Return the last offset acquired, or the one before the range."""
        ranges = self._partition.ranges
        found = ranges.ranges[at]
        target = min(found.last, found.first + records_max - 1)
        covered = self._batches.cover(target)
        if covered < found.first:
            return found.first - 1
        last = min(target if self._is_strict or is_strict else found.last, covered)
        if last < found.last:
            self._partition.offer(ranges.split(at, last + 1))
        if not found.count:
            found.batch = found.first, last
        found.state, found.is_suspect = ACQUIRED, False
        found.count += 1
        found.lock = self._lock
        self._note(found)
        return last

    def _take_shrunk(self, at: int) -> None:
        """Acquire a part of records that were delivered often; the oftener, the smaller."""
        ranges, settings = self._partition.ranges, self._settings
        found = ranges.ranges[at]
        batch, count = found.batch, found.count
        size = batch[1] - batch[0] + 1
        left = max(1, size >> (count - settings.shrinks_from + 1))
        if settings.delivery_count_limit > 2 and count >= settings.delivery_count_limit - 1:
            left = 1
        if self._is_strict:
            left = min(left, self._left)
        while left > 0 and at < len(ranges):
            found = ranges.ranges[at]
            if found.state == AVAILABLE and found.change is None and not found.held and not found.is_suspect:
                if found.batch != batch or found.count != count:
                    return
                first, end = found.first, found.last
                last = self._take(at, left, is_strict=True)
                left -= last - first + 1
                if last < end:
                    return
            elif found.first > batch[1]:
                return
            at += 1

    def take_new(self, batch_size: int) -> None:
        """Acquire records behind the end offset, in ranges of about `batch_size`."""
        partition = self._partition
        count = min(self._left, partition.room(self._settings))
        first = max(partition.end_offset, self._batches.first_offset)
        if count <= 0:
            return
        covered = self._batches.cover(first + count - 1)
        if covered < first:
            return
        last = min(covered, first + count - 1) if self._is_strict else covered
        self._append_gap(first)
        begin = first
        if not self._is_strict and last - first + 1 > batch_size:
            for base in self._batches.bases(first + 1, last):
                if base - begin >= batch_size:
                    self._append(begin, base - 1)
                    begin = base
        self._append(begin, last)

    def _append_gap(self, end: int) -> None:
        """Put offsets behind the end offset that the log does not have."""
        first = self._partition.end_offset
        if first < end:
            self._partition.append(DeliveryRange(first, end - 1, GAP, 0, (first, end - 1)))

    def _append(self, first: int, last: int) -> None:
        new = DeliveryRange(first, last, ACQUIRED, 1, (first, last))
        new.lock = self._lock
        self._partition.append(new)
        self._note(new)

    def _look(self) -> bool:
        """Make the next batch available, as far as its keys allow. Return False if there is none, or no room."""
        partition = self._partition
        first = max(partition.unseen_offset, self._batches.first_offset)
        is_new = first >= partition.end_offset
        if self._looked >= LOOKED_MAX or self._is_far(first) or (is_new and partition.room(self._settings) <= 0):
            return False
        last = self._batches.cover(first)
        keyed = None if last < first else [] if partition.held.keys is None else self._batches.keys(first, last)
        if keyed is None:
            return False
        self._looked += 1
        if last >= partition.end_offset:
            self._append_gap(first)
            new = DeliveryRange(partition.end_offset, last, AVAILABLE, 0, (first, last))
            partition.append(new)
            if partition.held.keys is None:
                partition.offer(new)
            else:
                partition.held.hold(new, BEHIND_KEY)
                partition.ranges.join(new)
        if partition.held.keys is not None:
            partition.held.scan(last, keyed)
        return True

    def _sift(self, at: int, now_ms: int) -> bool:
        """Hold back what is not due of the first batch in an available range. Return False if that is unknown."""
        partition, ranges = self._partition, self._partition.ranges
        found = ranges.ranges[at]
        last = min(found.last, self._batches.cover(found.first))
        if last < found.first or self._looked >= LOOKED_MAX:
            return False
        undue = self._batches.undue(found.first, last, now_ms)
        if undue is None:
            return False
        self._looked += 1
        self._sifted = last
        if last < found.last:
            partition.offer(ranges.split(at, last + 1))
        for begin, end, due_ms in undue:
            if ranges.ranges[at].first < begin:
                ranges.split(at, begin)
                at += 1
            waiting = ranges.ranges[at]
            if end < waiting.last:
                partition.offer(ranges.split(at, end + 1))
            partition.held.delay(waiting, due_ms)
            ranges.join(waiting)
            at = ranges.index(end + 1)
        return True

    def _note(self, acquired: DeliveryRange) -> None:
        self._left -= len(acquired)
        batch = acquired.batch
        is_whole = batch[0] == acquired.first and batch[1] == acquired.last
        self._lock.add(batch if is_whole else (acquired.first, acquired.last))
        taken = self.taken
        before = taken[-1] if taken else None
        # Ranges of new records stay apart: they have the size that the client asked for.
        if before is not None and before.last + 1 == acquired.first and before.delivery_count == acquired.count > 1:
            taken[-1] = AcquiredRange(before.first, acquired.last, acquired.count)
        else:
            taken.append(AcquiredRange(acquired.first, acquired.last, acquired.count))


def is_among(taken: Iterable[AcquiredRange], found: DeliveryRange) -> bool:
    """Return whether a range is part of what was acquired."""
    return any(each.first <= found.first and found.last <= each.last for each in taken)


def without(taken: AcquiredRange, first: int, last: int) -> list[AcquiredRange]:
    """Return what is left of acquired records outside of an aborted range."""
    if last < taken.first or taken.last < first:
        return [taken]
    pieces = []
    if taken.first < first:
        pieces.append(AcquiredRange(taken.first, first - 1, taken.delivery_count))
    if last < taken.last:
        pieces.append(AcquiredRange(last + 1, taken.last, taken.delivery_count))
    return pieces
