"""Parsed JSON to values of a schema. Where Kafka silently makes 0 or null of a wrong type, this raises RecordFailed."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final, NoReturn

from strandline.connect.convert.interface import SchemaCache
from strandline.connect.convert.java_text import to_single
from strandline.connect.convert.json_writing import WHOLE
from strandline.connect.convert.logical import at_scale, date_of, decimal_of, is_number, moment_of, scale_of, time_of
from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DATE, DECIMAL, TIME, TIMESTAMP, ConnectType, Schema

Reader = Callable[[Any], Any]

_NOT_FINITE: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_NODE_TYPES: Final = ((bool, "BOOLEAN"), (int, "NUMBER"), (float, "NUMBER"), (Decimal, "NUMBER"), (str, "STRING"))
_INT_LIMIT: Final = 2**31


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number of JSON")


_DECODE: Final = json.JSONDecoder(parse_constant=_refuse_constant).decode
_DECODE_EXACTLY: Final = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=Decimal).decode


def parsed(data: bytes, *, exactly: bool = False) -> Any:
    """Return the value of JSON text. `exactly` keeps numbers with a point as decimals."""
    try:
        return (_DECODE_EXACTLY if exactly else _DECODE)(data.decode())
    except RecursionError:
        reason = "it is nested too deep"
    except ValueError as error:
        reason = str(error)
    raise RecordFailed(f"Converting byte[] to Kafka Connect data failed due to serialization error: {reason}")


def node_type(value: Any) -> str:
    """Return what Kafka's messages call the type of a JSON value."""
    if value is None:
        return "NULL"
    found = next((name for kind, name in _NODE_TYPES if isinstance(value, kind)), None)
    return found or ("ARRAY" if isinstance(value, list) else "OBJECT")


class JsonReading:
    """Functions that read values of schemas."""

    def __init__(self, *, replace_nulls: bool) -> None:
        self._replace_nulls = replace_nulls
        self.reader: SchemaCache[Reader] = SchemaCache(self._made)
        self.has_decimals: SchemaCache[bool] = SchemaCache(_has_decimals)

    def _made(self, schema: Schema) -> Reader:
        read = _logical(schema) or self._typed(schema)
        default = schema.default if self._replace_nulls else None

        def read_or_null(value: Any) -> Any:
            if value is not None:
                return read(value)
            if default is not None or schema.optional:
                return default
            raise RecordFailed(f"Invalid null value for required {schema.kind.name} field")

        return read_or_null

    def _typed(self, schema: Schema) -> Reader:
        match schema.kind:
            case ConnectType.BOOLEAN:
                return _of_type(bool, "BOOLEAN")
            case ConnectType.STRING:
                return _of_type(str, "STRING")
            case ConnectType.BYTES:
                return _bytes
            case ConnectType.ARRAY:
                return self._array(schema)
            case ConnectType.MAP:
                return self._map(schema)
            case ConnectType.STRUCT:
                return self._struct(schema)
        return _whole(schema.kind) if schema.kind in WHOLE else _floating(schema.kind)

    def _array(self, schema: Schema) -> Reader:
        read = _as_is if schema.value_schema is None else self._made(schema.value_schema)

        def array(value: Any) -> Any:
            if not isinstance(value, list):
                raise _wrong("ARRAY", value)
            return [read(each) for each in value]

        return array

    def _map(self, schema: Schema) -> Reader:
        assert schema.key_schema is not None
        read_key = self._made(schema.key_schema)
        read = _as_is if schema.value_schema is None else self._made(schema.value_schema)
        is_object = schema.key_schema.kind is ConnectType.STRING

        def from_object(value: Any) -> Any:
            if not isinstance(value, dict):
                raise RecordFailed(
                    f"Maps with string fields should be encoded as JSON objects, but found {node_type(value)}"
                )
            return {key: read(each) for key, each in value.items()}

        def from_pairs(value: Any) -> Any:
            if not isinstance(value, list):
                raise RecordFailed(
                    "Maps with non-string fields should be encoded as JSON array of tuples, "
                    f"but found {node_type(value)}"
                )
            for pair in value:
                if not isinstance(pair, list):
                    raise RecordFailed(f"Found invalid map entry instead of array tuple: {node_type(pair)}")
                if len(pair) != 2:
                    raise RecordFailed(f"Found invalid map entry, expected length 2 but found :{len(pair)}")
            try:
                return {read_key(key): read(each) for key, each in value}
            except TypeError:
                raise RecordFailed("the keys of a map are arrays, maps or structs, which no map can have") from None

        return from_object if is_object else from_pairs

    def _struct(self, schema: Schema) -> Reader:
        fields = [(each.name, self._made(each.schema)) for each in schema.fields]

        def struct(value: Any) -> Any:
            if not isinstance(value, dict):
                raise RecordFailed(f"Structs should be encoded as JSON objects, but found {node_type(value)}")
            get = value.get
            try:
                return {name: read(get(name)) for name, read in fields}
            except RecordFailed as error:
                raise RecordFailed(f"{error} (field {_failing(fields, value)!r})") from None

        return struct


def _failing(fields: list[tuple[str, Reader]], value: dict[str, Any]) -> str:
    """Return the first field that cannot be read."""
    for name, read in fields:
        try:
            read(value.get(name))
        except RecordFailed:
            return name
    return ""


def _logical(schema: Schema) -> Reader | None:
    match schema.name:
        case str(name) if name == DATE:
            return lambda value: date_of(_integer("Date", value))
        case str(name) if name == TIME:
            return lambda value: time_of(_integer("Time", value))
        case str(name) if name == TIMESTAMP:
            return _timestamp
        case str(name) if name == DECIMAL:
            return _decimal(scale_of(schema))
    return None


def _integer(label: str, value: Any) -> int:
    if not is_number(value) or not -_INT_LIMIT <= value < _INT_LIMIT:
        raise RecordFailed(
            f"Invalid type for {label}, underlying representation should be integer but was {node_type(value)}"
        )
    return int(value)


def _timestamp(value: Any) -> Any:
    if not is_number(value):
        raise RecordFailed(
            f"Invalid type for Timestamp, underlying representation should be integral but was {node_type(value)}"
        )
    return moment_of(value)


def _decimal(scale: int) -> Reader:
    def decimal(value: Any) -> Any:
        if isinstance(value, str):
            try:
                return decimal_of(base64.b64decode(value, validate=True), scale)
            except binascii.Error:
                raise RecordFailed("Invalid bytes for Decimal field") from None
        if isinstance(value, float):
            value = Decimal(repr(value))
        if not isinstance(value, Decimal) and not is_number(value):
            raise RecordFailed(
                "Invalid type for Decimal, underlying representation should be numeric or bytes "
                f"but was {node_type(value)}"
            )
        try:
            return at_scale(value, scale)
        except RecordFailed:
            # It has more digits than the schema says. Kafka keeps them too.
            return Decimal(value)

    return decimal


def _wrong(kind: str, value: Any) -> RecordFailed:
    return RecordFailed(f"Invalid type for {kind}: the JSON has {node_type(value)}")


def _as_is(value: Any) -> Any:
    return value


def _of_type(wanted: type, kind: str) -> Reader:
    def read(value: Any) -> Any:
        if not isinstance(value, wanted):
            raise _wrong(kind, value)
        return value

    return read


def _bytes(value: Any) -> Any:
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, TypeError, ValueError):
        raise RecordFailed("Invalid bytes field") from None


def _whole(kind: ConnectType) -> Reader:
    limit = 1 << WHOLE[kind] - 1

    def whole(value: Any) -> Any:
        if isinstance(value, float | Decimal) and value == int(value):
            value = int(value)
        if not is_number(value):
            raise _wrong(kind.name, value)
        if not -limit <= value < limit:
            raise RecordFailed(f"{value} does not fit into {kind.name}")
        return value

    return whole


def _floating(kind: ConnectType) -> Reader:
    is_single = kind is ConnectType.FLOAT32

    def floating(value: Any) -> Any:
        if isinstance(value, str) and value in _NOT_FINITE:
            return _NOT_FINITE[value]
        if not isinstance(value, float | Decimal) and not is_number(value):
            raise _wrong(kind.name, value)
        try:
            return to_single(float(value)) if is_single else float(value)
        except OverflowError:
            raise RecordFailed(f"a number does not fit into {kind.name}") from None

    return floating


def _has_decimals(schema: Schema) -> bool:
    inner = (schema.key_schema, schema.value_schema, *(each.schema for each in schema.fields))
    return schema.name == DECIMAL or any(_has_decimals(each) for each in inner if each is not None)
