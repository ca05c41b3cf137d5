"""Avro payloads to JSON and back. fastavro, which shares no code with ours, writes what we read."""

from __future__ import annotations

import io
import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.schemas.avro.test_against_avro import schemas

from strandline.schemas.avro.engine import AvroType
from strandline.schemas.payloads.avro_reading import WEIGHTLESS_MAX, AvroToJson
from strandline.schemas.payloads.avro_writing import JsonToAvro
from strandline.schemas.payloads.failures import PayloadFailed
from strandline.schemas.payloads.wire_format import write_long

fastavro = pytest.importorskip("fastavro")

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "null": st.none(),
    "boolean": st.booleans(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32, allow_nan=False) | st.just(math.nan),
    "double": st.floats(allow_nan=False) | st.just(math.nan),
    "bytes": st.binary(max_size=5),
    "string": TEXTS,
}


def node(schema: Any) -> Any:
    return AvroType().parse(json.dumps(schema), {}).node


def values(schema: Any) -> st.SearchStrategy[Any]:
    """Draw values as fastavro takes them; one of a union is a pair with the branch's name."""
    match schema:
        case str():
            return VALUES[schema]
        case list():
            return st.one_of([st.tuples(st.just(each), VALUES[each]) for each in schema])
        case {"type": "array", "items": items}:
            return st.lists(values(items), max_size=3)
        case {"type": "map", "values": items}:
            return st.dictionaries(TEXTS, values(items), max_size=3)
        case {"type": "enum", "symbols": symbols}:
            return st.sampled_from(symbols)
        case {"type": "fixed", "size": size}:
            return st.binary(min_size=size, max_size=size)
    return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in schema["fields"]})


def encoded_by_fastavro(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def is_same(native: Any, shown: Any) -> bool:
    """Tell whether JSON shows a value of Python."""
    match native:
        case tuple():
            name, value = native
            return (isinstance(shown, dict) and shown.keys() == {name} and is_same(value, shown[name])) or is_same(
                value, shown
            )
        case bytes():
            return bool(shown == native.decode("latin-1"))
        case float() if not math.isfinite(native):
            return bool(shown == ("NaN" if math.isnan(native) else "Infinity" if native > 0 else "-Infinity"))
        case list():
            return len(native) == len(shown) and all(map(is_same, native, shown))
        case dict():
            return native.keys() == shown.keys() and all(is_same(native[name], shown[name]) for name in native)
    return bool(native == shown) and isinstance(native, bool) == isinstance(shown, bool)


@settings(max_examples=150, deadline=None)
@given(st.data(), schemas())
def test_what_fastavro_writes_is_shown_and_written_again(data: st.DataObject, schema: Any) -> None:
    value = data.draw(values(schema))
    payload = encoded_by_fastavro(schema, value)
    shown = AvroToJson(node(schema)).read(payload)
    assert is_same(value, shown), (schema, value, shown)
    as_text = json.loads(json.dumps(shown, allow_nan=False))
    assert JsonToAvro(node(schema)).write(as_text) == payload, (schema, value, shown)


@settings(max_examples=50, deadline=None)
@given(st.data(), schemas())
def test_a_payload_that_is_cut_or_garbage_fails_and_does_nothing_else(data: st.DataObject, schema: Any) -> None:
    payload = encoded_by_fastavro(schema, data.draw(values(schema)))
    reader = AvroToJson(node(schema))
    for end in range(len(payload)):
        with pytest.raises(PayloadFailed):
            reader.read(payload[:end])
    with pytest.raises(PayloadFailed, match="left behind"):
        reader.read(payload + b"\0")
    garbage = data.draw(st.binary(max_size=30))
    try:
        reader.read(garbage)
    except PayloadFailed:
        return


def logical(kind: str, meaning: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": meaning, **more}


PRICE = logical("bytes", "decimal", precision=6, scale=2)
EARLIEST_MS = -62135596800000
"""The first moment of the year 1."""


@pytest.mark.parametrize(
    ("schema", "stored", "shown"),
    [
        (logical("int", "date"), 20000, "2024-10-04"),
        (logical("int", "date"), -1, "1969-12-31"),
        (logical("int", "date"), 2**31 - 1, 2**31 - 1),
        (logical("int", "time-millis"), 3_723_004, "01:02:03.004"),
        (logical("long", "time-micros"), 3_723_004_005, "01:02:03.004005"),
        (logical("int", "time-millis"), -5, -5),
        (logical("long", "timestamp-millis"), 1_772_366_400_001, "2026-03-01T12:00:00.001Z"),
        (logical("long", "timestamp-micros"), -1, "1969-12-31T23:59:59.999999Z"),
        (logical("long", "timestamp-millis"), EARLIEST_MS, "0001-01-01T00:00:00.000Z"),
        (logical("long", "timestamp-millis"), EARLIEST_MS - 1, EARLIEST_MS - 1),
        (logical("long", "timestamp-micros"), 2**63 - 1, 2**63 - 1),
        (logical("long", "local-timestamp-millis"), 0, "1970-01-01T00:00:00.000"),
        (logical("long", "timestamp-nanos"), 5, 5),
        (logical("string", "uuid"), "not checked", "not checked"),
        (PRICE, b"\x04\xd2", "12.34"),
        (PRICE, b"\xff", "-0.01"),
        (PRICE, b"\0", "0.00"),
        (logical("bytes", "decimal", precision=3), b"\x80", "-128"),
        (logical("fixed", "decimal", name="F", size=3, precision=5, scale=5), b"\0\0\x07", "0.00007"),
        (logical("fixed", "uuid", name="U", size=16), bytes(range(16)), "00010203-0405-0607-0809-0a0b0c0d0e0f"),
        (logical("bytes", "decimal", precision=2, scale=9), b"a", "a"),
    ],
)
def test_logical_types_are_shown_as_people_write_them(schema: Any, stored: Any, shown: Any) -> None:
    raw = {name: value for name, value in schema.items() if name != "logicalType"}
    payload = encoded_by_fastavro(raw, stored)
    assert AvroToJson(node(schema)).read(payload) == shown
    assert JsonToAvro(node(schema)).write(shown) == payload


@pytest.mark.parametrize(
    ("schema", "value", "reason"),
    [
        ("int", 2**31, "too large for int"),
        ("int", True, "true is no int"),
        ("int", 1, None),
        ("long", 1.0, "1.0 is no long"),
        ("float", 1e39, "too large for float"),
        ("double", "5", "'5' is no double"),
        ("double", 5, None),
        ("string", None, "null is no string"),
        ("string", "\ud800", "surrogate"),
        ("bytes", "\u0100", "U+00FF"),
        ("boolean", 0, "0 is no boolean"),
        ("null", 0, "0 is not null"),
        ({"type": "fixed", "name": "F", "size": 2}, "abc", "F has 2 bytes, not 3"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "C", "'C' is no symbol of E: it has A, B"),
        ({"type": "array", "items": "int"}, [1, "x"], "at [1]: 'x' is no int"),
        ({"type": "map", "values": "int"}, {"a": "x"}, "at a: 'x' is no int"),
        (["null", "int"], "x", "'x' is none of null, int"),
        (["int", "long"], 5, 'say which type it is, as {"int": ...}; the union has int, long'),
        (["int", "long"], {"long": 5}, None),
        (["null", "string"], {"string": "x"}, None),
        (["null", "double"], "NaN", None),
        (["null", PRICE], 12.5, None),
        (PRICE, "12.345", "more than 2 digits behind the point"),
        (PRICE, "12345.6", "more than 6 digits"),
        (PRICE, "1e999999999", "more than 6 digits"),
        (PRICE, "0e999999999", None),
        (PRICE, "NaN", "no number"),
        (logical("int", "date"), "2026-02-30", "is no date"),
        (logical("long", "timestamp-millis"), "2026-03-01T12:00:00", "the zone is missing"),
        (logical("long", "timestamp-millis"), "2026-03-01T12:00:00.0001Z", "more digits"),
        (logical("long", "timestamp-millis"), "2026-03-01T13:00:00+01:00", None),
    ],
)
def test_a_value_that_does_not_fit_says_why(schema: Any, value: Any, reason: str | None) -> None:
    writer = JsonToAvro(node(schema))
    if reason is None:
        writer.write(value)
        return
    with pytest.raises(PayloadFailed) as failed:
        writer.write(value)
    assert reason in str(failed.value)


def test_fields_are_all_there_or_have_a_default() -> None:
    kinds = ["int", "long", "null"]
    fields = [{"name": "id", "type": "int"}, {"name": "tags", "type": {"type": "array", "items": "string"}}]
    fields += [{"name": "size", "type": kinds, "default": 3}, {"name": "raw", "type": PRICE, "default": "\xff"}]
    schema = node({"type": "record", "name": "R", "fields": fields})
    writer, reader = JsonToAvro(schema), AvroToJson(schema)
    payload = writer.write({"id": 1, "tags": ["a"]})
    assert reader.read(payload) == {"id": 1, "tags": ["a"], "size": {"int": 3}, "raw": "-0.01"}
    with pytest.raises(PayloadFailed, match="the field 'tags' of R is missing, and has no default"):
        writer.write({"id": 1})
    with pytest.raises(PayloadFailed, match="R has no field 'tag'; did you mean 'tags'"):
        writer.write({"id": 1, "tag": []})
    with pytest.raises(PayloadFailed, match=r"at tags\[0\]: 1 is no string"):
        writer.write({"id": 1, "tags": [1]})


CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}


def test_deep_and_endless_payloads_end() -> None:
    """What would end a process, or never end, is a failure. The schemas are legal."""
    with pytest.raises(PayloadFailed, match="nested too deep"):
        AvroToJson(node(CHAIN)).read(b"\x02" * 500_000 + b"\0")
    own = {"type": "record", "name": "Own", "fields": [{"name": "self", "type": "Own"}]}
    with pytest.raises(PayloadFailed, match="nested too deep"):
        AvroToJson(node(own)).read(b"")
    nulls = {"type": "array", "items": "null"}
    many = bytearray()
    write_long(2**60, many)
    with pytest.raises(PayloadFailed, match="take no bytes"):
        AvroToJson(node(nulls)).read(bytes(many) + b"\0")
    some = bytearray()
    write_long(WEIGHTLESS_MAX, some)
    reader = AvroToJson(node({"type": "array", "items": nulls}))
    assert len(reader.read(b"\x02" + bytes(some) + b"\0\0")[0]) == WEIGHTLESS_MAX
    with pytest.raises(PayloadFailed, match="take no bytes"):
        reader.read(b"\x04" + (bytes(some) + b"\0") * 2 + b"\0")
    value: dict[str, Any] = {"next": None}
    for _ in range(100_000):
        value = {"next": value}
    with pytest.raises(PayloadFailed, match="nested too deep"):
        JsonToAvro(node(CHAIN)).write(value)


def test_a_block_with_its_size_in_front_is_read() -> None:
    # Count -2, then the size of the items, then the items: Java writes large arrays so.
    assert AvroToJson(node({"type": "array", "items": "int"})).read(b"\x03\x04\x02\x04\0") == [1, 2]
