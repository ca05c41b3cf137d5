"""Calls of a connector's methods: coroutines on the loop, plain ones in a thread of the task."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from typing import Any, Final, TypeVar

from strandline.connect.failures import ConnectFailed

T = TypeVar("T")
_END: Final = object()


class CallThread:
    """One thread for calls that may never return: unlike those of a pool it does not hold up the end of the process."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    async def call(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function after those before it, and return what it returns."""
        future: Future[T] = Future()
        self._calls.put((future, partial(function, *args)))
        if not self._thread.is_alive() and self._thread.ident is None:
            self._thread.start()
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Let the thread end behind its last call."""
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, function = item
            if not future.set_running_or_notify_cancel():
                continue
            try:
                result = function()
            except BaseException as error:  # it belongs to the caller, whatever it is
                future.set_exception(error)
            else:
                future.set_result(result)
            # The thread would keep the last batch until the next call.
            del item, future, function


class TaskThreads:
    """Two threads of one task: one for the connector, one for the clients of the cluster.

    A plain `read` may wait for its source for minutes; meanwhile the other thread commits what it has read.
    """

    def __init__(self, name: str) -> None:
        self._connector = CallThread(f"{name}-connector")
        self._client = CallThread(f"{name}-client")

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the connector, whichever kind it is."""
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        result = await self._connector.call(method, *args)
        return await result if inspect.isawaitable(result) else result

    async def in_client(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that waits for the cluster."""
        return await self._client.call(function, *args)

    def close(self) -> None:
        """Let the threads end. One that hangs in a connector is left alone; it holds nothing that others need."""
        self._connector.close()
        self._client.close()


class SourceBatches:
    """The batches of a source, one after the other; None at the end."""

    def __init__(self, threads: TaskThreads, batches: Any) -> None:
        if not hasattr(batches, "__anext__") and not hasattr(batches, "__next__"):
            raise ConnectFailed(f"read() returned {type(batches).__name__}, and must be a generator of batches")
        self._threads = threads
        self._batches = batches

    async def next(self) -> Any:
        if hasattr(self._batches, "__anext__"):
            batch = await anext(self._batches, _END)
        else:
            batch = await self._threads.call(next, self._batches, _END)
        if batch is _END:
            return None
        if not hasattr(batch, "positions"):
            raise ConnectFailed(f"read() gave {type(batch).__name__}, and must give strandline.connect.Batch")
        return batch

    async def close(self) -> None:
        if hasattr(self._batches, "aclose"):
            await self._batches.aclose()
        elif hasattr(self._batches, "close"):
            await self._threads.call(self._batches.close)
