"""Values that a query returns as text, read as the binlog's values are: a snapshot and the stream agree."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Final

from strandline.cdc.mariadb.row_values import DAY_US, days_of
from strandline.cdc.mariadb.shapes import ColumnShape

ReadText = Callable[[Any], Any]
_TIME: Final = re.compile(r"(-?)(\d+):(\d\d):(\d\d)(?:\.(\d+))?", re.ASCII)
_NUMBERS: Final[dict[str, ReadText]] = {
    "tinyint": int,
    "smallint": int,
    "mediumint": int,
    "int": int,
    "bigint": int,
    "year": int,
    "float": float,
    "double": float,
    "decimal": Decimal,
    "time": lambda text: time_us(text),
}


def selected(shape: ColumnShape) -> str:
    """Return the expression that selects a column without a loss."""
    column = quoted(shape.name)
    # A FLOAT is written with six digits only.
    return f"cast({column} as double)" if shape.kind == "float" else column


def quoted(name: str) -> str:
    """Return an identifier in backticks."""
    return f"`{name.replace('`', '``')}`"


def reader(shape: ColumnShape) -> ReadText | None:
    """Return the function that reads a column's values; None if they are right as they are."""
    empty = None if shape.is_nullable else 0
    match shape.kind:
        case "date":
            return lambda text: _day(text, empty)
        case "datetime" | "timestamp":
            return lambda text: _moment(text, empty)
    return _NUMBERS.get(shape.kind)


def time_us(text: str) -> int:
    """Return the microseconds of a TIME."""
    found = _TIME.fullmatch(text)
    if found is None:
        raise ValueError(f"{text!r} is no time")
    sign, hours, minutes, seconds, fraction = found.groups()
    us = (int(hours) * 3600 + int(minutes) * 60 + int(seconds)) * 1_000_000 + int((fraction or "").ljust(6, "0"))
    return -us if sign else us


def _day(text: str, empty: int | None) -> int | None:
    years, month, day = text.split("-")
    found = days_of(int(years), int(month), int(day))
    return empty if found is None else found


def _moment(text: str, empty: int | None) -> int | None:
    day, _, clock = text.partition(" ")
    found = _day(day, None)
    return empty if found is None else found * DAY_US + time_us(clock)
