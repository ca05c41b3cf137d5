"""Connect's schemas: the types of keys and values between converters, transforms and connectors.

Values are plain Python: a struct is a dict by field name, an array a list, a map a dict, bytes `bytes`. Logical types
have Python's own: Decimal `decimal.Decimal`, Date `datetime.date`, Time `datetime.time`, Timestamp an aware
`datetime.datetime`. A record without a schema has the values of its converter, for JSON those of `json.loads`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final


class ConnectType(StrEnum):
    """Connect's types, by the names that JSON with schemas has for them."""

    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float"
    FLOAT64 = "double"
    BOOLEAN = "boolean"
    STRING = "string"
    BYTES = "bytes"
    ARRAY = "array"
    MAP = "map"
    STRUCT = "struct"


DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
DATE: Final = "org.apache.kafka.connect.data.Date"
TIME: Final = "org.apache.kafka.connect.data.Time"
TIMESTAMP: Final = "org.apache.kafka.connect.data.Timestamp"
SCALE: Final = "scale"
"""The parameter of a Decimal: digits behind the point."""


@dataclass(frozen=True)
class Schema:
    """The type of a value. `name` and `version` are those of a logical type or of a struct."""

    kind: ConnectType
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    default: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict, hash=False)
    fields: tuple[SchemaField, ...] = ()
    """Those of a struct."""
    key_schema: Schema | None = None
    """That of a map's keys."""
    value_schema: Schema | None = None
    """That of an array's elements or a map's values."""

    def field(self, name: str) -> SchemaField | None:
        return next((each for each in self.fields if each.name == name), None)

    def as_optional(self) -> Schema:
        return self if self.optional else replace(self, optional=True)


@dataclass(frozen=True)
class SchemaField:
    """A field of a struct."""

    name: str
    schema: Schema


STRING: Final = Schema(ConnectType.STRING)
OPTIONAL_STRING: Final = Schema(ConnectType.STRING, optional=True)
BYTES: Final = Schema(ConnectType.BYTES)
OPTIONAL_BYTES: Final = Schema(ConnectType.BYTES, optional=True)
BOOLEAN: Final = Schema(ConnectType.BOOLEAN)
INT32: Final = Schema(ConnectType.INT32)
INT64: Final = Schema(ConnectType.INT64)
FLOAT64: Final = Schema(ConnectType.FLOAT64)
DATE_SCHEMA: Final = Schema(ConnectType.INT32, name=DATE, version=1)
TIME_SCHEMA: Final = Schema(ConnectType.INT32, name=TIME, version=1)
TIMESTAMP_SCHEMA: Final = Schema(ConnectType.INT64, name=TIMESTAMP, version=1)


def struct(
    fields: Mapping[str, Schema], *, name: str | None = None, version: int | None = None, optional: bool = False
) -> Schema:
    """Return the schema of a struct with these fields."""
    made = tuple(SchemaField(each, schema) for each, schema in fields.items())
    return Schema(ConnectType.STRUCT, optional, name, version, fields=made)


def array(elements: Schema, *, optional: bool = False) -> Schema:
    """Return the schema of an array."""
    return Schema(ConnectType.ARRAY, optional, value_schema=elements)


def map_of(keys: Schema, values: Schema, *, optional: bool = False) -> Schema:
    """Return the schema of a map."""
    return Schema(ConnectType.MAP, optional, key_schema=keys, value_schema=values)


def decimal_schema(scale: int, *, optional: bool = False) -> Schema:
    """Return the schema of a number with so many digits behind the point."""
    return Schema(ConnectType.BYTES, optional, DECIMAL, 1, parameters={SCALE: str(scale)})
