"""Counters of one API's requests: plain ints that the connection writes and a scrape reads.

Times fall into buckets by their number of bits: bucket `b` holds those from 2^(b-1) up to 2^b - 1 nanoseconds. That is
one call and one addition, and a factor of two is fine enough for a latency.
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
    """The counters of one API."""

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
        """Requests answered in the turn of the loop in which they came. A busy node measures a sample of them."""
        self.at_once_ns = 0
        self.waited = [0] * BUCKETS
        """Requests that waited for a flush, for new records or for other members of a group."""
        self.waited_ns = 0
        self.unanswered = 0
        """Requests without an answer: Produce with acks=0, and those whose client disconnected first."""
        self.errors: dict[int, int] = {}
        """How often a partition, a topic or a whole request was answered with an error, by error code."""

    def count_error(self, code: int) -> None:
        self.errors[code] = self.errors.get(code, 0) + 1


def cumulative(buckets: list[int]) -> Iterator[tuple[float, int]]:
    """Yield (upper bound in seconds, number of requests up to it) of the exported buckets. The rest is `+Inf`."""
    count = sum(buckets[:FIRST_SHOWN])
    for bits in range(FIRST_SHOWN, LAST_SHOWN + 1):
        count += buckets[bits]
        yield (1 << bits) / 1e9, count
