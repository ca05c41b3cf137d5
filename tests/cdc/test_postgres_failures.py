"""What goes wrong on PostgreSQL's side: a sentence that says what to do, and no doubled row afterwards."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from tests.cdc.postgres_capture import Captured, holds, postgres, run_sql
from tests.connect.postgres_server import PostgresServer
from tests.connect.running import wait_until

from strandline.cdc.postgres import pgoutput
from strandline.cdc.postgres import source as source_module
from strandline.cdc.postgres.connection import SlotInUse
from strandline.cdc.postgres.positions import WalPosition
from strandline.cdc.postgres.replication import Received, ReplicationStream
from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RetriableFailure

__all__ = ["postgres"]
TABLE = "create table t (id int primary key)"


def is_snapshot_done(captured: Captured) -> bool:
    return captured.offset is not None and "snapshot" not in captured.offset


def never(captured: Captured) -> bool:
    return False


def begun(dsn: str, **settings: str) -> Captured:
    """Return a source that has finished its snapshot of two rows."""
    run_sql(dsn, TABLE, "insert into t values (1), (2)")
    captured = Captured(dsn, **settings)
    captured.run(is_snapshot_done)
    return captured


def slot_of(captured: Captured) -> str:
    return captured.properties["slot.name"]


def drop_slot(captured: Captured) -> None:
    def is_dropped() -> bool:
        try:
            run_sql(captured.dsn, f"select pg_drop_replication_slot('{slot_of(captured)}')")
        except psycopg.errors.ObjectInUse:
            return False
        return True

    wait_until(is_dropped, "the slot is dropped")


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    """Give a server of the test's own, not started."""
    made = PostgresServer()
    try:
        yield made
    finally:
        made.remove()


def test_a_server_that_writes_too_little_is_named() -> None:
    server = PostgresServer(wal_level="replica")
    try:
        with pytest.raises(ConnectFailed, match=r"wal_level=replica.*set wal_level=logical"):
            Captured(server.start().dsn()).run(never)
    finally:
        server.remove()


def test_roles_without_rights_are_told_which_they_lack(postgres: str) -> None:
    name = f"role_{conninfo_to_dict(postgres)['dbname']}"
    run_sql(postgres, TABLE, f"create role {name} login", "insert into t values (1)")
    plain = Captured(postgres, database_user=name)
    with pytest.raises(ConnectFailed, match=f"may not read the WAL: run ALTER ROLE .{name}. REPLICATION"):
        plain.run(never)
    run_sql(postgres, f"alter role {name} replication")
    with pytest.raises(ConnectFailed, match=r"may not create the publication.*publication.autocreate.mode=filtered"):
        plain.run(never)
    run_sql(postgres, "create publication mine for table t")
    plain.properties |= {"publication.name": "mine", "publication.autocreate.mode": "disabled"}
    with pytest.raises(ConnectFailed, match="lacks a right: permission denied for table t"):
        plain.run(never)
    run_sql(postgres, f"grant select on t to {name}")
    plain.run(is_snapshot_done)
    assert plain.rows("t", "id") == [("r", 1)]


def test_a_missing_publication_and_a_wrong_slot_are_named(postgres: str) -> None:
    captured = Captured(postgres, publication_autocreate_mode="disabled", publication_name="no such")
    with pytest.raises(ConnectFailed, match='publication "no such" does not exist: create it'):
        captured.run(never)
    run_sql(postgres, TABLE, f"select pg_create_logical_replication_slot('{slot_of(captured)}', 'test_decoding')")
    with pytest.raises(ConnectFailed, match=r"plugin test_decoding.*set another slot.name"):
        Captured(postgres).run(never)


def test_a_database_that_is_not_there_is_named(postgres: str) -> None:
    with pytest.raises(ConnectFailed, match='database "nowhere" does not exist') as failure:
        Captured(postgres, database_dbname="nowhere").run(never)
    assert not isinstance(failure.value, RetriableFailure)
    with pytest.raises(RetriableFailure, match="cannot be connected to"):
        Captured(postgres, database_port="1").run(never)


def test_a_slot_that_another_reads_is_waited_for(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_module, "SLOT_FREE_S_MAX", 0.3)
    captured = begun(postgres)
    first = captured.source()
    first.open()
    batches = first.read(captured)
    run_sql(postgres, "insert into t values (3)")
    next(batches)
    with pytest.raises(SlotInUse, match=rf'reads the replication slot "{slot_of(captured)}".*set another slot.name'):
        captured.run(holds(3))
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    first.close()
    captured.run(holds(3))
    assert captured.rows("t", "id") == [("r", 1), ("r", 2), ("c", 3)]


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_dropped_slot_is_noticed_and_a_snapshot_taken_if_wanted(postgres: str, is_made_again: bool) -> None:
    captured = begun(postgres)
    drop_slot(captured)
    run_sql(postgres, "insert into t values (3)")
    if is_made_again:
        run_sql(postgres, f"select pg_create_logical_replication_slot('{slot_of(captured)}', 'pgoutput')")
    sentence = "it was made again" if is_made_again else "does not exist any more"
    with pytest.raises(ConnectFailed, match=rf"{sentence}.*snapshot.mode=when_needed") as failure:
        captured.run(never)
    assert not isinstance(failure.value, RetriableFailure)
    captured.properties["snapshot.mode"] = "when_needed"
    captured.run(holds(5))
    captured.run(is_snapshot_done)
    run_sql(postgres, "insert into t values (4)")
    captured.run(holds(6))
    assert captured.rows("t", "id")[2:] == [("r", 1), ("r", 2), ("r", 3), ("c", 4)]


@pytest.mark.parametrize("is_running", [False, True])
def test_a_dropped_publication_is_noticed_and_a_snapshot_taken_if_wanted(postgres: str, is_running: bool) -> None:
    captured = begun(postgres, publication_autocreate_mode="filtered", table_include_list="public.t")
    captured.properties["slot.guard.interval.ms"] = "20"
    drop = "drop publication dbz_publication", "insert into t values (3)"
    waiting = threading.Timer(0.3 if is_running else 0.0, run_sql, (postgres, *drop))
    waiting.start()
    if not is_running:
        waiting.join()
    with pytest.raises(ConnectFailed, match=r'"dbz_publication" was dropped.*snapshot.mode=when_needed') as failure:
        captured.run(never)
    assert not isinstance(failure.value, RetriableFailure)
    waiting.join()
    captured.properties["snapshot.mode"] = "when_needed"
    captured.run(holds(5))
    captured.run(is_snapshot_done)
    run_sql(postgres, "insert into t values (4)")
    captured.run(holds(6))
    assert captured.rows("t", "id")[2:] == [("r", 1), ("r", 2), ("r", 3), ("c", 4)]


def test_a_slot_that_waits_for_its_snapshot_is_no_problem(postgres: str) -> None:
    captured = begun(postgres)
    run_sql(postgres, "insert into t values (3)")
    assert "no task reads the slot" in str(captured.source().inspect(captured)["problems"])
    assert captured.offset is not None
    captured.offset |= {"snapshot": "INITIAL", "snapshot_completed": False}
    assert captured.source().inspect(captured)["problems"] == []


def test_a_slot_that_was_advanced_is_a_problem(postgres: str) -> None:
    captured = begun(postgres)
    run_sql(postgres, "insert into t values (3)")
    run_sql(postgres, f"select pg_replication_slot_advance('{slot_of(captured)}', pg_current_wal_lsn())")
    assert "past the stored position" in str(captured.source().inspect(captured)["problems"])


def test_a_table_that_the_publication_lacks_is_a_problem(postgres: str) -> None:
    captured = begun(postgres, publication_autocreate_mode="filtered", table_include_list="public.*")
    assert "lacks" not in str(captured.source().inspect(captured)["problems"])
    run_sql(postgres, "create table later (id int primary key)")
    problem = captured.source().inspect(captured)["problems"][-1]
    assert "lacks the table public.later, so its changes are not captured" in problem
    source = captured.source()
    source.open()
    with pytest.raises(ConnectFailed, match=r"lacks the table public\.later"):
        source.rows_now()
    source.close()


def test_another_server_and_one_from_a_backup_are_noticed(postgres: str) -> None:
    captured = begun(postgres)
    assert captured.offset is not None
    kept = captured.offset
    captured.offset = kept | {"system_id": "1"}
    with pytest.raises(ConnectFailed, match="is another database server"):
        captured.run(never)
    captured.offset = kept | {"lsn": kept["lsn"] + 2**40}
    with pytest.raises(ConnectFailed, match="restored from a backup"):
        captured.run(never)
    captured.offset = {"lsn": "x"}
    with pytest.raises(InvalidConnectorConfig, match="no position of the WAL"):
        captured.run(never)


@pytest.mark.slow
def test_wal_that_is_gone_is_noticed() -> None:
    server = PostgresServer(max_slot_wal_keep_size="1MB", min_wal_size="32MB", max_wal_size="32MB")
    try:
        _lose_wal(server.start().dsn())
    finally:
        server.remove()


def _lose_wal(dsn: str) -> None:
    captured = begun(dsn)
    run_sql(dsn, "create table filler (n text)")
    for _ in range(4):
        run_sql(dsn, "insert into filler select repeat('x', 500) from generate_series(1, 2000)")
        run_sql(dsn, "select pg_switch_wal()", "checkpoint")
    with pytest.raises(ConnectFailed, match=r"has removed WAL.*max_slot_wal_keep_size"):
        captured.run(never)
    captured.properties |= {"snapshot.mode": "when_needed", "table.include.list": "public.t"}
    captured.run(holds(4))
    assert captured.rows("t", "id") == [("r", 1), ("r", 2)] * 2


def test_a_server_that_is_restarted_or_killed_loses_nothing(
    server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log takes nothing while the server stops, so the source has to let it go.
    monkeypatch.setattr("strandline.cdc.postgres.replication.SHUTDOWN_S_MAX", 0.2)
    captured = begun(server.start().dsn())
    for number, end in enumerate((server.stop, server.kill), 3):
        source = captured.source()
        source.open()
        batches = source.read(captured)
        run_sql(captured.dsn, f"insert into t values ({number})")
        batch = next(batches)
        captured.commit(batch)
        asyncio.run(source.committed([*batch.positions()]))
        end()
        with pytest.raises(RetriableFailure, match=r"is away or busy|has ended the replication|shuts down"):
            next(batches)
        source.close()
        with pytest.raises(RetriableFailure, match="cannot be connected to"):
            captured.run(never)
        server.start()
    run_sql(captured.dsn, "insert into t values (5)")
    captured.run(holds(5))
    assert captured.rows("t", "id") == [("r", 1), ("r", 2), ("c", 3), ("c", 4), ("c", 5)]


def test_a_server_can_shut_down_while_a_source_reads(server: PostgresServer) -> None:
    captured = begun(server.start().dsn())
    run_sql(captured.dsn, "create table later (n int)", "insert into later values (1)")
    source = captured.source()
    source.open()
    batches = source.read(captured)
    stopping = threading.Thread(target=server.stop)
    failure = None
    stopping.start()
    try:
        for batch in batches:
            captured.commit(batch)
            asyncio.run(source.committed([*batch.positions()]))
    except RetriableFailure as error:
        failure = error
    stopping.join(20)
    source.close()
    assert failure is not None
    assert not stopping.is_alive()


@pytest.mark.slow
def test_the_server_hears_from_a_source_whose_log_is_slow() -> None:
    server = PostgresServer(wal_sender_timeout="700ms")
    try:
        captured = begun(server.start().dsn(), status_update_interval_ms="100")
        source = captured.source()
        source.open()
        batches = source.read(captured)
        run_sql(captured.dsn, "create table big (id int primary key, n text)")
        run_sql(captured.dsn, "insert into big select n, repeat('x', 1000) from generate_series(1, 40000) n")
        captured.commit(next(batches))
        heard = "select max(reply_time) - %s > interval '2 s' from pg_stat_replication"
        with psycopg.connect(captured.dsn, autocommit=True) as connection:
            row = connection.execute("select now()").fetchone()
            wait_until(lambda: connection.execute(heard, row).fetchone() == (True,), "status updates flow")
        while len(captured.of("big")) < 40_000:
            captured.commit(next(batches))
        batches.close()  # type: ignore[attr-defined]  # it is a generator
        source.close()
        assert [key for _, key in captured.rows("big", "id")] == list(range(1, 40_001))
    finally:
        server.remove()


@pytest.mark.parametrize("action", ["fail", "drop"])
def test_the_guard_acts_before_the_disk_is_full(postgres: str, action: str) -> None:
    captured = begun(postgres)
    captured.properties |= {
        "slot.guard.stop.bytes": "500000",
        "slot.guard.action": action,
        "slot.guard.interval.ms": "20",
        "table.include.list": "public.t",
    }
    sentence = "make room for WAL and run" if action == "fail" else "so it was dropped"
    with closing(captured.source()) as source:
        source.open()
        batches = source.read(captured)
        run_sql(postgres, "insert into t values (3)")
        captured.commit(next(batches))
        # Nothing is confirmed, as if the log were away.
        run_sql(
            postgres,
            "create table filler (n text)",
            "insert into filler select repeat('x', 500) from generate_series(1, 3000)",
        )
        with pytest.raises(ConnectFailed, match=sentence):
            deque(batches, maxlen=0)
        with psycopg.connect(postgres) as connection:
            query = "select count(*) from pg_replication_slots where slot_name = %s"
            expected = 1 if action == "fail" else 0
            wait_until(
                lambda: connection.execute(query, (slot_of(captured),)).fetchone() == (expected,), "slot is dropped"
            )


def test_what_arrives_while_the_stream_is_ended_is_not_taken(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was at hand is thrown away then, so whatever came behind would move the position over a hole."""
    captured = begun(postgres)
    assert captured.offset is not None
    has_arrived, is_ending = threading.Event(), threading.Event()
    deliver, close = ReplicationStream._deliver, ReplicationStream.close

    def deliver_late(stream: ReplicationStream, received: list[Received], size: int) -> None:
        if any(message[0] == pgoutput.INSERT for _, message in received):
            has_arrived.set()
            assert is_ending.wait(60)
        deliver(stream, received, size)

    def close_meanwhile(stream: ReplicationStream) -> None:
        is_ending.set()
        close(stream)

    monkeypatch.setattr(ReplicationStream, "_deliver", deliver_late)
    monkeypatch.setattr(ReplicationStream, "close", close_meanwhile)
    with closing(captured.source()) as source:
        source.open()
        stream = source._started(WalPosition.of(captured.offset).lsn)
        run_sql(postgres, "insert into t values (3)")
        assert has_arrived.wait(60)
        stream.fail(ConnectFailed("the guard ends it"))
        with pytest.raises(ConnectFailed, match="the guard ends it"):
            stream.take(0)
    captured.run(holds(3))
    assert [key for _, key in captured.rows("t", "id")] == [1, 2, 3]


def test_a_guard_that_acts_while_there_is_no_stream_ends_the_next_one(postgres: str) -> None:
    """As during a second snapshot, when the slot grows most."""
    captured = begun(postgres)
    run_sql(postgres, "insert into t values (3)")
    with closing(captured.source()) as source:
        source.open()
        source._fail(ConnectFailed("the guard ends it"))
        with pytest.raises(ConnectFailed, match="the guard ends it"):
            next(source.read(captured))


def test_the_guard_warns(postgres: str, caplog: pytest.LogCaptureFixture) -> None:
    captured = begun(postgres)
    captured.properties |= {"slot.guard.warn.bytes": "1", "slot.guard.interval.ms": "10"}
    run_sql(postgres, "insert into t values (3)")
    with caplog.at_level(logging.WARNING):
        source = captured.source()
        source.open()
        batches = source.read(captured)
        next(batches)
        wait_until(lambda: "more than slot.guard.warn.bytes" in caplog.text, "it warns")
        batches.close()  # type: ignore[attr-defined]  # it is a generator
        source.close()


def test_the_slot_is_dropped_on_a_stop_if_wanted(postgres: str) -> None:
    run_sql(postgres, TABLE)
    with psycopg.connect(postgres) as connection:
        has_failover = connection.info.server_version >= 170000
    captured = Captured(postgres, slot_drop_on_stop="true", slot_failover=str(has_failover).lower())
    source = captured.source()
    source.open()
    batches = source.read(captured)
    next(batches)
    source.stopping.set()
    assert list(batches) == []
    source.close()
    with psycopg.connect(postgres) as connection:
        row = connection.execute("select count(*) from pg_replication_slots where slot_name = %s", (slot_of(captured),))
        assert row.fetchone() == (0,)


def test_a_stop_does_not_wait_for_a_slot_that_cannot_be_made_yet(postgres: str) -> None:
    run_sql(postgres, TABLE)
    captured = Captured(postgres)
    source = captured.source()
    with psycopg.connect(postgres) as busy:
        busy.execute("insert into t values (1)")
        source.open()
        threading.Timer(0.3, source.stopping.set).start()
        assert list(source.read(captured)) == []
        source.close()


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"slot_name": "Bad-Name"}, "slot.name"),
        ({"snapshot_mode": "sometimes"}, "snapshot.mode"),
        ({"publication_autocreate_mode": "some"}, "publication.autocreate.mode"),
        ({"slot_guard_warn_bytes": "10", "slot_guard_stop_bytes": "5"}, "slot.guard.stop.bytes"),
        ({"snapshot_select_statement_overrides": "public.t"}, "snapshot.select.statement.overrides"),
        ({"plugin_name": "wal2json"}, "plugin.name"),
    ],
)
def test_settings_that_are_wrong_are_named(settings: dict[str, str], wrong: str) -> None:
    captured = Captured("host=h user=u dbname=d", **settings)
    assert list(source_module.PostgresCdcSource.Config.errors_of(captured.properties)) == [wrong]
