"""The driver for aiokafka: its coroutines run on a loop in a thread of their own, so that members keep their groups."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic, RecordsToDelete
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code
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
)

_POLL_MS = 100
_T = TypeVar("_T")


class LoopThread:
    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="aiokafka")
        self._thread.start()

    def run(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        try:
            return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(2 * WAIT_S_MAX)
        except KafkaError as error:
            raise ClientFailed(getattr(error, "errno", -1), repr(error)) from error

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


class AiokafkaClient:
    name = "aiokafka"

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._thread = LoopThread()
        self._admin, self._lookup = self._thread.run(self._started())

    async def _started(self) -> tuple[Any, Any]:
        admin = AIOKafkaAdminClient(bootstrap_servers=self._bootstrap)
        lookup = AIOKafkaConsumer(bootstrap_servers=self._bootstrap)
        await admin.start()
        await lookup.start()
        return admin, lookup

    def told(self, code: int) -> int:
        known: int = for_code(code).errno
        return known

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
        async def go() -> list[tuple[int, int]]:
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap,
                acks="all" if acks == "all" else int(acks),
                compression_type=None if codec == "none" else codec,
                enable_idempotence=idempotent,
                linger_ms=linger_ms,
                max_request_size=10_000_000,
            )
            await producer.start()
            try:
                futures = [
                    await producer.send(
                        topic,
                        record.value,
                        key=record.key,
                        headers=list(record.headers),
                        partition=record.partition,
                        timestamp_ms=record.timestamp_ms,
                    )
                    for record in records
                ]
                sent = await asyncio.wait_for(asyncio.gather(*futures), WAIT_S_MAX)
            finally:
                await producer.stop()
            # With acks=0 aiokafka has no place to tell.
            return [(-1, -1) if place is None else (place.partition, place.offset) for place in sent]

        return self._thread.run(go())

    def reader(
        self, topic: str, starts: Mapping[int, int], *, reset: str = "earliest", limits: Limits = NO_LIMITS
    ) -> AiokafkaReader:
        wanted = {
            "max_partition_fetch_bytes": limits.partition_bytes_max,
            "fetch_max_bytes": limits.response_bytes_max,
            "fetch_min_bytes": limits.bytes_min,
        }

        async def assigned() -> Any:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=self._bootstrap,
                auto_offset_reset=reset,
                enable_auto_commit=False,
                fetch_max_wait_ms=100,
                **{name: limit for name, limit in wanted.items() if limit is not None},
            )
            await consumer.start()
            consumer.assign([TopicPartition(topic, partition) for partition in starts])
            for partition, offset in starts.items():
                consumer.seek(TopicPartition(topic, partition), offset)
            return consumer

        return AiokafkaReader(self._thread, self._thread.run(assigned()), topic)

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

    def member(self, topic: str, group: str) -> AiokafkaMember:
        return AiokafkaMember(self._thread, self._bootstrap, topic, group)

    def committed(self, topic: str, group: str, partition: int) -> int | None:
        async def go() -> int | None:
            consumer = AIOKafkaConsumer(bootstrap_servers=self._bootstrap, group_id=group, enable_auto_commit=False)
            await consumer.start()
            try:
                consumer.assign([TopicPartition(topic, partition)])
                offset: int | None = await consumer.committed(TopicPartition(topic, partition))
                return offset
            finally:
                await consumer.stop()

        return self._thread.run(go())

    def earliest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        offset: int = self._thread.run(self._lookup.beginning_offsets([place]))[place]
        return offset

    def latest(self, topic: str, partition: int) -> int:
        place = TopicPartition(topic, partition)
        offset: int = self._thread.run(self._lookup.end_offsets([place]))[place]
        return offset

    def at_time(self, topic: str, partition: int, timestamp_ms: int) -> int | None:
        place = TopicPartition(topic, partition)
        found = self._thread.run(self._lookup.offsets_for_times({place: timestamp_ms}))[place]
        return None if found is None else found.offset

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
            topic = NewTopic(name, partitions, replication_factor, topic_configs=config_names(configs))
        else:
            replicas = dict(enumerate(map(list, assignment)))
            topic = NewTopic(name, -1, -1, replica_assignments=replicas, topic_configs=config_names(configs))
        _check(self._thread.run(self._admin.create_topics([topic], validate_only=validate_only)).topic_errors)

    def create_partitions(self, topic: str, count: int) -> None:
        self._thread.run(self._admin.create_partitions({topic: NewPartitions(count)}))

    def delete_topic(self, name: str) -> None:
        _check(self._thread.run(self._admin.delete_topics([name])).topic_error_codes)

    def topics(self) -> dict[str, int]:
        described = self._thread.run(self._admin.describe_topics())
        return {topic["topic"]: len(topic["partitions"]) for topic in described}

    def partitions(self, topic: str) -> dict[int, Replicas]:
        (described,) = self._thread.run(self._admin.describe_topics([topic]))
        _check([(topic, described["error_code"])])
        return {
            each["partition"]: Replicas(each["leader"], tuple(each["replicas"]), tuple(each["isr"]))
            for each in described["partitions"]
        }

    def cluster(self) -> Cluster:
        described = self._thread.run(self._admin.describe_cluster())
        brokers = frozenset(broker["node_id"] for broker in described["brokers"])
        return Cluster(described["cluster_id"], described["controller_id"], brokers)

    def config(self, kind: str, name: str) -> dict[str, Setting]:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name)
        (answer,) = self._thread.run(self._admin.describe_configs([resource]))
        settings: dict[str, Setting] = {}
        for code, message, _, _, entries in answer.resources:
            _check([(message, code)])
            # name, value, read only, source (a flag for the default before version 1), sensitive, synonyms
            for key, value, is_read_only, source, is_sensitive, *_ in entries:
                told = source if answer.API_VERSION >= 1 else None
                settings[key] = Setting(value, told, is_read_only, is_sensitive)
        return settings

    def replace_config(self, kind: str, name: str, settings: Mapping[str, str]) -> None:
        resource = ConfigResource(ConfigResourceType[kind.upper()], name, configs=dict(settings))
        for answer in self._thread.run(self._admin.alter_configs([resource])):
            _check([(message, code) for code, message, *_ in answer.resources])

    def delete_records(self, topic: str, before: Mapping[int, int]) -> dict[int, int]:
        places = {TopicPartition(topic, partition): RecordsToDelete(offset) for partition, offset in before.items()}
        deleted = self._thread.run(self._admin.delete_records(places))
        return {place.partition: low_watermark for place, low_watermark in deleted.items()}

    def close(self) -> None:
        self._thread.run(self._lookup.stop())
        self._thread.run(self._admin.close())
        self._thread.close()


class AiokafkaReader:
    def __init__(self, thread: LoopThread, consumer: Any, topic: str) -> None:
        self._thread = thread
        self._consumer = consumer
        self._topic = topic

    def poll(self, count_max: int = 1000) -> list[Got]:
        return self._thread.run(_polled(self._consumer, count_max))

    def seek(self, partition: int, offset: int) -> None:
        self._on_loop(lambda place: self._consumer.seek(place, offset), partition)

    def pause(self, partition: int) -> None:
        self._on_loop(self._consumer.pause, partition)

    def resume(self, partition: int) -> None:
        self._on_loop(self._consumer.resume, partition)

    def close(self) -> None:
        self._thread.run(self._consumer.stop())

    def _on_loop(self, call: Callable[[TopicPartition], None], partition: int) -> None:
        async def go() -> None:
            call(TopicPartition(self._topic, partition))

        self._thread.run(go())


class AiokafkaMember:
    def __init__(self, thread: LoopThread, bootstrap: str, topic: str, group: str) -> None:
        self._thread = thread

        async def joined() -> Any:
            consumer = AIOKafkaConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                session_timeout_ms=10_000,
                heartbeat_interval_ms=500,
                fetch_max_wait_ms=100,
            )
            await consumer.start()
            return consumer

        self._consumer = thread.run(joined())

    def poll(self) -> list[Got]:
        return self._thread.run(_polled(self._consumer, 1000))

    def assignment(self) -> set[int]:
        return {place.partition for place in self._consumer.assignment()}

    def commit(self) -> None:
        self._thread.run(self._consumer.commit())

    def close(self) -> None:
        self._thread.run(self._consumer.stop())


async def _polled(consumer: Any, count_max: int) -> list[Got]:
    batches = await consumer.getmany(timeout_ms=_POLL_MS, max_records=count_max)
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
        for records in batches.values()
        for record in records
    ]


def _check(errors: list[tuple[Any, ...]]) -> None:
    for name, code, *_ in errors:
        if code:
            raise ClientFailed(code, f"{name}: {for_code(code).__name__}")
