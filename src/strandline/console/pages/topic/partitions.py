"""Where the partitions of a topic are: a picture of brokers with the replicas that each has, and a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.cluster.state import PartitionState
from strandline.cli.common.plain_words import count
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.reading.record_merge import PARTITIONS_READ_MAX, read_bounds
from strandline.console.reading.record_spans import PartitionBounds
from strandline.console.tables import TableHead

DRAWN_MAX: Final = 500
"""Partitions in the picture; the table has all of them."""
OFFSETS_S: Final = 2.0
WAIT_S: Final = 2.0
HEADS: Final = (
    TableHead("partition", "Partition", "number"),
    TableHead("health", "State", "verdict"),
    TableHead("leader", "Leader", "text"),
    TableHead("replicas", "Replicas", "list"),
    TableHead("in_sync", "In sync", "list"),
    TableHead("start", "First offset", "number", is_wide=True),
    TableHead("end", "End offset", "number"),
    TableHead(
        "undecided", "Undecided", "number", "Offsets behind the last stable one: transactions are open", is_wide=True
    ),
)


async def partitions(context: PageContext) -> Mapping[str, Any]:
    """Answer where the partitions are, and whether all replicas are in sync."""
    reading = context.reading
    topic = await topic_of(context)
    metadata = await reading.metadata()
    led = [each.index for each in topic.partitions if each.leader is not None][:PARTITIONS_READ_MAX]

    async def ask() -> dict[int, PartitionBounds]:
        return await reading.shared.ask(lambda client: read_bounds(client, topic.name, led, []))

    bounds = await reading.part("Offsets", reading.know(("bounds", topic.name), ask, OFFSETS_S), {}, wait_s=WAIT_S)
    rows = [
        {
            "partition": each.index,
            "health": _health(each),
            "leader": "none" if each.leader is None else str(each.leader),
            "replicas": list(each.replicas),
            "in_sync": list(each.in_sync),
            "start": bounds[each.index].start if each.index in bounds else None,
            "end": bounds[each.index].end if each.index in bounds else None,
            "undecided": bounds[each.index].end - bounds[each.index].stable if each.index in bounds else None,
        }
        for each in topic.partitions
    ]
    drawn = topic.partitions[:DRAWN_MAX]
    names = sorted({*metadata.brokers, *(node for each in drawn for node in each.replicas)})
    brokers = [
        {
            "broker": name,
            "is_up": name in metadata.brokers,
            "rack": metadata.brokers[name].rack if name in metadata.brokers else None,
            "leads": sum(each.leader == name for each in topic.partitions),
            "replicas": [
                {"partition": each.index, "role": _role(each, name)} for each in drawn if name in each.replicas
            ],
        }
        for name in names
    ]
    return {
        **frame(topic.name, "partitions"),
        **_answer(topic.partitions),
        "brokers": brokers,
        "drawn": len(drawn),
        "partitions": len(topic.partitions),
        "table": context.table(HEADS, rows, caption="Partitions", searched=("partition", "health"), sort="partition"),
    }


def _health(each: PartitionState) -> str:
    if each.leader is None:
        return "offline"
    return "replicas missing" if each.missing else "ok"


def _role(each: PartitionState, broker: int) -> str:
    if each.leader == broker:
        return "leader"
    return "follower" if broker in each.in_sync else "missing"


def _answer(found: tuple[PartitionState, ...]) -> dict[str, str]:
    offline = sum(each.leader is None for each in found)
    missing = sum(each.leader is not None and bool(each.missing) for each in found)
    if offline:
        return {
            "level": "problem",
            "answer": f"{count(offline, 'partition')} of {len(found):,} cannot be used: no leader.",
        }
    if missing:
        return {
            "level": "warning",
            "answer": f"{count(missing, 'partition')} of {len(found):,} lack a replica in sync.",
        }
    return {"level": "ok", "answer": f"{count(len(found), 'partition')}: each has a leader and all of its replicas."}


PAGE: Final = ConsolePage(
    name="topic-partitions",
    path="/topics/{topic}/partitions",
    title="{topic}",
    question="Where are its partitions, and are all replicas in sync?",
    model=partitions,
    template="topic/partitions.html",
    tables=(PageTable("table", HEADS),),
    under="topics",
)
MODULE: Final = PageModule(pages=(PAGE,))
