"""A commit that the stream has before the catalogue shows it: the reader waits, and never takes the old catalogue."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from tests.cdc.postgres_capture import Captured, holds, run_sql
from tests.connect.postgres_server import PostgresServer
from tests.connect.running import wait_until

from strandline.cdc.postgres import visibility
from strandline.cdc.postgres.visibility import is_visible
from strandline.connect.failures import RetriableFailure


@contextmanager
def held_commit(dsn: str, *statements: str) -> Iterator[int]:
    """Commit a transaction, which is in the WAL but not visible until the block ends. Give its server process."""

    with psycopg.connect(dsn) as connection:
        connection.execute("set synchronous_commit = on")
        for each in statements:
            connection.execute(each)
        pid = connection.info.backend_pid
        thread = threading.Thread(target=connection.commit)
        thread.start()
        try:
            wait_until(lambda: pid in waiting(dsn, "wait_event = 'SyncRep'"), "the commit waits for its standby")
            yield pid
        finally:
            run_sql(dsn, f"select pg_cancel_backend({pid})")
            thread.join()


def waiting(dsn: str, condition: str) -> set[int]:
    with psycopg.connect(dsn) as connection:
        found = connection.execute(f"select pid from pg_stat_activity where {condition}").fetchall()
    return {pid for (pid,) in found}


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    made = PostgresServer(synchronous_standby_names="absent", synchronous_commit="local").start()
    yield made
    made.remove()


def test_columns_of_a_commit_that_is_not_visible_yet_have_their_new_schema(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    dsn = server.fresh_database()
    run_sql(dsn, "create table t (id int primary key, v text not null)", "insert into t values (1, 'one')")
    captured = Captured(dsn)
    captured.run(holds(1))
    asks = "query like '%pg_current_snapshot()%' and pid <> pg_backend_pid()"
    change = ("alter table t add n int", "update t set n = 0", "alter table t alter n set not null")
    with held_commit(dsn, *change):
        monkeypatch.setattr(visibility, "VISIBLE_S_MAX", 0.1)
        with pytest.raises(RetriableFailure, match="committed but not visible"):
            captured.run(holds(2))
        monkeypatch.undo()
        reader = threading.Thread(target=captured.run, args=(holds(2),))
        reader.start()
        wait_until(lambda: bool(waiting(dsn, asks)) or len(captured.records) > 1, "the stream is read")
        assert len(captured.records) == 1
    reader.join()
    update = captured.records[1]
    assert update.value["after"] == {"id": 1, "v": "one", "n": 0}
    schema = update.value_schema
    assert schema is not None
    after = schema.field("after")
    assert after is not None
    column = after.schema.field("n")
    assert column is not None
    assert not column.schema.optional


@pytest.mark.parametrize(
    ("xid", "snapshot", "expected"),
    [
        (740, "741:741:", True),
        (741, "741:741:", False),
        (740, "740:745:740,743", False),
        (742, "740:745:740,743", True),
        (5, f"{2**32 + 7}:{2**32 + 7}:", True),
        (5, f"{2**32 + 5}:{2**32 + 7}:{2**32 + 5}", False),
        (2**32 - 1, f"{2**32 + 7}:{2**32 + 7}:", True),
        (7, f"{2**32 - 1}:{2**32 - 1}:", False),
    ],
)
def test_a_snapshot_has_whole_numbers_and_the_stream_their_lower_half(xid: int, snapshot: str, expected: bool) -> None:
    assert is_visible(xid, snapshot) is expected
