"""Why a partition is not served here, and who serves it instead."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from strandline.codec.current_leader import NodeEndpoint, endpoints_section
from strandline.errors import ErrorCode
from strandline.handlers.support.broker_endpoints import endpoint_of
from strandline.handlers.support.context import BrokerServices
from strandline.partition.partition import Partition
from strandline.quorum.image.cluster_image import PartitionImage

ASK_ANOTHER: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
"""With these codes an answer says who leads, so that a client need not ask for the metadata first (KIP-951)."""


def why_absent(node: BrokerServices, topic: str | bytes, index: int) -> ErrorCode:
    """Return the error code for a partition, by topic name or id, that this node does not lead."""
    partition = partition_image(node, topic, index)
    if partition is None:
        if isinstance(topic, bytes) and node.image.topic_by_id(uuid.UUID(bytes=topic)) is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    name = _name_of(node, topic)
    if partition.leader == node.node_id and node.log_failure(name, index) is not None:
        return ErrorCode.KAFKA_STORAGE_ERROR
    node.hurry_recovery(name, index)
    # Also where we shall lead it, and its log is still being opened: the client tries again.
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def _name_of(node: BrokerServices, topic: str | bytes) -> str:
    """Return the name of a topic of the image."""
    if isinstance(topic, str):
        return topic
    found = node.image.topic_by_id(uuid.UUID(bytes=topic))
    assert found is not None, "its partition was found"
    return found.name


def partition_image(node: BrokerServices, topic: str | bytes, index: int) -> PartitionImage | None:
    """Return the image of a partition."""
    if isinstance(topic, str):
        return node.image.partition(topic, index)
    found = node.image.topic_by_id(uuid.UUID(bytes=topic))
    return found.partitions[index] if found is not None and 0 <= index < len(found.partitions) else None


def led_partition(node: BrokerServices, topic: str, index: int) -> Partition | ErrorCode:
    """Return the partition if this node leads it, else the error code that sends a client to another broker."""
    partition = node.partition(topic, index)
    if partition is None or not partition.is_leader:
        return why_absent(node, topic, index)
    return partition


def current_leader(node: BrokerServices, topic: str | bytes, index: int) -> tuple[int, int] | None:
    """Id and epoch of the leader, as the metadata log says; None if there is no such partition."""
    partition = partition_image(node, topic, index)
    return None if partition is None else (partition.leader, partition.leader_epoch)


def leaders_section(node: BrokerServices, leader_ids: Iterable[int], listener_name: str) -> bytes:
    """Return the endpoints of those leaders, as the tagged fields of a response."""
    endpoints = []
    for leader_id in sorted(set(leader_ids)):
        endpoint = endpoint_of(node, leader_id, listener_name)
        if endpoint is not None:
            endpoints.append(NodeEndpoint(leader_id, *endpoint, node.image.brokers[leader_id].rack))
    return endpoints_section(endpoints)
