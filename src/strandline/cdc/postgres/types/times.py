"""Dates, times, timestamps and intervals in the forms of `time.precision.mode` and `interval.handling.mode`."""

from __future__ import annotations

from typing import Final

from strandline.cdc.postgres.types.form import ColumnForm, Convert, TypeUse, semantic
from strandline.cdc.postgres.types.moments import (
    DAY_US,
    SECOND_US,
    TIMESTAMP_INFINITY,
    clock_text,
    clock_us,
    date_text,
    day_of,
    moment_us,
    offset_us,
    zoned_moment_us,
)
from strandline.connect.convert.logical import date_of, moment_of, time_of
from strandline.connect.failures import ConnectFailed
from strandline.connect.schema import DATE_SCHEMA, TIME_SCHEMA, TIMESTAMP_SCHEMA, ConnectType

_INT64_MAX: Final = 2**63 - 1
_INT64_MIN: Final = -(2**63)
_DIGITS: Final = 6
"""Digits of a second that PostgreSQL keeps, unless the column has less."""
_MILLISECOND_DIGITS: Final = 3
_DAYS_PER_MONTH: Final = 365.25 / 12.0
_INTERVAL_MODIFIER_BITS: Final = 0xFFFF
_DASH: Final = ord("-")
_C: Final = ord("C")
_INFINITE: Final = frozenset((b"infinity", b"-infinity"))
_DATE: Final = semantic(ConnectType.INT32, "io.debezium.time.Date")
_ISO_DATE: Final = semantic(ConnectType.STRING, "io.debezium.time.IsoDate")
_TIME: Final = semantic(ConnectType.INT32, "io.debezium.time.Time")
_MICRO_TIME: Final = semantic(ConnectType.INT64, "io.debezium.time.MicroTime")
_NANO_TIME: Final = semantic(ConnectType.INT64, "io.debezium.time.NanoTime")
_ISO_TIME: Final = semantic(ConnectType.STRING, "io.debezium.time.IsoTime")
_ZONED_TIME: Final = semantic(ConnectType.STRING, "io.debezium.time.ZonedTime")
_TIMESTAMP: Final = semantic(ConnectType.INT64, "io.debezium.time.Timestamp")
_MICRO_TIMESTAMP: Final = semantic(ConnectType.INT64, "io.debezium.time.MicroTimestamp")
_NANO_TIMESTAMP: Final = semantic(ConnectType.INT64, "io.debezium.time.NanoTimestamp")
_ISO_TIMESTAMP: Final = semantic(ConnectType.STRING, "io.debezium.time.IsoTimestamp")
_ZONED_TIMESTAMP: Final = semantic(ConnectType.STRING, "io.debezium.time.ZonedTimestamp")
_MICRO_DURATION: Final = semantic(ConnectType.INT64, "io.debezium.time.MicroDuration")
_INTERVAL: Final = semantic(ConnectType.STRING, "io.debezium.time.Interval")


def date(use: TypeUse) -> ColumnForm:
    """Return the form of a date."""
    match use.settings.time:
        case "isostring":
            return ColumnForm(_ISO_DATE, lambda value: f"{date_text(day_of(value))}Z")
        case "connect":
            return ColumnForm(DATE_SCHEMA, lambda value: date_of(day_of(value)))
    return ColumnForm(_DATE, day_of)


def time(use: TypeUse) -> ColumnForm:
    """Return the form of a time without a zone."""
    match use.settings.time:
        case "isostring":
            return ColumnForm(_ISO_TIME, lambda value: f"{clock_text(clock_us(value))}Z")
        case "connect":
            return ColumnForm(TIME_SCHEMA, lambda value: time_of(clock_us(value) // 1000))
        case "nanoseconds":
            return ColumnForm(_NANO_TIME, lambda value: clock_us(value) * 1000)
        case "adaptive" if _precision(use) <= _MILLISECOND_DIGITS:
            return ColumnForm(_TIME, lambda value: clock_us(value) // 1000)
    return ColumnForm(_MICRO_TIME, clock_us)


def zoned_time(use: TypeUse) -> ColumnForm:
    """Return the form of a time with a zone: a text in UTC."""
    return ColumnForm(_ZONED_TIME, _zoned_time_text)


def timestamp(use: TypeUse) -> ColumnForm:
    """Return the form of a timestamp without a zone."""
    match use.settings.time:
        case "isostring":
            return ColumnForm(_ISO_TIMESTAMP, _timestamp_text)
        case "connect":
            return ColumnForm(TIMESTAMP_SCHEMA, lambda value: moment_of(moment_us(value) // 1000))
        case "nanoseconds":
            return ColumnForm(_NANO_TIMESTAMP, _nanoseconds(use))
        case "adaptive" | "adaptive_time_microseconds" if _precision(use) <= _MILLISECOND_DIGITS:
            return ColumnForm(_TIMESTAMP, lambda value: moment_us(value) // 1000)
    return ColumnForm(_MICRO_TIMESTAMP, _microseconds)


def zoned_timestamp(use: TypeUse) -> ColumnForm:
    """Return the form of a timestamp with a zone: a text in UTC, with as many digits as the column has."""
    digits = _precision(use)
    length = len("hh:mm:ss.") + digits

    def convert(value: bytes) -> str:
        text = value.decode()
        if text[4] == "-" and text.endswith("+00"):
            clock = text[11:-3]
            if digits:
                clock = clock.ljust(length, "0") if len(clock) > 8 else f"{clock}.{'0' * digits}"
            return f"{text[:10]}T{clock}Z"
        if value in _INFINITE:
            return text
        days, clock_part = divmod(zoned_moment_us(value), DAY_US)
        fraction = f".{clock_part % SECOND_US:06}"[: digits + 1] if digits else ""
        return f"{date_text(days)}T{clock_text(clock_part - clock_part % SECOND_US)}{fraction}Z"

    return ColumnForm(_ZONED_TIMESTAMP, convert)


def interval(use: TypeUse) -> ColumnForm:
    """Return the form of an interval."""
    if use.settings.interval == "string":
        return ColumnForm(_INTERVAL, _interval_text)
    return ColumnForm(_MICRO_DURATION, _interval_us)


def _precision(use: TypeUse) -> int:
    return _DIGITS if use.modifier == -1 else min(use.modifier & _INTERVAL_MODIFIER_BITS, _DIGITS)


def _microseconds(value: bytes) -> int:
    found = moment_us(value)
    # PostgreSQL's last 30 years are beyond 64 bits, since it counts from 2000.
    return found if found <= _INT64_MAX else _INT64_MAX


def _nanoseconds(use: TypeUse) -> Convert:
    def convert(value: bytes) -> int | None:
        found = moment_us(value) * 1000
        if _INT64_MIN <= found <= _INT64_MAX:
            return found
        if value in TIMESTAMP_INFINITY:
            return _INT64_MAX if value == b"infinity" else _INT64_MIN
        if use.is_optional:
            return None
        raise ConnectFailed(
            f"Column {use.column} holds {value.decode()}, which 64 bits cannot count in nanoseconds; set "
            "time.precision.mode to microseconds or isostring."
        )

    return convert


def _timestamp_text(value: bytes) -> str:
    if value[4] == _DASH and value[-1] != _C:
        return f"{value[:10].decode()}T{value[11:].decode()}Z"
    days, clock = divmod(moment_us(value), DAY_US)
    return f"{date_text(days)}T{clock_text(clock)}Z"


def _zoned_time_text(value: bytes) -> str:
    text = value.decode()
    at = max(text.rfind("+"), text.rfind("-"))
    return f"{clock_text(clock_us(value[:at]) - offset_us(text[at:]))}Z"


def _interval_parts(value: bytes) -> tuple[int, int, int, int, int, int]:
    """Return years, months, days, hours, minutes and microseconds, each with its own sign."""
    words = value.decode().split()
    years = months = days = hours = minutes = microseconds = 0
    if ":" in words[-1]:
        clock = words.pop()
        sign = -1 if clock[0] == "-" else 1
        hour_text, minute_text, second_text = clock.lstrip("+-").split(":")
        second, _, fraction = second_text.partition(".")
        hours, minutes = sign * int(hour_text), sign * int(minute_text)
        microseconds = sign * (int(second) * SECOND_US + int(fraction.ljust(6, "0")[:6] or 0))
    for count, unit in zip(words[::2], words[1::2], strict=True):
        match unit[0]:
            case "y":
                years = int(count)
            case "m":
                months = int(count)
            case _:
                days = int(count)
    return years, months, days, hours, minutes, microseconds


def _interval_us(value: bytes) -> int:
    """Return the microseconds of an interval, in floating point as Debezium counts them; a month is 30.4375 days."""
    if value in _INFINITE:
        return _INT64_MAX if value == b"infinity" else _INT64_MIN
    years, months, days, hours, minutes, microseconds = _interval_parts(value)
    sign = -1 if microseconds < 0 else 1
    whole, fraction = divmod(abs(microseconds), SECOND_US)
    seconds = sign * whole + sign * fraction / 1_000_000
    number_of_days = (years * 12 + months) * _DAYS_PER_MONTH + days
    total = int(((((number_of_days * 24 + hours) * 60) + minutes) * 60 + seconds) * 1e6)
    return min(max(total, _INT64_MIN), _INT64_MAX)


def _interval_text(value: bytes) -> str:
    if value in _INFINITE:
        return value.decode()
    years, months, days, hours, minutes, microseconds = _interval_parts(value)
    whole, fraction = divmod(abs(microseconds), SECOND_US)
    seconds = f"{whole}.{fraction:06}".rstrip("0").rstrip(".") if fraction else str(whole)
    sign = "-" if microseconds < 0 else ""
    return f"P{years}Y{months}M{days}DT{hours}H{minutes}M{sign}{seconds}S"
