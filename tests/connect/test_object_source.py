"""The object source on a store of files: each object once, in the order of names, late ones too."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from strandline.connect.failures import ConnectFailed, InvalidConnectorConfig, RecordFailed, RetriableFailure
from strandline.connect.paths import PathRules
from strandline.connect.records import AnyBatch, ValueBatch

pytest.importorskip("obstore")
from obstore.store import from_url

from strandline.connect.sources.file_formats import object_bytes
from strandline.connect.sources.file_formats.lines import BLOCK_BYTES
from strandline.connect.sources.objects import ObjectSource


class Stored:
    """Offsets as the runner stores them, here in a dict."""

    def __init__(self) -> None:
        self.offsets: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {}

    def get(self, partition: Mapping[str, Any]) -> Mapping[str, Any] | None:
        found = self.offsets.get(partition["object"])
        return None if found is None else found[1]

    def all(self) -> Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]:
        return list(self.offsets.values())

    def keep(self, batch: AnyBatch) -> None:
        for partition, offset in batch.positions():
            if offset is None:
                del self.offsets[partition["object"]]
            else:
                self.offsets[partition["object"]] = partition, offset


def source(directory: Path, **settings: str) -> ObjectSource:
    named = {name.replace("_", "."): value for name, value in settings.items()}
    properties = {"store.url": directory.as_uri(), "topic": "t", "poll.interval.ms": "5", **named}
    assert ObjectSource.Config.errors_of(properties) == {}
    made = ObjectSource(ObjectSource.Config(properties))
    made.open()
    return made


def values_of(batch: AnyBatch) -> list[Any]:
    return list(batch.values) if isinstance(batch, ValueBatch) else [each.value for each in batch.records]


async def read_all(directory: Path, stored: Stored, **settings: str) -> list[Any]:
    found = []
    async for batch in source(directory, follow="false", **settings).read(stored):
        stored.keep(batch)
        found += values_of(batch)
    return found


async def test_objects_are_read_once_in_the_order_of_names(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "2.txt").write_text("four\nfive")
    (tmp_path / "b" / "1.txt").write_text("two\nthree\n")
    (tmp_path / "a.txt").write_text("one\n")
    (tmp_path / "empty.txt").touch()
    (tmp_path / "other.bin").write_bytes(b"\xff")
    stored = Stored()
    assert await read_all(tmp_path, stored, object_pattern="*.txt") == ["one", "two", "three", "four", "five"]
    assert await read_all(tmp_path, stored, object_pattern="*.txt") == []
    (tmp_path / "aa.txt").write_text("late, and before the others\n")
    assert await read_all(tmp_path, stored, object_pattern="*.txt") == ["late, and before the others"]
    (tmp_path / "a.txt").write_text("replaced\n")
    assert await read_all(tmp_path, stored, object_pattern="*.txt") == ["replaced"]


async def test_every_line_comes_once_wherever_the_source_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_bytes, "WINDOW_BYTES", 3)
    for name in "abc":
        (tmp_path / name).write_text(f"{name}1\n{name}2\n{name}3")
    expected = [f"{name}{number}" for name in "abc" for number in (1, 2, 3)]
    for killed_after in range(10):
        stored, found = Stored(), []
        reading = source(tmp_path, batch_size="1").read(stored)
        for _ in range(min(killed_after, len(expected))):
            batch = await anext(reading)
            stored.keep(batch)
            found += values_of(batch)
        await reading.aclose()  # type: ignore[attr-defined]
        assert found + await read_all(tmp_path, stored, batch_size="1") == expected


async def test_new_objects_are_found_and_removed_ones_forgotten(tmp_path: Path) -> None:
    (tmp_path / "1").write_text("one\n")
    stored = Stored()
    reading = source(tmp_path).read(stored)
    stored.keep(await anext(reading))
    (tmp_path / "1").unlink()
    (tmp_path / "0").write_text("zero\n")
    found = []
    while len(found) < 1 or "1" in stored.offsets:
        batch = await anext(reading)
        stored.keep(batch)
        found += values_of(batch)
    await reading.aclose()  # type: ignore[attr-defined]
    assert found == ["zero"]
    assert list(stored.offsets) == ["0"]


async def test_old_objects_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "old").write_text("old\n")
    (tmp_path / "new").write_text("new\n")
    os.utime(tmp_path / "old", (1, 1))
    stored = Stored()
    assert await read_all(tmp_path, stored) == ["new", "old"]
    assert await read_all(tmp_path, stored, max_age_ms="3600000") == []
    assert list(stored.offsets) == ["new"]


async def test_tasks_share_the_objects(tmp_path: Path) -> None:
    for index in range(20):
        (tmp_path / f"{index}.json").write_text(f'{{"n": {index}}}\n')
    tasks = ObjectSource.tasks(ObjectSource.Config({"store.url": tmp_path.as_uri(), "topic": "t"}), 3)
    found = [await read_all(tmp_path, Stored(), format="json", **each) for each in tasks]
    assert all(found)
    assert sorted(value["n"] for each in found for value in each) == list(range(20))


async def test_rows_of_parquet_and_csv(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"id": list(range(10))}), tmp_path / "a.parquet", row_group_size=4)
    for killed_after in range(5):
        stored, found = Stored(), []
        reading = source(tmp_path, format="parquet", batch_size="3").read(stored)
        for _ in range(killed_after):
            batch = await anext(reading)
            stored.keep(batch)
            found += values_of(batch)
        await reading.aclose()  # type: ignore[attr-defined]
        found += await read_all(tmp_path, stored, format="parquet", batch_size="3")
        assert [each["id"] for each in found] == list(range(10))
    (tmp_path / "b.csv").write_text("id,name\n1,x\n")
    assert await read_all(tmp_path, Stored(), format="csv", object_pattern="*.csv") == [{"id": "1", "name": "x"}]
    with pytest.raises(ConnectFailed, match=r"b\.csv is not a complete Parquet file"):
        await read_all(tmp_path, Stored(), format="parquet", object_pattern="*.csv")


async def test_an_object_that_is_replaced_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(object_bytes, "WINDOW_BYTES", 100)
    (tmp_path / "a").write_text("one\n" * 3 * BLOCK_BYTES)
    stored = Stored()
    reading = source(tmp_path, batch_size="100000").read(stored)
    stored.keep(await anext(reading))
    (tmp_path / "a").unlink()
    (tmp_path / "a").write_text("two\n")
    found: list[Any] = [""]
    while found[-1] != "two":
        batch = await anext(reading)
        stored.keep(batch)
        found += values_of(batch)
    await reading.aclose()  # type: ignore[attr-defined]
    assert len(found) < 2 * BLOCK_BYTES
    assert await read_all(tmp_path, stored) == []


async def test_errors_have_a_place(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1\nx\n")
    with pytest.raises(RecordFailed, match=r"a\.json at position 2: the line is not JSON"):
        await read_all(tmp_path, Stored(), format="json")
    away = {
        "store.url": "s3://bucket/x",
        "store.endpoint": "http://127.0.0.1:1",
        "store.allow.http": "true",
        "store.access.key.id": "a",
        "store.secret.access.key": "b",
        "topic": "t",
    }
    made = ObjectSource(ObjectSource.Config(away))
    made._store = from_url(
        "s3://bucket/x",
        config={"aws_endpoint": "http://127.0.0.1:1", "aws_access_key_id": "a", "aws_secret_access_key": "b"},
        client_options={"allow_http": True},
        retry_config={"max_retries": 0},
    )
    with pytest.raises(RetriableFailure, match=r"s3://bucket/x was not listed: [^\n]*$"):
        [each async for each in made.read(Stored())]


def test_only_allowed_directories_are_read(tmp_path: Path) -> None:
    allowed = tmp_path / "allowed"
    allowed.mkdir()
    for url in (tmp_path.as_uri(), f"{allowed.as_uri()}/%2e%2e/"):
        made = ObjectSource(ObjectSource.Config({"store.url": url, "topic": "t"}))
        made.paths = PathRules([allowed])
        with pytest.raises(InvalidConnectorConfig, match="may not use the path"):
            made.open()
    assert set(ObjectSource.Config.errors_of({"store.url": "http://x/", "topic": "t"})) == {"store.url"}


def test_offsets_are_checked() -> None:
    good = {"url": "s3://b", "object": "a"}
    config = ObjectSource.Config({"store.url": "s3://b", "topic": "t"})
    other = {"url": "s3://other", "object": "a"}
    ObjectSource.check_offsets(config, [(good, {"position": 0}), (good, None), (other, None)])
    for partition, offset in (
        ({"object": "a"}, {"position": 0}),
        (good, {"position": -1}),
        (good, {"done": True}),
        (other, {"position": 0}),
    ):
        with pytest.raises(InvalidConnectorConfig):
            ObjectSource.check_offsets(config, [(partition, offset)])
