"""Where a record went: groups whose position is beyond it, queues that hold it, and records that name it.

Names of sources are found in headers: dead letters of share groups, pipelines and connectors, and redriven records.
Those topics are searched from their ends, within limits; a visitor may name another topic to search.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.plain_words import count
from strandline.cli.group.offsets import committed_by_group
from strandline.cli.group.reading import read_groups
from strandline.cli.group.state import Place
from strandline.cli.queue.dead.letters import FROM, dead_letter_of
from strandline.cli.queue.queue_state import member_names, read_delivery, read_positions, read_queue
from strandline.cli.queue.reasons import NO_OFFSET, TaskFacts, reason
from strandline.client.cluster_client import ClusterClient
from strandline.console.context import PageContext
from strandline.console.masking import TopicMasks
from strandline.console.pages.dead_letters import shown, shown_reason
from strandline.console.pages.topic.read_by import GROUPS_MAX as COMMITS_READ_MAX
from strandline.console.pages.topic.read_by import how_it_was_read, of_position, read_commits
from strandline.console.reading.record_merge import RecordsAsked, read_records
from strandline.console.reading.record_spans import FoundRecord
from strandline.console.reading.user_cluster import UserCluster

GROUPS_MAX: Final = 500
QUEUES_MAX: Final = 50
TOPICS_SEARCHED_MAX: Final = 5
RECORDS_NAMED_MAX: Final = 20
POSITIONS_S: Final = 3.0
WAIT_S: Final = 4.0
_WITH_POSITIONS: Final = ("classic", "consumer")
_DEAD_WORDS: Final = ("dlq", "dead", "dead-letters", "deadletter", "deadletters", "dead_letter")


async def journey_of(context: PageContext, topic: str, partition: int, offset: int) -> dict[str, Any]:
    """Return who has read the record, and what names it."""
    reading = context.reading
    cluster = reading.cluster
    positions = await reading.part("Groups", _known_positions(context), {"groups": {}, "queues": []}, wait_s=WAIT_S)
    groups = [
        {
            "group": name,
            "position": committed[topic, partition][0],
            "has_read": committed[topic, partition][0] > offset,
            "behind": max(0, offset - committed[topic, partition][0]),
            "member": None,
            "read": of_position(offset, *committed[topic, partition]),
        }
        for name, committed in positions["groups"].items()
        if (topic, partition) in committed
    ]
    groups.sort(key=lambda each: (not each["has_read"], each["group"]))
    await _say_when(context, groups, (topic, partition), offset)
    names = positions["queues"][:QUEUES_MAX]

    async def ask_queues() -> list[dict[str, Any]]:
        return await reading.shared.in_thread(lambda: _queues(cluster, names, (topic, partition), offset))

    queues = await reading.part("Queues", ask_queues(), [], wait_s=WAIT_S) if names else []
    searched = await _searched(context, topic)
    named: list[dict[str, Any]] = []
    if searched:
        named = await reading.part(
            "Records that name it",
            reading.shared.ask(lambda client: _named(context, client, searched, (topic, partition), offset)),
            [],
            wait_s=WAIT_S,
        )
    read = [each["group"] for each in groups if each["has_read"]]
    return {
        "answer": _answer(groups, queues, named),
        "groups": groups,
        "has_read": len(read),
        "queues": queues,
        "named": named,
        "searched": searched,
        "search": context.query.get("in", ""),
    }


async def _say_when(context: PageContext, groups: list[dict[str, Any]], place: Place, offset: int) -> None:
    """Add which batch read the record, or when it was read, to groups that have read it."""
    unsaid = [each for each in groups if each["has_read"] and each["read"] is None][:COMMITS_READ_MAX]
    if not unsaid:
        return
    names = [each["group"] for each in unsaid]
    found = await context.reading.part(
        "When it was read",
        context.reading.shared.ask(lambda client: read_commits(client, names, place)),
        {},
        wait_s=WAIT_S,
    )
    for each in unsaid:
        each["read"] = how_it_was_read(offset, found.get(each["group"], ()))


def _answer(groups: list[dict[str, Any]], queues: list[dict[str, Any]], named: list[dict[str, Any]]) -> str:
    read = sum(each["has_read"] for each in groups)
    words = []
    if groups:
        words.append(f"{read:,} of {count(len(groups), 'group')} read beyond it")
    if queues:
        words.append(f"{count(len(queues), 'queue')} of its partition, see below")
    if named:
        words.append(f"{count(len(named), 'record')} found that name it as the source")
    return "; ".join(words).capitalize() + "." if words else "No group keeps a position in its partition."


async def _known_positions(context: PageContext) -> dict[str, Any]:
    """Return the positions of all groups, and the names of share groups; shared by all records that are looked at."""
    reading = context.reading

    async def ask() -> dict[str, Any]:
        return await reading.shared.in_thread(lambda: _positions(reading.cluster))

    return await reading.know("topic.positions", ask, POSITIONS_S)


def _positions(cluster: UserCluster) -> dict[str, Any]:
    groups = read_groups(cluster, with_members=False)
    names = [each.group_id for each in groups if each.group_type in _WITH_POSITIONS][:GROUPS_MAX]
    committed = committed_by_group(cluster, names) if names else {}
    return {
        "groups": {
            name: {place: (each.offset, each.metadata) for place, each in positions.items()}
            for name, positions in committed.items()
        },
        "queues": [each.group_id for each in groups if each.group_type == "share"],
    }


def _queues(cluster: UserCluster, names: list[str], place: Place, offset: int) -> list[dict[str, Any]]:
    """Return what share groups say of the record, in the words of `queue why`."""
    found: list[dict[str, Any]] = []
    for name in names:
        try:
            position = read_positions(cluster, name).get(place)
            if position is None:
                continue
            delivery = read_delivery(cluster, name, {place: (offset, offset)})
            if delivery is None or place not in delivery.partitions:
                has_read = position.start_offset > offset
                words = "its position is beyond the record" if has_read else "its position is before the record"
                found.append({"queue": name, "state": "done" if has_read else "waiting", "text": words})
                continue
            group = read_queue(cluster, name)
            reading = sum(
                place[1] in each.partitions
                for member in group.members
                for each in member.assignment.topic_partitions
                if each.topic_name == place[0]
            )
            facts = TaskFacts(
                offset,
                delivery.partitions[place],
                delivery.delivery_count_limit,
                stored_start=position.start_offset if position.start_offset >= 0 else NO_OFFSET,
                members=member_names(group),
                members_reading=reading,
                now_ms=int(time.time() * 1000),
            )
            why = reason(facts)
            found.append({"queue": name, "state": why.state, "text": why.text})
        except CommandFailed as failure:
            found.append({"queue": name, "state": "unknown", "text": failure.message})
    return found


async def _searched(context: PageContext, topic: str) -> list[str]:
    """Return the topics whose records may name it: the one of the URL, and those that look like dead letters."""
    topics = (await context.reading.metadata()).topics
    wanted = context.query.get("in", "").strip()
    found = [wanted] if wanted in topics else []
    if wanted and not found:
        context.reading.note(f"There is no topic {wanted} to search")
    dead = [each for each in sorted(topics) if each != topic and _is_dead(each)]
    dead.sort(key=lambda each: not each.startswith(topic))
    return list(dict.fromkeys([*found, *dead]))[:TOPICS_SEARCHED_MAX]


def _is_dead(topic: str) -> bool:
    words = topic.lower().replace("-", ".").replace("_", ".").split(".")
    return any(word in words for word in _DEAD_WORDS)


def _named(
    context: PageContext, client: ClusterClient, topics: list[str], place: Place, offset: int
) -> list[dict[str, Any]]:
    def relation(found: FoundRecord) -> str:
        return _relation(found, place, offset, context.masks(found.record.topic))

    def wanted(found: FoundRecord) -> bool:
        return bool(relation(found))

    return [
        {
            "topic": each.record.topic,
            "partition": each.record.partition,
            "offset": each.record.offset,
            "text": relation(each),
        }
        for name in topics
        for each in read_records(client, RecordsAsked(name, RECORDS_NAMED_MAX), time.monotonic, wanted).records
    ]


def _relation(found: FoundRecord, place: Place, offset: int, masks: TopicMasks) -> str:
    """Return how a record names another one as its source; empty if it does not."""
    topic, partition = place
    headers: Mapping[str, bytes | None] = dict(found.record.headers)
    came_from = (headers.get(FROM) or b"").decode("utf-8", "replace")
    if came_from in (f"{topic}-{partition}@{offset}", f"{topic}:{partition}:{offset}"):
        return "it was redriven from this dead letter"
    letter = dead_letter_of(found.record)
    if letter is not None and (letter.topic, letter.partition, letter.offset) == (topic, partition, offset):
        by = f" of {shown(letter, 'by', letter.by, masks)}" if letter.by else ""
        return f"dead letter of a {letter.kind}{by}: {shown_reason(letter, masks)}"
    return ""
