"""A standby that is promoted while the primary is gone: with a slot that was kept in sync, and without one."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.cdc.postgres_capture import Captured, holds, run_sql
from tests.connect import postgres_server
from tests.connect.postgres_server import PostgresServer
from tests.connect.running import wait_until

from strandline.connect.failures import ConnectFailed, RetriableFailure

pytestmark = pytest.mark.slow
TABLE = "create table t (id int primary key)"


def is_snapshot_done(captured: Captured) -> bool:
    return captured.offset is not None and "snapshot" not in captured.offset


@contextmanager
def pair() -> Iterator[tuple[PostgresServer, PostgresServer]]:
    """Run a primary, and a standby that follows it."""
    primary = PostgresServer(synchronized_standby_slots="standby")
    standby = PostgresServer(sync_replication_slots="on", hot_standby_feedback="on", primary_slot_name="standby")
    try:
        run_sql(primary.start().dsn(), "select pg_create_physical_replication_slot('standby', true)")
        shutil.rmtree(standby.root / "data")
        command = [
            *(postgres_server._binary("pg_basebackup"), "-D", str(standby.root / "data"), "-R", "-c", "fast"),
            *("-d", primary.dsn()),
        ]
        user = postgres_server._unprivileged()
        subprocess.run(command, check=True, capture_output=True, cwd="/", **postgres_server._as(user))
        with (standby.root / "data" / "postgresql.auto.conf").open("a") as settings:
            # A standby that syncs slots has to name a database.
            settings.write(f"primary_conninfo = '{primary.dsn()}'\n")
        standby.start()
        yield primary, standby
    finally:
        for each in (standby, primary):
            each.remove()


def promote(standby: PostgresServer) -> None:
    run_sql(standby.dsn(), "select pg_promote()")
    with psycopg.connect(standby.dsn(), autocommit=True) as connection:
        query = "select pg_is_in_recovery()"
        wait_until(lambda: connection.execute(query).fetchone() == (False,), "the standby is promoted")


def has_all_of(standby: PostgresServer, primary: PostgresServer) -> bool:
    with psycopg.connect(primary.dsn()) as one, psycopg.connect(standby.dsn()) as other:
        end = one.execute("select pg_current_wal_lsn()").fetchone()
        return other.execute("select pg_last_wal_replay_lsn() >= %s::pg_lsn", end).fetchone() == (True,)


def test_a_slot_that_is_in_sync_is_read_on_without_a_gap() -> None:
    with pair() as (primary, standby):
        run_sql(primary.dsn(), TABLE, "insert into t values (1)")
        captured = Captured(primary.dsn(), slot_failover="true")
        captured.run(is_snapshot_done)
        name = captured.properties["slot.name"]
        last = 1

        def is_in_sync() -> bool:
            # A standby keeps the slot once the primary's has moved on to WAL that the standby has, too.
            nonlocal last
            last += 1
            run_sql(primary.dsn(), "select pg_log_standby_snapshot()", f"insert into t values ({last})")
            captured.run(holds(last))
            with psycopg.connect(standby.dsn()) as connection:
                query = "select synced and not temporary from pg_replication_slots where slot_name = %s"
                return connection.execute(query, (name,)).fetchone() == (True,)

        wait_until(is_in_sync, "the slot is in sync")
        run_sql(primary.dsn(), f"insert into t values ({last + 1})")
        wait_until(lambda: has_all_of(standby, primary), "the standby has all")
        primary.kill()
        promote(standby)
        run_sql(standby.dsn(), f"insert into t values ({last + 2})")
        captured.properties["database.hostname"] = str(standby.root)
        captured.run(holds(last + 2))
        assert captured.rows("t", "id") == [("r", 1), *(("c", number) for number in range(2, last + 3))]


def test_a_promotion_without_the_slot_is_told_and_a_snapshot_recovers() -> None:
    with pair() as (primary, standby):
        run_sql(primary.dsn(), TABLE, "insert into t values (1)")
        captured = Captured(primary.dsn())
        captured.run(is_snapshot_done)
        run_sql(primary.dsn(), "insert into t values (2)")
        wait_until(lambda: has_all_of(standby, primary), "the standby has all")
        primary.kill()
        promote(standby)
        run_sql(standby.dsn(), "insert into t values (3)")
        captured.properties["database.hostname"] = str(standby.root)
        with pytest.raises(ConnectFailed, match=r"does not exist any more.*snapshot.mode=when_needed") as failure:
            captured.run(holds(3))
        assert not isinstance(failure.value, RetriableFailure)
        captured.properties["snapshot.mode"] = "when_needed"
        captured.run(holds(4))
        run_sql(standby.dsn(), "insert into t values (4)")
        captured.run(holds(5))
        assert captured.rows("t", "id") == [("r", 1), ("r", 1), ("r", 2), ("r", 3), ("c", 4)]
