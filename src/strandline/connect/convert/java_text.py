"""Values as the text that Java makes of them, which Kafka's converters and transforms write."""

from __future__ import annotations

import base64
import math
import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any, Final

from strandline.connect.convert.logical import DAY_MS, epoch_ms
from strandline.connect.schema import ConnectType, Schema

_SINGLE: Final = struct.Struct(">f")
_SINGLE_DIGITS_MAX: Final = 9
_NOT_FINITE: Final = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}


def to_single(value: float) -> float:
    """Return the nearest number of 32 bits."""
    try:
        found: float = _SINGLE.unpack(_SINGLE.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return found


def double_text(value: float) -> str:
    """Return a double as Java writes it: `1.0E7` for 10,000,000."""
    if not math.isfinite(value):
        return _NOT_FINITE[str(value)]
    text = repr(value)
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        return text
    return _scientific(text)


def single_text(value: float) -> str:
    """Return a float of 32 bits as Java writes it."""
    value = to_single(value)
    if not math.isfinite(value):
        return _NOT_FINITE[str(value)]
    for digits in range(_SINGLE_DIGITS_MAX):
        text = f"{value:.{digits}e}"
        if to_single(float(text)) == value:
            break
    if 1e-3 <= abs(value) < 1e7 or value == 0:
        plain = format(Decimal(text), "f")
        return plain if "." in plain else f"{plain}.0"
    return _scientific(text)


def _scientific(text: str) -> str:
    sign, digits, exponent = Decimal(text).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits)).rstrip("0") or "0"
    return f"{'-' if sign else ''}{shown[0]}.{shown[1:] or '0'}E{exponent + len(digits) - 1}"


def moment_text(value: date | time | datetime) -> str:
    """Return a date, time or moment in the form of ISO 8601 that Connect writes; a moment at midnight is a date."""
    if isinstance(value, time):
        return f"{value.isoformat('milliseconds').partition('+')[0]}Z"
    milliseconds = epoch_ms(value)
    if isinstance(value, datetime) and value.tzinfo is not None:
        value = value.astimezone(UTC).replace(tzinfo=None)
    if not isinstance(value, datetime) or not milliseconds or milliseconds % DAY_MS == 0:
        return f"{value.year:04}-{value.month:02}-{value.day:02}"
    return f"{value.isoformat(timespec='milliseconds')}Z"


def text_of_value(schema: Schema | None, value: Any) -> str:
    """Return the text of a value, as `toString` of Java gives it."""
    match value:
        case str():
            return value
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case float():
            is_single = schema is not None and schema.kind is ConnectType.FLOAT32
            return single_text(value) if is_single else double_text(value)
        case bytes():
            # Java gives the address of an array, which helps no reader.
            return value.decode("utf-8", "replace")
        case date() | time():
            return moment_text(value)
        case list() | tuple():
            inner = None if schema is None else schema.value_schema
            return f"[{', '.join(text_of_value(inner, each) for each in value)}]"
        case dict():
            return _text_of_dict(schema, value)
    return str(value)


def _text_of_dict(schema: Schema | None, value: dict[Any, Any]) -> str:
    if schema is not None and schema.kind is ConnectType.STRUCT:
        shown = (
            f"{each.name}={text_of_value(each.schema, value[each.name])}"
            for each in schema.fields
            if value.get(each.name) is not None
        )
        return f"Struct{{{','.join(shown)}}}"
    keys, values = (None, None) if schema is None else (schema.key_schema, schema.value_schema)
    pairs = (f"{text_of_value(keys, key)}={text_of_value(values, each)}" for key, each in value.items())
    return f"{{{', '.join(pairs)}}}"


def base64_text(value: bytes) -> str:
    """Return bytes as Base64."""
    return base64.b64encode(value).decode("ascii")
