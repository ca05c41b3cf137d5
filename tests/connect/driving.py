"""Drives a source as a worker does: reads batches, stores records with positions, tells what is committed.

A `Store` is what the cluster would hold. `drive` runs one instance of a source until it has given enough; it may be
killed before a batch is stored, or right behind it. `read_with_kills` does both at every batch.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from strandline.connect.records import Batch, SourceRecord
from strandline.connect.source import Source

WITHIN_S: Final = 20.0
_END: Final = object()


class Store:
    """Committed records, and the position of each partition. Positions pass through JSON, as in the topic."""

    def __init__(self) -> None:
        self.records: list[SourceRecord] = []
        self._offsets: dict[str, str] = {}

    def get(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        found = self._offsets.get(_text(partition))
        return None if found is None else json.loads(found)

    def all(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        return [(json.loads(partition), json.loads(offset)) for partition, offset in self._offsets.items()]

    def commit(self, batch: Batch) -> None:
        self.records += batch.records
        for partition, offset in batch.positions():
            if offset is None:
                self._offsets.pop(_text(partition), None)
            else:
                self._offsets[_text(partition)] = _text(offset)

    @property
    def values(self) -> list[Any]:
        return [each.value for each in self.records]


@asynccontextmanager
async def opened(source: Source) -> AsyncIterator[Source]:
    """Open a source, and close it."""
    try:
        await _call(source.open)
        yield source
    finally:
        await _call(source.close)


async def batches_of(source: Source, store: Store) -> AsyncGenerator[Batch, None]:
    """Yield what an open source reads, whether its `read` is plain or a coroutine's."""
    batches: Any = source.read(store)
    try:
        while True:
            if hasattr(batches, "__anext__"):
                batch = await anext(batches, _END)
            else:
                batch = await asyncio.to_thread(next, batches, _END)
            if batch is _END:
                return
            assert isinstance(batch, Batch)
            yield batch
    finally:
        await (batches.aclose() if hasattr(batches, "aclose") else asyncio.to_thread(batches.close))


async def commit(source: Source, store: Store, batch: Batch) -> None:
    """Store a batch, and tell the source."""
    store.commit(batch)
    await _call(source.committed, [*batch.positions()])


async def drive(source: Source, store: Store, *, until: Callable[[Store], bool]) -> None:
    """Run a source until the store is as it should be, or the source has no more."""
    async with asyncio.timeout(WITHIN_S), opened(source):
        if until(store):
            return
        batches = batches_of(source, store)
        try:
            async for batch in batches:
                await commit(source, store, batch)
                if until(store):
                    return
        finally:
            await batches.aclose()


async def read_with_kills(make: Callable[[], Source], store: Store, *, until: Callable[[Store], bool]) -> int:
    """Run a source until the store is full, with a kill before and behind the commit of each batch; count batches."""
    count = 0
    async with asyncio.timeout(WITHIN_S):
        while not until(store):
            for is_committed in (False, True):
                async with opened(make()) as source:
                    batches = batches_of(source, store)
                    batch = await anext(batches, None)
                    if batch is None:
                        return count
                    if is_committed:
                        store.commit(batch)
                        count += 1
                    await batches.aclose()
    return count


async def eventually(condition: Callable[[], bool]) -> None:
    """Wait until something is true."""
    async with asyncio.timeout(WITHIN_S):
        while not condition():  # noqa: ASYNC110  # any condition, also one outside of the loop
            await asyncio.sleep(0.005)


async def _call(method: Callable[..., Any], *args: Any) -> None:
    if inspect.iscoroutinefunction(method):
        await method(*args)
        return
    result = await asyncio.to_thread(method, *args)
    if inspect.isawaitable(result):
        await result


def _text(value: Mapping[str, Any]) -> str:
    return json.dumps(value, sort_keys=True)
