"""What `doctor` asks about share groups: tasks that no worker gets done.

Only Strandline's brokers tell it; on other clusters there is nothing to say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import is_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.doctor.findings import Finding, note, ok, warning
from strandline.cli.group.reading import read_groups
from strandline.cli.queue.queue_state import EVERYTHING, QueueDelivery, read_delivery, read_positions
from strandline.cli.queue.task_place import task_name

TIMEOUT_S = 5.0
TASKS_SHOWN = 3
QUEUES_ASKED = 100
_IN_FLIGHT = (0, 1)
"""Available and acquired."""


def queue_findings(cluster: Cluster) -> Iterator[Finding]:
    """Yield tasks that were delivered often and never accepted, by share group."""
    if not is_spoken(cluster):
        return
    cluster = replace(cluster, timeout_s=min(TIMEOUT_S, cluster.timeout_s))
    names = [group.group_id for group in read_groups(cluster, with_members=False) if group.group_type == "share"]
    found: list[Finding] = []
    answered = 0
    for name in names[:QUEUES_ASKED]:
        try:
            places = read_positions(cluster, name)
            delivery = read_delivery(cluster, name, dict.fromkeys(places, EVERYTHING)) if places else None
        except CommandFailed as failure:
            found.append(note("queues", f"share group {name} could not be looked at: {failure.message}"))
            continue
        if delivery is not None:
            answered += 1
            found += findings_of(name, delivery)
    yield from found
    if answered and not found:
        yield ok("queues", f"{count(answered, 'share group')}: no task is delivered again and again")


def findings_of(group_id: str, delivery: QueueDelivery) -> Iterator[Finding]:
    """Judge what the leaders hold of one share group (pure)."""
    suspicious = max(2, delivery.delivery_count_limit - 1)
    poison = [
        (place, each)
        for place, held in sorted(delivery.partitions.items())
        for each in held.ranges
        if each.state in _IN_FLIGHT and each.delivery_count >= suspicious
    ]
    if poison:
        tasks = sum(each.last_offset - each.first_offset + 1 for _, each in poison)
        named = ", ".join(task_name(place, each.first_offset) for place, each in poison[:TASKS_SHOWN])
        yield warning(
            "queues",
            f"share group {group_id} has delivered {count(tasks, 'task')} {suspicious} times or more: {named}",
            f"the handler fails or takes longer than the lock: `strandline queue trace {group_id} "
            f"{task_name(poison[0][0], poison[0][1].first_offset)}`",
        )
    ended = [
        (place, event)
        for place, held in sorted(delivery.partitions.items())
        for event in held.events
        if event.what in ("archived", "rejected")
    ]
    if ended:
        tasks = sum(event.last_offset - event.first_offset + 1 for _, event in ended)
        named = ", ".join(task_name(place, event.first_offset) for place, event in ended[-TASKS_SHOWN:])
        yield warning(
            "queues",
            f"share group {group_id} has lately given up {count(tasks, 'task')}: {named}",
            f"`strandline queue why {group_id} {task_name(ended[-1][0], ended[-1][1].first_offset)}` says how it ended",
        )
