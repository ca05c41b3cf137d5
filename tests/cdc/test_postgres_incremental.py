"""Incremental snapshots: begun by a signal, interleaved with writes, and finished after kills."""

from __future__ import annotations

import json
import random
import threading
from dataclasses import replace
from typing import Any

import psycopg
import pytest
from tests.cdc.postgres_capture import Captured, postgres, run_sql

from strandline.cdc.postgres.connection import lsn_of
from strandline.cdc.postgres.incremental import IncrementalSnapshots, SeenTransactions

__all__ = ["postgres"]
SIGNALS = "create table signals (id text primary key, type text, data text)"


def signal(dsn: str, kind: str, **data: Any) -> None:
    text = json.dumps({name.replace("_", "-"): value for name, value in data.items()})
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("insert into signals values (gen_random_uuid()::text, %s, %s)", (kind, text))


def begun(dsn: str, *statements: str, **settings: str) -> Captured:
    run_sql(dsn, SIGNALS, *statements)
    captured = Captured(
        dsn,
        snapshot_mode="no_data",
        signal_data_collection="public.signals",
        incremental_snapshot_chunk_size="7",
        table_include_list="public.t,public.Other.*",
        **settings,
    )
    captured.run(lambda each: each.offset is not None)
    return captured


def is_finished(captured: Captured) -> bool:
    return captured.offset is not None and "incremental_snapshot" not in captured.offset and bool(captured.records)


def is_finished_with_chunks(captured: Captured) -> bool:
    return is_finished(captured) and any(each.value and each.value["op"] == "r" for each in captured.records)


def test_a_signal_reads_tables_in_chunks_that_match(postgres: str) -> None:
    captured = begun(
        postgres,
        "create table t (a int, b text, primary key (b, a))",
        """insert into t select n, 'it''s \\ ' || n % 3 from generate_series(1, 30) n""",
        'create table "Other Täble" (id int primary key)',
        'insert into "Other Täble" select generate_series(1, 20)',
        "create table keyless (n int)",
    )
    signal(
        postgres,
        "execute-snapshot",
        data_collections=["public.t", "public.Other.*"],
        additional_conditions=[{"data-collection": "public.Other.*", "filter": "id > 5"}],
    )
    captured.run(is_finished)
    assert sorted(key for _, key in captured.rows("t", "a")) == list(range(1, 31))
    assert [each for _, each in captured.rows("Other_T_ble", "id")] == list(range(6, 21))
    assert {each.value["source"]["snapshot"] for each in captured.records} == {"incremental"}


def test_progress_is_stored_so_that_a_kill_repeats_nothing(postgres: str) -> None:
    captured = begun(postgres, "create table t (id int primary key)", "insert into t select generate_series(1, 40)")
    signal(postgres, "execute-snapshot", data_collections=["public.t"])
    for _ in range(20):
        if is_finished(captured):
            break
        captured.run(is_finished, batches_max=2)
    assert captured.rows("t", "id") == [("r", number) for number in range(1, 41)]


def test_pause_resume_stop_and_wrong_signals(postgres: str) -> None:
    captured = begun(postgres, "create table t (id int primary key)", "insert into t select generate_series(1, 20)")
    signal(postgres, "execute-snapshot", data_collections=["public.t"])
    signal(postgres, "pause-snapshot")
    run_sql(postgres, "insert into signals values ('bad', 'execute-snapshot', 'no json'), ('none', null, null)")
    run_sql(postgres, "insert into t values (100)")
    captured.run(lambda each: ("c", 100) in each.rows("t", "id"))
    assert captured.offset is not None
    assert captured.offset["incremental_snapshot"]["is_paused"] is True
    read = captured.rows("t", "id")
    signal(postgres, "resume-snapshot")
    captured.run(is_finished)
    assert len([each for each in captured.rows("t", "id") if each[0] == "r"]) >= 20 > len(read) - 1
    signal(postgres, "pause-snapshot")
    signal(postgres, "execute-snapshot", data_collections=["public.t"])
    signal(postgres, "stop-snapshot", data_collections=["public.t"])
    run_sql(postgres, "insert into t values (101)")
    captured.run(lambda each: ("c", 101) in each.rows("t", "id"))
    assert is_finished(captured)


@pytest.mark.parametrize("seed", [1, 2])
def test_the_last_event_of_each_key_is_the_rows_last_value(postgres: str, seed: int) -> None:
    captured = begun(
        postgres,
        "create table t (id int primary key, n int)",
        "insert into t select n, 0 from generate_series(1, 100) n",
    )
    stop = threading.Event()

    def write() -> None:
        choice = random.Random(seed)
        with psycopg.connect(postgres, autocommit=True) as connection:
            number = 0
            while not stop.is_set():
                number += 1
                key = choice.randint(1, 110)
                if choice.random() < 0.3:
                    connection.execute("delete from t where id = %s", (key,))
                else:
                    connection.execute(
                        "insert into t values (%s, %s) on conflict (id) do update set n = excluded.n", (key, number)
                    )

    writer = threading.Thread(target=write)
    writer.start()
    try:
        signal(postgres, "execute-snapshot", data_collections=["public.t"])
        captured.run(is_finished)
    finally:
        stop.set()
        writer.join()
    run_sql(postgres, "insert into t values (1000, 1)")
    captured.run(lambda each: ("c", 1000) in each.rows("t", "id"))
    with psycopg.connect(postgres) as connection:
        assert folded(captured) == dict(connection.execute("select id, n from t").fetchall())


def folded(captured: Captured) -> dict[int, int]:
    """Return the rows of the table `t` that its events make."""
    state: dict[int, int] = {}
    for each in captured.of("t"):
        if each.value is None:
            state.pop(each.key["id"], None)
        elif each.value["after"] is not None:
            state[each.key["id"]] = each.value["after"]["n"]
    return state


def test_rows_that_the_stream_has_changed_since_their_chunk_was_read_are_left_out(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    captured = begun(
        postgres,
        "create table t (id int primary key, n int)",
        "insert into t select n, 0 from generate_series(1, 6) n",
    )
    read_chunk = IncrementalSnapshots._chunk_of

    def read_and_write(snapshots: IncrementalSnapshots, *given: Any) -> Any:
        """Read a chunk, and have the stream come past newer changes of its rows before it is written."""
        chunk = read_chunk(snapshots, *given)
        run_sql(postgres, "update t set n = 1 where id = 2", "delete from t where id = 3")
        run_sql(
            postgres, "update t set id = 50 where id = 5", "delete from t where id = 6", "insert into t values (6, 2)"
        )
        with psycopg.connect(postgres, autocommit=True) as connection:
            ((end,),) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchall()
            connection.execute("insert into t values (100, 0)")
        return replace(chunk, end_lsn=lsn_of(end))

    monkeypatch.setattr(IncrementalSnapshots, "_chunk_of", read_and_write)
    signal(postgres, "execute-snapshot", data_collections=["public.t"])
    captured.run(is_finished_with_chunks)
    assert folded(captured) == {1: 0, 2: 1, 4: 0, 6: 2, 50: 0, 100: 0}
    assert [each for each in captured.rows("t", "id") if each[0] == "r"] == [("r", 1), ("r", 4)]


def test_transactions_that_a_snapshot_sees() -> None:
    seen = SeenTransactions.of("10:20:12,15")
    assert [xid for xid in range(10, 22) if seen.sees(xid)] == [10, 11, 13, 14, 16, 17, 18, 19]
    wrapped = SeenTransactions.of(f"{2**32 + 5}:{2**32 + 5}:")
    assert wrapped.sees(2**32 - 3)
    assert wrapped.sees(4)
    assert not wrapped.sees(5)
