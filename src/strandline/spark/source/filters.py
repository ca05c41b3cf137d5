"""Filters that Spark pushes down, as bounds on what is planned (pure).

Only what can be told from offsets alone is used: topic, partition, offset, and the earliest time. Spark looks at every
row again all the same, so a bound may be wide, never narrow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    LessThan,
    LessThanOrEqual,
)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Bounds:
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min: int = 0
    offset_end: int | None = None
    timestamp_ms_min: int | None = None

    def takes(self, topic: str, partition: int) -> bool:
        return (self.topics is None or topic in self.topics) and (
            self.partitions is None or partition in self.partitions
        )


def bounds_of(filters: Iterable[Filter]) -> Bounds:
    """What all filters together leave; one that is not understood bounds nothing."""
    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    offset_min, offset_end, timestamp_ms_min = 0.0, math.inf, -math.inf
    for each in filters:
        column, low, high, values = _read(each)
        if column == "topic" and values is not None:
            topics = frozenset(values) if topics is None else topics & frozenset(values)
        elif column == "partition" and values is not None:
            partitions = frozenset(values) if partitions is None else partitions & frozenset(values)
        elif column == "offset":
            offset_min, offset_end = max(offset_min, low), min(offset_end, high + 1)
        elif column == "timestamp":
            timestamp_ms_min = max(timestamp_ms_min, low)
    return Bounds(
        topics,
        partitions,
        int(offset_min),
        None if offset_end == math.inf else max(0, int(offset_end)),
        int(timestamp_ms_min) if timestamp_ms_min >= 0 and timestamp_ms_min != math.inf else None,
    )


def column_of(each: Filter) -> str:
    """The column that a filter is about; nothing for one inside of a struct, or for a filter of filters."""
    attribute: tuple[str, ...] = getattr(each, "attribute", ())
    return attribute[0] if len(attribute) == 1 else ""


def _read(each: Filter) -> tuple[str, float, float, list[Any] | None]:
    """Column, least and greatest value, and the only values if there are only some."""
    nothing = ("", -math.inf, math.inf, None)
    if not isinstance(
        each, EqualTo | EqualNullSafe | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual | In
    ):
        return nothing
    column = column_of(each)
    if isinstance(each, In):
        given = [value for value in each.value if value is not None]
    else:
        given = [each.value]
    numbers = [_number(column, value) for value in given]
    if not given or any(number is None for number in numbers):
        return nothing
    least = min(number for number in numbers if number is not None)
    greatest = max(number for number in numbers if number is not None)
    match each:
        case GreaterThan() | GreaterThanOrEqual():
            return column, least, math.inf, None
        case LessThan() | LessThanOrEqual():
            return column, -math.inf, greatest, None
        case _:
            return column, least, greatest, given


def _number(column: str, value: Any) -> float | None:
    if column == "topic":
        return 0 if isinstance(value, str) else None
    if column in ("partition", "offset"):
        return value if isinstance(value, int) and not isinstance(value, bool) else None
    if column == "timestamp" and isinstance(value, datetime) and value.tzinfo is not None:
        # Rounded down: a record may lie anywhere within the millisecond.
        return (value - _EPOCH) // _MILLISECOND
    return None


_MILLISECOND = datetime(1970, 1, 1, 0, 0, 0, 1000, tzinfo=UTC) - _EPOCH
