"""A sink's task: a member of the consumer group `connect-NAME`, from topics to the target.

Offsets are committed only behind what the target has stored. If the target is away, the batch is kept and written
again, while the consumer stays in its group and reads nothing more. Everything of the consumer runs in the task's
client thread; a rebalance happens inside of a poll, and there the sink flushes what it has of revoked partitions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

from strandline.client.security import librdkafka_of
from strandline.connect.failures import ConnectFailed, RecordFailed, RetriableFailure
from strandline.connect.herder.state_topics import kafka_words, quiet, translated
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.tasks.conversion import Conversion, ConvertedBatch
from strandline.connect.tasks.rate_limit import RateLimit
from strandline.connect.tasks.settings import client_overrides
from strandline.connect.tasks.task import ConnectTask, TaskContext
from strandline.connect.tasks.tolerance import TASK_PUT, BadRecord, Tolerance
from strandline.runtime.fault_points import fault_point

RECORDS_MAX: Final = 5_000
"""Records of one batch."""
_READING: Final = {
    # librdkafka waits a second by default when its queue is full, which takes three quarters of the throughput.
    "fetch.queue.backoff.ms": 2,
    "queued.min.messages": 30_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.wait.max.ms": 100,
    # The default is five minutes, and so long a sink would not read a topic that a source has just created.
    "topic.metadata.refresh.interval.ms": 5000,
}
HEARTBEAT_MS_MAX: Final = 3000
"""librdkafka's default, which lets a session that is as short end before its first heartbeat."""
POLL_S: Final = 0.2
POLL_AFTER_S: Final = 5.0
"""How long a call of the sink may take before the consumer is polled beside it."""
FLUSH_EVERY_S: Final = 1.0
BACKOFF_S: Final = 0.2
IDLE_POLLS: Final = 5
"""Polls without a record after which there is none."""
_REVOKE_S_MAX: Final = 60.0

log = logging.getLogger("strandline.connect")


def group_of(connector: str, properties: Mapping[str, str]) -> str:
    """Return the consumer group of a sink, as Kafka Connect names it."""
    return properties.get("consumer.override.group.id") or f"connect-{connector}"


class SinkTask(ConnectTask):
    """Runs a sink."""

    connector: Sink

    def __init__(self, context: TaskContext, connector: Sink) -> None:
        super().__init__(context, connector)
        if not self.settings.topics and not self.settings.topics_regex:
            raise ConnectFailed("a sink needs `topics` or `topics.regex`")
        self._conversion = Conversion(context.properties, context.allowed_modules)
        self._tolerance = Tolerance(context.bootstrap, context.id, context.class_name, self.settings, self.metrics)
        self._limit = RateLimit(self.settings.rate_records, self.settings.rate_bytes, time.monotonic)
        # With a limit a batch is what a second allows, so that offsets are committed in between.
        self._records_max = (
            min(RECORDS_MAX, max(1, int(self.settings.rate_records))) if self.settings.rate_records else RECORDS_MAX
        )
        self._kafka = import_module("confluent_kafka")
        self._consumer: Any = None
        self._loop = asyncio.get_running_loop()
        self._written: dict[TopicPosition, int] = {}
        """Offsets behind what `write` has taken."""
        self._committed: dict[TopicPosition, int] = {}
        self._kept: ConvertedBatch | None = None
        """The batch that the target could not take yet."""
        self._assigned: set[TopicPosition] = set()
        self._is_held = False
        self._flush_at_s = 0.0
        self._empty_polls = 0
        self._connector_lock = asyncio.Lock()
        """One call of the sink at a time: a rebalance may come while it writes."""

    @property
    def is_done(self) -> bool:
        return bool(self._assigned) and self._empty_polls >= IDLE_POLLS and self._kept is None

    async def run(self) -> None:
        try:
            await self.threads.call(self.connector.open)
            await self.threads.in_client(self._subscribe)
            while not self._is_stopping.is_set():
                await self._step()
            await self._flush()
        finally:
            await self._close()

    async def _step(self) -> None:
        await self.threads.in_client(self._hold, self._is_paused.is_set())
        batch = await self.threads.in_client(self._poll)
        if batch is not None:
            await self._write(batch)
        if time.monotonic() >= self._flush_at_s:
            await self._flush()
        if batch is not None and not self._limit.is_none:
            await self._limit.wait(len(batch), batch.size_bytes)

    # Reading

    def _subscribe(self) -> None:
        context = self.context
        settings = (
            librdkafka_of(context.bootstrap)
            | {
                "client.id": f"connector-consumer-{context.id}",
                "log_level": 0,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": context.session_timeout_ms,
                "heartbeat.interval.ms": min(HEARTBEAT_MS_MAX, context.session_timeout_ms // 3),
                **_READING,
            }
            | client_overrides(context.properties, "consumer")
            | {
                "group.id": group_of(context.id.connector, context.properties),
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
            }
        )
        topics = self.settings.topics or [f"^{self.settings.topics_regex.removeprefix('^')}"]
        try:
            self._consumer = self._kafka.Consumer(settings, logger=quiet)
            self._consumer.subscribe(
                topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
            )
        except (self._kafka.KafkaException, ValueError, TypeError) as error:
            raise translated(error, f"cannot read {', '.join(topics)}") from error

    def _hold(self, is_held: bool) -> None:
        """Pause or resume all partitions."""
        if is_held != self._is_held:
            self._is_held = is_held
            places = [self._kafka.TopicPartition(*each) for each in self._assigned]
            (self._consumer.pause if is_held else self._consumer.resume)(places)

    def _poll(self) -> ConvertedBatch | None:
        try:
            messages = self._consumer.consume(self._records_max, POLL_S)
        except self._kafka.KafkaException as error:
            raise translated(error, "cannot read") from error
        good = [each for each in messages if each.error() is None]
        if len(good) < len(messages):
            for message in messages:
                if message.error() is not None:
                    self._on_error(message.error())
        self._empty_polls = 0 if good or not self._assigned else self._empty_polls + 1
        if not good:
            return None
        batch = self._conversion.batch(good, self._tolerance.take, len(self._assigned))
        for topic, _ in batch.ends:
            self._uses(topic)
        return batch

    def _on_error(self, error: Any) -> None:
        failure = translated(self._kafka.KafkaException(error), "cannot read")
        if error.fatal() or not isinstance(failure, RetriableFailure):
            raise failure
        log.info("%s: %s", self.context.id, failure)

    # Writing

    async def _write(self, batch: ConvertedBatch) -> None:
        """Write a batch; what it takes until the target has it, unless the task stops or loses the partitions."""
        self._kept = batch
        attempt = 0
        began_s = time.monotonic()
        while self._kept is not None and not self._is_stopping.is_set():
            try:
                await self._write_once(self._kept)
            except RetriableFailure as error:
                attempt += 1
                self.metrics.retries += 1
                waited_s = time.monotonic() - began_s
                self.context.on_note(f"the target is away, tried {attempt} times in {waited_s:.0f} s: {error}")
                await self._back_off(attempt, error.retry_after_s)
            else:
                self._on_written()
        if attempt:
            self.context.on_note(None)

    def _on_written(self) -> None:
        if self._kept is not None:
            self._written.update(self._kept.ends)
            self.metrics.records += len(self._kept)
            self.metrics.batches += 1
            self._kept = None

    async def _write_once(self, batch: ConvertedBatch) -> None:
        """Write a batch, without records that fail and are left out."""
        while len(batch):
            # A sink may store offsets with the batch, and they are behind the records that were left out.
            await self.threads.in_client(self._tolerance.flush)
            fault_point("connect-before-write")
            try:
                await self._call_while_polling(self.connector.write, batch)
            except RecordFailed as error:
                batch = self._kept = await self._leave_out(batch, error)
            else:
                return

    async def _leave_out(self, batch: ConvertedBatch, error: RecordFailed) -> ConvertedBatch:
        """Return the batch without the record that failed; where it is not known which, each is written alone."""
        named = error.record
        if isinstance(named, SinkRecord):
            self._fail(batch, named, error)
            return _without(batch, [named])
        if len(batch) == 1:
            self._fail(batch, batch[0], error)
            return _without(batch, [batch[0]])
        done = []
        for record in batch:
            try:
                await self._call_while_polling(self.connector.write, batch.only(record))
            except RecordFailed as alone:
                self._fail(batch, record, alone)
                await self.threads.in_client(self._tolerance.flush)
            done.append(record)
        return _without(batch, done)

    def _fail(self, batch: ConvertedBatch, record: SinkRecord, error: RecordFailed) -> None:
        self._tolerance.take(BadRecord(TASK_PUT, record.place, error), batch.raw_of(record))

    async def _back_off(self, attempt: int, wanted_s: float | None) -> None:
        """Wait longer each time, or as long as the target wants. The consumer is polled meanwhile."""
        longest_s = self.settings.errors_retry_delay_max_ms / 1000
        until = time.monotonic() + max(min(BACKOFF_S * 2 ** min(attempt - 1, 20), longest_s), wanted_s or 0)
        await self.threads.in_client(self._hold, True)
        while time.monotonic() < until and not self._is_stopping.is_set():
            await self.threads.in_client(self._poll_held)
        await self.threads.in_client(self._hold, self._is_paused.is_set())

    def _poll_held(self) -> None:
        for message in self._consumer.consume(1, POLL_S):
            if message.error() is None:
                # It was on its way when the partition was paused: read it again.
                self._consumer.seek(self._kafka.TopicPartition(message.topic(), message.partition(), message.offset()))
            else:
                self._on_error(message.error())

    # Offsets

    async def _flush(self) -> None:
        """Have the sink store what it has kept, and commit the offsets behind it."""
        self._flush_at_s = time.monotonic() + FLUSH_EVERY_S
        if self._written == self._committed:
            return
        written = dict(self._written)
        attempt = 0
        while True:
            try:
                stored = await self._call_while_polling(self.connector.flush)
            except RetriableFailure as error:
                attempt += 1
                self.metrics.retries += 1
                self.context.on_note(f"the target is away, tried {attempt} times: {error}")
                if self._is_stopping.is_set():
                    # What is not stored is read again by the next task.
                    return
                await self._back_off(attempt, error.retry_after_s)
            else:
                break
        if attempt:
            self.context.on_note(None)
        fault_point("connect-before-offset-commit")
        await self.threads.in_client(self._tolerance.flush)
        await self.threads.in_client(self._commit, written if stored is None else stored)

    def _commit(self, offsets: Mapping[TopicPosition, int]) -> None:
        changed = {
            each: offset
            for each, offset in offsets.items()
            if each in self._assigned and self._committed.get(each) != offset
        }
        if not changed:
            return
        places = [self._kafka.TopicPartition(*each, offset) for each, offset in changed.items()]
        try:
            self._consumer.commit(offsets=places, asynchronous=False)
        except self._kafka.KafkaException as error:
            # The group rebalances, or its coordinator is away. What is committed later holds for this, too.
            log.info("%s: offsets cannot be committed now: %s", self.context.id, kafka_words(error))
            return
        self._committed.update(changed)
        self.metrics.commits += 1

    # Rebalances, in the client thread

    def _on_assign(self, consumer: Any, partitions: Sequence[Any]) -> None:
        places = [TopicPosition(each.topic, each.partition) for each in partitions]
        resumed: Mapping[TopicPosition, int] = (
            self._on_loop(self._call(self.connector.resume, places)) if places else {}
        )
        for each in partitions:
            offset = resumed.get(TopicPosition(each.topic, each.partition))
            if offset is not None:
                each.offset = offset
        consumer.incremental_assign(partitions)
        self._assigned.update(places)
        if partitions:
            # librdkafka keeps the pause of a partition that was lost while it was paused.
            again = [self._kafka.TopicPartition(*each) for each in places]
            (consumer.pause if self._is_held else consumer.resume)(again)

    def _on_revoke(self, consumer: Any, partitions: Sequence[Any]) -> None:
        places = [TopicPosition(each.topic, each.partition) for each in partitions]
        try:
            if any(self._written.get(each) != self._committed.get(each) for each in places):
                self._last_flush()
        except ConnectFailed as error:
            log.warning("%s: what it gives up was not stored, and is read again: %s", self.context.id, error)
        finally:
            self._drop(places)
            consumer.incremental_unassign(partitions)

    def _on_lost(self, consumer: Any, partitions: Sequence[Any]) -> None:
        # Another task has them already, and reads what was not committed.
        self._drop([TopicPosition(each.topic, each.partition) for each in partitions])
        consumer.incremental_unassign(partitions)

    def _last_flush(self) -> None:
        stored = self._on_loop(self._call(self.connector.flush))
        self._tolerance.flush()
        self._commit(dict(self._written) if stored is None else stored)

    def _drop(self, places: Sequence[TopicPosition]) -> None:
        self._assigned.difference_update(places)
        self._on_loop(self._call(self.connector.revoked, places))
        for each in places:
            self._written.pop(each, None)
            self._committed.pop(each, None)
        if self._kept is not None:
            left = self._kept.without(set(places))
            self._kept = left if left.ends else None

    async def _call(self, method: Callable[..., Any], *args: Any) -> Any:
        async with self._connector_lock:
            return await self.threads.call(method, *args)

    async def _call_while_polling(self, method: Callable[..., Any], *args: Any) -> Any:
        """Call the sink. If it takes long, the consumer is polled meanwhile, or its group would give it up."""
        calling = asyncio.ensure_future(self._call(method, *args))
        done, _ = await asyncio.wait([calling], timeout=POLL_AFTER_S)
        if not done:
            await self.threads.in_client(self._hold, True)
            while not calling.done():
                await self.threads.in_client(self._poll_held)
            await self.threads.in_client(self._hold, self._is_paused.is_set())
        return await calling

    def _on_loop(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """Run a coroutine of the loop from the client thread, which waits for it."""
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(_REVOKE_S_MAX)
        except TimeoutError:
            raise RetriableFailure(
                f"partitions moved, and the sink did not answer within {_REVOKE_S_MAX:g} s"
            ) from None

    def lag(self) -> dict[TopicPosition, int]:
        """Return how many offsets the group is behind in each partition, by what the consumer last heard."""
        behind = {}
        for each in list(self._assigned):
            place = self._kafka.TopicPartition(*each)
            _, end = self._consumer.get_watermark_offsets(place, cached=True)
            position = self._written.get(each)
            if end >= 0 and position is not None:
                behind[each] = max(0, end - position)
        return behind

    async def _close(self) -> None:
        try:
            if self._consumer is not None:
                await self.threads.in_client(self._consumer.close)
        finally:
            try:
                await self.threads.call(self.connector.close)
            finally:
                self._conversion.close()
                self.threads.close()


def _without(batch: ConvertedBatch, records: Sequence[SinkRecord]) -> ConvertedBatch:
    """Return the batch without these records. Their offsets stay in it: they are done with."""
    gone = {id(each) for each in records}
    return batch.keeping([each for each in batch if id(each) not in gone])
