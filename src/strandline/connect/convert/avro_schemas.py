"""Connect's schemas as Avro schemas and back, by Confluent's conventions.

What Avro has no word for is a property: `connect.name`, `connect.version`, `connect.parameters`, `connect.type`. A
logical type of Connect has Avro's too.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from strandline.connect.convert.avro_names import MAP_ENTRY, NAMESPACE, UNION, branch_name, is_map_entry
from strandline.connect.convert.avro_values import default_from_avro, default_to_avro
from strandline.connect.convert.logical import scale_of
from strandline.connect.convert.struct_names import StructNames
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DATE, DECIMAL, SCALE, STRING, TIME, TIMESTAMP, ConnectType, Schema, SchemaField
from strandline.schemas.avro.nodes import AvroField, AvroNode

ENUM: Final = f"{NAMESPACE}.Enum"
DEFAULT_NAME: Final = "ConnectDefault"
PRECISION: Final = "connect.decimal.precision"
FIXED_SIZE: Final = "connect.fixed.size"
_PRECISION_DEFAULT: Final = 64

_TYPES: Final = {
    ConnectType.INT8: "int",
    ConnectType.INT16: "int",
    ConnectType.INT32: "int",
    ConnectType.INT64: "long",
    ConnectType.FLOAT32: "float",
    ConnectType.FLOAT64: "double",
    ConnectType.BOOLEAN: "boolean",
    ConnectType.STRING: "string",
    ConnectType.BYTES: "bytes",
}
_KINDS: Final = {
    "int": ConnectType.INT32,
    "long": ConnectType.INT64,
    "float": ConnectType.FLOAT32,
    "double": ConnectType.FLOAT64,
    "boolean": ConnectType.BOOLEAN,
    "string": ConnectType.STRING,
    "bytes": ConnectType.BYTES,
    "fixed": ConnectType.BYTES,
    "enum": ConnectType.STRING,
}
_SMALL: Final = {ConnectType.INT8: "int8", ConnectType.INT16: "int16"}
_LOGICAL: Final = {DATE: "date", TIME: "time-millis", TIMESTAMP: "timestamp-millis", DECIMAL: "decimal"}
_NAMES: Final = {("int", "date"): DATE, ("int", "time-millis"): TIME, ("long", "timestamp-millis"): TIMESTAMP}
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class AvroSchemas:
    """Makes one Avro schema. A struct that is used twice is named the second time.

    A name is defined once: of structs with one name and different fields, only the last has the name itself.
    """

    def __init__(self) -> None:
        self._names = StructNames()
        self._defined: set[str] = set()
        self._unnamed = 0

    def of(self, schema: Schema) -> Any:
        """Return a Connect schema as the JSON of an Avro schema."""
        self._add_names(schema, "")
        return self._optional(schema)

    def _add_names(self, schema: Schema, field: str) -> None:
        if schema.kind is ConnectType.STRUCT and schema.name is not None:
            self._names.add(_valid_name(schema.name), schema, field)
        for each in schema.fields:
            self._add_names(each.schema, each.name)
        for inner in (schema.key_schema, schema.value_schema):
            if inner is not None:
                self._add_names(inner, field)

    def _optional(self, schema: Schema) -> Any:
        made = self._required(schema)
        if not schema.optional:
            return made
        # A default is one of the first branch.
        return ["null", made] if schema.default is None else [made, "null"]

    def _required(self, schema: Schema) -> Any:
        match schema.kind:
            case ConnectType.STRUCT:
                return self._struct(schema)
            case ConnectType.ARRAY:
                assert schema.value_schema is not None
                return {"type": "array", "items": self._optional(schema.value_schema), **_properties(schema)}
            case ConnectType.MAP:
                return self._map(schema)
        properties = _properties(schema)
        if schema.kind in _SMALL:
            properties["connect.type"] = _SMALL[schema.kind]
        logical = _LOGICAL.get(schema.name or "")
        if logical is not None:
            properties["logicalType"] = logical
        if schema.name == DECIMAL:
            precision = int(schema.parameters.get(PRECISION, _PRECISION_DEFAULT))
            properties = {"scale": scale_of(schema), "precision": precision} | properties
        return {"type": _TYPES[schema.kind], **properties} if properties else _TYPES[schema.kind]

    def _map(self, schema: Schema) -> Any:
        keys, values = schema.key_schema, schema.value_schema
        assert keys is not None
        assert values is not None
        if keys.kind is ConnectType.STRING and not keys.optional:
            return {"type": "map", "values": self._optional(values), **_properties(schema)}
        self._unnamed += 1
        entry = {
            "type": "record",
            "name": MAP_ENTRY if self._unnamed == 1 else f"{MAP_ENTRY}{self._unnamed}",
            "namespace": NAMESPACE,
            "fields": [
                {"name": "key", "type": self._optional(keys)},
                {"name": "value", "type": self._optional(values)},
            ],
            "connect.internal.type": MAP_ENTRY,
        }
        return {"type": "array", "items": entry, **_properties(schema)}

    def _struct(self, schema: Schema) -> Any:
        if schema.name is None:
            self._unnamed += 1
            name = f"{NAMESPACE}.{DEFAULT_NAME}{self._unnamed if self._unnamed > 1 else ''}"
        else:
            name = self._names.name(_valid_name(schema.name), schema)
            if name in self._defined:
                return name
            self._defined.add(name)
        namespace, _, short = name.rpartition(".")
        return {
            "type": "record",
            "name": short,
            **({"namespace": namespace} if namespace else {}),
            **({"doc": schema.doc} if schema.doc is not None else {}),
            "fields": [self._field(each) for each in schema.fields],
            **{key: value for key, value in _properties(schema).items() if key != "connect.doc"},
        }

    def _field(self, field: SchemaField) -> dict[str, Any]:
        if _NAME.fullmatch(field.name) is None:
            raise RecordFailed(f"Avro has no field with the name {field.name!r}: rename it with ReplaceField")
        made = {"name": field.name, "type": self._optional(field.schema)}
        if field.schema.default is not None:
            made["default"] = default_to_avro(field.schema, field.schema.default)
        elif field.schema.optional:
            made["default"] = None
        return made


def _properties(schema: Schema) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if schema.doc is not None:
        found["connect.doc"] = schema.doc
    if schema.version is not None:
        found["connect.version"] = schema.version
    if schema.parameters:
        found["connect.parameters"] = dict(schema.parameters)
    if schema.name is not None:
        found["connect.name"] = schema.name
    return found


def _valid_name(name: str) -> str:
    """Return a name that Avro takes; `connect.name` keeps the other one."""
    parts = [re.sub(r"[^A-Za-z0-9_]", "_", each) for each in name.split(".")]
    return ".".join(f"_{each}" if not each or each[0].isdigit() else each for each in parts)


def schema_of_node(node: AvroNode, within: tuple[int, ...] = ()) -> Schema:
    """Return an Avro schema as Connect's. Raise RecordFailed for what Connect cannot describe."""
    if id(node) in within:
        raise RecordFailed(f"the schema {node.label} contains itself, which Connect cannot describe")
    inside = (*within, id(node))
    match node.kind:
        case "record" | "error":
            fields = tuple(SchemaField(each.name, _field_schema(each, inside)) for each in node.fields)
            return _described(node, Schema(ConnectType.STRUCT, fields=fields))
        case "array":
            assert node.items is not None
            if is_map_entry(node.items):
                key, value = (schema_of_node(each.type, inside) for each in node.items.fields)
                return _described(node, Schema(ConnectType.MAP, key_schema=key, value_schema=value))
            return _described(node, Schema(ConnectType.ARRAY, value_schema=schema_of_node(node.items, inside)))
        case "map":
            assert node.items is not None
            values = schema_of_node(node.items, inside)
            return _described(node, Schema(ConnectType.MAP, key_schema=STRING, value_schema=values))
        case "union":
            return _union(node, inside)
        case "null":
            raise RecordFailed("Standalone null schemas are not supported by this converter")
    return _described(node, Schema(_KINDS[node.kind]))


def _union(node: AvroNode, within: tuple[int, ...]) -> Schema:
    branches = [each for each in node.branches if each.kind != "null"]
    is_optional = len(branches) < len(node.branches)
    if len(branches) == 1:
        return replace(schema_of_node(branches[0], within), optional=is_optional)
    fields = tuple(
        SchemaField(branch_name(each), replace(schema_of_node(each, within), optional=True)) for each in branches
    )
    return Schema(ConnectType.STRUCT, is_optional, UNION, fields=fields)


def _field_schema(field: AvroField, within: tuple[int, ...]) -> Schema:
    found = schema_of_node(field.type, within)
    if field.doc is not None:
        found = replace(found, doc=field.doc)
    if field.has_default and field.default is not None and found.name != UNION:
        found = replace(found, default=default_from_avro(found, field.type, field.default))
    return found


def _described(node: AvroNode, bare: Schema) -> Schema:
    given = node.properties
    kind = bare.kind
    if given.get("connect.type") in ("int8", "int16"):
        kind = ConnectType(given["connect.type"])
    name = given.get("connect.name") or node.name or _NAMES.get((node.kind, str(given.get("logicalType"))))
    parameters = dict(given.get("connect.parameters") or {})
    if node.kind == "enum":
        parameters[ENUM] = node.name
        parameters |= {f"{ENUM}.{each}": each for each in node.symbols}
    decimal = node.decimal
    if decimal is not None and given.get("connect.name") in (None, DECIMAL):
        name = DECIMAL
        parameters[SCALE] = str(decimal[1])
        if decimal[0] != _PRECISION_DEFAULT:
            parameters[PRECISION] = str(decimal[0])
    elif node.kind == "fixed":
        parameters[FIXED_SIZE] = str(node.size)
    version = given.get("connect.version", 1 if name in _LOGICAL else None)
    if isinstance(name, str) and name.rpartition(".")[2].startswith(DEFAULT_NAME) and name.startswith(NAMESPACE):
        name = None
    return replace(
        bare,
        kind=kind,
        name=name,
        version=version if isinstance(version, int) else None,
        doc=node.doc or given.get("connect.doc"),
        parameters=parameters,
    )
