"""Where a group shall go on reading, and what that costs in records read again or skipped (pure)."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import parse_duration_ms
from strandline.cli.group.state import Place

_ISO_DURATION = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,3})\d*)?S)?)?", re.IGNORECASE)


@dataclass(frozen=True)
class ToEarliest:
    pass


@dataclass(frozen=True)
class ToLatest:
    pass


@dataclass(frozen=True)
class ToOffset:
    offset: int


@dataclass(frozen=True)
class ToTime:
    timestamp_ms: int


@dataclass(frozen=True)
class ShiftBy:
    count: int


@dataclass(frozen=True)
class FromFile:
    offsets: Mapping[Place, int]


Target = ToEarliest | ToLatest | ToOffset | ToTime | ShiftBy | FromFile


@dataclass(frozen=True)
class PositionMove:
    place: Place
    before: int | None
    after: int
    log_start_offset: int
    end_offset: int
    note: str = ""

    @property
    def reread(self) -> int:
        """Records that are read again, at most: compaction leaves gaps."""
        if self.before is None:
            return 0
        return max(0, min(self.before, self.end_offset) - self.after)

    @property
    def skipped(self) -> int:
        """Greatest number of records that the group will not read."""
        if self.before is None:
            return 0
        return max(0, self.after - max(self.before, self.log_start_offset))

    @property
    def name(self) -> str:
        return f"{self.place[0]}-{self.place[1]}"

    @property
    def words(self) -> str:
        if self.before == self.after:
            cost = "stays where it is"
        elif self.before is None:
            cost = f"{count(self.end_offset - self.after, 'record')} to read from there on"
        elif self.reread:
            cost = f"{count(self.reread, 'record')} will be read again"
        elif self.skipped:
            cost = f"{count(self.skipped, 'record')} will be skipped"
        else:
            cost = "no record lies between"
        before = "no position" if self.before is None else str(self.before)
        return f"{self.name}: {before} -> {self.after}, {cost}{f' ({self.note})' if self.note else ''}"


def planned(
    target: Target,
    place: Place,
    *,
    before: int | None,
    log_start_offset: int,
    end_offset: int,
    offset_at_time: int | None = None,
) -> PositionMove | None:
    """The move of one partition, within what its log holds; None if there is nothing to shift from."""
    note = ""
    match target:
        case ToEarliest():
            wanted = log_start_offset
        case ToLatest():
            wanted = end_offset
        case ToOffset(offset):
            wanted = offset
        case ToTime():
            wanted = end_offset if offset_at_time is None else offset_at_time
            note = "no record is that new" if offset_at_time is None else ""
        case ShiftBy(by):
            if before is None:
                return None
            wanted = before + by
        case FromFile(offsets):
            wanted = offsets[place]
    after = min(max(wanted, log_start_offset), end_offset)
    if after > wanted:
        note = f"{wanted} is before the log, which begins at {after}"
    elif after < wanted:
        note = f"{wanted} is behind the end of the log, which is {after}"
    return PositionMove(place, before, after, log_start_offset, end_offset, note)


def plan_lines(group_id: str, moves: Iterable[PositionMove], *, is_new: bool) -> list[str]:
    moves = list(moves)
    reread, skipped = sum(move.reread for move in moves), sum(move.skipped for move in moves)
    costs = [f"{count(reread, 'record')} will be read again"] if reread else []
    costs += [f"{count(skipped, 'record')} will be skipped"] if skipped else []
    made = ", which does not exist yet," if is_new else ""
    total = f": up to {' and '.join(costs)}" if costs else ""
    return [f"move group {group_id}{made} in {count(len(moves), 'partition')}{total}"] + [
        f"  {move.words}" for move in moves
    ]


def parse_duration(text: str) -> int | None:
    """Milliseconds of `PT2H30M`, as Kafka's tool says it, or of `2h30m`; None if it is neither."""
    iso = _ISO_DURATION.fullmatch(text.strip())
    if iso is None or not any(iso.groups()):
        return parse_duration_ms(text.strip())
    days, hours, minutes, seconds, rest = iso.groups()
    whole = ((int(days or 0) * 24 + int(hours or 0)) * 60 + int(minutes or 0)) * 60 + int(seconds or 0)
    return whole * 1000 + int((rest or "0").ljust(3, "0"))


def parse_csv(lines: Iterable[str], group_id: str) -> dict[Place, int]:
    """Kafka's form: `topic,partition,offset`, or with the group before it; ValueError names the line that is wrong."""
    offsets: dict[Place, int] = {}
    for number, row in enumerate(csv.reader(lines), start=1):
        if not row or not any(cell.strip() for cell in row):
            continue
        cells = [cell.strip() for cell in row]
        if len(cells) == 4:
            if cells.pop(0) != group_id:
                continue
        elif len(cells) != 3:
            raise ValueError(f"line {number}: {','.join(row)!r} is not topic,partition,offset")
        topic, partition, offset = cells
        if not (topic and partition.isdigit() and offset.isdigit()):
            raise ValueError(f"line {number}: {','.join(row)!r} is not topic,partition,offset")
        if (topic, int(partition)) in offsets:
            raise ValueError(f"line {number}: {topic}-{partition} stands there twice")
        offsets[topic, int(partition)] = int(offset)
    return offsets


def parse_selection(text: str) -> tuple[str, list[int] | None]:
    """`orders` or `orders:0,2`: a topic, and partitions of it or None for all; ValueError if it is neither."""
    topic, colon, numbers = text.partition(":")
    if not colon:
        return topic, None
    if not topic or not re.fullmatch(r"\d+(,\d+)*", numbers):
        raise ValueError(f"{text!r} is not TOPIC or TOPIC:PARTITION,...")
    return topic, sorted({int(number) for number in numbers.split(",")})
