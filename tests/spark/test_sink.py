"""The sink as users have it: `writeStream` and `write` of a real Spark into a real broker."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.spark.sink_ground import consume, counts, sinks, transactions, until

import strandline.spark
from strandline.local.embedded_broker import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LINES = 40


class Pipeline:
    """Files of lines into a topic, a file for each batch; a query id of its own in its checkpoint."""

    def __init__(self, spark: SparkSession, broker: EmbeddedBroker, topic: str, home: Path) -> None:
        self.spark = spark
        self.broker = broker
        self.topic = topic
        self.files = home / "lines"
        self.files.mkdir()
        self.checkpoint = home / "checkpoint"
        self.expected: Counter[str] = Counter()

    def add_files(self, count: int, lines: int = LINES) -> None:
        for _ in range(count):
            number = len(list(self.files.iterdir()))
            values = [f"{self.topic}-{number}-{line}" for line in range(lines)]
            hidden = self.files / f".{number:04}"
            hidden.write_text("".join(f"{value}\n" for value in values))
            hidden.rename(self.files / f"{number:04}.txt")
            self.expected.update(values)

    def frame(self) -> DataFrame:
        return self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.files))

    def run(self, frame: DataFrame | None = None, **options: Any) -> None:
        """Write all there is, as the query that the checkpoint knows, and stop."""
        writer = (self.frame() if frame is None else frame).writeStream.format("strandline")
        writer = writer.option("kafka.bootstrap.servers", self.broker.bootstrap).option("topic", self.topic)
        writer = writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True)
        query = writer.options(**options).start()
        try:
            query.awaitTermination()
        finally:
            query.stop()

    @property
    def query_id(self) -> str:
        import json

        return str(json.loads((self.checkpoint / "metadata").read_text())["id"])

    def last_batch(self) -> int:
        return max(int(each.name) for each in (self.checkpoint / "commits").iterdir() if each.name.isdigit())

    def holds_exactly_what_came_in(self) -> None:
        until("the markers", lambda: sum(counts(self.broker.bootstrap, self.topic).values()) >= self.expected.total())
        assert counts(self.broker.bootstrap, self.topic) == self.expected


@pytest.fixture
def pipeline(spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path) -> Pipeline:
    broker.create_topic(topic, partitions=3)
    return Pipeline(spark, broker, topic, tmp_path)


def test_a_stream_is_written_once_and_its_ids_stay_few(pipeline: Pipeline) -> None:
    """Six tasks on two cores, some of them without rows, over many batches."""
    pipeline.add_files(3)
    pipeline.run(pipeline.frame().repartition(6))
    pipeline.add_files(2, lines=2)
    pipeline.run(pipeline.frame().repartition(6))
    pipeline.holds_exactly_what_came_in()
    # Two workers, each of which ran at most all six tasks of a batch.
    assert len(transactions(pipeline.broker.bootstrap, pipeline.query_id)) <= 12
    assert sinks(pipeline.broker.bootstrap)[pipeline.query_id] == pipeline.last_batch()


@pytest.mark.slow
def test_a_query_that_failed_goes_on_with_another_number_of_tasks(pipeline: Pipeline, tmp_path: Path) -> None:
    pipeline.add_files(3)
    failed = str(tmp_path / "failed")

    def breaking(batches: Any) -> Any:
        import os

        for batch in batches:
            for value in batch.column(0).to_pylist():
                if value.endswith("-1-7") and not os.path.exists(failed):
                    with open(failed, "w"):
                        raise OSError("this task fails once")
            yield batch

    with pytest.raises(Exception, match="this task fails once"):
        pipeline.run(pipeline.frame().repartition(4).mapInArrow(breaking, "value string"))
    pipeline.run(pipeline.frame().repartition(2))
    pipeline.holds_exactly_what_came_in()


def test_a_batch_whose_commit_spark_forgot_is_not_written_twice(pipeline: Pipeline) -> None:
    """The driver dies after the decision and before Spark's own file: the batch runs again, cut otherwise."""
    pipeline.add_files(2)
    pipeline.run(pipeline.frame().repartition(3))
    last = pipeline.checkpoint / "commits" / str(pipeline.last_batch())
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    pipeline.add_files(1)
    pipeline.run(pipeline.frame().repartition(5))
    pipeline.holds_exactly_what_came_in()


@pytest.mark.parametrize("older_by", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_checkpoint_that_is_older_than_the_log_stops_the_query(pipeline: Pipeline, older_by: int) -> None:
    pipeline.add_files(2)
    pipeline.run()
    older = pipeline.checkpoint.with_name("older")
    shutil.copytree(pipeline.checkpoint, older)
    newer = pipeline.checkpoint.with_name("newer")
    pipeline.add_files(older_by)
    pipeline.run()
    pipeline.holds_exactly_what_came_in()
    pipeline.checkpoint.rename(newer)
    older.rename(pipeline.checkpoint)
    pipeline.add_files(1)
    with pytest.raises(Exception, match="the checkpoint is older than the log"):
        # Another plan: all files that are new to this checkpoint in one batch.
        pipeline.run(pipeline.spark.readStream.option("maxFilesPerTrigger", 10).text(str(pipeline.files)))
    # Nothing is lost, and nothing was written: with the newer one put back the query goes on.
    shutil.rmtree(pipeline.checkpoint)
    newer.rename(pipeline.checkpoint)
    pipeline.run()
    pipeline.holds_exactly_what_came_in()


def test_bad_input_is_told_in_a_sentence_and_the_checkpoint_stays_usable(pipeline: Pipeline, topic: str) -> None:
    pipeline.add_files(1)
    pipeline.broker.create_topic(f"{topic}-compacted", cleanup_policy="compact")
    wrong: list[tuple[DataFrame, dict[str, str], str]] = [
        (pipeline.frame().selectExpr("1 AS value"), {}, "value is int and must be string or binary"),
        (pipeline.frame().selectExpr("value AS words"), {}, "has no column value"),
        (pipeline.frame(), {"kafka.acks": "1"}, "would lose records"),
        (pipeline.frame().selectExpr("value", "9 AS partition"), {}, "names partition 9"),
        (pipeline.frame(), {"topic": f"{topic}-compacted"}, "every row needs a key"),
        (pipeline.frame().selectExpr("repeat(value, 100000) AS value"), {}, "larger than kafka.max.request.size"),
    ]
    for frame, options, words in wrong:
        with pytest.raises(Exception) as caught:
            pipeline.run(frame, **options)
        sentence = strandline.spark.explain_failure(caught.value)
        assert words in sentence
        assert "\n" not in sentence
    pipeline.run()
    pipeline.holds_exactly_what_came_in()


def test_a_data_frame_is_written_once_and_leaves_no_sink(
    spark: SparkSession, broker: EmbeddedBroker, topic: str
) -> None:
    broker.create_topic(topic, partitions=3)
    before = (sinks(broker.bootstrap), transactions(broker.bootstrap, "write-"))
    frame = spark.range(1000, numPartitions=5).selectExpr(
        "cast(id AS string) AS value",
        "cast(id % 7 AS string) AS key",
        f"'{topic}' AS topic",
        "array(struct('h' AS key, cast('x' AS binary) AS value)) AS headers",
    )
    frame.write.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap).mode("append").save()
    messages = consume(broker.bootstrap, topic)
    assert Counter(message.value() for message in messages) == Counter(str(n).encode() for n in range(1000))
    assert {message.key() for message in messages} == {str(n).encode() for n in range(7)}
    assert all(message.headers() == [("h", b"x")] for message in messages)
    assert len({(message.key(), message.partition()) for message in messages}) == 7
    assert (sinks(broker.bootstrap), transactions(broker.bootstrap, "write-")) == before


def test_a_write_that_fails_shows_nothing(spark: SparkSession, broker: EmbeddedBroker, topic: str) -> None:
    broker.create_topic(topic, partitions=2)
    frame = spark.range(100, numPartitions=4).selectExpr(
        "if(id = 99, raise_error('no more'), cast(id AS string)) AS value"
    )
    with pytest.raises(Exception, match="no more"):
        frame.write.format("strandline").option("kafka.bootstrap.servers", broker.bootstrap).option(
            "topic", topic
        ).mode("append").save()
    assert consume(broker.bootstrap, topic) == []
