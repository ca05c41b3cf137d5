"""`strandline group reset`: where a group goes on reading. A plan first, then a yes, then the deed."""

from __future__ import annotations

from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, connect
from strandline.cli.common.failures import UsageFailed
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
from strandline.cli.common.plans import confirm
from strandline.cli.group.deleting import refuse_if_live
from strandline.cli.group.offsets import committed_offsets
from strandline.cli.group.reading import find_group, group_not_found
from strandline.cli.group.reset_plan import FromFile, PositionMove, plan_lines
from strandline.cli.group.reset_planning import (
    carry_out_moves,
    check_moved,
    places_to_move,
    planned_moves,
    target_of,
)
from strandline.cli.group.state import Place


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
    target = target_of(
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
    places = places_to_move(cluster, admin, target, topics or [], committed, output.talk)
    moves = planned_moves(cluster, admin, target, places, committed, output.talk)
    if dry_run:
        _tell(output, name, moves, {})
        return
    plan = plan_lines(name, moves, is_new=group is None)
    confirm(output, plan, yes=yes, question="Move the group?", undone="the group was not moved")
    refused = carry_out_moves(cluster, admin, name, moves)
    _tell(output, name, moves, refused, done=True)
    check_moved(refused)


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
