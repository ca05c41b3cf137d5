"""A share group as a queue: its members, how much waits, and what the leaders of its partitions hold.

Members and positions come from Kafka's own APIs, from any cluster with share groups. Locks and events are known to
leaders of Strandline only (ShareDelivery); elsewhere they are missing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import BrokerApis, ask_coordinator, check, is_spoken, not_spoken, own_client
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable
from strandline.cli.group.reading import group_not_found
from strandline.cli.group.state import Place
from strandline.client.cluster_client import PASSING, ClusterClient
from strandline.client.failures import ClusterFailed, DeadlinePassed, TopicMissing
from strandline.codec.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from strandline.codec.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)
from strandline.codec.messages.share_delivery_request import (
    DeliveredPartition,
    DeliveredTopic,
    ShareDeliveryRequest,
)
from strandline.codec.messages.share_delivery_response import PartitionDelivery, ShareDeliveryResponse
from strandline.codec.messages.share_group_describe_request import ShareGroupDescribeRequest
from strandline.codec.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from strandline.errors import ErrorCode, UnsupportedVersion, named
from strandline.ids import TopicPartition

LAST_OFFSET: Final = 0x7FFFFFFFFFFFFFFF
EVERYTHING: Final = (0, LAST_OFFSET)
NO_OFFSETS: Final = (LAST_OFFSET, LAST_OFFSET)
"""Asks for the figures of a partition, without ranges and events."""

OffsetSpan = tuple[int, int]


@dataclass(frozen=True)
class QueuePosition:
    """Where a share group is in a partition; offsets and lag are -1 where no leader has said them yet."""

    start_offset: int
    lag: int


@dataclass(frozen=True)
class QueueDelivery:
    """What the leaders hold. Partitions are missing where the leader did not answer."""

    delivery_count_limit: int = 0
    lock_duration_ms: int = 0
    now_ms: int = 0
    partitions: Mapping[Place, PartitionDelivery] = field(default_factory=dict)


def read_queue(cluster: Cluster, group_id: str) -> DescribedGroup:
    """Return a share group, which must exist."""
    if not is_spoken(cluster):
        raise not_spoken("share groups cannot be asked for")

    def ask(coordinator: BrokerApis, _: int) -> DescribedGroup:
        answer = coordinator.ask(ShareGroupDescribeRequest(group_ids=[group_id]), ShareGroupDescribeResponse)
        if answer is None:
            raise CommandFailed("this cluster has no share groups", hint="it needs Kafka 4.2, or Strandline")
        (group,) = answer.groups
        if group.error_code != ErrorCode.GROUP_ID_NOT_FOUND:
            check(group.error_code, f"cannot describe share group {group_id!r}")
        return group

    group = ask_coordinator(cluster, group_id, ask, doing=f"cannot describe share group {group_id!r}")
    if group.error_code:
        raise group_not_found(cluster, group_id)
    return group


def read_positions(cluster: Cluster, group_id: str) -> dict[Place, QueuePosition]:
    """Return the position of a share group in every partition that it reads."""
    asked = DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=None)
    request = DescribeShareGroupOffsetsRequest(groups=[asked])
    doing = f"cannot read the offsets of share group {group_id!r}"

    def ask(coordinator: BrokerApis, _: int) -> DescribeShareGroupOffsetsResponseGroup:
        answer = coordinator.ask(request, DescribeShareGroupOffsetsResponse)
        if answer is None:
            raise CommandFailed("this cluster has no share groups", hint="it needs Kafka 4.2, or Strandline")
        (group,) = answer.groups
        check(group.error_code, doing)
        return group

    group = ask_coordinator(cluster, group_id, ask, doing=doing)
    return {
        (topic.topic_name, each.partition_index): QueuePosition(each.start_offset, each.lag)
        for topic in group.topics
        for each in topic.partitions
        if not each.error_code
    }


def read_delivery(cluster: Cluster, group_id: str, wanted: Mapping[Place, OffsetSpan]) -> QueueDelivery | None:
    """Ask the leaders of partitions, each about the offsets between two. None if they cannot tell."""
    found: dict[Place, PartitionDelivery] = {}
    last: list[ShareDeliveryResponse] = []

    def attempt(client: ClusterClient) -> QueueDelivery | None:
        by_leader: dict[int, list[Place]] = {}
        for place in wanted:
            if place not in found:
                by_leader.setdefault(client.leader_of(TopicPartition(*place))[0], []).append(place)
        for leader_id, places in by_leader.items():
            answer = client.ask_broker(leader_id, _request(group_id, places, wanted), ShareDeliveryResponse)
            check(answer.error_code, f"cannot describe the delivery of share group {group_id!r}")
            last.append(answer)
            for topic in answer.topics:
                for each in topic.partitions:
                    code = named(each.error_code)
                    if code in PASSING:
                        client.forget(topic.name)
                    elif code:
                        raise CommandFailed(f"cannot describe the delivery of {topic.name}: {code.name}")
                    else:
                        found[topic.name, each.partition] = each
        if len(found) < len(wanted):
            return None
        figures = last[-1] if last else ShareDeliveryResponse()
        return QueueDelivery(figures.delivery_count_limit, figures.lock_duration_ms, figures.now_ms, found)

    with own_client(cluster, "cannot ask the leaders") as client:
        try:
            return client.retried("ask the leaders", lambda: attempt(client))
        except TopicMissing as error:
            raise NotFound(str(error)) from None
        except DeadlinePassed as error:
            raise Unreachable(f"the leaders did not answer: {error.last_failure}") from None
        except ClusterFailed as error:
            if isinstance(error.__cause__, UnsupportedVersion):
                return None
            raise


def _request(group_id: str, places: list[Place], wanted: Mapping[Place, OffsetSpan]) -> ShareDeliveryRequest:
    topics: dict[str, DeliveredTopic] = {}
    for place in places:
        first, last = wanted[place]
        asked = DeliveredPartition(partition=place[1], first_offset=first, last_offset=last)
        topics.setdefault(place[0], DeliveredTopic(name=place[0])).partitions.append(asked)
    return ShareDeliveryRequest(group_id=group_id, topics=list(topics.values()))


def read_waiting(cluster: Cluster, group_id: str) -> tuple[dict[Place, QueuePosition], QueueDelivery | None]:
    """Return the positions of a share group, and what the leaders of the partitions hold."""
    positions = read_positions(cluster, group_id)
    return positions, read_delivery(cluster, group_id, dict.fromkeys(positions, NO_OFFSETS)) if positions else None


def lag_rows(
    group_id: str, positions: Mapping[Place, QueuePosition], delivery: QueueDelivery | None
) -> list[dict[str, Any]]:
    """Return a row for each partition that a group reads; what is not known is None."""
    rows = []
    for place, position in sorted(positions.items()):
        held = None if delivery is None else delivery.partitions.get(place)
        rows.append(
            {
                "group": group_id,
                "topic": place[0],
                "partition": place[1],
                "start": position.start_offset if held is None or held.start_offset < 0 else held.start_offset,
                "lag": None if position.lag < 0 else position.lag,
                "acquired": None if held is None else held.acquired,
                "redelivering": None if held is None else held.redelivering,
                "oldest_s": None if held is None or held.oldest_ms < 0 else held.oldest_ms // 1000,
            }
        )
    return rows


def member_names(group: DescribedGroup) -> dict[str, str]:
    """Return what a person calls each member."""
    return {each.member_id: f"{each.client_id}@{each.client_host.lstrip('/')}" for each in group.members}
