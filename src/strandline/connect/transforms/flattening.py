"""Kafka's Flatten: nested fields as fields of one level, with joined names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import ConnectType, Schema, SchemaField
from strandline.connect.transforms.interface import Side, SidedTransform, field_value, same_basics


class Flatten(SidedTransform):
    """Flattens nested structs or maps. Arrays stay as they are."""

    class Config(BaseConfig):
        delimiter: str = option(
            "Delimiter to insert between field names from the input record when generating field names for the output "
            "record.",
            default=".",
        )

    purpose = "flattening"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._updated: SchemaCache[Schema] = SchemaCache(self._update)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if value is None:
            return record
        try:
            flat: dict[str, Any] = {}
            if schema is None:
                self._flatten_map(self._map(value, record), "", flat)
                return self._with(record, None, flat)
            self._flatten_struct(schema, self._struct(schema, value, record), "", flat)
            return self._with(record, self._updated(schema), flat)
        except RecordFailed as error:
            raise RecordFailed(str(error), record) from None

    def _name(self, prefix: str, name: str) -> str:
        return f"{prefix}{self.config.delimiter}{name}" if prefix else name

    def _flatten_map(self, value: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for key, each in value.items():
            name = self._name(prefix, str(key))
            if isinstance(each, dict):
                self._flatten_map(each, name, flat)
            else:
                flat[name] = each

    def _flatten_struct(self, schema: Schema, value: Mapping[str, Any], prefix: str, flat: dict[str, Any]) -> None:
        for field in schema.fields:
            name, each = self._name(prefix, field.name), field_value(value, field, with_default=True)
            if field.schema.kind is not ConnectType.STRUCT:
                flat[name] = each
            elif each is not None:
                self._flatten_struct(field.schema, each, name, flat)

    def _update(self, schema: Schema) -> Schema:
        fields: list[SchemaField] = []
        self._add_fields(schema, "", fields, optional=schema.optional, default=schema.default)
        return same_basics(schema, tuple(fields))

    def _add_fields(
        self,
        schema: Schema,
        prefix: str,
        fields: list[SchemaField],
        *,
        optional: bool,
        default: Mapping[str, Any] | None,
    ) -> None:
        """Add the fields of a struct. Inside an optional one they are optional; its default holds theirs."""
        for field in schema.fields:
            name, inner = self._name(prefix, field.name), field.schema
            is_optional = optional or inner.optional
            found = inner.default
            if found is None and default is not None:
                found = field_value(default, field, with_default=True)
            if inner.kind is ConnectType.MAP:
                raise RecordFailed(
                    f"Flatten transformation does not support MAP for record with schemas (for field {name})."
                )
            if inner.kind is ConnectType.STRUCT:
                self._add_fields(inner, name, fields, optional=is_optional, default=found)
            elif any(each.name == name for each in fields):
                raise RecordFailed(f"Cannot create field because of field name duplication {name}")
            else:
                fields.append(SchemaField(name, replace(inner, optional=is_optional, default=found)))
