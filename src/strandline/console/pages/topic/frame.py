"""What the pages of one topic share: their tabs, and the look whether the topic is there."""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final
from uuid import UUID

from strandline.client.cluster_client import ClusterClient
from strandline.client.failures import TopicMissing
from strandline.console.context import PageContext
from strandline.console.failures import EXPECTED
from strandline.console.reading.cluster_metadata import TopicPlaces, read_metadata

KNOWN_S: Final = 3.0
POLL_S: Final = 0.05
TABS: Final = (
    ("", "Records"),
    ("partitions", "Partitions"),
    ("consumers", "Consumers"),
    ("settings", "Settings"),
    ("storage", "Storage"),
    ("keys", "Keys"),
    ("schema", "Schema"),
    ("contract", "Contract"),
)


async def topic_of(context: PageContext) -> TopicPlaces:
    """Return the topic of the URL. Raise TopicMissing if it is not there, or not for this visitor."""
    return await topic_named(context, context.params["topic"])


async def topic_named(context: PageContext, name: str) -> TopicPlaces:
    found = (await context.reading.metadata()).topics.get(name)
    if found is None:
        # What is kept may be older than the topic.
        found = (await context.reading.shared.ask(read_metadata)).topics.get(name)
    if found is None:
        raise TopicMissing(f"topic {name} does not exist, or your ACLs do not let you see it")
    return found


async def wait_known(context: PageContext, topic: str, *, is_there: bool, other_than: UUID | None = None) -> None:
    """Wait until brokers know that a topic was created or deleted, so that the next page shows it.

    Kafka's brokers learn of it a moment after it was acknowledged. A broker that is late does not fail the action.
    """
    deadline = time.monotonic() + KNOWN_S

    def look(client: ClusterClient) -> bool:
        found = client.topic(topic)
        if found is None or (other_than is not None and found.topic_id == other_than):
            return not is_there
        return is_there and all(leader >= 0 for leader in found.leaders.values())

    while time.monotonic() < deadline:
        try:
            if await context.reading.shared.ask(look):
                return
        except EXPECTED:
            # The change is done, also if the visitor may not see the topic or the cluster is silent now.
            return
        await asyncio.sleep(POLL_S)


def frame(topic: str, tab: str) -> dict[str, Any]:
    """Return what the template of every tab needs."""
    return {"topic": topic, "tabs": [{"segment": name, "label": label, "is_here": name == tab} for name, label in TABS]}
