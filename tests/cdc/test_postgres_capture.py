"""PostgresCdcSource on a real server: snapshot, stream and kills between any two steps."""

from __future__ import annotations

import json
import threading

import psycopg
import pytest
from tests.cdc.postgres_capture import Captured, holds, postgres, run_sql
from tests.connect.running import wait_until

from strandline.connect.convert.json_converter import JsonConverter

__all__ = ["postgres"]


def is_snapshot_done(captured: Captured) -> bool:
    return captured.offset is not None and "snapshot" not in captured.offset


def confirmed(dsn: str) -> int:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(
            "select (confirmed_flush_lsn - '0/0')::bigint from pg_replication_slots where database = current_database()"
        ).fetchone()
    assert row is not None
    return int(row[0])


def test_rows_of_a_snapshot_are_marked_and_the_stream_follows(postgres: str) -> None:
    run_sql(
        postgres,
        "create table a (id int primary key, name text)",
        "create table b (id int primary key)",
        "create table empty (id int)",
        "insert into a select n, 'name ' || n from generate_series(1, 5) n",
        "insert into b values (1), (2)",
    )
    captured = Captured(postgres, max_batch_size="2")
    captured.run(is_snapshot_done)
    markers = [each.value["source"]["snapshot"] for each in captured.records]
    assert markers == ["first", "true", "true", "true", "last_in_data_collection", "first_in_data_collection", "last"]
    assert {each.value["op"] for each in captured.records} == {"r"}
    run_sql(
        postgres, "insert into a values (6, 'ä\t\\')", "update a set id = 7 where id = 6", "delete from b where id = 1"
    )
    captured.run(holds(13))
    streamed = captured.records[7:]
    assert [None if each.value is None else each.value["op"] for each in streamed] == ["c", "d", None, "c", "d", None]
    assert streamed[0].value["after"] == {"id": 6, "name": "ä\t\\"}
    assert streamed[4].value["before"] == {"id": 1}
    assert streamed[4].key == {"id": 1}


def test_each_change_comes_once_whenever_it_is_killed(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)", "insert into t select generate_series(1, 3)")
    captured = Captured(postgres, max_batch_size="4")
    captured.run(is_snapshot_done)
    for number in range(10, 20):
        run_sql(postgres, f"insert into t values ({number})")
    run_sql(postgres, "insert into t select generate_series(100, 109)")
    expected = [1, 2, 3, *range(10, 20), *range(100, 110)]
    while len(captured.records) < len(expected):
        # Read and lost, committed and not confirmed, committed and confirmed.
        before = len(captured.records), captured.offset
        captured.run(holds(len(expected)), batches_max=1, confirms=False)
        captured.records[before[0] :], captured.offset = [], before[1]
        captured.run(holds(len(expected)), batches_max=1, confirms=False)
        captured.run(holds(len(expected)), batches_max=3)
    assert [key for _, key in captured.rows("t", "id")] == expected
    sizes = [len(each) for each in captured.transactions]
    assert 10 in sizes
    """The transaction of ten rows is whole, though a batch has four."""


def test_writes_during_a_snapshot_are_neither_lost_nor_doubled(postgres: str) -> None:
    run_sql(
        postgres, "create table t (id serial primary key, n int)", "insert into t (n) select generate_series(1, 500)"
    )
    captured = Captured(postgres, max_batch_size="50")
    stop = threading.Event()
    written = [500]

    def write() -> None:
        with psycopg.connect(postgres, autocommit=True) as connection:
            while not stop.is_set():
                connection.execute("insert into t (n) values (0)")
                written[0] += 1

    writer = threading.Thread(target=write)
    writer.start()
    try:
        captured.run(is_snapshot_done)
    finally:
        stop.set()
        writer.join()
    captured.run(holds(written[0]))
    assert sorted(key for _, key in captured.rows("t", "id")) == list(range(1, written[0] + 1))


def test_a_snapshot_that_was_killed_starts_over_with_the_same_slot(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)", "insert into t select generate_series(1, 10)")
    captured = Captured(postgres, max_batch_size="3")
    captured.run(is_snapshot_done, batches_max=2)
    assert captured.offset is not None
    assert captured.offset["snapshot_completed"] is False
    run_sql(postgres, "delete from t where id = 1")
    captured.records.clear()
    captured.run(is_snapshot_done)
    assert captured.rows("t", "id") == [("d", 1), *(("r", number) for number in range(2, 11))]
    run_sql(postgres, "insert into t values (11)")
    captured.run(holds(12))
    assert captured.rows("t", "id")[10:] == [("c", 11)]


def test_a_large_transaction_is_cut_and_closed_and_small_ones_share_a_batch(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)")
    captured = Captured(postgres, snapshot_mode="no_data", max_batch_size="100")
    captured.run(is_snapshot_done)
    run_sql(
        postgres,
        *(f"insert into t values ({number})" for number in range(20)),
        "insert into t select generate_series(1000, 1999)",
        "insert into t values (2000)",
    )
    captured.batches = 0
    captured.run(holds(1021))
    assert [key for _, key in captured.rows("t", "id")] == [*range(20), *range(1000, 2001)]
    assert len({each.value["source"]["txId"] for each in captured.transactions[0]}) >= 1
    assert max(len(each) for each in captured.transactions) >= 1000
    assert captured.batches < 22


def test_the_slot_is_confirmed_only_behind_the_commit(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)")
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    begin = confirmed(postgres)
    run_sql(postgres, "insert into t values (1)")
    captured.run(holds(1), confirms=False)
    assert captured.offset is not None
    assert confirmed(postgres) == begin < captured.offset["lsn"]
    run_sql(postgres, "insert into t values (2)")
    captured.run(holds(2))
    assert captured.rows("t", "id") == [("c", 1), ("c", 2)]
    wait_until(lambda: captured.offset is not None and confirmed(postgres) == captured.offset["lsn"], "it is confirmed")


def test_a_transaction_that_began_before_the_position_and_commits_behind_it_is_not_lost(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)")
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    with psycopg.connect(postgres) as slow:
        slow.execute("insert into t values (1)")
        run_sql(postgres, "insert into t values (2)")
        captured.run(holds(1))
        slow.execute("insert into t values (3)")
    captured.run(holds(3))
    assert captured.rows("t", "id") == [("c", 2), ("c", 1), ("c", 3)]


def test_an_idle_table_does_not_hold_the_wal(postgres: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.cdc.postgres.source.IDLE_POSITION_S", 0.1)
    run_sql(postgres, "create table t (id int primary key)", "create table other (id int)")
    captured = Captured(postgres, table_include_list="public.t")
    captured.run(is_snapshot_done)
    assert captured.offset is not None
    begin = captured.offset["lsn"]
    run_sql(postgres, "insert into other select generate_series(1, 1000)")
    captured.run(lambda each: each.offset is not None and each.offset["lsn"] > begin + 50_000)
    assert captured.records == []
    wait_until(lambda: captured.offset is not None and confirmed(postgres) == captured.offset["lsn"], "it is confirmed")


def test_heartbeats_and_their_query(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)")
    query = "select pg_logical_emit_message(false, 'heart', 'beat')"
    captured = Captured(postgres, heartbeat_interval_ms="50", heartbeat_action_query=query)
    captured.run(lambda each: {"__debezium-heartbeat.db", "db.message"} <= {record.topic for record in each.records})
    beat = next(each for each in captured.records if each.topic == "__debezium-heartbeat.db")
    assert beat.key == {"serverName": "db"}


def test_keys_identities_and_values_that_were_not_sent(postgres: str) -> None:
    run_sql(
        postgres,
        "create table whole (id int primary key, name text, big text)",
        "alter table whole replica identity full",
        "alter table whole alter big set storage external",
        "create table by_index (a int, b int not null unique)",
        "alter table by_index replica identity using index by_index_b_key",
        "create table keyless (n int)",
        "create table toast (id int primary key, n int, big text)",
        "alter table toast alter big set storage external",
        "create table two (a int, b int, primary key (b, a))",
    )
    captured = Captured(postgres, snapshot_mode="no_data", skipped_operations="none")
    captured.run(is_snapshot_done)
    run_sql(
        postgres,
        "insert into whole values (1, 'a', repeat('x', 10000))",
        "update whole set name = 'b'",
        "insert into by_index values (1, 2)",
        "delete from by_index",
        "insert into keyless values (5)",
        "insert into toast values (1, 1, repeat('y', 10000))",
        "update toast set n = 2",
        "insert into two values (1, 2)",
        "truncate keyless, two",
    )
    captured.run(holds(11))
    created, updated = captured.of("whole")
    assert (created.key, updated.key) == ({"id": 1}, {"id": 1})
    assert updated.value["before"] == {"id": 1, "name": "a", "big": "x" * 10_000}
    assert updated.value["after"] == {"id": 1, "name": "b", "big": "x" * 10_000}
    assert [each.key for each in captured.of("by_index")] == [{"b": 2}] * 3
    assert captured.of("by_index")[1].value["before"] == {"a": None, "b": 2}
    assert [(each.key, each.value["op"]) for each in captured.of("keyless")] == [(None, "c"), (None, "t")]
    assert captured.of("toast")[1].value["after"] == {"id": 1, "n": 2, "big": "__debezium_unavailable_value"}
    assert list(captured.of("two")[0].key) == ["b", "a"]


def test_a_new_shape_of_a_table_comes_with_its_first_row(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key, a int)")
    captured = Captured(postgres, snapshot_mode="no_data")
    captured.run(is_snapshot_done)
    with psycopg.connect(postgres) as connection:
        connection.execute("insert into t values (1, 1)")
        connection.execute("alter table t rename a to b")
        connection.execute("alter table t add c text not null default 'x'")
        connection.execute("insert into t values (2, 2, 'c')")
    run_sql(postgres, "alter table t drop b", "insert into t values (3, 'd')", "create type mood as enum ('ok', 'bad')")
    run_sql(postgres, "create table young (id int primary key, m mood)", "insert into young values (1, 'ok')")
    run_sql(postgres, "insert into young values (2, null)", "update young set m = 'bad'", "delete from t where id = 3")
    run_sql(postgres, "alter table young alter m set not null", "drop table t")
    captured.run(holds(9))
    assert [each.value["after"] for each in captured.of("t")[:3]] == [
        {"id": 1, "a": 1},
        {"id": 2, "b": 2, "c": "c"},
        {"id": 3, "c": "d"},
    ]
    assert captured.of("t")[3].key == {"id": 3}
    assert [each.value["after"]["m"] for each in captured.of("young")] == ["ok", None, "bad", "bad"]


def test_partitions_have_the_topic_of_their_table(postgres: str) -> None:
    run_sql(
        postgres,
        "create table t (id int primary key, n int) partition by range (id)",
        "create table t1 partition of t for values from (0) to (10)",
        "create table t2 partition of t for values from (10) to (20)",
        "insert into t values (1, 1), (11, 1)",
    )
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    run_sql(postgres, "insert into t values (2, 1), (12, 1)", "update t set id = 13 where id = 2")
    captured.run(holds(7))
    assert {each.topic for each in captured.records} == {"db.public.t"}
    assert captured.rows("t", "id") == [("r", 1), ("r", 11), ("c", 2), ("c", 12), ("d", 2), ("c", 13)]


def test_a_filtered_publication_follows_the_list_of_tables(postgres: str) -> None:
    run_sql(
        postgres, 'create table "Odd.Näme" (id int primary key)', "create table b (id int)", "create table c (id int)"
    )
    captured = Captured(postgres, publication_autocreate_mode="filtered", table_include_list=r"public\.(Odd.*|b)")
    captured.run(is_snapshot_done)

    def published() -> list[str]:
        with psycopg.connect(postgres) as connection:
            rows = connection.execute("select tablename::text from pg_publication_tables order by 1").fetchall()
        return [row[0] for row in rows]

    assert published() == ["Odd.Näme", "b"]
    captured.properties["table.include.list"] = "public.Odd.*,public.c"
    run_sql(postgres, 'insert into "Odd.Näme" values (1)')
    captured.run(holds(1))
    assert published() == ["Odd.Näme", "c"]
    run_sql(postgres, "insert into c values (5)", "insert into b values (6)")
    captured.run(holds(2))
    assert [each.topic for each in captured.records] == ["db.public.Odd.N_me", "db.public.c"]


def test_transactions_have_their_own_topic(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)")
    captured = Captured(postgres, snapshot_mode="no_data", provide_transaction_metadata="true")
    captured.run(is_snapshot_done)
    run_sql(postgres, "insert into t values (1), (2)")
    captured.run(holds(4))
    begin, one, two, end = captured.records
    assert (begin.value["status"], end.value["status"], end.value["event_count"]) == ("BEGIN", "END", 2)
    assert begin.value["id"] == end.value["id"] == one.value["transaction"]["id"]
    assert two.value["transaction"]["total_order"] == 2


def test_always_reads_rows_again_and_keeps_deletes_between(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)", "insert into t values (1), (2)")
    captured = Captured(postgres, snapshot_mode="always")
    captured.run(is_snapshot_done)
    run_sql(postgres, "delete from t where id = 1")
    captured.run(holds(5))
    assert captured.rows("t", "id") == [("r", 1), ("r", 2), ("d", 1), ("r", 2)]


def test_initial_only_ends(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key)", "insert into t values (1)")
    captured = Captured(postgres, snapshot_mode="initial_only")
    captured.run(lambda each: False)
    captured.run(lambda each: False)
    assert captured.rows("t", "id") == [("r", 1)]


def test_rows_that_are_deleted_before_a_snapshot_starts_over_are_deleted_in_the_log(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)", "insert into t select generate_series(1, 9)")
    captured = Captured(postgres, max_batch_size="2")
    captured.run(holds(3), batches_max=2)
    assert 1 in [key for _, key in captured.rows("t", "id")]
    # Killed with a part of the changes between the two snapshots, and again within the second one.
    for number in (1, 2):
        run_sql(postgres, f"delete from t where id = {number}", f"update t set v = '{number}' where id = 9")
        run_sql(postgres, f"insert into t values ({10 + number})")
        captured.run(lambda found: False, batches_max=1)
        assert captured.offset is not None
        assert "snapshot" in captured.offset
    captured.run(is_snapshot_done)
    run_sql(postgres, "insert into t values (20)")
    captured.run(lambda found: ("c", 20) in found.rows("t", "id"))
    left = {each.key["id"]: each.value for each in captured.of("t") if each.key is not None}
    assert {key: value["after"]["v"] for key, value in left.items() if value is not None} == {
        **dict.fromkeys((3, 4, 5, 6, 7, 8, 11, 12, 20)),
        9: "2",
    }
    assert left.keys() >= {1, 2}
    changes = [each for each in captured.rows("t", "id") if each[0] in "cud"]
    assert changes == [("d", 1), ("u", 9), ("c", 11), ("d", 2), ("u", 9), ("c", 12), ("c", 20)]


def test_a_new_label_of_an_enum_is_in_the_schema_of_the_first_row_that_has_it(postgres: str) -> None:
    run_sql(
        postgres,
        "create type mood as enum ('sad', 'ok')",
        "create table t (id int primary key, m mood, many mood[])",
        "insert into t values (1, 'ok', '{sad}')",
    )
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    source = captured.source()
    source.open()
    batches = source.read(captured)
    run_sql(postgres, "insert into t values (2, 'sad', null)")
    captured.commit(next(batches))
    # The stream does not describe the table again; a label that is renamed is not in the catalogue either.
    run_sql(postgres, "alter type mood add value 'new'", "insert into t values (3, 'new', '{new}')")
    captured.commit(next(batches))
    run_sql(postgres, "insert into t values (4, 'ok', '{ok}')", "alter type mood rename value 'ok' to 'fine'")
    captured.commit(next(batches))
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    source.close()
    found = captured.of("t")
    assert [(each.value["after"]["m"], each.value["after"]["many"]) for each in found] == [
        ("ok", ["sad"]),
        ("sad", None),
        ("new", ["new"]),
        ("ok", ["ok"]),
    ]
    allowed = [each.value_schema.field("after").schema.field("m").schema.parameters["allowed"] for each in found]
    assert allowed[:3] == ["sad,ok", "sad,ok", "sad,ok,new"]
    assert "ok" in allowed[3].split(",")


def test_a_column_that_is_not_known_is_null_in_json_though_it_has_a_default(postgres: str) -> None:
    run_sql(
        postgres,
        "create table t (id serial primary key, n int not null default 7, at timestamptz not null default now())",
        "insert into t default values",
    )
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    run_sql(postgres, "delete from t")
    captured.run(holds(2))
    record = captured.of("t")[1]
    assert record.value_schema is not None
    converter = JsonConverter(JsonConverter.Config({}), is_key=False)
    data = converter.from_connect(record.topic, record.value_schema, record.value)
    assert data is not None
    found = json.loads(data)
    assert found["payload"]["before"] == {"id": 1, "n": None, "at": None}
    after = {each["field"]: each.get("default") for each in found["schema"]["fields"][1]["fields"]}
    assert after == {"id": 0, "n": 7, "at": "1970-01-01T00:00:00.000000Z"}


def test_a_key_is_a_primary_key_without_what_its_index_includes_or_else_a_unique_one(postgres: str) -> None:
    run_sql(
        postgres,
        "create table a (x int, id int, primary key (id) include (x))",
        "create table b (x int, one int not null, two int not null)",
        "create unique index b_part on b (one) where x > 0",
        "create unique index b_sum on b ((one + two))",
        "create unique index b_null on b (x)",
        "create unique index b_two on b (two, one) include (x)",
        "create table c (x int unique)",
        *(f"alter table {each} replica identity full" for each in "bc"),
    )
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    run_sql(
        postgres,
        "insert into a values (1, 2)",
        "insert into b values (1, 2, 3)",
        "insert into c values (4)",
        "delete from b",
    )
    captured.run(holds(5))
    assert [each.key for each in captured.of("a")] == [{"id": 2}]
    assert [each.key for each in captured.of("b")] == [{"two": 3, "one": 2}] * 3
    assert [each.key for each in captured.of("c")] == [None]
