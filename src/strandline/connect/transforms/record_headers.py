"""Stock transforms of headers, and Filter."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.header_values import parse_text
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord, Header
from strandline.connect.schema import Schema, SchemaField
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
)


class Filter(Transform):
    """Drops all records. A predicate chooses those that it applies to."""

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        return None


class DropHeaders(Transform):
    """Removes headers."""

    class Config(BaseConfig):
        headers: list[str] = option("The name of the headers to be removed.", importance="HIGH")

        def check_all(self) -> Sequence[tuple[str, str]]:
            return non_empty("headers", self.headers)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        dropped = self.config.headers
        return record.with_(headers=[each for each in record.headers if each.name not in dropped])


class InsertHeader(Transform):
    """Adds a header with a fixed value."""

    class Config(BaseConfig):
        header: str = option("The name of the header.", importance="HIGH")
        value_literal: str = option(
            "The literal value that is to be set as the header value on all records.", importance="HIGH"
        )

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        schema, value = parse_text(config.value_literal)
        self._added = Header(config.header, value, schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        return record.with_(headers=[*record.headers, self._added])


class HeaderFrom(SidedTransform):
    """Moves or copies fields of the key or value to headers."""

    class Config(ReplaceNullsConfig):
        fields: list[str] = option(
            "Field names in the record whose values are to be copied or moved to headers.", importance="HIGH"
        )
        headers: list[str] = option(
            "Header names, in the same order as the field names listed in the fields configuration property.",
            importance="HIGH",
        )
        operation: Literal["move", "copy"] = option(
            "Either move if the fields are to be moved to the headers (removed from the key/value), or copy if the "
            "fields are to be copied to the headers (retained in the key/value).",
            importance="HIGH",
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            given = {"fields": self.fields, "headers": self.headers}
            empty = [name for name, names in given.items() if not names]
            if not empty and len(self.fields) != len(self.headers):
                return [("fields", "'fields' config must have the same number of elements as 'headers' config.")]
            return [(name, f"Invalid value [] for configuration {name}: Empty list") for name in empty]

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._is_move = config.operation == "move"
        self._purpose = f"header {config.operation}"
        self._moved = frozenset(config.fields)
        self._updated: SchemaCache[Schema] = SchemaCache(self._without_moved)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if schema is None:
            fields = required_map(value, self._purpose, record)
            added = [Header(header, fields.get(name)) for name, header in self._pairs()]
            kept = {name: each for name, each in fields.items() if not self._is_move or name not in self._moved}
            changed = self._with(record, None, kept)
        else:
            found = required_struct(schema, value, self._purpose, record)
            added = [self._header(schema, found, name, header, record) for name, header in self._pairs()]
            changed = self._with(record, schema, found)
            if self._is_move:
                updated = self._updated(schema)
                changed = self._with(record, updated, {each.name: self._value(found, each) for each in updated.fields})
        return changed.with_(headers=[*record.headers, *added])

    def _pairs(self) -> Sequence[tuple[str, str]]:
        return list(zip(self.config.fields, self.config.headers, strict=True))

    def _value(self, struct: Mapping[str, Any], field: SchemaField) -> Any:
        return field_value(struct, field, with_default=self.config.replace_null_with_default)

    def _header(
        self, schema: Schema, struct: Mapping[str, Any], name: str, header: str, record: ConnectRecord
    ) -> Header:
        field = schema.field(name)
        if field is None:
            raise RecordFailed(f"Field does not exist: {name}", record)
        return Header(header, self._value(struct, field), field.schema)

    def _without_moved(self, schema: Schema) -> Schema:
        return same_basics(schema, tuple(each for each in schema.fields if each.name not in self._moved))
