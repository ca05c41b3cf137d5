"""Calls of a connector's methods: coroutines on the loop, plain ones in a thread of the task."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

from strandline.connect.failures import ConnectFailed

T = TypeVar("T")
_END: Final = object()


class TaskThreads:
    """Two threads of one task: one for the connector, one for the clients of the cluster.

    A plain `read` may wait for its source for minutes; meanwhile the other thread commits what it has read.
    """

    def __init__(self, name: str) -> None:
        self._connector = ThreadPoolExecutor(1, f"{name}-connector")
        self._client = ThreadPoolExecutor(1, f"{name}-client")

    async def call(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the connector, whichever kind it is."""
        if inspect.iscoroutinefunction(method):
            return await method(*args)
        result = await asyncio.get_running_loop().run_in_executor(self._connector, method, *args)
        return await result if inspect.isawaitable(result) else result

    async def in_client(self, function: Callable[..., T], *args: Any) -> T:
        """Call a function that waits for the cluster."""
        return await asyncio.get_running_loop().run_in_executor(self._client, function, *args)

    def close(self) -> None:
        """Let the threads end. One that hangs in a connector is left alone; it holds nothing that others need."""
        self._connector.shutdown(wait=False, cancel_futures=True)
        self._client.shutdown(wait=False, cancel_futures=True)


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
