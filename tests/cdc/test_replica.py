"""Table to topic to table by one worker: a replica has the rows of its source, and follows it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest
from tests.cdc.postgres_capture import postgres, run_sql
from tests.cdc.replicas import broker, replicating
from tests.connect.postgres_server import the_server
from tests.connect.running import wait_until

__all__ = ["postgres"]
TYPES = {
    "small": ("smallint", "-7"),
    "whole": ("integer", "2147483647"),
    "long": ("bigint", "-9223372036854775808"),
    "yes": ("boolean", "true"),
    "part": ("real", "0.1"),
    "many": ("double precision", "1e300"),
    "price": ("numeric(12,4)", "-12345.6700"),
    "free": ("numeric", "12345678901234567890.1234567890"),
    "day": ("date", "'1969-02-28'"),
    "clock": ("time", "'23:59:59.123456'"),
    "wall": ("timestamp", "'2026-03-29 02:30:00.123456'"),
    "short": ("timestamp(3)", "'1960-01-01 00:00:00.5'"),
    "moment": ("timestamptz", "'2026-11-18 12:00:00.654321+05:30'"),
    "ident": ("uuid", "'6f9619ff-8b86-d011-b42d-00cf4fc964ff'"),
    "doc": ("jsonb", """'{"a": [1.50, "ä", null]}'"""),
    "raw": ("bytea", r"'\x00ff27'"),
    "mood": ("mood", "'sad'"),
    "words": ("text[]", "array['a\"\\', null, 'b,c']"),
    "numbers": ("bigint[]", "array[1, null, -3]"),
    "sums": ("numeric(6,2)[]", "array[1.50, 2.25]"),
    "idents": ("uuid[]", "array['6f9619ff-8b86-d011-b42d-00cf4fc964ff'::uuid]"),
    "name": ("varchar(10)", "'ü'"),
}
CHANGED = {
    "mood": "text",
    "name": "text",
    "price": "numeric",
    "sums": "numeric[]",
    "short": "timestamp without time zone",
}
"""What the replica has instead, where it has another type."""


@pytest.fixture
def replica() -> str:
    """Give the DSN of the database that the replica is in."""
    return the_server().fresh_database()


def rows(dsn: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(dsn, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


def wait_same(source: str, replica: str, table: str, columns: str = "*") -> None:
    """Wait until the replica has the rows of the source."""
    seen: list[Any] = []

    def is_same() -> bool:
        try:
            seen[:] = [rows(each, f"select {columns} from {table} order by 1") for each in (source, replica)]
        except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
            return False
        return bool(seen[0] == seen[1])

    try:
        wait_until(is_same, f"{table} is the same on both sides", 30)
    except AssertionError:
        here, there = (set(map(str, (each for row in side for each in row))) for side in seen)
        assert sorted(here - there) == sorted(there - here)
        raise


def test_types_come_back_as_they_were(postgres: str, replica: str) -> None:
    columns = ", ".join(f'"{name}" {kind}' for name, (kind, _) in TYPES.items())
    values = ", ".join(value for _, value in TYPES.values())
    run_sql(
        postgres,
        "create type mood as enum ('ok', 'sad')",
        f"create table t (id int primary key, {columns})",
        f"insert into t values (1, {values})",
        "insert into t (id) values (2)",
    )
    with replicating(postgres, replica):
        wait_same(postgres, replica, "t")
        run_sql(postgres, f"insert into t values (3, {values})")
        wait_same(postgres, replica, "t")
    shown = "select attname, format_type(atttypid, -1) from pg_attribute where attrelid = 't'::regclass and attnum > 1"
    here, there = dict(rows(replica, shown)), dict(rows(postgres, shown))
    assert here == there | CHANGED


@pytest.mark.slow
def test_rows_that_lose_their_key_or_are_deleted(postgres: str, replica: str) -> None:
    run_sql(postgres, 'create table t (a int, "B c" text, v text, primary key (a, "B c"))')
    run_sql(postgres, "insert into t select n, 'k', n::text from generate_series(1, 20) n")
    with replicating(postgres, replica):
        wait_same(postgres, replica, "t")
        with psycopg.connect(postgres) as connection:
            connection.execute("update t set a = a + 100 where a <= 5")
            connection.execute("delete from t where a between 6 and 10")
            connection.execute("insert into t values (6, 'k', 'again')")
            # Through a key that another row had in the same transaction.
            connection.execute("update t set a = 1 where a = 20")
            connection.execute("update t set v = null where a = 11")
        wait_same(postgres, replica, "t")
        assert len(rows(replica, "select * from t")) == 16


@pytest.mark.slow
def test_a_large_value_that_did_not_change_stays(postgres: str, replica: str) -> None:
    run_sql(
        postgres,
        "create table t (id int primary key, n int, body text, raw bytea, doc jsonb, big numeric, items bigint[])",
        "alter table t alter body set storage external, alter raw set storage external, alter doc set storage external,"
        " alter items set storage external, alter big set storage external",
        "insert into t select n, 0, repeat(n::text, 5000), convert_to(repeat('r', 5000), 'UTF8'),"
        " to_jsonb(repeat('j', 5000)), repeat('7', 9000)::numeric, array(select generate_series(1, 2000))"
        " from generate_series(1, 3) n",
    )
    with replicating(postgres, replica):
        wait_same(postgres, replica, "t")
        run_sql(
            postgres,
            "update t set n = 1",
            "begin; update t set body = repeat('new', 3000) where id = 2; update t set n = 2 where id = 2; commit",
            "update t set n = 3, body = null where id = 3",
        )
        wait_same(postgres, replica, "t")
        assert rows(replica, "select n, length(body), length(raw) from t order by id") == [
            (1, 5000, 5000),
            (2, 9000, 5000),
            (3, None, 5000),
        ]


@pytest.mark.slow
def test_a_new_key_of_a_row_with_a_large_value_fails_unless_the_identity_is_full(postgres: str, replica: str) -> None:
    make = "create table {0} (id int primary key, body text); alter table {0} alter body set storage external"
    run_sql(postgres, *make.format("t").split(";"), *make.format("f").split(";"))
    run_sql(postgres, "alter table f replica identity full")
    for table in ("t", "f"):
        run_sql(postgres, f"insert into {table} values (1, repeat('x', 9000))")
    with replicating(postgres, replica) as worker:
        wait_same(postgres, replica, "t")
        run_sql(postgres, "update f set id = 2")
        wait_same(postgres, replica, "f")
        run_sql(postgres, "update t set id = 2")
        reason = worker.wait_for("replica", "FAILED")
        assert "has no value of body, which did not change" in reason
        assert "REPLICA IDENTITY FULL" in reason
    assert rows(replica, "select id, length(body) from t") == [(1, 9000)]


@pytest.mark.slow
def test_ddl_is_followed_where_it_is_safe(postgres: str, replica: str) -> None:
    run_sql(postgres, "create table t (id int primary key, n int, gone text)", "insert into t values (1, 1, 'x')")
    with replicating(postgres, replica):
        wait_same(postgres, replica, "t")
        run_sql(
            postgres,
            "alter table t add column more text default 'old'",
            "alter table t add column late date default '2026-01-31'",
            "alter table t alter column n type bigint",
            "insert into t values (2, 9000000000, 'y', 'new')",
        )
        wait_same(postgres, replica, "t")
        run_sql(postgres, "alter table t drop column gone", "insert into t (id, n) values (3, 3)")
        wait_same(postgres, replica, "t", "id, n, more, late")
        # Values of before stay: the source has no word about them.
        assert rows(replica, "select id, gone from t order by id") == [(1, "x"), (2, "y"), (3, None)]
        # A new name of a column looks like another column: the replica is changed by hand, before the source.
        for each in (replica, postgres):
            run_sql(each, "alter table t rename column more to most")
        run_sql(postgres, "update t set n = 4 where id = 3")
        wait_same(postgres, replica, "t", "id, n, most")


@contextmanager
def writing(dsn: str) -> Iterator[None]:
    """Insert, update, move and delete rows, and roll some transactions back."""
    is_over = threading.Event()

    def write() -> None:
        with psycopg.connect(dsn) as connection:
            number = 1000
            while not is_over.wait(0.002):
                number += 1
                connection.execute("insert into t values (%s, %s, repeat('x', 3000))", [number, number % 7])
                connection.execute("update t set n = n + 1 where id = %s", [number - 3])
                connection.execute("update t set id = -id where id = %s and n %% 3 = 0", [number - 5])
                connection.execute("delete from t where id = %s", [number - 9])
                if number % 5 == 0:
                    connection.rollback()
                else:
                    connection.commit()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()


def test_a_replica_follows_a_writer_that_goes_on(postgres: str, replica: str) -> None:
    run_sql(postgres, "create table t (id int primary key, n int, body text)", "alter table t replica identity full")
    run_sql(postgres, "insert into t select n, 0, repeat('b', 3000) from generate_series(1, 500) n")
    with broker() as log:
        with writing(postgres):
            with replicating(postgres, replica, log):
                wait_until(lambda: _newest(replica) > 1020, "the replica follows")
            # Stopped and started again while the writer goes on.
            newest = _newest(postgres)
            with replicating(postgres, replica, log):
                wait_until(lambda: _newest(replica) > newest + 20, "the replica goes on")
        with replicating(postgres, replica, log):
            wait_same(postgres, replica, "t")


def _newest(dsn: str) -> int:
    try:
        return int(rows(dsn, "select coalesce(max(abs(id)), 0) from t")[0][0])
    except psycopg.errors.UndefinedTable:
        return 0
