"""Types of columns: which one a value needs, and what a value becomes in a column.

A value is encoded into the Python type of its column: bool, int, float, Decimal, str, bytes, date, time, an aware
datetime in UTC; JSON is a text. A column widens when a value does not fit, along these lines:

    smallint -> integer -> bigint -> double or numeric -> text
    boolean -> text

JSON and text take everything but bytes. Dates, times and bytes never become another type: a value that is none fails.
"""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import StrEnum
from functools import partial
from typing import Any, Final

from strandline.connect.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, ConnectType, Schema

EXACT_DOUBLE_MAX: Final = 2**53
"""Every whole number up to this is exact in a double."""
_PLAIN_FLOAT_MAX: Final = 1e15
"""PostgreSQL writes whole doubles from here on with an exponent."""


class ColumnType(StrEnum):
    """Types that sinks know; each database has its own names for them. OTHER is one that only the database knows."""

    BOOLEAN = "boolean"
    SMALLINT = "smallint"
    INTEGER = "integer"
    BIGINT = "bigint"
    REAL = "real"
    DOUBLE = "double"
    NUMERIC = "numeric"
    TEXT = "text"
    BYTES = "bytes"
    DATE = "date"
    TIME = "time"
    TIMESTAMP = "timestamp"
    JSON = "json"
    ARRAY = "array"
    DATETIME = "datetime"
    """Of a new column only: a timestamp without a zone. Later it is a TIMESTAMP."""
    UUID = "uuid"
    """Of a new column only. Later it is OTHER."""
    OTHER = "other"


class JsonText(str):
    """A text that is JSON already."""

    __slots__ = ()


class Misfit(Exception):
    """A value that its column cannot hold."""


_OF_KIND: Final = {
    ConnectType.INT8: ColumnType.SMALLINT,
    ConnectType.INT16: ColumnType.SMALLINT,
    ConnectType.INT32: ColumnType.INTEGER,
    ConnectType.INT64: ColumnType.BIGINT,
    ConnectType.FLOAT32: ColumnType.REAL,
    ConnectType.FLOAT64: ColumnType.DOUBLE,
    ConnectType.BOOLEAN: ColumnType.BOOLEAN,
    ConnectType.STRING: ColumnType.TEXT,
    ConnectType.BYTES: ColumnType.BYTES,
    ConnectType.ARRAY: ColumnType.ARRAY,
    ConnectType.MAP: ColumnType.JSON,
    ConnectType.STRUCT: ColumnType.JSON,
}
_OF_LOGICAL: Final = {
    DECIMAL: ColumnType.NUMERIC,
    DATE: ColumnType.DATE,
    TIME: ColumnType.TIME,
    TIMESTAMP: ColumnType.TIMESTAMP,
    "io.debezium.time.Date": ColumnType.DATE,
    "io.debezium.time.IsoDate": ColumnType.DATE,
    "io.debezium.time.Time": ColumnType.TIME,
    "io.debezium.time.MicroTime": ColumnType.TIME,
    "io.debezium.time.NanoTime": ColumnType.TIME,
    "io.debezium.time.IsoTime": ColumnType.TIME,
    "io.debezium.time.Timestamp": ColumnType.DATETIME,
    "io.debezium.time.MicroTimestamp": ColumnType.DATETIME,
    "io.debezium.time.NanoTimestamp": ColumnType.DATETIME,
    "io.debezium.time.IsoTimestamp": ColumnType.DATETIME,
    "io.debezium.time.ZonedTimestamp": ColumnType.TIMESTAMP,
    "io.debezium.data.Json": ColumnType.JSON,
    "io.debezium.data.Uuid": ColumnType.UUID,
    "io.debezium.data.VariableScaleDecimal": ColumnType.NUMERIC,
}
_WHOLE: Final = {ColumnType.SMALLINT: 1, ColumnType.INTEGER: 2, ColumnType.BIGINT: 3}
_FLOATING: Final = (ColumnType.REAL, ColumnType.DOUBLE)
_NUMBERS: Final = (*_WHOLE, *_FLOATING, ColumnType.NUMERIC)
_WIDENING: Final = (ColumnType.BOOLEAN, *_NUMBERS)


def type_of_schema(schema: Schema) -> tuple[ColumnType, int | None]:
    """Return the type of a column for a schema, and the scale of a decimal."""
    if schema.name == DECIMAL:
        return ColumnType.NUMERIC, int(schema.parameters.get(SCALE, "0"))
    return _OF_LOGICAL.get(schema.name or "", _OF_KIND[schema.kind]), None


def element_of(schema: Schema) -> ColumnType:
    """Return the type of an array's elements; an array of arrays has that of the inner ones."""
    if schema.kind is ConnectType.ARRAY and schema.value_schema is not None:
        return element_of(schema.value_schema)
    return type_of_schema(schema)[0]


def type_of_value(value: Any) -> ColumnType:
    """Return the type that a value without a schema needs. Raise Misfit for what no column can hold."""
    match value:
        case bool():
            return ColumnType.BOOLEAN
        case int():
            return ColumnType.BIGINT if -(2**63) <= value < 2**63 else ColumnType.NUMERIC
        case float():
            return ColumnType.DOUBLE
        case JsonText():
            return ColumnType.JSON
        case str():
            return ColumnType.TEXT
        case dict() | list() | tuple():
            return ColumnType.JSON
        case Decimal():
            return ColumnType.NUMERIC
        case bytes() | bytearray() | memoryview():
            return ColumnType.BYTES
        case datetime():
            return ColumnType.TIMESTAMP
        case date():
            return ColumnType.DATE
        case time():
            return ColumnType.TIME
    raise Misfit


def wider(held: ColumnType, needed: ColumnType) -> ColumnType | None:
    """Return a type for the values of two types; None if there is none."""
    if held == needed or (held in (ColumnType.TEXT, ColumnType.JSON) and needed != ColumnType.BYTES):
        return held
    if held not in _WIDENING or needed in (ColumnType.BYTES, ColumnType.OTHER):
        return None
    if held in _NUMBERS and needed in _NUMBERS:
        if ColumnType.NUMERIC in (held, needed):
            return ColumnType.NUMERIC
        if held in _WHOLE and needed in _WHOLE:
            return max(held, needed, key=_WHOLE.__getitem__)
        return ColumnType.DOUBLE
    return ColumnType.TEXT


def json_text(value: Any) -> str:
    """Return a value as JSON with sorted names. Raise Misfit if it has none, as NaN."""
    try:
        return _JSON.encode(value)
    except (TypeError, ValueError, RecursionError):
        raise Misfit from None


def _plain(value: Any) -> Any:
    """Return what JSON has for a value inside of another; bytes are base64, as in Connect's JSON."""
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, datetime):
        return _timestamp(value).isoformat()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    raise TypeError


_JSON: Final = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, sort_keys=True, separators=(",", ":"), default=_plain
)


def _boolean(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise Misfit


def _whole(low: int, high: int, value: Any) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and low <= value <= high:
        return value
    raise Misfit


def _double(value: Any) -> float:
    if isinstance(value, float):
        return value
    if isinstance(value, int) and not isinstance(value, bool) and -EXACT_DOUBLE_MAX <= value <= EXACT_DOUBLE_MAX:
        return float(value)
    raise Misfit


def _real(value: Any) -> float:
    number = _double(value)
    # A value of JSON for a field that is a float of 32 bits has few digits, and those are what counts.
    if math.isfinite(number) and as_real(number) != number and float(f"{number:.7g}") != number:
        raise Misfit
    return number


def as_real(number: float) -> float:
    """Return what is left of a number in 32 bits. Raise Misfit if it is too large."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", number))[0])
    except OverflowError:
        raise Misfit from None


def _numeric(value: Any) -> Decimal:
    if isinstance(value, Decimal) and value.is_finite():
        return value
    if isinstance(value, float) and math.isfinite(value):
        return Decimal(repr(value))
    if isinstance(value, int) and not isinstance(value, bool):
        return Decimal(value)
    if isinstance(value, str):
        try:
            return _numeric(Decimal(value))
        except ArithmeticError:
            raise Misfit from None
    raise Misfit


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        # The same text for 5 and 5.0, because a column of doubles that becomes one of texts has forgotten which it was.
        return str(int(value)) if value.is_integer() and abs(value) < _PLAIN_FLOAT_MAX else repr(value)
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return _timestamp(value).isoformat()
    if isinstance(value, int | date | time):
        return str(value)
    if isinstance(value, dict | list | tuple):
        return json_text(value)
    raise Misfit


def _bytes(value: Any) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise Misfit


def _date(value: Any) -> date:
    if isinstance(value, date) and not isinstance(value, datetime):
        return value
    found: date = _from_iso(date, value)
    return found


def _time(value: Any) -> time:
    return value if isinstance(value, time) else _from_iso(time, value)


def _timestamp(value: Any) -> datetime:
    found = value if isinstance(value, datetime) else _from_iso(datetime, value)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _from_iso(kind: Any, value: Any) -> Any:
    if not isinstance(value, str):
        raise Misfit
    try:
        return kind.fromisoformat(value)
    except ValueError:
        raise Misfit from None


def _json(value: Any) -> str:
    if isinstance(value, JsonText):
        return str(value)
    if isinstance(value, bytes | bytearray | memoryview):
        raise Misfit
    return json_text(value)


def _array(value: Any) -> Any:
    if isinstance(value, list | str):
        return value
    raise Misfit


def _other(value: Any) -> Any:
    return value if isinstance(value, bytes | list) else _text(value)


_BOUNDS: Final = {
    ColumnType.SMALLINT: (-(2**15), 2**15 - 1),
    ColumnType.INTEGER: (-(2**31), 2**31 - 1),
    ColumnType.BIGINT: (-(2**63), 2**63 - 1),
}
ENCODERS: Final[dict[ColumnType, Callable[[Any], Any]]] = {
    ColumnType.BOOLEAN: _boolean,
    **{kind: partial(_whole, low, high) for kind, (low, high) in _BOUNDS.items()},
    ColumnType.REAL: _real,
    ColumnType.DOUBLE: _double,
    ColumnType.NUMERIC: _numeric,
    ColumnType.TEXT: _text,
    ColumnType.BYTES: _bytes,
    ColumnType.DATE: _date,
    ColumnType.TIME: _time,
    ColumnType.TIMESTAMP: _timestamp,
    ColumnType.JSON: _json,
    ColumnType.ARRAY: _array,
    ColumnType.DATETIME: _timestamp,
    ColumnType.UUID: _text,
    ColumnType.OTHER: _other,
}

_UNCHANGED: Final[dict[ColumnType, type]] = {
    ColumnType.BOOLEAN: bool,
    **dict.fromkeys(_BOUNDS, int),
    ColumnType.DOUBLE: float,
    ColumnType.TEXT: str,
    ColumnType.BYTES: bytes,
    ColumnType.DATE: date,
    ColumnType.TIME: time,
}
"""The type of values that are encoded already."""


def encode_all(values: list[Any], kind: ColumnType) -> list[Any]:
    """Encode the values of a column, in which None is null. Raise Misfit if one does not fit."""
    # Most columns hold one type, and are then looked at without a call for each value.
    kinds = set(map(type, values))
    kinds.discard(type(None))
    if not kinds:
        return values
    if kinds == {_UNCHANGED.get(kind)}:
        if kind in _BOUNDS:
            low, high = _BOUNDS[kind]
            present = [each for each in values if each is not None]
            if min(present) < low or max(present) > high:
                raise Misfit
        return values
    encode = ENCODERS[kind]
    return [None if each is None else encode(each) for each in values]


def canonical(value: Any, kind: ColumnType) -> str:
    """Return the one text of an encoded value, or of what the database gives back for it."""
    match kind:
        case ColumnType.BOOLEAN:
            return "true" if value else "false"
        case ColumnType.REAL:
            return repr(as_real(float(value)))
        case ColumnType.DOUBLE:
            return repr(float(value))
        case ColumnType.NUMERIC:
            return _digits(Decimal(value))
        case ColumnType.BYTES:
            return bytes(value).hex()
        case ColumnType.DATE | ColumnType.TIME | ColumnType.TIMESTAMP:
            return str(ENCODERS[kind](value).isoformat())
        case ColumnType.JSON:
            return json_text(json.loads(value, parse_float=_plain_number))
        case ColumnType.ARRAY:
            return json_text(_element_texts(value))
        case ColumnType.OTHER:
            return value.hex() if isinstance(value, bytes) else str(value)
    return str(value)


def _element_texts(value: Any) -> Any:
    """Return the elements of an array as PostgreSQL shows them."""
    if isinstance(value, list):
        return [_element_texts(each) for each in value]
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    if isinstance(value, datetime):
        return value.isoformat(" ").replace("+00:00", "+00")
    return value if value is None else _text(value)


def _digits(number: Decimal) -> str:
    """Return a number without zeros at its end; Decimal.normalize would round it to the context's precision."""
    text = format(number, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text


def _plain_number(text: str) -> float | int:
    """Return a number of JSON, the same for 1e2, 100.0 and 100: databases write numbers in their own ways."""
    number = Decimal(text)
    return int(number) if number == number.to_integral_value() else float(number)


def decoded(text: str, kind: ColumnType) -> Any:
    """Return the encoded value of a canonical text."""
    match kind:
        case ColumnType.BOOLEAN:
            return text == "true"
        case ColumnType.SMALLINT | ColumnType.INTEGER | ColumnType.BIGINT:
            return int(text)
        case ColumnType.REAL | ColumnType.DOUBLE:
            return float(text)
        case ColumnType.BYTES:
            return bytes.fromhex(text)
        case ColumnType.JSON:
            return text
        case ColumnType.ARRAY:
            return json.loads(text)
    return ENCODERS[kind](text)
