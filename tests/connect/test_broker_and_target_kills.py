"""A table into a topic and on into another table, while the worker, the broker and PostgreSQL are killed.

A worker with a SQL source and a PostgreSQL sink is stopped at a fault point, and there one of the three is killed. The
writer of the source's table never stops. The sink inserts, so a record that is written twice shows as two rows.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.connect.postgres_server import PostgresServer
from tests.connect.running import wait_until
from tests.connect.worker_processes import WorkerProcess

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.runtime.fault_points import CONNECT_POINTS, SQL_SINK_POINTS, VARIABLE

POINTS = (*CONNECT_POINTS, *SQL_SINK_POINTS)
BROKER = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
}
WORKER = {"session_timeout_ms": "3000", "heartbeat_interval_ms": "500", "offset_storage_partitions": "1"}
WAIT_S = 200.0
AHEAD = 10
"""Rows that must arrive after a kill."""


class Copying:
    """A broker, PostgreSQL, and a worker that copies the table `orders` by way of the topic `shop.orders`."""

    def __init__(self, log: EmbeddedBroker, server: PostgresServer, directory: Path) -> None:
        self._log, self._server, self._directory = log, server, directory
        self.dsn = server.fresh_database()
        self._run("create table orders (id bigint primary key, name text)")
        self._worker: WorkerProcess | None = None
        self._workers = 0
        self.written = 0
        self._is_over = threading.Event()
        self._writer = threading.Thread(target=self._write)

    def __enter__(self) -> Copying:
        self._start_worker()
        assert self._worker is not None
        database = psycopg.conninfo.conninfo_to_dict(self.dsn)["dbname"]
        self._worker.create(
            "out",
            connector_class="SqlSource",
            connection_url=f"postgresql+psycopg://postgres@/{database}?host={self._server.root}",
            mode="incrementing",
            incrementing_column_name="id",
            table_include_list="orders",
            topic_prefix="shop.",
            poll_interval_ms="50",
            errors_retry_delay_max_ms="500",
        )
        self._worker.create(
            "in",
            connector_class="PostgresSink",
            topics="shop.orders",
            connection_url=self.dsn,
            table_name_format="copy",
            insert_mode="insert",
            pk_mode="none",
            delete_enabled="false",
            errors_retry_delay_max_ms="500",
        )
        self._writer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        if self._writer.is_alive():
            self._writer.join()
        assert self._worker is not None
        self._worker.__exit__(None, None, None)

    def kill_at(self, point: str, victim: str, *, stays_down: bool = False) -> None:
        """Stop the worker at a point and kill what is named. With `stays_down` the worker goes on before it is back."""
        order = self._directory / f"{point}.{self._workers}"
        done, go = (order.with_name(f"{order.name}.{each}") for each in ("done", "go"))
        for each in (done, go):
            each.unlink(missing_ok=True)
        # Renamed when it is whole: the worker may find it at any moment.
        (self._directory / "order").write_text("kill" if victim == "worker" else "pause")
        (self._directory / "order").rename(order)
        self._wait(done.exists, f"the worker reaches {point}")
        if victim == "worker":
            assert self._worker is not None
            assert self._worker.wait_killed() == -9
            self._worker.__exit__(None, None, None)
            self._start_worker()
            return
        target = self._log if victim == "broker" else self._server
        target.kill()
        if stays_down:
            go.touch()
        target.start()
        go.touch()

    def goes_on(self, after: str) -> None:
        """Wait for rows that are written from now on."""
        due = self.written + AHEAD
        self._wait(lambda: self._copied() >= due, f"rows are copied after {after}")

    def finish(self) -> None:
        """Stop the writer and compare both tables row by row."""
        self._is_over.set()
        self._writer.join()
        source = self._run("select id, name from orders order by id")
        self._wait(lambda: self._copied() >= len(source), "all rows are copied")
        assert self._run("select id, name from copy order by id") == source

    def _write(self) -> None:
        while not self._is_over.is_set():
            try:
                with psycopg.connect(self.dsn, autocommit=True) as connection:
                    while not self._is_over.wait(0.005):
                        # A commit whose acknowledgement was lost is made again.
                        row = (self.written, f"order {self.written}")
                        connection.execute("insert into orders values (%s, %s) on conflict do nothing", row)
                        self.written += 1
            except psycopg.OperationalError:
                time.sleep(0.02)

    def _copied(self) -> int:
        try:
            return int(self._run("select count(*) from copy")[0][0])
        except (psycopg.OperationalError, psycopg.errors.UndefinedTable):
            return 0

    def _run(self, statement: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def _start_worker(self) -> None:
        self._workers += 1
        faults = ",".join(f"{each}:told:{self._directory / each}.{self._workers}" for each in POINTS)
        log = self._directory / "worker.log"
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, faults)
            self._worker = WorkerProcess(self._log.bootstrap, log, **WORKER).wait_ready()

    def _wait(self, is_so: Callable[[], bool], what: str) -> None:
        try:
            wait_until(is_so, what, WAIT_S)
        except AssertionError as error:
            error.add_note(f"the worker said:\n{(self._directory / 'worker.log').read_text()[-3000:]}")
            error.add_note(f"rows: {self.written} written, {self._copied()} copied")
            raise


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[[], Copying]]:
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(strandline.embedded(properties=BROKER))
        server = PostgresServer()
        stack.callback(server.remove)
        server.start()
        yield lambda: stack.enter_context(Copying(log, server, tmp_path))


@pytest.mark.slow
def test_every_row_is_copied_once_though_all_three_are_killed(start: Callable[[], Copying]) -> None:
    copying = start()
    for victim, point in (
        ("broker", "connect-before-commit"),
        ("postgres", "sql-sink-offsets-stored"),
        ("worker", "sql-sink-committed"),
    ):
        copying.goes_on(f"the start, until {victim} is killed at {point}")
        copying.kill_at(point, victim)
    copying.goes_on("all kills")
    copying.finish()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("victim", ["worker", "broker", "postgres"])
def test_every_row_is_copied_once_wherever_one_is_killed(start: Callable[[], Copying], victim: str) -> None:
    copying = start()
    copying.goes_on("the start")
    for stays_down in (False,) if victim == "worker" else (False, True):
        for point in POINTS:
            copying.kill_at(point, victim, stays_down=stays_down)
            copying.goes_on(f"the kill of {victim} at {point}")
    copying.finish()
