"""Programs of Avro schemas: they take what Avro's writers write, and nothing that a reader could not read."""

from __future__ import annotations

import io
import json
import random
from array import array
from typing import Any

import fastavro
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codec.test_record_walk import BOTH, reasons_until_it_stops, walk_of, with_id

from strandline.codec.columns import Record
from strandline.codec.columns.schema_codes import (
    BAD_BLOCK,
    BAD_BOOLEAN,
    BAD_BRANCH,
    BAD_INT,
    BAD_LENGTH,
    BAD_NUMBER,
    BAD_SYMBOL,
    BAD_TEXT,
    BYTES_LEFT,
    END,
    LEVELS_MAX,
    TOO_DEEP,
    TOO_LONG,
    TOO_SHORT,
)
from strandline.schemas.avro.engine import AvroType
from strandline.schemas.avro.program import program_of

LIST = {
    "type": "record",
    "name": "Cell",
    "fields": [{"name": "number", "type": "int"}, {"name": "next", "type": ["null", "Cell"]}],
}
ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "state", "type": {"type": "enum", "name": "State", "symbols": ["NEW", "PAID"]}},
        {"name": "lines", "type": {"type": "array", "items": LIST}},
        {"name": "tags", "type": {"type": "map", "values": ["null", "string", "double", "State"]}},
        {"name": "paid", "type": "boolean"},
        {"name": "hash", "type": {"type": "fixed", "name": "Hash", "size": 4}},
        {"name": "note", "type": "bytes"},
        {"name": "nothing", "type": "null"},
        {"name": "rate", "type": "float"},
    ],
}
CELLS = st.recursive(
    st.builds(lambda number: {"number": number, "next": None}, st.integers(-(2**31), 2**31 - 1)),
    lambda inner: st.builds(lambda number, rest: {"number": number, "next": rest}, st.integers(-5, 5), inner),
    max_leaves=5,
)
TEXTS = st.text(max_size=40)
ORDERS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "state": st.sampled_from(["NEW", "PAID"]),
        "lines": st.lists(CELLS, max_size=4),
        "tags": st.dictionaries(TEXTS, st.none() | TEXTS | st.floats(), max_size=4),
        "paid": st.booleans(),
        "hash": st.binary(min_size=4, max_size=4),
        "note": st.binary(max_size=30),
        "nothing": st.none(),
        "rate": st.floats(width=32),
    }
)


def walk_for(twin: Any, schema: Any, *, begin: int = 5) -> Any:
    """A walk that decodes values with one schema, whose program does not begin at zero."""
    walk = walk_of(twin, None, {1: begin}, decodes=True)
    node = AvroType().parse(json.dumps(schema), {}).node
    walk.value.set_program(array("i", [END] * begin + program_of(node, begin)))
    return walk


def verdicts(schema: Any, *payloads: bytes) -> list[int]:
    """Why each payload is not of the schema, or 0; the twins must say the same."""
    found = []
    for twin in BOTH:
        walk = walk_for(twin, schema)
        faults = reasons_until_it_stops(walk, [Record(value=with_id(1, payload)) for payload in payloads])
        whys = [0] * len(payloads)
        for row, _, _, _, _, why, _ in faults:
            whys[row] = why
        found.append(whys)
    assert all(each == found[0] for each in found)
    return found[0]


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


@given(st.lists(ORDERS, min_size=1, max_size=5))
@settings(max_examples=80, deadline=None)
def test_what_a_writer_writes_is_taken(orders: list[Any]) -> None:
    assert set(verdicts(ORDER, *(written(ORDER, each) for each in orders))) == {0}


@pytest.mark.lengthy("many examples, each of them costly")
@given(ORDERS, st.randoms(use_true_random=False))
@settings(max_examples=80, deadline=None)
def test_what_is_taken_a_reader_reads_to_its_end(order: Any, rng: random.Random) -> None:
    payload = written(ORDER, order)
    damaged = []
    for _ in range(30):
        spoilt = bytearray(payload)
        for _ in range(rng.choice((1, 1, 3))):
            spoilt[rng.randrange(len(spoilt))] = rng.choice((rng.randrange(256), 0, 1, 2, 0x7F, 0x80, 0xFF))
        damaged.append(bytes(spoilt))
    damaged += [payload[:size] for size in range(len(payload))]
    schema = fastavro.parse_schema(ORDER)
    for each, why in zip(damaged, verdicts(ORDER, *damaged), strict=True):
        if not why:
            source = io.BytesIO(each)
            fastavro.schemaless_reader(source, schema, None)
            assert source.tell() == len(each)
    assert 0 not in verdicts(ORDER, *damaged[30:]), "a payload that was cut"


@pytest.mark.parametrize(
    ("schema", "payload", "why"),
    [
        ("null", b"", 0),
        ("null", b"\0", BYTES_LEFT),
        ("boolean", b"\1", 0),
        ("boolean", b"\2", BAD_BOOLEAN),
        ("boolean", b"", TOO_SHORT),
        ("int", b"\xff\xff\xff\xff\x0f", 0),
        ("int", b"\x80\x80\x80\x80\x10", BAD_INT),
        ("int", b"\x80", TOO_SHORT),
        ("long", b"\xff" * 9 + b"\1", 0),
        ("long", b"\xff" * 9 + b"\2", BAD_NUMBER),
        ("long", b"\xff" * 11, BAD_NUMBER),
        ("float", b"1234", 0),
        ("float", b"123", TOO_SHORT),
        ("double", b"12345678", 0),
        ("bytes", b"\4\xff\xfe", 0),
        ("bytes", b"\6\xff\xfe", BAD_LENGTH),
        ("bytes", b"\1", BAD_LENGTH),
        ("string", b"\4\xc3\xa9", 0),
        ("string", b"\4\xff\xfe", BAD_TEXT),
        ("string", b"\x80\1" + b"x" * 64, 0),
        ("string", b"\x80\1" + b"x" * 62 + b"\xc3\xa9", 0),
        ("string", b"\x80\1" + b"x" * 63 + b"\xc3", BAD_TEXT),
        ({"type": "fixed", "name": "f", "size": 3}, b"abc", 0),
        ({"type": "fixed", "name": "f", "size": 3}, b"ab", TOO_SHORT),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\2", 0),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\4", BAD_SYMBOL),
        ({"type": "enum", "name": "e", "symbols": ["A", "B"]}, b"\1", BAD_SYMBOL),
        (["null", "int"], b"\0", 0),
        (["null", "int"], b"\2\2", 0),
        (["null", "int"], b"\4", BAD_BRANCH),
        (["null", "int"], b"\1", BAD_BRANCH),
        ({"type": "array", "items": "int"}, b"\4\2\2\2\2\0", 0),
        ({"type": "array", "items": "int"}, b"\3\4\2\2\0", 0),
        ({"type": "array", "items": "int"}, b"\3\6\2\2\0", BAD_BLOCK),
        ({"type": "array", "items": "int"}, b"\3\1\2\2\0", BAD_BLOCK),
        ({"type": "array", "items": "int"}, b"\3\x7e\2\2\0", BAD_BLOCK),
        ({"type": "array", "items": "int"}, b"\xff" * 9 + b"\1\2\2\0", BAD_BLOCK),
        ({"type": "array", "items": "int"}, b"\4\2\2", TOO_SHORT),
        ({"type": "array", "items": {"type": "array", "items": "int"}}, b"\4\2\2\0\0\0", 0),
        ({"type": "map", "values": "int"}, b"\2\2k\2\0", 0),
        ({"type": "map", "values": "int"}, b"\2\2\xff\2\0", BAD_TEXT),
        ({"type": "map", "values": {"type": "map", "values": "int"}}, b"\2\2k\2\2l\2\0\0", 0),
    ],
)
def test_each_type(schema: Any, payload: bytes, why: int) -> None:
    assert verdicts(schema, payload) == [why]


def test_how_deep_a_payload_may_be() -> None:
    # Each cell is a record: its number, and the branch of the union that has another cell.
    deepest = b"\2\2" * (LEVELS_MAX - 1) + b"\2\0"
    assert verdicts(LIST, deepest, b"\2\2" + deepest) == [0, TOO_DEEP]
    nested: Any = "int"
    for _ in range(100):
        nested = {"type": "array", "items": nested}
    assert verdicts(nested, b"\2" * 101 + b"\0" * 100) == [0]


def test_work_is_bounded_by_bytes() -> None:
    """Types without bytes cost nothing to write, and a schema may have any number of them."""
    assert verdicts({"type": "array", "items": "null"}, b"\xc8\1\0", b"\xfe" + b"\xff" * 7 + b"\x7e\0") == [0, TOO_LONG]
    laughs: Any = {"type": "record", "name": "L0", "fields": []}
    for level in range(1, 10):
        fields = [{"name": f"f{number}", "type": laughs if not number else f"L{level - 1}"} for number in range(10)]
        laughs = {"type": "record", "name": f"L{level}", "fields": fields}
    codes = program_of(AvroType().parse(json.dumps(laughs), {}).node, 0)
    assert len(codes) < 1_000, "a program is no longer than its schema"
    assert verdicts(laughs, b"") == [TOO_LONG]
