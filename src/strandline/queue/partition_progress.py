"""How far the work on one partition is, where records finish in any order. Pure.

What is committed is the lowest unfinished offset; its metadata has the finished ones above it. So a restart works again
only on what was not finished. Offsets that the log does not have, as compacted ones, count as finished.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Final

from strandline.queue.finished_offsets import SPAN_MAX, UNFINISHED_MAX, decode_finished, encode_finished

NO_OFFSET: Final = -1
"""The position in a partition of which nothing was committed or taken."""


class PartitionProgress:
    """The offsets of one partition that are unfinished, finished, or still to come."""

    __slots__ = ("_finished_up_to", "_heap", "_restored", "_unfinished", "position")

    def __init__(self, committed: int, metadata: str = "") -> None:
        self.position = committed
        """The offset behind the last one that was taken."""
        self._restored = decode_finished(committed, metadata)
        """Ranges from the position on that an earlier consumer has finished, the last one first."""
        self._restored.reverse()
        self._unfinished: set[int] = set()
        """Offsets that were taken and are not finished."""
        self._heap: list[int] = []
        """The same; finished ones are dropped when they come up."""
        self._finished_up_to = committed
        """The offset behind the highest one that was finished since."""

    @property
    def unfinished(self) -> int:
        return len(self._unfinished)

    def has_room(self, offset: int) -> bool:
        """Return whether an offset can be taken so that the metadata will fit whatever finishes first."""
        end = max(offset, self._restored[0][1] if self._restored else 0) + 1
        return (
            end - self.committable <= SPAN_MAX
            or len(self._unfinished) + len(self._restored) < UNFINISHED_MAX
            or not self._unfinished
        )

    def take(self, offset: int) -> bool:
        """Return whether a record that was read must be worked on. It is not if it was finished before."""
        if offset < self.position:
            # The log was truncated, and has other records in place of those that were read.
            self._unfinished = {each for each in self._unfinished if each < offset}
            self._restored = []
            self._finished_up_to = min(self._finished_up_to, offset)
        self.position = offset + 1
        while self._restored and self._restored[-1][1] < offset:
            self._finished_up_to = max(self._finished_up_to, self._restored.pop()[1] + 1)
        if self._restored and self._restored[-1][0] <= offset:
            self._finished_up_to = max(self._finished_up_to, offset + 1)
            return False
        self._unfinished.add(offset)
        heappush(self._heap, offset)
        return True

    def finish(self, offset: int) -> None:
        """Note that the work on a record is done."""
        if offset in self._unfinished:
            self._unfinished.remove(offset)
            self._finished_up_to = max(self._finished_up_to, offset + 1)

    @property
    def committable(self) -> int:
        """Return the lowest unfinished offset."""
        while self._heap and self._heap[0] not in self._unfinished:
            heappop(self._heap)
        if self._heap:
            return self._heap[0]
        offset = self.position
        for first, last in reversed(self._restored):
            if not first <= offset <= last + 1:
                break
            offset = max(offset, last + 1)
        return offset

    def metadata(self) -> str:
        """Return the finished offsets above the committable one, as text."""
        base = self.committable
        finished: list[tuple[int, int]] = []
        at = base
        for offset in sorted(self._unfinished):
            if offset >= self._finished_up_to:
                break
            if offset > at:
                finished.append((at, offset - 1))
            at = offset + 1
        if base <= at < self._finished_up_to:
            finished.append((at, self._finished_up_to - 1))
        for first, last in reversed(self._restored):
            if last >= max(self._finished_up_to, base):
                finished.append((max(first, self._finished_up_to, base), last))
        return encode_finished(base, finished) if finished else ""
