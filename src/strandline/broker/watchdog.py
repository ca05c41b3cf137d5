"""Counts how often the loop was kept from running: a stall looks like a dead broker to everybody else.

Two figures, because a stall has two causes. `longest_s` is what others saw, and on a busy machine it is also the time
for which somebody else had the processor. `computed_s` is what we did ourselves in one turn, never more than that: of
the processor time since the last wake-up, what cannot have been used before this one was due.
"""

from __future__ import annotations

import time
from typing import Final

from strandline.runtime import Runtime

PERIOD_S: Final = 0.025
STALL_S: Final = 0.020


class Watchdog:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due = 0.0
        self._used_s = 0.0
        self.stalls = 0
        self.longest_s = 0.0
        self.computed_s = 0.0

    def start(self) -> None:
        self._used_s = time.thread_time()
        self._due = self._runtime.monotonic() + PERIOD_S
        self._runtime.call_later(PERIOD_S, self._wake)

    def _wake(self) -> None:
        late_s = self._runtime.monotonic() - self._due
        if late_s > STALL_S:
            self.stalls += 1
            self.longest_s = max(self.longest_s, late_s)
            used_s = time.thread_time() - self._used_s
            self.computed_s = max(self.computed_s, min(late_s, used_s - PERIOD_S))
        self.start()
