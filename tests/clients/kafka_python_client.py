"""The driver for kafka-python."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import AlterConfigOp, ConfigResource, ConfigSourceType, OffsetSpec
from kafka.errors import KafkaError
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

_POLL_MS = 100
_TIMEOUT_MS = int(WAIT_S_MAX * 1000)


class KafkaPythonClient:
    name = "kafka-python"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = KafkaAdminClient(bootstrap_servers=bootstrap)
        self._lookup = KafkaConsumer(bootstrap_servers=bootstrap, allow_auto_create_topics=False)

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
        producer = KafkaProducer(
            bootstrap_servers=self._bootstrap,
            acks="all" if acks == "all" else int(acks),
            compression_type=None if codec == "none" else codec,
            enable_idempotence=idempotent,
            linger_ms=linger_ms,
            max_request_size=10_000_000,
        )
        try:
            futures = [
                producer.send(
                    topic,
                    value=record.value,
                    key=record.key,
                    headers=list(record.headers),
                    partition=record.partition,
                    timestamp_ms=record.timestamp_ms,
                )
                for record in records
            ]
            sent = [future.get(WAIT_S_MAX) for future in futures]
        except KafkaError as error:
            raise _failed(error) from error
        finally:
            producer.close(timeout=5)
        return [(place.partition, place.offset) for place in sent]

    def reader(
        self, topic: str, starts: Mapping[int, int], *, reset: str = "earliest", limits: Limits = NO_LIMITS
    ) -> KafkaPythonReader:
        wanted = {
            "max_partition_fetch_bytes": limits.partition_bytes_max,
            "fetch_max_bytes": limits.response_bytes_max,
            "fetch_min_bytes": limits.bytes_min,
        }
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset=reset,
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **{name: limit for name, limit in wanted.items() if limit is not None},
        )
        consumer.assign([TopicPartition(topic, partition) for partition in starts])
        reader = KafkaPythonReader(consumer, topic)
        for partition, offset in starts.items():
            reader.seek(partition, offset)
        return reader

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

    def member(self, topic: str, group: str) -> KafkaPythonMember:
        return KafkaPythonMember(self._bootstrap, topic, group)

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        consumer = KafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group, enable_auto_commit=False)
        try:
            offset: int | None = consumer.committed(TopicPartition(topic, partition))
        finally:
            consumer.close()
        return offset

    def earliest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        offset: int = self._lookup.beginning_offsets([place])[place]
        return offset

    def latest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        offset: int = self._lookup.end_offsets([place])[place]
        return offset

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._lookup.offsets_for_times({place: timestamp_ms})[place]
        return None if found is None else found.offset

    def at_latest_time(self, topic: str, partition: int) -> int | None:
        place = TopicPartition(topic, partition)
        offset: int = self._admin.list_partition_offsets({place: OffsetSpec.MAX_TIMESTAMP})[place].offset
        return None if offset < 0 else offset

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
        options: dict[str, Any] = {"configs": config_names(configs)}
        if assignment is None:
            options |= {"num_partitions": partitions, "replication_factor": replication_factor}
        else:
            options["assignments"] = dict(enumerate(map(list, assignment)))
        try:
            self._admin.create_topics({name: options}, timeout_ms=_TIMEOUT_MS, validate_only=validate_only)
            if not validate_only:
                self._admin.wait_for_topics([name])
        except KafkaError as error:
            raise _failed(error) from error

    def create_partitions(self, topic: str, count: int) -> None:
        try:
            self._admin.create_partitions({topic: count}, timeout_ms=_TIMEOUT_MS)
        except KafkaError as error:
            raise _failed(error) from error

    def delete_topic(self, name: str) -> None:
        try:
            self._admin.delete_topics([name], timeout_ms=_TIMEOUT_MS)
        except KafkaError as error:
            raise _failed(error) from error

    def delete_topic_by_id(self, name: str) -> None:
        (described,) = self._admin.describe_topics([name])
        self._admin.delete_topics([uuid.UUID(str(described["topic_id"]))], timeout_ms=_TIMEOUT_MS)

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def partitions(self, topic: str) -> dict[int, Replicas]:
        (described,) = self._admin.describe_topics([topic])
        if described["error_code"]:
            raise ClientFailed(described["error_code"], topic)
        return {
            each["partition_index"]: Replicas(each["leader_id"], tuple(each["replica_nodes"]), tuple(each["isr_nodes"]))
            for each in described["partitions"]
        }

    def cluster(self) -> Cluster:
        described = self._admin.describe_cluster()
        brokers = frozenset(broker["broker_id"] for broker in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], brokers)

    def config(self, kind: str, name: str) -> dict[str, Setting]:
        described = self._admin.describe_configs([ConfigResource(kind, name)], config_filter="all")[kind][name]
        return {
            key: Setting(
                entry["value"],
                ConfigSourceType[entry["config_source"]].value,
                entry["read_only"],
                entry["is_sensitive"],
            )
            for key, entry in described.items()
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
            (AlterConfigOp.SET, put or {}),
            (AlterConfigOp.DELETE, dict.fromkeys(unset)),
            (AlterConfigOp.APPEND, append or {}),
            (AlterConfigOp.SUBTRACT, subtract or {}),
        ]
        entries = {key: (operation, value) for operation, settings in changes for key, value in settings.items()}
        self._alter(ConfigResource(kind, name, entries), incremental=True)

    def replace_config(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        # Its legacy alter adds what is set already, so a reset of everything comes first.
        self._alter(ConfigResource(kind, name), incremental=False, reset=True)
        self._alter(ConfigResource(kind, name, dict(settings)), incremental=False)

    def _alter(self, resource: Any, *, incremental: bool, reset: bool = False) -> None:
        call = self._admin.reset_configs if reset else self._admin.alter_configs
        answers = call([resource], raise_on_unknown=False, incremental=incremental)
        ((answer,),) = (each.values() for each in answers.values())
        if answer != "OK":
            # It reports an error as text that begins with the number.
            number = re.search(r"\[Error (\d+)\]", answer)
            raise ClientFailed(int(number[1]) if number else -1, answer)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        places = {TopicPartition(topic, partition): offset for partition, offset in before.items()}
        try:
            deleted = self._admin.delete_records(places, timeout_ms=_TIMEOUT_MS)
        except KafkaError as error:
            raise _failed(error) from error
        return {place.partition: answer["low_watermark"] for place, answer in deleted.items()}

    def log_sizes(self, topic: str) -> dict[int, int]:
        return {
            partition["partition_index"]: partition["partition_size"]
            for broker in self._admin.describe_log_dirs()
            for directory in broker["log_dirs"]
            for each in directory["topics"]
            if each["name"] == topic
            for partition in each["partitions"]
        }

    def producers(self, topic: str, partition: int) -> list[tuple[int, int, int]]:
        place = TopicPartition(topic, partition)
        described = self._admin.describe_producers([place])[place]
        return [(each.producer_id, each.producer_epoch, each.last_sequence) for each in described.active_producers]

    def close(self) -> None:
        self._lookup.close()
        self._admin.close()


class KafkaPythonReader:
    def __init__(self, consumer: Any, topic: str) -> None:
        self._consumer = consumer
        self._topic = topic

    def poll(self, count_max: int = 1000) -> list[Got]:
        try:
            return _polled(self._consumer, count_max)
        except KafkaError as error:
            raise _failed(error) from error

    def seek(self, partition: int, offset: int) -> None:
        self._consumer.seek(TopicPartition(self._topic, partition), offset)

    def pause(self, partition: int) -> None:
        self._consumer.pause(TopicPartition(self._topic, partition))

    def resume(self, partition: int) -> None:
        self._consumer.resume(TopicPartition(self._topic, partition))

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=10_000,
            heartbeat_interval_ms=500,
            fetch_max_wait_ms=100,
        )
        # It joins with what it knows; a leader that does not know the topic yet would give everybody nothing.
        until(f"metadata of {topic}", lambda: self._consumer.partitions_for_topic(topic) is not None)

    def poll(self) -> list[Got]:
        return _polled(self._consumer, 1000)

    def assignment(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


def _polled(consumer: Any, count_max: int) -> list[Got]:
    return [
        Got(
            record.partition,
            record.offset,
            record.key,
            record.value,
            tuple(record.headers),
            record.timestamp,
            record.timestamp_type == 1,
        )
        for records in consumer.poll(timeout_ms=_POLL_MS, max_records=count_max).values()
        for record in records
    ]


def _failed(error: Any) -> ClientFailed:
    return ClientFailed(getattr(error, "errno", -1), repr(error))
