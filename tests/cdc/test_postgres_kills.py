"""A worker with the source on a real broker: each of them and PostgreSQL are killed while a writer never stops.

Each change is in the log once and in order, the fold of a topic is its table, and a reader of committed records never
sees a part of what a transaction did to a table.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from tests.cdc.audited_writer import PREPARE, TABLES, Audit, Audited, AuditedWriter
from tests.cdc.postgres_capture import postgres, properties_of, run_sql
from tests.connect.postgres_server import PostgresServer
from tests.connect.running import RunningWorker, wait_until

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.runtime.fault_points import CDC_POINTS, VARIABLE

__all__ = ["postgres"]
ROOT = Path(__file__).resolve().parents[2]
BROKER = {"group.initial.rebalance.delay.ms": "0", "num.partitions": "1"}
WITHIN_S = 120.0
AHEAD = 20
"""Transactions that are written after the last kill."""
PLAIN = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "key.converter": "org.apache.kafka.connect.json.JsonConverter",
    "key.converter.schemas.enable": "false",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.schemas.enable": "false",
}
SNAPSHOT_POINTS = ("cdc-slot-created", "cdc-snapshot-page", "cdc-snapshot-end")
POINTS = (
    *(each for each in CDC_POINTS if each.startswith("cdc-")),
    "connect-before-commit",
    "connect-after-commit",
)
Event = tuple[int, dict[str, Any] | None]
"""The id of a key, and the value; None is a tombstone."""


class Watcher:
    """A reader of committed records. At each end of a topic it notes how much of its last transaction is there."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self.events: dict[str, list[Event]] = {name: [] for name in TABLES}
        self.ends: list[dict[str, Any]] = []
        """What the topic of transactions has of their ends."""
        self.seen: list[tuple[str, int, int]] = []
        """Table, transaction, and how many of its events were there when the topic had no more."""
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Watcher:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        consumer = Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "watcher",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        topics = [f"db.public.{name}" for name in TABLES] + ["db.transaction"]
        consumer.assign([TopicPartition(each, 0, OFFSET_BEGINNING) for each in topics])
        while not self._is_over.is_set():
            for each in consumer.consume(500, 0.05):
                name = str(each.topic()).rpartition(".")[2]
                if each.error() is not None:
                    self._note_end(name)
                elif name in self.events:
                    self.events[name].append((_loaded(each.key())["id"], _loaded(each.value())))
                elif (value := _loaded(each.value())) is not None and value["status"] == "END":
                    self.ends.append(value)
        consumer.close()

    def _note_end(self, name: str) -> None:
        values = [value for _, value in self.events.get(name, ()) if value is not None and value["op"] != "r"]
        if values:
            xid = values[-1]["source"]["txId"]
            self.seen.append((name, xid, sum(each["source"]["txId"] == xid for each in values)))

    def fold(self, name: str) -> dict[int, int]:
        """Return the rows that a reader of a topic has."""
        found: dict[int, int] = {}
        for key, value in list(self.events[name]):
            if value is None or value["after"] is None:
                found.pop(key, None)
            else:
                found[key] = value["after"]["v"]
        return found

    def read(self) -> int:
        """Return how many rows came from snapshots."""
        return sum(value is not None and value["op"] == "r" for name in TABLES for _, value in self.events[name])

    def has_read_more_than(self, rows: int) -> bool:
        return self.read() > rows

    def changes(self, name: str) -> list[Audited]:
        """Return the changes of a topic, without rows of snapshots."""
        values = [value for _, value in self.events[name] if value is not None and value["op"] != "r"]
        rows = [(each, each["after"] or each["before"]) for each in values]
        return [
            Audited(each["source"]["txId"], each["op"], row["id"], row["v"] if each["after"] else None)
            for each, row in rows
        ]


def _loaded(data: bytes | None) -> Any:
    return None if data is None else json.loads(data)


class KilledWorker:
    """A worker in a process of its own that is started again whenever it was killed."""

    def __init__(self, log: EmbeddedBroker, directory: Path, properties: dict[str, str], point: str) -> None:
        self._pipeline = directory / "pipeline.json"
        self._pipeline.write_text(json.dumps({"name": "capture", "config": properties}))
        self._log, self._directory = log, directory
        self._order = directory / "order"
        self._point = point
        self.kills = 0
        self._is_over = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        while not self._is_over.is_set():
            with (self._directory / "worker.log").open("ab") as output:
                self._process = subprocess.Popen(
                    [
                        *(sys.executable, "-m", "strandline", "connect", "run", str(self._pipeline)),
                        *("--bootstrap", self._log.bootstrap),
                    ],
                    stdout=output,
                    stderr=output,
                    cwd=ROOT,
                    env={**os.environ, VARIABLE: f"{self._point}:told:{self._order}"},
                )
                self._process.wait()
            self.kills += self._process.returncode == -9

    def order_kill(self) -> None:
        """Have the worker killed at the next time it comes to the point."""
        whole = self._directory / "whole"
        whole.write_text("kill")
        whole.rename(self._order)

    def wait_killed(self, count: int) -> None:
        wait_until(lambda: self.kills >= count, f"kill {count} at {self._point}: {self.output()}", WITHIN_S)

    def __enter__(self) -> KilledWorker:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        assert self._process is not None
        self._process.kill()
        self._thread.join()

    def output(self) -> str:
        log = self._directory / "worker.log"
        return log.read_text()[-3000:] if log.exists() else ""


class Pipeline:
    """A writer, a database, a worker, a broker and a reader."""

    def __init__(self, log: EmbeddedBroker, dsn: str, directory: Path, point: str) -> None:
        run_sql(dsn, *PREPARE)
        for each in (*(f"public.{name}" for name in TABLES), "transaction"):
            log.create_topic(f"db.{each}", 1)
        settings = {
            "max.batch.size": "8",
            "table.include.list": ",".join(f"public.{name}" for name in TABLES),
            "provide.transaction.metadata": "true",
            "errors.retry.delay.max.ms": "500",
            # Each page of the snapshot is then a transaction of its own, and a kill finds rows that were sent.
            **({"rate.limit.records": "600"} if point == "cdc-snapshot-page" else {}),
        }
        self._dsn = dsn
        self.watcher = Watcher(log.bootstrap)
        self.writer = AuditedWriter(dsn)
        self.worker = KilledWorker(log, directory, PLAIN | properties_of(dsn) | settings, point)

    @contextlib.contextmanager
    def running(self) -> Iterator[Pipeline]:
        """Run all of it; afterwards assert that the log has what the database had."""
        with self.watcher, self.worker:
            with self.writer:
                yield self
                self.goes_on()
            audit = Audit(self._dsn)
            for name in TABLES:
                self.wait(partial(self._is_all_there, audit, name), f"all of {name} comes")
            self.wait(lambda: self.watcher.ends[-1]["id"].startswith(f"{_last(audit)}:"), "the last END comes")
        self._check(audit)

    def wait(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            wait_until(is_so, what, WITHIN_S)
        except AssertionError as error:
            raise AssertionError(f"{error}: {self.worker.output()}") from error

    def goes_on(self) -> None:
        before = self.writer.transactions
        self.wait(lambda: self.writer.transactions > before + AHEAD, "the writer goes on")

    def _is_all_there(self, audit: Audit, name: str) -> bool:
        return self.watcher.fold(name) == audit.tables[name]

    def has_changes(self) -> bool:
        """Return whether the stream has come to the log."""
        return all(any(value and value["op"] != "r" for _, value in events) for events in self.watcher.events.values())

    def _check(self, audit: Audit) -> None:
        streamed: Counter[int] = Counter()
        for name in TABLES:
            changes = self.watcher.changes(name)
            assert changes
            # What came before is in the snapshot; from there on each change is there, once and in order.
            assert changes == audit.events[name][-len(changes) :]
            streamed.update(each.xid for each in changes)
        parts = {name: audit.counts(name) for name in TABLES}
        halves = [each for each in self.watcher.seen if each[2] != parts[each[0]][each[1]]]
        assert not halves
        assert len(self.watcher.seen) > 3
        ended = {int(each["id"].partition(":")[0]): each for each in self.watcher.ends}
        assert len(ended) == len(self.watcher.ends)
        assert streamed == {xid: each["event_count"] for xid, each in ended.items() if each["event_count"]}
        for each in ended.values():
            for of in each["data_collections"]:
                name = of["data_collection"].rpartition(".")[2]
                assert of["event_count"] == parts[name][int(each["id"].partition(":")[0])]


def _last(audit: Audit) -> int:
    return max(audit.events[name][-1].xid for name in TABLES)


def test_a_worker_runs_the_source_by_debeziums_name(postgres: str) -> None:
    run_sql(postgres, "create table a (id int primary key, v int)", "insert into a values (1, 1)")
    with (
        strandline.embedded(properties=BROKER) as log,
        RunningWorker(log.bootstrap) as worker,
        Watcher(log.bootstrap) as watcher,
    ):
        worker.lead()
        log.create_topic("db.public.a", 1)
        given = PLAIN | properties_of(postgres)
        worker.create("capture", given.pop("connector.class"), given)
        events = watcher.events["a"]
        wait_until(lambda: len(events) == 1, f"the snapshot: {worker.status('capture')}")
        run_sql(postgres, "insert into a values (2, 2)", "delete from a where id = 1")
        wait_until(lambda: len(events) == 4, "three events and a tombstone")
        values = [value and (value["op"], value["source"]["snapshot"]) for _, value in events]
        assert values == [("r", "last"), ("c", "false"), ("d", "false"), None]
        assert watcher.fold("a") == {2: 2}


@pytest.mark.slow
@pytest.mark.parametrize("point", POINTS)
def test_nothing_is_lost_or_doubled_if_the_worker_is_killed(tmp_path: Path, postgres: str, point: str) -> None:
    with strandline.embedded(properties=BROKER) as log:
        pipeline = Pipeline(log, postgres, tmp_path, point)
        worker, watcher = pipeline.worker, pipeline.watcher
        if point in SNAPSHOT_POINTS and point != "cdc-snapshot-page":
            worker.order_kill()
        with pipeline.running():
            for kills in (1, 2, 3):
                if point == "cdc-snapshot-page":
                    pipeline.wait(partial(watcher.has_read_more_than, watcher.read()), "some rows of the snapshot come")
                    worker.order_kill()
                elif point not in SNAPSHOT_POINTS:
                    pipeline.wait(pipeline.has_changes, "the stream comes")
                    worker.order_kill()
                worker.wait_killed(kills)
                if point in SNAPSHOT_POINTS and kills < 3 and point != "cdc-snapshot-page":
                    worker.order_kill()
            pipeline.wait(pipeline.has_changes, "the stream comes")


@pytest.mark.slow
@pytest.mark.parametrize("victim", ["broker", "postgres"])
def test_nothing_is_lost_or_doubled_if_the_broker_or_postgresql_is_killed(tmp_path: Path, victim: str) -> None:
    server = PostgresServer().start()
    try:
        with strandline.embedded(properties=BROKER) as log:
            pipeline = Pipeline(log, server.dsn(), tmp_path, "cdc-stream-batch")
            target = log if victim == "broker" else server
            with pipeline.running():
                for _ in range(3):
                    pipeline.wait(pipeline.has_changes, "the stream comes")
                    pipeline.goes_on()
                    target.kill()
                    target.start()
    finally:
        server.remove()
