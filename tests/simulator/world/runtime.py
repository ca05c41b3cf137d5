"""The `Runtime` of one life of one simulated process: its clocks, timers, threads and chance.

Clocks differ between machines: `monotonic` begins anywhere, and the wall clock is off by `wall_skew_ms` and jumps when
a fault moves it. A thread's work takes effect at one moment between its start and its end; both are drawn, so threads
overtake each other, and a kill in between leaves work done that was never reported.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, Final, TypeVar

from tests.simulator.world.loop import Actor, SimLoop, SimTimer

T = TypeVar("T")

WALL_START_MS: Final = 1_790_000_000_000
TIMER_LATE_S: Final = 0.0005
"""Timers come up to so much late: no loop keeps them exactly, and two nodes started as one must drift apart."""
THREAD_S: Final = 0.0004
"""What a call in a thread takes on a good day, about; an fdatasync on a quiet disk."""


class SimHost:
    """A machine: what outlives the processes on it. Faults turn these knobs."""

    def __init__(self, loop: SimLoop, name: str) -> None:
        self.loop = loop
        self.name = name
        self.random = loop.derive(f"host {name}")
        self.monotonic_start = self.random.uniform(10.0, 1e6)
        self.wall_skew_ms = self.random.randint(-50, 50)
        self.thread_factor = 1.0
        """How much slower than on a good day threads, and with them fsyncs, are."""
        self.stalled_until = 0.0
        """No thread finishes before: a disk that hangs."""

    def jump_clock(self, by_ms: int) -> None:
        self.wall_skew_ms += by_ms


class SimRuntime:
    """One life; a restart takes a new one, and everything the old one had asked for is void."""

    def __init__(self, host: SimHost, life: int) -> None:
        self.host = host
        self.sim = host.loop
        self.sync_files = None
        self.actor = Actor(host.loop, f"{host.name}#{life}")
        self.random: random.Random = host.loop.derive(f"{host.name}#{life}")

    def now_ms(self) -> int:
        return WALL_START_MS + int(self.sim.now * 1000) + self.host.wall_skew_ms

    def monotonic(self) -> float:
        return self.sim.now + self.host.monotonic_start

    def monotonic_ns(self) -> int:
        return int((self.sim.now + self.host.monotonic_start) * 1e9)

    def call_soon(self, callback: Callable[..., object], *args: Any) -> SimTimer:
        sim = self.sim
        return sim.schedule(sim.now, SimTimer(self.actor, callback, args))

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> SimTimer:
        sim = self.sim
        at = sim.now + max(0.0, delay_s) + sim.random.random() * TIMER_LATE_S
        return sim.schedule(at, SimTimer(self.actor, callback, args))

    def in_thread(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object]) -> None:
        host, sim = self.host, self.sim
        took_s = THREAD_S * host.thread_factor * host.random.expovariate(1.0)
        end = max(sim.now + took_s, host.stalled_until + took_s)
        sim.call_at(sim.now + (end - sim.now) * host.random.random(), self.actor, self._work, work, done, end)

    def _work(
        self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], object], end: float
    ) -> None:
        result: T | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as caught:
            # Carried to the loop, where the owner of the state decides what it means.
            error = caught
        self.sim.call_at(end, self.actor, done, result, error)

    def close(self) -> None:
        """Nothing is held."""
