"""Connect's schemas as JSON Schemas and back, by Confluent's conventions.

The name is the title, the type is in `connect.type`, the place of a field in `connect.index`. An optional type is
`oneOf` null and the type. A property of a schema that was not made by Connect is optional if it is not required.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.connect.convert.json_writing import JsonWriting
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DECIMAL, STRING, ConnectType, Schema, SchemaField
from strandline.schemas.engines import SchemaSource

ENUM: Final = "io.confluent.connect.json.Enum"
DEPTH_MAX: Final = 100

_TYPES: Final = {
    ConnectType.INT8: ("integer", "int8"),
    ConnectType.INT16: ("integer", "int16"),
    ConnectType.INT32: ("integer", "int32"),
    ConnectType.INT64: ("integer", "int64"),
    ConnectType.FLOAT32: ("number", "float32"),
    ConnectType.FLOAT64: ("number", "float64"),
    ConnectType.BOOLEAN: ("boolean", None),
    ConnectType.STRING: ("string", None),
    ConnectType.BYTES: ("string", "bytes"),
}
_KINDS: Final = {label: kind for kind, (_, label) in _TYPES.items() if label is not None}
_PLAIN_KINDS: Final = {
    "integer": ConnectType.INT64,
    "number": ConnectType.FLOAT64,
    "boolean": ConnectType.BOOLEAN,
    "string": ConnectType.STRING,
}


class JsonSchemas:
    """Makes JSON Schemas."""

    def __init__(self, writing: JsonWriting, *, numeric_decimals: bool) -> None:
        self._writing = writing
        self._numeric_decimals = numeric_decimals

    def of(self, schema: Schema, index: int | None = None) -> dict[str, Any]:
        """Return a Connect schema as the JSON of a JSON Schema."""
        made = self._required(schema)
        if schema.name is not None:
            made["title"] = schema.name
        if schema.doc is not None:
            made["description"] = schema.doc
        if schema.version is not None:
            made["connect.version"] = schema.version
        parameters = {name: each for name, each in schema.parameters.items() if not name.startswith(ENUM)}
        if parameters:
            made["connect.parameters"] = parameters
        if schema.default is not None:
            made["default"] = json.loads(self._writing.text(schema, schema.default))
        if schema.optional:
            made = {"oneOf": [{"type": "null"}, made]}
        return made if index is None else {**made, "connect.index": index}

    def _required(self, schema: Schema) -> dict[str, Any]:
        match schema.kind:
            case ConnectType.STRUCT:
                fields = {each.name: self.of(each.schema, index) for index, each in enumerate(schema.fields)}
                return {"type": "object", "properties": fields}
            case ConnectType.ARRAY:
                assert schema.value_schema is not None
                return {"type": "array", "items": self.of(schema.value_schema)}
            case ConnectType.MAP:
                return self._map(schema)
            case ConnectType.STRING if ENUM in schema.parameters:
                symbols = [each for name, each in schema.parameters.items() if name.startswith(f"{ENUM}.")]
                return {"type": "string", "enum": symbols}
        kind, label = _TYPES[schema.kind]
        if schema.name == DECIMAL and self._numeric_decimals:
            kind = "number"
        return {"type": kind} if label is None else {"type": kind, "connect.type": label}

    def _map(self, schema: Schema) -> dict[str, Any]:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        if keys.kind is ConnectType.STRING and not keys.optional:
            return {"type": "object", "additionalProperties": self.of(values), "connect.type": "map"}
        entry = {"type": "object", "properties": {"key": self.of(keys, 0), "value": self.of(values, 1)}}
        return {"type": "array", "items": entry, "connect.type": "map"}


def schema_of_document(source: SchemaSource, default_of: Callable[[Schema, Any], Any]) -> Schema:
    """Return a JSON Schema as Connect's. Raise RecordFailed for what Connect cannot describe."""
    document = json.loads(source.text)
    others = {name: json.loads(text) for name, text in source.references}
    return _Mapping(document, others, default_of).schema(document, 0)


class _Mapping:
    def __init__(self, document: Any, others: Mapping[str, Any], default_of: Callable[[Schema, Any], Any]) -> None:
        self._document = document
        self._others = others
        self._default_of = default_of

    def schema(self, found: Any, depth: int) -> Schema:
        if depth > DEPTH_MAX:
            raise RecordFailed("the schema contains itself, or is nested too deep for Connect")
        if not isinstance(found, dict):
            raise RecordFailed(f"Connect cannot describe the JSON Schema {json.dumps(found)}")
        if "$ref" in found:
            return self.schema(self._target(found["$ref"]), depth + 1)
        choices = found.get("oneOf", found.get("anyOf"))
        if choices is not None:
            others = [each for each in choices if each != {"type": "null"}]
            if len(others) != 1:
                raise RecordFailed("a JSON Schema with a choice of several types is not supported")
            return replace(self.schema(others[0], depth + 1), optional=len(others) < len(choices))
        made = self._typed(found, depth)
        made = replace(
            made,
            name=_text(found.get("title")),
            version=found.get("connect.version"),
            doc=_text(found.get("description")),
            parameters={**made.parameters, **(found.get("connect.parameters") or {})},
        )
        default = found.get("default")
        return made if default is None else replace(made, default=self._default_of(made, default))

    def _typed(self, found: Mapping[str, Any], depth: int) -> Schema:
        kind, label = found.get("type"), found.get("connect.type")
        if isinstance(kind, list):
            others = [each for each in kind if each != "null"]
            if len(others) == 1:
                return replace(self._typed({**found, "type": others[0]}, depth), optional=len(others) < len(kind))
        if label in _KINDS:
            return Schema(_KINDS[label])
        if "enum" in found and all(isinstance(each, str) for each in found["enum"]):
            return Schema(
                ConnectType.STRING, parameters={ENUM: "", **{f"{ENUM}.{each}": each for each in found["enum"]}}
            )
        if kind == "array" and isinstance(found.get("items"), dict):
            items = self.schema(found["items"], depth + 1)
            if label == "map":
                keys, values = (each.schema for each in items.fields)
                return Schema(ConnectType.MAP, key_schema=keys, value_schema=values)
            return Schema(ConnectType.ARRAY, value_schema=items)
        if kind == "object" or "properties" in found:
            return self._object(found, depth, is_map=label == "map" or "properties" not in found)
        if kind in _PLAIN_KINDS:
            return Schema(_PLAIN_KINDS[kind])
        raise RecordFailed(f"Connect cannot describe the JSON Schema {json.dumps(found)[:200]}")

    def _object(self, found: Mapping[str, Any], depth: int, *, is_map: bool) -> Schema:
        more = found.get("additionalProperties")
        if is_map and isinstance(more, dict):
            return Schema(ConnectType.MAP, key_schema=STRING, value_schema=self.schema(more, depth + 1))
        required = found.get("required") or ()
        fields: list[tuple[int, SchemaField]] = []
        for name, each in found.get("properties", {}).items():
            schema = self.schema(each, depth + 1)
            is_ours = isinstance(each, dict) and "connect.index" in each
            if not is_ours and name not in required:
                schema = schema.as_optional()
            fields.append((each.get("connect.index", len(fields)), SchemaField(name, schema)))
        return Schema(ConnectType.STRUCT, fields=tuple(each for _, each in sorted(fields, key=lambda pair: pair[0])))

    def _target(self, reference: str) -> Any:
        name, _, path = reference.partition("#")
        found = self._document if not name else self._others.get(name)
        for step in path.split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            found = found.get(key) if isinstance(found, dict) else None
        if found is None:
            raise RecordFailed(f"the JSON Schema has no {reference}")
        return found


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None
