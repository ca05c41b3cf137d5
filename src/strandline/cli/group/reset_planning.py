"""Plans where a group goes on reading: which partitions move, from where to where, and what that costs.

It defines no command, so that the console makes the same plan.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed, topic_not_found
from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.group.offsets import commit, existing_partitions, offsets_at, ranges_of
from strandline.cli.group.reset_plan import (
    FromFile,
    PositionMove,
    ShiftBy,
    Target,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToTime,
    parse_csv,
    parse_duration,
    parse_selection,
    planned,
)
from strandline.cli.group.state import Place
from strandline.client.group_positions import CommittedPosition

ONE_TARGET = "--to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by or --from-file"


def target_of(group_id: str, **options: Any) -> Target:
    chosen = [option for option, given in options.items() if given is not None and given is not False]
    if len(chosen) != 1:
        raise UsageFailed(f"say where to: one of {ONE_TARGET}")
    now_ms = time.time_ns() // 1_000_000
    match chosen[0], options[chosen[0]]:
        case "to_earliest", _:
            return ToEarliest()
        case "to_latest", _:
            return ToLatest()
        case "to_offset", offset:
            return ToOffset(offset)
        case "shift_by", by:
            return ShiftBy(by)
        case "by_duration", text:
            duration_ms = parse_duration(text)
            if duration_ms is None:
                raise UsageFailed(f"--by-duration {text!r} is no duration: say 90s, 2h30m, 7d or PT2H30M")
            return ToTime(max(0, now_ms - duration_ms))
        case "to_datetime", text:
            return ToTime(_timestamp_ms(text, now_ms))
        case _, path:
            return FromFile(_offsets_of_file(path, group_id))


def _timestamp_ms(text: str, now_ms: int) -> int:
    try:
        position = parse_position(text, now_ms=now_ms)
    except ValueError:
        position = None
    if not isinstance(position, TimePosition):
        raise UsageFailed(f"--to-datetime {text!r} is no time: say 2026-03-01T12:00:00Z, 2026-03-01 or @milliseconds")
    return position.timestamp_ms


def _offsets_of_file(path: str, group_id: str) -> dict[Place, int]:
    try:
        lines = sys.stdin.read().splitlines() if path == "-" else Path(path).read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise NotFound(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None
    try:
        offsets = parse_csv(lines, group_id)
    except ValueError as error:
        raise UsageFailed(f"{path}: {error}") from None
    if not offsets:
        raise UsageFailed(f"{path} has no offsets for group {group_id!r}")
    return offsets


def places_to_move(
    cluster: Cluster,
    admin: Any,
    target: Target,
    selections: list[str],
    committed: dict[Place, CommittedPosition],
    tell: Callable[[str], object],
) -> list[Place]:
    """The partitions to move. What was named must exist; what the group has read may be gone."""
    there = existing_partitions(cluster)
    if isinstance(target, FromFile):
        named = list(target.offsets)
    else:
        named = [place for selection in selections for place in _selected(selection, there)]
    for topic, partition in named:
        if topic not in there:
            raise topic_not_found(topic, there)
        if partition not in there[topic]:
            hint = f"it has {count(len(there[topic]), 'partition')}"
            raise NotFound(f"topic {topic!r} has no partition {partition}", hint=hint)
    if named:
        return sorted(set(named))
    gone = sorted({topic for topic, partition in committed if partition not in there.get(topic, ())})
    if gone:
        tell(f"left alone, because they are deleted: {', '.join(gone)}")
    return sorted((topic, partition) for topic, partition in committed if partition in there.get(topic, ()))


def _selected(selection: str, there: dict[str, list[int]]) -> list[Place]:
    try:
        topic, partitions = parse_selection(selection)
    except ValueError as error:
        raise UsageFailed(f"--topic {error}") from None
    if topic not in there:
        raise topic_not_found(topic, there)
    return [(topic, partition) for partition in (there[topic] if partitions is None else partitions)]


def planned_moves(
    cluster: Cluster,
    admin: Any,
    target: Target,
    places: list[Place],
    committed: dict[Place, CommittedPosition],
    tell: Callable[[str], object],
) -> list[PositionMove]:
    if not places:
        raise CommandFailed("the group has committed no position that could be moved", hint="name a --topic")
    ranges = ranges_of(cluster, admin, places)
    at_time = offsets_at(cluster, admin, places, target.timestamp_ms) if isinstance(target, ToTime) else {}
    moves = []
    for place in places:
        start, end = ranges[place]
        if start is None or end is None:
            raise CommandFailed(
                f"partition {place[1]} of {place[0]!r} has no leader: the group was not moved",
                hint="see `strandline topic describe`, or choose others with --topic TOPIC:P,P",
            )
        at = committed.get(place)
        move = planned(
            target,
            place,
            before=None if at is None else at.offset,
            log_start_offset=start,
            end_offset=end,
            offset_at_time=at_time.get(place),
        )
        if move is None:
            tell(f"left alone, because nothing is committed there: {place[0]}-{place[1]}")
        else:
            moves.append(move)
    if not moves:
        raise CommandFailed("there is nothing to shift: the group has no position there", hint="say --to-offset")
    return moves


def carry_out_moves(cluster: Cluster, admin: Any, group_id: str, moves: list[PositionMove]) -> dict[Place, str]:
    """Commit the new positions; return those that the cluster refused, with the reason."""
    wanted = {move.place: move.after for move in moves}
    return {place: reason for place, reason in commit(cluster, admin, group_id, wanted).items() if reason is not None}


def check_moved(refused: dict[Place, str]) -> None:
    """Raise CommandFailed for positions that the cluster refused."""
    if refused:
        (topic, partition), reason = next(iter(refused.items()))
        more = f"; and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise CommandFailed(
            f"not moved: {topic}-{partition}: {reason}{more}",
            hint="did a consumer of the group start meanwhile? see `strandline group members`",
        )
