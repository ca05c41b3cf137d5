"""How fast a task may go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class RateLimit:
    """Records and bytes a second at most; 0 for as many as there are. A task sleeps off what a batch was too fast."""

    def __init__(self, records_s: float, bytes_s: float, clock: Callable[[], float]) -> None:
        self._records_s = records_s
        self._bytes_s = bytes_s
        self._clock = clock
        self._free_at = clock()

    @property
    def is_none(self) -> bool:
        return not self._records_s and not self._bytes_s

    def pause_s(self, records: int, size_bytes: int) -> float:
        """Count a batch, and return how long to wait before the next one."""
        cost_s = max(
            records / self._records_s if self._records_s else 0.0, size_bytes / self._bytes_s if self._bytes_s else 0.0
        )
        now = self._clock()
        self._free_at = max(self._free_at, now) + cost_s
        return self._free_at - now

    async def wait(self, records: int, size_bytes: int) -> None:
        if not self.is_none:
            await asyncio.sleep(self.pause_s(records, size_bytes))
