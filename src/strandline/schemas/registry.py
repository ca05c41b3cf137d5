"""The registry's core in a process: a state that follows the topic, and writes that are answered when it has them.

One loop owns the state. The reader's thread hands records to it; parsing and comparing run in another thread, and the
writer in a third. Writes are decided one after the other, upon a state that holds every write before.

Writes that wait are decided in one turn, each upon a fork of the state that has the ones before it, and written in one
transaction. They are answered when all are in the state, or decided again if the transaction fails.

A write needs the topic's transactional id. The process that took it last is the primary. One that finds itself fenced
takes it again, reads to the end, and decides again. So several registries may write to one topic, and none forks a
subject.

A topic that is deleted and made again has another id. Then everything is read again, from the beginning of the new one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import random
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar
from uuid import UUID

from strandline.schemas import commands, failures, records
from strandline.schemas.engines import Engines, ParseJob, Steps
from strandline.schemas.failures import RegistryError
from strandline.schemas.records import SCHEMAS_TOPIC, SchemaRecord
from strandline.schemas.registering import Written
from strandline.schemas.state import RegistryState
from strandline.schemas.topic import (
    RECORD_BYTES_MAX,
    SchemaTopicFailed,
    TopicChanged,
    TopicReader,
    TopicWatch,
    TopicWriter,
    prepare_topic,
)
from strandline.schemas.types import SchemaType

ATTEMPTS_MAX: Final = 30
"""Of a write that fails, or that another process fences."""
PAUSE_S_MAX: Final = 2.0
"""Between two attempts, on average, besides twice the time that it took to become the primary."""
TURN_WRITES_MAX: Final = 100
"""Writes of one transaction."""
TURN_BYTES_MAX: Final = 4_000_000
"""Bytes of their records, besides those of the last one."""
TURN_S_MAX: Final = 0.05
"""The time for their decisions, besides that for the last one: a schema that takes long holds up only a few others."""
_PAUSE_S: Final = 0.02
_OPEN_AGAIN_S: Final = 1.0

logger = logging.getLogger("strandline.schemas")

T = TypeVar("T")
Decide = Callable[[RegistryState], Awaitable[Written[T]]]


@dataclass(frozen=True)
class RegistrySettings:
    bootstrap: str
    """May be `SecuredServers`."""
    topic: str = SCHEMAS_TOPIC
    group: str = "schema-registry"
    timeout_s: float = 30.0
    """For one turn of writes, all attempts together; and for the topic to be made."""


@dataclass(eq=False)
class PendingWrite:
    """A write that waits for its turn, and then for its answer."""

    decide: Decide[Any]
    answer: asyncio.Future[Any]
    outcome: Any = None
    """What was decided: an answer, or a RegistryError. It holds when the records of its turn are written."""

    def finish(self, outcome: Any) -> None:
        if self.answer.done():
            # The request that asked for it is gone.
            return
        if isinstance(outcome, Exception):
            self.answer.set_exception(outcome)
        else:
            self.answer.set_result(outcome)


@dataclass
class WriteTurn:
    """Writes that go into one transaction."""

    writes: list[PendingWrite]
    records: list[SchemaRecord] = field(default_factory=list)


class SchemaRegistry:
    """The schemas of a cluster; all methods are called on one loop."""

    def __init__(self, settings: RegistrySettings, types: Sequence[SchemaType]) -> None:
        self.settings = settings
        self.state = RegistryState()
        self.engines = Engines(types)
        self.position = 0
        """Offset up to which the topic is in the state."""
        self.is_ready = False
        self.trouble = ""
        """Why nothing can be written, in a sentence; empty if it can."""
        self._topic_id = UUID(int=0)
        self._epoch = 0
        """Raised when the topic is read again from its beginning; what belongs to another one is dropped."""
        self._end_at_start = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._reader: TopicReader | None = None
        self._watch: TopicWatch | None = None
        self._writer: TopicWriter | None = None
        self._taking_s = 0.0
        """How long it took to become the primary the last time."""
        self._engine_thread = ThreadPoolExecutor(1, "registry-engine")
        self._writer_thread = ThreadPoolExecutor(1, "registry-writer")
        self._engine_turn = asyncio.Lock()
        self._pending: deque[PendingWrite] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._opening: asyncio.Task[None] | None = None
        self._moved = asyncio.Event()
        """Set when `position` moves, and then replaced."""

    async def start(self) -> None:
        """Make the topic if it is missing, and begin to read it. `is_ready` when its end was reached."""
        self._loop = asyncio.get_running_loop()
        await self._open()
        self._watch = TopicWatch(self.settings.bootstrap, self.settings.topic, self._on_topic_id)
        self._watch.start()

    async def stop(self) -> None:
        if self._watch is not None:
            self._watch.stop()
        for task in (self._opening, self._writing):
            if task is not None:
                task.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await task
        await self._close_reader()
        self._writer = None
        self._engine_thread.shutdown(wait=False, cancel_futures=True)
        self._writer_thread.shutdown(wait=False, cancel_futures=True)

    async def _open(self) -> None:
        settings = self.settings
        prepare = partial(prepare_topic, settings.bootstrap, settings.topic, settings.timeout_s)
        self._topic_id, self._end_at_start = await asyncio.to_thread(prepare)
        self._reader = TopicReader(settings.bootstrap, settings.topic, partial(self._on_records, self._epoch))
        self._reader.start()

    async def _close_reader(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            await asyncio.to_thread(reader.stop)

    # Reading

    def _on_records(self, epoch: int, batch: Sequence[SchemaRecord], position: int, is_end: bool) -> None:
        """Fold what the reader's thread read, and let it go on then."""
        folded = threading.Event()

        def fold() -> None:
            if epoch == self._epoch:
                self._fold(batch, position, is_end)
            folded.set()

        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(fold)
        except RuntimeError:
            return
        while not folded.wait(1.0) and not self._loop.is_closed() and self._reader is not None:
            pass

    def _fold(self, batch: Sequence[SchemaRecord], position: int, is_end: bool) -> None:
        if batch and position < self.position:
            self._open_again("has records where it had others before")
            return
        skipped = self.state.skipped_count
        for record in batch:
            self.state.apply(record)
        if self.state.skipped_count > skipped:
            count = self.state.skipped_count - skipped
            logger.warning(
                "%d records of %s before offset %d are skipped: unknown or unreadable",
                count,
                self.settings.topic,
                position,
            )
        self.position = max(self.position, position)
        # The reader meets no end while others write without a pause.
        self.is_ready = self.is_ready or is_end or position >= self._end_at_start
        self._wake()

    def _wake(self) -> None:
        moved, self._moved = self._moved, asyncio.Event()
        moved.set()

    async def wait_for(self, offset: int) -> None:
        """Wait until the record at `offset` is in the state. Raise SchemaTopicFailed if the topic is made again."""
        epoch = self._epoch
        while self.position <= offset:
            await self._moved.wait()
            if self._epoch != epoch:
                raise SchemaTopicFailed(f"the topic {self.settings.topic} was made again meanwhile")

    async def wait_ready(self) -> None:
        while not self.is_ready:
            await self._moved.wait()

    # A topic that is made again

    def _on_topic_id(self, found: UUID | None) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._compare_id, found)

    def _compare_id(self, found: UUID | None) -> None:
        if self._opening is not None:
            return
        if found is None:
            # Its producer would have the brokers make the topic again, with settings that delete schemas.
            self._writer = None
            if not self.trouble:
                logger.warning("the topic %s is gone; what was read before is served", self.settings.topic)
            self.trouble = (
                f"The topic {self.settings.topic} is gone, so that nothing can be written. "
                "Make it again with cleanup.policy=compact, or restart the registry."
            )
        elif found != self._topic_id:
            self._open_again("was deleted and made again")
        else:
            self.trouble = ""

    def _open_again(self, why: str) -> None:
        """Forget everything, and read the topic from its beginning."""
        if self._opening is not None:
            return
        logger.warning("the topic %s %s: it is read from its beginning", self.settings.topic, why)
        self._epoch += 1
        self.is_ready = False
        self._writer = None
        assert self._loop is not None
        self._opening = self._loop.create_task(self._open_until_done())
        self._wake()

    async def _open_until_done(self) -> None:
        try:
            await self._close_reader()
            self.state = RegistryState()
            self.position = 0
            while True:
                try:
                    await self._open()
                except SchemaTopicFailed as error:
                    if str(error) != self.trouble:
                        logger.warning("%s", error)
                    self.trouble = str(error)
                    await asyncio.sleep(_OPEN_AGAIN_S)
                else:
                    self.trouble = ""
                    return
        finally:
            self._opening = None

    # Commands

    async def run(self, steps: Steps[T]) -> T:
        """Run a command; its jobs run in the engines' thread, unless they are quick."""
        job = next_job(steps, None)
        while not isinstance(job, _Done):
            async with self._engine_turn:
                job = next_job(steps, await self._attempt(job))
        answer: T = job.answer
        return answer

    async def _attempt(self, job: Any) -> Any:
        assert self._loop is not None
        try:
            if isinstance(job, ParseJob) and self.engines.is_quick(job.source):
                return job(self.engines)
            return await self._loop.run_in_executor(self._engine_thread, job, self.engines)
        except RegistryError as error:
            return error

    # Writing

    async def write(self, decide: Decide[T]) -> T:
        """Decide upon the state, write what was decided, and return the answer when it is in the state."""
        loop = asyncio.get_running_loop()
        pending = PendingWrite(decide, loop.create_future())
        self._pending.append(pending)
        if self._writing is None:
            self._writing = loop.create_task(self._write_pending())
        answer: T = await pending.answer
        return answer

    async def _write_pending(self) -> None:
        """Write all that waits, turn by turn."""
        writes: list[PendingWrite] = []
        try:
            while self._pending:
                count = min(len(self._pending), TURN_WRITES_MAX)
                turn = WriteTurn([self._pending.popleft() for _ in range(count)])
                writes = turn.writes
                failure = await self._failure_of(turn)
                for each in writes:
                    each.finish(each.outcome if failure is None else failure)
        finally:
            self._writing = None
            for each in (*writes, *self._pending):
                each.finish(RegistryError(failures.STORE_FAILED, "The registry stops."))
            self._pending.clear()

    async def _failure_of(self, turn: WriteTurn) -> Exception | None:
        """Write a turn; return why it failed as a whole, None if each write has an outcome."""
        try:
            async with asyncio.timeout(self.settings.timeout_s):
                await self._write_until_done(turn)
        except TimeoutError:
            # The thread may still be at it. The next write takes the id again, and reads what became of this one.
            self._writer = None
            words = f"The write took longer than {self.settings.timeout_s:g} s."
            return RegistryError(failures.TIMED_OUT, words)
        except Exception as error:  # each request that waits gets it, and logs it
            return error
        return None

    async def _write_until_done(self, turn: WriteTurn) -> None:
        for attempt in range(1, ATTEMPTS_MAX + 1):
            if self.trouble:
                raise RegistryError(failures.STORE_FAILED, self.trouble)
            try:
                return await self._write(turn)
            except SchemaTopicFailed as error:
                # Fenced, or not known to be written. What was written is in the state before the next decision.
                self._writer = None
                logger.info("%s (attempt %d)", error, attempt)
                if isinstance(error, TopicChanged):
                    self._compare_id(error.found)
                if attempt == ATTEMPTS_MAX:
                    raise RegistryError(failures.STORE_FAILED, f"The write failed: {error}") from error
            # Taking the id takes longer than a write. If both took it again at once, neither would ever write.
            pause_s = min(_PAUSE_S * 2**attempt, PAUSE_S_MAX) + 2 * self._taking_s
            await asyncio.sleep(random.uniform(0.5, 1.5) * pause_s)
        raise AssertionError("the last attempt returns or raises")

    async def _write(self, turn: WriteTurn) -> None:
        await self.wait_ready()
        if self._writer is None:
            await self._become_primary()
        await self._decide(turn)
        if turn.records:
            await self.wait_for(await self._send(turn.records))

    async def _decide(self, turn: WriteTurn) -> None:
        """Decide the writes of a turn, each upon those before it. What there is no time or room for waits again."""
        ahead = self.state.fork()
        turn.records = []
        size_bytes, ends_s = 0, time.monotonic() + TURN_S_MAX
        for at, each in enumerate(turn.writes):
            if at and (size_bytes > TURN_BYTES_MAX or time.monotonic() > ends_s):
                self._pending.extendleft(reversed(turn.writes[at:]))
                del turn.writes[at:]
                return
            # Requests that read go on between two decisions.
            await asyncio.sleep(0)
            try:
                decided = await each.decide(ahead)
                written = commands.with_other_keys(ahead, decided.records)
                if any(len(record.key) + len(record.value or b"") > RECORD_BYTES_MAX for record in written):
                    words = f"The record is larger than {RECORD_BYTES_MAX:,} bytes"
                    raise RegistryError(failures.SCHEMA_TOO_LARGE, words)
            except Exception as error:  # also one that is a mistake of an engine: other writes go on
                each.outcome = error
                continue
            for record in written:
                ahead.apply(record)
                size_bytes += len(record.key) + len(record.value or b"")
            turn.records += written
            each.outcome = decided.answer

    async def _become_primary(self) -> None:
        """Take the transactional id, and read all that its last holder wrote."""
        settings = self.settings
        topic_id, began_s = self._topic_id, time.monotonic()
        self._writer = await self._in_writer_thread(
            lambda: TopicWriter(settings.bootstrap, settings.topic, topic_id, settings.group, settings.timeout_s)
        )
        await self.wait_for(await self._send([records.noop_record()]))
        self._taking_s = time.monotonic() - began_s

    async def _send(self, written: Sequence[SchemaRecord]) -> int:
        writer, position, epoch = self._writer, self.position, self._epoch
        if writer is None:
            raise SchemaTopicFailed(f"the topic {self.settings.topic} was made again meanwhile")
        offset = await self._in_writer_thread(lambda: writer.write(written))
        if offset < position:
            self._open_again("has a new record where it had others before")
        if epoch != self._epoch:
            raise SchemaTopicFailed(f"the topic {self.settings.topic} was made again meanwhile")
        return offset

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
