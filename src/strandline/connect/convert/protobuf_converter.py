"""Confluent's ProtobufConverter: Protobuf payloads whose files are in a registry."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any, Final

from strandline.connect.convert.java_text import base64_text, double_text, to_single
from strandline.connect.convert.json_writing import wrong_type
from strandline.connect.convert.logical import (
    date_of,
    days_of,
    decimal_of,
    moment_of,
    scale_of,
    time_ms_of,
    time_of,
    timestamp_ms_of,
    unscaled_of,
)
from strandline.connect.convert.protobuf_schemas import ProtobufSchemas, ProtobufText
from strandline.connect.convert.registry_converter import PayloadDecoding, RegistryConverter
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectType, Schema
from strandline.schemas.engines import SchemaSource
from strandline.schemas.payloads.protobuf_payload import ProtobufCodec
from strandline.schemas.payloads.wire_format import read_indexes
from strandline.schemas.protobuf.engine import ProtobufEngine

Convert = Callable[[Any], Any]

_PRECISION: Final = 64
_KEYS: Final[dict[ConnectType, Convert]] = {
    ConnectType.STRING: str,
    ConnectType.INT32: int,
    ConnectType.INT64: int,
    ConnectType.BOOLEAN: lambda key: key == "true",
}


class ProtobufConverter(RegistryConverter):
    """Protobuf with schemas in a registry."""

    def source_of(self, topic: str, schema: Schema) -> SchemaSource:
        return SchemaSource("PROTOBUF", ProtobufText(schema).text)

    def encoder(self, schema: Schema, source: SchemaSource) -> Callable[[Any], bytes]:
        encode, convert = ProtobufCodec(source.text, dict(source.references)).encode, _to_json(schema)
        return lambda value: encode(convert(value))

    def reader(self, source: SchemaSource) -> Callable[[bytes], PayloadDecoding]:
        if source.type != "PROTOBUF":
            raise RecordFailed(f"the schema is one of {source.type}, not of Protobuf")
        references = dict(source.references)
        decode = ProtobufCodec(source.text, references).decode
        schemas = ProtobufSchemas(ProtobufEngine().parse(source.text, references).linked)
        known: dict[tuple[int, ...], PayloadDecoding] = {}

        def find(payload: bytes) -> PayloadDecoding:
            indexes, _ = read_indexes(payload)
            if indexes not in known:
                schema, _ = schemas.message(indexes)
                convert = _from_json(schema)
                known[indexes] = PayloadDecoding(schema, lambda data: convert(decode(data)))
            return known[indexes]

        return find


def _to_json(schema: Schema) -> Convert:
    """Return a function that makes a value of Protobuf's JSON mapping."""
    logical = _logical_to_json(schema)
    if logical is not None:
        return logical
    match schema.kind:
        case ConnectType.STRUCT:
            return _struct_to_json(schema)
        case ConnectType.ARRAY:
            assert schema.value_schema is not None
            item = _to_json(schema.value_schema)
            return lambda value: [item(_present(each)) for each in _of_type(value, list | tuple, "ARRAY")]
        case ConnectType.MAP:
            assert schema.value_schema is not None
            item = _to_json(schema.value_schema)
            return lambda value: {
                _key_text(key): item(_present(each)) for key, each in _of_type(value, dict, "MAP").items()
            }
        case ConnectType.BYTES:
            return lambda value: base64_text(bytes(_of_type(value, bytes | bytearray | memoryview, "BYTES")))
        case ConnectType.FLOAT32 | ConnectType.FLOAT64:
            return lambda value: double_text(value) if isinstance(value, float) and not math.isfinite(value) else value
    return lambda value: value


def _logical_to_json(schema: Schema) -> Convert | None:
    match schema.name:
        case str(name) if name == TIMESTAMP:
            return _moment_to_json
        case str(name) if name == DATE:
            return _date_to_json
        case str(name) if name == TIME:
            return _time_to_json
        case str(name) if name == DECIMAL:
            scale = scale_of(schema)
            return lambda value: {
                "value": base64_text(unscaled_of(value, scale)),
                "precision": _PRECISION,
                "scale": scale,
            }
    return None


def _struct_to_json(schema: Schema) -> Convert:
    fields = [(each.name, each.schema, _to_json(each.schema)) for each in schema.fields]
    names = frozenset(each.name for each in schema.fields)

    def convert(value: Any) -> Any:
        given = _of_type(value, dict, "STRUCT")
        if not given.keys() <= names:
            raise RecordFailed(f"the schema has no field {next(iter(given.keys() - names))!r}")
        found = {}
        for name, each, to_json in fields:
            inner = each.default if given.get(name) is None else given[name]
            if inner is not None:
                found[name] = to_json(inner)
            elif not each.optional:
                raise RecordFailed(f"null value for the field {name!r}, which is required and has no default value")
        return found

    return convert


def _of_type(value: Any, wanted: Any, kind: str) -> Any:
    if not isinstance(value, wanted):
        raise wrong_type(kind, value)
    return value


def _present(value: Any) -> Any:
    if value is None:
        raise RecordFailed("Protobuf has no null in an array or map")
    return value


def _key_text(key: Any) -> str:
    return ("true" if key else "false") if isinstance(key, bool) else str(key)


def _moment_to_json(value: Any) -> str:
    moment = moment_of(timestamp_ms_of(value))
    if not isinstance(moment, datetime):
        raise RecordFailed(f"Protobuf has no timestamp of {moment} milliseconds")
    return f"{moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec='milliseconds')}Z"


def _date_to_json(value: Any) -> dict[str, int]:
    found = date_of(days_of(value))
    if not isinstance(found, date):
        raise RecordFailed(f"Protobuf has no date of {found} days")
    return {"year": found.year, "month": found.month, "day": found.day}


def _time_to_json(value: Any) -> dict[str, int]:
    seconds, milliseconds = divmod(time_ms_of(value), 1000)
    return {
        "hours": seconds // 3600,
        "minutes": seconds // 60 % 60,
        "seconds": seconds % 60,
        "nanos": milliseconds * 1_000_000,
    }


def _from_json(schema: Schema) -> Convert:
    """Return a function that makes a Connect value of one of Protobuf's JSON mapping."""
    convert = _logical_from_json(schema) or _typed_from_json(schema)
    return lambda value: None if value is None else convert(value)


def _logical_from_json(schema: Schema) -> Convert | None:
    match schema.name:
        case str(name) if name == TIMESTAMP:
            return lambda value: moment_of(timestamp_ms_of(datetime.fromisoformat(_to_micros(value))))
        case str(name) if name == DATE:
            return _date_from_json
        case str(name) if name == TIME:
            return lambda value: time_of(
                (value["hours"] * 3600 + value["minutes"] * 60 + value["seconds"]) * 1000 + value["nanos"] // 1_000_000
            )
        case str(name) if name == DECIMAL:
            return lambda value: decimal_of(base64.b64decode(value["value"]), value["scale"])
    return None


def _to_micros(text: str) -> str:
    """Return a time without the digits that Python does not take."""
    seconds, point, rest = text.removesuffix("Z").partition(".")
    return f"{seconds}{point}{rest[:6]}+00:00"


def _date_from_json(value: Any) -> Any:
    try:
        return date(value["year"], value["month"], value["day"])
    except ValueError:
        raise RecordFailed(f"{value['year']}-{value['month']}-{value['day']} is no date") from None


def _typed_from_json(schema: Schema) -> Convert:
    match schema.kind:
        case ConnectType.STRUCT:
            fields = [(each.name, _from_json(each.schema)) for each in schema.fields]
            return lambda value: {name: convert(value.get(name)) for name, convert in fields}
        case ConnectType.ARRAY:
            assert schema.value_schema is not None
            item = _from_json(schema.value_schema)
            return lambda value: [item(each) for each in value]
        case ConnectType.MAP:
            assert schema.key_schema is not None
            assert schema.value_schema is not None
            keys, item = _KEYS[schema.key_schema.kind], _from_json(schema.value_schema)
            return lambda value: {keys(key): item(each) for key, each in value.items()}
        case ConnectType.BYTES:
            return base64.b64decode
        case ConnectType.INT64:
            return int
        case ConnectType.FLOAT32:
            return lambda value: to_single(float(value))
        case ConnectType.FLOAT64:
            return float
    return lambda value: value
