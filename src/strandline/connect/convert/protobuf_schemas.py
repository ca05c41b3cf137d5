"""Connect's schemas as Protobuf files and back, by Confluent's conventions.

Small numbers and the scale of a decimal are in the option `confluent.field_meta`. An optional field is `optional`, so
that null and zero are not the same.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from google.protobuf.descriptor import Descriptor, FieldDescriptor

from strandline.connect.convert.logical import scale_of
from strandline.connect.convert.struct_names import StructNames
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import (
    DATE,
    DATE_SCHEMA,
    DECIMAL,
    SCALE,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    ConnectType,
    Schema,
    SchemaField,
    decimal_schema,
)
from strandline.schemas.protobuf.linking import Linked
from strandline.schemas.protobuf.options import OptionPool, option_messages

ENUM: Final = "io.confluent.connect.protobuf.Enum"
DEFAULT_NAME: Final = "ConnectDefault1"
_META: Final = 1088

_TYPES: Final = {
    ConnectType.INT8: "int32",
    ConnectType.INT16: "int32",
    ConnectType.INT32: "int32",
    ConnectType.INT64: "int64",
    ConnectType.FLOAT32: "float",
    ConnectType.FLOAT64: "double",
    ConnectType.BOOLEAN: "bool",
    ConnectType.STRING: "string",
    ConnectType.BYTES: "bytes",
}
_SMALL: Final = {ConnectType.INT8: "int8", ConnectType.INT16: "int16"}
KEY_KINDS: Final = frozenset((ConnectType.STRING, ConnectType.INT32, ConnectType.INT64, ConnectType.BOOLEAN))
"""Kinds of keys that Protobuf's maps have."""
_MESSAGES: Final = {
    DATE: ("google.type.Date", "google/type/date.proto"),
    TIME: ("google.type.TimeOfDay", "google/type/timeofday.proto"),
    TIMESTAMP: ("google.protobuf.Timestamp", "google/protobuf/timestamp.proto"),
    DECIMAL: ("confluent.type.Decimal", "confluent/type/decimal.proto"),
}
_LOGICAL: Final = {
    "google.type.Date": DATE_SCHEMA,
    "google.type.TimeOfDay": TIME_SCHEMA,
    "google.protobuf.Timestamp": TIMESTAMP_SCHEMA,
}
_KINDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: ConnectType.INT32,
    FieldDescriptor.CPPTYPE_INT64: ConnectType.INT64,
    FieldDescriptor.CPPTYPE_UINT32: ConnectType.INT64,
    FieldDescriptor.CPPTYPE_UINT64: ConnectType.INT64,
    FieldDescriptor.CPPTYPE_FLOAT: ConnectType.FLOAT32,
    FieldDescriptor.CPPTYPE_DOUBLE: ConnectType.FLOAT64,
    FieldDescriptor.CPPTYPE_BOOL: ConnectType.BOOLEAN,
}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_WRAPPERS: Final = re.compile(
    r"google\.protobuf\.(Double|Float|Int64|UInt64|Int32|UInt32|Bool|String|Bytes)Value", re.ASCII
)


class _Nested:
    """The messages that are defined inside a message."""

    def __init__(self, fields: Sequence[SchemaField]) -> None:
        self.names: Final = StructNames()
        self.lines: Final[dict[str, list[str]]] = {}
        for field in fields:
            schema = field.schema
            if schema.kind in (ConnectType.ARRAY, ConnectType.MAP) and schema.value_schema is not None:
                schema = schema.value_schema
            if schema.kind is ConnectType.STRUCT:
                self.names.add(_struct_name(schema, field.name), schema, field.name)


class ProtobufText:
    """Writes the file of one struct."""

    def __init__(self, schema: Schema) -> None:
        if schema.kind is not ConnectType.STRUCT:
            raise RecordFailed(f"a value of Protobuf is a struct, not {schema.kind.name}: wrap it with HoistField")
        self._imports: set[str] = set()
        package, _, name = (schema.name or DEFAULT_NAME).rpartition(".")
        message = self._message(schema, _valid(name), "")
        lines = ['syntax = "proto3";']
        if package:
            lines.append(f"package {'.'.join(_valid(each) for each in package.split('.'))};")
        lines += [f'import "{each}";' for each in sorted(self._imports)]
        self.text = "\n".join([*lines, "", *message, ""])

    def _message(self, schema: Schema, name: str, indent: str) -> list[str]:
        inside = f"{indent}  "
        nested = _Nested(schema.fields)
        fields = [
            f"{inside}{self._field(each, number, nested, inside)}" for number, each in enumerate(schema.fields, 1)
        ]
        inner = [line for lines in nested.lines.values() for line in lines]
        return [f"{indent}message {name} {{", *fields, *inner, f"{indent}}}"]

    def _field(self, field: SchemaField, number: int, nested: _Nested, indent: str) -> str:
        if _NAME.fullmatch(field.name) is None:
            raise RecordFailed(f"Protobuf has no field with the name {field.name!r}: rename it with ReplaceField")
        schema = field.schema
        label = "optional " if schema.optional else ""
        if schema.kind is ConnectType.ARRAY:
            assert schema.value_schema is not None
            schema, label = schema.value_schema, "repeated "
        elif schema.kind is ConnectType.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            if schema.key_schema.kind not in KEY_KINDS:
                raise RecordFailed(f"Protobuf has no map with keys of {schema.key_schema.kind.name}")
            value = self._type(schema.value_schema, field.name, nested, indent)
            return f"map<{_TYPES[schema.key_schema.kind]}, {value}> {field.name} = {number};"
        meta = self._meta(schema)
        return f"{label}{self._type(schema, field.name, nested, indent)} {field.name} = {number}{meta};"

    def _type(self, schema: Schema, field: str, nested: _Nested, indent: str) -> str:
        if schema.name in _MESSAGES:
            name, file = _MESSAGES[schema.name]
            self._imports.add(file)
            return f".{name}"
        if schema.kind in (ConnectType.ARRAY, ConnectType.MAP):
            raise RecordFailed(f"Protobuf has no array of arrays or maps (field {field!r})")
        if schema.kind is not ConnectType.STRUCT:
            return _TYPES[schema.kind]
        name = nested.names.name(_struct_name(schema, field), schema)
        if name not in nested.lines:
            nested.lines[name] = self._message(schema, name, indent)
        return name

    def _meta(self, schema: Schema) -> str:
        parameters = {}
        if schema.kind in _SMALL:
            parameters["connect.type"] = _SMALL[schema.kind]
        if schema.name == DECIMAL:
            parameters[SCALE] = str(scale_of(schema))
        if not parameters:
            return ""
        self._imports.add("confluent/meta.proto")
        pairs = ", ".join(f"{{key: {json.dumps(key)}, value: {json.dumps(each)}}}" for key, each in parameters.items())
        return f" [(confluent.field_meta) = {{params: [{pairs}]}}]"


def _struct_name(schema: Schema, field: str) -> str:
    return _valid((schema.name or f"{field}_message").rpartition(".")[2])


def _valid(name: str) -> str:
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{found}" if not found or found[0].isdigit() else found


class ProtobufSchemas:
    """Connect's schemas of the messages of one file."""

    def __init__(self, linked: Linked) -> None:
        self._file = linked.file
        self._pool = linked.pool()
        self._parameters = dict(_parameters(linked))

    def message(self, indexes: tuple[int, ...]) -> tuple[Schema, Any]:
        """Return the schema of a message, by its place in the file, and its descriptor."""
        names = [self._file.package] if self._file.package else []
        here: Any = self._file.message_type
        for index in indexes:
            if not 0 <= index < len(here):
                raise RecordFailed(f"the schema has no message {list(indexes)}")
            names.append(here[index].name)
            here = here[index].nested_type
        descriptor = self._pool.FindMessageTypeByName(".".join(names))
        return self._struct(descriptor, ()), descriptor

    def _struct(self, message: Descriptor, within: tuple[str, ...]) -> Schema:
        if message.full_name in within:
            raise RecordFailed(f"the message {message.full_name} contains itself, which Connect cannot describe")
        inside = (*within, message.full_name)
        fields = tuple(SchemaField(each.name, self._field(each, inside)) for each in message.fields)
        name = message.full_name if message.full_name != DEFAULT_NAME else None
        return Schema(ConnectType.STRUCT, name=name, fields=fields)

    def _field(self, field: FieldDescriptor, within: tuple[str, ...]) -> Schema:
        if is_map(field):
            keys, values = (self._field(each, within) for each in field.message_type.fields)
            return Schema(
                ConnectType.MAP, key_schema=replace(keys, optional=False), value_schema=replace(values, optional=False)
            )
        found = self._single(field, within)
        if field.is_repeated:
            return Schema(ConnectType.ARRAY, value_schema=found)
        return found.as_optional() if field.has_presence else found

    def _single(self, field: FieldDescriptor, within: tuple[str, ...]) -> Schema:
        parameters = self._parameters.get(field.full_name, {})
        if field.message_type is not None:
            full = field.message_type.full_name
            if full == _MESSAGES[DECIMAL][0]:
                return decimal_schema(int(parameters.get(SCALE, "0")))
            if _WRAPPERS.fullmatch(full):
                return self._single(field.message_type.fields[0], within)
            if full in _LOGICAL:
                return _LOGICAL[full]
            if full.startswith("google.protobuf."):
                raise RecordFailed(f"Connect has no type for {full} (field {field.full_name})")
            return self._struct(field.message_type, within)
        if field.enum_type is not None:
            names = {f"{ENUM}.{each.name}": each.name for each in field.enum_type.values}
            return Schema(ConnectType.STRING, parameters={ENUM: field.enum_type.name, **names})
        if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            return Schema(ConnectType.BYTES if field.type == FieldDescriptor.TYPE_BYTES else ConnectType.STRING)
        small = parameters.get("connect.type")
        return Schema(ConnectType(small) if small in ("int8", "int16") else _KINDS[field.cpp_type])


def is_map(field: FieldDescriptor) -> bool:
    """Return whether a field is a map; Protobuf has it as a list of entries."""
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def _parameters(linked: Linked) -> Any:
    """Yield the full name of each field that has `confluent.field_meta`, and its parameters."""
    pool = OptionPool(linked)
    for scope, holder in option_messages(linked.file):
        if not hasattr(holder, "json_name") or not holder.HasField("options"):
            continue
        for option, value in pool.decoded(holder.options, is_custom=True).ListFields():
            if option.number == _META:
                found: Mapping[str, str] = dict(value.params)
                yield f"{scope}.{holder.name}", found
