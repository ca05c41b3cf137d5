"""What the pages of one topic share: their tabs, and the look whether the topic is there."""

from __future__ import annotations

from typing import Any, Final

from strandline.client.failures import TopicMissing
from strandline.console.context import PageContext
from strandline.console.reading.cluster_metadata import TopicPlaces, read_metadata

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


def frame(topic: str, tab: str) -> dict[str, Any]:
    """Return what the template of every tab needs."""
    return {"topic": topic, "tabs": [{"segment": name, "label": label, "is_here": name == tab} for name, label in TABS]}
