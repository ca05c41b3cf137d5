"""Debezium's ByLogicalTableRouter: several tables, as the parts of one that is sharded, in one topic."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from strandline.cdc.names import schema_name
from strandline.cdc.settings import NAME_ADJUSTMENTS, invalid_value, one_of
from strandline.cdc.transforms.change_events import is_change_event
from strandline.connect.config import Config as BaseConfig
from strandline.connect.config import option
from strandline.connect.convert.interface import SCHEMAS_KEPT_MAX
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import STRING, ConnectType, Schema, SchemaField
from strandline.connect.transforms.interface import Transform, type_name
from strandline.connect.transforms.patterns import JavaReplacement, compiled, wrong_pattern
from strandline.connect.transforms.routing import ROUTES_KEPT_MAX

_ROWS: Final = ("before", "after")


def _wrong_pattern_or_none(text: str | None) -> str | None:
    return None if not text else wrong_pattern(text)


class ByLogicalTableRouter(Transform):
    """Renames topics that match, and adds the table to keys, because two tables may have the same key."""

    class Config(BaseConfig):
        topic_regex: str = option("Topics that are renamed.", importance="LOW", check=wrong_pattern)
        topic_replacement: str = option("Their new name.", importance="LOW")
        key_enforce_uniqueness: bool = option("Add the table to keys.", default=True, importance="LOW")
        key_field_name: str = option(
            "The field of keys that names the table.", default="__dbz__physicalTableIdentifier", importance="LOW"
        )
        key_field_regex: str | None = option(
            "What is taken of the topic for that field.", default=None, importance="LOW", check=_wrong_pattern_or_none
        )
        key_field_replacement: str | None = option(
            "The value of that field; the topic without it.", default=None, importance="LOW"
        )
        schema_name_adjustment_mode: str = option(
            "Replace characters of schema names that Avro does not have.",
            default="none",
            importance="LOW",
            check=one_of(*NAME_ADJUSTMENTS),
        )
        logical_table_cache_size: int = option("Accepted for Debezium's configs.", default=16, importance="LOW")

        def check_all(self) -> Sequence[tuple[str, str]]:
            if self.key_field_regex and not self.key_field_replacement:
                return [
                    invalid_value(
                        "key.field.replacement", "key.field.replacement must be non-empty if key.field.regex is set."
                    )
                ]
            pairs = (
                ("topic.replacement", self.topic_replacement, self.topic_regex),
                ("key.field.replacement", self.key_field_replacement or "", self.key_field_regex or ""),
            )
            for name, replacement, pattern in pairs:
                try:
                    JavaReplacement(replacement, compiled(pattern))
                except ValueError as error:
                    return [(name, f"Invalid value {replacement} for configuration {name}: {error}")]
            return ()

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self._topic = _Renaming(config.topic_regex, config.topic_replacement)
        self._identifier = (
            _Renaming(config.key_field_regex, config.key_field_replacement or "") if config.key_field_regex else None
        )
        self._adjustment = config.schema_name_adjustment_mode.lower()
        self._schemas: dict[tuple[int, str], tuple[Schema, Schema]] = {}

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        topic = self._topic(record.topic)
        if not topic:
            return record
        changes: dict[str, Any] = {"topic": topic}
        if record.key is not None:
            if not isinstance(record.key, dict):
                raise RecordFailed(
                    f"the key is no struct, but {type_name(record.key)}: it cannot name its table", record
                )
            changes["key_schema"] = self._renamed(record.key_schema, topic, self._key_schema)
            changes["key"] = self._key(record.key, record.topic)
        if record.value is not None and record.value_schema is not None and is_change_event(record):
            changes["value_schema"] = self._renamed(record.value_schema, topic, self._envelope)
        return record.with_(**changes)

    def _key(self, key: dict[str, Any], topic: str) -> dict[str, Any]:
        if not self.config.key_enforce_uniqueness:
            return key
        identifier = (self._identifier(topic) if self._identifier is not None else None) or topic
        return {**key, self.config.key_field_name: identifier}

    def _renamed(self, schema: Schema | None, topic: str, make: Any) -> Schema | None:
        if schema is None:
            return None
        found = self._schemas.get((id(schema), topic))
        if found is None:
            if len(self._schemas) >= SCHEMAS_KEPT_MAX:
                self._schemas.clear()
            # The schema is kept too: otherwise another one could get its id.
            found = self._schemas[id(schema), topic] = make(schema, topic), schema
        return found[0]

    def _key_schema(self, schema: Schema, topic: str) -> Schema:
        fields = schema.fields
        if self.config.key_enforce_uniqueness:
            fields = (*fields, SchemaField(self.config.key_field_name, STRING))
        return replace(schema, name=schema_name(f"{topic}.Key", self._adjustment), fields=fields)

    def _envelope(self, schema: Schema, topic: str) -> Schema:
        row_name = schema_name(f"{topic}.Value", self._adjustment)
        fields = tuple(
            replace(each, schema=replace(each.schema, name=row_name))
            if each.name in _ROWS and each.schema.kind is ConnectType.STRUCT
            else each
            for each in schema.fields
        )
        return replace(schema, name=schema_name(f"{topic}.Envelope", self._adjustment), fields=fields)


class _Renaming:
    """A regular expression for whole names, and what a name that matches becomes."""

    def __init__(self, pattern: str, replacement: str) -> None:
        self._pattern = compiled(pattern)
        self._replacement = JavaReplacement(replacement, self._pattern)
        self._known: dict[str, str | None] = {}

    def __call__(self, name: str) -> str | None:
        """Return the new name; None if the name does not match."""
        if name not in self._known:
            if len(self._known) >= ROUTES_KEPT_MAX:
                self._known.clear()
            is_match = self._pattern.fullmatch(name) is not None
            self._known[name] = self._replacement.first_in(name, self._pattern.search(name)) if is_match else None
        return self._known[name]
