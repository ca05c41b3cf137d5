"""How far a query has read shows up as the committed positions of a consumer group."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka.admin import AdminClient
from tests.interop.kafka_tools import Tools

from strandline.cli.common.client import Cluster
from strandline.cli.group.offsets import committed_by_group
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed
from strandline.client.group_positions import batch_note
from strandline.coordinators.partitioning import CONSUMER_OFFSETS_TOPIC, KAFKAS_HASH, partition_of_group
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.positions import (
    GroupPositions,
    PositionsListener,
    Refused,
    WatchedQuery,
    begins_of,
    group_of,
    positions_of,
    settle,
    watch_positions,
)
from strandline.testing import embedded

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import DataStreamWriter

DEADLINE_S = 60.0


def committed(broker: EmbeddedBroker, group_id: str) -> dict[tuple[str, int], int]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    answer = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group_id)])[group_id].result()
    return {(each.topic, each.partition): each.offset for each in answer.topic_partitions}


def produce(broker: EmbeddedBroker, topic: str, count: int, *, partitions: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(DEADLINE_S) == 0


def lag_of(broker: EmbeddedBroker, group_id: str) -> list[int]:
    """What `strandline group lag` says of each partition."""
    command = ["-m", "strandline", "group", "lag", group_id, "-b", broker.bootstrap, "--json"]
    said = subprocess.run([sys.executable, *command], capture_output=True, text=True, timeout=DEADLINE_S, check=True)
    lines = [json.loads(line) for line in said.stdout.splitlines()]
    return [line["lag"] for line in lines if "partition" in line]


def stream(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> DataStreamWriter:
    reader = spark.readStream.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest").options(**options)
    return reader.load().writeStream.format("noop")


class Told:
    """A listener that is told of batches of one query."""

    def __init__(self, bootstrap: str) -> None:
        self.group = GroupPositions(bootstrap, "spark.orders")
        self._listener = PositionsListener(cast("SparkSession", None))
        self._watched = WatchedQuery(None, "orders", "1", {"orders": self.group})

    def __enter__(self) -> Told:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def batch(self, offset: int) -> None:
        """Until its end is committed."""
        self.group.reach({("orders", 0): offset})
        until = time.monotonic() + DEADLINE_S
        while self.group.committed != self.group.wanted:
            assert time.monotonic() < until, "it is never committed"
            self._listener._commit(self._watched)
            time.sleep(0.05)


def test_positions_go_on_when_a_broker_was_killed_and_is_back() -> None:
    with embedded() as broker, Told(broker.bootstrap) as told:
        broker.create_topic("orders")
        for offset in (1, 2):
            told.batch(offset)
            assert committed(broker, "spark.orders") == {("orders", 0): offset}
            broker.kill()
            broker.start()


@pytest.mark.slow
def test_positions_go_on_when_the_coordinator_of_their_group_has_died() -> None:
    """librdkafka's client ended the process then, or hung when it was given up."""
    with embedded(nodes=3) as cluster, Told(cluster.bootstrap) as told:
        cluster.create_topic("orders")
        told.batch(1)
        count = len(cluster.partitions(CONSUMER_OFFSETS_TOPIC))
        partition = partition_of_group("spark.orders", partition_count=count, hash_level=KAFKAS_HASH)
        cluster.kill(cluster.leader_of(CONSUMER_OFFSETS_TOPIC, partition))
        told.batch(2)
        told.batch(3)
        assert told.group.committed == {("orders", 0): 3}


def test_a_cluster_that_is_silent_is_asked_now_and_then_and_at_the_end_if_it_is_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def commit(group: GroupPositions, client: object) -> None:
        asked.append(group.group_id)
        raise ClusterFailed("nobody answers")

    monkeypatch.setattr(GroupPositions, "commit", commit)
    monkeypatch.setattr(PositionsListener, "_client", lambda *_: None)
    listener = PositionsListener(cast("SparkSession", None))
    with socket.create_server(("127.0.0.1", 0)) as there:
        bootstrap = f"127.0.0.1:{there.getsockname()[1]}"
        watched = WatchedQuery(None, "orders", "1", {"orders": GroupPositions(bootstrap, "spark.orders")})
        for _ in range(5):
            listener._commit(watched)
        assert asked == ["spark.orders"]
        listener._commit(watched, is_last=True)
        assert asked == ["spark.orders"] * 2
    listener._commit(watched, is_last=True)
    assert asked == ["spark.orders"] * 2


@pytest.mark.parametrize(
    ("options", "name", "expected"),
    [
        ({}, "orders", "spark.orders"),
        ({}, None, "spark.1234"),
        ({"kafka.group.id": "mine"}, "orders", "mine"),
        ({"groupidprefix": "team-a"}, None, "team-a.1234"),
    ],
)
def test_the_group_of_a_query(options: Mapping[str, str], name: str | None, expected: str) -> None:
    assert group_of(options, name, "1234") == expected


def test_the_end_of_a_batch_as_positions() -> None:
    assert positions_of('{"a": {"0": 5, "11": 0}, "b.c": {"2": 7}}') == {("a", 0): 5, ("a", 11): 0, ("b.c", 2): 7}
    assert positions_of('{"a": {"0": 5}, "#topic-ids": {"a": "x"}}') == {("a", 0): 5}
    assert positions_of(None) == positions_of("null") == {}
    # Spark writes the word None before the first batch.
    assert begins_of("None") == begins_of(None) == {}
    assert begins_of('{"a": {"0": 5}}') == {("a", 0): 5}


def test_only_what_moved_is_committed_and_a_group_with_members_is_left_alone(
    broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, 2)
    client = ClusterClient(ClientSettings(broker.bootstrap))
    group = GroupPositions(broker.bootstrap, f"spark.{topic}")
    group.reach({(topic, 0): 4, (topic, 1): 2, ("deleted", 0): 9})
    group.commit(client)
    assert group.wanted == group.committed == {(topic, 0): 4, (topic, 1): 2}
    assert committed(broker, group.group_id) == {(topic, 0): 4, (topic, 1): 2}
    group.reach({(topic, 1): 3})
    group.commit(client)
    assert committed(broker, group.group_id) == {(topic, 0): 4, (topic, 1): 3}

    busy = GroupPositions(broker.bootstrap, f"busy.{topic}")
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": busy.group_id})
    assigned: list[Any] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        consumer.poll(0.1)
    busy.reach({(topic, 0): 4})
    with pytest.raises(Refused, match=re.escape(f"group '{busy.group_id}' has members of its own")):
        busy.commit(client)
    assert committed(broker, busy.group_id) == {}
    consumer.close()
    client.close()


def test_after_available_now_nothing_lags(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    watch_positions(spark)
    broker.create_topic(topic, 3)
    produce(broker, topic, 100, partitions=3)
    writer = stream(spark, broker, topic, maxOffsetsPerTrigger="40").queryName(topic.replace("-", "_"))
    query = writer.option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True).start()
    query.awaitTermination()
    settle(spark)
    group_id = f"spark.{topic.replace('-', '_')}"
    assert committed(broker, group_id) == {(topic, 0): 34, (topic, 1): 33, (topic, 2): 33}
    # A position says which batch brought it there, and where that batch began.
    found = committed_by_group(Cluster(broker.bootstrap, {}), [group_id])[group_id]
    for each in found.values():
        note = batch_note(each.metadata)
        assert note is not None
        assert note.query == topic.replace("-", "_")
        assert note.batch_id > 0
        assert note.begin is not None
        assert note.begin < each.offset
    assert lag_of(broker, group_id) == [0, 0, 0]


def test_a_stream_at_rest_shows_what_it_has_read(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    watch_positions(spark)
    broker.create_topic(topic, 1)
    produce(broker, topic, 10, partitions=1)
    query = stream(spark, broker, topic).option("checkpointLocation", str(tmp_path / "c")).start()
    try:
        query.processAllAvailable()
        settle(spark)
        assert committed(broker, f"spark.{query.id}") == {(topic, 0): 10}
        produce(broker, topic, 5, partitions=1)
        query.processAllAvailable()
        settle(spark)
        assert committed(broker, f"spark.{query.id}") == {(topic, 0): 15}
    finally:
        query.stop()


def test_a_batch_that_failed_moves_nothing(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    watch_positions(spark)
    broker.create_topic(topic, 1)
    produce(broker, topic, 10, partitions=1)
    source = spark.readStream.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap)
    source = source.option("subscribe", topic).option("startingOffsets", "earliest")
    broken = source.load().selectExpr("raise_error('not this batch') as nothing")
    writer = broken.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="not this batch"):
        query.awaitTermination()
    settle(spark)
    assert committed(broker, f"spark.{query.id}") == {}


def test_a_group_with_members_is_refused_with_a_sentence_and_the_query_goes_on(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    listener = watch_positions(spark)
    broker.create_topic(topic, 1)
    produce(broker, topic, 10, partitions=1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": topic})
    assigned: list[Any] = []
    consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.extend(partitions))
    while not assigned:
        consumer.poll(0.1)
    writer = stream(spark, broker, topic, **{"kafka.group.id": topic}).option("checkpointLocation", str(tmp_path / "c"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    settle(spark)
    assert "has members of its own" in listener.refusals[query.id]
    assert committed(broker, topic) == {}
    consumer.close()


@pytest.mark.slow
@pytest.mark.java
def test_kafkas_own_tool_shows_no_lag(spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
    watch_positions(spark)
    broker.create_topic(topic, 2)
    produce(broker, topic, 50, partitions=2)
    writer = stream(spark, broker, topic, **{"kafka.group.id": topic}).option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start().awaitTermination()
    settle(spark)
    tools = Tools(broker.bootstrap, tmp_path)
    said = tools.run("consumer.group.ConsumerGroupCommand", "--describe", "--group", topic)
    rows = [line.split() for line in said.splitlines() if line.startswith(topic)]
    assert sorted(row[2:6] for row in rows) == [["0", "25", "25", "0"], ["1", "25", "25", "0"]], said
