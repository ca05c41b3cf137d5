"""Where to begin or to stop reading, as a person says it (pure).

earliest, latest          the ends of the log
1234                      an offset
-10                       ten records before the end, in each partition
2026-03-01T12:00:00Z      a time (without a zone: local time; a date alone: its midnight)
@1772366400000            a time in milliseconds since 1970
10m, 2h30m, 10m-ago       that long ago (units: ms s m h d w); "10m ago" is understood too
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class Earliest:
    pass


@dataclass(frozen=True)
class Latest:
    pass


@dataclass(frozen=True)
class AtOffset:
    offset: int


@dataclass(frozen=True)
class BeforeEnd:
    """So many records before the end of each partition."""

    count: int


@dataclass(frozen=True)
class TimePosition:
    timestamp_ms: int


Position = Earliest | Latest | AtOffset | BeforeEnd | TimePosition

_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_DURATION_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")
_DURATION = re.compile(rf"(?:{_DURATION_PART.pattern})+")


def parse_position(text: str, *, now_ms: int) -> Position:
    """Return the position that `text` names; ValueError with what is allowed otherwise."""
    words = text.strip()
    match words.lower():
        case "earliest" | "beginning" | "start":
            return Earliest()
        case "latest" | "end":
            return Latest()
    if re.fullmatch(r"\d+", words):
        return AtOffset(int(words))
    if re.fullmatch(r"-\d+", words):
        return BeforeEnd(int(words[1:]))
    if re.fullmatch(r"@\d+", words):
        return TimePosition(int(words[1:]))
    duration_ms = parse_duration_ms(words.removesuffix("ago").rstrip(" -"))
    if duration_ms is not None:
        return TimePosition(max(0, now_ms - duration_ms))
    try:
        return TimePosition(int(datetime.fromisoformat(words).timestamp() * 1000))
    except ValueError:
        raise ValueError(
            f"{text!r} is no position: say earliest, latest, an offset, -N (the last N), "
            "a time such as 2026-03-01T12:00:00Z or @milliseconds, or how long ago such as 10m-ago"
        ) from None


def parse_duration_ms(text: str) -> int | None:
    """`2h30m` in milliseconds, or None when `text` is no duration."""
    if not _DURATION.fullmatch(text):
        return None
    return int(sum(float(number) * _UNIT_MS[unit] for number, unit in _DURATION_PART.findall(text)))


def start_offset(position: Position, *, log_start_offset: int, end_offset: int, offset_at_time: int | None) -> int:
    """Return where to begin in one partition. `offset_at_time` is that of a `TimePosition`; None if there is none."""
    match position:
        case Earliest():
            return log_start_offset
        case Latest():
            return end_offset
        case AtOffset(offset):
            return min(max(offset, log_start_offset), end_offset)
        case BeforeEnd(count):
            return max(log_start_offset, end_offset - count)
        case TimePosition():
            return end_offset if offset_at_time is None else max(offset_at_time, log_start_offset)
