"""Plans of `topic delete` and `topic trim`: what would go, before it goes. The console shows the same."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from strandline.cli.common.client import Cluster, admin_api
from strandline.cli.common.failures import CommandFailed, UsageFailed
from strandline.cli.common.plain_words import count
from strandline.cli.common.positions import Latest, Position, TimePosition, parse_position, start_offset
from strandline.cli.topic.topics import look_up_offsets, records_between


def deletion_plan(topics: dict[str, Any], ranges: dict[tuple[str, int], Any]) -> list[str]:
    """Return the lines that say what deleting topics takes."""
    plan = []
    total = 0
    for name, topic in topics.items():
        records = records_between(ranges[name, partition.id] for partition in topic.partitions)
        total += records
        partitions = count(len(topic.partitions), "partition")
        plan.append(f"delete {name}: {partitions}, up to {count(records, 'record')}, for good")
    if len(topics) > 1:
        plan.insert(0, f"delete {count(len(topics), 'topic')} with up to {count(total, 'record')}:")
    return plan


def trim_position(text: str) -> Position:
    """Return where a topic shall begin. Raise UsageFailed."""
    if text.strip().lower() == "all":
        return Latest()
    try:
        return parse_position(text, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise UsageFailed(f"--before {error}; or all") from None


def new_starts(
    cluster: Cluster, admin: Any, places: list[tuple[str, int]], ranges: dict[tuple[str, int], Any], position: Position
) -> dict[int, tuple[int, int]]:
    """By partition, the log start offset of today and the one to come, where they differ."""
    at_time: dict[tuple[str, int], int | None] = {}
    if isinstance(position, TimePosition):
        spec = admin_api().OffsetSpec.for_timestamp(position.timestamp_ms)
        at_time = look_up_offsets(cluster, admin, places, spec)
    targets = {}
    for place in places:
        start, end = ranges[place]
        if start is None or end is None:
            raise CommandFailed(
                f"partition {place[1]} of {place[0]!r} has no leader, or its log failed: nothing was trimmed",
                hint="see `strandline topic describe --storage`, or choose others with --partition",
            )
        found = at_time.get(place)
        new = start_offset(
            position, log_start_offset=start, end_offset=end, offset_at_time=None if found in (None, -1) else found
        )
        if new > start:
            targets[place[1]] = (start, new)
    return targets


def trim_plan(name: str, targets: Mapping[int, tuple[int, int]]) -> list[str]:
    """Return the lines that say what a trim deletes."""
    return [
        f"trim {name}-{partition}: up to {count(new - start, 'record')}, offsets {start} to {new - 1}, for good"
        for partition, (start, new) in targets.items()
    ]
