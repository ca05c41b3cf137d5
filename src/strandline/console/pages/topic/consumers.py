"""Which groups read a topic, and how far each is behind. Figures and verdicts are those of `strandline group lag`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.cli.group.lag_reading import GroupLag, LagReading
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.tables import TableHead
from strandline.lag.verdict import LagVerdict

LAG_S: Final = 5.0
FINE: Final = (LagVerdict.OK, LagVerdict.NO_POSITION, LagVerdict.CATCHING_UP)
HEADS: Final = (
    TableHead("group", "Group", "name"),
    TableHead("verdict", "Verdict", "verdict"),
    TableHead("state", "State"),
    TableHead("lag", "Lag", "number", "Records that it has not read; offsets where records cannot be counted"),
    TableHead("lag_s", "Behind", "span", "The age of the oldest record that it has not read"),
    TableHead("partitions", "Partitions", "number", "In which it has a position or a member", is_wide=True),
    TableHead("members", "Members", "number", is_wide=True),
)


async def consumers(context: PageContext) -> Mapping[str, Any]:
    """Answer which groups read the topic."""
    topic = await topic_of(context)
    reading = context.reading

    def look() -> list[GroupLag]:
        lags = LagReading(reading.cluster, topics=[topic.name])
        try:
            return lags.look()
        finally:
            lags.close()

    async def ask() -> list[GroupLag]:
        return await reading.shared.in_thread(look)

    found = [each for each in await reading.know(("topic.lag", topic.name), ask, LAG_S) if each.positions]
    rows = [_row(each) for each in found]
    bad = sum(each.verdict not in FINE for each in found)
    if not found:
        answer = "No group reads it: none has a position or a member in it."
    elif bad:
        answer = f"{count(bad, 'group')} of {len(found):,} {'needs' if bad == 1 else 'need'} a look."
    else:
        answer = f"{count(len(found), 'group')} read it, and none gives cause for concern."
    return {
        **frame(topic.name, "consumers"),
        "answer": answer,
        "level": "warning" if bad else "ok" if found else "unknown",
        "table": context.table(
            HEADS,
            rows,
            caption="Groups that read the topic",
            searched=("group",),
            sort="-lag",
            empty="No group reads it.",
        ),
        "command": [
            "strandline",
            "group",
            "lag",
            "--topic",
            topic.name,
            "--bootstrap-server",
            context.cluster.bootstrap,
        ],
    }


def _row(found: GroupLag) -> dict[str, Any]:
    seconds = [
        each.figures.lag_s for each in found.positions if each.figures is not None and each.figures.lag_s is not None
    ]
    members = {each.reader.member_id for each in found.positions if each.reader is not None}
    return {
        "group": found.group_id,
        "verdict": str(found.verdict),
        "state": found.group.state,
        "lag": found.lag,
        "lag_s": max(seconds, default=None),
        "partitions": len(found.positions),
        "members": len(members),
        "is_exact": found.is_exact,
    }


PAGE: Final = ConsolePage(
    name="topic-consumers",
    path="/topics/{topic}/consumers",
    title="{topic}",
    question="Who reads it, and how far behind?",
    model=consumers,
    template="topic/answered_table.html",
    tables=(PageTable("table", HEADS),),
    under="topics",
)
MODULE: Final = PageModule(pages=(PAGE,))
