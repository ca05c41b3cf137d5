"""The registry's core in a process: a state that follows the topic, and writes that are answered when it has them.

One loop owns the state. The reader's thread hands records to it; parsing and comparing run in another thread, and the
writer in a third. Writes are decided one after the other, upon a state that holds every write before.

A write needs the topic's transactional id. The process that took it last is the primary. One that finds itself fenced
takes it again, reads to the end, and decides again. So several registries may write to one topic, and none forks a
subject.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

from strandline.schemas import commands, failures, records
from strandline.schemas.engines import Engines, Steps
from strandline.schemas.failures import RegistryError
from strandline.schemas.records import SchemaRecord
from strandline.schemas.registering import Written
from strandline.schemas.state import RegistryState
from strandline.schemas.topic import RECORD_BYTES_MAX, TOPIC, SchemaTopicFailed, TopicReader, TopicWriter, prepare_topic
from strandline.schemas.types import SchemaType

ATTEMPTS_MAX: Final = 30
"""Of a write that fails, or that another process fences."""
PAUSE_S_MAX: Final = 2.0
"""Between two attempts, on average, besides twice the time that it took to become the primary."""
_PAUSE_S: Final = 0.02

logger = logging.getLogger("strandline.schemas")

T = TypeVar("T")


@dataclass(frozen=True)
class RegistrySettings:
    bootstrap: str
    """May be `SecuredServers`."""
    topic: str = TOPIC
    group: str = "schema-registry"
    timeout_s: float = 30.0
    """For one write, all attempts together; and for the topic to be made."""


class SchemaRegistry:
    """The schemas of a cluster; all methods are called on one loop."""

    def __init__(self, settings: RegistrySettings, types: Sequence[SchemaType]) -> None:
        self.settings = settings
        self.state = RegistryState()
        self.engines = Engines(types)
        self.position = 0
        """Offset up to which the topic is in the state."""
        self.is_ready = False
        self._end_at_start = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: TopicReader | None = None
        self._writer: TopicWriter | None = None
        self._taking_s = 0.0
        """How long it took to become the primary the last time."""
        self._engine_thread = ThreadPoolExecutor(1, "registry-engine")
        self._writer_thread = ThreadPoolExecutor(1, "registry-writer")
        self._engine_turn = asyncio.Lock()
        self._write_turn = asyncio.Lock()
        self._moved = asyncio.Event()
        """Set when `position` moves, and then replaced."""

    async def start(self) -> None:
        """Make the topic if it is missing, and begin to read it. `is_ready` when its end was reached."""
        self._loop = asyncio.get_running_loop()
        settings = self.settings
        prepare = partial(prepare_topic, settings.bootstrap, settings.topic, settings.timeout_s)
        self._end_at_start = await self._in_writer_thread(prepare)
        self._reader = TopicReader(settings.bootstrap, settings.topic, self._on_records)
        self._reader.start()

    async def stop(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await self._in_writer_thread(reader.stop)
        self._writer = None
        self._engine_thread.shutdown(wait=False, cancel_futures=True)
        self._writer_thread.shutdown(wait=False, cancel_futures=True)

    # Reading

    def _on_records(self, batch: Sequence[SchemaRecord], position: int, is_end: bool) -> None:
        """Fold what the reader's thread read, and let it go on then."""
        folded = threading.Event()
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(self._fold, batch, position, is_end, folded)
        except RuntimeError:
            return
        while not folded.wait(1.0) and not self._loop.is_closed() and self._reader is not None:
            pass

    def _fold(self, batch: Sequence[SchemaRecord], position: int, is_end: bool, folded: threading.Event) -> None:
        skipped = self.state.skipped_count
        for record in batch:
            self.state.apply(record)
        if self.state.skipped_count > skipped:
            count = self.state.skipped_count - skipped
            logger.warning(
                "%d records of %s before offset %d are skipped: unknown or unreadable", count, TOPIC, position
            )
        self.position = max(self.position, position)
        # The reader meets no end while others write without a pause.
        self.is_ready = self.is_ready or is_end or position >= self._end_at_start
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()
        folded.set()

    async def wait_for(self, offset: int) -> None:
        """Wait until the record at `offset` is in the state."""
        while self.position <= offset:
            await self._moved.wait()

    async def wait_ready(self) -> None:
        while not self.is_ready:
            await self._moved.wait()

    # Commands

    async def run(self, steps: Steps[T]) -> T:
        """Run a command; its jobs run in the engines' thread."""
        job = next_job(steps, None)
        while not isinstance(job, _Done):
            async with self._engine_turn:
                job = next_job(steps, await self._attempt(job))
        answer: T = job.answer
        return answer

    async def _attempt(self, job: Any) -> Any:
        assert self._loop is not None
        try:
            return await self._loop.run_in_executor(self._engine_thread, job, self.engines)
        except RegistryError as error:
            return error

    async def write(self, decide: Callable[[RegistryState], Awaitable[Written[T]]]) -> T:
        """Decide upon the state, write what was decided, and return the answer when it is in the state."""
        async with self._write_turn:
            try:
                async with asyncio.timeout(self.settings.timeout_s):
                    return await self._write_until_done(decide)
            except TimeoutError:
                # The thread may still be at it. The next write takes the id again, and reads what became of this one.
                self._writer = None
                words = f"The write took longer than {self.settings.timeout_s:g} s."
                raise RegistryError(failures.TIMED_OUT, words) from None

    async def _write_until_done(self, decide: Callable[[RegistryState], Awaitable[Written[T]]]) -> T:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            try:
                return await self._write(decide)
            except SchemaTopicFailed as error:
                # Fenced, or not known to be written. What was written is in the state before the next decision.
                self._writer = None
                logger.info("%s (attempt %d)", error, attempt)
                if attempt == ATTEMPTS_MAX:
                    raise RegistryError(failures.STORE_FAILED, f"The write failed: {error}") from error
            # Taking the id takes longer than a write. If both took it again at once, neither would ever write.
            pause_s = min(_PAUSE_S * 2**attempt, PAUSE_S_MAX) + 2 * self._taking_s
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _write(self, decide: Callable[[RegistryState], Awaitable[Written[T]]]) -> T:
        if self._writer is None:
            await self._become_primary()
        decided = await decide(self.state)
        written = commands.with_other_keys(self.state, decided.records)
        if any(len(record.key) + len(record.value or b"") > RECORD_BYTES_MAX for record in written):
            raise RegistryError(failures.SCHEMA_TOO_LARGE, f"The record is larger than {RECORD_BYTES_MAX:,} bytes")
        if written:
            await self.wait_for(await self._send(written))
        return decided.answer

    async def _become_primary(self) -> None:
        """Take the transactional id, and read all that its last holder wrote."""
        settings = self.settings
        began_s = time.monotonic()
        self._writer = await self._in_writer_thread(
            lambda: TopicWriter(settings.bootstrap, settings.topic, settings.group, settings.timeout_s)
        )
        await self.wait_for(await self._send([records.noop_record()]))
        self._taking_s = time.monotonic() - began_s

    async def _send(self, written: Sequence[SchemaRecord]) -> int:
        writer = self._writer
        assert writer is not None
        return await self._in_writer_thread(lambda: writer.write(written))

    async def _in_writer_thread(self, work: Callable[[], T]) -> T:
        assert self._loop is not None
        return await self._loop.run_in_executor(self._writer_thread, work)


@dataclass(frozen=True)
class _Done:
    answer: Any


def next_job(steps: Steps[Any], result: Any) -> Any:
    """Hand a result, or an error, to a command; return its next job, or _Done."""
    try:
        return steps.throw(result) if isinstance(result, RegistryError) else steps.send(result)
    except StopIteration as stop:
        return _Done(stop.value)
