"""What `strandline topic describe --storage` adds: segments, and what is deleted, compacted and damaged, in words."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.output import Output
from strandline.cli.common.plain_words import count, duration, size
from strandline.cli.config.access import ConfigValue, value_of
from strandline.cli.topic.storage_reading import Storage, StoredReplica
from strandline.cli.topic.storage_words import (
    cleaned_words,
    clock,
    compaction_words,
    damage_words,
    deletion_words,
    is_compacted,
    is_without_limit,
    offsets,
    scrub_words,
    segment_state,
)
from strandline.cli.topic.topics import ReplicaSize, replica_sizes

SEGMENTS_SHOWN = 12
"""Segments of a partition that a person is shown unless all are wanted: the oldest and the newest."""

_LABEL = 12


def as_objects(storage: Storage) -> list[dict[str, Any]] | None:
    """Every replica, for scripts; None where the cluster does not tell."""
    return [replica_object(replica) for replica in storage.replicas] if storage.is_known else None


def replica_object(replica: StoredReplica) -> dict[str, Any]:
    part, node = replica.part, replica.node
    return {
        "partition": part.partition,
        "broker": node.node_id,
        "is_leader": part.is_leader,
        "error": part.error_message,
        "log_start_offset": part.log_start_offset,
        "last_stable_offset": part.last_stable_offset,
        "high_watermark": part.high_watermark,
        "log_end_offset": part.log_end_offset,
        "size_bytes": part.size_bytes,
        "cleanup_policy": part.cleanup_policy,
        "deletion": {
            "words": deletion_words(part, node),
            "cause": part.next_deletion_cause or None,
            "base_offset": _known(part.next_deletion_base),
            "end_offset": _known(part.next_deletion_end),
            "size_bytes": _known(part.next_deletion_bytes),
            "at_ms": _known(part.next_deletion_ms),
        },
        "compaction": _compaction_object(replica) if is_compacted(part) else None,
        "scrubbed_ms": _known(part.scrubbed_ms),
        "damages": [
            {
                "base_offset": damage.base_offset,
                "end_offset": damage.end_offset,
                "position": _known(damage.position),
                "what": damage.what,
                "state": damage.state,
                "found_ms": _known(damage.found_ms),
            }
            for damage in part.damages
        ],
        "segments_total": part.segments_total,
        "segments": [
            {
                "base_offset": segment.base_offset,
                "end_offset": segment.end_offset,
                "size_bytes": segment.size_bytes,
                "first_timestamp_ms": _known(segment.first_timestamp_ms),
                "max_timestamp_ms": _known(segment.max_timestamp_ms),
                "state": segment_state(part, segment),
            }
            for segment in part.segments
        ],
    }


def _compaction_object(replica: StoredReplica) -> dict[str, Any]:
    part = replica.part
    return {
        "words": compaction_words(part, replica.node),
        "state": part.cleaning_state,
        "reason": part.cleaning_reason,
        "dirty_ratio": part.dirty_ratio if part.dirty_ratio >= 0 else None,
        "clean_up_to": _known(part.clean_up_to),
        "first_uncleanable": _known(part.first_uncleanable),
        "uncleanable_because": part.uncleanable_because or None,
        "due_ms": _known(part.cleaning_due_ms),
        "cleaned_ms": _known(part.cleaned_ms),
        "cleaned_bytes_before": _known(part.cleaned_bytes_before),
        "cleaned_bytes_after": _known(part.cleaned_bytes_after),
        "cleaned_without_key": part.cleaned_without_key,
    }


def _known(number: int) -> int | None:
    return number if number >= 0 else None


# For people


def show(output: Output, storage: Storage, *, all_replicas: bool, all_segments: bool) -> None:
    """Each partition on its leader; on followers if they are wanted, or if something is wrong there."""
    for replica in storage.replicas:
        if replica.part.is_leader or all_replicas or _is_unwell(replica):
            output.line("")
            _show_replica(output, replica, all_segments=all_segments)
    for broker_id, reason in storage.silent.items():
        output.talk(f"broker {broker_id} was not asked for its replicas: {reason}")


def _is_unwell(replica: StoredReplica) -> bool:
    part = replica.part
    return bool(part.error_code or part.damages) or part.cleaning_state == "set aside"


def _show_replica(output: Output, replica: StoredReplica, *, all_segments: bool) -> None:
    part = replica.part
    role = "leader" if part.is_leader else "follower"
    head = f"{replica.name} on broker {replica.node.node_id} ({role})"
    if replica.is_being_recovered:
        output.line(f"{head}: not open yet, the broker is {part.error_message}")
        return
    if part.error_code:
        output.line(f"{head}: offline")
        output.hanging(f"  {'because':{_LABEL}}", " " * (_LABEL + 2), part.error_message or "its log failed")
        return
    output.line(f"{head}: {_extent(replica)}")
    for label, words in _lines(replica):
        output.hanging(f"  {label:{_LABEL}}", " " * (_LABEL + 2), words)
    if part.size_bytes or part.segments_total > 1:
        columns, rows = _segment_table(replica, all_segments=all_segments)
        output.table(columns, rows)


def _extent(replica: StoredReplica) -> str:
    part = replica.part
    if part.log_start_offset == part.log_end_offset:
        where = f"empty, the next offset is {part.log_end_offset:,}"
    else:
        where = f"offsets {offsets(part.log_start_offset, part.log_end_offset)}"
    return f"{where}, {size(part.size_bytes)} in {count(part.segments_total, 'segment')}"


def _lines(replica: StoredReplica) -> Iterator[tuple[str, str]]:
    part, node = replica.part, replica.node
    for damage in part.damages:
        yield "damage", damage_words(damage, node)
    yield "deletion", deletion_words(part, node)
    if is_compacted(part):
        yield "compaction", compaction_words(part, node)
        cleaned = cleaned_words(part, node)
        if cleaned:
            yield "cleaned", cleaned
    yield "scrubbed", scrub_words(part, node)


def _segment_table(replica: StoredReplica, *, all_segments: bool) -> tuple[list[str], list[list[str]]]:
    part = replica.part
    rows = [
        [
            offsets(segment.base_offset, segment.end_offset)
            if segment.end_offset > segment.base_offset
            else f"{segment.base_offset:,} (empty)",
            size(segment.size_bytes),
            clock(segment.first_timestamp_ms) if segment.size_bytes else "-",
            clock(segment.max_timestamp_ms) if segment.size_bytes else "-",
            segment_state(part, segment),
        ]
        for segment in part.segments
    ]
    half = SEGMENTS_SHOWN // 2
    left_out = part.segments_total - (len(rows) if all_segments else min(len(rows), SEGMENTS_SHOWN))
    if left_out > 0:
        keep = len(rows) // 2 if all_segments else half
        rows[keep : len(rows) - keep] = [[f"... {left_out:,} more", "", "", "", ""]]
    return ["segment", "size", "oldest record", "newest record", "state"], rows


# Other clusters


def show_without(output: Output, cluster: Cluster, topic: Any, entries: dict[str, ConfigValue] | None) -> None:
    """What any Kafka cluster tells: how large each replica is, and what the settings mean."""
    output.line("")
    output.hanging(
        "storage   ",
        " " * 10,
        "this cluster does not tell of its segments, nor of what it deletes or compacts next; "
        "this is what its settings and DescribeLogDirs say",
    )
    for label, words in policy_lines(entries):
        output.hanging(f"  {label:{_LABEL}}", " " * (_LABEL + 2), words)
    sizes = replica_sizes(cluster, topic)
    if sizes is None:
        output.talk("sizes cannot be asked for with this sasl.mechanism")
        return
    output.line("")
    output.table(["partition", "broker", "directory", "size", "behind"], [_size_row(each) for each in sizes])


def _size_row(each: ReplicaSize) -> list[str]:
    behind = count(each.offset_lag, "offset") if each.offset_lag else "-"
    moving = " (moving here)" if each.is_future else ""
    return [str(each.partition), str(each.broker), each.directory + moving, size(each.size_bytes), behind]


def policy_lines(entries: dict[str, ConfigValue] | None) -> Iterator[tuple[str, str]]:
    """Yield what the settings of a topic say about its records, without a look at them."""
    if entries is None:
        yield "deletion", "unknown: this cluster does not offer DescribeConfigs"
        return
    policy = (value_of(entries, "cleanup.policy") or "delete").replace(" ", "").split(",")
    yield "deletion", _deletion_policy(entries, policy)
    if "compact" in policy:
        ratio = float(value_of(entries, "min.cleanable.dirty.ratio") or 0.5)
        yield (
            "compaction",
            f"sealed segments are cleaned when more than {ratio:.0%} of them is dirty (min.cleanable.dirty.ratio)",
        )


def _deletion_policy(entries: dict[str, ConfigValue], policy: list[str]) -> str:
    if "delete" not in policy:
        return f"nothing is deleted by age or size: cleanup.policy is {','.join(policy) or 'empty'}"
    ways = []
    retention_ms = int(value_of(entries, "retention.ms") or -1)
    retention_bytes = int(value_of(entries, "retention.bytes") or -1)
    if not is_without_limit(retention_ms):
        ways.append(f"when its newest record is {duration(retention_ms)} old (retention.ms)")
    if not is_without_limit(retention_bytes):
        ways.append(f"when the partition has {size(retention_bytes)} without it (retention.bytes)")
    return f"a segment goes {', or '.join(ways)}" if ways else "nothing is deleted: no retention is set"
