"""Transactions by aiokafka; its coroutines run on a loop in a thread of their own."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.errors import BrokerResponseError, KafkaError, ProducerFenced
from tests.clients.aiokafka_client import LoopThread
from tests.clients.transactions.client import TIMEOUT_MS, WAIT_S_MAX, Positions, Record, Refused, Values
from tests.clients.transactions.transforming import MemberAndProducer

_POLL_MS = 200
_BATCH = 10
_T = TypeVar("_T")


class AiokafkaProducer:
    def __init__(self, thread: LoopThread, producer: AIOKafkaProducer) -> None:
        self._thread = thread
        self._producer = producer

    def begin(self) -> None:
        self._told(self._producer.begin_transaction())

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None:
        async def go() -> None:
            sent = [await self._producer.send(topic, value.encode(), partition=partition) for value in values]
            await asyncio.wait_for(asyncio.gather(*sent), WAIT_S_MAX)

        self._told(go())

    def give_positions(self, positions: Positions, identity: Any) -> None:
        offsets = {TopicPartition(*place): offset for place, offset in positions.items()}
        self._told(self._producer.send_offsets_to_transaction(offsets, identity))

    def commit(self) -> None:
        self._told(self._producer.commit_transaction())

    def abort(self) -> None:
        self._told(self._producer.abort_transaction())

    def close(self) -> None:
        self._thread.run(self._producer.stop())

    def _told(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return _told(self._thread, coroutine)


class AiokafkaMember:
    def __init__(self, thread: LoopThread, consumer: AIOKafkaConsumer, group: str) -> None:
        self._thread = thread
        self._consumer = consumer
        self.identity = group
        """It knows of no more than the group's name."""

    def poll(self) -> list[Record]:
        return _records(_told(self._thread, self._consumer.getmany(timeout_ms=_POLL_MS, max_records=_BATCH)))

    def seek(self, positions: Positions) -> None:
        async def go() -> None:
            for place, offset in positions.items():
                self._consumer.seek(TopicPartition(*place), offset)

        self._thread.run(go())

    def close(self) -> None:
        self._thread.run(self._consumer.stop())


class AiokafkaTransactions:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._thread = LoopThread()
        self._producers: list[AiokafkaProducer] = []

    def producer(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> AiokafkaProducer:
        async def started() -> AIOKafkaProducer:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                transactional_id=transactional_id,
                transaction_timeout_ms=timeout_ms,
            )
            try:
                await producer.start()
            except KafkaError:
                await producer.stop()
                raise
            return producer

        producer = AiokafkaProducer(self._thread, _told(self._thread, started()))
        self._producers.append(producer)
        return producer

    def transformer(self, transactional_id: str, group: str, topic: str) -> MemberAndProducer:
        async def started() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=self._bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                isolation_level="read_committed",
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            return consumer

        producer = self.producer(transactional_id)
        return MemberAndProducer(producer, AiokafkaMember(self._thread, _told(self._thread, started()), group))

    def read(self, topic: str, partitions: int, isolation: str) -> Values:
        return _told(self._thread, self._read(topic, partitions, isolation))

    async def _read(self, topic: str, partitions: int, isolation: str) -> Values:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap, enable_auto_commit=False, isolation_level=isolation, fetch_max_wait_ms=50
        )
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        values: Values = [[] for _ in places]
        await consumer.start()
        try:
            consumer.assign(places)
            await consumer.seek_to_beginning(*places)
            ends = await consumer.end_offsets(places)
            while any([await consumer.position(place) < end for place, end in ends.items()]):
                for record in _records(await consumer.getmany(timeout_ms=_POLL_MS)):
                    values[record.partition].append(record.value)
        finally:
            await consumer.stop()
        return values

    def close(self) -> None:
        for producer in self._producers:
            producer.close()
        self._thread.close()


def _records(batches: dict[Any, list[Any]]) -> list[Record]:
    return [
        Record(record.topic, record.partition, record.offset, record.value.decode())
        for batch in batches.values()
        for record in batch
    ]


def _told(thread: LoopThread, coroutine: Coroutine[Any, Any, _T]) -> _T:
    try:
        return asyncio.run_coroutine_threadsafe(coroutine, thread.loop).result(2 * WAIT_S_MAX)
    except KafkaError as failure:
        code = failure.message if isinstance(failure, BrokerResponseError) else repr(failure)
        raise Refused(code, is_final=isinstance(failure, ProducerFenced)) from failure
