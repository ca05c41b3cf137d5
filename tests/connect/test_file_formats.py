"""Formats of the file source: lines, JSON, CSV and Parquet."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pytest
from tests.connect.file_reading import Stored, batches_of, following, read_all, source, values_of

from strandline.connect.failures import ConnectFailed, RecordFailed
from strandline.connect.records import Batch, ValueBatch
from strandline.connect.schema import ConnectType


async def test_bytes_that_are_not_utf8_have_a_place(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(b"fine\nb\xff\nfine\n")
    with pytest.raises(RecordFailed, match=r"a\.txt at position 6: the byte 0xff is not UTF-8"):
        await read_all(file)
    assert await read_all(file, bad_lines="skip") == ["fine", "fine"]


async def test_a_long_line_has_a_place(tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    file.write_text("1234567890\n12345678901\nshort\n" + "x" * 3_000_000 + "\nend\n")
    with pytest.raises(RecordFailed, match=r"at position 11: a line has more than 10 bytes"):
        await read_all(file, max_line_bytes="10")
    assert await read_all(file, max_line_bytes="10", bad_lines="skip") == ["1234567890", "short", "end"]
    found = await read_all(file, max_line_bytes="3000000")
    assert [len(each) for each in found] == [10, 11, 5, 3_000_000, 3]


async def test_json_lines(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('\ufeff{"id": 1}\n\n[2]\r\n"three"\n{"id": 4}')
    assert await read_all(file, format="json") == [{"id": 1}, [2], "three", {"id": 4}]
    batch = (await batches_of(file, format="json", key_field="id"))[0]
    assert isinstance(batch, Batch)
    assert [each.key for each in batch.records] == [1, None, None]
    file.write_text('{"id": 1}\n{"id": \n{"id": 3}\n')
    with pytest.raises(RecordFailed, match="at position 10: the line is not JSON"):
        await read_all(file, format="json")
    assert await read_all(file, format="json", bad_lines="skip") == [{"id": 1}, {"id": 3}]


async def test_csv_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_bytes('\ufeffid,name,price,code\r\n1,"a ""b"",\nc",2.5,007\r\n\r\n2,,,\n'.encode())
    batches = await batches_of(file, format="csv", csv_types="infer", key_field="id", batch_size="1")
    records = [each for batch in batches if isinstance(batch, Batch) for each in batch.records]
    assert [each.value for each in records] == [
        {"id": 1, "name": 'a "b",\nc', "price": 2.5, "code": "007"},
        {"id": 2, "name": "", "price": None, "code": ""},
    ]
    assert [each.key for each in records] == [1, 2]
    schema = records[0].value_schema
    assert schema is not None
    assert [(each.name, each.schema.kind) for each in schema.fields] == [
        ("id", ConnectType.INT64),
        ("name", ConnectType.STRING),
        ("price", ConnectType.FLOAT64),
        ("code", ConnectType.STRING),
    ]
    assert records[0].key_schema == schema.fields[0].schema
    assert await read_all(file, format="csv", csv_columns="a,b,c,d") == [
        {"a": "id", "b": "name", "c": "price", "d": "code"},
        {"a": "1", "b": 'a "b",\nc', "c": "2.5", "d": "007"},
        {"a": "2", "b": "", "c": "", "d": ""},
    ]


async def test_csv_goes_on_at_each_row_with_the_same_types(tmp_path: Path) -> None:
    file = tmp_path / "a.csv"
    file.write_text('n,t\n1,"x\ny"\n2,z\n3,"\n"\n')
    expected = [{"n": 1, "t": "x\ny"}, {"n": 2, "t": "z"}, {"n": 3, "t": "\n"}]
    for killed_after in range(4):
        stored, found = Stored(), []
        reading = source(file, format="csv", csv_types="infer", batch_size="1").read(stored)
        for _ in range(killed_after):
            batch = await anext(reading)
            stored.keep(batch)
            found += values_of(batch)
        await reading.aclose()  # type: ignore[attr-defined]
        assert found + await read_all(file, stored, format="csv", csv_types="infer") == expected
    with file.open("a") as out:
        out.write("many,w\n")
    with pytest.raises(RecordFailed, match=r"'many' in the column n is not of the inferred type int64"):
        await read_all(file, stored, format="csv", csv_types="infer")


async def test_csv_rows_that_are_torn_or_wrong(tmp_path: Path) -> None:
    file, stored = tmp_path / "a.csv", Stored()
    file.write_text('a,b\n1,"torn\n')
    async with following(file, stored, format="csv") as wait:
        with file.open("a") as out:
            out.write('row"\n')
        assert await wait(1) == [{"a": "1", "b": "torn\nrow"}]
    with file.open("a") as out:
        out.write("1,2,3\n4,5\n")
    with pytest.raises(RecordFailed, match="the row has 3 columns instead of 2"):
        await read_all(file, stored, format="csv")
    assert await read_all(file, stored, format="csv", bad_lines="skip") == [{"a": "4", "b": "5"}]
    file.write_text("a,a\n1,2\n")
    with pytest.raises(ConnectFailed, match=r"set csv\.columns"):
        await read_all(file, format="csv")


async def test_parquet_goes_on_at_each_row(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"id": list(range(10))}), file, row_group_size=4)
    for killed_after in range(6):
        stored, found = Stored(), []
        reading = source(file, format="parquet", batch_size="3").read(stored)
        for _ in range(min(killed_after, 5)):
            batch = await anext(reading)
            stored.keep(batch)
            found += values_of(batch)
        await reading.aclose()  # type: ignore[attr-defined]
        found += await read_all(file, stored, format="parquet", batch_size="3")
        assert [each["id"] for each in found] == list(range(10))
    pq.write_table(pa.table({"id": [77]}), file)
    assert await read_all(file, stored, format="parquet") == [{"id": 77}]
    file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ConnectFailed, match="not a complete Parquet file"):
        await read_all(file, format="parquet")


async def test_parquet_types_are_those_of_connect(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    import pyarrow.parquet as pq

    at = datetime(2026, 1, 2, 3, 4, 5, 600000, UTC)
    table = pa.table(
        {
            "big": pa.array([2**64 - 1], pa.uint64()),
            "at": pa.array([at.replace(tzinfo=None)], pa.timestamp("ns")),
            "day": pa.array([date(2026, 1, 2)]),
            "price": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
            "tags": pa.array([{"a": [1, None]}], pa.struct([("a", pa.list_(pa.int32()))])),
            "map": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
            "word": pa.array(["w"]).dictionary_encode(),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    (batch,) = await batches_of(tmp_path / "a.parquet", format="parquet")
    assert values_of(batch) == [
        {
            "big": Decimal(2**64 - 1),
            "at": at,
            "day": date(2026, 1, 2),
            "price": Decimal("1.50"),
            "tags": {"a": [1, None]},
            "map": {"k": 1},
            "word": "w",
        }
    ]
    assert isinstance(batch, ValueBatch)
    assert batch.value_schema is not None
    kinds = {each.name: each.schema.kind for each in batch.value_schema.fields}
    assert kinds["map"] == ConnectType.MAP
    assert kinds["at"] == ConnectType.INT64
