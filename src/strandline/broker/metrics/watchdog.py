"""Counts how often the loop was kept from running: a stall looks like a dead broker to everybody else.

Two figures, because a stall has two causes. `longest_s` is what others saw, and on a busy machine it is also the time
for which another process had the processor. `computed_s` is what we did ourselves in one turn, never more than that: of
the processor time since the last wake-up, what cannot have been used before this one was due.

A long stall is told in words, with what ran meanwhile if that is known: one line in ten seconds, with the number of
those that were not told.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from strandline.observability.log_lines import fields
from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.node")

PERIOD_S: Final = 0.025
STALL_S: Final = 0.020
TOLD_S: Final = 0.100
"""A stall from here on has a line in the log."""
QUIET_S: Final = 10.0
"""Between two such lines."""


class Watchdog:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due = 0.0
        self._used_s = 0.0
        self.stalls = 0
        self.stalled_s = 0.0
        """All stalls together."""
        self.longest_s = 0.0
        self.computed_s = 0.0
        self.lag_s = 0.0
        """How late the loop was at the last look."""
        self.explain: Callable[[float], str] = lambda stalled_s: ""
        """Return what ran during the stall that has just ended, in words; empty if that is not known."""
        self.on_look: Callable[[], object] = lambda: None
        """Called with every look, some forty times a second."""
        self._told_at = float("-inf")
        self._untold = 0

    def start(self) -> None:
        self._used_s = time.thread_time()
        self._due = self._runtime.monotonic() + PERIOD_S
        self._runtime.call_later(PERIOD_S, self._wake)

    def _wake(self) -> None:
        now = self._runtime.monotonic()
        late_s = self.lag_s = max(0.0, now - self._due)
        if late_s > STALL_S:
            self.stalls += 1
            self.stalled_s += late_s
            self.longest_s = max(self.longest_s, late_s)
            own_s = min(late_s, time.thread_time() - self._used_s - PERIOD_S)
            self.computed_s = max(self.computed_s, own_s)
            if late_s > TOLD_S:
                self._tell(late_s, own_s, now)
        self.on_look()
        self.start()

    def _tell(self, stalled_s: float, own_s: float, now: float) -> None:
        cause = self.explain(stalled_s)
        if own_s < stalled_s / 2:
            cause = "the machine, or a disk, did not let us run"
        if now - self._told_at < QUIET_S:
            self._untold += 1
            return
        more = f"; {self._untold} more since the last such line" if self._untold else ""
        self._told_at, self._untold = now, 0
        log.warning(
            "the loop stood still for %.0f ms%s%s",
            stalled_s * 1000,
            f": {cause}" if cause else "",
            more,
            extra=fields(stalled_ms=round(stalled_s * 1000), own_ms=round(max(0.0, own_s) * 1000), cause=cause),
        )
