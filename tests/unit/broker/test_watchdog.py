"""A stall of our own is told from one that the machine made."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from strandline.broker.metrics.watchdog import Watchdog
from strandline.runtime.runtime import LoopRuntime

STALL_S = 0.15


def watched(stall: Callable[[], None]) -> Watchdog:
    async def main() -> Watchdog:
        loop = asyncio.get_running_loop()
        runtime = LoopRuntime(loop)
        watchdog = Watchdog(runtime)
        watchdog.start()
        loop.call_soon(stall)
        while not watchdog.stalls:  # noqa: ASYNC110  # there is nothing to wait for but the next turn
            await asyncio.sleep(0)
        runtime.close()
        return watchdog

    return asyncio.run(main())


def compute() -> None:
    end = time.thread_time() + STALL_S
    while time.thread_time() < end:
        pass


def test_what_we_compute_is_counted() -> None:
    watchdog = watched(compute)
    assert STALL_S - 0.03 < watchdog.computed_s <= watchdog.longest_s


def test_what_others_take_is_a_stall_but_not_ours() -> None:
    watchdog = watched(lambda: time.sleep(STALL_S))
    assert watchdog.longest_s > STALL_S - 0.03
    assert watchdog.computed_s < 0.03
