"""Counts how often the loop was kept from running: a stall looks like a dead broker to everybody else."""

from __future__ import annotations

from typing import Final

from strandline.runtime import Runtime

PERIOD_S: Final = 0.025
STALL_S: Final = 0.020


class Watchdog:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due = 0.0
        self.stalls = 0
        self.longest_s = 0.0

    def start(self) -> None:
        self._due = self._runtime.monotonic() + PERIOD_S
        self._runtime.call_later(PERIOD_S, self._wake)

    def _wake(self) -> None:
        late_s = self._runtime.monotonic() - self._due
        if late_s > STALL_S:
            self.stalls += 1
            self.longest_s = max(self.longest_s, late_s)
        self.start()
