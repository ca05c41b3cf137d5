"""`strandline queue why | trace`: why one task is not delivered, and its whole life."""

from __future__ import annotations

import time
from typing import Annotated, Any

import typer

from strandline.cli.common.client import TIMEOUT_S_DEFAULT, Cluster, connect
from strandline.cli.common.failures import CommandFailed, ExitCode, NotFound
from strandline.cli.common.options import BOOTSTRAP_DEFAULT, AsJson, Bootstrap, ClientProperties, GroupName, Timeout
from strandline.cli.common.output import Output
from strandline.cli.config.access import Target, read_entries, value_of
from strandline.cli.group.state import Place
from strandline.cli.queue.queue_state import (
    QueuePosition,
    member_names,
    read_delivery,
    read_positions,
    read_queue,
)
from strandline.cli.queue.reasons import NO_OFFSET, TaskFacts, TaskReason, reason
from strandline.cli.queue.task_place import parse_task
from strandline.cli.records.reading import Collected, Reading
from strandline.cli.records.record import ReadRecord, to_json
from strandline.cli.txn.describe import moment

DELAY_SETTING = "strandline.delay.enable"

TaskName = Annotated[str, typer.Argument(metavar="TOPIC-PARTITION@OFFSET", help="The record.")]


def why(
    group: GroupName,
    task: TaskName,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Say why a record is not delivered: who holds it and for how long, when it is due, why it was archived.

    The exit code is 5 if it is not delivered again although it was not accepted.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    facts, _ = look_up(cluster, group, task)
    found = reason(facts)
    if as_json:
        output.json_line({"group": group, "task": task, "state": found.state, "reason": found.text})
    else:
        output.line(f"{task}: {found.text}")
    _exit(found)


def trace(
    group: GroupName,
    task: TaskName,
    bootstrap: Bootstrap = BOOTSTRAP_DEFAULT,
    as_json: AsJson = False,
    timeout: Timeout = TIMEOUT_S_DEFAULT,
    properties: ClientProperties = None,
) -> None:
    """Show the life of one record in a share group: when it was produced, each delivery and its end, and how it is now.

    The leader of its partition keeps deliveries in memory, and only the last ones.
    """
    cluster = connect(bootstrap, properties, timeout)
    output = Output(as_json=as_json)
    facts, record = look_up(cluster, group, task)
    found = reason(facts)
    events: list[dict[str, Any]] = [
        {
            "at": event.at_ms,
            "event": event.what,
            "member": event.member_id or None,
            "client": facts.members.get(event.member_id),
            "delivery": event.delivery_count or None,
        }
        for event in facts.events
    ]
    if as_json:
        output.json_line(
            {
                "group": group,
                "task": task,
                "record": None if record is None else to_json(record),
                "events": events,
                "remembered_since": facts.delivery.since_ms if facts.delivery.since_ms >= 0 else None,
                "state": found.state,
                "reason": found.text,
            }
        )
        return
    if record is not None:
        output.line(f"{moment(record.timestamp_ms)}  produced{_key_words(record)}")
    elif facts.delivery.since_ms >= 0:
        output.line(f"(the record cannot be read; deliveries are remembered since {moment(facts.delivery.since_ms)})")
    for each in events:
        output.line(f"{moment(each['at'])}  {_event_words(each, facts)}")
    output.line(f"{moment(facts.now_ms)}  now: {found.text}")


def look_up(cluster: Cluster, group_id: str, task: str) -> tuple[TaskFacts, ReadRecord | None]:
    """Collect what is known of one record."""
    place, offset = parse_task(task)
    group = read_queue(cluster, group_id)
    positions = read_positions(cluster, group_id)
    if place not in positions:
        raise NotFound(
            f"share group {group_id!r} does not read partition {place[1]} of {place[0]!r}",
            hint=f"see what it reads with `strandline queue describe {group_id}`",
        )
    delivery = read_delivery(cluster, group_id, {place: (offset, offset)})
    if delivery is None:
        raise CommandFailed("this cluster does not tell who holds a record", hint="it needs nodes of Strandline")
    held = delivery.partitions[place]
    record = _read(cluster, place, offset, held.log_start_offset, held.high_watermark)
    reading = sum(
        place[1] in each.partitions
        for member in group.members
        for each in member.assignment.topic_partitions
        if each.topic_name == place[0]
    )
    facts = TaskFacts(
        offset,
        held,
        delivery.delivery_count_limit,
        stored_start=positions.get(place, QueuePosition(NO_OFFSET, 0)).start_offset,
        members=member_names(group),
        members_reading=reading,
        due_ms=record.timestamp_ms if record is not None and _is_delayed(cluster, place[0]) else None,
        now_ms=int(time.time() * 1000),
    )
    return facts, record


def _read(cluster: Cluster, place: Place, offset: int, log_start: int, end: int) -> ReadRecord | None:
    if not log_start <= offset < end:
        return None
    found = Collected()
    Reading(cluster, place[0], {place[1]: (log_start, offset, offset + 1)}).run(found, follow=False)
    return next((record for record in found.records if record.offset == offset), None)


def _is_delayed(cluster: Cluster, topic: str) -> bool:
    entries = read_entries(cluster, cluster.admin(), Target("topic", topic))
    return entries is not None and value_of(entries, DELAY_SETTING) == "true"


def _key_words(record: ReadRecord) -> str:
    key = to_json(record).get("key", to_json(record).get("key_base64"))
    return "" if key is None else f", key {key!r}"


def _event_words(event: dict[str, Any], facts: TaskFacts) -> str:
    words = str(event["event"])
    if event["delivery"]:
        words += f" (delivery {event['delivery']} of {facts.delivery_count_limit})"
    return f"{words}, {facts.name(event['member'])}" if event["member"] else words


def _exit(found: TaskReason) -> None:
    if found.is_dead:
        raise typer.Exit(ExitCode.UNHEALTHY)
