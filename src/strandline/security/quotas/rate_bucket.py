"""A rate over sliding windows, and how long a client waits that is above it.

Use is summed in samples of one window each. A sample counts until `windows` windows have passed since its last use. The
time that the rate is measured over begins with the oldest sample, and is at least `windows - 1` windows and the
present fraction of one. So a client that was idle may take that much at once.

    throttle = (rate - limit) / limit x time measured over

Kafka forgets a sample whole when it is too old, also what it had above the limit. Twenty clients that share a quota and
send large requests then get 15 % more than it. Here that excess is carried into what is counted, up to what the
limit allows in all windows together.
"""

from __future__ import annotations

from collections import deque
from math import floor, inf
from typing import Final

MS_PER_S: Final = 1000.0


class RateBucket:
    """The use of one quota by the clients that share it."""

    __slots__ = (
        "_ends_ms",
        "_expires_ms",
        "_last_ms",
        "_least_ms",
        "_past",
        "_safe",
        "_span_ms",
        "_start_ms",
        "_started_ms",
        "_total",
        "_value",
        "_window_ms",
        "limit",
        "logged_ms",
        "throttle_ms_max",
        "throttled_ms",
    )

    def __init__(self, limit: float, *, windows: int, window_ms: int, throttle_ms_max: int) -> None:
        self._window_ms = window_ms
        self._least_ms = (windows - 1) * window_ms
        self._span_ms = windows * window_ms
        self.throttle_ms_max = throttle_ms_max
        self.throttled_ms = 0
        """All throttle times of its clients together."""
        self.logged_ms = -inf
        """When it was last logged that its clients are throttled."""
        self._past: deque[tuple[float, float, float]] = deque()
        """Older samples: when each began, when it was last used, its sum."""
        self._total = 0.0
        self._value = 0.0
        self._start_ms = self._started_ms = self._last_ms = 0.0
        """When the oldest sample began, when the present one did, and when it was last used."""
        self._ends_ms = self._expires_ms = -inf
        """When the present sample is complete, and when the oldest one no longer counts. Before the first: never."""
        self.set_limit(limit)

    def set_limit(self, limit: float) -> None:
        """Put another limit in force; what was used stays counted."""
        self.limit = limit
        self._safe = limit * self._least_ms / MS_PER_S
        """Use that is never above the limit, however short the time measured over."""

    @property
    def burst(self) -> float:
        """The most that may be charged at once without a throttle, if nothing else was."""
        return self._safe

    def charge(self, value: float, now_ms: float) -> int:
        """Count `value` and return for how many milliseconds the client is to be throttled."""
        if now_ms >= self._ends_ms or now_ms >= self._expires_ms:
            self._advance(now_ms)
        self._value += value
        self._total += value
        self._last_ms = now_ms
        return 0 if self._total <= self._safe else self._throttle_ms(now_ms)

    def take_back(self, value: float) -> None:
        """Undo the last `charge` of this value."""
        self._value -= value
        self._total -= value

    def rate(self, now_ms: float) -> float:
        """Return the use per second."""
        self._forget(now_ms)
        return self._total * MS_PER_S / self._measured_ms(now_ms)

    def is_idle(self, now_ms: float) -> bool:
        """Return whether nothing counts any more, so that a new bucket would do as well."""
        self._forget(now_ms)
        return self._total <= 0.0

    def _measured_ms(self, now_ms: float) -> float:
        elapsed_ms = now_ms - self._start_ms
        if elapsed_ms < self._least_ms:
            elapsed_ms = self._least_ms + elapsed_ms % self._window_ms
        return max(elapsed_ms, 1.0)

    def _throttle_ms(self, now_ms: float) -> int:
        throttle_ms = floor(self._total * MS_PER_S / self.limit - self._measured_ms(now_ms) + 0.5)
        return max(0, min(throttle_ms, self.throttle_ms_max))

    def _advance(self, now_ms: float) -> None:
        """Forget samples that are too old, and begin another if the present one is complete."""
        self._forget(now_ms)
        if now_ms >= self._ends_ms:
            self._begin_sample(now_ms)
            self._note_oldest()

    def _begin_sample(self, now_ms: float) -> None:
        if self._ends_ms > -inf:
            self._past.append((self._started_ms, self._last_ms, self._value))
        self._value = 0.0
        self._started_ms = self._last_ms = now_ms
        self._ends_ms = now_ms + self._window_ms

    def _forget(self, now_ms: float) -> None:
        past = self._past
        if now_ms - self._last_ms >= self._span_ms:
            # Nothing was charged for so long that only what is carried may count.
            self._begin_sample(now_ms)
        while past and now_ms - past[0][1] >= self._span_ms:
            began_ms, _, value = past.popleft()
            next_ms = past[0][0] if past else self._started_ms
            share = self.limit * (next_ms - began_ms) / MS_PER_S
            excess = min(max(0.0, value - share), self.limit * self._span_ms / MS_PER_S)
            self._total -= value - excess
            if past:
                began_ms, last_ms, value = past[0]
                past[0] = began_ms, last_ms, value + excess
            else:
                self._value += excess
        self._note_oldest()

    def _note_oldest(self) -> None:
        past = self._past
        self._start_ms = past[0][0] if past else self._started_ms
        self._expires_ms = (past[0][1] if past else self._last_ms) + self._span_ms
