"""One record with all of its headers, and its journey: who has read it, and which records name it as their source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.common.plain_words import size
from strandline.cli.common.positions import AtOffset
from strandline.client.failures import TopicMissing
from strandline.console.context import PageContext
from strandline.console.declarations import ConsoleDownload, ConsolePage, DownloadedFile, PageModule, PageQuery
from strandline.console.failures import PageFailed
from strandline.console.pages.topic.asking import DECODING, view_of
from strandline.console.pages.topic.frame import frame, topic_of
from strandline.console.pages.topic.journey import journey_of
from strandline.console.pages.topic.records import read
from strandline.console.reading.record_decoding import FULL_CHARACTERS, SeenRecord, record_line, record_object
from strandline.console.reading.record_merge import RecordsAsked, RecordsRead
from strandline.console.reading.record_spans import ABORTED, COMMITTED, OPEN

DOWNLOAD_BYTES_MAX: Final = 32 * 1024 * 1024
COPY_CHARACTERS_MAX: Final = 16 * 1024
_STATES: Final = {
    "": "It was not written in a transaction.",
    COMMITTED: "Its transaction was committed.",
    ABORTED: "Its transaction was aborted, so readers of committed records do not see it.",
    OPEN: "Its transaction is open, so readers of committed records wait for its end.",
}


async def record(context: PageContext) -> Mapping[str, Any]:
    """Answer what the record is and where it went."""
    topic = await topic_of(context)
    partition, offset = place_of(context)
    found, seen = await look(context, partition, offset)
    bounds = found.bounds[partition]
    context.reading.notes.extend(found.notes)
    journey = await journey_of(context, topic.name, partition, offset)
    model = {
        **frame(topic.name, ""),
        "partition": partition,
        "offset": offset,
        "log_start_offset": bounds.start,
        "log_end_offset": bounds.end,
        "journey": journey,
        "record": None,
        "answer": _absent(found, partition, offset),
        "previous": min(offset, bounds.end) - 1 if offset > bounds.start else None,
        "next": offset + 1 if offset + 1 < bounds.end else None,
        "command": None,
    }
    if seen is None:
        return model
    shown = record_object(seen, full=True)
    line = record_line(seen)
    return {
        **model,
        "record": shown,
        "answer": f"{_STATES[seen.found.state]} {journey['answer']}",
        "producer_id": seen.found.producer_id if seen.found.producer_id >= 0 else None,
        "codec": seen.found.codec,
        "leader_epoch": seen.found.leader_epoch,
        "time_kind": seen.found.time_kind,
        "characters_max": FULL_CHARACTERS,
        # What is masked cannot be written again as it was.
        "produce": None
        if seen.is_masked or len(line) > COPY_CHARACTERS_MAX
        else [
            line,
            "strandline",
            "produce",
            topic.name,
            "--from-json",
            "--bootstrap-server",
            context.cluster.bootstrap,
        ],
        "command": [
            *("strandline", "consume", topic.name, "--partition", str(partition), "--from", str(offset)),
            *("--count", "1", "--json", "--bootstrap-server", context.cluster.bootstrap),
        ],
    }


async def look(context: PageContext, partition: int, offset: int) -> tuple[RecordsRead, SeenRecord | None]:
    """Return the record of an offset; None if there is none."""
    view = view_of(context)
    topic = context.params["topic"]
    # From the place itself, and not from the nearest one that the log has.
    asked = RecordsAsked(topic, 1, AtOffset(offset), (partition,), {partition: offset})
    found, seen = await read(context, asked, view)
    if partition not in found.bounds:
        raise PageFailed(503, f"Partition {partition} of {topic} has no leader, so that it cannot be read")
    if not found.records or found.records[0].record.offset != offset:
        return found, None
    return found, seen[0]


def place_of(context: PageContext) -> tuple[int, int]:
    found = []
    for name in ("partition", "offset"):
        text = context.params[name]
        if not (text.isascii() and text.isdigit() and len(text) <= 18):
            raise PageFailed(404, f"{text} is no {name}")
        found.append(int(text))
    return found[0], found[1]


def _absent(found: RecordsRead, partition: int, offset: int) -> str:
    bounds = found.bounds[partition]
    if offset < bounds.start:
        return f"There is no such record any more: partition {partition} begins at offset {bounds.start:,}."
    if offset >= bounds.end:
        return f"There is no such record yet: partition {partition} ends at offset {bounds.end:,}."
    return "There is no record at this offset: it was compacted away, or it is the mark that ends a transaction."


async def download(context: PageContext) -> DownloadedFile:
    """Return the bytes of a key or value, as far as masks let them be seen."""
    topic = await topic_of(context)
    partition, offset = place_of(context)
    part = context.choice("part", ("value", "key"))
    _, seen = await look(context, partition, offset)
    if seen is None:
        raise TopicMissing(f"{topic.name}-{partition} has no record at offset {offset}")
    masked = context.masks(topic.name).concerns(part)
    raw = seen.found.record.key if part == "key" else seen.found.record.value
    content = (seen.record.key if part == "key" else seen.record.value) if masked else raw
    if content is None:
        raise PageFailed(404, f"The {part} of this record is null")
    if len(content) > DOWNLOAD_BYTES_MAX:
        raise PageFailed(413, f"The {part} has {size(len(content))}, which is too much", "use `strandline consume`")
    return DownloadedFile(f"{topic.name}-{partition}-{offset}.{part}", content)


PAGE: Final = ConsolePage(
    name="record",
    path="/topics/{topic}/{partition}/{offset}",
    title="{topic}, partition {partition}, offset {offset}",
    question="What is in this record, and where did it go?",
    model=record,
    template="topic/record.html",
    queries=(*DECODING, PageQuery("in", "A topic to search for records that name this one")),
    under="topics",
)
MODULE: Final = PageModule(
    pages=(PAGE,), downloads=(ConsoleDownload("/topics/{topic}/{partition}/{offset}/download", download),)
)
