"""The directories of objects: by time or by fields of the value, in the form that Hive and Spark read as partitions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from strandline.connect.failures import RecordFailed
from strandline.connect.records import SinkRecord
from strandline.connect.sinks.record_template import field_at

NO_VALUE: Final = "__HIVE_DEFAULT_PARTITION__"
"""Hive's name of the partition for null."""
_DOTS: Final = frozenset({".", ".."})


def by_fields(fields: Sequence[str]) -> Callable[[SinkRecord], str]:
    """Return a function that names the directory of a record: `country=DE/city=Berlin`."""

    def path(record: SinkRecord) -> str:
        return "/".join(f"{segment(name)}={_value(field_at(record.value, name), record)}" for name in fields)

    return path


def by_time(pattern: str, zone: ZoneInfo, field: str | None) -> Callable[[SinkRecord], str]:
    """Return a function that names the directory of a record by its timestamp, or by a field that holds a time."""

    @lru_cache(maxsize=4096)
    def of_second(second: int) -> str:
        return datetime.fromtimestamp(second, UTC).astimezone(zone).strftime(pattern).strip("/")

    def path(record: SinkRecord) -> str:
        value = record.timestamp_ms if field is None else field_at(record.value, field)
        try:
            return of_second(int(_milliseconds(value) // 1000))
        except (TypeError, ValueError, OverflowError, OSError):
            where = "no timestamp" if field is None else f"no time in the field {field}"
            raise RecordFailed(f"the record of {record.place} has {where}: {value!r}", record) from None

    return path


def segment(text: str) -> str:
    """Return a text as one part of a path; two texts never have the same."""
    escaped = quote(text, safe=" +,=@:")
    return escaped.replace(".", "%2E") if escaped in _DOTS else escaped


def zone_problem(name: str) -> str | None:
    """Return what is wrong with the name of a time zone; it serves as the `check` of an option."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return "no such time zone"
    return None


def pattern_problem(pattern: str) -> str | None:
    """Return what is wrong with a format of directories; it serves as the `check` of an option."""
    parts = datetime(2000, 1, 1, tzinfo=UTC).strftime(pattern).strip("/").split("/")
    return "it has an empty part, or one of only dots" if any(each in ("", *_DOTS) for each in parts) else None


def _milliseconds(value: Any) -> float:
    if isinstance(value, str):
        value = datetime.fromisoformat(value)
    if isinstance(value, datetime):
        return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp() * 1000
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day, tzinfo=UTC).timestamp() * 1000
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{type(value).__name__} is no time")
    return value


def _value(value: Any, record: SinkRecord) -> str:
    if value is None or value == "":
        return NO_VALUE
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, dict | list | bytes):
        raise RecordFailed(f"the record of {record.place} has no simple value to partition by", record)
    try:
        return segment(str(value))
    except UnicodeEncodeError as error:
        raise RecordFailed(f"the record of {record.place} has text that is not Unicode: {error}", record) from None
