"""Spark's own Kafka connector reads from and writes to Strandline: batch, stream, and in real time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from bench.spark_jars import ConnectorUnavailable, connector_jars
from confluent_kafka import Consumer, Producer

from strandline.local.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.java]

DEADLINE_S = 120.0


@pytest.fixture(scope="module")
def peer(spark: SparkSession) -> SparkSession:
    """The session with the connector's jars added."""
    try:
        jars = connector_jars()
    except ConnectorUnavailable as reason:
        pytest.skip(str(reason))
    for jar in jars:
        spark.sql(f"ADD JAR '{jar}'")
    return spark


@pytest.fixture
def consumer(broker: EmbeddedBroker, topic: str) -> Iterator[Consumer]:
    settings = {"bootstrap.servers": broker.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | {"isolation.level": "read_committed", "enable.auto.commit": "false"})
    yield consumer
    consumer.close()


def numbers(spark: SparkSession, count: int) -> DataFrame:
    return spark.range(count).selectExpr("cast(id as string) as key", "cast(id * 7 as string) as value")


def write(frame: DataFrame, broker: EmbeddedBroker, topic: str) -> None:
    frame.write.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("topic", topic).save()


def values(spark: SparkSession, broker: EmbeddedBroker, topic: str, **options: str) -> list[int]:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap).option("subscribe", topic)
    rows = reader.options(**options).load().selectExpr("cast(cast(value as string) as long) as value").collect()
    return sorted(row.value for row in rows)


def test_a_batch_is_written_and_read_again(peer: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 3)
    write(numbers(peer, 500), broker, topic)
    assert values(peer, broker, topic) == [number * 7 for number in range(500)]


def test_it_splits_partitions_and_reads_by_time(peer: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    write(numbers(peer, 300), broker, topic)
    assert len(values(peer, broker, topic, minPartitions="4")) == 300
    assert len(values(peer, broker, topic, startingTimestamp="1")) == 300
    later = str(time.time_ns() // 1_000_000 + 3_600_000)
    nothing = {"startingTimestamp": later, "startingOffsetsByTimestampStrategy": "latest"}
    assert values(peer, broker, topic, **nothing) == []


def test_what_was_aborted_is_not_read(peer: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, 1)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": topic})
    producer.init_transactions(DEADLINE_S)
    for number in range(40):
        producer.begin_transaction()
        producer.produce(topic, str(number))
        if number % 4 == 0:
            producer.abort_transaction(DEADLINE_S)
        else:
            producer.commit_transaction(DEADLINE_S)
    committed = {"kafka.isolation.level": "read_committed"}
    assert values(peer, broker, topic, **committed) == [number for number in range(40) if number % 4]


def test_a_stream_in_batches_goes_from_topic_to_topic(
    peer: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 3)
    broker.create_topic(f"{topic}-out", 2)
    write(numbers(peer, 1000), broker, topic)
    source = peer.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    limited = source.option("subscribePattern", f"{topic}$").option("maxOffsetsPerTrigger", 300)
    frame = limited.option("startingOffsets", "earliest").load().selectExpr("key", "value")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("topic", f"{topic}-out").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    assert [progress.numInputRows > 0 for progress in query.recentProgress].count(True) == 4
    assert values(peer, broker, f"{topic}-out") == [number * 7 for number in range(1000)]


def test_its_real_time_trigger_works(
    peer: SparkSession, broker: EmbeddedBroker, consumer: Consumer, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, 1)
    broker.create_topic(f"{topic}-out", 1)
    source = peer.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = source.option("subscribe", topic).option("startingOffsets", "earliest").load().selectExpr("key", "value")
    writer = frame.writeStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    writer = writer.option("topic", f"{topic}-out").option("checkpointLocation", str(tmp_path / "checkpoint"))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    consumer.subscribe([f"{topic}-out"])
    query = writer.outputMode("update").trigger(realTime="10 minutes").start()
    try:
        # The only batch ends after ten minutes, so whatever arrives has not waited for the end of one.
        for number in range(20):
            producer.produce(topic, str(number))
            producer.flush(DEADLINE_S)
            message = consumer.poll(DEADLINE_S)
            assert message is not None
            assert message.error() is None, message.error()
            assert message.value() == str(number).encode()
        assert query.exception() is None
        assert query.lastProgress is None
    finally:
        query.stop()
