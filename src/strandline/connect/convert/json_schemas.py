"""Connect's schemas as the JSON that Kafka's JsonConverter writes into each record, and back."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.connect.failures import RecordFailed
from strandline.connect.schema import ConnectType, Schema, SchemaField

_KINDS: Final = {each.value: each for each in ConnectType}


def schema_text(schema: Schema | None, default_text: Callable[[Schema, Any], str], field: str | None = None) -> str:
    """Return a schema as compact JSON, with the members in Kafka's order. `default_text` writes a default."""
    if schema is None:
        return "null"
    members = [f'"type":"{schema.kind}"']
    if schema.kind is ConnectType.ARRAY:
        members.append(f'"items":{schema_text(schema.value_schema, default_text)}')
    elif schema.kind is ConnectType.MAP:
        members.append(f'"keys":{schema_text(schema.key_schema, default_text)}')
        members.append(f'"values":{schema_text(schema.value_schema, default_text)}')
    elif schema.kind is ConnectType.STRUCT:
        fields = (schema_text(each.schema, default_text, each.name) for each in schema.fields)
        members.append(f'"fields":[{",".join(fields)}]')
    members.append(f'"optional":{"true" if schema.optional else "false"}')
    if schema.name is not None:
        members.append(f'"name":{_quoted(schema.name)}')
    if schema.version is not None:
        members.append(f'"version":{schema.version}')
    if schema.doc is not None:
        members.append(f'"doc":{_quoted(schema.doc)}')
    if schema.parameters:
        pairs = (f"{_quoted(name)}:{_quoted(value)}" for name, value in schema.parameters.items())
        members.append(f'"parameters":{{{",".join(pairs)}}}')
    if schema.default is not None:
        members.append(f'"default":{default_text(schema, schema.default)}')
    if field is not None:
        members.append(f'"field":{_quoted(field)}')
    return f"{{{','.join(members)}}}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def schema_from_json(found: Any, default_of: Callable[[Schema, Any], Any]) -> Schema | None:
    """Return the schema that parsed JSON describes; null is no schema. `default_of` reads a default."""
    if found is None:
        return None
    kind_name = found.get("type") if isinstance(found, dict) else None
    if not isinstance(kind_name, str):
        raise RecordFailed("Schema must contain 'type' field")
    kind = _KINDS.get(kind_name)
    if kind is None:
        raise RecordFailed(f"Unknown schema type: {kind_name}")
    version, parameters = found.get("version"), found.get("parameters")
    bare = Schema(
        kind,
        found.get("optional") is True,
        _text_or_none(found.get("name")),
        version if isinstance(version, int) and not isinstance(version, bool) else None,
        _text_or_none(found.get("doc")),
        None,
        _parameters(parameters) if isinstance(parameters, dict) else {},
        _fields(found, default_of) if kind is ConnectType.STRUCT else (),
        _inner(found, "keys", "Map schema did not specify the key type", default_of)
        if kind is ConnectType.MAP
        else None,
        _values(kind, found, default_of),
    )
    if "default" not in found:
        return bare
    default = default_of(bare, found["default"])
    return bare if default is None else replace(bare, default=default)


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _parameters(found: Mapping[str, Any]) -> dict[str, str]:
    if not all(isinstance(each, str) for each in found.values()):
        raise RecordFailed("Schema parameters must have string values.")
    return dict(found)


def _values(kind: ConnectType, found: Mapping[str, Any], default_of: Callable[[Schema, Any], Any]) -> Schema | None:
    if kind is ConnectType.ARRAY:
        return _inner(found, "items", "Array schema did not specify the element type", default_of)
    if kind is ConnectType.MAP:
        return _inner(found, "values", "Map schema did not specify the value type", default_of)
    return None


def _inner(
    found: Mapping[str, Any], member: str, missing: str, default_of: Callable[[Schema, Any], Any]
) -> Schema | None:
    if found.get(member) is None:
        raise RecordFailed(missing)
    return schema_from_json(found[member], default_of)


def _fields(found: Mapping[str, Any], default_of: Callable[[Schema, Any], Any]) -> tuple[SchemaField, ...]:
    fields = found.get("fields")
    if not isinstance(fields, list):
        raise RecordFailed('Struct schema\'s "fields" argument is not an array.')
    made = []
    for each in fields:
        name = each.get("field") if isinstance(each, dict) else None
        if not isinstance(name, str):
            raise RecordFailed("Struct schema's field name not specified properly")
        schema = schema_from_json(each, default_of)
        assert schema is not None
        made.append(SchemaField(name, schema))
    if len({each.name for each in made}) < len(made):
        raise RecordFailed("Cannot create field because of field name duplication")
    return tuple(made)
