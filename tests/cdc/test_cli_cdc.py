"""`strandline cdc verify` and `cdc status` against a worker that replicates a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.cdc.postgres_capture import postgres, run_sql
from tests.cdc.replicas import SINK, SOURCE, broker, write_file
from tests.cli.conftest import CommandLine
from tests.connect.postgres_server import PostgresServer, the_server
from tests.connect.running import wait_until
from tests.connect.running_worker import running_worker

from strandline.cli.common.failures import ExitCode

__all__ = ["postgres"]


@dataclass
class Replicated:
    """A database, its replica, and the command line of the worker between them."""

    source: str
    replica: str
    cli: CommandLine
    file: str

    def verify(self, *options: str) -> Any:
        return self.cli.run("cdc", "verify", self.file, *options)

    def status(self) -> dict[str, Any]:
        (found,) = self.cli.run("cdc", "status", "--json").objects
        return dict(found)


@contextmanager
def replicated(source: str, directory: Path) -> Iterator[Replicated]:
    replica = the_server().fresh_database()
    file = str(write_file(directory / "replica.yaml", source, replica))
    with broker() as log, running_worker(log.bootstrap) as url:
        cli = CommandLine(log.bootstrap)
        cli.environ["STRANDLINE_CONNECT_URL"] = url
        cli.options = ("--timeout", "60")
        assert cli.run("connect", "apply", file, "--yes").status == 0
        yield Replicated(source, replica, cli, file)


@contextmanager
def writing(dsn: str) -> Iterator[None]:
    """Change a few rows again and again."""
    is_over = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn) as connection:
            number = 100
            while not is_over.wait(0.005):
                number += 1
                connection.execute("insert into t values (%s, 'new')", [number])
                connection.execute("update t set v = v || '!' where id = %s", [number % 5 + 1])
                connection.execute("delete from t where id = %s", [number - 4])
                connection.commit()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


@pytest.mark.slow
def test_verify_finds_what_differs_and_nothing_else(postgres: str, tmp_path: Path) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)")
    run_sql(postgres, "insert into t select n, 'v' || n from generate_series(1, 50) n")
    with replicated(postgres, tmp_path) as both:
        ended = both.verify()
        assert ended.status == 0, ended.stderr
        assert "the database has 50 rows, digest " in ended.stdout.decode()
        run_sql(both.replica, "update t set v = 'by hand' where id = 7", "delete from t where id = 8")
        run_sql(both.replica, "insert into t values (1000, 'surplus')")
        ended = both.verify("--json")
        assert ended.status == ExitCode.UNHEALTHY
        (found,) = ended.objects
        assert {each: found[each] for each in ("rows", "different", "missing", "surplus", "differences")} == {
            "rows": 50,
            "different": 1,
            "missing": 1,
            "surplus": 1,
            "differences": 3,
        }
        assert {tuple(each["key"]) for each in found["first"]} == {("7",), ("8",), ("1000",)}
        assert "replica differs from the database in 3 rows" in ended.stderr
        # The source's next changes of these rows mend the replica.
        run_sql(postgres, "update t set v = v", "insert into t values (1000, 'now')")
        ended = both.verify("--source", SOURCE, "--sink", SINK)
        assert ended.status == 0, ended.stdout.decode() + ended.stderr


@pytest.mark.slow
def test_verify_finds_no_difference_while_a_writer_goes_on(postgres: str, tmp_path: Path) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)")
    run_sql(postgres, "insert into t select n, 'v' || n from generate_series(1, 50) n")
    with replicated(postgres, tmp_path) as both, writing(postgres):
        digests = set()
        for _ in range(3):
            ended = both.verify("--json")
            assert ended.status == 0, ended.stdout.decode() + ended.stderr
            (found,) = ended.objects
            assert found["rows"] >= 45
            digests.add(found["digest"])
        assert len(digests) == 3
        run_sql(both.replica, "update t set v = 'by hand' where id = 40")
        ended = both.verify("--json")
        assert ended.status == ExitCode.UNHEALTHY
        (found,) = ended.objects
        assert [each["key"] for each in found["first"]] == [["40"]]


@pytest.mark.slow
def test_status_shows_slot_delay_snapshot_and_tables(postgres: str, tmp_path: Path) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)", 'create table "Odd one" (a int, b int)')
    run_sql(postgres, 'alter table "Odd one" replica identity full')
    with replicated(postgres, tmp_path) as both:
        wait_until(lambda: both.status()["snapshot"] == "done", "the snapshot is done")
        run_sql(postgres, "insert into t values (1, 'one')")
        wait_until(lambda: both.status()["behind_s"] == 0.0, "the source has caught up")
        found = both.status()
        assert found["connector"] == SOURCE
        assert found["state"] == "RUNNING"
        assert found["slot"]["is_active"] is True
        assert found["slot"]["wal_status"] == "reserved"
        assert found["problems"] == []
        tables = {each["table"]: each for each in found["tables"]}
        assert tables["public.t"]["key"] == ["id"]
        assert tables["public.Odd one"]["identity"] == "full"
        assert tables["public.Odd one"]["topic"] == "db.public.Odd_one"
        ended = both.cli.run("cdc", "status", "--tables")
        assert ended.status == 0, ended.stderr
        assert "db.public.t" in ended.stdout.decode()
        assert f"{found['slot']['name']} (reserved)" in ended.stdout.decode()
        ended = both.cli.run("cdc", "status", SINK)
        assert ended.status == ExitCode.USAGE
        assert f"{SINK} captures no changes of a database" in ended.stderr
        assert both.cli.run("cdc", "status", "unknown").status == ExitCode.NOT_FOUND


def test_status_of_a_stopped_source_whose_slot_holds_wal_is_a_problem(postgres: str, tmp_path: Path) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)")
    with replicated(postgres, tmp_path) as both:
        wait_until(lambda: both.status()["snapshot"] == "done", "the snapshot is done")
        assert both.cli.run("connect", "stop", SOURCE).status == 0
        wait_until(lambda: not both.status()["slot"]["is_active"], "the slot is free")
        run_sql(postgres, "insert into t select n, repeat('x', 100) from generate_series(1, 2000) n")
        ended = both.cli.run("cdc", "status")
        assert ended.status == ExitCode.UNHEALTHY
        assert "(unread)" in ended.stdout.decode()
        assert "no task reads the slot" in ended.stderr
        assert "max_slot_wal_keep_size" in ended.stderr
        run_sql(postgres, f"select pg_drop_replication_slot('{both.status()['slot']['name']}')")
        ended = both.cli.run("cdc", "status", "--json")
        assert ended.status == ExitCode.UNHEALTHY
        (found,) = ended.objects
        assert found["slot"] is None
        assert len(found["problems"]) == 1


@pytest.mark.slow
def test_status_of_a_database_that_is_away(tmp_path: Path) -> None:
    server = PostgresServer().start()
    try:
        source = server.fresh_database()
        run_sql(source, "create table t (id int primary key)")
        with replicated(source, tmp_path) as both:
            wait_until(lambda: both.status()["snapshot"] == "done", "the snapshot is done")
            server.stop()
            ended = both.cli.run("cdc", "status", "--json")
            assert ended.status == ExitCode.UNHEALTHY
            (found,) = ended.objects
            assert "cannot be connected to" in found["problems"][0]
    finally:
        server.remove()
