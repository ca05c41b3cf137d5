"""Debezium's ExtractNewRecordState: change events as plain rows.

With the mode `tombstone` the null that a deleted row becomes keeps the row's schema, as Debezium's does. JsonConverter
with schemas writes it as a value, which compaction keeps; with `delete-to-tombstone` it is a tombstone there too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from strandline.cdc.settings import one_of
from strandline.cdc.transforms.change_events import (
    FieldPlace,
    field_places,
    is_change_event,
    parts_of,
    row_of,
    wrong_field_places,
)
from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import SCHEMAS_KEPT_MAX, SchemaCache
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord, Header
from strandline.connect.schema import OPTIONAL_STRING, STRING, ConnectType, Schema, SchemaField
from strandline.connect.transforms.interface import Transform, same_basics

DELETED: Final = "__deleted"
MODES: Final = ("drop", "tombstone", "rewrite", "rewrite-with-tombstone", "delete-to-tombstone")
_OLD_MODES: Final = ("drop", "rewrite", "none")


class _FlatFields:
    """What is added to rows and headers of events with one schema."""

    def __init__(self, envelope: Schema, fields: Sequence[FieldPlace], headers: Sequence[FieldPlace]) -> None:
        self.fields: Final = _known(envelope, fields)
        self.headers: Final = _known(envelope, headers)


def _known(envelope: Schema, places: Sequence[FieldPlace]) -> list[tuple[FieldPlace, Schema]]:
    found = []
    for each in places:
        schema = each.schema(envelope)
        if schema is not None:
            found.append((each, replace(schema, optional=True, default=None)))
    return found


class ExtractNewRecordState(Transform):
    """Replaces a change event by the row after the change. Records that are no events of rows pass."""

    class Config(BaseConfig):
        delete_tombstone_handling_mode: str = option(
            "What becomes of deleted rows: drop (nothing), tombstone, rewrite (the old row with __deleted), "
            "rewrite-with-tombstone, delete-to-tombstone.",
            default="tombstone",
            check=one_of(*MODES),
        )
        drop_tombstones: bool | None = option(
            "Older form: whether tombstones are dropped; true without it.", default=None, importance="LOW"
        )
        delete_handling_mode: str | None = option(
            "Older form: drop, rewrite or none.", default=None, importance="LOW", check=one_of(*_OLD_MODES)
        )
        route_by_field: str = option("Column that names the topic.", default="", importance="LOW")
        add_fields: list[str] = option(
            "Fields of the event to add to rows, as op, source.ts_ms or lsn:position.",
            default=[],
            importance="LOW",
            check=wrong_field_places,
        )
        add_fields_prefix: str = option("Begin of their names.", default="__", importance="LOW")
        add_headers: list[str] = option(
            "Fields of the event to add as headers.", default=[], importance="LOW", check=wrong_field_places
        )
        add_headers_prefix: str = option("Begin of their names.", default="__", importance="LOW")
        drop_fields_header_name: str | None = option(
            "Header with a list of fields to leave out.", default=None, importance="LOW"
        )
        drop_fields_from_key: bool = option("Leave them out of keys too.", default=False, importance="LOW")
        drop_fields_keep_schema_compatible: bool = option(
            "Leave out only those that are optional.", default=True, importance="LOW"
        )
        replace_null_with_default: bool = option(
            "Replace null by the column's default when rows get __deleted.", default=True, importance="LOW"
        )

        @property
        def mode(self) -> str:
            """What becomes of deleted rows, also by the older settings."""
            given = self.properties
            if (
                "delete.tombstone.handling.mode" in given
                or not {"drop.tombstones", "delete.handling.mode"} & given.keys()
            ):
                return self.delete_tombstone_handling_mode.lower()
            drops_tombstones = self.drop_tombstones is not False
            match (self.delete_handling_mode or "drop").lower():
                case "rewrite":
                    return "rewrite" if drops_tombstones else "rewrite-with-tombstone"
                case "drop" if drops_tombstones:
                    return "drop"
            return "tombstone"

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._mode: Final[str] = config.mode
        self._is_rewrite: Final = self._mode.startswith("rewrite")
        self._fields = list(field_places(config.add_fields, config.add_fields_prefix))
        self._headers = list(field_places(config.add_headers, config.add_headers_prefix))
        self._known: SchemaCache[_FlatFields] = SchemaCache(lambda each: _FlatFields(each, self._fields, self._headers))
        self._flat: dict[tuple[int, int], tuple[Schema, Schema, Schema]] = {}
        self._dropped: dict[tuple[int, tuple[str, ...]], tuple[Schema, Schema]] = {}

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        if record.value is None:
            return self._tombstone(record)
        if not is_change_event(record):
            return record
        event = parts_of(record)
        after_schema, after = row_of(record, "after")
        record = record.with_(headers=[*record.headers, *self._event_headers(record)])
        if after is not None:
            return self._dropping(self._flattened(self._routed(record, after), event, after_schema, after, "false"))
        before_schema, before = row_of(record, "before")
        if before is None or self._mode == "drop":
            # Without both rows it is a truncate, which a stream of rows has no word for.
            return None
        routed = self._routed(record, before)
        if not self._is_rewrite:
            kept = after_schema if self._mode == "tombstone" else None
            return self._dropping(routed.with_(value=None, value_schema=kept))
        return self._dropping(self._flattened(routed, event, before_schema, before, "true"))

    def _tombstone(self, record: ConnectRecord) -> ConnectRecord | None:
        # In the other modes the event of the deleted row has become one, or deleted rows are dropped.
        if self._mode != "rewrite-with-tombstone":
            return None
        added = [Header(each.new_name, "d", STRING) for each in self._headers if each.field == "op"]
        return record.with_(headers=[*record.headers, *added]) if added else record

    def _event_headers(self, record: ConnectRecord) -> list[Header]:
        event = record.value
        if record.value_schema is None:
            return [Header(each.new_name, each.value(event)) for each in self._headers if each.is_in(event)]
        known = self._known(record.value_schema).headers
        return [Header(each.new_name, each.value(event), schema) for each, schema in known]

    def _routed(self, record: ConnectRecord, row: dict[str, Any]) -> ConnectRecord:
        name = self.config.route_by_field
        if not name:
            return record
        if name not in row:
            raise RecordFailed(f"the row has no field {name}, which route.by.field names", record)
        topic = row[name]
        if topic is not None and not isinstance(topic, str):
            raise RecordFailed(f"the field {name}, which route.by.field names, is no text: {topic!r}", record)
        return record.with_(topic=topic) if topic is not None and topic.strip() else record

    def _flattened(
        self, record: ConnectRecord, event: Any, schema: Schema | None, row: dict[str, Any], deleted: str
    ) -> ConnectRecord:
        value = dict(row)
        if record.value_schema is None or schema is None:
            if self._is_rewrite:
                value[DELETED] = deleted
            value.update({each.new_name: each.value(event) for each in self._fields if each.is_in(event)})
            return record.with_(value=value)
        if self._is_rewrite:
            if self.config.replace_null_with_default:
                for field in schema.fields:
                    if field.schema.default is not None and value.get(field.name) is None:
                        value[field.name] = field.schema.default
            value[DELETED] = deleted
        added = self._known(record.value_schema).fields
        value.update({each.new_name: each.value(event) for each, _ in added})
        return record.with_(value=value, value_schema=self._flat_schema(record.value_schema, schema, added))

    def _flat_schema(self, envelope: Schema, row: Schema, added: Sequence[tuple[FieldPlace, Schema]]) -> Schema:
        known = self._flat.get((id(envelope), id(row)))
        if known is not None:
            return known[0]
        fields = {each.name: each for each in row.fields}
        if self._is_rewrite:
            fields[DELETED] = SchemaField(DELETED, OPTIONAL_STRING)
        fields |= {each.new_name: SchemaField(each.new_name, schema) for each, schema in added}
        made = same_basics(row, tuple(fields.values()))
        if len(self._flat) >= SCHEMAS_KEPT_MAX:
            self._flat.clear()
        # The schemas are kept too: otherwise others could get their ids.
        self._flat[id(envelope), id(row)] = made, envelope, row
        return made

    def _dropping(self, record: ConnectRecord) -> ConnectRecord:
        header_name = self.config.drop_fields_header_name
        if not header_name:
            return record
        names = next((each.value for each in record.headers if each.name == header_name), None)
        if not names:
            return record
        if not isinstance(names, list | tuple):
            raise RecordFailed(f"the header {header_name} has no list of fields: {names!r:.100}", record)
        if self.config.drop_fields_from_key and record.key is not None:
            schema, key = self._without(record.key_schema, record.key, names)
            record = record.with_(key_schema=schema, key=key)
        if record.value is None:
            return record
        schema, value = self._without(record.value_schema, record.value, names)
        return record.with_(value_schema=schema, value=value)

    def _without(self, schema: Schema | None, value: Any, names: Sequence[str]) -> tuple[Schema | None, Any]:
        if not isinstance(value, dict):
            return schema, value
        if schema is None:
            return None, {name: each for name, each in value.items() if name not in names}
        if schema.kind is not ConnectType.STRUCT:
            return schema, value
        is_careful = self.config.drop_fields_keep_schema_compatible
        gone = tuple(
            each.name for each in schema.fields if each.name in names and (each.schema.optional or not is_careful)
        )
        if not gone:
            return schema, value
        found = self._dropped.get((id(schema), gone))
        if found is None:
            made = same_basics(schema, tuple(each for each in schema.fields if each.name not in gone))
            if len(self._dropped) >= SCHEMAS_KEPT_MAX:
                self._dropped.clear()
            found = self._dropped[id(schema), gone] = made, schema
        return found[0], {name: each for name, each in value.items() if name not in gone}
