"""Connect's logical types between Python's values and the numbers and bytes that stand for them.

A moment that Python's calendar does not have stays the number that it is, and such a number is accepted in the place of
a date or time. So nothing is lost between a source and a sink.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any, Final

from strandline.connect.failures import RecordFailed
from strandline.connect.schema import DATE, DECIMAL, SCALE, TIME, TIMESTAMP, Schema

DAY_MS: Final = 86_400_000
LOGICAL: Final = frozenset((DECIMAL, DATE, TIME, TIMESTAMP))
DIGITS_MAX: Final = 100_000
"""Digits of a decimal. One with a huge exponent would fill the memory."""

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_MILLISECOND: Final = timedelta(milliseconds=1)


def is_number(value: Any) -> bool:
    """Return whether a value is a whole number; a bool is none."""
    return isinstance(value, int) and not isinstance(value, bool)


def epoch_ms(value: Any) -> int | None:
    """Return the milliseconds since 1970 of a date, time or moment; None if the value is none of these."""
    if isinstance(value, datetime):
        return ((value if value.tzinfo is not None else value.replace(tzinfo=UTC)) - _EPOCH) // _MILLISECOND
    if isinstance(value, date):
        return (value.toordinal() - _EPOCH_DAY) * DAY_MS
    if isinstance(value, time):
        return ((value.hour * 60 + value.minute) * 60 + value.second) * 1000 + value.microsecond // 1000
    return None


def days_of(value: Any) -> int:
    """Return the days since 1970 of the value of a Date."""
    if is_number(value):
        return int(value)
    found = epoch_ms(value)
    if found is None or isinstance(value, time):
        raise RecordFailed(f"Invalid type for Date, expected date but was {type(value).__name__}")
    if found % DAY_MS:
        raise RecordFailed("Kafka Connect Date type should not have any time fields set to non-zero values.")
    return found // DAY_MS


def time_ms_of(value: Any) -> int:
    """Return the milliseconds since midnight of the value of a Time."""
    found = value if is_number(value) else epoch_ms(value)
    if found is None or (isinstance(value, date) and not isinstance(value, datetime)):
        raise RecordFailed(f"Invalid type for Time, expected time but was {type(value).__name__}")
    if not 0 <= found <= DAY_MS:
        raise RecordFailed("Kafka Connect Time type should not have any date fields set to non-zero values.")
    return int(found)


def timestamp_ms_of(value: Any) -> int:
    """Return the milliseconds since 1970 of the value of a Timestamp."""
    found = value if is_number(value) else epoch_ms(value)
    if found is None or isinstance(value, time):
        raise RecordFailed(f"Invalid type for Timestamp, expected datetime but was {type(value).__name__}")
    return int(found)


def date_of(days: int) -> date | int:
    """Return the date that is so many days after 1970."""
    try:
        return date.fromordinal(_EPOCH_DAY + days)
    except (ValueError, OverflowError):
        return days


def time_of(milliseconds: int) -> time | int:
    """Return the time of day. Connect allows 24:00, which stays a number."""
    if not 0 <= milliseconds <= DAY_MS:
        raise RecordFailed("Time values must use number of milliseconds greater than 0 and less than 86400000")
    return milliseconds if milliseconds == DAY_MS else (_EPOCH + milliseconds * _MILLISECOND).time()


def moment_of(milliseconds: int) -> datetime | int:
    """Return the moment that is so many milliseconds after 1970."""
    try:
        return _EPOCH + milliseconds * _MILLISECOND
    except OverflowError:
        return milliseconds


def scale_of(schema: Schema) -> int:
    """Return the digits behind the point of a Decimal's schema."""
    text = schema.parameters.get(SCALE)
    if text is None:
        raise RecordFailed("Invalid Decimal schema: scale parameter not found.")
    try:
        return int(text)
    except ValueError:
        raise RecordFailed(f"Invalid scale parameter found in Decimal schema: {text}") from None


def at_scale(value: Any, scale: int) -> Decimal:
    """Return a number with exactly so many digits behind the point. Raise RecordFailed if it has more."""
    if not isinstance(value, Decimal):
        if not is_number(value):
            raise RecordFailed(f"Invalid type for Decimal, expected Decimal but was {type(value).__name__}")
        value = Decimal(value)
    sign, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise RecordFailed(f"a Decimal cannot be {value}")
    shift = exponent + scale
    if shift > DIGITS_MAX or len(digits) > DIGITS_MAX:
        raise RecordFailed(f"a Decimal has more than {DIGITS_MAX:,} digits")
    if shift < 0 and any(digits[shift:]):
        raise RecordFailed(
            "Decimal value has mismatching scale for given Decimal schema. "
            f"Schema has scale {scale}, value has scale {-exponent}."
        )
    kept = digits[:shift] if shift < 0 else digits + (0,) * shift
    return Decimal((sign, kept or (0,), -scale))


def unscaled_of(value: Any, scale: int) -> bytes:
    """Return the bytes of a Decimal: all its digits as one number, big-endian, as few bytes as possible."""
    sign, digits, _ = at_scale(value, scale).as_tuple()
    # Through Decimal, because int() of a text stops at 4,300 digits.
    number = int(Decimal((sign, digits, 0)))
    length = (number + (number < 0)).bit_length() // 8 + 1
    return number.to_bytes(length, "big", signed=True)


def decimal_of(data: bytes, scale: int) -> Decimal:
    """Return the Decimal of bytes."""
    sign, digits, _ = Decimal(int.from_bytes(data, "big", signed=True)).as_tuple()
    return Decimal((sign, digits, -scale))
