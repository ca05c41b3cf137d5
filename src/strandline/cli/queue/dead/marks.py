"""Marks of handled dead letters (pure): records in the dead-letter topic that say which others were redriven or purged.

A mark is in the same partition as what it marks, and behind it. So retention never takes a mark before what it marks.
It has no key and no value, and these headers:

    strandline.dlq.handled    offsets of the partition, as `3,7-9`
    strandline.dlq.how        `redriven` or `purged`
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from strandline.cli.records.record import Headers, ReadRecord

HANDLED: Final = "strandline.dlq.handled"
HOW: Final = "strandline.dlq.how"


class HandledOffsets:
    """The offsets of one partition that were handled: sorted ranges that do not touch."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    def __contains__(self, offset: int) -> bool:
        at = bisect_right(self._firsts, offset) - 1
        return at >= 0 and offset <= self._lasts[at]

    def add(self, first: int, last: int) -> None:
        """Take further offsets, which may be known already."""
        low = bisect_right(self._lasts, first - 2)
        high = bisect_right(self._firsts, last + 1)
        if low < high:
            first, last = min(first, self._firsts[low]), max(last, self._lasts[high - 1])
        self._firsts[low:high], self._lasts[low:high] = [first], [last]

    def spans(self) -> list[tuple[int, int]]:
        return list(zip(self._firsts, self._lasts, strict=True))


def mark_headers(offsets: Iterable[int], how: str) -> Headers:
    """Return the headers of a mark."""
    handled = HandledOffsets()
    for offset in offsets:
        handled.add(offset, offset)
    texts = [str(first) if first == last else f"{first}-{last}" for first, last in handled.spans()]
    return [(HANDLED, ",".join(texts).encode()), (HOW, how.encode())]


def marked_spans(record: ReadRecord) -> list[tuple[int, int]] | None:
    """Return the offsets that a mark is about; None if the record is no mark. What is no range is left out."""
    text = next((value for name, value in record.headers if name == HANDLED), None)
    if text is None:
        return None
    spans = []
    for part in text.decode(errors="replace").split(","):
        first, _, last = part.partition("-")
        if first.isascii() and first.isdigit() and (not last or (last.isascii() and last.isdigit())):
            span = int(first), int(last or first)
            if span[0] <= span[1]:
                spans.append(span)
    return spans
