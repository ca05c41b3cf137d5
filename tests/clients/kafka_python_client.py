"""The driver for kafka-python."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from tests.clients.client import WAIT_S_MAX, ClientFailed, Got, New, config_names, until

with warnings.catch_warnings():
    # It reads its own schemas by a deprecated call; our warnings are errors, its are not ours.
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.errors import KafkaError

_POLL_MS = 100


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
        limits = {} if fetch_bytes_max is None else {"max_partition_fetch_bytes": fetch_bytes_max}
        consumer = KafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id=None,
            auto_offset_reset=reset,
            enable_auto_commit=False,
            fetch_max_wait_ms=100,
            **limits,
        )
        found: list[Got] = []
        try:
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(topic, partition), offset)

            def attempt() -> bool:
                came = _polled(consumer, count - len(found))
                found.extend(came)
                if not came and while_waiting is not None:
                    while_waiting()
                return len(found) >= count

            until(f"{count} records of {topic}", attempt)
        except KafkaError as error:
            raise _failed(error) from error
        finally:
            consumer.close()
        return found

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

    def create_topic(self, name: str, partitions: int = 1, replication_factor: int = 1, **configs: str) -> None:
        options = {
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": config_names(configs),
        }
        try:
            self._admin.create_topics({name: options}, timeout_ms=int(WAIT_S_MAX * 1000))
            self._admin.wait_for_topics([name])
        except KafkaError as error:
            raise _failed(error) from error

    def delete_topic(self, name: str) -> None:
        try:
            self._admin.delete_topics([name], timeout_ms=int(WAIT_S_MAX * 1000))
        except KafkaError as error:
            raise _failed(error) from error

    def topics(self) -> dict[str, int]:
        return {topic["name"]: len(topic["partitions"]) for topic in self._admin.describe_topics()}

    def close(self) -> None:
        self._lookup.close()
        self._admin.close()


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
