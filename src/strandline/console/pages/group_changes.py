"""Actions on a group: move its positions, delete it, or delete its positions in topics. Plans are the commands'."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.cli.group.deleting import delete_groups, deletion_line, refuse_if_live
from strandline.cli.group.forget import check_deleted, chosen_positions, delete_positions, forgetting_line
from strandline.cli.group.offsets import committed_offsets
from strandline.cli.group.reading import find_group, read_group
from strandline.cli.group.reset_plan import PositionMove, plan_lines
from strandline.cli.group.reset_planning import (
    carry_out_moves,
    check_moved,
    places_to_move,
    planned_moves,
    target_of,
)
from strandline.console.context import PageContext
from strandline.console.declarations import ActionDone, ActionField, ConsoleAction, PageModule, Values
from strandline.console.failures import PageFailed

PLAN_LINES_MAX: Final = 100
TARGETS: Final = (
    "the first record",
    "the end",
    "an offset",
    "a time",
    "so long ago",
    "so many records on or back",
)
_OPTIONS: Final = dict(
    zip(TARGETS, ("to_earliest", "to_latest", "to_offset", "to_datetime", "by_duration", "shift_by"), strict=True)
)
_GROUP: Final = ActionField("group", "Group", is_fixed=True)


def shortened(lines: Sequence[str]) -> list[str]:
    """Return lines of a plan, so few that a page shows them."""
    more = len(lines) - PLAN_LINES_MAX
    return [*lines[:PLAN_LINES_MAX], *([f"and {count(more, 'more line')}"] if more > 0 else [])]


def _option(values: Values) -> tuple[str, Any]:
    """Return the option of the command and its value. Raise PageFailed for a value that is wrong."""
    name, text = _OPTIONS[values["to"]], values["value"]
    if name in ("to_earliest", "to_latest"):
        return name, True
    if not text:
        raise PageFailed(400, f"Where to: {values['to']} needs a value")
    if name in ("to_offset", "shift_by"):
        number = text.removeprefix("-") if name == "shift_by" else text
        if not (number.isascii() and number.isdigit() and len(number) < 20):
            raise PageFailed(400, f"Where to: {text} is no number")
        return name, int(text)
    return name, text


def _topics(values: Values) -> list[str]:
    return values["topics"].split()


def _moves(context: PageContext, values: Values) -> tuple[list[PositionMove], list[str]]:
    """Return the moves, and what was said while they were planned. It blocks."""
    cluster = context.reading.cluster
    name, value = _option(values)
    target = target_of(values["group"], **{name: value})
    group = find_group(cluster, values["group"])
    if group is None:
        raise PageFailed(404, f"There is no group {values['group']} any more")
    refuse_if_live(group, "reset")
    said: list[str] = []
    admin, committed = cluster.admin(), committed_offsets(cluster, values["group"])
    places = places_to_move(cluster, admin, target, _topics(values), committed, said.append)
    return planned_moves(cluster, admin, target, places, committed, said.append), said


async def plan_reset(context: PageContext, values: Values) -> Sequence[str]:
    moves, said = await context.reading.shared.in_thread(lambda: _moves(context, values))
    return shortened([*plan_lines(values["group"], moves, is_new=False), *said])


async def reset(context: PageContext, values: Values) -> ActionDone:
    def work() -> list[PositionMove]:
        # Planned again, because the group may have moved or got members since the confirmation was shown.
        moves, _ = _moves(context, values)
        cluster = context.reading.cluster
        check_moved(carry_out_moves(cluster, cluster.admin(), values["group"], moves))
        return moves

    moves = await context.reading.shared.in_thread(work)
    sentence = f"Group {values['group']} was moved in {count(len(moves), 'partition')}."
    return ActionDone(sentence, context.path("groups", values["group"]))


def reset_command(values: Values) -> Sequence[str]:
    name, value = _option(values)
    words = ["group", "reset", values["group"]]
    words += [word for topic in _topics(values) for word in ("--topic", topic)] or ["--all-topics"]
    words.append("--" + name.replace("_", "-"))
    return [*words, "--yes"] if value is True else [*words, str(value), "--yes"]


async def plan_delete(context: PageContext, values: Values) -> Sequence[str]:
    def work() -> list[str]:
        group = read_group(context.reading.cluster, values["group"])
        refuse_if_live(group, "deleted")
        return [deletion_line(context.reading.cluster, group)]

    return await context.reading.shared.in_thread(work)


async def delete(context: PageContext, values: Values) -> ActionDone:
    def work() -> None:
        cluster = context.reading.cluster
        refuse_if_live(read_group(cluster, values["group"]), "deleted")
        for _, failure in delete_groups(cluster, [values["group"]]):
            if failure is not None:
                raise failure

    await context.reading.shared.in_thread(work)
    return ActionDone(f"Group {values['group']} was deleted.", context.path("groups"))


def _positions(context: PageContext, values: Values) -> list[tuple[str, int]]:
    topics = _topics(values)
    if not topics:
        raise PageFailed(400, "Topics: name one at least")
    return chosen_positions(context.reading.cluster, values["group"], topics)


async def plan_delete_offsets(context: PageContext, values: Values) -> Sequence[str]:
    places = await context.reading.shared.in_thread(lambda: _positions(context, values))
    return [forgetting_line(values["group"], places)]


async def delete_offsets(context: PageContext, values: Values) -> ActionDone:
    def work() -> int:
        places = _positions(context, values)
        outcome = delete_positions(context.reading.cluster, values["group"], places)
        check_deleted([f"{topic}-{index}: {why}" for (topic, index), why in outcome.items() if why is not None])
        return len(places)

    number = await context.reading.shared.in_thread(work)
    sentence = f"{count(number, 'position')} of group {values['group']} {'was' if number == 1 else 'were'} deleted."
    return ActionDone(sentence, context.path("groups", values["group"]))


def delete_offsets_command(values: Values) -> Sequence[str]:
    words = [word for topic in _topics(values) for word in ("--topic", topic)]
    return ["group", "delete", values["group"], *words, "--yes"]


def _delete_command(values: Values) -> Sequence[str]:
    return ["group", "delete", values["group"], "--yes"]


RESET: Final = ConsoleAction(
    name="group-reset",
    title="Reset offsets of {group}",
    button="Move the group",
    run=reset,
    command=reset_command,
    plan=plan_reset,
    consequence="Group {group} goes on reading elsewhere: it reads records again, or skips them.",
    fields=(
        _GROUP,
        ActionField(
            "topics",
            "Topics",
            "area",
            hint="One a line: orders, or orders:0,2 for partitions. Empty: every topic that the group has read",
            is_required=False,
        ),
        ActionField("to", "To", "choice", default=TARGETS[0], choices=TARGETS),
        ActionField(
            "value",
            "Value",
            hint="17, 2026-03-01T12:00:00Z, 2h30m, or -100 for records back; empty for the first record and the end",
            is_required=False,
        ),
    ),
    under="groups",
)
DELETE: Final = ConsoleAction(
    name="group-delete",
    title="Delete group {group}",
    button="Delete the group",
    run=delete,
    command=_delete_command,
    plan=plan_delete,
    consequence="Every position of group {group} is lost. No record is touched.",
    fields=(_GROUP,),
    is_dangerous=True,
    typed="group",
    under="groups",
)
DELETE_OFFSETS: Final = ConsoleAction(
    name="group-delete-offsets",
    title="Delete offsets of {group}",
    button="Delete the offsets",
    run=delete_offsets,
    command=delete_offsets_command,
    plan=plan_delete_offsets,
    consequence="Group {group} forgets its positions in these topics; it begins there by auto.offset.reset.",
    fields=(
        _GROUP,
        ActionField("topics", "Topics", "area", hint="One a line: orders, or orders:0,2 for partitions of it"),
    ),
    is_dangerous=True,
    typed="group",
    under="groups",
)
MODULE: Final = PageModule(actions=(RESET, DELETE, DELETE_OFFSETS))
