"""The runtime behind a virtual clock: which timers fire when, and what `advance` waits for."""

from __future__ import annotations

import asyncio
import time

import pytest

from strandline.runtime import virtual_runtime
from strandline.runtime.virtual_runtime import SHORT_WAIT_S, STEPPED_S, VirtualRuntime

START_MS = 1_790_000_000_000


def runtime() -> VirtualRuntime:
    return VirtualRuntime(asyncio.get_running_loop(), start_ms=START_MS)


async def test_timers_fire_in_order_at_their_times() -> None:
    clock = runtime()
    began_s = clock.monotonic()
    fired: list[tuple[str, float]] = []

    def note(name: str) -> None:
        fired.append((name, clock.monotonic() - began_s))
        if name == "again":
            clock.call_later(10, note, "after it")

    clock.call_later(30, note, "third")
    clock.call_later(10, note, "again")
    clock.call_later(10, note, "second")
    clock.call_later(40, note, "cancelled").cancel()
    clock.call_later(61, note, "later")
    await clock.advance(60)
    assert [name for name, _ in fired] == ["again", "second", "after it", "third"]
    assert [round(at_s, 6) for _, at_s in fired] == [10, 10, 20, 30]
    assert clock.now_ms() == START_MS + 60_000
    await clock.advance(1)
    assert fired[-1][0] == "later"


async def test_a_long_advance_fires_a_periodic_timer_once_and_ends_step_by_step() -> None:
    clock = runtime()
    began_s = clock.monotonic()
    ticks: list[float] = []

    def tick() -> None:
        ticks.append(clock.monotonic() - began_s)
        clock.call_later(10, tick)

    clock.call_later(10, tick)
    await clock.advance(1000)
    assert [round(each, 6) for each in ticks] == [1000 - STEPPED_S + 10 * n for n in range(int(STEPPED_S / 10) + 1)]


async def test_without_an_advance_only_short_waits_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(virtual_runtime, "SHORT_WAIT_S", 0.02)
    clock = runtime()
    began_s = clock.monotonic()
    fired: list[str] = []
    clock.call_later(0.02, fired.append, "short")
    clock.call_later(0.03, fired.append, "long")
    await asyncio.sleep(0.1)
    assert fired == ["short"]
    assert (clock.monotonic(), clock.now_ms()) == (began_s, START_MS)
    assert len(clock.timers) == 1, "a timer that fired is forgotten"


async def test_an_advance_waits_for_threads_and_for_what_they_begin() -> None:
    clock = runtime()
    done: list[str] = []

    def begin() -> None:
        clock.in_thread(lambda: time.sleep(0.02), lambda result, error: clock.call_soon(done.append, "done"))

    clock.call_later(60, begin)
    await clock.advance(60)
    assert done == ["done"]
    clock.close()


async def test_a_clock_that_runs_reaches_long_timers() -> None:
    clock = runtime()
    fired = asyncio.Event()
    clock.call_later(SHORT_WAIT_S + 0.1, fired.set)
    await clock.advance(SHORT_WAIT_S)
    assert not fired.is_set()
    clock.run()
    await asyncio.wait_for(fired.wait(), 30)
