"""What the same computation costs from one moment to the next: how much slower the machine is than at its best."""

from __future__ import annotations

import threading
import time
from types import TracebackType

_STEPS = 100_000
_PAUSE_S = 0.05
_fastest_s = float("inf")
"""The best of all runs of this process."""


class MachineControl:
    """A thread that computes a little, again and again, and keeps the longest processor time that it took."""

    def __init__(self) -> None:
        self._longest_s = 0.0
        self._is_ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> MachineControl:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_ending.set()
        self._thread.join()

    @property
    def slowdown(self) -> float:
        """How many times longer than at best the computation took at worst."""
        return max(1.0, self._longest_s / _fastest_s)

    def _run(self) -> None:
        global _fastest_s
        while True:
            began_s = time.thread_time()
            total = 0
            for each in range(_STEPS):
                total += each
            took_s = time.thread_time() - began_s
            _fastest_s = min(_fastest_s, took_s)
            self._longest_s = max(self._longest_s, took_s)
            if self._is_ending.wait(_PAUSE_S):
                return
