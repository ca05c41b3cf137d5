"""Where clock, timers, threads and randomness come from: one `Runtime`, handed to everything that needs them.

A node never asks the operating system for the time, a random number or a thread by itself. So the same broker runs
on a real machine (`LoopRuntime`) and, from a seed, on simulated ones.

`in_thread` is for calls that release the GIL throughout (fdatasync, a cold read). One Python thread that *computes*
beside the loop takes it from tens of thousands of requests a second to under a hundred.
"""

from __future__ import annotations

import asyncio
import queue
import random
import threading
import time
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

T = TypeVar("T")

THREADS_MAX = 8
"""Threads for blocking system calls; each may sit in one fdatasync or one cold read."""


class TimerHandle(Protocol):
    def cancel(self) -> None: ...


class Runtime(Protocol):
    random: random.Random

    def now_ms(self) -> int:
        """Wall-clock time, for timestamps and retention only; it may jump."""

    def monotonic(self) -> float:
        """Seconds that never go back, for every duration."""

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> TimerHandle: ...

    def in_thread(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` off the loop and call `done(result, error)` on it."""


class LoopRuntime:
    """The real world: an asyncio (or uvloop) event loop and a few threads for blocking calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, seed: int | None = None) -> None:
        self.loop = loop
        self.random: random.Random = random.SystemRandom() if seed is None else random.Random(seed)
        self.call_soon = loop.call_soon
        self.call_later = loop.call_later
        self.monotonic = time.monotonic
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[..., object]] | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def in_thread(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        if self._idle == 0 and len(self._threads) < THREADS_MAX:
            thread = threading.Thread(target=self._serve_jobs, name=f"strandline-io-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()
        else:
            self._idle -= 1
        self._jobs.put((work, done))

    def _serve_jobs(self) -> None:
        while (job := self._jobs.get()) is not None:
            work, done = job
            result: Any = None
            error: BaseException | None = None
            try:
                result = work()
            except BaseException as caught:
                # Carried to the loop, where the owner of the state decides what it means.
                error = caught
            try:
                self.loop.call_soon_threadsafe(self._finish, done, result, error)
            except RuntimeError:
                # The loop was closed while the call was under way; nobody is left to tell.
                return

    def _finish(self, done: Callable[..., object], result: Any, error: BaseException | None) -> None:
        self._idle += 1
        done(result, error)

    def close(self) -> None:
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()
        self._threads.clear()
        self._idle = 0
