"""Moments of PostgreSQL's calendar, which is Gregorian for all times and wider than Python's, from and to text."""

from __future__ import annotations

import re
from datetime import date, datetime
from typing import Final

DAY_US: Final = 86_400_000_000
SECOND_US: Final = 1_000_000
TIMESTAMP_INFINITY: Final = {b"infinity": 9_223_372_036_825_200_000, b"-infinity": -9_223_372_036_832_400_000}
"""Microseconds that stand for infinity: those of PostgreSQL's JDBC driver."""
DATE_INFINITY: Final = {b"infinity": -2_147_472_692, b"-infinity": -2_147_472_691}
"""Days that Debezium has for infinity."""

_EPOCH: Final = datetime(1970, 1, 1)
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_DASH: Final = ord("-")
_MOMENT: Final = re.compile(
    r"(\d{4,})-(\d\d)-(\d\d)(?: (\d\d:\d\d:\d\d(?:\.\d{1,6})?))?([+-]\d\d(?::\d\d){0,2})?( BC)?"
)


def day_of(value: bytes) -> int:
    """Return the days since 1970 of a date."""
    try:
        return date.fromisoformat(value.decode()).toordinal() - _EPOCH_DAY
    except ValueError:
        return DATE_INFINITY[value] if value in DATE_INFINITY else _far(value) // DAY_US


def moment_us(value: bytes) -> int:
    """Return the microseconds since 1970 of a timestamp without a zone. They may need more than 64 bits."""
    # A year of five digits would be read as something else.
    if value[4] == _DASH:
        try:
            since = datetime.fromisoformat(value.decode()) - _EPOCH
        except ValueError:
            return _far(value)
        return (since.days * 86_400 + since.seconds) * SECOND_US + since.microseconds
    return TIMESTAMP_INFINITY[value] if value in TIMESTAMP_INFINITY else _far(value)


def zoned_moment_us(value: bytes) -> int:
    """Return the microseconds since 1970 of a timestamp with a zone."""
    return _far(value)


def _far(value: bytes) -> int:
    """Return the microseconds of a moment in any year."""
    found = _MOMENT.fullmatch(value.decode())
    if found is None:
        raise ValueError(f"{value.decode()!r} is no date of DateStyle ISO")
    year, month, day, clock, offset, is_bc = found.groups()
    days = days_of_civil(1 - int(year) if is_bc else int(year), int(month), int(day))
    return days * DAY_US + (clock_us(clock.encode()) if clock else 0) - offset_us(offset)


def offset_us(offset: str | None) -> int:
    """Return the microseconds that a zone such as +05:30 is ahead of UTC."""
    if not offset:
        return 0
    hours, minutes, seconds, *_ = (*map(int, offset[1:].split(":")), 0, 0)
    total = (hours * 60 + minutes) * 60 + seconds
    return (-total if offset[0] == "-" else total) * SECOND_US


def clock_us(value: bytes) -> int:
    """Return the microseconds since midnight of a time."""
    seconds = (int(value[:2]) * 60 + int(value[3:5])) * 60 + int(value[6:8])
    return seconds * SECOND_US + (int(value[9:].ljust(6, b"0")) if len(value) > 9 else 0)


def clock_text(microseconds: int) -> str:
    """Return a time of day; zeros at its end are left out."""
    seconds, fraction = divmod(microseconds % DAY_US, SECOND_US)
    text = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
    return f"{text}.{fraction:06}".rstrip("0") if fraction else text


def date_text(days: int) -> str:
    """Return a date as ISO 8601 has it, with a sign before a year that has more than four digits or is negative."""
    year, month, day = civil_of_days(days)
    shown = f"{year:04}" if 0 <= year <= 9999 else f"{'-' if year < 0 else '+'}{abs(year):04}"
    return f"{shown}-{month:02}-{day:02}"


def days_of_civil(year: int, month: int, day: int) -> int:
    """Return the days since 1970 of a date; year 0 is 1 BC."""
    # Years begin in March, so that the leap day is their last.
    era, of_era = divmod(year - (month <= 2), 400)
    of_year = (153 * ((month + 9) % 12) + 2) // 5 + day - 1
    return era * 146_097 + of_era * 365 + of_era // 4 - of_era // 100 + of_year - 719_468


def civil_of_days(days: int) -> tuple[int, int, int]:
    """Return year, month and day; year 0 is 1 BC."""
    era, of_era = divmod(days + 719_468, 146_097)
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted = (5 * of_year + 2) // 153
    month = (shifted + 2) % 12 + 1
    return year + era * 400 + (month <= 2), month, of_year - (153 * shifted + 2) // 5 + 1
