"""Tokens that refill with time: the quota on changes of topics and partitions (KIP-599)."""

from __future__ import annotations

from math import floor, inf
from typing import Final

MS_PER_S: Final = 1000.0


class TokenBucket:
    """The tokens that clients with one quota share. A change may take more than are left; then none are left for long.

    It begins full: `limit` tokens for each second of all windows together.
    """

    __slots__ = ("_burst_s", "_refilled_ms", "_tokens", "limit", "logged_ms", "throttled_ms")

    def __init__(self, limit: float, *, windows: int, window_ms: int, now_ms: float) -> None:
        self.limit = limit
        self._burst_s = windows * window_ms / MS_PER_S
        self._tokens = limit * self._burst_s
        self._refilled_ms = now_ms
        self.throttled_ms = 0
        """All throttle times of its clients together."""
        self.logged_ms = -inf
        """When it was last logged that its clients are throttled."""

    def set_limit(self, limit: float) -> None:
        self.limit = limit

    def charge(self, tokens: float, now_ms: float, *, is_strict: bool) -> int:
        """Take the tokens; return for how many milliseconds the client is to be throttled.

        A strict charge takes nothing while tokens are owed; then the change must be rejected.
        """
        left = self.left(now_ms)
        if not is_strict or left >= 0.0:
            self._tokens = left - tokens
            left = 0.0 if is_strict else self._tokens
        return 0 if left >= 0.0 else floor(-left / self.limit * MS_PER_S + 0.5)

    def left(self, now_ms: float) -> float:
        """Return how many tokens there are; below zero they are owed."""
        elapsed_s = (now_ms - self._refilled_ms) / MS_PER_S
        self._tokens = min(self.limit * self._burst_s, self._tokens + self.limit * elapsed_s)
        self._refilled_ms = now_ms
        return self._tokens

    def is_idle(self, now_ms: float) -> bool:
        """Return whether it is full, so that a new bucket would do as well."""
        return self.left(now_ms) >= self.limit * self._burst_s
