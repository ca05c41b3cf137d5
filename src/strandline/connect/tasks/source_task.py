"""A source's task: batches from the source into the log, each with the position behind it.

A transaction ends as soon as the source has nothing more at hand, so a record that comes alone is seen at once; under
load it ends after a second, or when it is large, but never between batches that belong together. Failures are not
mended in place: the task ends, and starts again behind the last position that was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any, Final

from strandline.connect.failures import ConnectFailed, RetriableFailure, SchemaRefused
from strandline.connect.records import SourcePosition, SourceRecord
from strandline.connect.source import Source
from strandline.connect.tasks.calls import SourceBatches
from strandline.connect.tasks.conversion import Conversion
from strandline.connect.tasks.rate_limit import RateLimit
from strandline.connect.tasks.settings import client_overrides
from strandline.connect.tasks.task import ConnectTask, TaskContext
from strandline.connect.tasks.task_producer import TaskProducer
from strandline.connect.tasks.tolerance import BadRecord, RawRecord, Tolerance
from strandline.connect.tasks.topic_creation import TopicCreation
from strandline.runtime.fault_points import fault_point

TRANSACTION_S_MAX: Final = 1.0
TRANSACTION_BYTES_MAX: Final = 32 * 1024 * 1024
TRANSACTION_RECORDS_MAX: Final = 200_000
IDLE_S: Final = 0.002
"""How long a source may take for the next batch before what it has given is committed."""
OFFSETS_S_MAX: Final = 60.0


def transactional_id(group: str, connector: str, task: int) -> str:
    """Return the transactional id of a task, as Kafka Connect makes it."""
    return f"{group}-{connector}-{task}"


class SourceTask(ConnectTask):
    """Runs a source."""

    connector: Source

    def __init__(self, context: TaskContext, connector: Source) -> None:
        super().__init__(context, connector)
        self._conversion = Conversion(context.properties, context.allowed_modules)
        self._tolerance = Tolerance(context.bootstrap, context.id, context.class_name, self.settings, self.metrics)
        self._limit = RateLimit(self.settings.rate_records, self.settings.rate_bytes, time.monotonic)
        self._creation = TopicCreation(context.bootstrap, context.properties)
        self._producer: TaskProducer | None = None
        self._positions: list[SourcePosition] = []
        self._began_s = 0.0
        self._open_records = 0
        self._open_bytes = 0
        self._is_unit_open = False
        """Whether the last batch belongs with the next one, so that neither may be committed alone."""
        self._has_ended = False

    @property
    def is_done(self) -> bool:
        return self._has_ended

    async def run(self) -> None:
        reader: SourceBatches | None = None
        pending: asyncio.Task[Any] | None = None
        try:
            self._producer = await self.threads.in_client(self._take_over)
            offsets_reader, offsets = self.context.offsets()
            # After the id was taken: what the one before has committed is there by now.
            await self.threads.in_client(offsets_reader.read_to_end, OFFSETS_S_MAX)
            await self.threads.call(self.connector.open)
            reader = SourceBatches(self.threads, self.connector.read(offsets.of(self.context.id.connector)))
            while not self._is_stopping.is_set():
                if self._is_paused.is_set() and not self._is_unit_open:
                    await self._commit()
                    resumed = asyncio.create_task(self._may_run.wait())
                    await self._wait_for(resumed)
                    resumed.cancel()
                    continue
                pending = pending or asyncio.create_task(reader.next())
                if not await self._is_ready(pending):
                    continue
                if pending.exception() is not None:
                    # What it gave before is sound, and need not be read again.
                    await self._commit()
                batch, pending = pending.result(), None
                if batch is None:
                    await self._commit()
                    self._has_ended = True
                    await self._is_stopping.wait()
                    return
                await self._take(batch)
            await self._commit()
        finally:
            await self._close(reader, pending)

    def _take_over(self) -> TaskProducer:
        context = self.context
        return TaskProducer(
            context.bootstrap,
            transactional_id(context.group, *context.id),
            context.offsets_topic,
            {"transaction.timeout.ms": str(self.connector.transaction_timeout_ms)}
            | client_overrides(context.properties, "producer"),
        )

    async def _is_ready(self, pending: asyncio.Task[Any]) -> bool:
        """Wait for the next batch. If it is not there at once, commit first; False if there is something else to do."""
        if not pending.done():
            await asyncio.wait([pending], timeout=IDLE_S)
        if pending.done():
            return True
        await self._commit()
        await self._wait_for(pending)
        return pending.done()

    async def _wait_for(self, awaited: asyncio.Task[Any]) -> None:
        """Wait for a task, or until this one is to stop or to pause."""
        stopping = asyncio.create_task(self._is_stopping.wait())
        others = [stopping]
        if not self._is_paused.is_set():
            others.append(asyncio.create_task(self._is_paused.wait()))
        try:
            await asyncio.wait([awaited, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in others:
                each.cancel()

    async def _take(self, batch: Any) -> None:
        records, size = await self.threads.in_client(self._send, batch)
        if not self._open_records and not self._positions:
            self._began_s = time.monotonic()
        self._positions += batch.positions()
        self._open_records += records
        self._open_bytes += size
        self._is_unit_open = batch.is_open
        self.metrics.batches += 1
        if (
            time.monotonic() - self._began_s > TRANSACTION_S_MAX
            or self._open_bytes > TRANSACTION_BYTES_MAX
            or self._open_records > TRANSACTION_RECORDS_MAX
        ):
            await self._commit()
        if not self._limit.is_none:
            await self._commit()
            await self._limit.wait(records, size)

    def _send(self, batch: Any) -> tuple[int, int]:
        assert self._producer is not None
        if not hasattr(batch, "records"):
            topic = batch.topic or self.settings.topic
            payloads = self._conversion.payloads(batch.values, topic)
            if payloads is not None:
                self._prepare(topic)
                return self._producer.send_values(topic, payloads)
            records = [SourceRecord(value=each, value_schema=batch.value_schema, topic=topic) for each in batch.values]
        else:
            records = batch.records
        found = self._conversion.batches(records, self.settings.topic)
        if found is not None:
            for topic in found:
                self._prepare(topic)
            return self._producer.send_batches(found)
        messages = list(self._conversion.messages(records, self.settings.topic, self._on_bad))
        for topic in {each.topic for each in messages}:
            self._prepare(topic)
        return self._producer.send(messages)

    def _prepare(self, topic: str) -> None:
        if not topic:
            raise ConnectFailed("the source gave a record without a topic, and its config has no `topic`")
        if self._uses(topic):
            self._creation.create(topic)

    def _on_bad(self, bad: BadRecord, raw: RawRecord | None) -> None:
        if isinstance(bad.error, SchemaRefused) and self.connector.waits_for_schemas:
            raise RetriableFailure(
                f"{bad.error}; the source holds its place and tries again: change the table, or the compatibility of "
                f"the subject"
            )
        self._tolerance.take(bad, raw)

    async def _commit(self) -> None:
        if self._is_unit_open or (not self._open_records and not self._positions):
            return
        assert self._producer is not None
        _, offsets = self.context.offsets()
        positions = list(self._positions)
        records = offsets.records(self.context.id.connector, positions)
        fault_point("connect-before-commit")
        await self.threads.in_client(self._producer.commit, records)
        fault_point("connect-after-commit")
        self.metrics.records += self._open_records
        self.metrics.bytes += self._open_bytes
        self.metrics.commits += 1
        self._positions.clear()
        self._open_records = self._open_bytes = 0
        await self.threads.call(self.connector.committed, positions)

    async def _close(self, reader: SourceBatches | None, pending: asyncio.Task[Any] | None) -> None:
        """Let go of everything, whatever failed before."""
        if pending is not None:
            pending.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await pending
        try:
            if reader is not None:
                await reader.close()
            await self.threads.call(self.connector.close)
        finally:
            if self._producer is not None:
                await self.threads.in_client(self._producer.close)
            self._conversion.close()
            self.threads.close()
