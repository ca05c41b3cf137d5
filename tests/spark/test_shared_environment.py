"""The map that all streams of a session share, which Spark fills without a lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark import shared_environment
from strandline.spark.shared_environment import NAMES, environment_of


def test_a_stream_puts_nothing_into_the_map_that_was_not_there(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, json.dumps({"a": 1}))
    assert producer.flush(30) == 0
    environment = environment_of(spark)
    for name in NAMES:
        environment.remove(name)
    shared_environment.fill(spark)
    before = set(environment.keySet())
    assert before >= set(NAMES)
    frame = spark.readStream.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap)
    frame = frame.option("subscribe", topic).option("startingOffsets", "earliest").load()
    query = frame.writeStream.format("noop").option("checkpointLocation", str(tmp_path / "checkpoint"))
    query.trigger(availableNow=True).start().awaitTermination()
    assert set(environment.keySet()) == before
    assert all(environment[name] for name in NAMES)


def test_a_query_finds_it_filled_when_it_comes_to_its_sources(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.create_topic(topic)
    environment = environment_of(spark)
    for name in NAMES:
        environment.remove(name)
    found: list[set[str]] = []
    fill = shared_environment.fill

    def looked_at(session: SparkSession) -> None:
        found.append(set(environment.keySet()))
        fill(session)
        found.append(set(environment.keySet()))

    monkeypatch.setattr(shared_environment, "fill", looked_at)
    frame = spark.readStream.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap)
    query = frame.option("subscribe", topic).load().writeStream.format("noop").start()
    query.processAllAvailable()
    query.stop()
    before, after = found
    assert not before & set(NAMES), "whoever came first has put them there"
    assert after >= set(NAMES)
