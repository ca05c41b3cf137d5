"""The driver for confluent-kafka, which is librdkafka."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.clients.client import WAIT_S_MAX, ClientFailed, Got, New, config_names, until

_POLL_S = 0.1


class ConfluentClient:
    name = "confluent-kafka"

    def __init__(self, bootstrap: str) -> None:
        self._settings = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(self._settings)

    def told(self, code: int) -> int:
        return code

    def produce(
        self,
        topic: str,
        records: list[New],
        *,
        acks: str = "all",
        codec: str = "none",
        idempotent: bool = False,
        linger_ms: int = 5,
    ) -> list[tuple[int, int]]:
        producer = Producer(
            self._settings
            | {
                "acks": acks,
                "compression.type": codec,
                "enable.idempotence": idempotent,
                "linger.ms": linger_ms,
                "message.max.bytes": 10_000_000,
                "message.timeout.ms": int(WAIT_S_MAX * 1000),
            }
        )
        places: list[tuple[int, int]] = [(-1, -1)] * len(records)
        errors: list[KafkaError] = []

        def on_delivery(index: int) -> Callable[[Any, Any], None]:
            def deliver(error: Any, message: Any) -> None:
                if error is not None:
                    errors.append(error)
                else:
                    places[index] = (message.partition(), message.offset())

            return deliver

        for index, record in enumerate(records):
            optional: dict[str, Any] = {} if record.partition is None else {"partition": record.partition}
            if record.timestamp_ms is not None:
                optional["timestamp"] = record.timestamp_ms
            producer.produce(
                topic,
                value=record.value,
                key=record.key,
                headers=list(record.headers),
                on_delivery=on_delivery(index),
                **optional,
            )
            producer.poll(0)
        assert producer.flush(WAIT_S_MAX) == 0
        if errors:
            raise ClientFailed(errors[0].code(), errors[0].str())
        return places

    def read(
        self,
        topic: str,
        starts: dict[int, int],
        count: int,
        *,
        reset: str = "earliest",
        fetch_bytes_max: int | None = None,
        while_waiting: Callable[[], None] | None = None,
    ) -> list[Got]:
        settings = {"group.id": "unused", "auto.offset.reset": "error" if reset == "none" else reset}
        if fetch_bytes_max is not None:
            settings |= {
                "fetch.message.max.bytes": str(fetch_bytes_max),
                "fetch.max.bytes": str(max(fetch_bytes_max, 1000)),
                "message.max.bytes": "1000",
            }
        consumer = Consumer(self._settings | {"enable.auto.commit": False, "fetch.wait.max.ms": 100} | settings)
        found: list[Got] = []
        try:
            consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])

            def attempt() -> bool:
                messages = consumer.consume(count - len(found), _POLL_S)
                found.extend(_got(message) for message in messages)
                if not messages and while_waiting is not None:
                    while_waiting()
                return len(found) >= count

            until(f"{count} records of {topic}, {len(found)} came", attempt)
        finally:
            consumer.close()
        return found

    def member(self, topic: str, group: str) -> ConfluentMember:
        return ConfluentMember(self._settings, topic, group)

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        consumer = Consumer(self._settings | {"group.id": group})
        try:
            offset: int = consumer.committed([TopicPartition(topic, partition)], timeout=WAIT_S_MAX)[0].offset
        finally:
            consumer.close()
        return None if offset < 0 else offset

    def earliest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, OffsetSpec.earliest())

    def latest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, OffsetSpec.latest())

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._offset(topic, partition, OffsetSpec.for_timestamp(timestamp_ms))
        return None if offset < 0 else offset

    def _offset(self, topic: str, partition: int, spec: Any) -> int:
        place = TopicPartition(topic, partition)
        offset: int = _result(self._admin.list_offsets({place: spec})[place]).offset
        return offset

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> None:
        topic = NewTopic(name, partitions, replication_factor, config=config_names(configs))
        _result(self._admin.create_topics([topic], operation_timeout=WAIT_S_MAX)[name])

    def delete_topic(self, name: str) -> None:
        _result(self._admin.delete_topics([name], operation_timeout=WAIT_S_MAX)[name])

    def topics(self) -> dict[str, int]:
        return {
            name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=WAIT_S_MAX).topics.items()
        }

    def close(self) -> None:
        pass


class ConfluentMember:
    def __init__(self, settings: dict[str, Any], topic: str, group: str) -> None:
        self._topic = topic
        self._consumer = Consumer(
            settings
            | {
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "session.timeout.ms": 10_000,
                "heartbeat.interval.ms": 500,
                "fetch.wait.max.ms": 100,
            }
        )
        self._consumer.subscribe([topic])

    def poll(self) -> list[Got]:
        return [_got(message) for message in self._consumer.consume(1000, _POLL_S)]

    def assignment(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit(asynchronous=False)

    def close(self) -> None:
        self._consumer.close()


def _got(message: Any) -> Got:
    if message.error() is not None:
        raise ClientFailed(message.error().code(), message.error().str())
    kind, timestamp_ms = message.timestamp()
    return Got(
        message.partition(),
        message.offset(),
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        timestamp_ms,
        kind == 2,
    )


def _result(future: Any) -> Any:
    try:
        return future.result(WAIT_S_MAX)
    except KafkaException as error:
        raise ClientFailed(error.args[0].code(), error.args[0].str()) from error
