"""What the group verbs ask about positions: what a group has committed, and where the partitions begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.conversation import is_spoken, own_client
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.partition_places import leaders_of
from strandline.cli.group.state import Place
from strandline.cli.topic.topics import OffsetRange, look_up_offsets
from strandline.client.group_positions import CommittedPosition, read_many_positions, read_positions
from strandline.coordinators.partitioning import (
    KAFKAS_HASH,
    SIGN_CLEARED,
    partition_of_group,
)

PARTITIONS_PER_REQUEST = 1000
GROUPS_TOGETHER_MIN = 3


def committed_offsets(cluster: Cluster, group_id: str) -> dict[Place, CommittedPosition]:
    """Return every position that the group has committed; none if there is no such group."""
    return committed_by_group(cluster, [group_id])[group_id]


def homes_of_groups(group_ids: Sequence[str], partitions: int) -> list[int]:
    """Return the partitions of `__consumer_offsets` that may hold the commits of groups."""
    return sorted(
        {
            partition_of_group(group_id, partition_count=partitions, hash_level=level)
            for group_id in group_ids
            for level in (KAFKAS_HASH, SIGN_CLEARED)
        }
    )


def committed_by_group(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, dict[Place, CommittedPosition]]:
    if not is_spoken(cluster):
        return _committed_by_librdkafka(cluster, group_ids)
    with own_client(cluster, "cannot read the offsets of groups") as client:
        # What moves, or is refused, is asked for one by one: then the failure names the group.
        found = {} if len(group_ids) < GROUPS_TOGETHER_MIN else read_many_positions(client, group_ids)
        for group_id in group_ids:
            if group_id in found:
                continue
            what = f"read the offsets of group {group_id!r}"
            code, found[group_id] = read_positions(client, what, group_id, require_stable=False)
            if code:
                raise CommandFailed(f"cannot {what}: {code.name}")
    return found


def _committed_by_librdkafka(cluster: Cluster, group_ids: Sequence[str]) -> dict[str, dict[Place, CommittedPosition]]:
    # The client is kept in a name, because it answers its futures only as long as it lives.
    kafka, admin = kafka_api(), cluster.admin()
    found: dict[str, dict[Place, CommittedPosition]] = {}
    with cluster.errors("cannot read the offsets of groups"):
        # It asks for one group at a time; the answers are waited for together.
        asked = {
            group_id: admin.list_consumer_group_offsets(
                [kafka.ConsumerGroupTopicPartitions(group_id)], request_timeout=cluster.timeout_s
            )[group_id]
            for group_id in group_ids
        }
        for group_id, future in asked.items():
            answered = future.result().topic_partitions or []
            for each in answered:
                if each.error is not None:
                    raise CommandFailed(f"cannot read the offset of {each.topic}-{each.partition}: {each.error.str()}")
            found[group_id] = {
                (each.topic, each.partition): CommittedPosition(each.offset, each.metadata or "")
                for each in answered
                if each.offset >= 0
            }
    return found


def existing_partitions(cluster: Cluster) -> dict[str, list[int]]:
    """The partitions of every topic."""
    partitions: dict[str, list[int]] = {}
    for name, index in leaders_of(cluster):
        partitions.setdefault(name, []).append(index)
    return partitions


def ranges_of(cluster: Cluster, admin: Any, places: Iterable[Place]) -> dict[Place, OffsetRange]:
    """Log start offset and high watermark of each; None for a partition without a leader."""
    wanted = sorted(places)
    spec_of = admin_api().OffsetSpec
    starts = look_up_offsets(cluster, admin, wanted, spec_of.earliest())
    ends = look_up_offsets(cluster, admin, wanted, spec_of.latest())
    return {place: (starts[place], ends[place]) for place in wanted}


def offsets_at(cluster: Cluster, admin: Any, places: Iterable[Place], timestamp_ms: int) -> dict[Place, int | None]:
    """The first offset of this time or later; None where no record is that new."""
    spec = admin_api().OffsetSpec.for_timestamp(timestamp_ms)
    found = look_up_offsets(cluster, admin, sorted(places), spec)
    return {place: None if offset is None or offset < 0 else offset for place, offset in found.items()}


def commit(cluster: Cluster, admin: Any, group_id: str, positions: Mapping[Place, int]) -> dict[Place, str | None]:
    """Move the group; by place, None or why the cluster refused."""
    kafka = kafka_api()
    wanted = [kafka.TopicPartition(topic, partition, offset) for (topic, partition), offset in positions.items()]
    outcome: dict[Place, str | None] = {}
    for begin in range(0, len(wanted), PARTITIONS_PER_REQUEST):
        request = [kafka.ConsumerGroupTopicPartitions(group_id, wanted[begin : begin + PARTITIONS_PER_REQUEST])]
        with cluster.errors(f"cannot move group {group_id!r}"):
            answers = admin.alter_consumer_group_offsets(request, request_timeout=cluster.timeout_s)
            for each in answers[group_id].result().topic_partitions:
                refused = None if each.error is None else f"{each.error.str()} ({each.error.name()})"
                outcome[each.topic, each.partition] = refused
    return outcome
