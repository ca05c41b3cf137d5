"""Our columns beside fastavro's objects: schemas that evolve, and values that are spoilt, as Hypothesis draws them."""

from __future__ import annotations

import io
import json
from datetime import UTC, date, datetime
from decimal import Decimal
from types import ModuleType
from typing import Any

import fastavro
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.schemas.arrow.decoder_cases import TWINS, program_of, read, using, written

TWIN = pytest.mark.parametrize("twin", TWINS)
SEARCH = settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
LEAVES = [
    "boolean",
    "int",
    "long",
    "float",
    "double",
    "bytes",
    "string",
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
]
PROMOTED = {"int": ["long", "double"], "long": ["double"], "float": ["double"], "string": ["bytes"]}
DEFAULTS: list[tuple[Any, Any]] = [
    ("int", 5),
    (["null", "string"], None),
    ("string", "new"),
    ({"type": "array", "items": "long"}, [1, 2]),
    ({"type": "map", "values": "boolean"}, {"k": True}),
]


@st.composite
def types(draw: st.DrawFn, number: list[int], level: int = 3) -> Any:
    kind = draw(
        st.sampled_from(["leaf", "leaf", "array", "map", "nullable", "record", "enum", "fixed"][: 8 if level else 2])
    )
    number[0] += 1
    name = f"T{number[0]}"
    match kind:
        case "array":
            return {"type": "array", "items": draw(types(number, level - 1))}
        case "map":
            return {"type": "map", "values": draw(types(number, level - 1))}
        case "nullable":
            inner = draw(types(number, level - 1))
            return inner if isinstance(inner, list) else draw(st.permutations(["null", inner]))
        case "record":
            return draw(records(number, level - 1, name))
        case "enum":
            return {"type": "enum", "name": name, "symbols": ["A", "B", "C"][: draw(st.integers(1, 3))]}
        case "fixed":
            return {"type": "fixed", "name": name, "size": draw(st.integers(0, 4))}
    return draw(st.sampled_from(LEAVES))


@st.composite
def records(draw: st.DrawFn, number: list[int], level: int, name: str) -> Any:
    count = draw(st.integers(1, 4))
    fields = [{"name": f"f{at}", "type": draw(types(number, level))} for at in range(count)]
    return {"type": "record", "name": name, "fields": fields}


@st.composite
def evolved(draw: st.DrawFn, schema: Any) -> Any:
    """Draw a schema that can read what the other wrote."""
    if isinstance(schema, list):
        return [each if each == "null" else draw(evolved(each)) for each in schema]
    if isinstance(schema, str):
        return draw(st.sampled_from([schema, *PROMOTED.get(schema, [])]))
    match schema["type"]:
        case "array":
            return schema | {"items": draw(evolved(schema["items"]))}
        case "map":
            return schema | {"values": draw(evolved(schema["values"]))}
        case "enum":
            return schema | {"symbols": draw(st.permutations([*schema["symbols"], "D"]))}
        case "record":
            return schema | {"fields": draw(evolved_fields(schema["fields"]))}
    return schema


@st.composite
def evolved_fields(draw: st.DrawFn, fields: list[Any]) -> list[Any]:
    found = []
    for field in fields:
        fate = draw(st.sampled_from(["kept", "kept", "renamed", "removed"]))
        if fate == "removed" and len(fields) > 1:
            continue
        change = {"type": draw(evolved(field["type"]))}
        if fate == "renamed":
            change |= {"name": f"{field['name']}_new", "aliases": [field["name"]]}
        found.append(field | change)
    for at in range(draw(st.integers(0, 2))):
        of, default = draw(st.sampled_from(DEFAULTS))
        found.append({"name": f"added{at}", "type": of, "default": default})
    return draw(st.permutations(found))


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        return st.one_of(*(values(each) for each in schema))
    kind = schema if isinstance(schema, str) else schema["type"]
    logical = "" if isinstance(schema, str) else schema.get("logicalType", "")
    match logical:
        case "date":
            return st.dates(date(1900, 1, 1), date(2200, 1, 1))
        case "timestamp-micros":
            return st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
        case "timestamp-millis":
            times = st.datetimes(datetime(1900, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))
            return times.map(lambda each: each.replace(microsecond=each.microsecond // 1000 * 1000))
        case "decimal":
            return st.integers(-(10**20) + 1, 10**20 - 1).map(lambda each: Decimal(each).scaleb(-3))
    plain: dict[str, st.SearchStrategy[Any]] = {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32, allow_nan=False),
        "double": st.floats(allow_nan=False),
        "bytes": st.binary(max_size=40),
        "string": st.text(max_size=40),
    }
    if kind in plain:
        return plain[kind]
    match kind:
        case "array":
            return st.lists(values(schema["items"]), max_size=4)
        case "map":
            return st.dictionaries(st.text(max_size=5), values(schema["values"]), max_size=4)
        case "enum":
            return st.sampled_from(schema["symbols"])
        case "fixed":
            return st.binary(min_size=schema["size"], max_size=schema["size"])
    return st.fixed_dictionaries({each["name"]: values(each["type"]) for each in schema["fields"]})


@st.composite
def cases(draw: st.DrawFn) -> tuple[Any, Any, list[Any]]:
    """Draw a writer, a reader and rows."""
    writer = draw(records([0], 3, "R"))
    reader = draw(evolved(writer))
    return writer, reader, draw(st.lists(values(writer), min_size=1, max_size=5))


def theirs(writer: Any, reader: Any, payload: bytes) -> Any:
    source = io.BytesIO(payload)
    found = fastavro.schemaless_reader(source, parsed(writer), parsed(reader))
    if source.read():
        raise ValueError("bytes are left")
    return found


def parsed(schema: Any) -> Any:
    return fastavro.parse_schema(json.loads(json.dumps(schema)))


def in_arrow(value: Any, schema: Any) -> Any:
    """Return fastavro's value in the form that Arrow has for it."""
    if isinstance(schema, list):
        if value is None:
            return None
        return in_arrow(value, next(each for each in schema if each != "null"))
    kind = schema if isinstance(schema, str) else schema["type"]
    match kind:
        case "array":
            return [in_arrow(each, schema["items"]) for each in value]
        case "map":
            return [(key, in_arrow(each, schema["values"])) for key, each in value.items()]
        case "record":
            return {each["name"]: in_arrow(value[each["name"]], each["type"]) for each in schema["fields"]}
        case "float":
            return float(np.float32(value))
        case "double":
            return float(value)
    return value


@pytest.mark.slow
@TWIN
@SEARCH
@given(case=cases())
def test_evolved_schemas_read_the_same(twin: ModuleType, case: tuple[Any, Any, list[Any]]) -> None:
    writer, reader, rows = case
    payloads = [written(writer, each) for each in rows]
    with using(twin):
        found, reasons = read(program_of(writer, reader), payloads)
    assert reasons == [None] * len(rows)
    assert found == [in_arrow(theirs(writer, reader, each), reader) for each in payloads]


SPOILT = st.lists(
    st.tuples(
        st.sampled_from(["cut", "set", "put", "repeat"]), st.integers(0, 10_000), st.binary(min_size=1, max_size=10)
    ),
    min_size=1,
    max_size=3,
)


def spoil(payload: bytes, ways: list[tuple[str, int, bytes]]) -> bytes:
    found = bytearray(payload)
    for way, at, data in ways:
        at %= len(found) + 1
        match way:
            case "cut":
                del found[at:]
            case "set":
                found[at : at + len(data)] = data
            case "put":
                found[at:at] = data
            case _:
                found += found[at:]
    return bytes(found)


def without_doubles(value: Any) -> Any:
    """Return a value with the last of each key in a map, as a dict has it, and with one name for a time zone."""
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC)
    if isinstance(value, dict):
        return {key: without_doubles(each) for key, each in value.items()}
    if isinstance(value, list) and value and isinstance(value[0], tuple):
        return sorted((key, repr(without_doubles(each))) for key, each in dict(value).items())
    return [without_doubles(each) for each in value] if isinstance(value, list) else value


@pytest.mark.slow
@TWIN
@SEARCH
@given(case=cases(), ways=SPOILT)
@example(
    case=({"type": "record", "name": "R", "fields": [{"name": "f0", "type": "bytes"}]},) * 2 + ([{"f0": b"x"}],),
    ways=[("set", 0, b"\xff" * 10)],
)
@example(
    # A length that reaches behind all values.
    case=({"type": "record", "name": "R", "fields": [{"name": "f0", "type": "string"}]},) * 2 + ([{"f0": "x"}],),
    ways=[("set", 0, b"\x7e")],
)
def test_spoilt_values_are_refused_or_read_the_same(
    twin: ModuleType, case: tuple[Any, Any, list[Any]], ways: list[tuple[str, int, bytes]]
) -> None:
    writer, reader, rows = case
    sound = written(writer, rows[0])
    payloads = [sound, spoil(sound, ways), sound]
    try:
        with using(twin):
            found, reasons = read(program_of(writer, reader), payloads)
    except OverflowError:
        # Arrow has dates that Python can not show.
        assert "logicalType" in json.dumps(writer)
        return
    # Its neighbours are what they would be without it.
    assert found[0] == found[2] == in_arrow(theirs(writer, reader, sound), reader)
    if reasons[1] is None:
        assert _same(found[1], writer, reader, payloads[1])


def _same(found: Any, writer: Any, reader: Any, payload: bytes) -> bool:
    try:
        expected = in_arrow(theirs(writer, reader, payload), reader)
    except UnicodeDecodeError:
        # A string that is none, and that the reader wants as bytes: fastavro makes a string of it first.
        return "bytes" in json.dumps(reader)
    except (OverflowError, ValueError, TypeError):
        # Python has no date as late as Avro's numbers can say; fastavro can not show it.
        return "logicalType" in json.dumps(writer)
    return repr(without_doubles(found)) == repr(without_doubles(expected))
