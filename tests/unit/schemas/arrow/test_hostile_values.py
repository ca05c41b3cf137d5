"""Values and schemas of strangers: the work is bounded, and each bad value is one bad row."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from tests.unit.schemas.arrow.decoder_cases import TWINS, program_of, read, record, using, written

from strandline.schemas.arrow import ops
from strandline.schemas.arrow.columns import COLUMN_LEVELS_MAX, COLUMNS_MAX, ColumnTree
from strandline.schemas.avro.engine import AvroType
from strandline.schemas.payloads.wire_format import write_long
from strandline.schemas.types import InvalidSchema

TWIN = pytest.mark.parametrize("twin", TWINS)
LIST = record(("value", "int"), ("next", ["null", "R"]))


def varint(number: int) -> bytes:
    out = bytearray()
    write_long(number, out)
    return bytes(out)


def reason_of(twin: ModuleType, writer: Any, reader: Any, payload: bytes) -> str | None:
    with using(twin):
        # Another record's bytes stand before and behind it, and must not be read.
        good = b"\x7f" * 64
        rows, reasons = read(program_of(writer, reader), [good, payload, good])
    assert (rows[1] is None) == (reasons[1] is not None)
    return reasons[1]


@TWIN
@pytest.mark.parametrize("wants", [True, False], ids=["read", "passed over"])
@pytest.mark.parametrize(
    ("of", "payload", "code"),
    [
        ("bytes", varint(10) + b"short", ops.BAD_LENGTH),
        ("bytes", varint(-1), ops.BAD_LENGTH),
        ("bytes", varint(2**62), ops.BAD_LENGTH),
        ("string", varint(-(2**63)), ops.BAD_LENGTH),
        ({"type": "fixed", "name": "F", "size": 2**31 - 1}, b"x", ops.CUT_SHORT),
        ({"type": "array", "items": "int"}, varint(2**62), ops.BAD_LENGTH),
        ({"type": "array", "items": "int"}, varint(-(2**63)) + varint(1), ops.BAD_LENGTH),
        ({"type": "array", "items": "int"}, varint(-5) + varint(-5), ops.BAD_LENGTH),
        ({"type": "array", "items": "null"}, varint(2**40) + b"\x00", ops.BAD_LENGTH),
        ({"type": "array", "items": record(name="Empty")}, varint(2**62) + b"\x00", ops.BAD_LENGTH),
        ({"type": "map", "values": "null"}, varint(3) + b"\x00", ops.CUT_SHORT),
        (["null", "int"], varint(2), ops.BAD_BRANCH),
        (["null", "int"], varint(-1), ops.BAD_BRANCH),
        ("long", b"\xff" * 9 + b"\x02", ops.BAD_NUMBER),
        ("long", b"\xff" * 20, ops.BAD_NUMBER),
        ("long", b"\xff", ops.CUT_SHORT),
        ("double", b"\x00" * 7, ops.CUT_SHORT),
        ("float", b"\x00" * 3, ops.CUT_SHORT),
    ],
)
def test_a_length_or_number_that_lies(twin: ModuleType, of: Any, payload: bytes, code: int, wants: bool) -> None:
    writer = record(("f", of), ("z", "int"))
    reader = writer if wants else record(("z", "int"))
    found = reason_of(twin, writer, reader, payload)
    # What ends too early may be seen as either.
    assert found in (ops.REASONS[code], ops.REASONS[ops.CUT_SHORT])


@TWIN
@pytest.mark.parametrize(
    ("of", "payload"),
    [
        ("int", varint(2**31)),
        ("int", varint(-(2**31) - 1)),
        ("boolean", b"\x02"),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(1)),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, varint(-1)),
        ({"type": "long", "logicalType": "timestamp-millis"}, varint(2**62)),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, varint(17) + b"\x00" * 17),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4}, varint(0)),
    ],
)
def test_a_number_that_its_type_does_not_have(twin: ModuleType, of: Any, payload: bytes) -> None:
    assert reason_of(twin, record(("f", of)), record(("f", of)), payload) is not None


@TWIN
def test_a_value_cut_anywhere_is_one_bad_row(twin: ModuleType) -> None:
    inner = record(("x", "double"), ("y", ["null", "string"]), name="I")
    schema = record(("a", "long"), ("b", {"type": "array", "items": inner}), ("c", {"type": "map", "values": "bytes"}))
    whole = written(schema, {"a": 2**60, "b": [{"x": 1.5, "y": "text"}, {"x": 2.5, "y": None}], "c": {"key": b"value"}})
    with using(twin):
        rows, reasons = read(program_of(schema, schema), [*(whole[:end] for end in range(len(whole))), whole])
        assert rows[:-1] == [None] * len(whole)
        assert all(reasons[:-1])
        assert rows[-1]["b"][1] == {"x": 2.5, "y": None}
        rows, reasons = read(program_of(schema, record(("a", "long"))), [whole[:end] for end in range(len(whole))])
        assert rows == [None] * len(whole)


@TWIN
def test_a_list_that_is_linked_too_deep(twin: ModuleType) -> None:
    writer = record(("list", LIST), ("z", "int"), name="Root")
    reader = record(("z", "int"), name="Root")
    for depth, is_read in ((20, True), (100_000, False)):
        # An int, and a branch that says that there is one more.
        payload = b"\x02\x02" * depth + b"\x02\x00" + b"\x0e"
        found = reason_of(twin, writer, reader, payload)
        assert found == (None if is_read else ops.REASONS[ops.TOO_MUCH])


@TWIN
def test_a_record_that_contains_itself_ends(twin: ModuleType) -> None:
    writer = record(("f", record(("self", "Endless"), name="Endless")), ("z", "int"))
    assert reason_of(twin, writer, record(("z", "int")), b"\x00") == ops.REASONS[ops.TOO_MUCH]


def laughs(levels: int, width: int) -> Any:
    """Return a record of records of records ..., without a byte in all of them."""
    inner: Any = record(name="L0")
    for level in range(1, levels):
        fields = [(f"f{at}", inner if at == 0 else f"L{level - 1}") for at in range(width)]
        inner = record(*fields, name=f"L{level}")
    return inner


@TWIN
def test_a_billion_records_without_bytes(twin: ModuleType) -> None:
    writer = record(("f", laughs(10, 10)), ("z", "int"))
    assert reason_of(twin, writer, record(("z", "int")), b"\x0e") == ops.REASONS[ops.TOO_MUCH]


def test_a_billion_columns_are_refused() -> None:
    node = AvroType().parse(json.dumps(laughs(10, 10)), {}).node
    with pytest.raises(InvalidSchema, match=f"more than {COLUMNS_MAX:,} columns"):
        ColumnTree(node)


def test_a_recursive_schema_has_no_columns() -> None:
    with pytest.raises(InvalidSchema, match="R contains itself"):
        ColumnTree(AvroType().parse(json.dumps(LIST), {}).node)


def test_columns_that_are_nested_too_deep() -> None:
    of: Any = "int"
    for _ in range(COLUMN_LEVELS_MAX + 1):
        of = {"type": "array", "items": of}
    with pytest.raises(InvalidSchema, match="inside one another"):
        ColumnTree(AvroType().parse(json.dumps(of), {}).node)


@TWIN
def test_the_deepest_columns_can_be_read(twin: ModuleType) -> None:
    of: Any = "int"
    value: Any = 7
    for _ in range(COLUMN_LEVELS_MAX - 3):
        of, value = {"type": "array", "items": of}, [value]
    schema = record(("f", of))
    with using(twin):
        rows, reasons = read(program_of(schema, schema), [written(schema, {"f": value})])
    assert (rows, reasons) == ([{"f": value}], [None])


def test_a_logical_type_that_is_no_word_is_ignored() -> None:
    tree = ColumnTree(
        AvroType().parse(json.dumps(record(("f", {"type": "long", "logicalType": ["timestamp-millis"]}))), {}).node
    )
    assert tree.root.children[0].ddl == "BIGINT"
