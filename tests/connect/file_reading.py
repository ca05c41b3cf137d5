"""Runs of the file source for tests: to the end of the files, or beside the test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from strandline.connect.records import AnyBatch, ValueBatch
from strandline.connect.sources.files import FileSource


class Stored:
    """Offsets as the runner stores them, here in a dict."""

    def __init__(self) -> None:
        self.offsets: dict[tuple[tuple[str, Any], ...], Mapping[str, Any]] = {}

    def get(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        return self.offsets.get(tuple(partition.items()))

    def all(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        return [(dict(partition), offset) for partition, offset in self.offsets.items()]

    def keep(self, batch: AnyBatch) -> None:
        for partition, offset in batch.positions():
            if offset is None:
                self.offsets.pop(tuple(partition.items()), None)
            else:
                self.offsets[tuple(partition.items())] = offset


def values_of(batch: AnyBatch) -> list[Any]:
    return list(batch.values) if isinstance(batch, ValueBatch) else [each.value for each in batch.records]


def source(file: Path | str, **settings: str) -> FileSource:
    properties = {"file": str(file), "topic": "lines", "poll.interval.ms": "5", **settings}
    made = FileSource(FileSource.Config({name.replace("_", "."): value for name, value in properties.items()}))
    made.open()
    return made


async def batches_of(file: Path | str, stored: Stored | None = None, **settings: str) -> list[AnyBatch]:
    """Read everything there is, as a run that ends."""
    stored = stored or Stored()
    found = []
    async for batch in source(file, follow="false", **settings).read(stored):
        stored.keep(batch)
        found.append(batch)
    return found


async def read_all(file: Path | str, stored: Stored | None = None, **settings: str) -> list[Any]:
    return [value for batch in await batches_of(file, stored, **settings) for value in values_of(batch)]


@asynccontextmanager
async def following(
    file: Path | str, stored: Stored, **settings: str
) -> AsyncIterator[Callable[[int], Awaitable[list[Any]]]]:
    """Run a source that follows; yield a function that waits for a number of values."""
    found: list[Any] = []

    async def run() -> None:
        async for batch in source(file, **settings).read(stored):
            stored.keep(batch)
            found.extend(values_of(batch))

    task = asyncio.create_task(run())

    async def wait(count: int) -> list[Any]:
        async with asyncio.timeout(10):
            while len(found) < count and not task.done():  # noqa: ASYNC110  # the source runs on
                await asyncio.sleep(0.001)
        if task.done():
            task.result()
        return list(found)

    try:
        yield wait
    finally:
        task.cancel()
        await asyncio.wait([task])
