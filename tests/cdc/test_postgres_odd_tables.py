"""Tables and clocks that are not as a source would like them: no key, other names, unknown types, a jumping clock."""

from __future__ import annotations

import asyncio
from functools import partial

import pytest
from tests.cdc.postgres_capture import Captured, holds, postgres, run_sql

from strandline.cdc.events import EventMaker
from strandline.cdc.postgres import source as source_module

__all__ = ["postgres"]


def is_snapshot_done(captured: Captured) -> bool:
    return captured.offset is not None and "snapshot" not in captured.offset


def test_a_table_without_a_key_has_events_without_keys_and_no_tombstones(postgres: str) -> None:
    run_sql(postgres, "create table t (v text)", "alter table t replica identity full", "insert into t values ('a')")
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    run_sql(
        postgres,
        "insert into t values ('a'), (null)",
        "update t set v = 'b' where v = 'a'",
        "delete from t where v is null",
    )
    captured.run(holds(6))
    assert {each.key for each in captured.records} == {None}
    assert {each.key_schema for each in captured.records} == {None}
    assert [(each.value["op"], each.value["before"], each.value["after"]) for each in captured.records] == [
        ("r", None, {"v": "a"}),
        ("c", None, {"v": "a"}),
        ("c", None, {"v": None}),
        ("u", {"v": "a"}, {"v": "b"}),
        ("u", {"v": "a"}, {"v": "b"}),
        ("d", {"v": None}, None),
    ]


def test_renamed_columns_and_tables_have_their_new_names_from_then_on(postgres: str) -> None:
    run_sql(postgres, "create table t (id int primary key, v text)", "insert into t values (1, 'one')")
    captured = Captured(postgres)
    captured.run(is_snapshot_done)
    # The changes are read after all of it has happened: each has the names of its own time.
    run_sql(
        postgres,
        "insert into t values (2, 'two')",
        "alter table t rename v to w",
        "insert into t values (3, 'three')",
        "alter table t rename id to number",
        "update t set w = 'new' where number = 3",
        'alter table t rename to "odd name"',
        'delete from "odd name" where number = 2',
    )
    captured.run(holds(6))
    found = [(each.topic, each.key, each.value and each.value["after"]) for each in captured.records[1:]]
    assert found == [
        ("db.public.t", {"id": 2}, {"id": 2, "v": "two"}),
        ("db.public.t", {"id": 3}, {"id": 3, "w": "three"}),
        ("db.public.t", {"number": 3}, {"number": 3, "w": "new"}),
        ("db.public.odd_name", {"number": 2}, None),
        ("db.public.odd_name", {"number": 2}, None),
    ]


@pytest.mark.parametrize("is_included", [False, True])
def test_a_type_without_a_mapping_is_left_out_or_comes_as_bytes(postgres: str, is_included: bool) -> None:
    run_sql(
        postgres,
        "create type pair as (a int, b text)",
        "create table t (id int primary key, p pair, v text)",
        "insert into t values (1, row(1, 'x'), 'one')",
    )
    captured = Captured(postgres, include_unknown_datatypes=str(is_included).lower())
    captured.run(is_snapshot_done)
    # A type that did not exist when the source was started.
    run_sql(
        postgres,
        "create type later as (c int)",
        "alter table t add l later",
        "insert into t values (2, null, 'two', row(2))",
    )
    captured.run(holds(2))
    expected = [{"id": 1, "v": "one"}, {"id": 2, "v": "two"}]
    if is_included:
        expected = [{"id": 1, "p": b"(1,x)", "v": "one"}, {"id": 2, "p": None, "v": "two", "l": b"(2)"}]
    assert [each.value["after"] for each in captured.records] == expected


def test_a_clock_that_jumps_changes_nothing_but_the_times_of_events(
    postgres: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_sql(postgres, "create table t (id int primary key)")
    captured = Captured(postgres, heartbeat_interval_ms="1")
    captured.run(is_snapshot_done)
    clock = iter([2_000_000_000, 1, 3_000_000_000, -5])
    now_s = next(clock)

    monkeypatch.setattr(source_module, "EventMaker", partial(EventMaker, clock_ns=lambda: now_s * 10**9))
    source = captured.source()
    source.open()
    batches = source.read(captured)
    for number in range(4):
        run_sql(postgres, f"insert into t values ({number})")
        while len(captured.of("t")) <= number:
            batch = next(batches)
            captured.commit(batch)
            asyncio.run(source.committed([*batch.positions()]))
        now_s = next(clock, now_s)
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    source.close()
    found = [each.value for each in captured.of("t")]
    assert [each["after"]["id"] for each in found] == [0, 1, 2, 3]
    assert [each["ts_ms"] for each in found] == [2_000_000_000_000, 1000, 3_000_000_000_000, -5000]
    # Those of the source are PostgreSQL's.
    assert [each["source"]["ts_ms"] for each in found] == sorted(each["source"]["ts_ms"] for each in found)
    run_sql(postgres, "insert into t values (4)")
    captured.run(lambda all_of: len(all_of.of("t")) == 5)
    assert captured.rows("t", "id")[-1] == ("c", 4)
