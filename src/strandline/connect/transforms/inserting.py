"""Kafka's InsertField: fields with the record's topic, partition, offset, timestamp, or a fixed value."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

from strandline.connect.config import option
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.logical import moment_of
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord, SinkRecord
from strandline.connect.schema import INT32, INT64, STRING, TIMESTAMP_SCHEMA, Schema, SchemaField
from strandline.connect.transforms.interface import (
    ReplaceNullsConfig,
    Side,
    SidedTransform,
    field_value,
    same_basics,
    type_name,
)

_SUFFIX_DOC: Final = "Suffix with ! to make this a required field, or ? to keep it optional (the default)."


class _Insertion(NamedTuple):
    name: str
    schema: Schema
    value_of: Callable[[ConnectRecord], Any]


class InsertField(SidedTransform):
    """Inserts fields from the record's metadata, or one with a fixed value."""

    class Config(ReplaceNullsConfig):
        topic_field: str | None = option(f"Field name for Kafka topic. {_SUFFIX_DOC}", default=None)
        partition_field: str | None = option(f"Field name for Kafka partition. {_SUFFIX_DOC}", default=None)
        offset_field: str | None = option(
            f"Field name for Kafka offset - only applicable to sink connectors. {_SUFFIX_DOC}", default=None
        )
        timestamp_field: str | None = option(f"Field name for record timestamp. {_SUFFIX_DOC}", default=None)
        static_field: str | None = option(f"Field name for static data field. {_SUFFIX_DOC}", default=None)
        static_value: str | None = option("Static field value, if field name configured.", default=None)

        def check_all(self) -> Sequence[tuple[str, str]]:
            given = (self.topic_field, self.partition_field, self.offset_field, self.timestamp_field, self.static_field)
            if all(each is None for each in given):
                return [("topic.field", "No field insertion configured")]
            if self.static_field is not None and self.static_value is None:
                return [
                    (
                        "static.value",
                        "Invalid value null for configuration static.value: No value specified for static field: "
                        f"{self.static_field}",
                    )
                ]
            return ()

    purpose = "field insertion"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._insertions = list(self._configured())
        self._updated: SchemaCache[Schema] = SchemaCache(self._update)

    def _configured(self) -> Iterator[_Insertion]:
        config = self.config
        for spec, schema, value_of in (
            (config.topic_field, STRING, lambda record: record.topic),
            (config.partition_field, INT32, lambda record: record.partition),
            (config.offset_field, INT64, _offset_of),
            (config.timestamp_field, TIMESTAMP_SCHEMA, lambda record: record.timestamp_ms),
            (config.static_field, STRING, lambda record: config.static_value),
        ):
            if spec is not None:
                name = spec[:-1] if spec.endswith(("!", "?")) else spec
                yield _Insertion(name, replace(schema, optional=not spec.endswith("!")), value_of)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if value is None:
            return record
        if schema is None:
            updated = dict(self._map(value, record))
        else:
            found = self._struct(schema, value, record)
            with_default = self.config.replace_null_with_default
            updated = {each.name: field_value(found, each, with_default=with_default) for each in schema.fields}
        for each in self._insertions:
            inserted = each.value_of(record)
            if inserted is not None:
                has_moments = schema is not None and each.schema.name is not None
                updated[each.name] = moment_of(inserted) if has_moments else inserted
        try:
            return self._with(record, None if schema is None else self._updated(schema), updated)
        except RecordFailed as error:
            raise RecordFailed(str(error), record) from None

    def _update(self, schema: Schema) -> Schema:
        fields = [*schema.fields, *(SchemaField(each.name, each.schema) for each in self._insertions)]
        names = [each.name for each in fields]
        repeated = next((each for each in names if names.count(each) > 1), None)
        if repeated is not None:
            raise RecordFailed(f"Cannot create field because of field name duplication {repeated}")
        return same_basics(schema, tuple(fields))


def _offset_of(record: ConnectRecord) -> int:
    if not isinstance(record, SinkRecord):
        raise RecordFailed(f"Only SinkRecord supported for [{InsertField.purpose}], found: {type_name(record)}", record)
    return record.offset
