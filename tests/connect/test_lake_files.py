"""Files of many tasks become rows of a table by one commit, once for each batch; other readers find them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.catalog import load_catalog
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from tests.connect.sink_records import opened

from strandline.client.fetcher import OffsetRange
from strandline.connect.failures import ConnectFailed, FencedOut, RetriableFailure
from strandline.connect.records import TopicPosition
from strandline.connect.sink import Sink
from strandline.connect.sinks.lake.data_files import FileWriter
from strandline.connect.sinks.lake.delta import DeltaSink
from strandline.connect.sinks.lake.iceberg import IcebergSink
from strandline.connect.sinks.lake.lake_table import CommitConflict, DataFile, LakeTable
from strandline.runtime.fault_points import VARIABLE, PlantedFault
from strandline.spark.lake.connector_process import commit_offsets, directory_of_turn
from strandline.spark.lake.writers import FilesWritten, commit_batch, directory_of, stream_writer
from strandline.spark.sink.failures import SinkFailed, SinkRefused

QUERY = "7c1a"


class Lake:
    """Tables of one kind in a directory, and tasks that write to them."""

    def __init__(self, kind: type[Sink], properties: dict[str, str], home: Path) -> None:
        self.kind = kind
        self.properties = properties
        self.home = home

    def sink(self, **changes: str) -> Any:
        return opened(self.kind, {"name": "lake", **self.properties, **changes})

    def table(self, **changes: str) -> LakeTable:
        table: LakeTable = self.sink(**changes).table_named("orders")
        return table

    def task(self, batch: int, rows: pa.Table, **changes: str) -> list[DataFile]:
        """Write rows as a task does: all it knows is the table."""
        return self.write(directory_of(QUERY, batch), rows, **changes)

    def write(self, directory: str, rows: pa.Table, **changes: str) -> list[DataFile]:
        sink = self.sink(**changes)
        writer = FileWriter(
            sink.table_named("orders"),
            directory,
            widening=sink.widening,
            may_create=sink.config.auto_create,
            may_evolve=sink.config.auto_evolve,
        )
        writer.add(rows)
        writer.flush()
        return writer.files

    def commit(self, batch: int, *files: list[DataFile]) -> bool:
        return commit_batch(self.table(), QUERY, batch, [each for some in files for each in some])

    def ids(self) -> list[int]:
        return sorted(self.table().read(["id"]).column("id").to_pylist())

    def named_files(self) -> list[str]:
        """Return the paths of the files that the table has, by the library of its format."""
        if self.kind is DeltaSink:
            found = DeltaTable(self.home / "orders").file_uris()
        else:
            catalog = load_catalog(
                "default", **{name.removeprefix("catalog."): value for name, value in self.properties.items()}
            )
            found = [each.file.file_path for each in catalog.load_table("default.orders").scan().plan_files()]
        return sorted(urlsplit(each).path if "://" in each else each for each in found)

    def files_there(self) -> list[str]:
        return sorted(str(each) for each in self.home.rglob("*.parquet") if "_delta_log" not in each.parts)


def rows(*numbers: int, **columns: Any) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), **columns})


@pytest.fixture(params=[IcebergSink, DeltaSink])
def lake(request: pytest.FixtureRequest, tmp_path: Path) -> Lake:
    iceberg = {
        "catalog.type": "sql",
        "catalog.uri": f"sqlite:///{tmp_path}/catalog.db",
        "catalog.warehouse": f"file://{tmp_path}/files",
    }
    return Lake(request.param, iceberg if request.param is IcebergSink else {"table.url": tmp_path.as_uri()}, tmp_path)


def test_a_batch_that_is_run_again_by_another_number_of_tasks_is_not_added_again(lake: Lake) -> None:
    assert lake.commit(0, lake.task(0, rows(1, 2)), lake.task(0, rows(3)))
    assert lake.commit(1, lake.task(1, rows(4)))
    again = [lake.task(1, rows(each)) for each in (4, 5, 6)]
    assert not lake.commit(1, *again)
    assert lake.ids() == [1, 2, 3, 4]
    assert lake.files_there() == lake.named_files()


def test_a_reader_of_parquet_finds_the_rows_by_the_names_of_columns(lake: Lake) -> None:
    lake.commit(0, lake.task(0, rows(1, 2, text=["ü", None])))
    found = duckdb.sql(f"select id, text from read_parquet({lake.named_files()!r}) order by id").fetchall()
    assert found == [(1, "ü"), (2, None)]


@pytest.mark.parametrize("point", ["before-commit", "after-commit"])
def test_files_of_an_attempt_that_was_killed_are_removed(
    lake: Lake, point: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.commit(0, lake.task(0, rows(0)))
    monkeypatch.setenv(VARIABLE, f"{point}:fail:{tmp_path / 'fault'}")
    with pytest.raises(PlantedFault):
        lake.commit(1, lake.task(1, rows(1)), lake.task(1, rows(2)))
    lake.task(1, rows(1))  # Its driver was killed before it could say so.
    assert lake.commit(1, lake.task(1, rows(1, 2))) == (point == "before-commit")
    assert lake.ids() == [0, 1, 2]
    if point == "before-commit":
        assert lake.files_there() == lake.named_files()
    else:
        # A later attempt does not know which of the files count, and removes its own only.
        assert len(lake.files_there()) == len(lake.named_files()) + 1


def test_a_batch_is_not_committed_before_all_its_tasks_have_ended(lake: Lake) -> None:
    lake.commit(0, lake.task(0, rows(0)))
    options = {name: value for name, value in lake.properties.items() if name != "name"} | {"table": "orders"}
    writer = stream_writer("delta" if lake.kind is DeltaSink else "iceberg", options, overwrite=False)
    written = FilesWritten(QUERY, tuple(lake.task(1, rows(1))))
    with pytest.raises(SinkFailed, match="word of 1 of its 2 tasks"):
        writer.commit([written, None], 1)
    assert lake.ids() == [0]
    writer.abort([written, None], 1)
    assert lake.files_there() == lake.named_files()
    written = FilesWritten(QUERY, tuple(lake.task(1, rows(1))))
    writer.commit([written, FilesWritten(QUERY, ())], 1)
    # Spark gives a batch up whose commit was not answered in time, though it was done.
    writer.abort([written, FilesWritten(QUERY, ())], 1)
    assert lake.ids() == [0, 1]


def test_a_process_whose_partitions_another_one_has_is_fenced_out(lake: Lake) -> None:
    place = TopicPosition("orders", 0)
    first = lake.task(0, rows(0))
    commit_offsets(lake.table(), first, directory_of(QUERY, 0), {place: 1}, {place: None})
    files = [lake.task(1, rows(1)), lake.task(1, rows(1))]
    commit_offsets(lake.table(), files[0], directory_of(QUERY, 1), {place: 2}, {place: 1})
    with pytest.raises(FencedOut, match="the table holds offset 2 where this task had 1"):
        commit_offsets(lake.table(), files[1], directory_of(QUERY, 1), {place: 2}, {place: 1})
    assert lake.ids() == [0, 1]
    assert lake.sink().resume([place]) == {place: 2}


def test_a_turn_after_offsets_were_set_back_keeps_the_files_of_the_one_before(lake: Lake) -> None:
    place, ranges = TopicPosition("orders", 0), [OffsetRange("orders", 0, 0, 1)]
    before: int | None = None
    directories = []
    for number in range(3):
        directory = directory_of_turn("lake", lake.table(), ranges)
        lake.write(directory, rows(number))  # Its process was killed, and the next one begins at the same offset.
        assert number == 0 or directory == directory_of_turn("lake", lake.table(), ranges)
        directory = directory_of_turn("lake", lake.table(), ranges)
        commit_offsets(lake.table(), lake.write(directory, rows(number)), directory, {place: 1}, {place: before})
        before = (0, None)[number % 2]
        lake.table().set_offsets({place: before})
        directories.append(directory)
    assert lake.ids() == [0, 1, 2]
    assert len(set(directories)) == 3
    assert set(lake.named_files()) <= set(lake.files_there())


def test_a_commit_removes_no_file_that_the_table_names_in_its_directory(lake: Lake) -> None:
    place, directory = TopicPosition("orders", 0), directory_of(QUERY, 0)
    commit_offsets(lake.table(), lake.write(directory, rows(0)), directory, {place: 1}, {place: None})
    lake.table().set_offsets({place: None})
    lake.write(directory, rows(1))
    commit_offsets(lake.table(), lake.write(directory, rows(1)), directory, {place: 1}, {place: None})
    assert lake.ids() == [0, 1]
    assert lake.files_there() == lake.named_files()
    if lake.kind is IcebergSink:
        lake.sink().catalog.load_table("default.orders").delete()
        before = lake.files_there()
        lake.table().set_offsets({place: None})
        commit_offsets(lake.table(), lake.write(directory, rows(2)), directory, {place: 1}, {place: None})
        assert set(before) < set(lake.files_there()), "a snapshot that can be read names them"


def test_two_drivers_of_a_query_add_a_batch_once(lake: Lake) -> None:
    lake.commit(0, lake.task(0, rows(0)))
    late, files = lake.table(), lake.task(1, rows(1))
    commit = late.commit_files

    def overtaken(*given: Any) -> None:
        late.commit_files = commit  # type: ignore[method-assign]
        assert lake.commit(1, lake.task(1, rows(1)))
        commit(*given)

    late.commit_files = overtaken  # type: ignore[method-assign]
    assert not commit_batch(late, QUERY, 1, files)
    assert lake.ids() == [0, 1]
    # The refused commit might have landed, so its files stay.
    assert set(lake.named_files()) <= set(lake.files_there())


def test_a_commit_that_landed_and_was_refused_when_it_was_sent_again_keeps_its_files(lake: Lake) -> None:
    lake.commit(0, lake.task(0, rows(0)))
    table, files = lake.table(), lake.task(1, rows(1))
    commit = table.commit_files

    def sent_twice(*given: Any) -> None:
        commit(*given)
        if lake.kind is DeltaSink:
            commit(*given)  # delta-rs finds the number of the batch.
        raise CommitConflict

    table.commit_files = sent_twice  # type: ignore[method-assign]
    assert not commit_batch(table, QUERY, 1, files)
    assert lake.ids() == [0, 1]
    assert lake.files_there() == lake.named_files()


def test_a_commit_whose_answer_was_lost_keeps_its_files(lake: Lake) -> None:
    lake.commit(0, lake.task(0, rows(0)))
    table, files = lake.table(), lake.task(1, rows(1))
    commit = table.commit_files

    def lost(*given: Any) -> None:
        commit(*given)
        raise RetriableFailure("the answer was lost")

    table.commit_files = lost  # type: ignore[method-assign]
    with pytest.raises(RetriableFailure):
        commit_batch(table, QUERY, 1, files)
    assert not lake.commit(1, lake.task(1, rows(1)))
    assert lake.ids() == [0, 1]


def test_a_batch_before_the_last_one_and_one_with_another_plan_are_refused(lake: Lake, tmp_path: Path) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "1").write_text("v1\n{}\n{}")
    lake.commit(0, lake.task(0, rows(0)))
    checkpoint = str(tmp_path / "checkpoint")
    assert commit_batch(lake.table(), QUERY, 1, lake.task(1, rows(1)), checkpoint)
    assert not commit_batch(lake.table(), QUERY, 1, lake.task(1, rows(1)), checkpoint)
    (offsets / "1").write_text("v1\n{}\n{1}")
    for number in (0, 1):
        with pytest.raises(SinkRefused, match="the checkpoint is older than the table"):
            commit_batch(lake.table(), QUERY, number, lake.task(number, rows(7)), checkpoint)
    assert lake.ids() == [0, 1]


def test_columns_grow_in_tasks_and_what_does_not_fit_is_named(lake: Lake) -> None:
    narrow, wide = pa.table({"id": pa.array([1], pa.int32())}), rows(2**40)
    first = lake.task(0, narrow)
    if lake.kind is DeltaSink:
        with pytest.raises(ConnectFailed, match="id is int64, which does not fit into int32"):
            lake.task(0, wide)
        wide = pa.table({"id": pa.array([2**30], pa.int32())})
    second = lake.task(0, wide.append_column("more", pa.array([{"x": 1}])))
    lake.commit(0, first, second, lake.task(0, rows_of(narrow, text=pa.array(["a"]))))
    found = {row["id"]: row for row in lake.table().read().to_pylist()}
    assert {row["text"] for row in found.values()} == {None, "a"}
    assert found[wide.column("id")[0].as_py()]["more"] == {"x": 1}
    with pytest.raises(ConnectFailed, match="the column id is string, which does not fit into"):
        lake.task(1, pa.table({"id": ["x"]}))
    with pytest.raises(ConnectFailed, match=r"no column for new, and auto\.evolve is false"):
        lake.task(1, rows_of(narrow, new=pa.array([1])), **{"auto.evolve": "false"})
    elsewhere = Lake(lake.kind, lake.properties | _elsewhere(lake), lake.home)
    with pytest.raises(ConnectFailed, match=r"is missing, and auto\.create is false"):
        elsewhere.task(0, narrow, **{"auto.create": "false"})


def rows_of(table: pa.Table, **columns: pa.Array) -> pa.Table:
    for name, column in columns.items():
        table = table.append_column(name, column)
    return table


def _elsewhere(lake: Lake) -> dict[str, str]:
    return {"namespace": "other"} if lake.kind is IcebergSink else {"table.url": (lake.home / "other").as_uri()}


def values() -> Iterator[tuple[int, str | None, date]]:
    for number in range(40):
        yield number, (None, "a b", "ü/=", "x")[number % 4], date(2026, 1, 1 + number % 2)


def test_rows_lie_in_the_partitions_of_the_table(lake: Lake) -> None:
    columns = pa.schema([("id", pa.int64()), ("country", pa.string()), ("day", pa.date32())])
    partitioned = {"partition.by": "country,day"} if lake.kind is DeltaSink else {}
    lake.table(**partitioned)
    if lake.kind is IcebergSink:
        catalog = lake.sink().catalog
        catalog.create_namespace("default")
        with catalog.create_table("default.orders", schema=columns).update_spec() as update:
            update.add_identity("country").add_identity("day")
    ids, countries, days = zip(*values(), strict=True)
    given = pa.table([pa.array(ids), pa.array(countries), pa.array(days)], schema=columns)
    files = [lake.task(0, part, **partitioned) for part in (given[:13], given[13:])]
    assert len(files[0]) == 4
    assert lake.commit(0, *files)
    assert sorted(tuple(row.values()) for row in lake.table().read().to_pylist() if row["country"]) == sorted(
        each for each in values() if each[1]
    )
    assert lake.ids() == list(range(40))
    assert lake.files_there() == lake.named_files()
    if lake.kind is DeltaSink:
        table = DeltaTable(lake.home / "orders")
        assert len(list(table.to_pyarrow_dataset().get_fragments(ds.field("country") == "ü/="))) == 2
        assert table.to_pyarrow_table(filters=[("country", "=", "a b"), ("id", "<", 5)]).column("id").to_pylist() == [1]
    else:
        scan = lake.sink().catalog.load_table("default.orders").scan(row_filter="country = 'ü/=' and id < 7")
        assert sorted(scan.to_arrow().column("id").to_pylist()) == [2, 6]
        assert len(list(scan.plan_files())) == 1


def test_readers_skip_files_by_their_statistics_and_never_a_row(lake: Lake) -> None:
    moments = [datetime(2026, 1, each, 3, 4, 5, 678_901, tzinfo=UTC) for each in (1, 2)]
    more = {
        "text": pa.array(["a" * 50, "b" * 50]),
        "at": pa.array(moments, pa.timestamp("us", tz="UTC")),
        "real": pa.array([float("nan"), 1.0]),
        "price": pa.array([Decimal("1.50"), None], pa.decimal128(9, 2)),
        "flag": pa.array([True, None]),
    }
    lake.commit(0, lake.task(0, rows(1, 2, **more)), lake.task(0, rows(3, 4, **more)))
    if lake.kind is DeltaSink:
        whole = lake.task(1, rows(5, 6, **{name: more[name] for name in ("text", "at", "price", "flag")}))
        assert json.loads(whole[0].detail[1]).keys() == {"numRecords"}  # Its column real has no value.
        lake.commit(1, whole, lake.task(1, rows(7, 8, **{**more, "real": pa.array([0.5, 1.0])})))
        dataset = DeltaTable(lake.home / "orders").to_pyarrow_dataset()
        assert len(list(dataset.get_fragments(ds.field("id") < 7))) == 3
        at, text, price = ds.field("at"), ds.field("text"), ds.field("price")
        assert dataset.to_table(filter=ds.field("id") > 2).num_rows == 6
        assert dataset.to_table(filter=at == pa.scalar(moments[1], pa.timestamp("us", tz="UTC"))).num_rows == 4
        assert dataset.to_table(filter=(text == "b" * 50) & (ds.field("id") > 6)).num_rows == 1
        assert dataset.to_table(filter=text == "a" * 50).num_rows == 4
        assert dataset.to_table(filter=price == Decimal("1.50")).num_rows == 4
        assert dataset.to_table(filter=ds.field("real") == 1.0).num_rows == 3
        return
    table = lake.sink().catalog.load_table("default.orders")
    assert len(list(table.scan(row_filter="id > 2").plan_files())) == 1
    assert table.scan(row_filter=f"text = '{'b' * 50}'").to_arrow().num_rows == 2
    assert table.scan(row_filter=f"at = '{moments[1].isoformat()}'").to_arrow().num_rows == 2


def test_files_for_a_table_that_was_made_again_are_not_added(lake: Lake) -> None:
    lake.commit(0, lake.task(0, rows(0)))
    files = lake.task(1, rows(1))
    lake.table().drop()
    lake.commit(0, lake.task(0, rows(5)))
    with pytest.raises(ConnectFailed, match="deleted and made again"):
        lake.commit(1, files)


def test_rules_that_are_not_checked_for_files_refuse_them(lake: Lake) -> None:
    if lake.kind is IcebergSink:
        catalog = lake.sink().catalog
        catalog.create_namespace("default")
        catalog.create_table("default.orders", schema=Schema(NestedField(1, "id", LongType(), required=True)))
        with pytest.raises(ConnectFailed, match=r"the column id of .*orders must have values"):
            lake.task(0, pa.table({"id": pa.array([None], pa.int64())}))
        assert lake.commit(0, lake.task(0, rows(1)))
        return
    lake.commit(0, lake.task(0, rows(1)))
    DeltaTable(lake.home / "orders").alter.add_constraint({"small": "id < 5"})
    with pytest.raises(ConnectFailed, match=r"the table has .*delta\.constraints\.small"):
        lake.task(1, rows(7))
