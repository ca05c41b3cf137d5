"""Queues: share groups, what waits in them, what members hold, and what is delivered again or held back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

from strandline.cli.common.conversation import is_spoken, not_spoken
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import Target, read_entries, value_of
from strandline.cli.group.reading import read_groups
from strandline.cli.queue.queue_state import (
    EVERYTHING,
    QueueDelivery,
    lag_rows,
    read_delivery,
    read_queue,
    read_waiting,
)
from strandline.cli.queue.reasons import ACQUIRED, AVAILABLE, BEHIND_KEY, UNTIL_TIME
from strandline.config.resource_settings import DEAD_LETTER_TOPIC
from strandline.console.context import PageContext
from strandline.console.declarations import ConsolePage, PageModule, PageTable
from strandline.console.tables import Row, TableHead

QUEUES_S: Final = 5.0
QUEUES_MAX: Final = 200
"""Share groups that are looked at; each takes some requests."""
HELD_SHOWN: Final = 500
_STATES: Final = {(ACQUIRED, 0): "in flight", (AVAILABLE, UNTIL_TIME): "delayed", (AVAILABLE, BEHIND_KEY): "behind key"}


def _link(row: Row) -> str:
    return f"/queues/{quote(row['group'], safe='')}"


def _dead_link(row: Row) -> str:
    return f"/dead-letters/{quote(row['dead_letters'], safe='')}"


HEADS: Final = (
    TableHead("group", "Share group", "name", link=_link),
    TableHead("state", "State"),
    TableHead("members", "Members", "number"),
    TableHead("lag", "Waiting", "number", "Records that are not done"),
    TableHead("acquired", "In flight", "number", "Members hold them until their lock ends"),
    TableHead("redelivering", "Again", "number", "Records that were delivered before and wait to be delivered again"),
    TableHead("oldest_s", "Oldest waits", "span"),
    TableHead("dead_letters", "Dead letters", link=_dead_link),
    TableHead("topics", "Topics", "list", is_wide=True),
)
PARTITIONS: Final = (
    TableHead("topic", "Topic", "name"),
    TableHead("partition", "Partition", "number"),
    TableHead("lag", "Waiting", "number"),
    TableHead("acquired", "In flight", "number"),
    TableHead("redelivering", "Again", "number"),
    TableHead("oldest_s", "Oldest waits", "span"),
    TableHead("start", "Start", "number", "The first offset that is not done", is_wide=True),
)
HELD: Final = (
    TableHead("records", "Records", "name"),
    TableHead("state", "State"),
    TableHead("number", "How many", "number"),
    TableHead("delivery", "Delivery", "number", "How often they were delivered"),
    TableHead("lock_s", "Lock ends in", "span"),
    TableHead("member", "Member"),
)


async def queues(context: PageContext) -> Mapping[str, Any]:
    """Answer which share groups have work that waits."""
    shared = context.reading.shared
    told: list[str] = []
    found, left_out = await context.reading.know(
        "queues", lambda: shared.in_thread(lambda: _read_all(context, told)), QUEUES_S
    )
    for each in told:
        context.reading.note(each)
    if left_out:
        context.reading.note(f"{count(left_out, 'more share group')} not looked at: the first {QUEUES_MAX} are shown")
    return {
        "verdict": verdict(found),
        "table": context.table(
            HEADS,
            found,
            caption="Share groups",
            searched=("group", "state", "topics"),
            sort="-lag",
            empty="There is no share group yet: a worker with a group makes one.",
        ),
    }


def _read_all(context: PageContext, told: list[str]) -> tuple[list[dict[str, Any]], int]:
    cluster = context.reading.cluster
    if not is_spoken(cluster):
        raise not_spoken("share groups cannot be asked for")
    groups = read_groups(cluster, with_members=False, tell=told.append)
    names = [each.group_id for each in groups if each.group_type == "share"]
    admin = cluster.admin() if names else None
    rows = []
    for name in names[:QUEUES_MAX]:
        try:
            group, (positions, delivery) = read_queue(cluster, name), read_waiting(cluster, name)
            dead = _dead_topic(cluster, admin, name)
        except CommandFailed as failure:
            # It was deleted meanwhile, or a leader is away: the others are shown.
            told.append(f"share group {name} could not be looked at: {failure.message}")
            continue
        partitions = lag_rows(name, positions, delivery)
        rows.append(
            {
                "group": name,
                "state": group.group_state,
                "members": len(group.members),
                "topics": sorted({topic for topic, _ in positions}),
                **{key: _sum(partitions, key) for key in ("lag", "acquired", "redelivering")},
                "oldest_s": max(
                    (each["oldest_s"] for each in partitions if each["oldest_s"] is not None), default=None
                ),
                "dead_letters": dead,
            }
        )
    return rows, max(0, len(names) - QUEUES_MAX)


def _dead_topic(cluster: Any, admin: Any, name: str) -> str | None:
    entries = read_entries(cluster, admin, Target("group", name))
    return None if entries is None else value_of(entries, DEAD_LETTER_TOPIC) or None


def _sum(rows: list[dict[str, Any]], key: str) -> int | None:
    known = [each[key] for each in rows if each[key] is not None]
    return sum(known) if known else None


def verdict(rows: list[dict[str, Any]]) -> dict[str, str]:
    """Return the answer in one sentence, and its level."""
    if not rows:
        return {"level": "unknown", "text": "There are no share groups."}
    stopped = [each for each in rows if each["lag"] and not each["members"]]
    if stopped:
        names = ", ".join(each["group"] for each in stopped[:3])
        return {"level": "warning", "text": f"Work waits and no member takes it: {names}."}
    waiting = sum(each["lag"] or 0 for each in rows)
    words = f"{count(waiting, 'record')} wait{'s' if waiting == 1 else ''}" if waiting else "nothing waits"
    text = words if len(rows) == 1 else f"{count(len(rows), 'share group')}: {words}"
    return {"level": "ok", "text": f"{text[:1].upper()}{text[1:]}."}


# One of them


async def queue(context: PageContext) -> Mapping[str, Any]:
    """Answer what members of one share group hold, and why the rest waits."""
    name = context.params["group"]
    shared = context.reading.shared

    def look() -> dict[str, Any]:
        cluster = shared.cluster
        group = read_queue(cluster, name)
        positions, _ = read_waiting(cluster, name)
        delivery = read_delivery(cluster, name, dict.fromkeys(positions, EVERYTHING)) if positions else None
        members = {each.member_id: f"{each.client_id}@{each.client_host.lstrip('/')}" for each in group.members}
        held = [] if delivery is None else held_rows(delivery, members)
        return {
            "state": group.group_state,
            "members": sorted(members.values()),
            "partitions": lag_rows(name, positions, delivery),
            "held": held,
            "delivery_count_limit": None if delivery is None else delivery.delivery_count_limit,
            "lock_duration_ms": None if delivery is None else delivery.lock_duration_ms,
            "dead_letters": _dead_topic(cluster, cluster.admin(), name),
            "is_told": delivery is not None or not positions,
        }

    found = await context.reading.know(("queue", name), lambda: shared.in_thread(look), QUEUES_S)
    if not found["is_told"]:
        context.reading.note("This cluster does not tell who holds a record: only Strandline's nodes do.")
    numbers = {state: sum(each["number"] for each in found["held"] if each["state"] == state) for state in _WORDS}
    waiting = _sum(found["partitions"], "lag")
    return {
        **found,
        "name": name,
        "verdict": verdict([{"group": name, "lag": waiting, "members": len(found["members"])}]),
        "figures": [
            {"label": "Waiting", "value": waiting, "kind": "number"},
            *({"label": word, "value": numbers[state], "kind": "number"} for state, word in _WORDS.items()),
            {"label": "Members", "value": len(found["members"]), "kind": "number"},
            {"label": "Deliveries at most", "value": found["delivery_count_limit"], "kind": "number"},
            {"label": "A lock lasts", "value": (found["lock_duration_ms"] or 0) / 1000 or None, "kind": "span"},
        ],
        "partitions": context.table(
            PARTITIONS,
            found["partitions"],
            caption="Partitions",
            name="partitions",
            sort="-lag",
            empty="The group reads no partition yet.",
        ),
        "held": context.table(
            HELD,
            found["held"],
            caption="Records that are held",
            name="held",
            searched=("records", "state", "member"),
            sort="-delivery",
            empty="No record is held.",
        ),
    }


_WORDS: Final = {"in flight": "In flight", "delayed": "Delayed", "behind key": "Behind an earlier one of their key"}


def held_rows(delivery: QueueDelivery, members: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the ranges of records that members hold, or that wait for a time or for a record before them."""
    rows = []
    for (topic, index), held in sorted(delivery.partitions.items()):
        for each in held.ranges:
            state = _STATES.get((each.state, 0 if each.state == ACQUIRED else each.held))
            if state is None:
                continue
            first = f"{topic}-{index}@{each.first_offset}"
            is_locked = each.state == ACQUIRED
            rows.append(
                {
                    "records": first if each.first_offset == each.last_offset else f"{first}..{each.last_offset}",
                    "state": state,
                    "number": each.last_offset - each.first_offset + 1,
                    "delivery": each.delivery_count,
                    "lock_s": max(0, each.lock_ms) / 1000 if is_locked else None,
                    "member": members.get(each.member_id or "", each.member_id or None) if is_locked else None,
                }
            )
            if len(rows) >= HELD_SHOWN:
                return rows
    return rows


PAGE: Final = ConsolePage(
    name="queues",
    path="/queues",
    title="Queues",
    question="Which queues have work that waits, is in flight, or is delivered again?",
    model=queues,
    template="queues.html",
    tables=(PageTable("table", HEADS),),
    group="Readers",
)
ONE: Final = ConsolePage(
    name="queue",
    path="/queues/{group:path}",
    title="Queue {group}",
    question="What waits, who holds what, and what was given up?",
    model=queue,
    template="queue.html",
    tables=(PageTable("partitions", PARTITIONS), PageTable("held", HELD)),
    under="queues",
)
MODULE: Final = PageModule(pages=(PAGE, ONE))
