"""The Iceberg sink commits rows and offsets at once: each record is in the table once, whatever fails."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog import Catalog, load_catalog
from tests.connect.sink_records import PLACE, batch, record
from tests.connect.table_target import (
    POINTS,
    TableTarget,
    build_again,
    compare_with_topic,
    crash_everywhere,
    give_up_a_fresh_target,
    numbered,
    read_again_when_it_changed,
    set_offsets_of,
)

from strandline.connect import schema as connect_schema
from strandline.connect.failures import ConnectFailed, FencedOut, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.records import SinkRecord, TopicPosition
from strandline.connect.sinks.lake.iceberg import IcebergSink

UPSERT = {"upsert": "true", "key.fields": "id"}


def catalog_of(tmp_path: Path) -> Catalog:
    return load_catalog(
        "default", type="sql", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=f"file://{tmp_path}/files"
    )


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    properties = {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": f"file://{tmp_path}/files",
    }
    return TableTarget(IcebergSink, properties)


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_between_any_two_steps_loses_nothing_and_doubles_nothing(
    point: str, target: TableTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = numbered(24)
    assert crash_everywhere(target, records, point, tmp_path, monkeypatch) > 0
    assert sorted(target.rows(), key=lambda row: row["id"]) == [each.value for each in records]


def test_offsets_are_those_of_the_commit_and_survive_other_writers_and_expiry(
    target: TableTarget, tmp_path: Path
) -> None:
    assert target.write(record(0, {"id": 0}), record(1, {"id": 1})) == {PLACE: 2}
    table = catalog_of(tmp_path).load_table("default.orders")
    table.append(pa.table({"id": [100]}))
    table.maintenance.expire_snapshots().by_id(table.snapshots()[0].snapshot_id).commit()
    assert target.sink().resume([PLACE, TopicPosition("orders", 1)]) == {PLACE: 2}
    assert target.sink(name="other").resume([PLACE]) == {}


def test_rows_wait_for_the_interval_or_for_the_buffer(target: TableTarget) -> None:
    sink = target.sink(**{"commit.interval.ms": "1000", "buffer.bytes.max": "5000"})
    clock = [0.0]
    sink.now = lambda: clock[0]
    sink.write(batch(record(0, {"id": 0})))
    assert (sink.flush(), target.rows()) == ({}, [])
    clock[0] = 1.0
    assert (sink.flush(), target.rows()) == ({PLACE: 1}, [{"id": 0}])
    sink.write(batch(record(1, {"id": 1, "text": "x" * 6000})))
    assert sink.flush() == {PLACE: 2}


def test_two_tasks_write_one_table_and_each_keeps_its_offsets(target: TableTarget) -> None:
    other = TopicPosition("orders", 1)
    tasks = [target.sink(), target.sink()]
    for number in range(3):
        for partition, task in enumerate(tasks):
            task.write(batch(record(number, {"id": number * 2 + partition}, partition=partition)))
        for task in tasks:
            task.flush()
    assert target.sink().resume([PLACE, other]) == {PLACE: 3, other: 3}
    assert sorted(each["id"] for each in target.rows()) == list(range(6))


def overtake(sink: Any, *records: SinkRecord, target: TableTarget) -> None:
    """Let another task commit after the sink has looked at the offsets, and before it commits."""
    table = sink._targets["orders"].table
    commit = table.commit

    def overtaken(*given: Any) -> None:
        table.commit = commit
        target.write(*records)
        commit(*given)

    table.commit = overtaken


def test_a_commit_that_another_task_overtakes_is_repeated(target: TableTarget) -> None:
    target.write(record(0, {"id": 0}))
    sink = target.sink()
    sink.write(batch(record(1, {"id": 1})))
    overtake(sink, record(0, {"id": 2}, partition=1), target=target)
    assert sink.flush() == {PLACE: 2}
    assert sorted(each["id"] for each in target.rows()) == [0, 1, 2]


@pytest.mark.parametrize("changes", [{}, UPSERT])
def test_a_task_whose_partition_moved_is_fenced_out(target: TableTarget, changes: dict[str, str]) -> None:
    target.write(record(0, {"id": 0}))
    late = target.sink(**changes)
    late.resume([PLACE])
    late.write(batch(record(1, {"id": 1})))
    overtake(late, record(1, {"id": 1}), record(2, {"id": 2}), target=target)
    with pytest.raises(FencedOut, match="another task writes orders-0"):
        late.flush()
    assert sorted(each["id"] for each in target.rows()) == [0, 1, 2]


def test_a_commit_whose_answer_was_lost_is_not_repeated(target: TableTarget) -> None:
    sink = target.sink()
    sink.write(batch(record(0, {"id": 0})))
    table = sink._targets["orders"].table
    commit = table.commit

    def lost(*given: Any) -> None:
        commit(*given)
        raise RetriableFailure("the answer was lost")

    table.commit = lost
    with pytest.raises(RetriableFailure):
        sink.flush()
    table.commit = commit
    sink.write(batch(record(1, {"id": 1})))
    assert sink.flush() == {PLACE: 2}
    assert sorted(each["id"] for each in target.rows()) == [0, 1]


def test_columns_are_added_and_types_grow(target: TableTarget) -> None:
    narrow = connect_schema.struct({"id": connect_schema.INT32})
    target.write(record(0, {"id": 1}, value_schema=narrow))
    wide = connect_schema.struct(
        {
            "id": connect_schema.INT64,
            "price": connect_schema.decimal_schema(2),
            "at": connect_schema.TIME_SCHEMA,
            "seen": connect_schema.TIMESTAMP_SCHEMA,
            "tags": connect_schema.array(connect_schema.STRING),
        }
    )
    value = {
        "id": 2**40,
        "price": Decimal("1.50"),
        "at": time(1, 2),
        "seen": datetime(2026, 1, 1, tzinfo=UTC),
        "tags": ["ü"],
    }
    target.write(record(1, value, value_schema=wide))
    target.write(record(2, {"inner": {"x": 1}}), record(3, {"inner": {"x": 2, "y": {"z": "q"}}, "empty": {}}))
    rows = {row["id"]: row for row in target.rows()}
    assert rows[1] == {**dict.fromkeys((*value, "inner")), "id": 1}
    assert rows[2**40] == {**value, "inner": None}
    assert {"x": 2, "y": {"z": "q"}} in [row["inner"] for row in target.rows()]


def test_a_record_that_does_not_fit_is_named_and_the_others_are_kept(target: TableTarget) -> None:
    target.write(record(0, {"id": 1}))
    sink = target.sink()
    for bad in ({"id": "text"}, {"id": 1.5}, {"id": [1, "x"]}, {"id": 2**80}):
        poison = record(2, bad)
        with pytest.raises(RecordFailed, match="orders-0 at offset 2") as failed:
            sink.write(batch(record(1, {"new": True, "id": 2}), poison))
        assert failed.value.record is poison
    strict = target.sink(**{"auto.evolve": "false"})
    with pytest.raises(RecordFailed, match=r"auto\.evolve is false"):
        strict.write(batch(record(1, {"id": 2, "new": True})))
    sink.write(batch(record(1, {"id": 2})))
    sink.flush()
    assert target.rows() == [{"id": 2}, {"id": 1}]


def test_tombstones_of_appends_are_left_out_or_marked(target: TableTarget) -> None:
    assert target.write(record(0, {"id": 1}, 1), record(1, None, 1)) == {PLACE: 2}
    assert target.rows() == [{"id": 1}]
    keeping = {"behavior.on.null.values": "write", "key.fields": "id", "table": "kept", "include.metadata": "true"}
    target.write(record(0, {"id": 1}, 1), record(1, None, 1), **keeping)
    assert [(row["id"], row["__deleted"], row["__offset"]) for row in target.rows("kept")] == [
        (1, False, 0),
        (1, True, 1),
    ]


def test_upserts_keep_the_last_row_of_a_key_and_tombstones_delete_it(target: TableTarget) -> None:
    target.write(record(0, {"v": "a"}, 1), record(1, {"v": "b"}, 2), record(2, {"v": "c"}, 1), **UPSERT)
    assert sorted(target.rows(), key=lambda row: row["id"]) == [{"v": "c", "id": 1}, {"v": "b", "id": 2}]
    target.write(record(3, None, 1), record(4, {"v": "d"}, 2), record(5, None, 9), record(6, {"w": 1}, 3), **UPSERT)
    assert sorted(target.rows(), key=lambda row: row["id"]) == [
        {"v": "d", "id": 2, "w": None},
        {"v": None, "id": 3, "w": 1},
    ]
    assert target.write(record(7, None, 2), **UPSERT) == {PLACE: 8}
    assert [row["id"] for row in target.rows()] == [3]
    with pytest.raises(RecordFailed, match="has no id"):
        target.write(record(8, {"v": 1}, None), **UPSERT)


def test_keys_of_two_columns_come_from_the_key_of_the_record(target: TableTarget) -> None:
    both = {"upsert": "true", "key.fields": "a,b"}
    keys = [{"a": number % 3, "b": str(number % 2)} for number in range(12)]
    target.write(*(record(at, {"n": at}, key) for at, key in enumerate(keys)), **both)
    target.write(record(12, {"n": 12}, keys[0]), record(13, None, keys[1]), **both)
    found = {(row["a"], row["b"]): row["n"] for row in target.rows()}
    assert len(target.rows()) == 5
    assert (found[(0, "0")], (1, "1") in found) == (12, False)


def test_topics_have_tables_of_their_own_and_moved_records_are_deduplicated(target: TableTarget) -> None:
    moved = [record(1, {"id": 1}, topic="extra", original_topic="orders")]
    target.write(record(0, {"id": 0}), *moved)
    assert (target.rows(), target.rows("extra")) == ([{"id": 0}], [{"id": 1}])
    again = target.sink()
    again.write(batch(record(0, {"id": 0}), *moved))
    again.flush()
    assert (target.rows(), target.rows("extra")) == ([{"id": 0}], [{"id": 1}])


def test_settings_that_cannot_work_are_named(target: TableTarget) -> None:
    assert "key.fields" in IcebergSink.Config.errors_of({"upsert": "true"})
    assert "table.name.format" in IcebergSink.Config.errors_of({"table.name.format": "all"})
    with pytest.raises(InvalidConnectorConfig, match="cannot be opened"):
        target.sink(**{"catalog.type": "nothing"})
    with pytest.raises(ConnectFailed, match=r"auto\.create is false"):
        target.write(record(0, {"id": 1}), **{"auto.create": "false"})


def test_a_table_is_compared_with_its_topic(target: TableTarget) -> None:
    compare_with_topic(target)


def test_a_table_is_read_again_when_it_has_changed(target: TableTarget) -> None:
    read_again_when_it_changed(target)


def test_offsets_are_set_in_the_table(target: TableTarget) -> None:
    set_offsets_of(target)


def test_a_table_is_built_again_beside_the_old_one(
    target: TableTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build_again(target, tmp_path, monkeypatch)


def test_a_fresh_table_is_given_up(target: TableTarget) -> None:
    give_up_a_fresh_target(target)
