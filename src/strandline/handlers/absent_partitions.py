"""Why a partition is not served here, and who serves it instead."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from strandline.codec.current_leader import NodeEndpoint, endpoints_section
from strandline.errors import ErrorCode
from strandline.handlers.broker_endpoints import endpoint_of
from strandline.handlers.context import Node
from strandline.partition.partition import Partition
from strandline.quorum.cluster_image import PartitionImage

ASK_ANOTHER: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""With these codes an answer says who leads, so that a client need not ask for the metadata first (KIP-951)."""


def why_absent(node: Node, topic: str | bytes, index: int) -> ErrorCode:
    """What a client is told of a partition, named by its topic's name or id, that this node does not lead."""
    partition = partition_image(node, topic, index)
    if partition is None:
        if isinstance(topic, bytes) and node.image.topic_by_id(uuid.UUID(bytes=topic)) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader == node.node_id:
        here = node.topics.get(topic)
        if here is not None and index < len(here) and here[index] is None and not _is_recovering(node, topic, index):
            # We should lead it and cannot: its log failed.
            return ErrorCode.KAFKA_STORAGE_ERROR
    # Also where we shall lead it, and its log is still being opened: the client tries again.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _is_recovering(node: Node, topic: str | bytes, index: int) -> bool:
    if isinstance(topic, bytes):
        found = node.image.topic_by_id(uuid.UUID(bytes=topic))
        return found is not None and node.hurry_recovery(found.name, index)
    return node.hurry_recovery(topic, index)


def partition_image(node: Node, topic: str | bytes, index: int) -> PartitionImage | None:
    """What the metadata log says of a partition."""
    if isinstance(topic, str):
        return node.image.partition(topic, index)
    found = node.image.topic_by_id(uuid.UUID(bytes=topic))
    return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None


def led_partition(node: Node, topic: str, index: int) -> Partition | ErrorCode:
    """The partition, if this node leads it; else the reason for which a client is to ask another."""
    partition = node.partition(topic, index)
    if partition is None or not partition.is_leader:
        return why_absent(node, topic, index)
    return partition


def current_leader(node: Node, topic: str | bytes, index: int) -> tuple[int, int] | None:
    """Id and epoch of the leader, as the metadata log says; None if there is no such partition."""
    partition = partition_image(node, topic, index)
    return None if partition is None else (partition.leader, partition.leader_epoch)


def leaders_section(node: Node, leader_ids: Iterable[int]) -> bytes:
    """Where those leaders are, as the tagged fields of an answer."""
    endpoints = []
    for leader_id in sorted(set(leader_ids)):
        endpoint = endpoint_of(node, leader_id)
        if endpoint is not None:
            endpoints.append(NodeEndpoint(leader_id, *endpoint, node.image.brokers[leader_id].rack))
    return endpoints_section(endpoints)
