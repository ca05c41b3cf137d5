"""JSON texts as structs: the schema is what the text shows, as Debezium's outbox makes it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.cdc.names import field_name
from strandline.connect.convert.interface import SCHEMAS_KEPT_MAX
from strandline.connect.schema import (
    BOOLEAN,
    FLOAT64,
    INT32,
    INT64,
    OPTIONAL_BYTES,
    OPTIONAL_STRING,
    ConnectType,
    Schema,
    SchemaField,
    array,
)

_INT32_MAX: Final = 2**31
_INT64_MAX: Final = 2**63
_BOOLEAN: Final = BOOLEAN.as_optional()
_INT32: Final = INT32.as_optional()
_INT64: Final = INT64.as_optional()
_FLOAT64: Final = FLOAT64.as_optional()


class ExpandedJson:
    """Parses texts, and finds their schemas. The same shape always has the same schema object."""

    def __init__(self, *, keeps_nulls: bool, keeps_empty_arrays: bool, adjustment: str) -> None:
        self._keeps_nulls = keeps_nulls
        self._keeps_empty_arrays = keeps_empty_arrays
        self._adjustment = adjustment
        self._known: dict[Schema, Schema] = {}

    def parsed(self, text: str) -> Any:
        """Return the object or array of a text. Raise ValueError if it is neither."""
        if not text.lstrip().startswith(("{", "[")):
            raise ValueError(f"Unable to parse payload starting with {text[:1]!r}")
        return json.loads(text)

    def expand(self, name: str, text: str) -> tuple[Schema, Any]:
        """Return the schema and the value of a text. Raise ValueError if it has none."""
        found = self.parsed(text)
        schema = self._schema(name, found)
        if schema is None:
            raise ValueError("an empty array has no schema")
        if len(self._known) >= SCHEMAS_KEPT_MAX:
            self._known.clear()
        schema = self._known.setdefault(schema, schema)
        return schema, self._value(found, schema)

    def _schema(self, name: str, found: Any) -> Schema | None:
        match found:
            case None:
                return OPTIONAL_BYTES if self._keeps_nulls else None
            case bool():
                return _BOOLEAN
            case str():
                return OPTIONAL_STRING
            case int() | float():
                return _number(found)
            case list():
                return self._array(name, found)
        fields: dict[str, Schema] = {}
        for key, each in found.items():
            field = field_name(key, self._adjustment)
            schema = self._schema(f"{name}.{field}" if name else field, each)
            if schema is not None:
                fields.setdefault(field, schema)
        return _struct(name, fields)

    def _array(self, name: str, found: list[Any]) -> Schema | None:
        present = [each for each in found if each is not None]
        if not found:
            return array(OPTIONAL_STRING, optional=True) if self._keeps_empty_arrays else None
        if not present:
            raise ValueError("an array of nulls has no schema")
        if all(isinstance(each, dict) for each in present):
            merged: dict[str, Schema] = {}
            for each in present:
                made = self._schema(name, each)
                assert made is not None
                for field in made.fields:
                    if field.name not in merged or merged[field.name].kind is ConnectType.BYTES:
                        merged[field.name] = field.schema
            return array(_struct(name, merged), optional=True)
        schemas = [self._schema("", each) for each in present]
        if schemas[0] is None or any(each != schemas[0] for each in schemas):
            raise ValueError("an array has elements of different types")
        return array(schemas[0], optional=True)

    def _value(self, found: Any, schema: Schema) -> Any:
        match schema.kind:
            case ConnectType.STRUCT if isinstance(found, dict):
                return self._struct_value(found, schema)
            case ConnectType.ARRAY if isinstance(found, list):
                assert schema.value_schema is not None
                return [self._value(each, schema.value_schema) for each in found]
            case ConnectType.FLOAT64 if isinstance(found, int) and not isinstance(found, bool):
                return float(found)
        if found is not None and self._schema("", found) != schema:
            raise ValueError("objects of an array have fields of different types")
        return found

    def _struct_value(self, found: Mapping[str, Any], schema: Schema) -> dict[str, Any]:
        given: dict[str, Any] = {}
        for key, each in found.items():
            given.setdefault(field_name(key, self._adjustment), each)
        return {
            field.name: None if given.get(field.name) is None else self._value(given[field.name], field.schema)
            for field in schema.fields
        }


def _number(found: int | float) -> Schema:
    if isinstance(found, float) or not -_INT64_MAX <= found < _INT64_MAX:
        return _FLOAT64
    return _INT32 if -_INT32_MAX <= found < _INT32_MAX else _INT64


def _struct(name: str, fields: Mapping[str, Schema]) -> Schema:
    made = tuple(SchemaField(each, schema) for each, schema in fields.items())
    return replace(Schema(ConnectType.STRUCT, True, fields=made), name=name or None)
