"""Groups: which are behind, by how much, and where that goes. The judgement is that of `strandline group lag`."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from strandline.cli.common.plain_words import count
from strandline.cli.group.lag_reading import GroupLag, LagReading, LagWindows
from strandline.cli.group.lag_words import furthest_behind_s, soonest_loss_s, verdict_words
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.tables import Row, TableHead
from strandline.lag.verdict import LagVerdict

LAG_S: Final = 5.0
TIMES_MAX: Final = 500
"""Records that one look reads for their times: in a cluster of thousands of groups the rest has none for now."""
ALL_GROUPS: Final = "groups.windows"
_GOOD: Final = (LagVerdict.OK, LagVerdict.NO_POSITION, LagVerdict.CATCHING_UP)
_UNREAD: Final = {"level": "unknown", "text": "How far groups are behind is not known yet."}
_LOSES: Final = (LagVerdict.LOST_DATA, LagVerdict.WILL_LOSE_DATA, LagVerdict.STALLED)


def _link(row: Row) -> str:
    return f"/groups/{quote(row['group'], safe='')}"


HEADS: Final = (
    TableHead("group", "Group", "name", link=_link),
    TableHead("verdict", "Verdict", "verdict", "That of its worst partition"),
    TableHead("lag", "Unread", "number", "Records that its readers have not committed; offsets where none are counted"),
    TableHead("behind_s", "Behind", "span", "The age of the next record of the partition that is furthest behind"),
    TableHead("loses_in_s", "Loses records in", "span", "At the present rates, by retention", is_wide=True),
    TableHead("members", "Members", "number"),
    TableHead("state", "State"),
    TableHead("why", "Why", is_wide=True, is_sorted=False),
)


def finite(seconds: float | None) -> float | None:
    """Return a time; None for one that never comes, because JSON has no infinity."""
    return None if seconds is None or math.isinf(seconds) else seconds


class ShownGroups(NamedTuple):
    """The rows of all groups, and the answer in a sentence."""

    rows: list[Row]
    answer: dict[str, str]


async def read_groups(context: PageContext) -> ShownGroups:
    """Return how far every group is behind. What was seen before is kept, so that later looks know rates.

    Only what is shown is kept: the positions of 2,000 groups are 30 MB, and their rows take the loop 80 ms.
    """
    shared = context.reading.shared
    windows: LagWindows = shared.memory.setdefault(ALL_GROUPS, LagWindows())

    def look() -> ShownGroups:
        found = looked(LagReading(shared.cluster, windows=windows, times_max=TIMES_MAX))
        return ShownGroups(_rows(found), verdict(found))

    return await context.reading.know("lags", lambda: shared.in_thread(look), LAG_S)


def looked(reading: LagReading) -> list[GroupLag]:
    """Return one look, and close the connections of it."""
    try:
        return reading.look()
    finally:
        reading.close()


async def groups(context: PageContext) -> Mapping[str, Any]:
    """Answer which groups are behind."""
    reading = context.reading
    told = await reading.part("Groups", read_groups(context), None, wait_s=reading.patience_s("lags"))
    rows, answer = ([], _UNREAD) if told is None else told
    return {
        "verdict": answer,
        "table": context.table(
            HEADS,
            rows,
            caption="Groups",
            searched=("group", "state", "verdict", "why"),
            sort="-behind_s",
            empty="There is no group yet: a consumer with a group.id makes one." if told is not None else "",
        ),
    }


def _rows(found: list[GroupLag]) -> list[Row]:
    return [
        {
            "group": each.group_id,
            "verdict": verdict_of(each),
            "lag": each.lag,
            "is_exact": each.is_exact,
            "undecided": each.undecided,
            "behind_s": furthest_behind_s(each),
            "loses_in_s": finite(soonest_loss_s(each)),
            "members": None if each.group.members is None else len(each.group.members),
            "state": each.group.state,
            "type": each.group.group_type,
            "why": verdict_words(each),
        }
        for each in sorted(found, key=lambda each: each.group_id)
    ]


def verdict_of(group: GroupLag) -> str:
    """Return the verdict of a group in a word; `unknown` where its partitions have no leader."""
    if group.worst_position is not None:
        return str(group.verdict)
    return "unknown" if group.positions else "idle"


def verdict(found: list[GroupLag]) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    if not found:
        return {"level": "unknown", "text": "There are no groups."}
    kinds = Counter(each.verdict for each in found if each.verdict not in _GOOD)
    if not kinds:
        busy = sum(each.verdict is LagVerdict.CATCHING_UP for each in found)
        more = f", {busy:,} of them catching up" if busy else ""
        return {"level": "ok", "text": f"No group is in trouble: {count(len(found), 'group')}{more}."}
    words = ", ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items(), key=lambda each: -each[0].rank))
    level = "problem" if any(kind in _LOSES for kind in kinds) else "warning"
    return {"level": level, "text": f"Of {count(len(found), 'group')}: {words}."}


PAGE: Final = ConsolePage(
    name="groups",
    path="/groups",
    title="Groups",
    question="Which groups are behind, by how much, and where does that go?",
    model=groups,
    template="groups.html",
    tables=(PageTable("table", HEADS),),
    group="Readers",
)
MODULE: Final = PageModule(pages=(PAGE,))
