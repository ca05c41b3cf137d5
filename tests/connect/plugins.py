"""Connectors for tests: good ones, and every kind of bad one."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from strandline import connect
from strandline.connect import (
    Batch,
    RecordFailed,
    RetriableFailure,
    Sink,
    SinkBatch,
    Source,
    SourceOffsets,
    SourceRecord,
    TopicPosition,
    option,
)


class Counter(Source):
    """Counts, in as many tasks as it may have."""

    class Config(connect.Config):
        topic: str = option("Topic.")
        count: int = option("How many numbers, for each task.", default=1000)
        step: int = option("Numbers of a batch.", default=10)
        part: int = option("The task.", default=0)
        pause: float = option("Seconds between two batches.", default=0.0)

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{"part": str(each)} for each in range(tasks_max)]

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        part = {"part": self.config.part}
        number = (offsets.get(part) or {"next": 0})["next"]
        while number < self.config.count:
            end = min(number + self.config.step, self.config.count)
            records = [SourceRecord(value=each, key=f"{self.config.part}") for each in range(number, end)]
            yield Batch(records, part, {"next": end})
            number = end
            await asyncio.sleep(self.config.pause)


class PlainCounter(Counter):
    """The same as a plain generator, in a thread."""

    def read(self, offsets: SourceOffsets) -> Iterator[Batch]:  # type: ignore[override]
        part = {"part": self.config.part}
        number = (offsets.get(part) or {"next": 0})["next"]
        for each in range(number, self.config.count):
            if self.stopping.wait(self.config.pause):
                return
            yield Batch([SourceRecord(value=each)], part, {"next": each + 1})


class Units(Source):
    """Gives units of three batches. It waits in the middle of each, and fails in the middle of the first."""

    may_go_on: ClassVar[threading.Event] = threading.Event()
    failures: ClassVar[int] = 0

    class Config(connect.Config):
        topic: str = option("Topic.")
        units: int = option("How many.", default=2)

    def read(self, offsets: SourceOffsets) -> Iterator[Batch]:
        part = {"part": 0}
        for unit in range((offsets.get(part) or {"next": 0})["next"], self.config.units):
            yield Batch([SourceRecord(value=f"{unit}-a")], is_open=True)
            while not self.may_go_on.wait(0.05):
                if self.stopping.is_set():
                    return
            if not Units.failures:
                Units.failures += 1
                raise RetriableFailure("failed once")
            yield Batch([SourceRecord(value=f"{unit}-b")], part, {"next": unit}, is_open=True)
            yield Batch([SourceRecord(value=f"{unit}-c")], part, {"next": unit + 1})


class Kept(Sink):
    """Keeps what it is given in this process, by name."""

    written: ClassVar[dict[str, list[Any]]] = {}
    away: ClassVar[set[str]] = set()
    """Names of targets that are down."""

    class Config(connect.Config):
        into: str = option("Name of the list.")
        poison: str = option("A value that cannot be written.", default="")
        names_record: bool = option("Whether the failure says which record it was.", default=True)

    def write(self, batch: SinkBatch) -> None:
        name = self.config.into
        if name in self.away:
            raise RetriableFailure(f"the target {name} is down")
        if self.config.poison:
            for record in batch:
                if str(record.value) == self.config.poison:
                    raise RecordFailed("it is poison", record if self.config.names_record else None)
        self.written.setdefault(name, []).extend((each.value, each.offset) for each in batch)


class Buffered(Kept):
    """Keeps records until `flush`, and stores at most ten then."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._buffer: list[Any] = []
        self._stored: dict[TopicPosition, int] = {}

    def write(self, batch: SinkBatch) -> None:
        self._buffer += batch

    def flush(self) -> Mapping[TopicPosition, int]:
        stored, self._buffer = self._buffer[:10], self._buffer[10:]
        for each in stored:
            self.written.setdefault(self.config.into, []).append((each.value, each.offset))
            self._stored[TopicPosition(each.original_topic, each.original_partition)] = each.offset + 1
        return dict(self._stored)

    def revoked(self, partitions: Sequence[TopicPosition]) -> None:
        self._buffer.clear()


class Raising(Source):
    """Raises something that no one expects."""

    class Config(connect.Config):
        topic: str = option("Topic.")
        reason: str = option("What it says.", default="a bug of the connector")
        times: int = option("How often.", default=1)

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        yield Batch([SourceRecord(value="one")], {"r": 0}, {"n": 1})
        raise ZeroDivisionError(self.config.reason * self.config.times)


class Nonsense(Source):
    """Gives what is no batch."""

    class Config(connect.Config):
        topic: str = option("Topic.")

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        yield "a text"  # type: ignore[misc]


class Hanging(Source):
    """Hangs in a thread, whatever it is asked to do."""

    released: ClassVar[threading.Event] = threading.Event()

    class Config(connect.Config):
        topic: str = option("Topic.")

    def read(self, offsets: SourceOffsets) -> Iterator[Batch]:
        self.released.wait()
        yield Batch([SourceRecord(value="late")], {"h": 0}, {"n": 1})


class Flaky(Source):
    """Fails some times with something that passes."""

    failures: ClassVar[list[float]] = []

    class Config(connect.Config):
        topic: str = option("Topic.")

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        self.failures.append(time.monotonic())
        if len(self.failures) < 3:
            raise RetriableFailure("the other side is away")
        yield Batch([SourceRecord(value="back")], {"f": 0}, {"n": 1})


class TooMany(Source):
    """Makes more tasks than it may."""

    class Config(connect.Config):
        topic: str = option("Topic.")

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        return [{}] * (tasks_max + 1)


class Lines(Sink):
    """Appends values to a file, one line each, durable when `write` returns."""

    class Config(connect.Config):
        file: str = option("The file.")

    def write(self, batch: SinkBatch) -> None:
        with Path(self.config.file).open("a") as file:
            file.writelines(f"{each.value}\n" for each in batch)


class Parts(Counter):
    """Counts in objects that name their task."""

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        async for batch in super().read(offsets):
            for each in batch.records:
                each.value = {"part": str(self.config.part), "n": each.value}
            yield batch


class HangingTasks(Source):
    """Hangs when it is asked for its tasks."""

    class Config(connect.Config):
        topic: str = option("Topic.")

    @classmethod
    def tasks(cls, config: Any, tasks_max: int) -> Sequence[Mapping[str, str]]:
        Hanging.released.wait()
        return [{}]


class Leaking(Source):
    """Leaves a thread, an open file and memory behind whenever it runs, and then fails with what passes."""

    left: ClassVar[list[Any]] = []
    """What it holds, so that a test can let go of it."""
    ended: ClassVar[threading.Event] = threading.Event()
    runs: ClassVar[dict[str, int]] = {}

    class Config(connect.Config):
        topic: str = option("Topic.")
        leaks: bool = option("Whether it leaves anything.", default=True)
        megabytes: int = option("How much memory.", default=0)

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        number = self.runs[self.config.topic] = self.runs.get(self.config.topic, 0) + 1
        if self.config.leaks:
            thread = threading.Thread(target=self.ended.wait, daemon=True)
            thread.start()
            self.left.append((thread, os.open(os.devnull, os.O_RDONLY), b"x" * (self.config.megabytes << 20)))
        yield Batch([SourceRecord(value=number)], {"l": 0}, {"n": number})
        raise RetriableFailure("the other side is away")


class Bursting(Source):
    """Opens more files than its worker may have, and is there when the worker stops: SIGTERM comes just then."""

    class Config(connect.Config):
        topic: str = option("Topic.")
        files: int = option("How many.")

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(self.config.files)]
        try:
            yield Batch([SourceRecord(value=1)], {"l": 0}, {"n": 1})
            await asyncio.get_running_loop().create_future()
        finally:
            for file in opened:
                os.close(file)
            os.kill(os.getpid(), signal.SIGTERM)
