"""Stock transforms that choose, wrap, rename and mask fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.java_text import to_single
from strandline.connect.convert.json_writing import WHOLE
from strandline.connect.failures import InvalidConnectorConfig, RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import ConnectType, Schema, SchemaField, struct
from strandline.connect.transforms.field_paths import FieldPath, FieldSyntaxConfig
from strandline.connect.transforms.interface import (
    ReplaceNullsConfig,
    Side,
    SidedTransform,
    Transform,
    field_value,
    non_empty,
    required_map,
    required_struct,
    same_basics,
    type_name,
    wrong_empty_text,
)

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class ExtractField(SidedTransform):
    """Takes one field in the place of the whole key or value."""

    class Config(FieldSyntaxConfig):
        field: str = option("Field name to extract.")

        def check_all(self) -> Sequence[tuple[str, str]]:
            try:
                FieldPath(self.field, self.field_syntax_version)
            except InvalidConnectorConfig as error:
                return [("field", str(error))]
            return ()

    purpose = "field extraction"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._path = FieldPath(config.field, config.field_syntax_version)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if schema is None:
            found = None if value is None else self._path.map_value(self._map(value, record), record)
            return self._with(record, None, found)
        if value is not None:
            self._struct(schema, value, record)
        field = self._path.field(schema)
        if field is None:
            raise RecordFailed(f"Unknown field: {self.config.field}", record)
        with_default = self.config.replace_null_with_default
        found = self._path.struct_value(schema, value, record, with_default=with_default)
        return self._with(record, field.schema, found)


class HoistField(SidedTransform):
    """Wraps the key or value in a struct or map with one field."""

    class Config(BaseConfig):
        field: str = option("Field name for the single field that will be created in the resulting Struct or Map.")

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._updated: SchemaCache[Schema] = SchemaCache(lambda schema: struct({config.field: schema}))

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        updated = None if schema is None else self._updated(schema)
        return self._with(record, updated, {self.config.field: value})


def _renames(mappings: Sequence[str]) -> dict[str, str]:
    found = {}
    for each in mappings:
        parts = each.split(":")
        while parts and not parts[-1]:
            parts.pop()
        if len(parts) != 2:
            shown = f"[{', '.join(mappings)}]"
            raise InvalidConnectorConfig(
                f"Invalid value {shown} for configuration renames: Invalid rename mapping: {each}"
            )
        found[parts[0]] = parts[1]
    return found


class ReplaceField(SidedTransform):
    """Leaves out or renames fields."""

    class Config(ReplaceNullsConfig):
        exclude: list[str] = option("Fields to exclude. This takes precedence over the fields to include.", default=[])
        include: list[str] = option("Fields to include. If specified, only these fields will be used.", default=[])
        renames: list[str] = option("Field rename mappings, as old:new,old:new.", default=[])

        def check_all(self) -> Sequence[tuple[str, str]]:
            try:
                _renames(self.renames)
            except InvalidConnectorConfig as error:
                return [("renames", str(error))]
            return ()

    purpose = "field replacement"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._excluded, self._included = frozenset(config.exclude), frozenset(config.include)
        self._renames = _renames(config.renames)
        self._with_default = config.replace_null_with_default
        self._updated: SchemaCache[Schema] = SchemaCache(self._update)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if value is None:
            return record
        renamed = self._renames.get
        if schema is None:
            fields = self._map(value, record)
            return self._with(
                record, None, {renamed(name, name): each for name, each in fields.items() if self._keeps(name)}
            )
        found = self._struct(schema, value, record)
        updated = {
            renamed(each.name, each.name): field_value(found, each, with_default=self._with_default)
            for each in schema.fields
            if self._keeps(each.name)
        }
        return self._with(record, self._updated(schema), updated)

    def _keeps(self, name: str) -> bool:
        return name not in self._excluded and (not self._included or name in self._included)

    def _update(self, schema: Schema) -> Schema:
        kept = (each for each in schema.fields if self._keeps(each.name))
        fields = tuple(SchemaField(self._renames.get(each.name, each.name), each.schema) for each in kept)
        if len({each.name for each in fields}) < len(fields):
            raise RecordFailed("Cannot create field because of field name duplication")
        return same_basics(schema, fields)


class MaskField(SidedTransform):
    """Masks fields with the empty value of their type, or with a replacement."""

    class Config(ReplaceNullsConfig):
        fields: list[str] = option("Names of fields to mask.", importance="HIGH")
        replacement: str | None = option(
            "Custom value replacement, that will be applied to all 'fields' values (numeric or non-empty string values "
            "only).",
            default=None,
            importance="LOW",
            check=wrong_empty_text,
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            return non_empty("fields", self.fields)

    purpose = "mask fields"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._masked = frozenset(config.fields)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        try:
            if schema is None:
                fields = self._map(value, record)
                masks = {each: self._mask(None, fields.get(each)) for each in self._masked}
                return self._with(record, None, {**fields, **masks})
            found = self._struct(schema, value, record)
            updated = {}
            for each in schema.fields:
                kept = field_value(found, each, with_default=self.config.replace_null_with_default)
                updated[each.name] = self._mask(each.schema, kept) if each.name in self._masked else kept
            return self._with(record, schema, updated)
        except RecordFailed as error:
            raise RecordFailed(str(error), record) from None

    def _mask(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        if self.config.replacement is None:
            return _empty_like(schema, value)
        return _replaced(schema, value, self.config.replacement)


def _empty_like(schema: Schema | None, value: Any) -> Any:
    match value:
        case bool():
            return False
        case int() | float() | Decimal() | str() | list():
            return type(value)()
        case dict() if schema is None or schema.kind is not ConnectType.STRUCT:
            return {}
        case datetime():
            return _EPOCH
        case date():
            return _EPOCH.date()
        case time():
            return time()
    raise RecordFailed(f"Cannot mask value of type: {type_name(value)}")


def _replaced(schema: Schema | None, value: Any, replacement: str) -> Any:
    if isinstance(value, str):
        return replacement
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise RecordFailed(f"Cannot mask value of type {type_name(value)} with custom replacement.")
    try:
        number = Decimal(replacement)
        if not number.is_finite():
            raise InvalidOperation
    except InvalidOperation:
        raise RecordFailed(f"Unable to convert {replacement} (text) to a number") from None
    if isinstance(value, int):
        bits = WHOLE.get(schema.kind, 64) if schema is not None else 64
        return (int(number) + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)
    if isinstance(value, float):
        return to_single(float(number)) if schema is not None and schema.kind is ConnectType.FLOAT32 else float(number)
    return number


class ValueToKey(Transform):
    """Makes a key of fields of the value."""

    class Config(ReplaceNullsConfig):
        fields: list[str] = option("Field names on the record value to extract as the record key.", importance="HIGH")

        def check_all(self) -> Sequence[tuple[str, str]]:
            return non_empty("fields", self.fields)

    purpose = "copying fields from value to key"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._updated: SchemaCache[Schema] = SchemaCache(self._key_schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = record.value_schema, record.value
        if schema is None:
            fields = required_map(value, self.purpose, record)
            return record.with_(key_schema=None, key={each: fields.get(each) for each in self.config.fields})
        found = required_struct(schema, value, self.purpose, record)
        try:
            key_schema = self._updated(schema)
        except RecordFailed as error:
            raise RecordFailed(str(error), record) from None
        with_default = self.config.replace_null_with_default
        key = {each.name: field_value(found, each, with_default=with_default) for each in key_schema.fields}
        return record.with_(key_schema=key_schema, key=key)

    def _key_schema(self, schema: Schema) -> Schema:
        fields = []
        for name in self.config.fields:
            field = schema.field(name)
            if field is None:
                raise RecordFailed(f"Field does not exist: {name}")
            fields.append(field)
        return Schema(ConnectType.STRUCT, fields=tuple(fields))


class SetSchemaMetadata(SidedTransform):
    """Sets the name or the version of the schema of the key or value."""

    class Config(ReplaceNullsConfig):
        schema_name: str | None = option("Schema name to set.", default=None, importance="HIGH")
        schema_version: int | None = option("Schema version to set.", default=None, importance="HIGH")

        def check_all(self) -> Sequence[tuple[str, str]]:
            if self.schema_name is None and self.schema_version is None:
                return [("schema.name", "Neither schema name nor version configured")]
            return ()

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._updated: SchemaCache[Schema] = SchemaCache(self._update)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if schema is None:
            if value is None:
                return record
            raise RecordFailed("Schema required for [updating schema metadata]", record)
        if isinstance(value, dict) and schema.kind is ConnectType.STRUCT and self.config.replace_null_with_default:
            value = {each.name: field_value(value, each, with_default=True) for each in schema.fields}
        return self._with(record, self._updated(schema), value)

    def _update(self, schema: Schema) -> Schema:
        name, version = self.config.schema_name, self.config.schema_version
        return replace(
            schema,
            name=schema.name if name is None else name,
            version=schema.version if version is None else version,
        )
