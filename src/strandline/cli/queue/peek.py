"""`strandline queue peek`: the records that members get next, without taking them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

import typer

from strandline.cli.common import completion
from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import NotFound
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, GroupName, Timeout
from strandline.cli.common.output import Output
from strandline.cli.group.state import Place
from strandline.cli.queue.queue_state import EVERYTHING, QueuePosition, read_delivery, read_positions, read_queue
from strandline.cli.queue.reasons import AVAILABLE
from strandline.cli.queue.task_place import task_name
from strandline.cli.records.reading import Collected, Reading
from strandline.cli.records.record import ReadRecord, to_json
from strandline.codec.messages.share_delivery_response import PartitionDelivery

SPAN_MAX = 2000
"""Offsets of a partition that are looked through."""
_SHOWN_CHARACTERS = 60


def peek(
    name: GroupName,
    topic: Annotated[
        str | None,
        typer.Option("--topic", metavar="TOPIC", help="Only this topic.", autocompletion=completion.topic_names),
    ] = None,
    records: Annotated[int, typer.Option("-n", metavar="N", min=1, max=1000, help="At most N records.")] = 10,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the records that members of a share group get next. They are not acquired, and their count stays."""
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    read_queue(cluster, name)
    positions = {
        place: position for place, position in read_positions(cluster, name).items() if topic in (None, place[0])
    }
    if topic is not None and not positions:
        raise NotFound(
            f"share group {name!r} does not read topic {topic!r}", hint=f"`strandline queue describe {name}`"
        )
    delivery = read_delivery(cluster, name, dict.fromkeys(positions, EVERYTHING)) if positions else None
    shown = 0
    for place, position in sorted(positions.items()):
        held = None if delivery is None else delivery.partitions.get(place)
        for record, delivered in _next(cluster, place, position, held, records - shown):
            shown += 1
            if as_json:
                output.json_line(to_json(record) | {"deliveries": delivered})
            else:
                output.line(_line(place, record, delivered))
    if not shown and not as_json:
        output.talk("nothing waits")


def _next(
    cluster: Cluster, place: Place, position: QueuePosition, held: PartitionDelivery | None, records_max: int
) -> Iterator[tuple[ReadRecord, int]]:
    """Yield available records of a partition and how often each was delivered."""
    if held is None or records_max <= 0:
        return
    is_read = held.start_offset >= 0
    start = held.start_offset if is_read else position.start_offset
    first = max(start, held.log_start_offset)
    end = min(held.high_watermark, first + SPAN_MAX)
    if start < 0 or first >= end:
        return
    counts = {
        offset: each.delivery_count if each.state == AVAILABLE else None
        for each in held.ranges
        for offset in range(max(each.first_offset, first), min(each.last_offset + 1, end))
    }
    found = Collected()
    Reading(cluster, place[0], {place[1]: (held.log_start_offset, first, end)}).run(found, follow=False)
    for record in found.records:
        delivered = counts.get(record.offset, 0)
        if delivered is not None and records_max > 0:
            records_max -= 1
            yield record, delivered


def _line(place: Place, record: ReadRecord, delivered: int) -> str:
    fields = to_json(record)
    words = [f"{task_name(place, record.offset)}  delivered {delivered}"]
    for name in ("key", "value"):
        text = fields.get(name, fields.get(f"{name}_base64"))
        if text is not None:
            text = str(text)
            words.append(f"{name} {text[:_SHOWN_CHARACTERS]!r}{'...' if len(text) > _SHOWN_CHARACTERS else ''}")
    return "  ".join(words)
