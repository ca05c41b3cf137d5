"""A limit on bytes a second, over a window of some seconds, for all transfers of a node in one direction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.waiting import pause

LOOK_S_MAX: Final = 1.0
"""A waiting transfer looks again after so long, because an administrator may have raised the limit."""


class ByteLimit(NamedTuple):
    bytes_per_s: int
    window_s: int
    """Bytes of so many seconds may pass at once."""


class ByteRate:
    """What passed lately. A transfer begins while that is below the limit, whatever its own size, as in Kafka."""

    def __init__(self, runtime: Runtime, limit: Callable[[], ByteLimit]) -> None:
        self._runtime = runtime
        self._limit = limit
        self._passed = 0.0
        """Bytes that count; the limit takes so many away each second."""
        self._counted_at = runtime.monotonic()

    def count(self, size_bytes: int) -> None:
        self._excess()
        self._passed += size_bytes

    async def wait(self) -> None:
        """Return when a transfer may begin."""
        while (excess := self._excess()) > 0:
            # Not less than a millisecond: what is left of a byte must not keep the loop busy.
            after_s = max(0.001, excess / self._limit().bytes_per_s)
            await pause(self._runtime, min(after_s, LOOK_S_MAX))

    def _excess(self) -> float:
        """Return by how many bytes the limit is exceeded; zero or less if a transfer may begin."""
        now, limit = self._runtime.monotonic(), self._limit()
        self._passed = max(0.0, self._passed - (now - self._counted_at) * limit.bytes_per_s)
        self._counted_at = now
        return self._passed - limit.bytes_per_s * limit.window_s
