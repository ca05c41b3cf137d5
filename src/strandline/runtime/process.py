"""Figures of this process from the operating system, and the pauses of Python's garbage collector."""

from __future__ import annotations

import gc
import os
import resource
import time
from pathlib import Path
from typing import Final

_STATM: Final = Path("/proc/self/statm")
_FDS: Final = "/proc/self/fd"


def cpu_seconds() -> float:
    return time.process_time()


def resident_bytes() -> int:
    """Return the resident set size now, or its maximum so far where there is no /proc."""
    try:
        return int(_STATM.read_text().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def open_descriptors() -> int | None:
    try:
        return len(os.listdir(_FDS))
    except OSError:
        return None


class GcPauses:
    """The pauses of the collector, which can run at any moment and so can cause a stall of the loop."""

    def __init__(self) -> None:
        self.pauses = 0
        self.total_s = 0.0
        self.longest_s = 0.0
        self.unread_longest_s = 0.0
        """The longest since a reader last reset this to 0, which names the cause of a stall."""
        self._began = 0.0

    def start(self) -> None:
        gc.callbacks.append(self._on_gc)

    def stop(self) -> None:
        if self._on_gc in gc.callbacks:
            gc.callbacks.remove(self._on_gc)

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._began = time.perf_counter()
            return
        elapsed_s = time.perf_counter() - self._began
        self.pauses += 1
        self.total_s += elapsed_s
        self.longest_s = max(self.longest_s, elapsed_s)
        self.unread_longest_s = max(self.unread_longest_s, elapsed_s)
