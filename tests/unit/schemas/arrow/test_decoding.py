"""Avro values to columns: schema resolution, nested types, and values that can not be read."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest
from tests.unit.schemas.arrow.decoder_cases import TWINS, program_of, read, record, resolved, using, written

from strandline.schemas.arrow import decoding, ops
from strandline.schemas.arrow.columns import ColumnTree, columns_ddl
from strandline.schemas.avro.engine import AvroType
from strandline.schemas.types import InvalidSchema

TWIN = pytest.mark.parametrize("twin", TWINS)
ENUM = {"type": "enum", "name": "E", "symbols": ["A", "B", "C"]}


@TWIN
def test_every_type_becomes_a_column(twin: ModuleType) -> None:
    schema = record(
        ("boolean", "boolean"),
        ("int", "int"),
        ("long", "long"),
        ("float", "float"),
        ("double", "double"),
        ("bytes", "bytes"),
        ("string", "string"),
        ("fixed", {"type": "fixed", "name": "F", "size": 3}),
        ("enum", ENUM),
        ("day", {"type": "int", "logicalType": "date"}),
        ("millis", {"type": "long", "logicalType": "timestamp-millis"}),
        ("micros", {"type": "long", "logicalType": "timestamp-micros"}),
        ("local", {"type": "long", "logicalType": "local-timestamp-micros"}),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 2}),
        ("share", {"type": "fixed", "name": "D", "size": 4, "logicalType": "decimal", "precision": 6, "scale": 3}),
        ("nothing", "null"),
        ("tags", {"type": "array", "items": "string"}),
        ("counts", {"type": "map", "values": "long"}),
        ("inner", record(("x", "int"), name="I")),
        ("maybe", ["null", "string"]),
    )
    row = {
        "boolean": True,
        "int": -(2**31),
        "long": 2**63 - 1,
        "float": 0.5,
        "double": -1e300,
        "bytes": b"\x00\xff",
        "string": "é€😀",
        "fixed": b"abc",
        "enum": "C",
        "day": date(1969, 12, 31),
        "millis": datetime(2026, 1, 31, 9, 30, 0, 123000, tzinfo=UTC),
        "micros": datetime(1900, 1, 1, 0, 0, 0, 7, tzinfo=UTC),
        "local": datetime(2026, 1, 31, 9, 30),
        "price": Decimal("-123456789012345678.01"),
        "share": Decimal("-0.125"),
        "nothing": None,
        "tags": ["a", "", "c"],
        "counts": {"a": 1, "b": -1},
        "inner": {"x": 5},
        "maybe": None,
    }
    other = row | {"maybe": "here", "tags": [], "counts": {}, "price": Decimal("0.00"), "boolean": False, "double": 2.0}
    found = resolved(twin, schema, schema, row, other)
    assert found == [each | {"counts": list(each["counts"].items())} for each in (row, other)]


@TWIN
@pytest.mark.parametrize(
    ("writer", "reader", "value", "expected"),
    [
        ("int", "long", 7, 7),
        ("int", "float", 7, 7.0),
        ("int", "double", -7, -7.0),
        ("long", "double", 2**40, float(2**40)),
        ("long", "float", 3, 3.0),
        ("float", "double", 0.25, 0.25),
        ("string", "bytes", "é", "é".encode()),
        ("bytes", "string", "é".encode(), "é"),
        ("int", ["null", "long"], 7, 7),
        (["null", "int"], ["null", "double"], None, None),
        (["null", "int"], ["null", "double"], 3, 3.0),
        (["null", "int"], "long", 3, 3),
        (["int", "string"], ["string", "int"], "x", {"member0": "x", "member1": None}),
        (["null", "int", "string"], ["null", "string", "int"], None, None),
        (["null", "int", "string"], ["null", "string", "int"], 5, {"member0": None, "member1": 5}),
        ("int", ["string", "long"], 5, {"member0": None, "member1": 5}),
        ({"type": "array", "items": "int"}, {"type": "array", "items": ["null", "long"]}, [1, 2], [1, 2]),
        (ENUM, ENUM | {"symbols": ["C", "A"], "default": "A"}, "B", "A"),
        (ENUM, ENUM | {"symbols": ["C", "B", "A"]}, "B", "B"),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            {"type": "long", "logicalType": "timestamp-micros"},
            datetime(2026, 1, 1, tzinfo=UTC),
            datetime(2026, 1, 1, tzinfo=UTC),
        ),
    ],
)
def test_a_field_is_resolved(twin: ModuleType, writer: Any, reader: Any, value: Any, expected: Any) -> None:
    assert resolved(twin, record(("f", writer)), record(("f", reader)), {"f": value}) == [{"f": expected}]


@TWIN
def test_fields_are_removed_moved_and_renamed(twin: ModuleType) -> None:
    writer = record(
        ("a", "int"), ("gone", {"type": "array", "items": {"type": "map", "values": "string"}}), ("b", "string")
    )
    reader = record(("b", "string"), {"name": "renamed", "type": "int", "aliases": ["x", "a"]})
    row = {"a": 5, "gone": [{"k": "v", "l": "w"}, {}], "b": "text"}
    assert resolved(twin, writer, reader, row) == [{"b": "text", "renamed": 5}]


@TWIN
def test_a_missing_field_has_its_default(twin: ModuleType) -> None:
    inner = record(("x", "int"), {"name": "y", "type": "string", "default": "deep"}, name="I")
    defaults: list[tuple[Any, Any, Any]] = [
        ("int", -5, -5),
        ("double", 1, 1.0),
        ("float", 0.5, 0.5),
        ("boolean", True, True),
        ("string", "té", "té"),
        ("bytes", "\u00ff\u0000", b"\xff\x00"),
        (["null", "long"], None, None),
        (["long", "null"], 9, 9),
        (["null", "long"], 9, 9),
        ({"type": "array", "items": "int"}, [1, 2], [1, 2]),
        ({"type": "map", "values": "string"}, {"k": "v"}, [("k", "v")]),
        (ENUM, "B", "B"),
        ({"type": "fixed", "name": "F", "size": 2}, "ab", b"ab"),
        (inner, {"x": 1}, {"x": 1, "y": "deep"}),
        ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001\u0000", Decimal("2.56")),
    ]
    fields = [{"name": f"f{at}", "type": of, "default": default} for at, (of, default, _) in enumerate(defaults)]
    found = resolved(twin, record(("a", "int")), record(("a", "int"), *fields), {"a": 1}, {"a": 2})
    expected = {f"f{at}": value for at, (_, _, value) in enumerate(defaults)}
    assert found == [{"a": 1} | expected, {"a": 2} | expected]


@TWIN
def test_defaults_hold_for_each_item_of_an_array(twin: ModuleType) -> None:
    def items(*fields: Any) -> Any:
        return record(("items", {"type": "array", "items": record(("n", "int"), *fields, name="I")}))

    more = [{"name": f"d{at}", "type": "string", "default": "x" * at} for at in range(40)]
    rows = [{"items": [{"n": each} for each in range(count)]} for count in (0, 3, 1000)]
    found = resolved(twin, items(), items(*more), *rows)
    assert [len(each["items"]) for each in found] == [0, 3, 1000]
    assert found[2]["items"][999] == {"n": 999} | {f"d{at}": "x" * at for at in range(40)}


@TWIN
def test_arrays_in_maps_in_nullable_records(twin: ModuleType) -> None:
    inner = record(("lists", {"type": "map", "values": {"type": "array", "items": ["null", "int"]}}), name="I")
    schema = record(("inner", ["null", inner]), ("last", "string"))
    rows = [
        {"inner": None, "last": "a"},
        {"inner": {"lists": {"x": [1, None, 3], "y": []}}, "last": "b"},
        {"inner": {"lists": {}}, "last": "c"},
        {"inner": {"lists": {"z": [None]}}, "last": "d"},
    ]
    expected = [each | {"inner": each["inner"] and {"lists": list(each["inner"]["lists"].items())}} for each in rows]
    assert resolved(twin, schema, schema, *rows) == expected


@TWIN
def test_blocks_with_their_size_are_read_and_passed_over(twin: ModuleType) -> None:
    schema = record(("a", {"type": "array", "items": "int"}), ("b", "int"))
    # Two items in a block that says its size, one in a block that does not, and the end.
    blocks = b"\x03\x04\x02\x04" + b"\x02\x06" + b"\x00"
    with using(twin):
        rows, reasons = read(program_of(schema, schema), [blocks + b"\x0e"])
        assert (rows, reasons) == ([{"a": [1, 2, 3], "b": 7}], [None])
        rows, reasons = read(program_of(schema, record(("b", "int"))), [blocks + b"\x0e"])
        assert (rows, reasons) == ([{"b": 7}], [None])


@TWIN
def test_a_row_that_can_not_be_read_harms_no_other(twin: ModuleType) -> None:
    schema = record(("name", "string"), ("tags", {"type": "array", "items": "string"}))
    good = [written(schema, {"name": f"n{at}", "tags": ["x"] * at}) for at in range(4)]
    bad = good[3][:-2]
    payloads = [good[0], bad, good[1], good[2] + b"\x00", good[2], b"", good[3]]
    with using(twin):
        rows, reasons = read(program_of(schema, schema), payloads)
    assert [row and row["name"] for row in rows] == ["n0", None, "n1", None, "n2", None, "n3"]
    assert rows[6]["tags"] == ["x"] * 3
    assert [bool(each) for each in reasons] == [False, True, False, True, False, True, False]
    assert reasons[3] == ops.REASONS[ops.TOO_LONG]


@TWIN
def test_text_that_is_not_utf8_is_found_in_its_row(twin: ModuleType) -> None:
    schema = record(("a", "string"), ("m", {"type": "map", "values": "string"}))
    plain = record(("a", "bytes"), ("m", {"type": "map", "values": "bytes"}))
    texts = [
        b"ok",
        b"\xff",
        b"\xc0\x80",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xe2\x82",
        "é€😀\U0010ffff".encode(),
        b"\xf0\x80\x80\x80",
        b"\xe0\x80\x80",
        b"a\x80",
    ]
    payloads = [written(plain, {"a": each, "m": {}}) for each in texts]
    payloads += [written(plain, {"a": b"", "m": {"k": each}}) for each in texts]
    with using(twin):
        rows, reasons = read(program_of(schema, schema), payloads)
    is_text = [_is_text(each) for each in texts] * 2
    assert [each is None for each in reasons] == is_text
    assert {each for each in reasons if each} == {ops.REASONS[ops.BAD_TEXT]}
    assert [row is not None for row in rows] == is_text


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


@TWIN
def test_digits_beyond_a_decimals_precision_do_not_fit(twin: ModuleType) -> None:
    for precision in (1, 9, 18, 19, 20, 37, 38):
        schema = record(("d", {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": 0}))
        most = 10**precision - 1
        numbers = [most, -most, most + 1, -most - 1, 0, -1, 2**127 - 1, -(2**127), 2**64, -(2**64)]
        payloads = [written(record(("d", "bytes")), {"d": each.to_bytes(16, "big", signed=True)}) for each in numbers]
        with using(twin):
            rows, reasons = read(program_of(schema, schema), payloads)
        for number, row, reason in zip(numbers, rows, reasons, strict=True):
            assert row == ({"d": Decimal(number)} if abs(number) <= most else None)
            assert (reason is None) == (abs(number) <= most)


@TWIN
@pytest.mark.parametrize(
    ("writer", "reader", "value", "words"),
    [
        ("string", "int", "x", "the reader has int where the writer wrote string"),
        (["null", "int"], "int", None, "the reader has int where the writer wrote null"),
        (["null", "string"], ["null", "int"], "x", "the reader has int where the writer wrote string"),
        (ENUM, ENUM | {"symbols": ["A", "C"]}, "B", "an enum has no such symbol"),
        (record(("x", "int"), name="X"), record(("x", "int"), name="Y"), {"x": 1}, "Y can not read what X wrote"),
        ("int", ["string", "boolean"], 1, "the reader's union lacks the type int of the writer"),
    ],
)
def test_what_can_not_be_resolved_fails_with_a_reason(
    twin: ModuleType, writer: Any, reader: Any, value: Any, words: str
) -> None:
    with using(twin):
        program = program_of(record(("f", writer)), record(("f", reader)))
        rows, reasons = read(program, [written(record(("f", writer)), {"f": value})])
    assert rows == [None]
    assert reasons[0] is not None
    assert words in reasons[0]


@TWIN
def test_a_branch_that_can_not_be_resolved_harms_only_values_that_have_it(twin: ModuleType) -> None:
    writer, reader = record(("f", ["null", "string", "long"])), record(("f", ["null", "long"]))
    with using(twin):
        rows, reasons = read(program_of(writer, reader), [written(writer, {"f": each}) for each in (1, "x", None)])
    assert rows == [{"f": 1}, None, {"f": None}]
    assert reasons == [None, "the reader has long where the writer wrote string", None]


@TWIN
def test_a_field_without_a_default_that_was_not_written(twin: ModuleType) -> None:
    writer = record(("a", "int"))
    with using(twin):
        rows, reasons = read(program_of(writer, record(("a", "int"), ("b", "int"))), [written(writer, {"a": 1})])
    assert rows == [None]
    assert reasons == ["the field b has no default, and the writer did not write it"]


@TWIN
def test_more_rows_than_are_decoded_at_once(twin: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decoding, "SLOTS_MAX", 10)
    schema = record(("a", "int"), ("b", {"type": "array", "items": "int"}))
    values = [{"a": at, "b": list(range(at % 4))} for at in range(25)]
    assert resolved(twin, schema, schema, *values) == values


@TWIN
def test_no_rows_at_all(twin: ModuleType) -> None:
    schema = record(("a", "string"), ("b", {"type": "map", "values": "int"}))
    with using(twin):
        assert read(program_of(schema, schema), []) == ([], [])


def tree_of(schema: Any) -> ColumnTree:
    return ColumnTree(AvroType().parse(json.dumps(schema), {}).node)


def test_columns_in_sparks_words() -> None:
    schema = record(
        ("id", "long"),
        ("odd_name", ["null", "int"]),
        ("tags", {"type": "array", "items": ["null", "string"]}),
        (
            "by",
            {"type": "map", "values": record(("at", {"type": "long", "logicalType": "timestamp-millis"}), name="I")},
        ),
        ("price", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("huge", {"type": "bytes", "logicalType": "decimal", "precision": 60}),
        ("either", ["int", "string"]),
    )
    tree = tree_of(schema)
    assert columns_ddl(tree) == (
        "`id` BIGINT, `odd_name` INT, `tags` ARRAY<STRING>, `by` MAP<STRING, STRUCT<`at`: TIMESTAMP>>, "
        "`price` DECIMAL(9, 2), `huge` BINARY, `either` STRUCT<`member0`: INT, `member1`: STRING>"
    )
    assert tree.root.type.field("price").type == pa.decimal128(9, 2)


@pytest.mark.parametrize("schema", ["string", record()])
def test_what_has_no_columns(schema: Any) -> None:
    with pytest.raises(InvalidSchema, match="no columns"):
        columns_ddl(tree_of(schema))
