"""Arrow's types as those of Connect."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from strandline.connect.failures import ConnectFailed
from strandline.connect.schema import (
    DATE_SCHEMA,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectType,
    Schema,
    SchemaField,
    array,
    decimal_schema,
    map_of,
)

_UINT64_DIGITS: Final = 20
_KINDS: Final = {
    pa.int8(): ConnectType.INT8,
    pa.int16(): ConnectType.INT16,
    pa.int32(): ConnectType.INT32,
    pa.int64(): ConnectType.INT64,
    pa.float32(): ConnectType.FLOAT32,
    pa.float64(): ConnectType.FLOAT64,
    pa.bool_(): ConnectType.BOOLEAN,
    pa.string(): ConnectType.STRING,
    pa.binary(): ConnectType.BYTES,
}
_WIDER: Final = {
    pa.uint8(): pa.int16(),
    pa.uint16(): pa.int32(),
    pa.uint32(): pa.int64(),
    pa.uint64(): pa.decimal128(_UINT64_DIGITS, 0),
    pa.float16(): pa.float32(),
    pa.date32(): pa.date32(),
    pa.date64(): pa.date32(),
    pa.large_string(): pa.string(),
    pa.string_view(): pa.string(),
    pa.large_binary(): pa.binary(),
    pa.binary_view(): pa.binary(),
    pa.null(): pa.string(),
}


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema with types that Connect has, to cast to: timestamps become microseconds in UTC."""
    return pa.schema([_plain_field(each) for each in schema])


def struct_of(schema: pa.Schema) -> Schema:
    """Return the struct of a schema that `plain_schema` has made."""
    return Schema(
        ConnectType.STRUCT, fields=tuple(SchemaField(each.name, _connect(each.type, each.nullable)) for each in schema)
    )


def _plain_field(field: pa.Field) -> pa.Field:
    try:
        return pa.field(field.name, _plain(field.type), field.nullable)
    except TypeError as error:
        raise ConnectFailed(f"the column {field.name} has the Arrow type {error}, which Connect has none for") from None


def _plain(kind: pa.DataType) -> pa.DataType:
    types = pa.types
    if kind in _KINDS or types.is_decimal(kind):
        return kind
    if kind in _WIDER:
        return _WIDER[kind]
    if types.is_timestamp(kind):
        return pa.timestamp("us", "UTC")
    if types.is_time(kind):
        return pa.time64("us")
    if types.is_duration(kind):
        return pa.int64()
    if types.is_fixed_size_binary(kind):
        return pa.binary()
    if types.is_dictionary(kind):
        return _plain(kind.value_type)
    if types.is_struct(kind):
        return pa.struct([_plain_field(kind.field(index)) for index in range(kind.num_fields)])
    if types.is_map(kind):
        return pa.map_(_plain(kind.key_type), _plain(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return pa.list_(_plain_field(kind.value_field))
    if isinstance(kind, pa.BaseExtensionType):
        return _plain(kind.storage_type)
    raise TypeError(str(kind))


def _connect(kind: pa.DataType, is_optional: bool) -> Schema:
    types = pa.types
    if kind in _KINDS:
        return Schema(_KINDS[kind], is_optional)
    if types.is_decimal(kind):
        return decimal_schema(kind.scale, optional=is_optional)
    if types.is_list(kind):
        return array(_connect(kind.value_type, kind.value_field.nullable), optional=is_optional)
    if types.is_map(kind):
        values = _connect(kind.item_type, kind.item_field.nullable)
        return map_of(_connect(kind.key_type, False), values, optional=is_optional)
    if types.is_struct(kind):
        fields = (kind.field(index) for index in range(kind.num_fields))
        made = tuple(SchemaField(each.name, _connect(each.type, each.nullable)) for each in fields)
        return Schema(ConnectType.STRUCT, is_optional, fields=made)
    found = {pa.date32(): DATE_SCHEMA, pa.time64("us"): TIME_SCHEMA, pa.timestamp("us", "UTC"): TIMESTAMP_SCHEMA}[kind]
    return found.as_optional() if is_optional else found
