"""Transactions by kafka-python."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from kafka import KafkaConsumer, KafkaProducer, OffsetAndMetadata, TopicPartition
from kafka.errors import BrokerResponseError, KafkaError, TransactionAbortableError
from tests.clients.transactions.client import TIMEOUT_MS, WAIT_S_MAX, Positions, Record, Refused, Values
from tests.clients.transactions.transforming import MemberAndProducer

_POLL_MS = 200
_JOIN_MS = 10_000
"""Long: 3.0.12 may lose an assignment that comes between two polls, and then turns in a circle until it is fenced."""
_BATCH = 10
_T = TypeVar("_T")


class KafkaPythonProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap,
            transactional_id=transactional_id,
            transaction_timeout_ms=timeout_ms,
            max_block_ms=int(WAIT_S_MAX * 1000),
        )
        try:
            _told(self._producer.init_transactions)
        except Refused:
            self.close()
            raise

    def begin(self) -> None:
        _told(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None:
        futures = [_told(self._producer.send, topic, value.encode(), partition=partition) for value in values]
        for future in futures:
            _told(future.get, WAIT_S_MAX)

    def give_positions(self, positions: Positions, identity: Any) -> None:
        offsets = {TopicPartition(*place): OffsetAndMetadata(offset, "", -1) for place, offset in positions.items()}
        _told(self._producer.send_offsets_to_transaction, offsets, identity)

    def commit(self) -> None:
        _told(self._producer.commit_transaction)

    def abort(self) -> None:
        _told(self._producer.abort_transaction)

    def close(self) -> None:
        self._producer.close(timeout=0)


class KafkaPythonMember:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            fetch_max_wait_ms=100,
        )

    @property
    def identity(self) -> Any:
        return self._consumer.group_metadata()

    def poll(self) -> list[Record]:
        return _records(self._consumer.poll(timeout_ms=_JOIN_MS, max_records=_BATCH))

    def seek(self, positions: Positions) -> None:
        for place, offset in positions.items():
            self._consumer.seek(TopicPartition(*place), offset)

    def close(self) -> None:
        self._consumer.close(autocommit=False)


class KafkaPythonTransactions:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._producers: list[KafkaPythonProducer] = []

    def producer(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> KafkaPythonProducer:
        producer = KafkaPythonProducer(self._bootstrap, transactional_id, timeout_ms)
        self._producers.append(producer)
        return producer

    def transformer(self, transactional_id: str, group: str, topic: str) -> MemberAndProducer:
        return MemberAndProducer(self.producer(transactional_id), KafkaPythonMember(self._bootstrap, group, topic))

    def read(self, topic: str, partitions: int, isolation: str) -> Values:
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            enable_auto_commit=False,
            isolation_level=isolation,
            fetch_max_wait_ms=50,
        )
        places = [TopicPartition(topic, partition) for partition in range(partitions)]
        values: Values = [[] for _ in places]
        try:
            consumer.assign(places)
            consumer.seek_to_beginning(*places)
            ends = consumer.end_offsets(places)
            while any(consumer.position(place) < end for place, end in ends.items()):
                for record in _records(consumer.poll(timeout_ms=_POLL_MS)):
                    values[record.partition].append(record.value)
        finally:
            consumer.close(autocommit=False)
        return values

    def close(self) -> None:
        for producer in self._producers:
            producer.close()


def _records(batches: dict[Any, list[Any]]) -> list[Record]:
    return [
        Record(record.topic, record.partition, record.offset, record.value.decode())
        for batch in batches.values()
        for record in batch
    ]


def _told(call: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
    try:
        return call(*arguments, **named)
    except KafkaError as failure:
        code = failure.message if isinstance(failure, BrokerResponseError) else repr(failure)
        raise Refused(str(code), is_final=not isinstance(failure, TransactionAbortableError)) from failure
