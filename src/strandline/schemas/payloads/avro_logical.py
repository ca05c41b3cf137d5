"""Avro's logical types as people write them: dates, times and decimals as text.

A value that the calendar does not have is shown as the number that it is. So every payload can be shown, and what is
shown can be encoded again to the same value.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple
from uuid import UUID

from strandline.schemas.avro.nodes import AvroNode

SCALE_MAX: Final = 1000
"""Digits behind the point of a decimal that is shown as one; others are shown as bytes."""

_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)
_DAY_US: Final = 86_400_000_000
_UUID_BYTES: Final = 16
_UNITS: Final = {"millis": (1000, "milliseconds"), "micros": (1, "microseconds")}
"""Microseconds of a unit, and how many digits are shown."""


class Logical(NamedTuple):
    """A logical type: from what Avro stores to JSON, and back. `read` raises ValueError."""

    show: Callable[[Any], Any]
    read: Callable[[Any], Any]


def logical_of(node: AvroNode) -> Logical | None:
    """Return the logical type of a node; None for types that are shown as they are stored."""
    name = node.properties.get("logicalType")
    if not isinstance(name, str):
        return None
    if node.decimal is not None and node.decimal[1] <= SCALE_MAX:
        return _decimal(*node.decimal, node.size if node.kind == "fixed" else None)
    kind, _, unit = name.rpartition("-")
    match node.kind, name:
        case "int", "date":
            return Logical(_show_date, _number_or(_read_date))
        case "fixed", "uuid" if node.size == _UUID_BYTES:
            return Logical(lambda raw: str(UUID(bytes=raw)), _read_uuid)
        case ("int", "time-millis") | ("long", "time-micros"):
            return _time(*_UNITS[unit])
        case "long", _ if kind in ("timestamp", "local-timestamp") and unit in _UNITS:
            return _moment(*_UNITS[unit], is_local=kind == "local-timestamp")
    return None


def _number_or(read: Callable[[str], int]) -> Callable[[Any], int]:
    """Accept the stored number in the place of a text."""

    def found(value: Any) -> int:
        if isinstance(value, int) and not isinstance(value, bool):
            return value
        if not isinstance(value, str):
            raise ValueError("it is neither a text nor a whole number")
        return read(value)

    return found


def _show_date(days: int) -> str | int:
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (ValueError, OverflowError):
        return days


def _read_date(text: str) -> int:
    return date.fromisoformat(text).toordinal() - _EPOCH_DAY


def _read_uuid(value: Any) -> bytes:
    return UUID(str(value)).bytes


def _whole_units(microseconds: int, unit_us: int) -> int:
    if microseconds % unit_us:
        raise ValueError("it has more digits behind the seconds than the schema keeps")
    return microseconds // unit_us


def _time(unit_us: int, timespec: str) -> Logical:
    def show(stored: int) -> str | int:
        if not 0 <= stored * unit_us < _DAY_US:
            return stored
        return (_EPOCH + stored * unit_us * _MICROSECOND).time().isoformat(timespec)

    def read(text: str) -> int:
        found = time.fromisoformat(text)
        if found.tzinfo is not None:
            raise ValueError("a time of day has no zone")
        return _whole_units((datetime.combine(_EPOCH, found) - _EPOCH) // _MICROSECOND, unit_us)

    return Logical(show, _number_or(read))


def _moment(unit_us: int, timespec: str, *, is_local: bool) -> Logical:
    def show(stored: int) -> str | int:
        try:
            text = (_EPOCH + stored * unit_us * _MICROSECOND).isoformat(timespec=timespec)
        except OverflowError:
            return stored
        return text if is_local else f"{text}Z"

    def read(text: str) -> int:
        found = datetime.fromisoformat(text)
        if is_local != (found.tzinfo is None):
            raise ValueError("a local time has no zone" if is_local else "the zone is missing, as the Z in 12:00:00Z")
        if found.tzinfo is not None:
            found = found.astimezone(UTC).replace(tzinfo=None)
        return _whole_units((found - _EPOCH) // _MICROSECOND, unit_us)

    return Logical(show, _number_or(read))


def _decimal(precision: int, scale: int, size: int | None) -> Logical:
    def show(raw: bytes) -> str:
        unscaled = int.from_bytes(raw, "big", signed=True)
        digits = str(abs(unscaled)).rjust(scale + 1, "0")
        sign = "-" if unscaled < 0 else ""
        return f"{sign}{digits[:-scale]}.{digits[-scale:]}" if scale else f"{sign}{digits}"

    def read(value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise ValueError("it is no number")
        try:
            sign, digits, exponent = Decimal(str(value)).as_tuple()
        except InvalidOperation:
            raise ValueError("it is no number") from None
        if not isinstance(exponent, int):
            raise ValueError("it is no number")
        shift = exponent + scale
        if shift < 0 and any(digits[shift:]):
            raise ValueError(f"it has more than {scale} digits behind the point")
        if any(digits) and len(digits) + shift > precision:
            raise ValueError(f"it has more than {precision} digits")
        whole = int("".join(map(str, digits[:shift] if shift < 0 else digits)) or "0")
        unscaled: int = (-1 if sign else 1) * whole * 10 ** (max(0, shift) if whole else 0)
        length = (unscaled + (unscaled < 0)).bit_length() // 8 + 1 if size is None else size
        try:
            return unscaled.to_bytes(length, "big", signed=True)
        except OverflowError:
            raise ValueError(f"it does not fit into {length} bytes") from None

    return Logical(show, read)
