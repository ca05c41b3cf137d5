"""SQL sinks when things fail: a process that is killed, a database that is away, a task that is no longer the one."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.connect.postgres_server import PostgresServer
from tests.connect.sql_targets import ORDERS, Target, batch, server, stepped, target

from strandline.connect.failures import ConnectFailed, FencedOut, RecordFailed, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.runtime.fault_points import SQL_SINK_POINTS, SQL_SWAP_POINTS, VARIABLE, PlantedFault

__all__ = ["server", "stepped", "target"]
ROOT = Path(__file__).parents[2]
COUNTED: dict[str, Any] = {"pk_mode": "none", "insert_mode": "insert"}
"""Settings with which a record that is written twice shows as two rows."""


def planted(monkeypatch: pytest.MonkeyPatch, point: str, action: str, path: Path) -> None:
    monkeypatch.setenv(VARIABLE, f"{point}:{action}:{path}")


@pytest.mark.parametrize("point", SQL_SINK_POINTS)
def test_a_failure_at_any_step_neither_loses_nor_doubles(
    stepped: Target, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sink = stepped.sink(**COUNTED)
    sink.write(batch((None, {"n": 0})))
    planted(monkeypatch, point, "fail", tmp_path / "failed")
    with pytest.raises(PlantedFault):
        sink.write(batch((None, {"n": 1}), (None, {"n": 2}), start=1))
    is_committed = point == SQL_SINK_POINTS[-1]
    assert len(stepped.query("select n from orders")) == (3 if is_committed else 1)
    assert stepped.offset() == (3 if is_committed else 1)
    # The same batch is written again, by a sink that does not know whether its commit succeeded.
    sink.write(batch((None, {"n": 1}), (None, {"n": 2}), (None, {"n": 3}), start=1))
    assert stepped.query("select n from orders order by n") == [(0,), (1,), (2,), (3,)]
    assert stepped.offset() == 4


KILLED = """
    import pathlib, sys
    from tests.connect.sql_targets import Target, batch
    sink = Target(sys.argv[1], sys.argv[2]).sink(pk_mode="none", insert_mode="insert")
    sink.write(batch((None, {"n": 0})))
    pathlib.Path(sys.argv[3]).write_text("kill")
    sink.write(batch((None, {"n": 1}), (None, {"n": 2}), start=1))
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", SQL_SINK_POINTS)
def test_a_killed_process_neither_loses_nor_doubles(target: Target, point: str, tmp_path: Path) -> None:
    environment = dict(os.environ) | {
        VARIABLE: f"{point}:told:{tmp_path / 'kill'}",
        "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
    }
    command = [sys.executable, "-c", textwrap.dedent(KILLED), target.kind, target.url, str(tmp_path / "kill")]
    assert subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode == -signal.SIGKILL
    sink = target.sink(resume=(), **COUNTED)
    start = sink.resume([ORDERS])[ORDERS]
    assert start == (3 if point == SQL_SINK_POINTS[-1] else 1)
    numbers = [(None, {"n": each}) for each in range(start, 5)]
    sink.write(batch(*numbers, start=start))
    assert target.query("select n from orders order by n") == [(0,), (1,), (2,), (3,), (4,)]
    assert target.offset() == 5


def test_a_task_that_lost_its_partition_is_fenced_out(target: Target) -> None:
    old = target.sink(**COUNTED)
    old.write(batch((None, {"n": 0})))
    new = target.sink(resume=(), **COUNTED)
    assert new.resume([ORDERS]) == {ORDERS: 1}
    with pytest.raises(FencedOut, match="another task of copy writes orders-0 by now"):
        old.write(batch((None, {"n": 1}), start=1))
    new.write(batch((None, {"n": 1}), start=1))
    with pytest.raises(FencedOut):
        old.write(batch((None, {"n": 1}), (None, {"n": 2}), start=1))
    assert target.query("select n from orders order by n") == [(0,), (1,)]


def test_an_administrator_sets_offsets(stepped: Target) -> None:
    running = stepped.sink()
    running.write(batch((1, {"n": 0}), (2, {"n": 0})))
    stopped = stepped.unopened()
    stopped.set_offsets({ORDERS: 1, TopicPosition("orders", 1): 7})
    with pytest.raises(FencedOut):
        running.write(batch((3, {"n": 0}), start=2))
    assert stopped.resume([ORDERS, TopicPosition("orders", 1)]) == {ORDERS: 1, TopicPosition("orders", 1): 7}
    stopped.set_offsets({ORDERS: None})
    assert stopped.resume([ORDERS]) == {}


def test_a_new_task_waits_for_the_transaction_of_the_old_one(
    server: Target, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    old, new = server.sink(**COUNTED), server.sink(resume=(), **COUNTED)
    old.write(batch((None, {"n": 0})))
    planted(monkeypatch, "sql-sink-offsets-stored", "pause", tmp_path / "paused")
    writing = threading.Thread(target=old.write, args=(batch((None, {"n": 1}), start=1),))
    writing.start()
    while not (tmp_path / "paused").exists():
        time.sleep(0.005)
    found: list[int] = []
    resuming = threading.Thread(target=lambda: found.append(new.resume([ORDERS])[ORDERS]))
    resuming.start()
    while not server.query("select 1 from pg_locks where not granted"):
        time.sleep(0.005)
    (tmp_path / "paused.go").touch()
    writing.join()
    resuming.join()
    assert found == [2]


def test_two_tasks_that_create_and_change_the_same_table(target: Target) -> None:
    failures: list[BaseException] = []

    def write(topic: str) -> None:
        sink = target.unopened(table_name_format="shared")
        _retried(sink.open, failures)
        for n in range(3):
            written = batch((f"{topic} {n}", {"a": n, f"c{n}": n}), start=n, topic=topic)
            _retried(lambda written=written: sink.write(written), failures)  # type: ignore[misc]

    threads = [threading.Thread(target=write, args=(f"t{each}",)) for each in range(2)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []
    assert target.query("select count(*), sum(a), sum(c2) from shared") == [(6, 6, 4)]


def _retried(step: Callable[[], None], failures: list[BaseException]) -> None:
    """Do what may meet a conflict, as the framework does."""
    for _ in range(100):
        try:
            return step()
        except RetriableFailure:
            continue
        except ConnectFailed as error:
            failures.append(error)
            return None
    failures.append(AssertionError("a conflict does not pass"))
    return None


@pytest.fixture
def own_server() -> Iterator[PostgresServer]:
    made = PostgresServer().start()
    yield made
    made.remove()


def test_a_server_that_is_away_for_a_while(own_server: PostgresServer) -> None:
    target = Target("postgres", own_server.dsn())
    sink = target.sink(**COUNTED)
    sink.write(batch((None, {"n": 0})))
    own_server.kill()
    for _ in range(2):
        with pytest.raises(RetriableFailure, match="PostgreSQL"):
            sink.write(batch((None, {"n": 1}), start=1))
    own_server.start()
    sink.write(batch((None, {"n": 1}), start=1))
    assert target.query("select n from orders order by n") == [(0,), (1,)]
    target.close()


def test_what_a_server_refuses_is_told_in_one_sentence(server: Target) -> None:
    server.sink().write(batch((1, {"n": 0})))
    server.query("create role reader login; grant select on orders to reader")
    server.query("grant select, insert, update on strandline_sink_offsets, strandline_sink_tables to reader")
    limited = Target("postgres", server.url.replace("user=postgres", "user=reader"))
    try:
        with pytest.raises(
            ConnectFailed, match=r"^PostgreSQL: permission denied for table orders; .*: grant them$"
        ) as failure:
            limited.sink().write(batch((2, {"n": 0}), start=1))
        assert not isinstance(failure.value, RetriableFailure)
    finally:
        limited.close()
        server.query("drop owned by reader; drop role reader")
    with pytest.raises(RetriableFailure, match="cannot execute INSERT in a read-only transaction"):
        Target("postgres", f"{server.url} options='-c default_transaction_read_only=on'").sink()
    with pytest.raises(ConnectFailed, match='database "nowhere" does not exist') as failure:
        Target("postgres", f"{server.url} dbname=nowhere").sink()
    assert not isinstance(failure.value, RetriableFailure)
    with pytest.raises(RetriableFailure, match="PostgreSQL cannot be connected to"):
        Target("postgres", "host=127.0.0.1 port=1").sink()


def test_files_that_cannot_be_written(tmp_path: Path) -> None:
    target = Target("sqlite", str(tmp_path / "target.db"))
    sink = target.sink()
    blocker = sqlite3.connect(target.url, isolation_level=None)
    blocker.execute("begin immediate")
    sink._database.connection.execute("pragma busy_timeout = 10")
    with pytest.raises(RetriableFailure, match="database is locked"):
        sink.write(batch((1, {"n": 0})))
    blocker.close()
    sink.write(batch((1, {"n": 0})))
    pages = sink._database.connection.execute("pragma page_count").fetchone()[0]
    sink._database.connection.execute(f"pragma max_page_count = {pages}")
    with pytest.raises(RetriableFailure, match="full"):
        sink.write(batch((2, {"n": "x" * 100_000}), start=1))
    sink.write(batch((2, {"n": 5}), start=1))
    target.close()
    (tmp_path / "no.db").write_bytes(b"this is no database, whatever its name says" * 50)
    with pytest.raises(ConnectFailed, match="not a database"):
        Target("sqlite", str(tmp_path / "no.db")).sink()
    with pytest.raises(RetriableFailure, match="unable to open"):
        Target("sqlite", str(tmp_path / "missing" / "target.db")).sink()


def test_rows_are_compared_with_a_topic(target: Target) -> None:
    sink = target.sink()
    records = batch((1, {"n": 1.5, "t": "a"}), (2, {"n": 2}), (3, {"n": 3, "d": {"x": 1e2}}), (2, None))
    sink.write(records)
    other = batch(("4", {"n": 7}), start=4)
    if target.kind == "postgres":
        sink.write(other)
        records += other
    else:
        with pytest.raises(RecordFailed, match="orders-0 at offset 4 has a key that does not fit id of orders"):
            sink.write(other)
    newest = {repr(each.key): sink.expected(each) for each in records}
    found = sink.digests([each.key for each in newest.values()])
    assert {each.key: each.digest for each in newest.values() if each.digest} == found
    assert dict(sink.scan()) == found
    target.query("update orders set n = 30 where t is null and n = 3")
    target.query("insert into orders (id, n) values (99, 1)")
    changed = {each for each in newest.values() if sink.digests([each.key]).get(each.key) != each.digest}
    assert changed == {newest["3"]}
    surplus = [key for key, _ in sink.scan() if key not in found]
    assert [each.key for each in surplus] == [("99",)]


@pytest.mark.parametrize("point", SQL_SWAP_POINTS)
def test_a_rebuild_that_is_interrupted_leaves_the_old_or_the_new(
    stepped: Target, point: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sink = stepped.sink()
    sink.write(batch((1, {"n": "old"}), (2, {"n": "old"})))
    fresh = stepped.fresh(sink)
    assert fresh.resume([ORDERS]) == {}
    fresh.write(batch((1, {"n": "new"}), (2, {"n": "old"}), (3, {"n": "new"})))
    assert stepped.query("select count(*) from orders") == [(2,)]
    planted(monkeypatch, point, "fail", tmp_path / "failed")
    with pytest.raises(PlantedFault):
        fresh.swap()
    if point != SQL_SWAP_POINTS[-1]:
        assert stepped.query("select n from orders order by id") == [("old",), ("old",)]
        assert (stepped.offset(), stepped.offset(connector="copy__rebuild")) == (2, 3)
        fresh.swap()
    assert stepped.query("select n from orders order by id") == [("new",), ("old",), ("new",)]
    assert (stepped.offset(), stepped.offset(connector="copy__rebuild")) == (3, None)
    assert stepped.query("select n from orders__old_1 order by id") == [("old",), ("old",)]
    with pytest.raises(FencedOut):
        sink.write(batch((4, {"n": "late"}), start=2))
    with pytest.raises(ConnectFailed, match="has no fresh target"):
        fresh.swap()
    again = stepped.sink(resume=())
    assert again.resume([ORDERS]) == {ORDERS: 3}
    again.write(batch((3, None), start=3))
    again.drop_old()
    assert not stepped.has_table("orders__old_1")
    assert stepped.query("select id from orders order by id") == [(1,), (2,)]


def test_a_second_rebuild_and_one_that_is_given_up(stepped: Target) -> None:
    sink = stepped.sink()
    sink.write(batch((1, {"n": 0})))
    for number in (1, 2):
        fresh = stepped.fresh(sink)
        fresh.write(batch((1, {"n": number})))
        fresh.swap()
    assert stepped.query("select n from orders__old_2") == [(1,)]
    half = stepped.fresh(sink)
    half.write(batch((1, {"n": 3}), topic="others"))
    with pytest.raises(ConnectFailed, match="the fresh target of copy lacks orders-0"):
        half.swap()
    half.discard()
    given_up = stepped.fresh(sink)
    given_up.write(batch((1, {"n": 3})))
    given_up.discard()
    assert not stepped.has_table("orders__rebuild")
    assert stepped.offset(connector="copy__rebuild") is None
    assert stepped.query("select n from orders") == [(2,)]
    with pytest.raises(ConnectFailed, match="this is the target itself"):
        sink.discard()


def test_a_fresh_table_is_like_one_that_the_sink_may_not_create(server: Target) -> None:
    server.query("create table orders (id bigint primary key, n varchar(5) default 'x', unique (n))")
    fresh = server.fresh(server.sink(auto_create="false"))
    fresh.write(batch((1, {"n": "a"}), (2, {})))
    fresh.swap()
    assert server.query("select id, n from orders order by id") == [(1, "a"), (2, "x")]
    assert server.query("select count(*) from pg_indexes where tablename = 'orders'") == [(2,)]
