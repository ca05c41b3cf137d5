"""`engine=spark` of the sinks for tables: the same rows and offsets as `engine=local`, written by Spark."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from tests.connect.sink_records import opened

from strandline.client.cluster_client import ClientSettings
from strandline.client.fetcher import OffsetRange
from strandline.connect.failures import ConnectFailed, FencedOut, RecordFailed, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.sinks.lake.delta import DeltaSink
from strandline.connect.sinks.lake.iceberg import IcebergSink
from strandline.connect.sinks.lake.lake_table import LakeTable
from strandline.spark.lake.connector_process import check_all_written, commit_offsets, failure_of
from strandline.spark.lake.connector_tasks import ConnectorJob, RangeWritten, write_range
from strandline.testing import embedded

CLASSES: dict[str, type[Sink]] = {"iceberg": IcebergSink, "delta": DeltaSink}
WAIT_S = 300.0
"""A worker starts Spark first, beside other work."""
JSON = {
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"upsert": "true", "key.fields": "id"}, "engine=spark only adds rows"),
        ({"errors.tolerance": "all"}, "engine=spark leaves out no record"),
        ({"errors.deadletterqueue.topic.name": "dead"}, "engine=spark leaves out no record"),
        ({"rate.limit.records": "10"}, r"engine=spark has no rate\.limit\.records"),
        ({"consumer.override.auto.offset.reset": "latest"}, r"has no consumer\.override\.auto\.offset\.reset"),
    ],
)
def test_what_spark_cannot_do_is_refused_before_java_starts(changes: dict[str, str], words: str) -> None:
    config = {"engine": "spark", "table.url": "file:///nowhere"}
    assert DeltaSink.Config.errors_of(config) == {}
    (message,) = DeltaSink.Config.errors_of(config | changes)["engine"]
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(message)


def test_without_pyspark_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.connect.sinks.lake.table_sink.find_spec", lambda name: None)
    found = IcebergSink.Config.errors_of({"engine": "spark"})
    assert found == {"engine": ["engine=spark needs the package pyspark: pip install 'strandline[spark]'"]}


def test_one_task_is_enough_for_spark() -> None:
    config = DeltaSink.Config({"engine": "spark", "table.url": "file:///nowhere"})
    assert len(DeltaSink.tasks(config, 4)) == 1
    assert len(DeltaSink.tasks(DeltaSink.Config({"table.url": "file:///nowhere"}), 4)) == 4


def test_nothing_is_committed_before_every_task_has_ended() -> None:
    parts = [OffsetRange("orders", 0, 0, 5), OffsetRange("orders", 0, 5, 9)]
    check_all_written(parts, [RangeWritten(each, (), 0, 0) for each in parts])
    with pytest.raises(ConnectFailed, match="1 of 2 tasks: nothing was committed"):
        check_all_written(parts, [RangeWritten(parts[1], (), 0, 0)])


def test_failures_keep_their_kind() -> None:
    assert failure_of(FencedOut("a")) == ("fenced", "a")
    assert failure_of(RetriableFailure("b")) == ("retriable", "b")
    assert failure_of(ConnectFailed("c")) == ("failed", "c")
    assert failure_of(KeyError("d")) == ("failed", "KeyError: 'd'")


class SparkConnector:
    """A connector from a topic into the table of its name, in a process of `connect run`."""

    def __init__(self, kind: str, bootstrap: str, home: Path) -> None:
        self.kind = kind
        self.bootstrap = bootstrap
        self.home = home
        self.produced = 0
        place = {"table.url": home.as_uri()}
        if kind == "iceberg":
            place = {
                "catalog.type": "sql",
                "catalog.uri": f"sqlite:///{home}/catalog.db",
                "catalog.warehouse": f"file://{home}/tables",
            }
        self.config = {
            "name": "lake",
            "connector.class": f"{kind.capitalize()}Sink",
            "topics": "orders",
            "commit.interval.ms": "100",
            "spark.master": "local[2]",
            **place,
            **JSON,
        }

    def produce(self, count: int, **more: Any) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": self.bootstrap})
        for number in range(self.produced, self.produced + count):
            producer.produce("orders", json.dumps({"id": number, **more}), str(number), partition=number % 3)
        assert producer.flush(30) == 0
        self.produced += count

    def start(self, *options: str, engine: str = "spark", **environment: str) -> subprocess.Popen[str]:
        file = self.home / "lake.json"
        file.write_text(json.dumps(self.config | {"engine": engine}))
        command = [sys.executable, "-m", "strandline", "connect", "run", str(file), "--bootstrap", self.bootstrap]
        return subprocess.Popen(
            [*command, *options], env=os.environ | environment, stderr=subprocess.PIPE, text=True, cwd=self.home
        )

    def run(self, engine: str = "spark") -> None:
        process = self.start("--once", engine=engine)
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 0, said

    def table(self) -> LakeTable:
        table: LakeTable = opened(CLASSES[self.kind], self.config).table_named("orders")
        return table

    def holds_every_record_once(self) -> None:
        table = self.table()
        rows = table.read()
        assert Counter(rows.column("id").to_pylist()) == Counter(range(self.produced))
        ends = [table.offset(TopicPosition("orders", each)) for each in range(3)]
        assert ends == [len(range(each, self.produced, 3)) for each in range(3)]


def test_a_task_makes_the_rows_that_the_local_engine_makes(tmp_path: Path) -> None:
    """In this process, with neither Java nor a worker: a range of a topic becomes files."""
    with embedded() as broker:
        broker.create_topic("orders", partitions=3)
        connector = SparkConnector("delta", broker.bootstrap, tmp_path)
        connector.produce(6)
        connector.produce(6, price=1.5)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce("orders", None, "gone", partition=0)
        producer.produce("orders", "{", "bad", partition=1)
        assert producer.flush(30) == 0

        def job(**changes: str) -> ConnectorJob:
            config = connector.config | {"engine": "spark", "include.metadata": "true"} | changes
            return ConnectorJob("delta", tuple(sorted(config.items())), (), None, ClientSettings(broker.bootstrap))

        written = [write_range(job(), "strandline/a", OffsetRange("orders", at, 1, 5 - at // 2)) for at in (0, 2)]
        assert [each.records for each in written] == [4, 3]
        table = connector.table()
        places = [TopicPosition("orders", at) for at in (0, 2)]
        offsets = {place: each.offsets.end for place, each in zip(places, written, strict=True)}
        files = [file for each in written for file in each.files]
        commit_offsets(table, files, "strandline/a", offsets, dict.fromkeys(places))
        rows = connector.table().read()
        found = {row["id"]: (row["price"], row["__key"], row["__offset"]) for row in rows.to_pylist()}
        assert found == {
            number: (1.5 if number > 5 else None, str(number), number // 3) for number in (3, 5, 6, 8, 9, 11)
        }
        assert connector.table().offset(places[0]) == 5
        with pytest.raises(RecordFailed, match="value of orders-1 at offset 4 failed"):
            write_range(job(), "strandline/b", OffsetRange("orders", 1, 0, 5))
        with pytest.raises(RecordFailed, match="the record of orders-0 at offset 4 has no value"):
            write_range(job(**{"behavior.on.null.values": "fail"}), "strandline/b", OffsetRange("orders", 0, 0, 5))
        routed = {"transforms": "r", "transforms.r.type": "RegexRouter", "transforms.r.regex": "orders"}
        routed_job = job(**routed, **{"transforms.r.replacement": "other"})
        with pytest.raises(ConnectFailed, match="transforms send records of orders to the table other"):
            write_range(routed_job, "strandline/b", OffsetRange("orders", 0, 0, 4))


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
def test_either_engine_goes_on_where_the_other_one_stopped(kind: str, tmp_path: Path) -> None:
    with embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.create_topic("orders", partitions=3)
        connector = SparkConnector(kind, broker.bootstrap, tmp_path)
        connector.produce(500)
        connector.run("spark")
        connector.holds_every_record_once()
        connector.produce(100, more="text")
        connector.run("local")
        connector.produce(100, price=1.5)
        connector.run("spark")
        connector.holds_every_record_once()
        rows = connector.table().read()
        assert (rows.column("more").null_count, rows.column("price").null_count) == (600, 600)
        group = confluent_kafka.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "connect-lake"})
        try:
            places = [confluent_kafka.TopicPartition("orders", each) for each in range(3)]
            assert sum(each.offset for each in group.committed(places, timeout=60)) == connector.produced
        finally:
            group.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("point", ["before-return", "before-commit", "after-commit"])
def test_a_worker_that_is_killed_loses_nothing_and_doubles_nothing(kind: str, point: str, tmp_path: Path) -> None:
    with embedded(properties={"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.create_topic("orders", partitions=3)
        connector = SparkConnector(kind, broker.bootstrap, tmp_path)
        connector.produce(600)
        fault = tmp_path / "fault"
        worker = connector.start(STRANDLINE_FAULT=f"{point}:pause:{fault}")
        try:
            deadline = time.monotonic() + WAIT_S
            while not fault.exists():
                assert worker.poll() is None, f"the worker ended before the fault: {worker.communicate()}"
                assert time.monotonic() < deadline, "the fault was not reached"
                time.sleep(0.05)
        finally:
            worker.send_signal(signal.SIGKILL)
            worker.communicate()
        connector.produce(50)
        connector.run()
        connector.holds_every_record_once()
