"""The driver for Kafka's own Java clients."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.clients.client import (
    NO_LIMITS,
    Cluster,
    Got,
    Limits,
    New,
    Replicas,
    Setting,
    config_names,
    read_all,
)
from tests.clients.java_driver import JavaDriver

# The protocol's numbers; the Java client tells names.
_SOURCES = {
    "DYNAMIC_TOPIC_CONFIG": 1,
    "DYNAMIC_BROKER_CONFIG": 2,
    "DYNAMIC_DEFAULT_BROKER_CONFIG": 3,
    "STATIC_BROKER_CONFIG": 4,
    "DEFAULT_CONFIG": 5,
}


class JavaClient:
    name = "java"

    def __init__(self, bootstrap: str, logs: Path) -> None:
        self._driver = JavaDriver(bootstrap, logs)
        self._ask = self._driver.ask

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
        written = [
            {
                "key": _text(record.key),
                "value": _text(record.value),
                "headers": [[name, _text(value)] for name, value in record.headers],
                "partition": record.partition,
                "timestamp_ms": record.timestamp_ms,
            }
            for record in records
        ]
        options = {"acks": acks, "codec": codec, "idempotent": idempotent, "linger_ms": linger_ms}
        return [tuple(place) for place in self._ask("produce", topic=topic, records=written, **options)]

    def reader(
        self, topic: str, starts: Mapping[int, int], *, reset: str = "earliest", limits: Limits = NO_LIMITS
    ) -> JavaConsumer:
        wanted = {
            "max.partition.fetch.bytes": limits.partition_bytes_max,
            "fetch.max.bytes": limits.response_bytes_max,
            "fetch.min.bytes": limits.bytes_min,
        }
        settings = {name: str(limit) for name, limit in wanted.items() if limit is not None}
        settings["auto.offset.reset"] = reset
        number = self._ask("assign", topic=topic, starts=dict(starts), settings=settings)
        return JavaConsumer(self._driver, number, topic)

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

    def member(self, topic: str, group: str) -> JavaConsumer:
        number = self._ask("subscribe", topic=topic, group=group, settings={"auto.offset.reset": "earliest"})
        return JavaConsumer(self._driver, number, topic)

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        offset: int | None = self._ask("committed", topic=topic, group=group, partition=partition)
        return offset

    def earliest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, "earliest")

    def latest(self, topic: str, partition: int) -> int:
        return self._offset(topic, partition, "latest")

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        offset = self._offset(topic, partition, str(timestamp_ms))
        return None if offset < 0 else offset

    def at_latest_time(self, topic: str, partition: int) -> int | None:
        offset = self._offset(topic, partition, "latest-time")
        return None if offset < 0 else offset

    def _offset(self, topic: str, partition: int, at: str) -> int:
        offset: int = self._ask("offset", topic=topic, partition=partition, at=at)
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
        self._ask(
            "create_topic",
            topic=name,
            partitions=partitions,
            replication_factor=replication_factor,
            assignment=assignment,
            validate_only=validate_only,
            configs=config_names(configs),
        )

    def create_partitions(self, topic: str, count: int) -> None:
        self._ask("create_partitions", topic=topic, count=count)

    def delete_topic(self, name: str) -> None:
        self._ask("delete_topic", topic=name)

    def delete_topic_by_id(self, name: str) -> None:
        self._ask("delete_topic_by_id", topic=name)

    def topics(self) -> dict[str, int]:
        counts: dict[str, int] = self._ask("topics")
        return counts

    def partitions(self, topic: str) -> dict[int, Replicas]:
        return {
            int(index): Replicas(leader, tuple(assigned), tuple(in_sync))
            for index, (leader, assigned, in_sync) in self._ask("partitions", topic=topic).items()
        }

    def cluster(self) -> Cluster:
        cluster_id, controller, brokers = self._ask("cluster")
        return Cluster(cluster_id, controller, frozenset(brokers))

    def config(self, kind: str, name: str) -> dict[str, Setting]:
        described = self._ask("config", kind=kind, name=name)
        return {
            key: Setting(value, _SOURCES[source], is_read_only, is_sensitive)
            for key, (value, source, is_read_only, is_sensitive) in described.items()
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
        operations: list[tuple[str, Mapping[str, str | None]]] = [
            ("SET", put or {}),
            ("DELETE", dict.fromkeys(unset)),
            ("APPEND", append or {}),
            ("SUBTRACT", subtract or {}),
        ]
        changes = [(operation, key, value) for operation, each in operations for key, value in each.items()]
        self._ask("alter_config", kind=kind, name=name, changes=changes)

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        starts = self._ask("delete_records", topic=topic, before=dict(before))
        return {int(partition): offset for partition, offset in starts.items()}

    def log_sizes(self, topic: str) -> dict[int, int]:
        return {partition: size for name, partition, size, _ in self._ask("log_dirs") if name == topic}

    def producers(self, topic: str, partition: int) -> list[tuple[int, int, int]]:
        return [tuple(each) for each in self._ask("producers", topic=topic, partition=partition)]

    def close(self) -> None:
        self._driver.close()


class JavaConsumer:
    """A consumer in the other process, by its number: a reader of partitions or a member of a group."""

    def __init__(self, driver: JavaDriver, number: int, topic: str) -> None:
        self._driver = driver
        self._number = number
        self._topic = topic

    def poll(self, count_max: int = 1000) -> list[Got]:
        # How many come at once was said when it was made.
        return [_got(record) for record in self._ask("poll")]

    def seek(self, partition: int, offset: int) -> None:
        self._ask("seek", partition=partition, offset=offset)

    def pause(self, partition: int) -> None:
        self._ask("pause", partition=partition)

    def resume(self, partition: int) -> None:
        self._ask("resume", partition=partition)

    def assignment(self) -> set[int]:
        return set(self._ask("assignment"))

    def commit(self) -> None:
        self._ask("commit")

    def close(self) -> None:
        self._ask("close")

    def _ask(self, do: str, **request: Any) -> Any:
        return self._driver.ask(do, consumer=self._number, topic=self._topic, **request)


def _got(record: dict[str, Any]) -> Got:
    return Got(
        record["partition"],
        record["offset"],
        _bytes(record["key"]),
        _bytes(record["value"]),
        tuple((name, _bytes(value)) for name, value in record["headers"]),
        record["timestamp_ms"],
        record["is_append_time"],
    )


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
