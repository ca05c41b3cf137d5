"""A worker with the source on a real broker, killed at each fault point while a writer never stops."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.cdc.postgres_capture import postgres, properties_of, run_sql
from tests.cdc.postgres_worker import POINTS
from tests.connect.running import RunningWorker, wait_until

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.runtime.fault_points import VARIABLE

__all__ = ["postgres"]
ROOT = Path(__file__).resolve().parents[2]
BROKER = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}
PLAIN = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}


def committed(log: EmbeddedBroker, topic: str) -> list[Any]:
    """Return the values of a topic that a reader of committed records sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": log.bootstrap,
            "group.id": "reader",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[Any] = []
    is_ended = False
    while not is_ended:
        for each in consumer.consume(1000, 0.2):
            if each.error() is not None:
                is_ended = True
            elif (value := each.value()) is not None:
                found.append(json.loads(value))
    consumer.close()
    return found


def test_a_worker_runs_the_source_by_debeziums_name(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key, name text)", "insert into t values (1, 'one')")
    with strandline.embedded(properties=BROKER) as log, RunningWorker(log.bootstrap) as worker:
        worker.lead()
        log.create_topic("db.public.t", 1)
        given = PLAIN | properties_of(postgres)
        worker.create("capture", given.pop("connector.class"), given)
        wait_until(lambda: len(committed(log, "db.public.t")) == 1, f"the snapshot: {worker.status('capture')}")
        run_sql(postgres, "insert into t values (2, 'two')", "delete from t where id = 1")
        wait_until(lambda: len(committed(log, "db.public.t")) == 3, "three events")
        values = committed(log, "db.public.t")
        assert [(each["op"], each["source"]["snapshot"]) for each in values] == [
            ("r", "last"),
            ("c", "false"),
            ("d", "false"),
        ]
        assert values[1]["after"] == {"id": 2, "name": "two"}


class Killed:
    """A worker in a process of its own that is started again whenever it was killed."""

    def __init__(self, log: EmbeddedBroker, directory: Path, properties: dict[str, str], fault: str) -> None:
        self._pipeline = directory / "pipeline.json"
        self._pipeline.write_text(json.dumps({"name": "capture", "config": properties}))
        self._log, self._directory, self._fault = log, directory, fault
        self.kills = 0
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.is_set():
            with (self._directory / "worker.log").open("ab") as output:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "tests.cdc.postgres_worker", "connect", "run", str(self._pipeline)),
                        *("--bootstrap", self._log.bootstrap),
                    ],
                    stdout=output,
                    stderr=output,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT), VARIABLE: self._fault},
                )
                self._process.wait()
            self.kills += self._process.returncode == -9

    def __enter__(self) -> Killed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        assert self._process is not None
        self._process.kill()
        self._thread.join()

    def output(self) -> str:
        return (self._directory / "worker.log").read_text()[-3000:]


@contextmanager
def writing(dsn: str) -> Iterator[list[int]]:
    """Write transactions of three rows without a pause; yield the numbers of those that are committed."""
    stop = threading.Event()
    numbers: list[int] = []

    def write() -> None:
        with psycopg.connect(dsn, autocommit=True) as connection:
            number = 0
            while not stop.wait(0.01):
                connection.execute("insert into t select %s, part from generate_series(1, 3) part", (number,))
                numbers.append(number)
                number += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield numbers
    finally:
        stop.set()
        writer.join()


def check(values: list[Any], numbers: list[int], *, may_read_again: bool) -> None:
    """Assert that each transaction is there once, whole and in order."""
    rows = [(each["op"], each["after"]["id"], each["after"]["part"]) for each in values]
    read = [each[1:] for each in rows if each[0] == "r"]
    if not may_read_again:
        assert len(read) == len(set(read))
    streamed = [each[1:] for each in rows if each[0] == "c"]
    assert len(streamed) == len(set(streamed))
    assert streamed == sorted(streamed)
    assert set(read) | set(streamed) == {(number, part) for number in numbers for part in (1, 2, 3)}
    assert not set(read) & set(streamed) or may_read_again


@pytest.mark.parametrize("point", [pytest.param(each, marks=pytest.mark.slow) for each in POINTS])
def test_each_transaction_comes_once_though_the_worker_is_killed(tmp_path: Path, postgres: str, point: str) -> None:
    run_sql(postgres, "create table t (id int, part int, primary key (id, part))")
    fault = tmp_path / "fault"
    kills_wanted = 2
    with strandline.embedded(properties=BROKER) as log:
        log.create_topic("db.public.t", 1)
        given = PLAIN | properties_of(postgres, max_batch_size="64")
        with writing(postgres) as numbers, Killed(log, tmp_path, given, f"{point}:kill:{fault}") as worker:

            def has_kills(count: int) -> bool:
                return worker.kills >= count

            for count in range(1, kills_wanted + 1):
                wait_until(partial(has_kills, count), f"kill {count} at {point}: {worker.output()}", 30)
                if "snapshot" in point or "slot" in point:
                    break
                fault.unlink(missing_ok=True)
            fault.touch()
            seen = len(numbers)
            wait_until(lambda: len(numbers) > seen + 20, "the writer goes on")
        with Killed(log, tmp_path, given, f"{point}:kill:{fault}"):
            expected = (numbers[-1], 3)
            wait_until(
                lambda: any(
                    (each["after"]["id"], each["after"]["part"]) == expected for each in committed(log, "db.public.t")
                ),
                f"the last transaction comes: {worker.output()}",
                30,
            )
        check(committed(log, "db.public.t"), numbers, may_read_again=point != "cdc-stream-batch")
