"""Rows as Avro values: fastavro reads what was meant, and what does not fit is said with its place."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
import pytest
from tests.unit.schemas.arrow.decoder_cases import record

from strandline.schemas.arrow.encoding import DoesNotFit, encoded
from strandline.schemas.arrow.framing import framed
from strandline.schemas.avro.engine import AvroType
from strandline.schemas.payloads.wire_format import with_prefix


def node_of(schema: Any) -> Any:
    return AvroType().parse(json.dumps(schema), {}).node


def read_back(schema: Any, data: bytes) -> Any:
    source = io.BytesIO(data)
    found = fastavro.schemaless_reader(source, fastavro.parse_schema(json.loads(json.dumps(schema))), None)
    assert not source.read()
    return found


@pytest.mark.parametrize(
    ("of", "value", "expected"),
    [
        ("null", None, None),
        ("boolean", True, True),
        ("int", -(2**31), -(2**31)),
        ("long", 2**63 - 1, 2**63 - 1),
        ("float", 0.5, 0.5),
        ("double", 3, 3.0),
        ("bytes", b"\xff", b"\xff"),
        ("string", "é", "é"),
        ({"type": "fixed", "name": "F", "size": 2}, b"ab", b"ab"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "B"),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "array", "items": "int"}, [], []),
        ({"type": "map", "values": "int"}, [("a", 1)], {"a": 1}),
        (["null", "string"], None, None),
        (["string", "null"], "x", "x"),
        (["int", "string"], {"member0": None, "member1": "x"}, "x"),
        (["null", "int", "string"], {"member0": 5, "member1": None}, 5),
        (["null", "int", "string"], None, None),
        ({"type": "int", "logicalType": "date"}, date(1960, 2, 29), date(1960, 2, 29)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
            datetime(1969, 12, 31, 23, 59, 59, 999000, tzinfo=UTC),
        ),
        (
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 6, "scale": 2},
            Decimal("-1.28"),
            Decimal("-1.28"),
        ),
        (
            {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 2},
            Decimal("1.5"),
            Decimal("1.50"),
        ),
        (record(("x", "int"), {"name": "y", "type": "string", "default": "d"}, name="I"), {"x": 1}, {"x": 1, "y": "d"}),
    ],
)
def test_fastavro_reads_what_was_meant(of: Any, value: Any, expected: Any) -> None:
    schema = record(("f", of))
    assert read_back(schema, encoded({"f": value}, node_of(schema))) == {"f": expected}


@pytest.mark.parametrize(
    ("of", "value", "words"),
    [
        ("int", 2**31, "f: int '2147483648' is no int"),
        ("int", None, "f: null is no int"),
        ("int", "7", "f: str '7' is no int"),
        ("string", 7, "f: int '7' is no string"),
        ("boolean", 1, "f: int '1' is no boolean"),
        ("float", 1e300, "f: float '1e+300' is no float"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B", "f: str 'B' is no symbol of E"),
        ({"type": "fixed", "name": "F", "size": 2}, b"abc", "is no fixed of 2 bytes"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}, Decimal("10.00"), "decimal(3,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}, Decimal("0.001"), "decimal(3,2)"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 2}, Decimal("NaN"), "decimal(3,2)"),
        ({"type": "array", "items": "int"}, [1, None], "f: null is no int"),
        (["int", "string"], {"member0": 1, "member1": "x"}, "of which one member is not null"),
        (["int", "string"], None, "of which one member is not null"),
        (record(("x", "int"), name="I"), {"x": "1"}, "f: x: str '1' is no int"),
    ],
)
def test_what_does_not_fit_is_said_with_its_place(of: Any, value: Any, words: str) -> None:
    with pytest.raises(DoesNotFit) as failure:
        encoded({"f": value}, node_of(record(("f", of))))
    assert words in str(failure.value)


def test_a_type_that_contains_itself_is_written() -> None:
    schema = record(("value", "int"), ("next", ["null", "R"]))
    row = {"value": 1, "next": {"value": 2, "next": None}}
    assert read_back(schema, encoded(row, node_of(schema))) == row


def test_frames_are_found_in_an_array_and_in_a_part_of_it() -> None:
    values = [
        with_prefix(7, b"payload"),
        None,
        b"",
        b"\x00\x00\x00",
        b"\x01\x00\x00\x00\x07x",
        with_prefix(2**31 - 1, b""),
        b"\x00\xff\xff\xff\xff",
        with_prefix(0x01020304, b"x"),
    ]
    array = pa.array([b"before", *values, b"behind"], pa.binary())[1:-1]
    found = framed(array)
    assert found.ids.tolist() == [7, -1, -2, -2, -2, 2**31 - 1, -2, 0x01020304]
    at = slice(found.starts[0], found.ends[0])
    assert found.data[at].tobytes() == b"payload"
    assert found.starts[5] == found.ends[5]
    assert framed(pa.array([], pa.binary())).ids.tolist() == []
    assert framed(pa.nulls(3, pa.binary())).ids.tolist() == [-1] * 3
    assert np.array_equal(framed(pa.array([b"", b""], pa.binary())).ids, [-2, -2])
