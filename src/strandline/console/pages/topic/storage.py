"""What of a topic is deleted and compacted next, and when, in the words of `topic describe --storage`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.common.plain_words import count, size
from strandline.cli.topic.storage import replica_object
from strandline.cli.topic.storage_reading import Storage, read_storage
from strandline.cli.topic.storage_words import compaction_words, is_compacted
from strandline.cli.topic.topics import described
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.tables import TableHead

PARTITIONS_MAX: Final = 200
STORAGE_S: Final = 5.0
HEADS: Final = (
    TableHead("partition", "Partition", "number"),
    TableHead("broker", "Broker", "number"),
    TableHead("role", "Role"),
    TableHead("size_bytes", "Size", "bytes"),
    TableHead("offsets", "Offsets", "number", "Between the first and the end offset", is_wide=True),
    TableHead("deletion", "Deleted next", is_sorted=False),
    TableHead("compaction", "Compacted next", is_sorted=False),
    TableHead("trouble", "Trouble"),
)


async def storage(context: PageContext) -> Mapping[str, Any]:
    """Answer what is deleted and compacted next."""
    topic = await topic_of(context)
    reading = context.reading
    indexes = [each.index for each in topic.partitions][:PARTITIONS_MAX]
    if len(indexes) < len(topic.partitions):
        reading.note(f"The first {len(indexes):,} of {len(topic.partitions):,} partitions are shown")

    def read() -> Storage:
        description = described(reading.cluster, reading.cluster.admin(), topic.name)
        return read_storage(reading.cluster, [description], partitions=indexes, with_segments=False)

    async def ask() -> Storage:
        return await reading.shared.in_thread(read)

    found = await reading.know(("topic.storage", topic.name), ask, STORAGE_S)
    for broker, why in sorted(found.silent.items()):
        reading.note(f"Broker {broker} could not be asked: {why}")
    rows = []
    for each in found.replicas:
        said = replica_object(each)
        rows.append(
            {
                "partition": said["partition"],
                "broker": said["broker"],
                "role": "leader" if said["is_leader"] else "follower",
                "size_bytes": said["size_bytes"],
                "offsets": said["log_end_offset"] - said["log_start_offset"],
                "deletion": said["deletion"]["words"],
                "compaction": compaction_words(each.part, each.node) if is_compacted(each.part) else None,
                "trouble": said["error"] or None,
            }
        )
    total = sum(row["size_bytes"] for row in rows)
    trouble = sum(row["trouble"] is not None for row in rows)
    if not found.is_known:
        answer = "Only Strandline's brokers tell what is deleted and compacted next; these are others."
    elif trouble:
        answer = f"{count(trouble, 'replica')} of {len(rows):,} cannot be told of: see the trouble."
    else:
        due = sum(each.part.next_deletion_bytes for each in found.leaders() if each.part.next_deletion_bytes > 0)
        answer = f"{size(total)} in {count(len(rows), 'replica')}; " + (
            f"the next deletions take {size(due)} from the leaders." if due else "nothing is deleted soon."
        )
    return {
        **frame(topic.name, "storage"),
        "answer": answer,
        "level": "unknown" if not found.is_known else "warning" if trouble else "ok",
        "table": context.table(
            HEADS, rows, caption="Replicas", sort="partition", empty="These brokers do not tell of their storage."
        ),
        "command": [
            *("strandline", "topic", "describe", topic.name, "--storage"),
            *("--bootstrap-server", context.cluster.bootstrap),
        ],
    }


PAGE: Final = ConsolePage(
    name="topic-storage",
    path="/topics/{topic}/storage",
    title="{topic}",
    question="What is deleted and compacted next, and when?",
    model=storage,
    template="topic/answered_table.html",
    tables=(PageTable("table", HEADS),),
    under="topics",
)
MODULE: Final = PageModule(pages=(PAGE,))
