"""Kafka's TimestampConverter: moments between texts, Unix times and Connect's logical types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from strandline.connect.config import option
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.java_dates import JavaDateFormat
from strandline.connect.convert.logical import DAY_MS, date_of, epoch_ms, is_number, moment_of, time_of
from strandline.connect.failures import RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import (
    DATE,
    DATE_SCHEMA,
    INT64,
    STRING,
    TIME,
    TIME_SCHEMA,
    TIMESTAMP,
    TIMESTAMP_SCHEMA,
    ConnectType,
    Schema,
    SchemaField,
)
from strandline.connect.transforms.interface import (
    ReplaceNullsConfig,
    Side,
    SidedTransform,
    field_value,
    same_basics,
    type_name,
)

_SCHEMAS: Final = {
    "string": STRING,
    "unix": INT64,
    "Date": DATE_SCHEMA,
    "Time": TIME_SCHEMA,
    "Timestamp": TIMESTAMP_SCHEMA,
}
_PER_SECOND: Final = {"seconds": 1, "milliseconds": 1000, "microseconds": 1_000_000, "nanoseconds": 1_000_000_000}
_LOGICAL: Final = frozenset((DATE, TIME, TIMESTAMP))


class TimestampConverter(SidedTransform):
    """Converts a field, or the entire key or value, to another form of a moment."""

    class Config(ReplaceNullsConfig):
        field: str = option(
            "The field containing the timestamp, or empty if the entire value is a timestamp.",
            default="",
            importance="HIGH",
        )
        target_type: Literal["string", "unix", "Date", "Time", "Timestamp"] = option(
            "The desired timestamp representation: string, unix, Date, Time, or Timestamp.", importance="HIGH"
        )
        format: str = option(
            "A SimpleDateFormat-compatible format for the timestamp. Used to generate the output when type=string or "
            "used to parse the input if the input is a string.",
            default="",
        )
        unix_precision: Literal["nanoseconds", "microseconds", "milliseconds", "seconds"] = option(
            "The desired Unix precision for the timestamp: seconds, milliseconds, microseconds, or nanoseconds. Used "
            "to generate the output when type=unix or used to parse the input if the input is a Long.",
            default="milliseconds",
            importance="LOW",
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            if self.target_type == "string" and not self.format:
                why = "TimestampConverter requires format option to be specified when using string timestamps"
                return [("format", why)]
            try:
                JavaDateFormat(self.format)
            except ValueError:
                why = "TimestampConverter requires a SimpleDateFormat-compatible pattern for string timestamps"
                return [("format", f"{why}: {self.format}")]
            return ()

    purpose = "converting timestamp formats"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._format = JavaDateFormat(config.format) if config.format else None
        self._target: Schema = _SCHEMAS[config.target_type]
        self._updated: SchemaCache[Schema] = SchemaCache(self._update)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        try:
            return self._with(record, *self._converted(schema, value, record))
        except RecordFailed as error:
            raise RecordFailed(str(error), record) from None

    def _converted(self, schema: Schema | None, value: Any, record: ConnectRecord) -> tuple[Schema | None, Any]:
        name = self.config.field
        if schema is None:
            if value is None or not name:
                return None, self._convert(None, value)
            fields = self._map(value, record)
            return None, {**fields, name: self._convert(None, fields.get(name))}
        updated = self._updated(schema)
        if not name:
            return updated, self._convert(schema, value)
        return updated, None if value is None else self._struct_of(schema, self._struct(schema, value, record))

    def _struct_of(self, schema: Schema, value: Mapping[str, Any]) -> dict[str, Any]:
        found = {}
        for field in schema.fields:
            each = field_value(value, field, with_default=self.config.replace_null_with_default)
            found[field.name] = self._convert(field.schema, each) if field.name == self.config.field else each
        return found

    def _update(self, schema: Schema) -> Schema:
        if not self.config.field:
            return self._field_schema(schema)
        fields = tuple(
            SchemaField(each.name, self._field_schema(each.schema)) if each.name == self.config.field else each
            for each in schema.fields
        )
        default = self._struct_of(schema, schema.default) if schema.default is not None else None
        return replace(same_basics(schema, fields), optional=schema.optional, default=default)

    def _field_schema(self, schema: Schema) -> Schema:
        if schema.name not in _LOGICAL and schema.kind not in (ConnectType.STRING, ConnectType.INT64):
            shown = schema.kind.name if schema.name is None else f"{schema.name}:{schema.kind.name}"
            raise RecordFailed(f"Schema Schema{{{shown}}} does not correspond to a known timestamp type format")
        return replace(self._target, optional=schema.optional)

    def _convert(self, schema: Schema | None, value: Any) -> Any:
        if value is None:
            return None
        milliseconds = self._read(schema, value)
        match self.config.target_type:
            case "string":
                assert self._format is not None
                return self._format.format(milliseconds)
            case "unix":
                return _cut(milliseconds * _PER_SECOND[self.config.unix_precision], 1000)
            case "Date":
                return date_of(milliseconds // DAY_MS)
            case "Time":
                return time_of(milliseconds % DAY_MS)
        return moment_of(milliseconds)

    def _read(self, schema: Schema | None, value: Any) -> int:
        if isinstance(value, str):
            if self._format is None:
                raise RecordFailed("TimestampConverter requires format option to be specified for string timestamps")
            found = self._format.parse(value)
            if found is None:
                raise RecordFailed(
                    f"Could not parse timestamp: value ({value}) does not match pattern ({self.config.format})"
                )
            return found
        if is_number(value) and schema is not None and schema.name in _LOGICAL:
            # It is beyond Python's calendar.
            return int(value) * DAY_MS if schema.name == DATE else int(value)
        if is_number(value):
            return _cut(value * 1000, _PER_SECOND[self.config.unix_precision])
        milliseconds = epoch_ms(value)
        if milliseconds is None:
            raise RecordFailed(f"TimestampConverter does not support {type_name(value)} objects as timestamps")
        return milliseconds


def _cut(number: int, unit: int) -> int:
    """Divide, and drop the rest toward zero as Java does."""
    return number // unit if number >= 0 else -(-number // unit)
