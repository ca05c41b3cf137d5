"""What is counted of one API's requests: plain ints, written by the connection, read when somebody looks.

Times fall into buckets by their number of bits: bucket `b` holds what took from 2^(b-1) up to 2^b - 1 nanoseconds.
That is one call and one addition, and a factor of two is as fine as anybody reads a latency.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

BUCKETS: Final = 64
FIRST_SHOWN: Final = 14
"""2^14 ns are 16 us: no request is quicker by much."""
LAST_SHOWN: Final = 36
"""2^36 ns are 69 s: longer than any client waits."""


class RequestMeter:
    __slots__ = (
        "at_once",
        "at_once_ns",
        "errors",
        "name",
        "request_bytes",
        "response_bytes",
        "unanswered",
        "waited",
        "waited_ns",
    )

    def __init__(self, name: str) -> None:
        self.name = name
        self.request_bytes = 0
        self.response_bytes = 0
        self.at_once = [0] * BUCKETS
        """Answered in the turn of the loop in which they came; on a busy node a part of them."""
        self.at_once_ns = 0
        self.waited = [0] * BUCKETS
        """Waited, for a flush, for records to come or for other members of a group."""
        self.waited_ns = 0
        self.unanswered = 0
        """Done without an answer: Produce with acks=0, and whoever hung up first."""
        self.errors: dict[int, int] = {}
        """By error code, as often as a partition, a topic or the whole request was answered with it."""

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


def cumulative(buckets: list[int]) -> Iterator[tuple[float, int]]:
    """(upper bound in seconds, how many took at most that long), the shown buckets only; the rest is `+Inf`."""
    count = sum(buckets[:FIRST_SHOWN])
    for bits in range(FIRST_SHOWN, LAST_SHOWN + 1):
        count += buckets[bits]
        yield (1 << bits) / 1e9, count
