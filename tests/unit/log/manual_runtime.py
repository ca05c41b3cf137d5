"""A runtime whose turns and threads the test lets run, one after the other."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from typing import Any, TypeVar

from tests.unit.log.engine import NOON_MS

T = TypeVar("T")


class Timer:
    def __init__(self, due: float, callback: Callable[[], object]) -> None:
        self.due = due
        self.callback = callback
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualRuntime:
    def __init__(self, *, seed: int = 7) -> None:
        self.sync_files = None
        self.random = random.Random(seed)
        self.ready: deque[Callable[[], object]] = deque()
        self.jobs: deque[Callable[[], None]] = deque()
        self.timers: list[Timer] = []
        self.now = 1000.0

    def now_ms(self) -> int:
        return NOON_MS

    def monotonic(self) -> float:
        return self.now

    def monotonic_ns(self) -> int:
        return int(self.now * 1e9)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self.ready.append(lambda: callback(*args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        timer = Timer(self.now + delay_s, lambda: callback(*args))
        self.timers.append(timer)
        return timer

    def in_thread(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        def run() -> None:
            try:
                result = work()
            except Exception as caught:
                # The loop is told, as the real runtime does.
                error: BaseException = caught
                self.ready.append(lambda: done(None, error))
            else:
                self.ready.append(lambda: done(result, None))

        self.jobs.append(run)

    def turn(self) -> None:
        """One turn of the loop: what is ready now, not what that makes ready."""
        for _ in range(len(self.ready)):
            self.ready.popleft()()

    def finish_job(self) -> None:
        """The oldest thread's work comes to its end and the loop hears of it."""
        self.jobs.popleft()()
        self.turn()

    def settle(self) -> None:
        """Turn until nothing is ready and no thread works."""
        while self.ready or self.jobs:
            self.turn()
            if self.jobs:
                self.jobs.popleft()()
