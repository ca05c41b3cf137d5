"""The heaviest keys of a topic, and how unevenly its partitions are filled, as `strandline topic hot` judges it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.advice.key_skew import KeySkew, key_words
from strandline.cli.common.plain_words import count
from strandline.cli.topic.key_reading import read_key_skew
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.masking import MASK
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.tables import TableHead

TOP: Final = 25
SLICES_MAX: Final = 64
"""Of 64 KiB each: a look reads 4 MiB at most."""
KEYS_S: Final = 60.0
KEY_SHOWN_MAX: Final = 200
KEY_HEADS: Final = (
    TableHead("key", "Key", "name"),
    TableHead("records_share", "Records", "share"),
    TableHead("bytes_share", "Bytes", "share"),
    TableHead("margin", "Margin", "share", "How far the estimate may be wrong", is_wide=True),
    TableHead("partitions", "Partitions", "list", is_wide=True),
)
PARTITION_HEADS: Final = (
    TableHead("partition", "Partition", "number"),
    TableHead("records_share", "Records", "share"),
    TableHead("bytes_share", "Bytes", "share"),
    TableHead("top_key", "Heaviest key"),
    TableHead("top_share", "Its share", "share"),
)


async def keys(context: PageContext) -> Mapping[str, Any]:
    """Answer which keys are the heaviest."""
    topic = await topic_of(context)
    reading = context.reading

    async def ask() -> KeySkew:
        return await reading.shared.ask(
            lambda client: read_key_skew(client, topic.name, top=TOP, slices_max=SLICES_MAX)
        )

    found = await reading.know(("topic.keys", topic.name), ask, KEYS_S)
    is_masked = context.masks(topic.name).concerns("key")

    def words(key: bytes | None) -> str:
        return MASK if is_masked and key is not None else key_words(key)[:KEY_SHOWN_MAX]

    key_rows = [
        {
            "key": words(each.key),
            "records_share": each.records_share,
            "bytes_share": each.bytes_share,
            "margin": each.margin or None,
            "partitions": each.partitions[:20],
        }
        for each in found.keys
    ]
    partition_rows = [
        {
            "partition": each.partition,
            "records_share": each.records_share,
            "bytes_share": each.bytes_share,
            "top_key": words(each.top_key) if each.sampled else None,
            "top_share": each.top_share if each.sampled else None,
        }
        for each in found.partitions
    ]
    how = "every record was counted" if found.is_whole else "estimated from a sample"
    # A finding names the key that it is about.
    findings = ["Keys of this topic are masked, and so is the judgement of them."] if is_masked else found.findings
    return {
        **frame(topic.name, "keys"),
        "answer": findings[0] if findings else "No key and no partition stands out.",
        "findings": findings[1:],
        "how": f"{count(found.sampled, 'record')} read, {how}, {count(found.distinct_sampled, 'key')} seen.",
        "keys": context.table(
            KEY_HEADS, key_rows, name="keys", caption="The heaviest keys", empty="There is no key yet."
        ),
        "by_partition": context.table(PARTITION_HEADS, partition_rows, name="partitions", caption="Partitions"),
        "command": ["strandline", "topic", "hot", topic.name, "--bootstrap-server", context.cluster.bootstrap],
    }


PAGE: Final = ConsolePage(
    name="topic-keys",
    path="/topics/{topic}/keys",
    title="{topic}",
    question="Which keys are the heaviest, and are partitions filled evenly?",
    model=keys,
    template="topic/keys.html",
    tables=(
        PageTable("keys", KEY_HEADS),
        PageTable("by_partition", PARTITION_HEADS, "partitions"),
    ),
    under="topics",
)
MODULE: Final = PageModule(pages=(PAGE,))
