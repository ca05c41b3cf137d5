"""Connect's values between Python and the JSON values of Avro payloads.

Logical types are left out of the Avro schema here, so that a date is the number of its days and a decimal its bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from strandline.connect.convert.avro_names import UNION, branch_name, is_map_entry
from strandline.connect.convert.java_text import double_text
from strandline.connect.convert.json_writing import wrong_type
from strandline.connect.convert.logical import (
    date_of,
    days_of,
    decimal_of,
    moment_of,
    scale_of,
    time_ms_of,
    time_of,
    timestamp_ms_of,
    unscaled_of,
)
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectType, Schema
from strandline.schemas.avro.nodes import AvroNode
from strandline.schemas.payloads.avro_unions import UnionShape

Convert = Callable[[Any], Any]

_NOT_FINITE: Final = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def without_logical_types(node: AvroNode, seen: set[int] | None = None) -> AvroNode:
    """Remove the logical types of a schema, so that values are what Avro stores."""
    seen = set() if seen is None else seen
    if id(node) not in seen:
        seen.add(id(node))
        node.properties = {name: each for name, each in node.properties.items() if name != "logicalType"}
        for each in (*node.branches, *(field.type for field in node.fields), *([node.items] if node.items else [])):
            without_logical_types(each, seen)
    return node


# From Connect


def to_avro(schema: Schema) -> Convert:
    """Return a function that makes the JSON value of a Connect value."""
    convert = _logical_to_avro(schema) or _typed_to_avro(schema)
    default, optional = schema.default, schema.optional

    def convert_or_null(value: Any) -> Any:
        if value is not None:
            return convert(value)
        if default is not None:
            return convert(default)
        if optional:
            return None
        raise RecordFailed("null value for a field that is required and has no default value")

    return convert_or_null


def default_to_avro(schema: Schema, value: Any) -> Any:
    """Return a default as an Avro schema has it."""
    return to_avro(schema)(value)


def _logical_to_avro(schema: Schema) -> Convert | None:
    match schema.name:
        case str(name) if name == DATE:
            return days_of
        case str(name) if name == TIME:
            return time_ms_of
        case str(name) if name == TIMESTAMP:
            return timestamp_ms_of
        case str(name) if name == DECIMAL:
            scale = scale_of(schema)
            return lambda value: unscaled_of(value, scale).decode("latin-1")
    return None


def _typed_to_avro(schema: Schema) -> Convert:
    match schema.kind:
        case ConnectType.STRUCT:
            return _struct_to_avro(schema)
        case ConnectType.ARRAY:
            assert schema.value_schema is not None
            convert = to_avro(schema.value_schema)
            return lambda value: [convert(each) for each in _of_type(value, list | tuple, "ARRAY")]
        case ConnectType.MAP:
            return _map_to_avro(schema)
        case ConnectType.BYTES:
            return lambda value: bytes(_of_type(value, bytes | bytearray | memoryview, "BYTES")).decode("latin-1")
        case ConnectType.FLOAT32 | ConnectType.FLOAT64:
            return lambda value: double_text(value) if isinstance(value, float) and not math.isfinite(value) else value
    return lambda value: value


def _of_type(value: Any, wanted: Any, kind: str) -> Any:
    if not isinstance(value, wanted):
        raise wrong_type(kind, value)
    return value


def _map_to_avro(schema: Schema) -> Convert:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    keys, values = to_avro(schema.key_schema), to_avro(schema.value_schema)
    if schema.key_schema.kind is ConnectType.STRING and not schema.key_schema.optional:
        return lambda value: {key: values(each) for key, each in _of_type(value, dict, "MAP").items()}
    return lambda value: [
        {"key": keys(key), "value": values(each)} for key, each in _of_type(value, dict, "MAP").items()
    ]


def _struct_to_avro(schema: Schema) -> Convert:
    fields = [(each.name, to_avro(each.schema)) for each in schema.fields]
    names = frozenset(each.name for each in schema.fields)

    def convert(value: Any) -> Any:
        given = _of_type(value, dict, "STRUCT")
        if not given.keys() <= names:
            raise RecordFailed(f"the schema has no field {next(iter(given.keys() - names))!r}")
        found = {}
        for name, each in fields:
            try:
                found[name] = each(given.get(name))
            except RecordFailed as error:
                raise RecordFailed(f"{error} (field {name!r})") from None
        return found

    return convert


# To Connect


def from_avro(schema: Schema, node: AvroNode) -> Convert:
    """Return a function that makes the Connect value of a JSON value."""
    if node.kind == "union":
        return _union_from_avro(schema, node)
    return _logical_from_avro(schema) or _typed_from_avro(schema, node)


def default_from_avro(schema: Schema, node: AvroNode, value: Any) -> Any:
    """Return the default of a field. It is one of a union's first branch, and has no name around it."""
    if node.kind == "union":
        node = node.branches[0]
    return from_avro(schema, node)(value)


def _logical_from_avro(schema: Schema) -> Convert | None:
    match schema.name:
        case str(name) if name == DATE:
            return date_of
        case str(name) if name == TIME:
            return time_of
        case str(name) if name == TIMESTAMP:
            return moment_of
        case str(name) if name == DECIMAL:
            scale = scale_of(schema)
            return lambda value: decimal_of(value.encode("latin-1"), scale)
    return None


def _typed_from_avro(schema: Schema, node: AvroNode) -> Convert:
    match node.kind:
        case "record" | "error":
            pairs = zip(node.fields, schema.fields, strict=True)
            fields = [(each.name, from_avro(field.schema, each.type)) for each, field in pairs]
            return lambda value: {name: convert(value.get(name)) for name, convert in fields}
        case "array":
            assert node.items is not None
            if is_map_entry(node.items):
                return _entries_from_avro(schema, node.items)
            assert schema.value_schema is not None
            item = from_avro(schema.value_schema, node.items)
            return lambda value: [item(each) for each in value]
        case "map":
            assert node.items is not None
            assert schema.value_schema is not None
            item = from_avro(schema.value_schema, node.items)
            return lambda value: {key: item(each) for key, each in value.items()}
        case "bytes" | "fixed":
            return lambda value: value.encode("latin-1")
        case "float" | "double":
            return lambda value: _NOT_FINITE[value] if isinstance(value, str) else value
    return lambda value: value


def _entries_from_avro(schema: Schema, entry: AvroNode) -> Convert:
    assert schema.key_schema is not None
    assert schema.value_schema is not None
    key, value = entry.fields
    keys, values = from_avro(schema.key_schema, key.type), from_avro(schema.value_schema, value.type)

    def convert(entries: Sequence[Any]) -> Any:
        try:
            return {keys(each[key.name]): values(each[value.name]) for each in entries}
        except TypeError:
            raise RecordFailed("the keys of a map are arrays, maps or structs, which no map can have") from None

    return convert


def _union_from_avro(schema: Schema, node: AvroNode) -> Convert:
    shape = UnionShape(node)
    converts: list[Convert | None] = []
    for branch in node.branches:
        if branch.kind == "null":
            converts.append(None)
        elif schema.name == UNION:
            field = schema.field(branch_name(branch))
            assert field is not None
            converts.append(from_avro(field.schema, branch))
        else:
            converts.append(from_avro(schema, branch))

    def convert(value: Any) -> Any:
        index, inner = shape.choose(value)
        chosen = converts[index]
        if chosen is None:
            return None
        found = chosen(inner)
        return {branch_name(node.branches[index]): found} if schema.name == UNION else found

    return convert
