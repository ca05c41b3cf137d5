"""Kafka's Cast: fields, or the whole key or value, to another type."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date, time
from typing import Any, Final

from strandline.connect.config import option
from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.java_text import base64_text, moment_text, text_of_value, to_single
from strandline.connect.convert.json_writing import WHOLE
from strandline.connect.convert.logical import LOGICAL, days_of, time_ms_of, timestamp_ms_of
from strandline.connect.failures import InvalidConnectorConfig, RecordFailed
from strandline.connect.records import ConnectRecord
from strandline.connect.schema import DATE, TIME, TIMESTAMP, ConnectType, Schema, SchemaField
from strandline.connect.transforms.interface import (
    ReplaceNullsConfig,
    Side,
    SidedTransform,
    field_value,
    same_basics,
    type_name,
)

_TARGETS: Final = {
    each.name: each
    for each in ConnectType
    if each not in (ConnectType.BYTES, ConnectType.ARRAY, ConnectType.MAP, ConnectType.STRUCT)
}
_STORED: Final = {DATE: days_of, TIME: time_ms_of, TIMESTAMP: timestamp_ms_of}
_WHOLE_TEXT: Final = re.compile(r"[+-]?\d+")
_FLOAT_TEXT: Final = re.compile(
    r"\s*([+-]?(?:NaN|Infinity|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?))([fFdD]?)\s*", re.ASCII
)
_INT: Final = 32
_SHOWN_TYPES: Final = "INT8, INT16, INT32, INT64, FLOAT32, FLOAT64, BOOLEAN, STRING"


def _parsed(spec: Sequence[str]) -> dict[str | None, ConnectType]:
    """Return the type of each field; None stands for the whole value. Raise InvalidConnectorConfig."""
    found: dict[str | None, ConnectType] = {}
    for each in spec:
        name, *rest = each.split(":")
        if len(rest) > 1:
            shown = f"[{', '.join(spec)}]"
            raise InvalidConnectorConfig(
                f"Invalid value {shown} for configuration spec: Invalid rename mapping: {each}"
            )
        wanted = (rest[0] if rest else name).strip()
        if wanted.upper() not in _TARGETS:
            if wanted.upper() in ConnectType.__members__:
                raise InvalidConnectorConfig(
                    f"Cast transformation does not support casting to {wanted.upper()}; supported types are "
                    f"[{_SHOWN_TYPES}]"
                )
            raise InvalidConnectorConfig(f"Invalid type found in casting spec: {wanted}")
        found[name.strip() if rest else None] = _TARGETS[wanted.upper()]
    if None in found and len(spec) > 1:
        raise InvalidConnectorConfig(
            "Cast transformations that specify a type to cast the entire value to may only specify a single cast in "
            "their spec"
        )
    return found


class Cast(SidedTransform):
    """Casts fields, or the entire key or value, to a type."""

    class Config(ReplaceNullsConfig):
        spec: list[str] = option(
            "Fields and the type that each is cast to, as field1:type,field2:type; or one type for the entire value. "
            "Types are int8, int16, int32, int64, float32, float64, boolean and string. Binary fields can only be cast "
            "to string.",
            importance="HIGH",
        )

        def check_all(self) -> Sequence[tuple[str, str]]:
            if not self.spec:
                return [("spec", "Must specify at least one field to cast.")]
            try:
                _parsed(self.spec)
            except InvalidConnectorConfig as error:
                return [("spec", str(error))]
            return ()

    purpose = "cast types"

    def __init__(self, config: Any, side: Side) -> None:
        super().__init__(config, side)
        self._casts = _parsed(config.spec)
        self._whole = self._casts.get(None)
        self._with_default = config.replace_null_with_default
        self._updated: SchemaCache[Schema] = SchemaCache(self._cast_schema)

    def apply(self, record: ConnectRecord) -> ConnectRecord | None:
        schema, value = self._taken(record)
        if value is None:
            return record
        try:
            if schema is None:
                return self._with(record, None, self._without_schema(value, record))
            return self._with(record, self._updated(schema), self._with_schema(schema, value, record))
        except RecordFailed as error:
            raise RecordFailed(str(error), record) from None

    def _without_schema(self, value: Any, record: ConnectRecord) -> Any:
        if self._whole is not None:
            return cast_value(None, value, self._whole)
        fields = self._map(value, record)
        casts = {name: cast_value(None, fields.get(name), kind) for name, kind in self._casts.items() if name}
        return {**fields, **casts}

    def _with_schema(self, schema: Schema, value: Any, record: ConnectRecord) -> Any:
        if self._whole is not None:
            return cast_value(schema, value, self._whole)
        struct = self._struct(schema, value, record)
        return {each.name: self._cast_field(struct, each) for each in schema.fields}

    def _cast_field(self, struct: Mapping[str, Any], field: SchemaField) -> Any:
        found = field_value(struct, field, with_default=self._with_default)
        kind = self._casts.get(field.name)
        return found if kind is None else cast_value(field.schema, found, kind)

    def _cast_schema(self, schema: Schema) -> Schema:
        if self._whole is not None:
            default = cast_value(schema, schema.default, self._whole)
            # A logical type describes the value before; Kafka keeps its name, and converters then fail.
            if schema.name in LOGICAL:
                return Schema(self._whole, schema.optional, default=default)
            return replace(schema, kind=self._whole, default=default, fields=(), key_schema=None, value_schema=None)
        fields = tuple(SchemaField(each.name, self._field_schema(each)) for each in schema.fields)
        made = replace(same_basics(schema, fields), optional=schema.optional)
        if isinstance(schema.default, dict):
            made = replace(made, default={each.name: self._cast_field(schema.default, each) for each in schema.fields})
        return made

    def _field_schema(self, field: SchemaField) -> Schema:
        kind = self._casts.get(field.name)
        if kind is None:
            return field.schema
        return Schema(kind, field.schema.optional, default=cast_value(field.schema, field.schema.default, kind))


def cast_value(schema: Schema | None, value: Any, kind: ConnectType) -> Any:
    """Return a value as one of another type. Raise RecordFailed if it cannot be."""
    if value is None:
        return None
    if isinstance(value, list | dict) or (isinstance(value, bytes) and kind is not ConnectType.STRING):
        shown = schema.kind.name if schema is not None else type_name(value)
        raise RecordFailed(f"Cast transformation does not support casting from {shown} to {kind.name}")
    if kind is ConnectType.STRING:
        if isinstance(value, bytes):
            return base64_text(value)
        return moment_text(value) if isinstance(value, date | time) else text_of_value(schema, value)
    if isinstance(value, date | time):
        stored = _STORED.get(schema.name or "") if schema is not None else None
        if stored is None:
            raise RecordFailed(f"Unexpected type in Cast transformation: {type_name(value)}")
        value = stored(value)
    if kind is ConnectType.BOOLEAN:
        return value.lower() == "true" if isinstance(value, str) else _to_whole(value, 64) != 0
    if kind in WHOLE:
        return _to_whole(value, WHOLE[kind])
    found = _to_float(value)
    return to_single(found) if kind is ConnectType.FLOAT32 else found


def _to_whole(value: Any, bits: int) -> int:
    """Return a whole number as Java does: one that is too large loses its upper bits, a float the digits behind."""
    if isinstance(value, str):
        if _WHOLE_TEXT.fullmatch(value) is None or not -(1 << bits - 1) <= int(value) < 1 << bits - 1:
            raise _out_of_range(value)
        return int(value)
    if isinstance(value, float):
        # A float has the nearest value of 32 bits for the small types, or of 64 bits.
        limit = 1 << max(bits, _INT) - 1
        number = 0 if math.isnan(value) else int(max(-limit, min(limit - 1, value)))
    else:
        number = int(value)
    return (number + (1 << bits - 1)) % (1 << bits) - (1 << bits - 1)


def _to_float(value: Any) -> float:
    if not isinstance(value, str):
        try:
            return float(value)
        except OverflowError:
            return math.copysign(math.inf, value)
    found = _FLOAT_TEXT.fullmatch(value)
    if found is None or (found[2] and found[1].lstrip("+-")[0] in "NI"):
        raise _out_of_range(value)
    return float(found[1])


def _out_of_range(value: str) -> RecordFailed:
    return RecordFailed(f"Value ({value}) was out of range for requested data type")
