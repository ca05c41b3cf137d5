"""Exactly once from MariaDB: kills, restarts, snapshots under load, binlogs that are gone, rights that are missing."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from tests.cdc.mariadb_reading import MariadbReader, has
from tests.cdc.mariadb_server import MariadbDatabase, MariadbServer, mariadb, needs_mariadb

from strandline.cdc.mariadb.connection import REQUIRED, BinlogGone
from strandline.connect.failures import ConnectFailed, RetriableFailure

__all__ = ["mariadb"]
pytestmark = pytest.mark.slow


@contextmanager
def _writing(database: MariadbDatabase) -> Iterator[list[int]]:
    """Write to the table `t` for ever: pairs of rows in one transaction, updates and deletes."""
    is_over = threading.Event()
    written = [0]

    def write() -> None:
        connection = database.connect()
        with connection.cursor() as cursor:
            for number in itertools.count(1):
                if is_over.is_set():
                    break
                cursor.execute("begin")
                cursor.execute(f"insert into t values ({2 * number}, 0), ({2 * number + 1}, 0)")
                cursor.execute(f"update t set v = v + 1 where id in ({2 * number}, {number})")
                cursor.execute(f"delete from t where id = {number // 2 * 2 + 1} and id % 4 = 1")
                cursor.execute("commit")
                written[0] = number
                time.sleep(0.001)
        connection.close()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield written
    finally:
        is_over.set()
        writer.join()


def _replayed(reader: MariadbReader) -> dict[int, int]:
    """Return the rows that the events make. Each event must fit what was there before it."""
    rows: dict[int, int] = {}
    is_snapshot = True
    for event in reader.values("t"):
        before, after = event["before"], event["after"]
        if event["op"] == "r":
            rows[after["id"]] = after["v"]
            continue
        is_snapshot = False
        if before is not None:
            assert rows.pop(before["id"]) == before["v"], "an event is missing or there twice"
        if after is not None:
            assert after["id"] not in rows, "an event is there twice"
            rows[after["id"]] = after["v"]
    assert not is_snapshot
    return rows


def _table(database: MariadbDatabase) -> dict[int, int]:
    return dict(database.rows("select id, v from t"))


def _purge(database: MariadbDatabase) -> None:
    """Remove all binlogs but the last. The server keeps those that a stream reads, also one that has just ended."""
    for (stream,) in database.rows("select id from information_schema.processlist where command like 'Binlog Dump%'"):
        database.run(f"kill {stream}")
    ((last, *_),) = database.rows("show master status")
    deadline = time.monotonic() + 30
    while len(database.rows("show binary logs")) > 1:
        assert time.monotonic() < deadline
        database.run(f"purge binary logs to '{last}'")
        time.sleep(0.05)


def _read_all(reader: MariadbReader) -> None:
    reader.database.run("create table if not exists marks (id int auto_increment primary key)")
    reader.database.run("insert into marks values ()")
    ((last,),) = reader.database.rows("select max(id) from marks")
    reader.read(lambda each: any(event["after"]["id"] == last for event in each.values("marks")))


@pytest.mark.parametrize("mode", ["minimal", "extended", "none"])
def test_a_snapshot_and_its_stream_have_each_change_once_while_a_writer_never_stops(
    mariadb: MariadbDatabase, mode: str
) -> None:
    mariadb.run("create table t (id int primary key, v int)", "insert into t select -seq, 0 from seq_1_to_3000")
    reader = MariadbReader(mariadb, snapshot_locking_mode=mode, max_batch_size="100")
    with _writing(mariadb) as written:
        reader.read(lambda each: any("snapshot" not in offset for _, offset in each.store.all()))
        for _ in range(3):
            goal = len(reader.of("t")) + 1500
            reader.read(has("t", goal))
        assert written[0] > 0
    _read_all(reader)
    assert _replayed(reader) == _table(mariadb)
    marks = [each["source"]["snapshot"] for each in reader.values("t") if each["op"] == "r"]
    assert marks[0] in ("first", "first_in_data_collection")
    assert marks[-1] in ("last", "last_in_data_collection")


def test_kills_before_and_behind_every_batch_neither_lose_nor_double_a_change(mariadb: MariadbDatabase) -> None:
    mariadb.run("create table t (id int primary key, v int)", "insert into t values (-1, 0)")
    reader = MariadbReader(mariadb, max_batch_size="7")
    reader.read(has("t", 1))
    with _writing(mariadb) as written:
        while written[0] < 60:
            time.sleep(0.01)
    for kill_at in range(12):
        reader.read(lambda _: False, kill_at=kill_at % 4)
    _read_all(reader)
    assert _replayed(reader) == _table(mariadb)


def test_a_snapshot_that_was_killed_begins_again(mariadb: MariadbDatabase) -> None:
    mariadb.run("create table t (id int primary key, v int)", "insert into t select seq, 0 from seq_1_to_500")
    reader = MariadbReader(mariadb, max_batch_size="100", include_schema_changes="false")
    reader.read(lambda _: False, kill_at=3)
    assert len(reader.of("t")) == 300
    assert reader.store.all()[0][1]["snapshot"] == "INITIAL"
    reader.read(has("t", 800))
    assert [each["after"]["id"] for each in reader.values("t")[300:]] == list(range(1, 501))
    assert "snapshot" not in reader.store.all()[0][1]


def test_a_server_that_is_killed_and_started_again_is_read_on() -> None:
    needs_mariadb()
    server = MariadbServer(sync_binlog="1").start()
    try:
        database = server.fresh_database()
        database.run("create table t (id int primary key, v int)", "insert into t values (1, 0)")
        reader = MariadbReader(database)
        reader.read(has("t", 1))
        killing = threading.Timer(1.0, server.kill)
        killing.start()
        with pytest.raises(RetriableFailure, match=r"MariaDB at 127\.0\.0\.1"):
            reader.read(lambda _: False)
        killing.join()
        with pytest.raises(RetriableFailure, match="is away"):
            reader.read(lambda _: False)
        server.start()
        database.run("insert into t values (2, 0)")
        reader.read(has("t", 2))
        assert [each["after"]["id"] for each in reader.values("t")] == [1, 2]
        assert reader.values("t")[1]["source"]["file"] == "binlog.000002"
    finally:
        server.remove()


def test_binlogs_that_are_gone_are_told_and_make_a_new_snapshot_if_that_is_wanted() -> None:
    needs_mariadb()
    server = MariadbServer().start()
    try:
        database = server.fresh_database()
        database.run("create table t (id int primary key, v int)", "insert into t values (1, 0)")
        reader = MariadbReader(database)
        reader.read(has("t", 1))
        database.run(
            "insert into t values (2, 0)", "flush binary logs", "insert into t values (3, 0)", "flush binary logs"
        )
        _purge(database)
        with pytest.raises(BinlogGone, match=r"snapshot\.mode=when_needed"):
            reader.read(has("t", 2))
        reader.settings["snapshot.mode"] = "when_needed"
        reader.read(has("t", 4))
        database.run("insert into t values (4, 0)")
        reader.read(has("t", 5))
        found = [(each["op"], each["after"]["id"]) for each in reader.values("t")]
        assert found == [("r", 1), ("r", 1), ("r", 2), ("r", 3), ("c", 4)]
        database.run("reset master")
        reader.settings["snapshot.mode"] = "initial"
        with pytest.raises(BinlogGone, match="cannot go on at the stored position"):
            reader.read(has("t", 6))
    finally:
        server.remove()


def test_settings_of_the_server_are_checked_and_told() -> None:
    needs_mariadb()
    server = MariadbServer().start()
    try:
        reader = MariadbReader(server.fresh_database())
        for name, wrong in (
            ("binlog_format", "MIXED"),
            ("binlog_row_image", "MINIMAL"),
            ("binlog_row_metadata", "MINIMAL"),
        ):
            reader.database.run(f"set global {name}={wrong}")
            with pytest.raises(ConnectFailed, match=f"has {name}={wrong}.*SET GLOBAL {name}={REQUIRED[name][0]}"):
                reader.read(lambda _: False)
            reader.database.run(f"set global {name}={REQUIRED[name][0]}")
    finally:
        server.remove()


def test_changes_without_names_of_columns_are_told(mariadb: MariadbDatabase) -> None:
    mariadb.run("create table t (id int primary key, v int)", "insert into t values (1, 0)")
    reader = MariadbReader(mariadb)
    reader.read(has("t", 1))
    mariadb.run(
        "set global binlog_row_metadata=NO_LOG", "insert into t values (2, 0)", "set global binlog_row_metadata=FULL"
    )
    with pytest.raises(ConnectFailed, match=f"changes of {mariadb.name}.t without the names of its columns"):
        reader.read(has("t", 2))


def test_rights_that_are_missing_are_told(mariadb: MariadbDatabase, caplog: pytest.LogCaptureFixture) -> None:
    user = f"u{mariadb.name}"
    mariadb.run(
        "create table t (id int primary key, v int)",
        "insert into t values (1, 0)",
        f"create user {user}@'127.0.0.1' identified by 'secret'",
        f"create user {user}@'localhost' identified by 'secret'",
    )
    reader = MariadbReader(mariadb, database_user=user, database_password="wrong")
    with pytest.raises(ConnectFailed, match=f"refuses the user {user}"):
        reader.read(lambda _: False)
    reader.settings["database.password"] = "secret"
    for host in ("127.0.0.1", "localhost"):
        mariadb.run(f"grant select on {mariadb.name}.* to {user}@'{host}'")
    with pytest.raises(ConnectFailed, match="GRANT SELECT, RELOAD, REPLICATION SLAVE, BINLOG MONITOR"):
        reader.read(has("t", 2))
    for host in ("127.0.0.1", "localhost"):
        mariadb.run(f"grant replication slave, binlog monitor on *.* to {user}@'{host}'")
    mariadb.run("insert into t values (2, 0)")
    with caplog.at_level(logging.WARNING):
        reader.read(lambda each: has("t", 2)(each))
    assert any("may not lock tables" in each.message for each in caplog.records)
    mariadb.run("insert into t values (3, 0)")
    reader.read(lambda each: any(event["after"]["id"] == 3 for event in each.values("t")))


@pytest.mark.parametrize(("mode", "expected"), [("never", [2]), ("no_data", [2]), ("initial_only", [1])])
def test_snapshot_modes(mariadb: MariadbDatabase, mode: str, expected: list[int]) -> None:
    mariadb.run("create table t (id int primary key, v int)", "insert into t values (1, 0)")
    reader = MariadbReader(mariadb, snapshot_mode=mode)
    writing = threading.Timer(1.5, mariadb.run, ["insert into t values (2, 0)"])
    writing.start()
    reader.read(has("t", 1))
    writing.join()
    assert [each["after"]["id"] for each in reader.values("t")] == expected
