"""Commits that differ from an earlier one in offset and leader epoch only: one partition, no metadata, no expiry.

Consumers send such commits thousands of times a second. `PlainCommit` keeps what stays the same from one to the next,
`GroupShard.commit_plain` moves the position. A test holds records and state to those of `GroupShard.step`.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups.group_records import NO_TOPIC_ID, OFFSET_COMMIT_VERSION, TOPIC_ID_TAG, offset_key
from strandline.coordinators.groups.shard_terms import CoordinatorRecord, TimerKey, TimerKind
from strandline.coordinators.partitioning import positive_hash
from strandline.ids import ZERO_UUID

OFFSET_WITHOUT_METADATA: Final = Struct(">hqiBq")
"""Version, offset, leader epoch, the length of no metadata plus one, commit timestamp; tagged fields follow."""
NO_METADATA_LENGTH: Final = 1


class PlainCommit:
    """The constant part of a member's commits for one partition."""

    __slots__ = (
        "_key",
        "_value_end",
        "api_version",
        "group_hash",
        "group_id",
        "member_id",
        "partition",
        "request",
        "response",
        "session_key",
        "topic",
        "topic_id",
    )

    def __init__(self, request: OffsetCommitRequest, api_version: int, response: bytes, hash_level: int) -> None:
        """`request` is one of these commits, its topic with name and id; `response` is the encoded success."""
        (topic,) = request.topics
        (partition,) = topic.partitions
        self.request = request
        self.api_version = api_version
        self.response = response
        self.group_id = request.group_id
        self.group_hash = positive_hash(request.group_id, hash_level)
        self.member_id = request.member_id
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.partition = partition.partition_index
        self.session_key = TimerKey(TimerKind.SESSION, request.group_id, request.member_id)
        self._key = offset_key(self.group_id, self.topic, self.partition)
        self._value_end = NO_TOPIC_ID if self.topic_id == ZERO_UUID else TOPIC_ID_TAG + self.topic_id.bytes

    def at(self, offset: int, leader_epoch: int, now_ms: int) -> tuple[OffsetCommitValue, CoordinatorRecord]:
        """Return the position at `offset`, and its record."""
        head = OFFSET_WITHOUT_METADATA.pack(OFFSET_COMMIT_VERSION, offset, leader_epoch, NO_METADATA_LENGTH, now_ms)
        value = OffsetCommitValue(offset, leader_epoch, "", now_ms, -1, self.topic_id)
        return value, CoordinatorRecord(self._key, head + self._value_end)
