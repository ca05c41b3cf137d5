"""Runs handlers beside the loop of a consumer: functions in threads, coroutines on an event loop of their own."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from typing import Any

from strandline.queue.tasks import Handler, QueueTask

OnDone = Callable[["Future[object]"], object]


class HandlerPool:
    """As many threads as handlers may run at a time; one for all coroutines."""

    def __init__(self, handler: Handler, concurrency: int, on_thread: Callable[[], object] | None = None) -> None:
        """Take a handler. `on_thread` is called once on each thread that runs functions."""
        self._handler: Any = handler
        self._threads: ThreadPoolExecutor | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        if is_async(handler):
            self._loop = asyncio.new_event_loop()
            threading.Thread(target=_run, args=(self._loop,), name="queue handlers", daemon=True).start()
        else:
            self._threads = ThreadPoolExecutor(concurrency, thread_name_prefix="queue handler", initializer=on_thread)

    def start(self, task: QueueTask, on_done: OnDone) -> Future[object]:
        """Run the handler. `on_done` is called on another thread."""
        future: Future[object]
        if self._loop is not None:
            future = asyncio.run_coroutine_threadsafe(self._handler(task), self._loop)
        else:
            assert self._threads is not None
            future = self._threads.submit(self._handler, task)
        future.add_done_callback(on_done)
        return future

    def close(self) -> None:
        """Cancel coroutines. Functions that still run are left to end by themselves."""
        if self._threads is not None:
            self._threads.shutdown(wait=False, cancel_futures=True)
        if self._loop is not None:
            asyncio.run_coroutine_threadsafe(_cancel_all(), self._loop)


def failure_of(future: Future[object]) -> BaseException | None:
    """Return what a handler that has ended raised; None if it returned."""
    try:
        return future.exception(0)
    except CancelledError as error:
        return error


def is_async(handler: Handler) -> bool:
    """Return whether a handler is a coroutine function, or an object that is called like one."""
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


def _run(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _cancel_all() -> None:
    tasks = [each for each in asyncio.all_tasks() if each is not asyncio.current_task()]
    for each in tasks:
        each.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    asyncio.get_running_loop().stop()
