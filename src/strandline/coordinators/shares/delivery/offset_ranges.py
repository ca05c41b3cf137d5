"""Ranges of offsets in the order of the log, each with one delivery state. Work and memory are per range."""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, Final

from strandline.coordinators.shares.share_state import DeliveryState

if TYPE_CHECKING:
    from strandline.coordinators.shares.delivery.record_locks import RecordLock

AVAILABLE: Final = int(DeliveryState.AVAILABLE)
ACQUIRED: Final = int(DeliveryState.ACQUIRED)
ACKNOWLEDGED: Final = int(DeliveryState.ACKNOWLEDGED)
ARCHIVING: Final = int(DeliveryState.ARCHIVING)
"""A dead letter whose copy is not committed yet."""
ARCHIVED: Final = int(DeliveryState.ARCHIVED)
GAP: Final = 5
"""Offsets that the log does not have; they are never stored, and an acknowledgement passes over them."""
DONE: Final = frozenset((ACKNOWLEDGED, ARCHIVED, GAP))
"""States that a record never leaves."""


class DeliveryRange:
    """Offsets from `first` to `last` that have the same state."""

    __slots__ = ("batch", "change", "count", "first", "held", "is_rejected", "is_suspect", "last", "lock", "state")

    def __init__(self, first: int, last: int, state: int, count: int, batch: tuple[int, int]) -> None:
        self.first = first
        self.last = last
        self.state = state
        self.count = count
        """How often the records were delivered."""
        self.batch = batch
        """First and last offset of what was acquired together at the first delivery."""
        self.lock: RecordLock | None = None
        """The lock of the member that holds the records, also while a change of its is not committed."""
        self.change: object | None = None
        """The change that led to `state` and is not committed yet."""
        self.is_rejected = False
        """Whether a member rejected the records, which is the cause if they become dead letters."""
        self.is_suspect = False
        """Whether it is one available record that is to be delivered alone: a member may have hung at it."""
        self.held = 0
        """Why available records are held back, as `held_back` says; 0 if a member may get them."""

    def __len__(self) -> int:
        return self.last - self.first + 1

    def __repr__(self) -> str:
        return f"<{self.first}-{self.last} state {self.state} count {self.count}>"

    def is_like(self, other: DeliveryRange) -> bool:
        """Return whether two neighbours can be one range."""
        if self.state != other.state or self.change is not None or other.change is not None:
            return False
        if self.state in DONE:
            return True
        if self.count != other.count or self.lock is not other.lock or self.held != other.held:
            return False
        if self.is_suspect or other.is_suspect:
            return False
        # The first delivery makes the batch.
        return self.batch == other.batch or not self.count


class OffsetRanges:
    """Neighbouring ranges without overlaps and without holes."""

    __slots__ = ("firsts", "ranges")

    def __init__(self) -> None:
        self.firsts: list[int] = []
        """The first offset of each range, for the search."""
        self.ranges: list[DeliveryRange] = []

    def __len__(self) -> int:
        return len(self.ranges)

    def find(self, offset: int) -> DeliveryRange | None:
        """Return the range that holds an offset."""
        at = bisect_right(self.firsts, offset) - 1
        if at < 0:
            return None
        found = self.ranges[at]
        return found if offset <= found.last else None

    def index(self, offset: int) -> int:
        """Return the index of the range that holds an offset, or of the first one behind it."""
        at = bisect_right(self.firsts, offset) - 1
        if at < 0:
            return 0
        return at if offset <= self.ranges[at].last else at + 1

    def done_below(self, offset: int) -> int:
        """Return how many of the offsets below one are done."""
        count = 0
        for found in self.ranges:
            if found.first >= offset:
                break
            if found.state in DONE:
                count += min(found.last + 1, offset) - found.first
        return count

    def append(self, new: DeliveryRange) -> None:
        self.firsts.append(new.first)
        self.ranges.append(new)

    def split(self, at: int, offset: int) -> DeliveryRange:
        """Cut the range at an index in two, so that one begins with `offset`. Return that one."""
        left = self.ranges[at]
        right = DeliveryRange(offset, left.last, left.state, left.count, left.batch)
        right.lock, right.change, right.held = left.lock, left.change, left.held
        right.is_rejected, right.is_suspect = left.is_rejected, left.is_suspect
        left.last = offset - 1
        self.firsts.insert(at + 1, offset)
        self.ranges.insert(at + 1, right)
        return right

    def suspect_first(self, held: list[DeliveryRange], count_limit: int) -> None:
        """Suspect the first record of `held`, and cut it off, unless it was delivered for the last time."""
        if held and (found := held[0]).count < count_limit:
            if len(found) > 1:
                held.insert(1, self.split(self.index(found.first), found.first + 1))
            found.is_suspect = True

    def carve(self, first: int, last: int) -> list[DeliveryRange]:
        """Return the ranges from `first` to `last`; ranges that reach beyond are cut."""
        at = self.index(first)
        ranges = self.ranges
        if at < len(ranges) and ranges[at].first < first:
            self.split(at, first)
            at += 1
        end = at
        while end < len(ranges) and ranges[end].first <= last:
            if ranges[end].last > last:
                self.split(end, last + 1)
            end += 1
        return ranges[at:end]

    def join(self, changed: DeliveryRange) -> None:
        """Make a range one with its neighbours where they are alike."""
        at = bisect_right(self.firsts, changed.first) - 1
        if at < 0 or self.ranges[at] is not changed:
            # A neighbour took it in before.
            return
        if at + 1 < len(self.ranges) and changed.is_like(self.ranges[at + 1]):
            changed.last = self.ranges[at + 1].last
            del self.ranges[at + 1], self.firsts[at + 1]
        if at and changed.is_like(self.ranges[at - 1]):
            self.ranges[at - 1].last = changed.last
            del self.ranges[at], self.firsts[at]

    def drop_front(self, count: int) -> None:
        del self.ranges[:count], self.firsts[:count]
