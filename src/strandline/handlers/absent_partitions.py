"""What a client is told of a partition that is not served here."""

from __future__ import annotations

from strandline.errors import ErrorCode
from strandline.handlers.context import Node


def why_absent(node: Node, topic: str, index: int) -> ErrorCode:
    partition = node.image.partition(topic, index)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    # We should lead it and cannot: its log failed.
    return ErrorCode.KAFKA_STORAGE_ERROR if partition.leader == node.node_id else ErrorCode.NOT_LEADER_OR_FOLLOWER
