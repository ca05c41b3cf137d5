"""One group: who owns what, how far it is behind in each partition, and why it rebalanced."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.common.failures import NotFound
from strandline.cli.group.history_reading import Seen, headline, history_lines, history_object, read_group_history
from strandline.cli.group.lag_reading import GroupLag, LagReading, LagWindows
from strandline.cli.group.lag_words import (
    furthest_behind_s,
    position_object,
    soonest_loss_s,
    verdict_words,
)
from strandline.cli.group.state import GroupMember, partitions_words, places_json
from strandline.codec.messages.group_history_request import GroupHistoryRequest
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.pages.groups import finite, looked, verdict_of
from strandline.console.tables import TableHead
from strandline.lag.verdict import LagVerdict

LAG_S: Final = 4.0
HISTORY_S: Final = 5.0
HISTORY_WAIT_S: Final = 3.0
REBALANCES_SHOWN: Final = 20
WINDOWS: Final = "group.windows"
GROUPS_REMEMBERED: Final = 50
"""Groups of which earlier looks are kept, for clusters that remember none themselves."""

POSITIONS: Final = (
    TableHead("topic", "Topic", "name"),
    TableHead("partition", "Partition", "number"),
    TableHead("verdict", "Verdict", "verdict"),
    TableHead("lag", "Unread", "number", "Records; offsets where the cluster counts none"),
    TableHead("lag_seconds", "Behind", "span", "The age of the next record"),
    TableHead("seconds_to_loss", "Loses records in", "span", "At the present rates, by retention", is_wide=True),
    TableHead("committed_offset", "Position", "number", is_wide=True),
    TableHead("high_watermark", "End", "number", is_wide=True),
    TableHead("consumed_per_second", "Read", "rate", is_wide=True),
    TableHead("produced_per_second", "Written", "rate", is_wide=True),
    TableHead("client_id", "Member"),
)
MEMBERS: Final = (
    TableHead("name", "Member", "name"),
    TableHead("host", "Host"),
    TableHead("partitions", "Partitions", "number"),
    TableHead("owns", "Owns"),
    TableHead("shall_own", "Shall own", hint="Where the coordinator moves partitions now", is_wide=True),
    TableHead("protocol", "Protocol", is_wide=True),
)


async def group(context: PageContext) -> Mapping[str, Any]:
    """Answer where one group stands."""
    name = context.params["group"]
    found = await _lag_of(context, name)
    described = found.group
    history = await context.reading.part("Rebalances", _history(context, name), None, wait_s=HISTORY_WAIT_S)
    return {
        "name": name,
        "verdict": {"level": _LEVELS.get(found.verdict, "warning"), "text": _capital(verdict_words(found))},
        "state": described.state,
        "type": described.group_type,
        "coordinator": described.coordinator,
        "figures": [
            {"label": "Verdict", "value": verdict_of(found), "kind": "verdict"},
            {"label": "Records unread", "value": found.lag, "kind": "number"},
            {"label": "Behind", "value": furthest_behind_s(found), "kind": "span"},
            {"label": "Loses records in", "value": finite(soonest_loss_s(found)), "kind": "span"},
            {"label": "Members", "value": len(described.members or ()), "kind": "number"},
            {"label": "State", "value": described.state, "kind": "text"},
            {"label": "Protocol", "value": described.group_type, "kind": "text"},
            {"label": "Assignor", "value": described.assignor or None, "kind": "text"},
            {"label": "Coordinator", "value": _node(described.coordinator), "kind": "text"},
        ],
        "positions": context.table(
            POSITIONS,
            [position_object(found, each) for each in found.positions],
            caption="Positions",
            name="positions",
            searched=("topic", "client_id", "verdict"),
            sort="-lag_seconds",
            empty="The group has committed no position yet.",
        ),
        "members": context.table(
            MEMBERS,
            [_member(each) for each in described.members or ()],
            caption="Members",
            name="members",
            searched=("name", "host", "owns"),
            sort="name",
            empty="The group has no member now."
            if described.members is not None
            else "The cluster does not tell the members of groups of this kind.",
        ),
        "history": history,
    }


_LEVELS: Final = {
    LagVerdict.OK: "ok",
    LagVerdict.CATCHING_UP: "ok",
    LagVerdict.NO_POSITION: "unknown",
    LagVerdict.LOST_DATA: "problem",
    LagVerdict.WILL_LOSE_DATA: "problem",
    LagVerdict.STALLED: "problem",
}


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _node(node_id: int | None) -> str | None:
    return None if node_id is None else f"node {node_id}"


def _member(member: GroupMember) -> dict[str, Any]:
    is_moving = member.target is not None and member.owned is not None and set(member.target) != set(member.owned)
    return {
        "name": member.name,
        "member": member.member_id,
        "instance": member.instance_id,
        "host": member.host.removeprefix("/"),
        "partitions": None if member.owned is None else len(member.owned),
        "owns": partitions_words(member.owned) + (", away: its seat is kept" if member.is_away else ""),
        "shall_own": partitions_words(member.target) if is_moving else None,
        "owned": places_json(member.owned),
        "protocol": member.protocol,
        "epoch": member.epoch,
    }


async def _lag_of(context: PageContext, name: str) -> GroupLag:
    shared = context.reading.shared
    kept: OrderedDict[str, LagWindows] = shared.memory.setdefault(WINDOWS, OrderedDict())
    windows = kept.setdefault(name, LagWindows())
    kept.move_to_end(name)
    while len(kept) > GROUPS_REMEMBERED:
        kept.popitem(last=False)

    def look() -> GroupLag | NotFound:
        try:
            (found,) = looked(LagReading(shared.cluster, group_id=name, windows=windows))
        except NotFound as missing:
            # An answer like others: what was kept of a group that is deleted must not be shown in its place.
            return missing
        return found

    found = await context.reading.know(("lag", name), lambda: shared.in_thread(look), LAG_S)
    if isinstance(found, NotFound):
        # A new one, because the kept one would collect the frames of every request.
        raise NotFound(found.message, hint=found.hint)
    return found


async def _history(context: PageContext, name: str) -> dict[str, Any]:
    """Return the rebalances that the nodes remember, the newest first."""
    shared = context.reading.shared
    if not await context.reading.offers(GroupHistoryRequest):
        return {"note": "This cluster does not remember why its groups rebalanced: only Strandline does.", "seen": []}
    told: list[str] = []

    async def ask() -> tuple[list[Seen], int]:
        return await shared.in_thread(lambda: read_group_history(shared.cluster, name, REBALANCES_SHOWN, told.append))

    seen, since_ms = await context.reading.know(("history", name), ask, HISTORY_S)
    for each in told:
        context.reading.note(each)
    return {
        "note": "" if seen else "Nothing happened to the group since its nodes began to look.",
        "since_ms": since_ms,
        "seen": [
            {
                **history_object(name, each),
                "headline": headline(each),
                "lines": [line.strip() for line in history_lines(each, every_member=False)[1:]],
            }
            for each in reversed(seen)
        ],
    }


PAGE: Final = ConsolePage(
    name="group",
    path="/groups/{group:path}",
    title="Group {group}",
    question="Who reads what, how far behind is it, and why did it rebalance?",
    model=group,
    template="group.html",
    tables=(
        PageTable("positions", POSITIONS),
        PageTable("members", MEMBERS),
    ),
    under="groups",
)
MODULE: Final = PageModule(pages=(PAGE,))
