"""The source of clock, timers, threads and randomness: one `Runtime`, passed to everything that needs them.

A node never asks the operating system for the time, a random number or a thread by itself. So the same broker runs
on a real machine (`LoopRuntime`) and, from a seed, on simulated ones.

`in_thread` is for calls that release the GIL throughout (fsync, a cold read). One Python thread that *computes*
beside the loop takes it from tens of thousands of requests a second to under a hundred. `sync_files` does not take the
GIL at all.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from strandline.runtime.io_threads import IoThreads

try:
    from strandline.runtime._sync import SyncThreads
except ImportError:
    # No compiler was there, or this is not Linux.
    SyncThreads = None  # type: ignore[assignment, misc]

T = TypeVar("T")
SyncFiles = Callable[[list[int], Callable[[None, OSError | None], object]], None]

SYNCS_MAX: Final = 16
"""C threads that can each block in one fdatasync. A file system writes its journal once for all that wait together."""


class TimerHandle(Protocol):
    """A pending call that can be cancelled."""

    def cancel(self) -> None: ...


class Runtime(Protocol):
    """Clock, timers, threads and randomness of one node."""

    random: random.Random

    @property
    def sync_files(self) -> SyncFiles | None:
        """Return what syncs files without the GIL, `SYNCS_MAX` calls at a time; None if only `in_thread` can do that.

        `sync_files(fds, done)` calls fdatasync for the descriptors, which must stay open, up to the first that fails,
        and then `done(None, error)` on the loop.
        """

    def now_ms(self) -> int:
        """Return the wall-clock time, for timestamps and retention only, because it may jump."""

    def monotonic(self) -> float:
        """Return seconds that never go back, for durations."""

    def monotonic_ns(self) -> int: ...

    def call_soon(self, callback: Callable[..., object], *args: Any) -> object: ...

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> TimerHandle: ...

    def in_thread(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        """Run `work` off the loop and call `done(result, error)` on it."""


class LoopRuntime:
    """The runtime of a real machine: an asyncio or uvloop event loop and a few threads for blocking calls."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.random: random.Random = random.SystemRandom()
        self.call_soon: Callable[..., object] = loop.call_soon
        self.call_later: Callable[..., TimerHandle] = loop.call_later
        self.monotonic: Callable[[], float] = time.monotonic
        self.monotonic_ns: Callable[[], int] = time.monotonic_ns
        self._threads = IoThreads(loop)
        self.in_thread = self._threads.run
        self._sync_threads = None if SyncThreads is None else SyncThreads(loop, SYNCS_MAX)
        self.sync_files: SyncFiles | None = None if self._sync_threads is None else self._sync_threads.run

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def allow_threads(self, threads_max: int) -> None:
        """Raise the number of blocking calls that run in parallel."""
        self._threads.threads_max = max(self._threads.threads_max, threads_max)

    def close(self) -> None:
        self._threads.close()
        if self._sync_threads is not None:
            self._sync_threads.close()
