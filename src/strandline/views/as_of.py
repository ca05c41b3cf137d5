"""Moments: which one is asked for, how fresh an answer is, and how far back one can go, in words (pure)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from strandline.views.failures import ViewFailed


@dataclass(frozen=True)
class AtOffsets:
    """The committed records below these offsets, one for each partition."""

    by_partition: Mapping[int, int]


@dataclass(frozen=True)
class AtTime:
    """What was there before the first record, in each partition, that is later than this."""

    timestamp_ms: int


AsOf = AtOffsets | AtTime


def as_moment(said: Any) -> AsOf:
    """From what Python code may say: offsets by partition, `"0:100,1:200"`, a datetime, or milliseconds as AtTime."""
    if isinstance(said, AtOffsets | AtTime):
        return said
    if isinstance(said, datetime):
        return AtTime(int(said.timestamp() * 1000))
    if isinstance(said, Mapping):
        return AtOffsets({int(partition): int(offset) for partition, offset in said.items()})
    if isinstance(said, str) and re.fullmatch(r"[\d:, ]+", said):
        return parse_offsets(said)
    if isinstance(said, str):
        try:
            return AtTime(int(datetime.fromisoformat(said).timestamp() * 1000))
        except ValueError:
            pass
    raise ViewFailed(
        f"{said!r} is no moment: say a datetime, a time such as '2026-03-01T12:00:00Z', or offsets, '0:100,1:200'"
    )


def parse_offsets(text: str) -> AtOffsets:
    """`0:100,1:200`; a number alone is that of partition 0."""
    words = [word.strip() for word in text.split(",") if word.strip()]
    if len(words) == 1 and words[0].isdigit():
        return AtOffsets({0: int(words[0])})
    found: dict[int, int] = {}
    for word in words:
        match = re.fullmatch(r"(\d+):(\d+)", word)
        if match is None or int(match[1]) in found:
            raise ViewFailed(f"{text!r} are no offsets: say PARTITION:OFFSET for each, such as 0:100,1:200")
        found[int(match[1])] = int(match[2])
    if not found:
        raise ViewFailed("no offsets are said: say PARTITION:OFFSET for each, such as 0:100,1:200")
    return AtOffsets(found)


@dataclass(frozen=True)
class Freshness:
    """How an answer compares with the log."""

    offsets: Mapping[int, int]
    """What is in it: everything committed below."""
    age_ms: int
    """Since the log's end was asked for."""
    records_behind: int
    """Offsets between the answer and the log's committed end, when this was told."""
    is_switching: bool = False
    """A rebuild is being switched to: until all of it is there, the view stays as it was before."""

    @property
    def words(self) -> str:
        waits = "; a rebuild is about to switch, and shows when it is complete" if self.is_switching else ""
        noun = "record" if self.records_behind == 1 else "records"
        return f"as of {duration_words(self.age_ms)} ago, {self.records_behind:,} {noun} behind{waits}"


@dataclass(frozen=True)
class Reach:
    """The oldest state that "as of" can have. A later one may still be refused, if the log was compacted since."""

    offsets: Mapping[int, int] | None
    """None: only the state of now."""
    time_ms: int | None = None
    """Time of its newest record. Where the log was compacted behind it, times of records are lost."""
    is_log_start: bool = False

    @property
    def distance(self) -> tuple[int, int]:
        """To compare: the greater, the less far back it goes."""
        return 2 if self.offsets is None else 0 if self.is_log_start else 1, self.time_ms or 0

    @property
    def words(self) -> str:
        if self.offsets is None:
            return "as-of reaches back to nothing before now"
        if self.is_log_start:
            return "as-of reaches back to the beginning of the log"
        return f"as-of reaches back to {self.state_words}"

    @property
    def state_words(self) -> str:
        when = f" ({time_words(self.time_ms)})" if self.time_ms is not None else ""
        return f"offsets {offsets_words(self.offsets or {})}{when}"


def offsets_words(offsets: Mapping[int, int]) -> str:
    """As `--as-of-offset` takes them."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(offsets.items()))


def time_words(timestamp_ms: int) -> str:
    try:
        told = datetime.fromtimestamp(timestamp_ms / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        # A producer may claim any time.
        return f"@{timestamp_ms}"
    return told.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration_words(milliseconds: int) -> str:
    if milliseconds < 1000:
        return f"{milliseconds} ms"
    if milliseconds < 120_000:
        return f"{milliseconds / 1000:.1f} s"
    return f"{milliseconds / 60_000:,.0f} minutes"
