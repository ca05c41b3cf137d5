"""The short way of a plain commit: one partition, no metadata, no expiry of its own, a group that is there.

That is what consumers send thousands of times a second, each the same as its last but for the offset. Who may commit is
asked in the same words as in `GroupShard`, and offset and record are those that `offsets.commit` makes: a test holds
the two ways to that. Whatever is refused, or is not plain, goes the general way.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.consumer import offset_access as consumer_offsets
from strandline.coordinators.groups.events import Record, TimerKey, TimerKind
from strandline.coordinators.groups.group_records import NO_TOPIC_ID, OFFSET_COMMIT_VERSION, TOPIC_ID_TAG, offset_key
from strandline.coordinators.offsets import offsets
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID

if TYPE_CHECKING:
    from strandline.coordinators.groups.group_shard import GroupShard

OFFSET_WITHOUT_METADATA: Final = Struct(">hqiBq")
"""Version, offset, leader epoch, the length of no metadata plus one, commit timestamp; tagged fields follow."""
NO_METADATA_LENGTH: Final = 1
NO_SESSION: Final = -1


class PlainCommit:
    """What stays the same from one commit to the next: who commits, and for which partition."""

    __slots__ = (
        "answer",
        "api_version",
        "group_id",
        "key",
        "member_id",
        "partition",
        "request",
        "session_key",
        "topic",
        "topic_id",
        "value_end",
    )

    def __init__(self, request: OffsetCommitRequest, api_version: int, answer: bytes) -> None:
        """`request` was such a commit, its topic with name and id; `answer` is what is said when it is done."""
        (topic,) = request.topics
        (partition,) = topic.partitions
        self.request = request
        self.api_version = api_version
        self.answer = answer
        self.group_id = request.group_id
        self.member_id = request.member_id
        self.topic = topic.name
        self.topic_id = topic.topic_id
        self.partition = partition.partition_index
        self.session_key = TimerKey(TimerKind.SESSION, request.group_id, request.member_id)
        self.key = offset_key(self.group_id, self.topic, self.partition)
        self.value_end = NO_TOPIC_ID if self.topic_id == ZERO_UUID else TOPIC_ID_TAG + self.topic_id.bytes


def commit(
    shard: GroupShard, plain: PlainCommit, offset: int, leader_epoch: int, now_ms: int
) -> tuple[Record, int] | None:
    """Move the position: its record, and the session that begins anew. None, with nothing changed, if it may not."""
    group_id = plain.group_id
    group = shard.groups.get(group_id)
    session_timeout_ms = NO_SESSION
    if isinstance(group, ClassicGroup):
        code = offsets.commit_error(group, plain.request, plain.api_version)
        member = group.members.get(plain.member_id)
        if member is not None:
            session_timeout_ms = member.session_timeout_ms
    elif group is not None:
        code = consumer_offsets.commit_error(group, plain.request, plain.api_version)
    else:
        return None
    if code is not ErrorCode.NONE:
        return None
    value = OffsetCommitValue(offset, leader_epoch, "", now_ms, -1, plain.topic_id)
    shard.offsets.put(group_id, plain.topic, plain.partition, value)
    head = OFFSET_WITHOUT_METADATA.pack(OFFSET_COMMIT_VERSION, offset, leader_epoch, NO_METADATA_LENGTH, now_ms)
    return Record(plain.key, head + plain.value_end), session_timeout_ms
