"""Streams into tables of Iceberg and Delta: a real Spark, from a real topic, read back without Spark."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import duckdb
import pytest

import strandline.spark
from strandline.connect.sinks.lake.lake_table import LakeTable
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.spark.lake.options import parse_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KINDS = ("iceberg", "delta")
WAIT_S = 300.0
"""A driver starts Spark first, beside other work."""
ROOT = Path(__file__).parents[2]


class LakeStream:
    """A query from a topic into the table `orders` of a directory."""

    def __init__(self, kind: str, bootstrap: str, topic: str, home: Path) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self.topic = topic
        self.home = home
        self.checkpoint = home / "checkpoint"
        self.produced = 0

    @property
    def options(self) -> dict[str, str]:
        places = {"table.url": (self.home / "tables").as_uri()}
        if self.kind == "iceberg":
            places = {
                "catalog.type": "sql",
                "catalog.uri": f"sqlite:///{self.home}/catalog.db",
                "catalog.warehouse": f"file://{self.home}/tables",
            }
        return places | {"table": "orders"}

    def produce(self, count: int) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.produced, self.produced + count):
            value = json.dumps({"id": number, "name": f"n{number}"})
            producer.produce(self.topic, value, partition=number % 3)
        assert producer.flush(30) == 0
        self.produced += count

    def run(self, spark: SparkSession, tasks_min: int = 1, **options: str) -> None:
        """Write all there is, as the query that the checkpoint knows."""
        query = self.start(spark, tasks_min, **options)
        try:
            strandline.spark.await_end(query)
        finally:
            query.stop()

    def start(self, spark: SparkSession, tasks_min: int, **options: str) -> Any:
        frame = spark.readStream.format("strandline").option("kafka.bootstrap.servers", self.bootstrap)
        frame = frame.option("subscribe", self.topic).option("startingOffsets", "earliest")
        frame = frame.option("valueSchema", "id BIGINT, name STRING").option("minPartitions", tasks_min)
        writer = frame.option("maxOffsetsPerTrigger", 600).load().select("id", "name", "partition").writeStream
        writer = writer.format(f"strandline_{self.kind}").options(**(self.options | options))
        return writer.option("checkpointLocation", str(self.checkpoint)).trigger(availableNow=True).start()

    def table(self) -> LakeTable:
        (self.home / "tables").mkdir(exist_ok=True)
        return parse_options(self.kind, self.options).open()[1]

    def holds_every_record_once(self) -> None:
        """Compare with what was produced: by DuckDB all files there are, of which no attempt left one too many."""
        files = [str(each) for each in self.home.rglob("*.parquet") if "_delta_log" not in each.parts]
        found = Counter(
            duckdb.sql(f"select id, name, partition from read_parquet({files!r})").fetchall() if files else []
        )
        assert found == Counter((number, f"n{number}", number % 3) for number in range(self.produced))
        assert self.table().read().num_rows == self.produced

    def forget_the_end_of_the_last_batch(self) -> None:
        """Leave the checkpoint as a driver does that is killed between the table's commit and Spark's note of it."""
        commits = self.checkpoint / "commits"
        last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
        for each in (last, commits / f".{last.name}.crc"):
            each.unlink(missing_ok=True)


@pytest.mark.parametrize("kind", ["iceberg", pytest.param("delta", marks=pytest.mark.slow)])
def test_a_batch_that_spark_runs_again_is_in_the_table_once(
    kind: str, spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, partitions=3)
    stream = LakeStream(kind, broker.bootstrap, topic, tmp_path)
    stream.produce(600)
    stream.run(spark)
    stream.forget_the_end_of_the_last_batch()
    stream.produce(100)
    stream.run(spark, tasks_min=5)
    stream.holds_every_record_once()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("point", ["before-return", "before-commit", "after-commit"])
def test_a_query_that_is_killed_at_any_step_writes_every_record_once(
    kind: str, point: str, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    """With all of its processes; then it is run again, with other tasks."""
    broker.create_topic(topic, partitions=3)
    stream = LakeStream(kind, broker.bootstrap, topic, tmp_path)
    stream.produce(900)
    fault = tmp_path / "fault"
    fault.write_text("pause")
    driver = _driver(stream, 1, STRANDLINE_FAULT=f"{point}:told:{fault}")
    try:
        deadline = time.monotonic() + WAIT_S
        while not Path(f"{fault}.done").exists():
            assert driver.poll() is None, "the query ended before the fault"
            assert time.monotonic() < deadline, "the fault was not reached"
            time.sleep(0.05)
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    assert _driver(stream, 5).wait(WAIT_S) == 0
    stream.holds_every_record_once()


def _driver(stream: LakeStream, tasks_min: int, **environment: str) -> subprocess.Popen[bytes]:
    """Start the query in a driver of its own."""
    given = (stream.kind, stream.bootstrap, stream.topic, str(stream.home), str(tasks_min))
    code = "import sys; from tests.spark.test_lake import run_alone; run_alone(*sys.argv[1:])"
    return subprocess.Popen(
        [sys.executable, "-c", code, *given], env=os.environ | environment, cwd=ROOT, process_group=0
    )


def run_alone(kind: str, bootstrap: str, topic: str, home: str, tasks_min: str) -> None:
    with strandline.spark.session(master="local[2]") as spark:
        LakeStream(kind, bootstrap, topic, Path(home)).run(spark, int(tasks_min))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_what_cannot_work_is_told_in_one_sentence(
    kind: str, spark: SparkSession, broker: EmbeddedBroker, topic: str, tmp_path: Path
) -> None:
    broker.create_topic(topic, partitions=3)
    stream = LakeStream(kind, broker.bootstrap, topic, tmp_path)
    stream.produce(3)
    stream.run(spark)
    cases: list[tuple[dict[str, str], str]] = [
        ({"tabel": "x"}, rf"tabel is no option of strandline_{kind}"),
        ({"upsert": "true"}, "upsert is no option .*: it only adds rows"),
        ({"auto.create": "perhaps"}, "Invalid value perhaps for configuration auto.create"),
        ({"table": "new", "auto.create": "false"}, "the table .*new is missing"),
    ]
    if kind == "iceberg":
        cases.append(({"catalog.type": "rest", "catalog.uri": "http://127.0.0.1:9"}, "cannot be reached"))
    stream.produce(3)
    for options, words in cases:
        with pytest.raises(strandline.spark.SparkFailed, match=words) as told:
            stream.run(spark, **options)
        assert "\n" not in str(told.value)
    shutil.rmtree(stream.checkpoint)
    frame = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 2).load()
    writer = frame.selectExpr("string(value) AS id").writeStream.format(f"strandline_{kind}").options(**stream.options)
    query = writer.option("checkpointLocation", str(stream.checkpoint)).start()
    with pytest.raises(strandline.spark.SparkFailed, match="the column id is string, which does not fit into int64"):
        strandline.spark.await_end(query, timeout_s=60)
