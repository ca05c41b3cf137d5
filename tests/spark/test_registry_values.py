"""Values with ids of many schemas: what each becomes, and why one is null. No Spark and no broker."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

import pyarrow as pa
import pytest
from tests.schema_desk import avro_value, record_schema

from strandline.schemas.arrow.framing import NO_FRAME
from strandline.schemas.engines import SchemaSource
from strandline.spark.error_translation import SparkFailed
from strandline.spark.registry.reader_schema import ReaderSchema
from strandline.spark.registry.row_encoding import RowDoesNotFit, RowEncoder
from strandline.spark.registry.values import AvroValues, JsonValues

OLD = record_schema("Order", ("id", "long"), ("note", "string"))
NEW = record_schema(
    "Order", ("id", "long"), ("amount", "double", 0.0), ("tags", {"type": "array", "items": "string"}, [])
)
OTHER = record_schema("Payment", ("id", "long"))


class Schemas:
    """A catalog that has what a test says."""

    def __init__(self, schemas: dict[int, tuple[str, Any]]) -> None:
        self.schemas = schemas
        self.asked: list[list[int]] = []

    def writers(self, context: str, ids: Collection[int]) -> dict[int, SchemaSource | str]:
        self.asked.append(sorted(ids))
        found: dict[int, SchemaSource | str] = {}
        for each in ids:
            known = self.schemas.get(each)
            found[each] = f"no schema {each}" if known is None else SchemaSource(known[0], json.dumps(known[1]))
        return found


def reader(schema: Any = NEW) -> ReaderSchema:
    return ReaderSchema(SchemaSource("AVRO", json.dumps(schema)), "orders-value", 2, 2)


def avro_values(schemas: Schemas) -> AvroValues:
    return AvroValues(reader(), schemas)  # type: ignore[arg-type]


def test_values_of_many_writers_keep_their_order() -> None:
    schemas = Schemas({1: ("AVRO", OLD), 2: ("AVRO", NEW), 3: ("AVRO", OTHER), 4: ("JSON", {"type": "object"})})
    values = [
        avro_value(2, NEW, {"id": 1, "amount": 2.5, "tags": ["a", "b"]}),
        avro_value(1, OLD, {"id": 2, "note": "x"}),
        None,
        b"no frame",
        avro_value(9, OLD, {"id": 3, "note": "x"}),
        avro_value(3, OTHER, {"id": 4}),
        avro_value(2, NEW, {"id": 5, "amount": 0.5, "tags": []}),
        b"\0\0\0\0\4{}",
        avro_value(1, OLD, {"id": 6, "note": "x"})[:-1],
        avro_value(1, OLD, {"id": 7, "note": "y"}),
    ]
    parser = avro_values(schemas)
    rows, reasons = parser.parsed(pa.array(values, pa.binary()))
    rows.validate(full=True)
    expected = [
        {"id": 1, "amount": 2.5, "tags": ["a", "b"]},
        {"id": 2, "amount": 0.0, "tags": []},
        *[None] * 4,
        {"id": 5, "amount": 0.5, "tags": []},
        *[None] * 2,
        {"id": 7, "amount": 0.0, "tags": []},
    ]
    assert rows.to_pylist() == expected
    said = reasons.to_pylist()
    assert said[3:6] == [
        NO_FRAME,
        "no schema 9",
        "Order can not read what Payment wrote: it is neither its name nor an alias",
    ]
    assert said[7] == "the schema with the id 4 is of the type JSON, and the reader's is Avro"
    assert said[8] == "a length or count is negative or leaves the value"
    assert [at for at, each in enumerate(said) if each is None] == [0, 1, 2, 6, 9]


def test_a_schema_is_asked_for_once_and_an_unknown_one_again() -> None:
    schemas = Schemas({1: ("AVRO", OLD)})
    parser = avro_values(schemas)
    known, unknown = avro_value(1, OLD, {"id": 1, "note": ""}), avro_value(2, NEW, {"id": 2, "amount": 1.0, "tags": []})
    for _ in range(3):
        parser.parsed(pa.array([known, unknown, unknown], pa.binary()))
    assert schemas.asked == [[1, 2], [2], [2]]
    schemas.schemas[2] = ("AVRO", NEW)
    rows, reasons = parser.parsed(pa.array([unknown], pa.binary()))
    assert rows.to_pylist() == [{"id": 2, "amount": 1.0, "tags": []}]
    assert reasons.null_count == 1


def test_a_schema_that_can_not_be_resolved_is_a_reason_of_its_rows() -> None:
    wrong = record_schema("Order", ("id", "string"))
    parser = avro_values(Schemas({1: ("AVRO", wrong), 2: ("AVRO", {"type": "nonsense"})}))
    values = [avro_value(1, wrong, {"id": "x"}), b"\0\0\0\0\2"]
    rows, reasons = parser.parsed(pa.array(values, pa.binary()))
    assert rows.to_pylist() == [None, None]
    first, second = reasons.to_pylist()
    assert first == "the reader has long where the writer wrote string"
    assert second.startswith("the schema with the id 2 can not be used")


def test_thousands_of_unknown_ids_are_asked_for_at_once() -> None:
    schemas = Schemas({})
    values = [b"\0" + each.to_bytes(4, "big") for each in range(1, 20_001)]
    rows, reasons = avro_values(schemas).parsed(pa.array(values, pa.binary()))
    assert rows.null_count == reasons.null_count + 20_000 == 20_000
    assert len(schemas.asked) == 1


def test_a_reader_without_columns_is_refused() -> None:
    endless = record_schema("L", ("next", ["null", "L"]))
    with pytest.raises(SparkFailed, match="version 2 of orders-value can not be read as columns: L contains itself"):
        AvroValues(reader(endless), Schemas({}))  # type: ignore[arg-type]


def test_json_values_are_handed_on_without_their_ids() -> None:
    handed: list[list[bytes | None]] = []

    def parse(payloads: pa.Array) -> tuple[pa.Array, Any]:
        handed.append(payloads.to_pylist())
        corrupt = [each == b"bad" for each in payloads.to_pylist()]
        return pa.array(
            [None if each is None or each == b"bad" else {"n": 1} for each in payloads.to_pylist()]
        ), corrupt

    parser = JsonValues(reader(), Schemas({1: ("JSON", {}), 2: ("AVRO", OLD)}), parse)  # type: ignore[arg-type]
    values = [b"\0\0\0\0\1{}", b"\0\0\0\0\2xx", None, b"{}", b"\0\0\0\0\1bad", b"\0\0\0\0\3{}"]
    rows, reasons = parser.parsed(pa.array(values, pa.binary()))
    assert handed == [[b"{}", None, None, None, b"bad", None]]
    assert rows.to_pylist() == [{"n": 1}, None, None, None, None, None]
    assert reasons.to_pylist() == [
        None,
        "the schema with the id 2 is of the type AVRO, and the reader's is JSON",
        None,
        NO_FRAME,
        "the value does not fit the schema",
        "no schema 3",
    ]


def test_the_option_says_the_same_again() -> None:
    schema = ReaderSchema(SchemaSource("AVRO", json.dumps(NEW), (("a", '"string"'),)), ":.ctx:orders-value", 3, 7)
    assert ReaderSchema.of_option(schema.option()) == schema
    assert ReaderSchema.of_option(json.dumps(NEW)) == ReaderSchema(SchemaSource("AVRO", json.dumps(NEW)))


def test_rows_are_written_with_the_id() -> None:
    encoder = RowEncoder(reader())
    rows = pa.array([{"id": 1, "amount": 2.5, "tags": ["a"]}, None])
    first, second = encoder.encoded(rows).to_pylist()
    assert first == avro_value(2, NEW, {"id": 1, "amount": 2.5, "tags": ["a"]})
    assert second is None
    # A column that is not there has its default.
    assert encoder.encoded(pa.array([{"id": 1}])).to_pylist() == [
        avro_value(2, NEW, {"id": 1, "amount": 0.0, "tags": []})
    ]


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"id": 1, "color": "red"}, "the column color is no field of version 2 of orders-value"),
        ({"amount": 1.0}, "the field id of version 2 of orders-value has no default"),
        ({"id": 1, "amount": None}, "a row does not fit version 2 of orders-value: amount: null is no number"),
    ],
)
def test_a_row_that_does_not_fit_is_refused(row: dict[str, Any], words: str) -> None:
    with pytest.raises(RowDoesNotFit, match=words):
        RowEncoder(reader()).encoded(pa.array([row]))
