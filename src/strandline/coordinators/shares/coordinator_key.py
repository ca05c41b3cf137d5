"""The name of a share partition as FindCoordinator has it, `group:topic id:partition`, and where its state is kept."""

from __future__ import annotations

import base64
import re
from typing import Final
from uuid import UUID

from strandline.coordinators.partitioning import KAFKAS_HASH, partition_of_key
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.errors import ErrorCode, RequestError

SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"

_INT32: Final = range(-(1 << 31), 1 << 31)
_FORM = re.compile(r"(.+):([A-Za-z0-9_-]{22}):([+-]?[0-9]{1,10})", re.DOTALL | re.ASCII)
"""A group may have colons in its name: the last two count."""


def coordinator_key(key: SharePartitionKey) -> str:
    group_id, topic_id, partition = key
    return f"{group_id}:{base64.urlsafe_b64encode(topic_id.bytes)[:22].decode()}:{partition}"


def parse_coordinator_key(text: str) -> SharePartitionKey:
    """Return the share partition; raise RequestError if the text names none. As in Kafka no partition is too low."""
    match = _FORM.fullmatch(text)
    if match is None or int(match[3]) not in _INT32:
        message = f"Invalid key format: expected - groupId:topicId:partition, found - {text}"
        raise RequestError(ErrorCode.INVALID_REQUEST, message)
    topic_id = UUID(bytes=base64.urlsafe_b64decode(match[2] + "=="))
    return SharePartitionKey(match[1], topic_id, int(match[3]))


def partition_of_share(key: str, *, partition_count: int) -> int:
    """Return the partition of `__share_group_state` that has the state of a share partition, by its name."""
    return partition_of_key(key, partition_count=partition_count, hash_level=KAFKAS_HASH)
