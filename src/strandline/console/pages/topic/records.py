"""Records of a topic: from the newest, the oldest, an offset or a time; filtered, decoded, exported, or live."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import Latest
from strandline.client.cluster_client import ClusterClient
from strandline.console.context import PageContext
from strandline.console.declarations import (
    ConsoleDownload,
    ConsolePage,
    ConsoleStream,
    DownloadedFile,
    PageModule,
    PageQuery,
)
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.asking import (
    DECODING,
    EXPORTED_MAX,
    asked_of,
    command_of,
    marks_text,
    query_of,
    view_of,
)
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.pages.topic.live import flow
from strandline.console.reading.record_decoding import RecordView, SeenRecord, record_line, record_object
from strandline.console.reading.record_merge import RecordsAsked, RecordsRead, read_records
from strandline.console.tables import TableHead, TableView

LIVE_BEFORE: Final = 20
"""Records that a live page begins with."""
CSV_HEADS: Final = (
    TableHead("partition", "Partition", "number"),
    TableHead("offset", "Offset", "number"),
    TableHead("timestamp_ms", "Time", "number"),
    TableHead("state", "Transaction"),
    TableHead("key", "Key"),
    TableHead("value", "Value"),
    TableHead("headers", "Headers"),
)


async def records(context: PageContext) -> Mapping[str, Any]:
    """Answer which records the topic has."""
    topic = await topic_of(context)
    is_live = context.choice("live", ("", "1")) == "1"
    asked, view = asked_of(context), view_of(context)
    if is_live:
        asked = replace(asked, count=LIVE_BEFORE, begin=Latest(), marks={})
    found, seen = await read(context, asked, view)
    context.reading.notes.extend(found.notes)
    is_newest = isinstance(asked.begin, Latest)
    rows = [record_object(each) for each in seen]
    return {
        **frame(topic.name, ""),
        "answer": _answer(found, is_newest=is_newest, is_live=is_live, is_filtered=view.is_filtered),
        "is_live": is_live,
        "is_newest": is_newest,
        "records": rows,
        "marks": marks_text(found.marks),
        "live_marks": marks_text({each.partition: each.end for each in found.bounds.values()}),
        "next": query_of(context, at=marks_text(found.marks)) if found.marks and not is_live else "",
        "live": query_of(context, live="" if is_live else "1"),
        "query": query_of(context),
        "stopped": found.stopped,
        "looked_at": found.looked_at,
        "partitions": len(topic.partitions),
        "has_registry": bool(context.cluster.registry),
        "command": command_of(context, is_live=is_live),
        "cluster": context.cluster.name,
    }


async def read(context: PageContext, asked: RecordsAsked, view: RecordView) -> tuple[RecordsRead, list[SeenRecord]]:
    """Return records, and how the visitor sees them: in a thread, because a registry may be slow."""
    wanted = view.wants if view.is_filtered else None

    def work(client: ClusterClient) -> tuple[RecordsRead, list[SeenRecord]]:
        found = read_records(client, asked, time.monotonic, wanted)
        return found, [view.seen(each) for each in found.records]

    return await context.reading.shared.ask(work)


def _answer(found: RecordsRead, *, is_newest: bool, is_live: bool, is_filtered: bool) -> str:
    """Say what is shown, in a sentence."""
    offsets = sum(each.end - each.start for each in found.bounds.values())
    if not offsets:
        return "There is no record in it" + ("; what comes is shown." if is_live else ".")
    if is_live:
        return "What comes is shown, the newest first."
    shown = count(len(found.records), "record")
    which = "newest first" if is_newest else "oldest first"
    begin = f"{shown}, {which}"
    if is_filtered:
        begin = f"{shown} of {found.looked_at:,} that were looked at, {which}"
    if found.stopped:
        return f"{begin}. The reading stopped because {found.stopped}; it can go on from there."
    if found.marks:
        return f"{begin}. The log holds {offsets:,} offsets."
    return f"{begin}. There are no more."


async def export(context: PageContext) -> DownloadedFile:
    """Return the records of the URL as a file."""
    topic = await topic_of(context)
    kind = context.choice("format", ("ndjson", "csv"))
    asked, view = asked_of(context, count_max=EXPORTED_MAX), view_of(context)
    found, seen = await read(context, asked, view)

    def written() -> bytes:
        if kind == "ndjson":
            return "".join(f"{record_line(each)}\n" for each in seen).encode()
        rows = [
            {
                **{name: value for name, value in record_object(each).items() if name not in ("key", "value")},
                "key": None if each.record.key is None else each.key.text,
                "value": None if each.record.value is None else each.value.text,
                "headers": [f"{name}={part.text}" for name, part in each.headers],
            }
            for each in seen
        ]
        return TableView(CSV_HEADS, rows, {}, caption="Records", is_whole=True).csv().encode()

    content = await context.reading.shared.in_thread(written)
    if not found.records and found.notes:
        raise PageFailed(409, found.notes[0])
    return DownloadedFile(f"{topic.name}.{kind}", content, "text/csv" if kind == "csv" else "application/x-ndjson")


PAGE: Final = ConsolePage(
    name="topic",
    path="/topics/{topic}",
    title="{topic}",
    question="Which records are in it?",
    model=records,
    template="topic/records.html",
    queries=(
        PageQuery("from", "newest, oldest, an offset, -N before the end, 10m-ago, a time, or @milliseconds"),
        PageQuery("partition", "Partitions such as 0,2,5-7; all by default"),
        PageQuery("where", "Conditions as those of `strandline consume --where`, one a line"),
        PageQuery("grep", "A regular expression that the key or the value must show"),
        *DECODING,
        PageQuery("see", "committed: as a reader of committed records sees it"),
        PageQuery("count", "How many records: 50, 100, 250 or 500"),
        PageQuery("at", "Where to go on, as PARTITION:OFFSET,...: the marks of the answer before"),
        PageQuery("live", "1: what a live page begins with"),
    ),
    under="topics",
)
MODULE: Final = PageModule(
    pages=(PAGE,),
    streams=(ConsoleStream("/live/topics/{topic}", flow),),
    downloads=(ConsoleDownload("/topics/{topic}/export", export),),
)
