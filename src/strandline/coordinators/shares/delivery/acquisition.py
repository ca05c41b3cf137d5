"""The choice of what a member gets: records that were released, in the order of offsets, then new ones.

Records that were delivered often come in ever smaller parts and by themselves, and at their last delivery one by one:
one record that kills its consumers must not archive its neighbours.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

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


class LogBatches(Protocol):
    """The record batches that were read from the log, from the one that holds the next offset on."""

    @property
    def first_offset(self) -> int:
        """Return the base offset of the first batch."""

    def cover(self, offset: int) -> int:
        """Return the last offset of the first batch that ends at `offset` or behind it, else that of the last batch."""

    def bases(self, first: int, last: int) -> list[int]:
        """Return the base offsets of the batches that begin between two offsets."""


class DeliveryRanges(Protocol):
    """A share partition, as records are acquired from it."""

    ranges: OffsetRanges
    start_offset: int
    end_offset: int

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

    __slots__ = ("_batches", "_is_strict", "_left", "_lock", "_partition", "_records_max", "_settings", "taken")

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
        self.taken: list[AcquiredRange] = []

    def take_released(self, offset: int) -> bool:
        """Acquire available records from `offset` on. Return whether new ones may follow."""
        ranges = self._partition.ranges
        at = ranges.index(offset)
        while at < len(ranges):
            found = ranges.ranges[at]
            if found.state == AVAILABLE and found.change is None:
                if self._is_far(found.first):
                    return False
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
        found.state = ACQUIRED
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
            if found.state == AVAILABLE and found.change is None:
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
        room = self._settings.record_locks_max - (partition.end_offset - partition.start_offset)
        count = min(self._left, room)
        first = max(partition.end_offset, self._batches.first_offset)
        if count <= 0:
            return
        covered = self._batches.cover(first + count - 1)
        if covered < first:
            return
        last = min(covered, first + count - 1) if self._is_strict else covered
        if first > partition.end_offset:
            partition.append(DeliveryRange(partition.end_offset, first - 1, GAP, 0, (partition.end_offset, first - 1)))
        begin = first
        if not self._is_strict and last - first + 1 > batch_size:
            for base in self._batches.bases(first + 1, last):
                if base - begin >= batch_size:
                    self._append(begin, base - 1)
                    begin = base
        self._append(begin, last)

    def _append(self, first: int, last: int) -> None:
        new = DeliveryRange(first, last, ACQUIRED, 1, (first, last))
        new.lock = self._lock
        self._partition.append(new)
        self._note(new)

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
