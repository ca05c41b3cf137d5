"""Records as they come, by server-sent events. An event's id is where to go on, by partition: `0:17,1:4`."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from strandline.client.cluster_client import ClusterClient
from strandline.console.context import PageContext
from strandline.console.events import StreamEvent, failure_event
from strandline.console.failures import EXPECTED, PageFailed, words_of
from strandline.console.pages.topic.asking import marks_text, parse_marks, partitions_of, view_of
from strandline.console.reading.record_decoding import RecordView, record_object
from strandline.console.reading.record_merge import read_bounds
from strandline.console.reading.record_spans import (
    ABORTED,
    FETCH_BYTES_MIN,
    OPEN,
    FoundRecord,
    PartitionBounds,
    ReadLimits,
    SpanReader,
    begin_together,
)

LOOK_S: Final = 0.25
RETRY_S: Final = 2.0
RECORDS_PER_LOOK: Final = 2000
BYTES_PER_LOOK: Final = 4 * 1024 * 1024
SECONDS_PER_LOOK: Final = 2.0
ROWS_PER_EVENT: Final = 500
"""More than a person can read in the time; the newest are shown, and the row above says how many were left out."""
BEHIND_MAX: Final = 10_000
"""Offsets of a partition that are caught up with. A tab that is further behind jumps, and says so."""


@dataclass
class _Look:
    marks: dict[int, int]
    rows: list[dict[str, Any]] = field(default_factory=list)
    """For the template, the newest first."""
    left_out: int = 0
    notes: list[str] = field(default_factory=list)
    is_behind: bool = False


async def flow(context: PageContext, last_id: str) -> AsyncIterator[StreamEvent]:
    """Yield the rows of records that came. The marks of the last id say where; without one it begins at the end."""
    topic, partitions, view = context.params["topic"], partitions_of(context), view_of(context)
    is_committed_only = context.choice("see", ("", "committed")) == "committed"
    try:
        marks = parse_marks(last_id)
    except PageFailed:
        marks = {}
    failed = ""
    while True:
        try:
            ask = partial(
                _look, view=view, topic=topic, partitions=partitions, marks=dict(marks), stable_only=is_committed_only
            )
            look = await context.reading.shared.ask(ask)
            marks, failure = look.marks, ""
        except (*EXPECTED, PageFailed) as error:
            look, failure = _Look(marks), words_of(error).sentence
        if failure != failed:
            yield failure_event(failure)
            failed = failure
        if failure:
            await asyncio.sleep(RETRY_S)
            continue
        if look.rows or look.notes:
            model = {
                "topic": topic,
                "records": look.rows,
                "left_out": look.left_out,
                "notes": look.notes,
            }
            yield StreamEvent(context.render("pages/topic/records_live.html", model), "records", marks_text(marks))
        if not look.is_behind:
            await asyncio.sleep(LOOK_S)


def _look(
    client: ClusterClient,
    *,
    view: RecordView,
    topic: str,
    partitions: tuple[int, ...],
    marks: dict[int, int],
    stable_only: bool,
) -> _Look:
    """Read what came since the marks, and move them."""
    look = _Look(marks)
    found: list[FoundRecord] = []
    bounds = read_bounds(client, topic, partitions, [])
    limits = ReadLimits(time.monotonic, RECORDS_PER_LOOK, BYTES_PER_LOOK, SECONDS_PER_LOOK)
    news: list[tuple[SpanReader, int, int]] = []
    for partition, each in bounds.items():
        # A transaction that is open is shown when it is decided, to those who see what is committed only.
        end = each.stable if stable_only else each.end
        first = marks[partition] = _first(marks, each, end, look.notes)
        if first < end:
            news.append((SpanReader(client, each, limits, look.notes), first, end))
    # More would be read than one look may take.
    together = news[: BYTES_PER_LOOK // FETCH_BYTES_MIN]
    begin_together(client, [(reader, first) for reader, first, _ in together])
    for reader, first, end in news:
        partition = reader.bounds.partition
        if limits.reached():
            look.is_behind = True
            break
        for records, behind in reader.pieces(first, end):
            found += records
            marks[partition] = behind
        if not limits.reached():
            marks[partition] = end
        elif marks[partition] < end:
            look.is_behind = True
    # A sort keeps the order of offsets where timestamps are equal; within a partition they may also go back.
    found.sort(key=lambda each: each.record.timestamp_ms)
    shown = [each for each in found if not (stable_only and each.state in (ABORTED, OPEN)) and view.wants(each)]
    look.left_out = max(0, len(shown) - ROWS_PER_EVENT)
    look.rows = [record_object(view.seen(each)) for each in reversed(shown[look.left_out :])]
    return look


def _first(marks: dict[int, int], bounds: PartitionBounds, end: int, notes: list[str]) -> int:
    mark = marks.get(bounds.partition)
    if mark is None:
        return end
    if mark < bounds.start:
        notes.append(
            f"partition {bounds.partition}: the offsets {mark:,} to {bounds.start - 1:,} were deleted meanwhile"
        )
        return min(bounds.start, end)
    if mark > bounds.end:
        notes.append(f"partition {bounds.partition}: the log was cut or made again, and ends at {bounds.end:,}")
        return end
    if end - mark > BEHIND_MAX:
        notes.append(f"partition {bounds.partition}: {end - mark:,} offsets came faster than they can be shown")
        return end - ROWS_PER_EVENT
    return mark
