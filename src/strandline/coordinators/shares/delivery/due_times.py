"""Ranges of offsets by the time at which they may be delivered. It takes 24 bytes for each, in arrays.

Coarse buckets of a minute hold what is far away. When the minute comes, its ranges move to fine buckets. So a range is
popped at its time or up to `FINE_MS` behind it, never before it, and a bucket that is due is emptied in bounded steps.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush
from typing import Final

COARSE_MS: Final = 65_536
FINE_MS: Final = 16


class DueTimes:
    """First and last offsets of ranges, by time in milliseconds."""

    __slots__ = ("_coarse", "_coarse_order", "_fine", "_fine_order")

    def __init__(self) -> None:
        self._coarse: dict[int, array[int]] = {}
        """Time, first and last offset of each range, by the number of the bucket."""
        self._coarse_order: list[int] = []
        """A heap of the numbers."""
        self._fine: dict[int, array[int]] = {}
        """First and last offset of each range."""
        self._fine_order: list[int] = []

    def __bool__(self) -> bool:
        return bool(self._coarse or self._fine)

    @property
    def next_ms(self) -> int | None:
        """Return when to pop next; None if there is nothing."""
        coarse = self._coarse_order[0] * COARSE_MS if self._coarse_order else None
        if not self._fine_order:
            return coarse
        fine = self._fine_order[0] * FINE_MS
        return fine if coarse is None else min(coarse, fine)

    def add(self, at_ms: int, first: int, last: int) -> None:
        _bucket(self._coarse, self._coarse_order, at_ms // COARSE_MS).extend((at_ms, first, last))

    def pop(self, now_ms: int, ranges_max: int) -> list[tuple[int, int]]:
        """Remove ranges whose time has come, and return them. At most so many are looked at."""
        due: list[tuple[int, int]] = []
        left = ranges_max
        while left > 0:
            if self._coarse_order and self._coarse_order[0] * COARSE_MS <= now_ms:
                left = self._refine(left)
            elif self._fine_order and self._fine_order[0] * FINE_MS <= now_ms:
                number = self._fine_order[0]
                bucket = self._fine[number]
                while bucket and left > 0:
                    last, first = bucket.pop(), bucket.pop()
                    due.append((first, last))
                    left -= 1
                if not bucket:
                    del self._fine[heappop(self._fine_order)]
            else:
                break
        return due

    def _refine(self, left: int) -> int:
        """Move ranges of the first coarse bucket to fine ones. Return how many more may be looked at."""
        bucket = self._coarse[self._coarse_order[0]]
        while bucket and left > 0:
            last, first, at_ms = bucket.pop(), bucket.pop(), bucket.pop()
            # Rounded up, because nothing may come before its time.
            _bucket(self._fine, self._fine_order, -(-at_ms // FINE_MS)).extend((first, last))
            left -= 1
        if not bucket:
            del self._coarse[heappop(self._coarse_order)]
        return left


def _bucket(buckets: dict[int, array[int]], order: list[int], number: int) -> array[int]:
    found = buckets.get(number)
    if found is None:
        found = buckets[number] = array("q")
        heappush(order, number)
    return found
