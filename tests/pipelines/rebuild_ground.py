"""What tests of a rebuild stand on: tables in topics as a stock client sees them, and a registry filled by hand."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import confluent_kafka
from tests.clients.positions import until_decided
from tests.spark.sink_ground import consume

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.pipelines.language.model import Kind
from strandline.pipelines.rebuild import phases
from strandline.pipelines.rebuild.phases import Phase
from strandline.pipelines.versions.state import DatasetState, PipelineState, RebuildState, VersionState
from strandline.pipelines.versions.version_store import Registry

Rows = Mapping[str, str | None]


@functools.cache
def _producer(bootstrap: str) -> confluent_kafka.Producer:
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": bootstrap,
            "partitioner": "murmur2_random",
            "transactional.id": f"rows-{uuid.uuid4()}",
            # A producer asks for the topics that it knows every five minutes, and the broker makes those that are gone.
            "topic.metadata.refresh.interval.ms": -1,
            "log_level": 0,
        }
    )
    producer.init_transactions(30)
    return producer


def put_rows(bootstrap: str, topic: str, rows: Rows, *, can_be_read: bool = True) -> None:
    """As the runner's queries would: keyed by Kafka's own hash, in one transaction, until it can be read."""
    producer = _producer(bootstrap)
    producer.begin_transaction()
    for key, value in rows.items():
        producer.produce(topic, key=key.encode(), value=None if value is None else value.encode())
    producer.commit_transaction(30)
    if can_be_read:
        until_decided(bootstrap, topic)


def table_of(bootstrap: str, topic: str) -> dict[str, str]:
    """What a stock consumer of committed records folds the topic to."""
    folded: dict[str, str] = {}
    for message in consume(bootstrap, topic):
        key = message.key().decode()
        folded.pop(key, None)
        if message.value() is not None:
            folded[key] = message.value().decode()
    return folded


def ends_of(bootstrap: str, topic: str) -> dict[int, int]:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": f"ends-{uuid.uuid4()}"})
    try:
        partitions = consumer.list_topics(topic, timeout=30).topics[topic].partitions
        places = [confluent_kafka.TopicPartition(topic, each) for each in partitions]
        return {each.partition: consumer.get_watermark_offsets(each, timeout=30)[1] for each in places}
    finally:
        consumer.close()


def topic_id(bootstrap: str, topic: str) -> str:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap})
    described: Any = admin.describe_topics(confluent_kafka.TopicCollection([topic]))[topic].result()
    return str(described.topic_id)


class TwoVersions:
    """A pipeline with tables by hand: version 1 is public, version 2 is built and has read everything."""

    def __init__(
        self, broker: EmbeddedBroker, tables: list[str], checkpoints: Path | None = None, *, new_partitions: int = 3
    ) -> None:
        self.bootstrap = broker.bootstrap
        self.name = f"shop-{uuid.uuid4().hex[:8]}"
        self.tables = [f"{self.name}-{table}" for table in tables]
        self.registry = Registry(broker.bootstrap)
        for table in self.tables:
            broker.create_topic(table, partitions=3, cleanup_policy="compact")
            broker.create_topic(f"{table}.v2", partitions=new_partitions, cleanup_policy="compact")
        where = "" if checkpoints is None else str(checkpoints)
        versions = {
            1: VersionState(1, checkpoints=where, datasets={each: self._table(each, each) for each in self.tables}),
            2: VersionState(
                2, checkpoints=where, datasets={each: self._table(each, f"{each}.v2") for each in self.tables}
            ),
        }
        rebuild = RebuildState(Phase.SWITCHING.value, 1, 2, owner="me")
        self.registry.change(self.name, lambda _: PipelineState(self.name, versions=versions, rebuild=rebuild))

    @staticmethod
    def _table(public: str, topic: str) -> DatasetState:
        return DatasetState(public, Kind.TABLE, topic, public, key=("id",))

    @property
    def state(self) -> PipelineState:
        state = self.registry.refresh().pipeline(self.name)
        assert state is not None
        return state

    def become(self, phase: Phase) -> None:
        def change(told: PipelineState | None) -> PipelineState:
            assert told is not None
            return phases.with_phase(told, phase)

        self.registry.change(self.name, change)

    def named(self, table: str) -> dict[str, str]:
        """What the name means now."""
        current = self.state.current
        assert current is not None
        return table_of(self.bootstrap, current.datasets[table].topic)
