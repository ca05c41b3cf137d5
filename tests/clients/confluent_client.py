"""The driver for confluent-kafka, which is librdkafka."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)
from tests.clients.client import (
    NO_LIMITS,
    WAIT_S_MAX,
    ClientFailed,
    Cluster,
    Got,
    Limits,
    New,
    Replicas,
    Setting,
    config_names,
    read_all,
    until,
)

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

    def reader(
        self, topic: str, starts: Mapping[int, int], *, reset: str = "earliest", limits: Limits = NO_LIMITS
    ) -> ConfluentReader:
        settings = {"group.id": "unused", **fetch_settings(reset, limits)}
        consumer = Consumer(self._settings | {"enable.auto.commit": False, "fetch.wait.max.ms": 100} | settings)
        consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
        return ConfluentReader(consumer, topic)

    def read(
        self,
        topic: str,
        starts: Mapping[int, int],
        count: int,
        *,
        reset: str = "earliest",
        limits: Limits = NO_LIMITS,
        while_waiting: Callable[[], None] | None = None,
    ) -> list[Got]:
        return read_all(self.reader(topic, starts, reset=reset, limits=limits), topic, count, while_waiting)

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

    def at_latest_time(self, topic: str, partition: int) -> int | None:
        offset = self._offset(topic, partition, OffsetSpec.max_timestamp())
        return None if offset < 0 else offset

    def _offset(self, topic: str, partition: int, spec: Any) -> int:
        place = TopicPartition(topic, partition)
        offset = -1

        def attempt() -> bool:
            nonlocal offset
            try:
                offset = _result(self._admin.list_offsets({place: spec})[place]).offset
            except ClientFailed as failure:
                # A leader that is only just beginning; other clients ask again by themselves.
                if failure.code != KafkaError.NOT_LEADER_FOR_PARTITION:
                    raise
                return False
            return True

        until(f"a leader of {topic}-{partition}", attempt)
        return offset

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        *,
        assignment: Sequence[Sequence[int]] | None = None,
        validate_only: bool = False,
        **configs: str,
    ) -> None:
        if assignment is None:
            topic = NewTopic(name, partitions, replication_factor, config=config_names(configs))
        else:
            replicas = [list(brokers) for brokers in assignment]
            topic = NewTopic(name, len(replicas), replica_assignment=replicas, config=config_names(configs))
        options = {"operation_timeout": WAIT_S_MAX, "validate_only": validate_only}
        _result(self._admin.create_topics([topic], **options)[name])

    def create_partitions(self, topic: str, count: int) -> None:
        _result(self._admin.create_partitions([NewPartitions(topic, count)], operation_timeout=WAIT_S_MAX)[topic])

    def delete_topic(self, name: str) -> None:
        _result(self._admin.delete_topics([name], operation_timeout=WAIT_S_MAX)[name])

    def topics(self) -> dict[str, int]:
        return {
            name: len(topic.partitions) for name, topic in self._admin.list_topics(timeout=WAIT_S_MAX).topics.items()
        }

    def partitions(self, topic: str) -> dict[int, Replicas]:
        described = _result(self._admin.describe_topics(TopicCollection([topic]))[topic])
        return {
            each.id: Replicas(each.leader.id, tuple(n.id for n in each.replicas), tuple(n.id for n in each.isr))
            for each in described.partitions
        }

    def cluster(self) -> Cluster:
        described = _result(self._admin.describe_cluster())
        return Cluster(described.cluster_id, described.controller.id, frozenset(node.id for node in described.nodes))

    def config(self, kind: str, name: str) -> dict[str, Setting]:
        resource = ConfigResource(kind, name)
        entries = _result(self._admin.describe_configs([resource])[resource])
        return {
            entry.name: Setting(entry.value, int(entry.source), entry.is_read_only, entry.is_sensitive)
            for entry in entries.values()
        }

    def alter_config(
        self,
        kind: str,
        name: str,
        *,
        put: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
        append: Mapping[str, str] | None = None,
        subtract: Mapping[str, str] | None = None,
    ) -> None:
        changes = [
            (AlterConfigOpType.SET, put or {}),
            (AlterConfigOpType.DELETE, dict.fromkeys(unset)),
            (AlterConfigOpType.APPEND, append or {}),
            (AlterConfigOpType.SUBTRACT, subtract or {}),
        ]
        entries = [
            ConfigEntry(key, value, incremental_operation=operation)
            for operation, settings in changes
            for key, value in settings.items()
        ]
        resource = ConfigResource(kind, name, incremental_configs=entries)
        _result(self._admin.incremental_alter_configs([resource])[resource])

    def replace_config(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(kind, name, set_config=dict(settings))
        with warnings.catch_warnings():
            # It would rather have the incremental way used; brokers must still serve both.
            warnings.simplefilter("ignore", DeprecationWarning)
            futures = self._admin.alter_configs([resource])
        _result(futures[resource])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        places = [TopicPartition(topic, partition, offset) for partition, offset in before.items()]
        futures = self._admin.delete_records(places, operation_timeout=WAIT_S_MAX)
        return {place.partition: _result(future).low_watermark for place, future in futures.items()}

    def close(self) -> None:
        pass


class ConfluentReader:
    def __init__(self, consumer: Consumer, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def poll(self, count_max: int = 1000) -> list[Got]:
        return [_got(message) for message in self._consumer.consume(count_max, _POLL_S)]

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition, offset))

    def pause(self, partition: int) -> None:
        self._consumer.pause([TopicPartition(self._topic, partition)])

    def resume(self, partition: int) -> None:
        self._consumer.resume([TopicPartition(self._topic, partition)])

    def close(self) -> None:
        self._consumer.close()


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


def fetch_settings(reset: str, limits: Limits) -> dict[str, str]:
    """librdkafka's words."""
    settings = {"auto.offset.reset": "error" if reset == "none" else reset}
    if limits.partition_bytes_max is not None:
        settings["fetch.message.max.bytes"] = str(limits.partition_bytes_max)
    if limits.response_bytes_max is not None or limits.partition_bytes_max is not None:
        # It wants the limit of a response at or above that of a message, and both at or above 1,000.
        bytes_max = max(limits.response_bytes_max or 0, limits.partition_bytes_max or 0, 1000)
        settings |= {"fetch.max.bytes": str(bytes_max), "message.max.bytes": "1000"}
    if limits.bytes_min is not None:
        settings["fetch.min.bytes"] = str(limits.bytes_min)
    return settings


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
