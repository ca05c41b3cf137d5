"""`strandline group reset`: where a group goes on reading. A plan first, then a yes, then the deed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed, NotFound, UsageFailed, topic_not_found
from strandline.cli.common.options import (
    BOOTSTRAP_DEFAULT,
    AsJson,
    Bootstrap,
    ClientProperties,
    GroupName,
    Timeout,
    Yes,
)
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.plans import confirm
from strandline.cli.common.positions import TimePosition, parse_position
from strandline.cli.group.delete import refuse_if_live
from strandline.cli.group.offsets import (
    commit,
    committed_offsets,
    existing_partitions,
    offsets_at,
    ranges_of,
)
from strandline.cli.group.reading import find_group, group_not_found
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
    plan_lines,
    planned,
)
from strandline.cli.group.state import Place
from strandline.client.group_positions import CommittedPosition

ONE_TARGET = "--to-earliest, --to-latest, --to-offset, --to-datetime, --by-duration, --shift-by or --from-file"


def reset(
    name: GroupName,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            "-t",
            metavar="TOPIC[:P,P]",
            help="This topic, or these partitions of it. May be repeated.",
            autocompletion=completion.topic_names,
        ),
    ] = None,
    all_topics: Annotated[bool, typer.Option("--all-topics", help="Every topic that the group has read.")] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", metavar="OFFSET", min=0, help="To this offset.")
    ] = None,
    to_datetime: Annotated[
        str | None,
        typer.Option("--to-datetime", metavar="TIME", help="To the first record of this time or later: ISO, or @ms."),
    ] = None,
    by_duration: Annotated[
        str | None,
        typer.Option(
            "--by-duration", metavar="DURATION", help="To the first record of so long ago: 2h30m, or PT2H30M."
        ),
    ] = None,
    shift_by: Annotated[
        int | None,
        typer.Option("--shift-by", metavar="N", help="So many records on, or back: --shift-by -100."),
    ] = None,
    from_file: Annotated[
        str | None,
        typer.Option(
            "--from-file", metavar="FILE", help="To offsets from a CSV file: topic,partition,offset. - is stdin."
        ),
    ] = None,
    yes: Yes = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and change nothing.")] = False,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Move a group to other offsets, so that it reads again or skips. Shows from where to where, and asks.

    Refused while the group has live members: they would go on from what they remember.
    """
    target = _target(
        name,
        to_earliest=to_earliest,
        to_latest=to_latest,
        to_offset=to_offset,
        to_datetime=to_datetime,
        by_duration=by_duration,
        shift_by=shift_by,
        from_file=from_file,
    )
    if isinstance(target, FromFile):
        if topics or all_topics:
            raise UsageFailed("--from-file says which partitions: leave --topic and --all-topics out")
    elif bool(topics) == all_topics:
        raise UsageFailed("say --topic TOPIC[:P,P], which may be repeated, or --all-topics")
    cluster = connect(bootstrap, properties, timeout)
    admin, output = cluster.admin(), Output(as_json=as_json)
    group = find_group(cluster, name)
    if group is None and all_topics:
        raise group_not_found(cluster, name)
    if group is not None:
        refuse_if_live(group, "reset")
    committed = committed_offsets(cluster, name) if group is not None else {}
    places = _places(cluster, admin, target, topics or [], committed, output)
    moves = _moves(cluster, admin, target, places, committed, output)
    if dry_run:
        _tell(output, name, moves, {})
        return
    plan = plan_lines(name, moves, is_new=group is None)
    confirm(output, plan, yes=yes, question="Move the group?", undone="the group was not moved")
    _move(cluster, admin, output, name, moves)


def _target(group_id: str, **options: Any) -> Target:
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


def _places(
    cluster: Cluster,
    admin: Any,
    target: Target,
    selections: list[str],
    committed: dict[Place, CommittedPosition],
    output: Output,
) -> list[Place]:
    """The partitions to move. What was named must exist; what the group has read may be gone."""
    there = existing_partitions(cluster, admin)
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
        output.talk(f"left alone, because they are deleted: {', '.join(gone)}")
    return sorted((topic, partition) for topic, partition in committed if partition in there.get(topic, ()))


def _selected(selection: str, there: dict[str, list[int]]) -> list[Place]:
    try:
        topic, partitions = parse_selection(selection)
    except ValueError as error:
        raise UsageFailed(f"--topic {error}") from None
    if topic not in there:
        raise topic_not_found(topic, there)
    return [(topic, partition) for partition in (there[topic] if partitions is None else partitions)]


def _moves(
    cluster: Cluster,
    admin: Any,
    target: Target,
    places: list[Place],
    committed: dict[Place, CommittedPosition],
    output: Output,
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
            output.talk(f"left alone, because nothing is committed there: {place[0]}-{place[1]}")
        else:
            moves.append(move)
    if not moves:
        raise CommandFailed("there is nothing to shift: the group has no position there", hint="say --to-offset")
    return moves


def _move(cluster: Cluster, admin: Any, output: Output, group_id: str, moves: list[PositionMove]) -> None:
    refused = {
        place: reason
        for place, reason in commit(cluster, admin, group_id, {move.place: move.after for move in moves}).items()
        if reason is not None
    }
    _tell(output, group_id, moves, refused, done=True)
    if refused:
        (topic, partition), reason = next(iter(refused.items()))
        more = f"; and {len(refused) - 1:,} more" if len(refused) > 1 else ""
        raise CommandFailed(
            f"not moved: {topic}-{partition}: {reason}{more}",
            hint="did a consumer of the group start meanwhile? see `strandline group members`",
        )


def _tell(
    output: Output, group_id: str, moves: list[PositionMove], refused: dict[Place, str], *, done: bool = False
) -> None:
    if output.as_json:
        for move in moves:
            output.json_line(
                {
                    "group": group_id,
                    "topic": move.place[0],
                    "partition": move.place[1],
                    "before": move.before,
                    "after": move.after,
                    "reread": move.reread,
                    "skipped": move.skipped,
                    "note": move.note or None,
                    "done": done and move.place not in refused,
                }
            )
        return
    for move in moves:
        if move.place not in refused:
            output.line(f"moved {move.name} to {move.after}" if done else move.words)
