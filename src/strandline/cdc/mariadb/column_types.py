"""Columns of MariaDB as fields: schemas and values by Debezium's handling modes."""

from __future__ import annotations

import base64
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from strandline.cdc.mariadb.row_values import DAY_US, EPOCH_DAY
from strandline.cdc.mariadb.shapes import ColumnShape
from strandline.cdc.model import CapturedColumn
from strandline.connect.failures import ConnectFailed
from strandline.connect.schema import (
    BYTES,
    DATE_SCHEMA,
    FLOAT64,
    INT32,
    INT64,
    STRING,
    TIME_SCHEMA,
    TIMESTAMP_SCHEMA,
    ConnectType,
    Schema,
    decimal_schema,
)
from strandline.connect.schema import struct as struct_schema

Convert = Callable[[Any], Any]
_PRECISION: Final = "connect.decimal.precision"
_INT16: Final = Schema(ConnectType.INT16)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_POINT: Final = struct.Struct("<dd")
_POINT_AT: Final = 5
"""Where the coordinates begin in a WKB point: behind the byte order and the type."""
_BIGINT_DIGITS: Final = 20
_BINARY: Final[Mapping[str, tuple[Schema, Convert]]] = {
    "bytes": (BYTES, bytes),
    "base64": (STRING, lambda value: base64.b64encode(value).decode()),
    "base64-url-safe": (STRING, lambda value: base64.urlsafe_b64encode(value).decode()),
    "hex": (STRING, bytes.hex),
}


def _same(value: Any) -> Any:
    return value


def _named(kind: ConnectType, name: str, parameters: Mapping[str, str] | None = None) -> Schema:
    return Schema(kind, name=name, version=1, parameters=parameters or {})


_YEAR: Final = _named(ConnectType.INT32, "io.debezium.time.Year")
_DATE: Final = _named(ConnectType.INT32, "io.debezium.time.Date")
_MICRO_TIME: Final = _named(ConnectType.INT64, "io.debezium.time.MicroTime")
_NANO_TIME: Final = _named(ConnectType.INT64, "io.debezium.time.NanoTime")
_MILLI_TIMESTAMP: Final = _named(ConnectType.INT64, "io.debezium.time.Timestamp")
_MICRO_TIMESTAMP: Final = _named(ConnectType.INT64, "io.debezium.time.MicroTimestamp")
_NANO_TIMESTAMP: Final = _named(ConnectType.INT64, "io.debezium.time.NanoTimestamp")
_ZONED_TIMESTAMP: Final = _named(ConnectType.STRING, "io.debezium.time.ZonedTimestamp")
_ISO_DATE: Final = _named(ConnectType.STRING, "io.debezium.time.IsoDate")
_ISO_TIME: Final = _named(ConnectType.STRING, "io.debezium.time.IsoTime")
_ISO_TIMESTAMP: Final = _named(ConnectType.STRING, "io.debezium.time.IsoTimestamp")
_UUID: Final = _named(ConnectType.STRING, "io.debezium.data.Uuid")
_OPTIONAL_SRID: Final = INT32.as_optional()
_GEOMETRY: Final = replace(
    struct_schema({"wkb": BYTES, "srid": _OPTIONAL_SRID}, name="io.debezium.data.geometry.Geometry", version=1),
    doc="Geometry",
)
_POINT_SCHEMA: Final = replace(
    struct_schema(
        {"x": FLOAT64, "y": FLOAT64, "wkb": BYTES.as_optional(), "srid": _OPTIONAL_SRID},
        name="io.debezium.data.geometry.Point",
        version=1,
    ),
    doc="Geometry (POINT)",
)
_INTEGERS: Final = {
    ("tinyint", False): _INT16,
    ("tinyint", True): _INT16,
    ("smallint", False): _INT16,
    ("smallint", True): INT32,
    ("mediumint", False): INT32,
    ("mediumint", True): INT32,
    ("int", False): INT32,
    ("int", True): INT64,
    ("bigint", False): INT64,
}
_PLAIN: Final = {
    "float": Schema(ConnectType.FLOAT32),
    "double": FLOAT64,
    "year": _YEAR,
    "text": STRING,
    "inet6": STRING,
    "inet4": STRING,
    "uuid": _UUID,
}


class ColumnTypes:
    """Makes the captured columns of a connector's tables."""

    def __init__(self, decimal_mode: str, time_mode: str, binary_mode: str, bigint_mode: str) -> None:
        self._decimal_mode = decimal_mode
        self._time_mode = time_mode
        self._binary = _BINARY[binary_mode]
        self._bigint_mode = bigint_mode

    def column(self, full_name: str, shape: ColumnShape) -> CapturedColumn:
        """Return a column of a table."""
        schema, convert = self._type(f"{full_name}.{shape.name}", shape)
        return CapturedColumn(shape.name, schema.as_optional() if shape.is_nullable else schema, convert)

    def _type(self, name: str, shape: ColumnShape) -> tuple[Schema, Convert]:
        if shape.kind in _PLAIN:
            return _PLAIN[shape.kind], _same
        plain = _INTEGERS.get((shape.kind, shape.is_unsigned))
        if plain is not None:
            return plain, _same
        match shape.kind:
            case "bigint":
                if self._bigint_mode == "precise":
                    return _decimal(_BIGINT_DIGITS, 0), Decimal
                # Debezium's default: a number above 2^63 becomes a negative one.
                return INT64, lambda value: value - (1 << 64) if value >> 63 else value
            case "decimal":
                return self._decimal_type(shape)
            case "bit":
                if shape.length == 1:
                    return Schema(ConnectType.BOOLEAN), lambda value: value != b"\0"
                parameters = {"length": str(shape.length)}
                return _named(ConnectType.BYTES, "io.debezium.data.Bits", parameters), lambda value: value[::-1]
            case "enum" | "set":
                kind = "Enum" if shape.kind == "enum" else "EnumSet"
                allowed = {"allowed": ",".join(shape.labels)}
                return _named(ConnectType.STRING, f"io.debezium.data.{kind}", allowed), _same
            case "bytes":
                return self._binary
            case "geometry":
                return (_POINT_SCHEMA, _point) if shape.is_point else (_GEOMETRY, _geometry)
        return self._temporal(name, shape)

    def _decimal_type(self, shape: ColumnShape) -> tuple[Schema, Convert]:
        match self._decimal_mode:
            case "double":
                return FLOAT64, float
            case "string":
                return STRING, lambda value: format(value, "f")
        return _decimal(shape.length, shape.scale), _same

    def _temporal(self, name: str, shape: ColumnShape) -> tuple[Schema, Convert]:
        mode, digits = self._time_mode, shape.length
        match shape.kind, mode:
            case "date", "connect":
                return DATE_SCHEMA, lambda days: _date(name, days)
            case "date", "isostring":
                return _ISO_DATE, lambda days: f"{_date(name, days).isoformat()}Z"
            case "date", _:
                return _DATE, _same
            case "timestamp", _:
                return _ZONED_TIMESTAMP, lambda us: iso_timestamp(us, digits)
            case "time", "connect":
                return TIME_SCHEMA, lambda us: _time(name, us)
            case "time", "isostring":
                return (
                    _ISO_TIME,
                    lambda us: f"{_time(name, us).isoformat(timespec='microseconds' if us % 10**6 else 'seconds')}Z",
                )
            case "time", "nanoseconds":
                return _NANO_TIME, lambda us: us * 1000
            case "time", _:
                return _MICRO_TIME, _same
            case _, "connect":
                return TIMESTAMP_SCHEMA, lambda us: _datetime(name, us)
            case _, "isostring":
                return _ISO_TIMESTAMP, lambda us: iso_timestamp(us, digits)
            case _, "nanoseconds":
                return _NANO_TIMESTAMP, lambda us: us * 1000
            case _, "microseconds":
                return _MICRO_TIMESTAMP, _same
        if digits <= 3:
            return _MILLI_TIMESTAMP, lambda us: us // 1000
        return _MICRO_TIMESTAMP, _same


def _decimal(precision: int, scale: int) -> Schema:
    made = decimal_schema(scale)
    return replace(made, parameters={**made.parameters, _PRECISION: str(precision)})


def iso_timestamp(us: int, digits: int) -> str:
    """Return a time in UTC with so many digits behind the second."""
    moment = _EPOCH + timedelta(microseconds=us)
    text = moment.strftime("%Y-%m-%dT%H:%M:%S") if moment.year > 999 else moment.isoformat()[:19]
    return f"{text}.{moment.microsecond:06d}"[: len(text) + 1 + digits] + "Z" if digits else f"{text}Z"


def _date(name: str, days: int) -> date:
    try:
        return date.fromordinal(days + EPOCH_DAY)
    except ValueError:
        raise _no_room(name, f"a date {days} days from 1970") from None


def _time(name: str, us: int) -> time:
    if not 0 <= us < DAY_US:
        raise _no_room(name, f"a time of {us / 1_000_000} seconds")
    return (_EPOCH + timedelta(microseconds=us)).time()


def _datetime(name: str, us: int) -> datetime:
    try:
        return _EPOCH + timedelta(microseconds=us)
    except OverflowError:
        raise _no_room(name, f"a date {us // DAY_US} days from 1970") from None


def _no_room(name: str, what: str) -> ConnectFailed:
    return ConnectFailed(
        f"{name} has {what}, which the field's type has no room for: use time.precision.mode=adaptive_time_microseconds"
    )


def _geometry(value: bytes) -> dict[str, Any]:
    return {"wkb": value[4:], "srid": int.from_bytes(value[:4], "little") or None}


def _point(value: bytes) -> dict[str, Any]:
    wkb = value[4:]
    x, y = _POINT.unpack_from(wkb, _POINT_AT)
    return {"x": x, "y": y, "wkb": wkb, "srid": int.from_bytes(value[:4], "little") or None}
