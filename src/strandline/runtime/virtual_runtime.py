"""A `Runtime` on a real event loop whose clock stands still until it is advanced.

Sockets, files and threads are real; only the clock and the timers are not. Short waits (a long poll, a retry) also
pass in real time, because clients and disks do not wait for a clock that stands still. Longer timers (a session, a
transaction timeout, a look at all logs) fire only when the clock reaches them.

A long advance is a leap, as when a suspended machine wakes up: timers that became due meanwhile fire once, in their
order. Its end passes step by step, because much happens a while after a leap: files are unlinked after their delay, and
silent producers expire only when the broker has run for some seconds without a gap.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from strandline.runtime.runtime import LoopRuntime

SHORT_WAIT_S: Final = 5.0
"""Waits up to this length also pass in real time: some clients let a Fetch wait for 5 s. A session has at least 6."""
STEPPED_S: Final = 90.0
"""The end of an advance that passes timer by timer. Kafka unlinks deleted files after 60 s."""
THREAD_POLL_S: Final = 0.0005
RUN_S: Final = 0.05


class VirtualTimer:
    """A timer that is due by the clock, and after a short wait also by the loop."""

    __slots__ = ("_args", "_callback", "_real", "_runtime", "due", "number")

    def __init__(
        self, runtime: VirtualRuntime, number: int, delay_s: float, callback: Callable[..., object], args: Any
    ) -> None:
        self._runtime = runtime
        self._callback = callback
        self._args = args
        self.number = number
        self.due = runtime.monotonic() + max(0.0, delay_s)
        self._real = runtime.loop.call_later(delay_s, self.fire) if delay_s <= SHORT_WAIT_S else None

    def fire(self) -> None:
        self.cancel()
        self._runtime.call_soon(self._callback, *self._args)

    def cancel(self) -> None:
        self._runtime.timers.discard(self)
        if self._real is not None:
            self._real.cancel()


class VirtualRuntime(LoopRuntime):
    def __init__(self, loop: asyncio.AbstractEventLoop, *, start_ms: int) -> None:
        super().__init__(loop)
        self.sync_files = None
        self.timers: set[VirtualTimer] = set()
        self._start_ms = start_ms
        self._start_s = self._now_s = time.monotonic()
        self._numbers = 0
        self._soon = 0
        self.call_soon = self._call_soon
        self.call_later = self._call_later
        self.monotonic = lambda: self._now_s
        self.monotonic_ns = lambda: int(self._now_s * 1e9)

    def now_ms(self) -> int:
        return self._start_ms + round((self._now_s - self._start_s) * 1000)

    def _call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> VirtualTimer:
        self._numbers += 1
        timer = VirtualTimer(self, self._numbers, delay_s, callback, args)
        self.timers.add(timer)
        return timer

    def _call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._soon += 1
        self.loop.call_soon(self._run_soon, callback, args)

    def _run_soon(self, callback: Callable[..., object], args: Any) -> None:
        self._soon -= 1
        callback(*args)

    # Moving the clock

    async def advance(self, seconds: float) -> None:
        """Move the clock, fire the timers that become due, and return when the work they began is done."""
        target_s = self._now_s + seconds
        if seconds > STEPPED_S:
            self._leap(target_s - STEPPED_S)
            await self._settle()
        while self.timers:
            timer = min(self.timers, key=_order)
            if timer.due > target_s:
                break
            self._now_s = max(self._now_s, timer.due)
            timer.fire()
            await self._settle()
        self._now_s = target_s
        await self._settle()

    def run(self) -> None:
        """Let the clock run with real time from now on, so that a broker that stops can give up waiting."""
        self._leap(self._now_s + RUN_S)
        self.loop.call_later(RUN_S, self.run)

    def _leap(self, to_s: float) -> None:
        self._now_s = to_s
        for timer in sorted((each for each in self.timers if each.due <= to_s), key=_order):
            timer.fire()

    async def _settle(self) -> None:
        """Wait until no callback is pending and no thread works."""
        await asyncio.sleep(0)
        while self._soon or not self._threads.is_idle:  # noqa: ASYNC110  # counting would cost every call an event
            await asyncio.sleep(0 if self._soon else THREAD_POLL_S)


def _order(timer: VirtualTimer) -> tuple[float, int]:
    return timer.due, timer.number
