"""Topics: thousands of them, searched, sorted and paged, with size, rate and owner."""

from __future__ import annotations

import asyncio
from collections.abc import Hashable, Mapping
from typing import Any, Final
from urllib.parse import quote

from strandline.client.cluster_client import ClusterClient
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.codec.messages.describe_configs_response import DescribeConfigsResponse
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageQuery, PageTable
from strandline.console.tables import TableHead

OWNER: Final = "strandline.owner"
OWNERS_S: Final = 60.0
WAIT_S: Final = 0.5
"""The time that the page waits for figures; they are there when it fills itself."""
TOPICS_PER_REQUEST: Final = 200
_TOPIC: Final = 2

HEADS: Final = (
    TableHead("topic", "Topic", "name", link=lambda row: f"/topics/{quote(row['topic'], safe='')}"),
    TableHead("health", "State", "verdict", "Whether every partition has a leader and all of its replicas"),
    TableHead("partitions", "Partitions", "number", is_wide=True),
    TableHead("replication_factor", "Replicas", "number", is_wide=True),
    TableHead("size_bytes", "Size", "bytes", "Of all replicas together, on disk"),
    TableHead("per_s", "Rate", "rate", "Records written a second, by end offsets: markers of transactions count"),
    TableHead("offsets", "Offsets", "number", "The sum of the end offsets: how much was ever written", is_wide=True),
    TableHead("owner", "Owner", "text", f"The setting {OWNER}"),
)


async def topics(context: PageContext) -> Mapping[str, Any]:
    """Answer which topics there are."""
    reading = context.reading
    metadata = await reading.metadata()
    shows_internal = context.choice("internal", ("", "true")) == "true"
    wanted = [each for each in metadata.topics.values() if shows_internal or not each.is_internal]
    sizes, offsets, rates, owners = await asyncio.gather(
        reading.part("Sizes", reading.sizes(), {}, wait_s=_wait_s(context, ("disks", frozenset()))),
        reading.part("Offsets", reading.offsets(), None, wait_s=_wait_s(context, "offsets")),
        reading.part("Rates", reading.rates(), {}, wait_s=_wait_s(context, "offsets")),
        reading.part("Owners", owners_of(context), {}, wait_s=_wait_s(context, "owners")),
    )
    rows = [
        {
            "topic": each.name,
            "is_internal": each.is_internal,
            "health": each.health,
            "partitions": len(each.partitions),
            "replication_factor": each.replication_factor,
            "size_bytes": sizes.get(each.name),
            "per_s": rates.get(each.name),
            "offsets": None if offsets is None else offsets.ends.get(each.name),
            "owner": owners.get(each.name),
        }
        for each in wanted
    ]
    hidden = len(metadata.topics) - len(wanted)
    return {
        "table": context.table(
            HEADS, rows, caption="Topics", searched=("topic", "owner"), sort="topic", empty="There is no topic yet."
        ),
        "internal": shows_internal,
        "hidden": hidden,
        "partitions": sum(len(each.partitions) for each in wanted),
    }


def _wait_s(context: PageContext, key: Hashable) -> float:
    return min(WAIT_S, context.reading.patience_s(key))


async def owners_of(context: PageContext) -> dict[str, str]:
    """Return the owners of topics, which only Strandline's clusters keep."""
    metadata = await context.reading.metadata()
    names = sorted(each.name for each in metadata.topics.values() if not each.is_internal)

    async def ask() -> dict[str, str]:
        return await context.reading.shared.ask(lambda client: _owners(client, names))

    return await context.reading.know("owners", ask, OWNERS_S)


def _owners(client: ClusterClient, names: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for begin in range(0, len(names), TOPICS_PER_REQUEST):
        asked = [DescribeConfigsResource(_TOPIC, name, [OWNER]) for name in names[begin : begin + TOPICS_PER_REQUEST]]
        results = client.ask_any(DescribeConfigsRequest(asked), DescribeConfigsResponse).results
        values = {
            each.resource_name: config.value for each in results for config in each.configs if config.name == OWNER
        }
        if not values and any(not each.error_code for each in results):
            # Another cluster's topics have no such setting, and need not be asked one by one.
            return {}
        found |= {name: value for name, value in values.items() if value}
    return found


PAGE: Final = ConsolePage(
    name="topics",
    path="/topics",
    title="Topics",
    question="Which topics are there, how large are they, how busy, and whose?",
    model=topics,
    template="topics.html",
    tables=(PageTable("table", HEADS),),
    queries=(PageQuery("internal", "true: internal topics as well"),),
    group="Data",
)
MODULE: Final = PageModule(pages=(PAGE,))
