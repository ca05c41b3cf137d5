"""Sinks into PostgreSQL, SQLite and DuckDB: rows, types, tables that follow the records."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from tests.connect.sql_targets import Target, batch, record, server, target

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed
from strandline.connect.paths import PathRules
from strandline.connect.records import TopicPosition
from strandline.connect.schema import (
    BOOLEAN,
    BYTES,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_STRING,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectType,
    Schema,
    array,
    decimal_schema,
    struct,
)
from strandline.connect.sink import RecordList
from strandline.connect.sinks.sql.rows import RowMaker
from strandline.connect.sinks.sql.settings import SqlSinkConfig
from strandline.connect.tasks.tolerance import TASK_PUT, BadRecord

__all__ = ["server", "target"]


def test_the_last_value_of_a_key_is_its_row(target: Target) -> None:
    sink = target.sink()
    sink.write(batch((1, {"name": "a"}), (2, {"name": "b"}), (1, {"name": "c"})))
    sink.write(batch((2, {"name": "d"}), (3, {"name": "ü 😀 'quoted' \\ %s"}), start=3))
    assert target.query("select id, name from orders order by id") == [(1, "c"), (2, "d"), (3, "ü 😀 'quoted' \\ %s")]
    assert target.offset() == 5


def test_a_tombstone_deletes_the_row(target: Target) -> None:
    sink = target.sink()
    sink.write(batch((1, {"n": 1}), (2, {"n": 2}), (3, {"n": 3})))
    sink.write(batch((1, None), (2, None), (2, {"n": 20}), (3, {"n": 30}), (3, None), (9, None), start=3))
    assert target.query("select id, n from orders order by id") == [(2, 20)]
    assert target.offset() == 9


def test_keys_of_several_fields(target: Target) -> None:
    sink = target.sink()
    sink.write(batch(({"a": 1, "b": "x"}, {"n": 1}), ({"a": 1, "b": "y"}, {"n": 2}), ({"a": 1, "b": "x"}, {"n": 3})))
    sink.write(batch(({"a": 1, "b": "y"}, None), start=3))
    assert target.query("select a, b, n from orders") == [(1, "x", 3)]


def test_a_primitive_key_and_value_have_columns_of_their_own(target: Target) -> None:
    sink = target.sink(pk_fields="code")
    sink.write(batch(("k", "text"), ("l", "other"), ("k", None)))
    assert target.query("select code, value from orders") == [("l", "other")]


def test_other_modes_of_the_primary_key(target: Target) -> None:
    by_place = target.sink(pk_mode="kafka", table_name_format="placed")
    by_place.write(batch((None, {"n": 5}), (None, {"n": 5})))
    assert target.query("select __connect_topic, __connect_partition, __connect_offset, n from placed order by 3") == [
        ("orders", 0, 0, 5),
        ("orders", 0, 1, 5),
    ]
    appended = target.sink(name="more", pk_mode="none", insert_mode="insert", table_name_format="appended")
    appended.write(batch((1, {"n": 5}), (1, {"n": 5})))
    assert target.query("select n from appended") == [(5,), (5,)]
    by_value = target.sink(name="third", pk_mode="record_value", pk_fields="n", table_name_format="valued")
    by_value.write(batch((None, {"n": 1, "m": 1}), (None, {"n": 1, "m": 2})))
    assert target.query("select n, m from valued") == [(1, 2)]


def test_update_changes_rows_that_exist_and_insert_refuses_a_second_one(target: Target) -> None:
    target.sink().write(batch((1, {"n": 1}), (2, {"n": 2})))
    target.sink(name="changes", insert_mode="update").write(batch((1, {"n": 10}), (7, {"n": 70})))
    assert target.query("select id, n from orders order by id") == [(1, 10), (2, 2)]
    inserting = target.sink(name="inserts", insert_mode="insert")
    inserting.write(batch((3, {"n": 3}), (3, None), (3, {"n": 33})))
    assert target.query("select id, n from orders where id = 3") == [(3, 33)]
    with pytest.raises(RecordFailed, match="orders-0 at offset 3 is refused by") as failure:
        inserting.write(batch((3, {"n": 4}), start=3))
    assert failure.value.record is not None
    assert target.offset(connector="inserts") == 3


def test_columns_come_and_go(target: Target) -> None:
    sink = target.sink()
    sink.write(batch((1, {"a": 1})))
    sink.write(batch((1, {"a": 1, "b": "new", "c": None}), (2, {"b": "only"}), start=1))
    sink.write(batch((1, {"a": 2}), start=3))
    assert target.query("select id, a, b from orders order by id") == [(1, 2, None), (2, None, "only")]
    other = target.sink(name="second", resume=[TopicPosition("orders", 1)])
    other.write(RecordList([record(0, 5, {"c": 1.5})]))
    assert target.query("select id, c from orders where id = 5") == [(5, 1.5)]


def test_values_without_a_schema_widen_their_column(target: Target) -> None:
    sink = target.sink()
    sink.write(batch((1, {"n": 1, "flag": True, "big": 2**62, "doc": {"b": [1], "a": None}})))
    sink.write(batch((2, {"n": 1.5, "flag": False, "big": 0.5, "doc": [1, "x"]}), start=1))
    assert target.query("select n, flag from orders order by id") == [(1, True), (1.5, False)]
    docs = [json.loads(each) if isinstance(each, str) else each for (each,) in target.query("select doc from orders")]
    assert docs == [{"a": None, "b": [1]}, [1, "x"]]
    # A double would round 2**62 + 1; so the column holds more.
    assert [str(each) for (each,) in target.query("select big from orders order by id")] == [str(2**62), "0.5"]
    sink.write(batch((3, {"n": "012", "flag": "maybe", "big": 2**70}), start=2))
    assert target.query("select n, flag from orders order by id") == [("1", "true"), ("1.5", "false"), ("012", "maybe")]
    assert target.query("select cast(big as varchar(30)) from orders where id = 3") == [(str(2**70),)]


SCHEMA = struct(
    {
        "small": Schema(ConnectType.INT8),
        "whole": INT32,
        "long": INT64,
        "real": Schema(ConnectType.FLOAT32),
        "double": FLOAT64,
        "flag": BOOLEAN,
        "text": OPTIONAL_STRING,
        "data": BYTES,
        "price": decimal_schema(4),
        "day": DATE_SCHEMA,
        "at": TIME_SCHEMA,
        "moment": TIMESTAMP_SCHEMA,
        "tags": array(STRING),
        "inner": struct({"x": INT32, "b": BYTES}),
    }
)
VALUE: dict[str, Any] = {
    "small": -7,
    "whole": 2**31 - 1,
    "long": -(2**63),
    "real": 0.1,
    "double": 1e300,
    "flag": True,
    "text": None,
    "data": b"\0\xff'",
    "price": Decimal("12345678901234567890.1200"),
    "day": date(1969, 2, 28),
    "at": time(23, 59, 59, 123456),
    "moment": datetime(2026, 11, 18, 12, 0, 0, 654321, tzinfo=UTC),
    "tags": ["ä", '"'],
    "inner": {"x": 1, "b": b"\1"},
}


def test_types_of_a_schema_round_trip(target: Target) -> None:
    sink = target.sink()
    written = record(0, "k", VALUE, key_schema=STRING, value_schema=SCHEMA)
    sink.write(RecordList([written]))
    expected = sink.expected(written)
    assert sink.digests([expected.key]) == {expected.key: expected.digest}
    (row,) = target.query("select whole, long, double, data, text from orders")
    assert row == (2**31 - 1, -(2**63), 1e300, b"\0\xff'", None)
    if target.kind == "postgres":
        (row,) = target.query('select price, day, at, moment, tags, pg_typeof(price)::text, "inner" from orders')
        assert row == (
            *[VALUE[each] for each in ("price", "day", "at", "moment", "tags")],
            "numeric",
            {"x": 1, "b": "AQ=="},
        )
    changed = record(1, "k", VALUE | {"moment": VALUE["moment"].replace(microsecond=1)}, value_schema=SCHEMA)
    assert sink.expected(changed).digest != expected.digest


def test_odd_names(target: Target) -> None:
    topic = 'a.b"c %s; drop table x'
    odd = {'x"y': 1, "select": 2, "ü ": 3, "a.b": 4, "100%": 5}
    sink = target.sink(resume=[TopicPosition(topic, 0)])
    sink.write(batch(("k", odd), ("l", odd), topic=topic))
    sink.write(batch(("l", None), start=2, topic=topic))
    quoted = topic.replace('"', '""')
    assert target.query(f'select id, "x""y", "select", "ü ", "a.b", "100%" from "{quoted}"') == [("k", 1, 2, 3, 4, 5)]


def test_texts_arrive_as_they_are(target: Target) -> None:
    texts = ["", "\x01", "\x02", "a\x01b\x02", "NULL", "\\N", "{}", "\n\t", "\U0010ffff"]
    sink = target.sink()
    sink.write(batch(("", {"t": ""})))
    assert target.query("select id, t from orders") == [("", "")]
    sink.write(batch(*((each, {"t": each, "u": None}) for each in texts), ("k", {"t": None, "u": ""}), start=1))
    sink.write(batch(("\x02", {"t": None, "u": "\x02"}), start=20))
    expected = {(each, each, None) for each in texts if each != "\x02"} | {("k", None, ""), ("\x02", None, "\x02")}
    assert set(target.query("select id, t, u from orders")) == expected


def test_half_of_a_surrogate_pair_is_refused(target: Target) -> None:
    sink = target.sink()
    with pytest.raises(RecordFailed, match="orders-0 at offset 0 has a field that cannot be a column"):
        sink.write(batch((1, {"\ud800": 1})))
    for value in ({"t": "\ud800"}, {"t": {"x": "\ud800"}}):
        with pytest.raises(RecordFailed, match=r"orders-0 at offset 0 is refused by .*'\\ud800'"):
            sink.write(batch((1, value)))
    sink.write(batch((1, {"t": "fine"})))
    assert target.query("select t from orders") == [("fine",)]


def test_names_that_would_collide_are_refused(target: Target) -> None:
    sink = target.sink()
    sink.write(batch((1, {"a": 1})))
    if target.kind == "postgres":
        sink.write(batch((2, {"a": 1, "A": 2}), start=1))
        assert target.query('select a, "A" from orders where id = 2') == [(1, 2)]
        with pytest.raises(RecordFailed, match="has 64 bytes, and PostgreSQL takes 63"):
            sink.write(batch((3, {"c" * 64: 1}), start=2))
        with pytest.raises(RecordFailed, match=r"orders-0 at offset 2 has no table: the name t{64} has 64 bytes"):
            target.sink(table_name_format="t" * 64).write(batch((3, {"a": 1}), start=2))
    else:
        with pytest.raises(
            RecordFailed, match="orders-0 at offset 1 has the fields a and A, which are one column here"
        ):
            sink.write(batch((2, {"a": 1, "A": 2}), start=1))
        with pytest.raises(ConnectFailed, match="orders and Orders are one table"):
            sink.write(batch((2, {"a": 1}), topic="Orders"))
    with pytest.raises(RecordFailed, match="a field whose name no column can have: ''"):
        sink.write(batch((3, {"": 1}), start=2))


def test_a_table_that_is_not_the_sinks(target: Target) -> None:
    target.query(
        "create table orders (id varchar(10) primary key, n int not null, moment timestamp,"
        " note varchar(20) default 'mine')"
    )
    sink = target.sink()
    sink.write(batch(("a", {"n": 1, "moment": "2026-01-02T03:04:05Z"}), ("b", {"n": 2, "note": "theirs"})))
    sink.write(batch(("b", {"n": 3}), start=2))
    assert target.query("select id, n, note from orders order by id") == [("a", 1, "mine"), ("b", 3, "theirs")]
    assert target.query("select id from orders where cast(moment as varchar(30)) like '2026-01-02%03:04:05%'") == [
        ("a",)
    ]
    with pytest.raises(RecordFailed, match="orders-0 at offset 4 has no n, and the column of orders is NOT NULL"):
        sink.write(batch(("c", {"n": 1}), ("d", {}), start=3))
    with pytest.raises(RecordFailed, match="has 'soon' in moment, which does not fit the column's type"):
        sink.write(batch(("e", {"n": 1, "moment": "soon"}), start=3))
    assert target.offset() == 3


def test_whitelisted_fields_leave_other_columns_alone(target: Target) -> None:
    target.sink().write(batch((1, {"a": 1, "b": 2})))
    target.sink(name="half", fields_whitelist="a").write(batch((1, {"a": 10, "b": 20}), (2, {"a": 5, "b": 6})))
    assert target.query("select id, a, b from orders order by id") == [(1, 10, 2), (2, 5, None)]


def test_a_table_that_is_dropped_or_altered_meanwhile_is_read_again(target: Target) -> None:
    sink = target.sink()
    sink.write(batch((1, {"a": 1, "b": 1})))
    target.query("alter table orders drop column b")
    sink.write(batch((2, {"a": 2, "b": 2}), start=1))
    assert target.query("select id, a, b from orders order by id") == [(1, 1, None), (2, 2, 2)]
    target.query("drop table orders")
    sink.write(batch((3, {"a": 3, "b": 3}), start=2))
    assert target.query("select id, a, b from orders") == [(3, 3, 3)]


def test_without_leave_no_table_is_made_or_changed(target: Target) -> None:
    with pytest.raises(ConnectFailed, match=r"there is no table orders, and auto\.create is false"):
        target.sink(auto_create="false").write(batch((1, {"a": 1})))
    target.query("create table orders (id bigint primary key, a smallint)")
    sink = target.sink(auto_evolve="false")
    sink.write(batch((1, {"a": 1})))
    with pytest.raises(RecordFailed, match="orders-0 at offset 1 needs another column or type for b in orders"):
        sink.write(batch((2, {"b": 1}), start=1))
    with pytest.raises(RecordFailed, match="needs another column or type for a"):
        sink.write(batch((2, {"a": 40000}), start=1))


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        (record(4, None, {"a": 1}), "orders-0 at offset 4 has no key"),
        (record(4, {"id": None}, {"a": 1}), "has no id in its key"),
        (record(4, {}, {"a": 1}), "has a key without fields"),
        (record(4, 1, {"a": {"nan": float("nan")}}), "in a, which does not fit the column's type jsonb"),
        (record(4, 1, {"a": object()}), "which no column can hold"),
    ],
)
def test_a_bad_record_is_named(server: Target, bad: Any, words: str) -> None:
    with pytest.raises(RecordFailed, match=words) as failure:
        server.sink().write(RecordList([record(3, 1, {"b": 1}), bad]))
    assert failure.value.record is bad
    assert server.offset() is None


def test_what_only_the_server_refuses_is_found_by_writing_alone(server: Target) -> None:
    sink = server.sink()
    with pytest.raises(RecordFailed) as failure:
        sink.write(batch((1, {"a": "fine"}), (2, {"a": "zero \0 byte"})))
    assert failure.value.record is None
    sink.write(batch((1, {"a": "fine"})))
    with pytest.raises(RecordFailed, match="orders-0 at offset 1 is refused by PostgreSQL") as failure:
        sink.write(batch((2, {"a": "zero \0 byte"}), start=1))
    assert failure.value.record is not None
    assert server.offset() == 1


def test_own_types_arrays_and_schemas_of_postgres(server: Target) -> None:
    server.query("create schema \"sales\"; create type mood as enum ('ok', 'sad')")
    server.query(
        "create table sales.orders (id uuid primary key, m mood, tags text[], c char(3), n numeric(6,2),"
        " made timestamptz default now(), twice int generated always as (2) stored)"
    )
    sink = server.sink(table_name_format="sales.${topic}")
    key = "6f9619ff-8b86-d011-b42d-00cf4fc964ff"
    sink.write(batch((key, {"m": "sad", "tags": ['a"\\', None, "b,c"], "c": "x", "n": "1.255"})))
    assert server.query("select m, tags, c, n, twice, made is not null from sales.orders") == [
        ("sad", ['a"\\', None, "b,c"], "x  ", Decimal("1.26"), 2, True)
    ]
    with pytest.raises(RecordFailed, match='refused by PostgreSQL: invalid input value for enum mood: "great"'):
        sink.write(batch((key, {"m": "great"}), start=1))
    # Too long a text is refused, not cut off.
    with pytest.raises(RecordFailed, match="value too long for type character"):
        sink.write(batch((key, {"c": "long"}), start=1))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"pk_mode": "none"}, "pk.mode: insert.mode=upsert needs a primary key"),
        ({"pk_mode": "kafka", "pk_fields": "a,b"}, "pk.fields: pk.mode=kafka takes three names"),
        ({"pk_mode": "record_value", "delete_enabled": "true"}, "delete.enabled: deletes need pk.mode=record_key"),
        ({"table_name_format": "a.b.c"}, "Not the name of a table"),
        ({"insert_mode": "replace"}, "String must be one of: insert, upsert, update"),
    ],
)
def test_settings_that_make_no_sense(settings: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidConnectorConfig, match=words):
        Target("sqlite", "unused").unopened(**settings)


def test_only_files_that_the_worker_allows_are_opened(tmp_path: Path) -> None:
    for kind in ("sqlite", "duckdb"):
        sink = Target(kind, str(tmp_path / "target.db")).unopened()
        sink.paths = PathRules([tmp_path / "elsewhere"])
        with pytest.raises(InvalidConnectorConfig, match=r"allowed\.paths"):
            sink.open()
    sink = Target("postgres", f"host=x sslkey={tmp_path}/key").unopened()
    sink.paths = PathRules([])
    with pytest.raises(InvalidConnectorConfig, match=r"allowed\.paths"):
        sink.open()


@pytest.mark.parametrize(
    "said", ["t-0 at offset 3 has no key", "the value of t-0 at offset 3 is no object", "too long"]
)
def test_a_failed_record_is_named_once(said: str) -> None:
    assert str(BadRecord(TASK_PUT, "t-0 at offset 3", RecordFailed(said))).count("t-0 at offset 3") == 1


def test_records_that_are_rows_as_they_stand_are_made_rows_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whole batches are looked at first, and records by themselves where something is unusual."""
    given = {"name": "t", "connection.url": "postgresql://", "pk.mode": "record_value", "pk.fields": "id"}
    maker = RowMaker(SqlSinkConfig(given))
    schema = struct({"id": INT64, "name": STRING, "note": OPTIONAL_STRING})
    whole = [{"id": each, "name": f"name {each}", "note": None} for each in range(20)]
    placeholder = "__debezium_unavailable_value"
    cases = [
        whole,
        [*whole, whole[3]],
        [*whole, {"id": 77, "name": placeholder, "note": "here"}],
        [*whole, {"id": True, "name": "a boolean is no number", "note": None}],
        [*whole, {"id": 78, "name": "without a note"}],
    ]
    for known in (schema, None):
        for values in cases:
            records = [record(offset, None, each, value_schema=known) for offset, each in enumerate(values)]
            (plain,) = maker.tables(records)
            with monkeypatch.context() as patched:
                patched.setattr(RowMaker, "_plain", lambda self, records: None)
                (alone,) = maker.tables(records)
            assert plain == alone
    missing = [record(0, None, {"id": 1, "name": "a"}), record(1, None, {"name": "b"})]
    with pytest.raises(RecordFailed, match="has no id in its value"):
        maker.tables(missing)


def test_numbers_arrive_as_they_are(target: Target) -> None:
    """Also those at the ends of their types, beside nulls and without."""
    schema = struct({"id": INT64, "small": replace(INT32, optional=True), "number": replace(FLOAT64, optional=True)})
    floats = [0.1, -0.0, 1e308, 5e-324, float("inf"), 1 / 3]
    whole = [2**31 - 1, -(2**31), 0, 1, -1, 7]
    sink = target.sink(pk_mode="record_value", pk_fields="id")
    ids = [2**63 - 1, -(2**63), 0, 1, -1, 5]
    values = [{"id": id_, "small": n, "number": f} for id_, n, f in zip(ids, whole, floats, strict=True)]
    sink.write(RecordList(record(offset, None, each, value_schema=schema) for offset, each in enumerate(values)))
    with_nulls = [{**each, "small": None} if at % 2 else {**each, "number": None} for at, each in enumerate(values)]
    found = target.query("select id, small, number from orders order by id")
    assert found == sorted((each["id"], each["small"], each["number"]) for each in values)
    sink.write(RecordList(record(9 + at, None, each, value_schema=schema) for at, each in enumerate(with_nulls)))
    found = target.query("select id, small, number from orders order by id")
    assert found == sorted((each["id"], each["small"], each["number"]) for each in with_nulls)
