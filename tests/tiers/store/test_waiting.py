"""Signals in tasks of asyncio, and futures of asyncio in coroutines that run by callbacks."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

import pytest

from strandline.runtime.runtime import Runtime
from strandline.tiers.store.waiting import LateAnswer, Signal, in_thread, pause, start, together, within

NAME: ContextVar[str] = ContextVar("name", default="none")


async def test_a_task_awaits_a_signal_in_its_own_context(runtime: Runtime) -> None:
    signal: Signal[int] = Signal(runtime)

    async def work() -> tuple[int, str]:
        NAME.set("mine")
        return await signal, NAME.get()

    task = asyncio.create_task(work())
    await asyncio.sleep(0)
    NAME.set("other")
    signal.set(7)
    assert await task == (7, "mine")
    assert list(await asyncio.gather(signal, asyncio.wait_for(signal, 1.0))) == [7, 7]


async def test_a_cancelled_task_leaves_its_signal(runtime: Runtime) -> None:
    task = asyncio.create_task(pause(runtime, 60.0))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_started_coroutines_await_what_asyncio_has(runtime: Runtime) -> None:
    async def work(number: int) -> int:
        await asyncio.sleep(0)
        await asyncio.sleep(0.001)
        await asyncio.wait_for(asyncio.get_running_loop().run_in_executor(None, int), None)
        if number == 2:
            raise ValueError("two")
        return await in_thread(runtime, lambda: number)

    outcomes = list(await together(runtime, [work(each) for each in range(4)]))
    assert outcomes[:2] + outcomes[3:] == [0, 1, 3]
    assert isinstance(outcomes[2], ValueError)
    heard: list[tuple[object, object]] = []
    started = start(runtime, work(5), lambda result, error: heard.append((result, error)))
    assert await started.outcome == 5
    await asyncio.sleep(0.01)
    assert heard == [(5, None)]


async def test_a_limit_cancels_what_it_waits_for(runtime: Runtime) -> None:
    future = asyncio.get_running_loop().create_future()
    with pytest.raises(LateAnswer):
        await within(runtime, 0.01, future)
    assert future.cancelled()
    signal: Signal[int] = Signal(runtime)
    runtime.call_soon(signal.set, 7)
    assert await within(runtime, 60.0, signal) == 7
    never: Signal[int] = Signal(runtime)
    task = asyncio.create_task(within(runtime, 60.0, never))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_cancelling_together_cancels_each(runtime: Runtime) -> None:
    ended: list[int] = []

    async def work(number: int) -> None:
        try:
            await pause(runtime, 60.0)
        finally:
            ended.append(number)

    task = asyncio.create_task(together(runtime, [work(each) for each in range(3)]))
    await asyncio.sleep(0.001)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0.001)
    assert sorted(ended) == [0, 1, 2]
