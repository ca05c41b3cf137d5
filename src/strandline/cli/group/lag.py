"""`strandline group lag`: how far groups are behind, where that goes, and when they lose records."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import CommandFailed, ExitCode
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, Timeout
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count
from strandline.cli.common.watching import EVERY_S_DEFAULT, Every, Watch, watch
from strandline.cli.group.lag_counts import Lag
from strandline.cli.group.lag_reading import GroupLag, LagReading, PositionLag
from strandline.cli.group.lag_words import furthest_behind_s, position_object, soonest_loss_s, verdict_words
from strandline.lag.figures import NEVER, Figures
from strandline.lag.verdict import LagVerdict, rate, span

WINDOW_S_DEFAULT = 6.0
"""Clients commit every five seconds unless they are told otherwise, so one commit lies in between."""
_LOOK_EVERY_S = 5.0
_UNKNOWN = "?"

GroupName = Annotated[
    str | None,
    typer.Argument(
        metavar="GROUP",
        help="The group; without it, all of them.",
        show_default=False,
        autocompletion=completion.group_names,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        "-t",
        metavar="NAME",
        help="Only this topic; may be repeated.",
        autocompletion=completion.topic_names,
    ),
]
MaxLag = Annotated[
    int | None,
    typer.Option("--max-lag", metavar="N", min=0, help="Exit code 5 if a partition has more records unread."),
]
MaxSeconds = Annotated[
    float | None,
    typer.Option("--max-seconds", metavar="S", min=0, help="Exit code 5 if a group is further behind in a partition."),
]
WindowS = Annotated[
    float | None,
    typer.Option(
        "--window",
        metavar="SECONDS",
        min=0,
        help="Look for so long before judging: rates need two looks. By default 6 s where records are unread and the "
        "cluster remembers no looks of its own; one look with --max-lag or --max-seconds.",
        show_default=False,
    ),
]


def lag(
    group: GroupName = None,
    topics: Topics = None,
    max_lag: MaxLag = None,
    max_seconds: MaxSeconds = None,
    window: WindowS = None,
    watching: Watch = False,
    every: Every = EVERY_S_DEFAULT,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show how far a group is behind in each partition: in records, in time, where that goes, and when it loses data.

    The lag counts the records that a reader of committed records has yet to read. Records of open transactions are
    shown as undecided. A lag marked ~ counts offsets, some of which have no record: the topic is compacted or has
    transactions, and this cluster does not count its records. The time behind is the age of the next record.
    Verdicts: ok, catching up, behind (too early to say where that goes), falling behind, stalled (a member holds the
    partition and commits nothing), stopped (no member reads it), will lose data, lost data. --watch knows more with
    every look.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    reading = LagReading(cluster, group_id=group, topics=topics or ())

    def show(groups: list[GroupLag]) -> None:
        if as_json:
            for each in groups:
                for position in each.positions:
                    output.json_line(position_object(each, position))
        elif group is not None:
            _show_group(output, groups[0])
        else:
            _show_groups(output, groups)
        _check(groups, max_lag, max_seconds)

    try:
        if watching:
            watch(output, lambda: show(reading.look()), every_s=every)
        else:
            has_limit = max_lag is not None or max_seconds is not None
            show(_looked(output, reading, window, WINDOW_S_DEFAULT if not has_limit else 0.0))
    finally:
        reading.close()


def _looked(output: Output, reading: LagReading, window_s: float | None, default_s: float) -> list[GroupLag]:
    """Look once, and where there is something to learn once more or again and again until the window is over."""
    groups = reading.look()
    if window_s is None:
        is_seen = not any(each.lag for each in groups) or reading.span_s >= default_s
        window_s = 0.0 if is_seen else default_s
        if window_s and output.is_terminal:
            output.talk(f"looking for {window_s:g} s to see where it goes (--window 0 looks once) ...")
    deadline = time.monotonic() + window_s
    while (left_s := deadline - time.monotonic()) > 0:
        time.sleep(min(left_s, _LOOK_EVERY_S) if left_s > 2 * _LOOK_EVERY_S else left_s)
        groups = reading.look()
    return groups


# For people


def _show_group(output: Output, group: GroupLag) -> None:
    output.line(f"group     {group.group_id}")
    members = len(group.group.members or ())
    output.line(f"state     {group.group.state}, {count(members, 'member')}")
    output.hanging("verdict   ", " " * 10, verdict_words(group))
    if not group.positions:
        return
    output.line("")
    columns = ["topic", "partition", "position", "end", "lag", "behind", "read", "written", "loses in", "verdict"]
    rows = [_cells(each) for each in group.positions]
    if any(each.objective is not None for each in group.positions):
        columns.append("objective")
        rows = [[*row, _objective_cell(each)] for row, each in zip(rows, group.positions, strict=True)]
    output.table(columns, rows)


def _show_groups(output: Output, groups: list[GroupLag]) -> None:
    if not groups:
        output.talk("there are no groups")
        return
    columns = ["group", "state", "members", "lag", "behind", "loses in", "verdict", "where"]
    output.table(columns, [_group_cells(each) for each in groups])


def _group_cells(group: GroupLag) -> list[object]:
    seen = [each.figures for each in group.positions if each.figures is not None]
    behind_s, loss_s = furthest_behind_s(group), soonest_loss_s(group)
    at = group.worst_position
    return [
        group.group_id,
        group.group.state,
        "-" if group.group.members is None else len(group.group.members),
        Lag(group.lag, group.undecided, group.is_exact) if seen else "-",
        "-" if behind_s is None else span(behind_s),
        "-" if loss_s is None else span(loss_s),
        group.verdict if at is not None else "-",
        at.name if at is not None and group.verdict is not LagVerdict.OK else "-",
    ]


def _cells(position: PositionLag) -> list[object]:
    place: list[object] = [position.topic, position.partition]
    seen, judgement = position.figures, position.judgement
    if seen is None or judgement is None:
        return [*place, *[_UNKNOWN] * 7, "no leader"]
    return [
        *place,
        "-" if seen.committed is None else f"{seen.committed:,}",
        f"{seen.end:,}",
        _lag_words(seen, position.is_exact),
        "-" if seen.lag is None else _UNKNOWN if seen.lag_s is None else span(seen.lag_s),
        "-" if seen.consumed_per_s is None else rate(seen.consumed_per_s),
        "-" if seen.produced_per_s is None else rate(seen.produced_per_s),
        "-" if seen.lag is None else _UNKNOWN if seen.time_to_loss_s is None else span(seen.time_to_loss_s),
        _verdict_cell(seen, judgement.verdict),
    ]


def _objective_cell(position: PositionLag) -> str:
    objective, seen = position.objective, position.figures
    if objective is None:
        return "-"
    limit = (
        span(objective.limit_ms / 1000) if objective.limit_ms is not None else f"{objective.limit_records:,} records"
    )
    is_met = None if seen is None else objective.is_met(seen)
    return f"{limit}, {'unknown' if is_met is None else 'met' if is_met else 'missed'}"


def _lag_words(seen: Figures, is_exact: bool) -> str:
    if seen.lag is None:
        return "-"
    return str(Lag(seen.lag, seen.undecided, is_exact))


def _verdict_cell(seen: Figures, verdict: LagVerdict) -> str:
    if verdict is LagVerdict.WILL_LOSE_DATA and seen.time_to_loss_s is not None:
        return f"{verdict} in {span(seen.time_to_loss_s)}"
    if verdict is LagVerdict.LOST_DATA:
        return f"already lost {count(seen.lost, 'record')}"
    return str(verdict)


# For scripts


def _check(groups: list[GroupLag], max_lag: int | None, max_seconds: float | None) -> None:
    """Fail with the sentence that says which partition is beyond a limit."""
    if max_lag is None and max_seconds is None:
        return
    beyond = [
        (group, position, words)
        for group in groups
        for position in group.positions
        for words in _beyond(position, max_lag, max_seconds)
    ]
    if not beyond:
        return
    group, position, words = max(beyond, key=lambda each: _size(each[1]))
    others = len({(each.group_id, at.name) for each, at, _ in beyond}) - 1
    more = f"; so {'is' if others == 1 else 'are'} {count(others, 'other partition')}" if others else ""
    raise CommandFailed(
        f"group {group.group_id!r} is too far behind: {position.name} {words}{more}",
        code=ExitCode.UNHEALTHY,
    )


def _beyond(position: PositionLag, max_lag: int | None, max_seconds: float | None) -> Iterator[str]:
    seen = position.figures
    if seen is None:
        # A limit must not pass for a partition whose lag is unknown.
        yield "has no leader, so its lag is not known"
        return
    if seen.lag is None:
        return
    unread = seen.lag + seen.lost
    if max_lag is not None and unread > max_lag:
        yield f"has {count(unread, 'record')} unread, and {max_lag:,} are allowed"
    if max_seconds is not None and seen.lag and seen.lag_s is None:
        yield "has records unread, and the time of the next one could not be read"
    elif max_seconds is not None and seen.lag_s is not None and seen.lag_s > max_seconds:
        yield f"is {span(seen.lag_s)} behind, and {span(max_seconds)} are allowed"


def _size(position: PositionLag) -> tuple[float, int]:
    seen = position.figures
    return (NEVER, 0) if seen is None else (seen.lag_s or 0.0, (seen.lag or 0) + seen.lost)
