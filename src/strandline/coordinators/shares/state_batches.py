"""The batches of one share partition: sorted ranges of offsets that do not overlap, each with state and delivery count.

Where two batches cover an offset, the higher delivery count wins, and at equal counts the higher state. So batches may
be merged in any order, and twice, with the same result. Neighbours that are alike are joined.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from operator import itemgetter

from strandline.coordinators.shares.share_state import StateBatch

_first = itemgetter(0)
_last = itemgetter(1)


class StateBatches:
    """Batches that others are merged into, a few at a time: the cost is that of the batches they touch."""

    __slots__ = ("_sorted",)

    def __init__(self, batches: Iterable[StateBatch] = ()) -> None:
        self._sorted: list[StateBatch] = []
        self.merge(batches)

    def __iter__(self) -> Iterator[StateBatch]:
        return iter(self._sorted)

    def __len__(self) -> int:
        return len(self._sorted)

    def merge(self, batches: Iterable[StateBatch]) -> None:
        """Take further batches, which may overlap each other."""
        for batch in batches:
            self._put(batch)

    def cut(self, start_offset: int) -> None:
        """Forget everything below `start_offset`."""
        batches = self._sorted
        del batches[: bisect_left(batches, start_offset, key=_last)]
        if batches and batches[0].first_offset < start_offset:
            batches[0] = batches[0]._replace(first_offset=start_offset)

    def _put(self, new: StateBatch) -> None:
        batches = self._sorted
        # A neighbour without a gap is touched too, because it may be joined.
        low = bisect_left(batches, new.first_offset - 1, key=_last)
        high = bisect_right(batches, new.last_offset + 1, low, key=_first)
        if low == high:
            batches.insert(low, new)
        else:
            batches[low:high] = _merged(batches[low:high], new)


def joined(batches: Iterable[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches in order, without what is below the start offset, and neighbours that are alike as one."""
    result: list[StateBatch] = []
    for first, last, state, count in sorted(batches):
        if last < start_offset:
            continue
        if result and result[-1][1] + 1 == first and result[-1][2:] == (state, count):
            result[-1] = StateBatch(result[-1].first_offset, last, state, count)
        else:
            result.append(StateBatch(max(first, start_offset), last, state, count))
    return tuple(result)


def _merged(touched: list[StateBatch], new: StateBatch) -> list[StateBatch]:
    """Return sorted batches with `new` in them."""
    merged: list[StateBatch] = []
    position = new.first_offset
    """The first offset of `new` that is not in `merged` yet."""
    for old in touched:
        first, last, _, _ = old
        if first < new.first_offset:
            _add(merged, old, first, min(last, new.first_offset - 1))
        if position < first:
            _add(merged, new, position, min(first - 1, new.last_offset))
            position = min(first, new.last_offset + 1)
        both_first, both_last = max(first, new.first_offset), min(last, new.last_offset)
        if both_first <= both_last:
            _add(merged, new if _rank(new) > _rank(old) else old, both_first, both_last)
            position = both_last + 1
        if last > new.last_offset:
            _add(merged, old, max(first, new.last_offset + 1), last)
    if position <= new.last_offset:
        _add(merged, new, position, new.last_offset)
    return merged


def _rank(batch: StateBatch) -> tuple[int, int]:
    return batch.delivery_count, batch.state


def _add(merged: list[StateBatch], batch: StateBatch, first_offset: int, last_offset: int) -> None:
    """Add the part of `batch` between two offsets, or none if they leave nothing; join it with the one before."""
    if first_offset > last_offset:
        return
    if merged:
        before = merged[-1]
        if before.last_offset + 1 == first_offset and before[2:] == batch[2:]:
            merged[-1] = before._replace(last_offset=last_offset)
            return
    merged.append(StateBatch(first_offset, last_offset, batch.state, batch.delivery_count))
