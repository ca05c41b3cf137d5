"""Aggregates in update mode: each batch is written once, whatever is run again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.spark.sink_ground import consume

import strandline.spark
from strandline.spark.sink.failures import SinkRefused
from strandline.spark.sink.options import batch_of_a_query

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strandline.local.embedded_broker import EmbeddedBroker


@pytest.mark.slow
def test_a_batch_that_is_run_again_is_there_once(
    spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    numbers = tmp_path / "numbers"
    numbers.mkdir()
    options = {
        "kafka.bootstrap.servers": broker.bootstrap,
        "topic": topic,
        "checkpointLocation": str(tmp_path / "checkpoint"),
    }

    def run() -> list[tuple[str, int]]:
        frame = spark.readStream.schema("n INT").json(str(numbers)).selectExpr("n % 2 AS rest").groupBy("rest").count()
        rows = frame.selectExpr("CAST(rest AS STRING) AS key", "to_json(struct(count)) AS value")
        writer = strandline.spark.write_updates(rows.writeStream.outputMode("update"), options)
        strandline.spark.await_end(writer.trigger(availableNow=True).start())
        messages = consume(broker.bootstrap, topic)
        return sorted((message.key().decode(), json.loads(message.value())["count"]) for message in messages)

    (numbers / "first.json").write_text('{"n":1}\n{"n":2}\n{"n":3}\n')
    assert run() == [("0", 1), ("1", 2)]
    (numbers / "second.json").write_text('{"n":5}\n')
    assert run() == [("0", 1), ("1", 2), ("1", 3)]
    # The driver died between the decision and Spark's own note of it.
    last = max((tmp_path / "checkpoint" / "commits").glob("[0-9]*"), key=lambda path: int(path.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    assert run() == [("0", 1), ("1", 2), ("1", 3)]


def test_what_is_refused_is_told_in_a_sentence(spark: SparkSession, tmp_path: Path) -> None:
    frame = spark.readStream.format("rate").load().groupBy("value").count()
    options = {"kafka.bootstrap.servers": "localhost:1", "topic": "t", "checkpointLocation": str(tmp_path)}
    writer = strandline.spark.write_updates(frame.writeStream.outputMode("update"), options)
    with pytest.raises(strandline.spark.SparkFailed, match="The column value is bigint and must be string"):
        strandline.spark.await_end(writer.trigger(availableNow=True).start())


def test_a_batch_of_a_query_is_named_whole_or_not_at_all() -> None:
    assert batch_of_a_query({"topic": "t"}) is None
    assert batch_of_a_query({"queryId": "q", "BATCHID": "7"}) == ("q", 7)
    for given in ({"queryId": "q"}, {"batchId": "7"}, {"queryId": "q", "batchId": "-1"}):
        with pytest.raises(SinkRefused):
            batch_of_a_query(given)
