"""The Delta sink commits rows and offsets at once: each record is in the table once, whatever fails."""

from __future__ import annotations

from datetime import UTC, datetime, time
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
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
from strandline.connect.failures import ConnectFailed, FencedOut, RecordFailed, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sinks.lake.delta import DeltaSink

UPSERT = {"upsert": "true", "key.fields": "id"}


@pytest.fixture
def target(tmp_path: Path) -> TableTarget:
    return TableTarget(DeltaSink, {"table.url": tmp_path.as_uri()})


@pytest.mark.parametrize("point", POINTS)
def test_a_crash_between_any_two_steps_loses_nothing_and_doubles_nothing(
    point: str, target: TableTarget, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = numbered(24)
    assert crash_everywhere(target, records, point, tmp_path, monkeypatch) > 0
    assert sorted(target.rows(), key=lambda row: row["id"]) == [each.value for each in records]


def test_offsets_survive_other_writers_and_checkpoints(target: TableTarget, tmp_path: Path) -> None:
    assert target.write(record(0, {"id": 0}), record(1, {"id": 1})) == {PLACE: 2}
    write_deltalake(tmp_path / "orders", pa.table({"id": [100]}), mode="append")
    table = DeltaTable(tmp_path / "orders")
    table.create_checkpoint()
    table.optimize.compact()
    assert target.sink().resume([PLACE, TopicPosition("orders", 1)]) == {PLACE: 2}
    assert target.sink(name="other").resume([PLACE]) == {}


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


@pytest.mark.parametrize("changes", [{}, UPSERT])
def test_a_task_whose_partition_moved_is_fenced_out(target: TableTarget, changes: dict[str, str]) -> None:
    target.write(record(0, {"id": 0}))
    late = target.sink(**changes)
    late.resume([PLACE])
    late.write(batch(record(1, {"id": 1})))
    table = late._targets["orders"].table
    commit = table.commit

    def overtaken(*given: object) -> None:
        # The other task commits after this one has looked at the offsets.
        table.commit = commit
        target.write(record(1, {"id": 1}), record(2, {"id": 2}))
        commit(*given)

    table.commit = overtaken
    with pytest.raises(FencedOut, match="another task writes orders-0"):
        late.flush()
    assert sorted(each["id"] for each in target.rows()) == [0, 1, 2]


def test_columns_are_added_but_types_stay(target: TableTarget) -> None:
    target.write(record(0, {"id": 1}))
    wide = connect_schema.struct(
        {
            "id": connect_schema.INT32,
            "price": connect_schema.decimal_schema(2),
            "at": connect_schema.TIME_SCHEMA,
            "seen": connect_schema.TIMESTAMP_SCHEMA,
            "tags": connect_schema.array(connect_schema.STRING),
        }
    )
    value = {
        "id": 2,
        "price": Decimal("1.50"),
        "at": time(1, 2),
        "seen": datetime(2026, 1, 1, tzinfo=UTC),
        "tags": ["ü"],
    }
    target.write(record(1, value, value_schema=wide))
    target.write(record(2, {"inner": {"x": 1}}))
    target.write(record(3, {"inner": {"x": 2, "y": "q"}, "empty": {}}))
    rows = {row["id"]: row for row in target.rows()}
    assert rows[1] == {**dict.fromkeys((*value, "inner")), "id": 1}
    assert rows[2] == {**value, "at": "01:02:00.000000", "inner": None}
    assert {"x": 2, "y": "q"} in [row["inner"] for row in target.rows()]
    with pytest.raises(RecordFailed, match="orders-0 at offset 5"):
        target.write(record(4, {"id": 4}), record(5, {"id": "five"}))


def test_upserts_keep_the_last_row_of_a_key_and_tombstones_delete_it(target: TableTarget) -> None:
    target.write(record(0, {"v": "a"}, 1), record(1, {"v": "b"}, 2), record(2, {"v": "c"}, 1), **UPSERT)
    assert sorted(target.rows(), key=lambda row: row["id"]) == [{"v": "c", "id": 1}, {"v": "b", "id": 2}]
    target.write(record(3, None, 1), record(4, {"v": "d"}, 2), record(5, None, 9), record(6, {"w x.y": 1}, 3), **UPSERT)
    assert sorted(target.rows(), key=lambda row: row["id"]) == [
        {"v": "d", "id": 2, "w x.y": None},
        {"v": None, "id": 3, "w x.y": 1},
    ]
    assert target.write(record(7, None, 2), **UPSERT) == {PLACE: 8}
    assert [row["id"] for row in target.rows()] == [3]
    with pytest.raises(ConnectFailed, match="quotation mark"):
        target.write(record(8, {'v"': 1}, 5), **UPSERT)


def test_tombstones_of_appends_are_left_out_marked_or_refused(target: TableTarget) -> None:
    assert target.write(record(0, {"id": 1}, 1), record(1, None, 1)) == {PLACE: 2}
    assert target.rows() == [{"id": 1}]
    keeping = {"behavior.on.null.values": "write", "key.fields": "id", "table": "kept"}
    target.write(record(0, {"id": 1}, 1), record(1, None, 1), **keeping)
    assert target.rows("kept") == [{"id": 1, "__deleted": False}, {"id": 1, "__deleted": True}]
    with pytest.raises(RecordFailed, match="has no value"):
        target.write(record(2), **{"behavior.on.null.values": "fail"})


def test_tables_are_made_with_partitions(target: TableTarget, tmp_path: Path) -> None:
    target.write(record(0, {"id": 1, "day": "mon"}), record(1, {"id": 2, "day": "tue"}), **{"partition.by": "day"})
    assert DeltaTable(tmp_path / "orders").metadata().partition_columns == ["day"]
    assert sorted(each["id"] for each in target.rows()) == [1, 2]


def test_plain_values_are_one_column(target: TableTarget) -> None:
    target.write(record(0, b"\xff"), record(1, b"b"))
    assert [row["value"] for row in target.rows()] == [b"\xff", b"b"]


def test_a_store_that_is_away_is_tried_again(target: TableTarget) -> None:
    away = {
        "table.url": "s3://bucket/tables",
        "storage.aws_endpoint": "http://127.0.0.1:9",
        "storage.allow_http": "true",
        "storage.aws_access_key_id": "a",
        "secret.access.key": "b",
        "storage.aws_region": "nowhere",
        "storage.max_retries": "0",
        "storage.retry_timeout": "1s",
    }
    with pytest.raises(RetriableFailure, match="s3://bucket/tables/orders cannot be reached"):
        target.sink(**away).resume([PLACE])


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
