"""The verdict on pairs of Avro schemas: the resolution rules of the specification, row by row."""

from __future__ import annotations

import json
from typing import Any

import pytest

from strandline.schemas.avro.engine import AvroType

ENGINE = AvroType()

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
PROMOTED = {
    "int": ("long", "float", "double"),
    "long": ("float", "double"),
    "float": ("double",),
    "string": ("bytes",),
    "bytes": ("string",),
}
"""What each written type may be read as, besides itself."""


def reasons(reader: Any, writer: Any) -> list[tuple[str, str]]:
    read, written = (ENGINE.parse(json.dumps(each), {}) for each in (reader, writer))
    return [(each.kind, each.path) for each in read.differences(written)]


def record(*fields: Any, name: str = "R", **more: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Any = "int", **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> dict[str, Any]:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def decimal(precision: int, scale: int = 0) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


@pytest.mark.parametrize("writer", PRIMITIVES)
@pytest.mark.parametrize("reader", PRIMITIVES)
def test_primitives(reader: str, writer: str) -> None:
    fits = reader == writer or reader in PROMOTED.get(writer, ())
    assert reasons(reader, writer) == ([] if fits else [("TYPE_MISMATCH", "/")])
    inside = [] if fits else [("TYPE_MISMATCH", "/items")]
    assert reasons({"type": "array", "items": reader}, {"type": "array", "items": writer}) == inside
    in_map = [] if fits else [("TYPE_MISMATCH", "/values")]
    assert reasons({"type": "map", "values": reader}, {"type": "map", "values": writer}) == in_map
    in_field = [] if fits else [("TYPE_MISMATCH", "/fields/0/type")]
    assert reasons(record(field("f", reader)), record(field("f", writer))) == in_field
    # A writer's union: the reader must read each branch. A reader's union: one branch must read the writer.
    assert (reasons(reader, [writer]) == []) == fits
    assert reasons([reader], writer) == ([] if fits else [("MISSING_UNION_BRANCH", "/")])
    assert reasons([reader], [writer]) == ([] if fits else [("MISSING_UNION_BRANCH", "/0")])


COMPLEX = [
    record(),
    enum("A"),
    {"type": "fixed", "name": "F", "size": 2},
    {"type": "array", "items": "int"},
    {"type": "map", "values": "int"},
]


@pytest.mark.parametrize("one", range(5))
@pytest.mark.parametrize("other", range(5))
def test_kinds_do_not_mix(one: int, other: int) -> None:
    assert (reasons(COMPLEX[one], COMPLEX[other]) == []) == (one == other)
    for primitive in PRIMITIVES:
        assert reasons(COMPLEX[one], primitive) == [("TYPE_MISMATCH", "/")]
        assert reasons(primitive, COMPLEX[one]) == [("TYPE_MISMATCH", "/")]


A, B = field("a"), field("b", "string")
B_DEFAULT = field("b", "string", default="")

MISSING = "READER_FIELD_MISSING_DEFAULT_VALUE"
ROWS: list[tuple[str, Any, Any, list[tuple[str, str]]]] = [
    (
        "a field was added without a default",
        record(A, B),
        record(A),
        [(MISSING, "/fields/1")],
    ),
    ("a field was added with a default", record(A, B_DEFAULT), record(A), []),
    ("a field was added with the default null", record(A, field("n", ["null", "int"], default=None)), record(A), []),
    ("a field was removed", record(A), record(A, B), []),
    ("fields changed places", record(B, A), record(A, B), []),
    ("a field was renamed", record(field("c")), record(A), [(MISSING, "/fields/0")]),
    ("a field was renamed with an alias", record(field("c", aliases=["a"])), record(A), []),
    (
        "an alias of the writer counts for nothing",
        record(A),
        record(field("c", aliases=["a"])),
        [(MISSING, "/fields/0")],
    ),
    ("a field became wider", record(field("a", "long")), record(A), []),
    ("a field became narrower", record(A), record(field("a", "long")), [("TYPE_MISMATCH", "/fields/0/type")]),
    ("a field became optional", record(field("a", ["null", "int"])), record(A), []),
    ("a field became required", record(A), record(field("a", ["null", "int"])), [("TYPE_MISMATCH", "/fields/0/type")]),
    ("a record was renamed", record(A, name="S"), record(A), [("NAME_MISMATCH", "/name")]),
    ("a record was renamed with an alias", record(A, name="S", aliases=["R"]), record(A), []),
    ("a record moved to another namespace", record(A, name="n.R"), record(A, name="m.R"), []),
    (
        "two reasons at once",
        record(field("a", "null"), B),
        record(A),
        [("TYPE_MISMATCH", "/fields/0/type"), ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1")],
    ),
    ("a symbol was added", enum("A", "B"), enum("A"), []),
    ("a symbol was removed", enum("A"), enum("A", "B"), [("MISSING_ENUM_SYMBOLS", "/symbols")]),
    ("a symbol was removed, with a default", enum("A", default="A"), enum("A", "B"), []),
    ("symbols changed places", enum("B", "A"), enum("A", "B"), []),
    ("an enum was renamed", enum("A", name="F"), enum("A"), [("NAME_MISMATCH", "/name")]),
    ("an enum with a default was added as a field", record(field("e", enum("A", default="A"))), record(), []),
    (
        "a fixed changed its size",
        {"type": "fixed", "name": "F", "size": 3},
        {"type": "fixed", "name": "F", "size": 2},
        [("FIXED_SIZE_MISMATCH", "/size")],
    ),
    (
        "a fixed was renamed",
        {"type": "fixed", "name": "G", "size": 2},
        {"type": "fixed", "name": "F", "size": 2},
        [("NAME_MISMATCH", "/name")],
    ),
    ("a branch was added", ["null", "int", "string"], ["null", "int"], []),
    ("a branch was removed", ["null", "int"], ["null", "int", "string"], [("MISSING_UNION_BRANCH", "/2")]),
    ("branches changed places", ["int", "null"], ["null", "int"], []),
    ("a branch is read by promotion", ["null", "long"], ["null", "int"], []),
    ("a union is read by one type", "long", ["int", "long"], []),
    ("a union is not read by one type", "int", ["int", "long"], [("TYPE_MISMATCH", "/")]),
    ("a record in a union lost a field's default", [record(A, B)], [record(A)], [("MISSING_UNION_BRANCH", "/0")]),
    (
        "items of an array changed",
        {"type": "array", "items": "int"},
        {"type": "array", "items": "string"},
        [("TYPE_MISMATCH", "/items")],
    ),
    ("a decimal is the same", decimal(4, 2), decimal(4, 2), []),
    ("a decimal has another scale", decimal(4, 2), decimal(4, 1), [("TYPE_MISMATCH", "/")]),
    ("a decimal has another precision", decimal(5, 2), decimal(4, 2), [("TYPE_MISMATCH", "/")]),
    ("bytes became a decimal", decimal(4, 2), "bytes", []),
    ("a decimal that is none is ignored", {"type": "bytes", "logicalType": "decimal"}, decimal(4, 2), []),
    ("a date became a plain int", "int", {"type": "int", "logicalType": "date"}, []),
]


@pytest.mark.parametrize(("what", "reader", "writer", "found"), ROWS, ids=[row[0] for row in ROWS])
def test_rows_of_the_specification(what: str, reader: Any, writer: Any, found: list[tuple[str, str]]) -> None:
    assert reasons(reader, writer) == found

    # The same one level deeper: inside an array in a record.
    def wrap(schema: Any) -> Any:
        return record(field("deep", {"type": "array", "items": schema}), name="Outer")

    deeper = [(kind, "/fields/0/type/items" + ("" if path == "/" else path)) for kind, path in found]
    assert reasons(wrap(reader), wrap(writer)) == deeper


def test_recursive_types_are_compared() -> None:
    def tree(*more: Any) -> dict[str, Any]:
        return record(field("next", ["null", "Tree"]), *more, name="Tree")

    assert reasons(tree(), tree()) == []
    assert reasons(tree(B_DEFAULT), tree()) == []
    assert ("READER_FIELD_MISSING_DEFAULT_VALUE", "/fields/1") in reasons(tree(B), tree())
    assert ("TYPE_MISMATCH", "/fields/1/type") in reasons(tree(A), tree(field("a", "string")))


def test_a_message_says_where_and_why() -> None:
    new, old = record(A, B), record(A)
    (found,) = ENGINE.parse(json.dumps(new), {}).differences(ENGINE.parse(json.dumps(old), {}))
    assert "'b'" in found.message
    assert "/fields/1" in found.message
    assert "no default" in found.message
