"""Transactions by confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from tests.clients.transactions.client import TIMEOUT_MS, WAIT_S_MAX, Positions, Record, Refused, Values
from tests.clients.transactions.transforming import MemberAndProducer

_POLL_S = 0.2
_BATCH = 10
_T = TypeVar("_T")


class ConfluentProducer:
    def __init__(self, bootstrap: str, transactional_id: str, timeout_ms: int) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                # It must be within the other, and a longer one is of no use.
                "message.timeout.ms": min(timeout_ms, TIMEOUT_MS),
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        _told(self._producer.init_transactions, WAIT_S_MAX)

    def begin(self) -> None:
        _told(self._producer.begin_transaction)

    def send(self, topic: str, partition: int, values: Sequence[str]) -> None:
        failures: list[KafkaError] = []

        def on_delivery(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                failures.append(error)

        for value in values:
            _told(self._producer.produce, topic, value.encode(), partition=partition, on_delivery=on_delivery)
        assert _told(self._producer.flush, WAIT_S_MAX) == 0
        if failures:
            raise _refused(failures[0])

    def give_positions(self, positions: Positions, identity: Any) -> None:
        offsets = [TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
        _told(self._producer.send_offsets_to_transaction, offsets, identity, WAIT_S_MAX)

    def commit(self) -> None:
        _told(self._producer.commit_transaction, WAIT_S_MAX)

    def abort(self) -> None:
        _told(self._producer.abort_transaction, WAIT_S_MAX)


class ConfluentMember:
    def __init__(self, bootstrap: str, group: str, topic: str) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic])

    @property
    def identity(self) -> Any:
        return self._consumer.consumer_group_metadata()

    def poll(self) -> list[Record]:
        found = [message for message in self._consumer.consume(_BATCH, _POLL_S) if message.error() is None]
        return [_record(message) for message in found]

    def seek(self, positions: Positions) -> None:
        for (topic, partition), offset in positions.items():
            self._consumer.seek(TopicPartition(topic, partition, offset))

    def close(self) -> None:
        self._consumer.close()


class ConfluentTransactions:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def producer(self, transactional_id: str, *, timeout_ms: int = TIMEOUT_MS) -> ConfluentProducer:
        return ConfluentProducer(self._bootstrap, transactional_id, timeout_ms)

    def transformer(self, transactional_id: str, group: str, topic: str) -> MemberAndProducer:
        return MemberAndProducer(self.producer(transactional_id), ConfluentMember(self._bootstrap, group, topic))

    def read(self, topic: str, partitions: int, isolation: str) -> Values:
        settings = {"group.id": "reads", "isolation.level": isolation, "fetch.wait.max.ms": 20, "log_level": 0}
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "enable.partition.eof": True, **settings})
        values: Values = [[] for _ in range(partitions)]
        ends: set[int | None] = set()
        try:
            consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
            while len(ends) < partitions:
                message = consumer.poll(WAIT_S_MAX)
                assert message is not None, f"the end of {topic} was not told"
                error = message.error()
                if error is None:
                    record = _record(message)
                    values[record.partition].append(record.value)
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    ends.add(message.partition())
        finally:
            consumer.close()
        return values

    def close(self) -> None:
        pass


def _record(message: Any) -> Record:
    return Record(message.topic(), message.partition(), message.offset(), message.value().decode())


def _refused(error: KafkaError) -> Refused:
    return Refused(error.name().removeprefix("_"), is_final=error.fatal())


def _told(call: Callable[..., _T], *arguments: Any, **named: Any) -> _T:
    try:
        return call(*arguments, **named)
    except KafkaException as failure:
        raise _refused(failure.args[0]) from failure
