"""The records of `__consumer_offsets` that groups write, in Kafka's schemas.

    key    int16 type (1 offset commit, 2 group metadata) + body       value  int16 version + body, or null = tombstone

The versions are those that Kafka 4.3 writes. An offset is stored with the id of its topic (version 4), so that a topic
made again under an old name does not inherit positions; an offset with an expiry of its own (OffsetCommit 2-4 with a
retention time) needs version 1, which has neither id nor leader epoch.
"""

from __future__ import annotations

from struct import Struct

from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.group_metadata_key import GroupMetadataKey
from strandline.codec.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from strandline.codec.messages.offset_commit_key import OffsetCommitKey
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, GroupState, Protocol
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.ids import ZERO_UUID

GROUP_METADATA_VERSION = 3
OFFSET_COMMIT_VERSION = 4
OFFSET_COMMIT_WITH_EXPIRY_VERSION = 1

KEY_HEAD = Struct(">hh")
LENGTH = Struct(">h")
INDEX = Struct(">i")
OFFSET_HEAD = Struct(">hqiB")
"""Version, offset, leader epoch, and the length of the metadata plus one."""
ONE_BYTE_LENGTHS_END = 127
"""A varint of one byte holds the length plus one of anything shorter."""
COMMIT_TIMESTAMP = Struct(">q")
NO_TOPIC_ID = b"\x00"
TOPIC_ID_TAG = b"\x01\x00\x10"
"""One tagged field, number 0, of 16 bytes."""


def offset_commit_record(group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> CoordinatorRecord:
    key = offset_key(group_id, topic, partition)
    if value.expire_timestamp != -1:
        return CoordinatorRecord(key, encode_coordinator_value(value, OFFSET_COMMIT_WITH_EXPIRY_VERSION))
    metadata = value.metadata.encode()
    if len(metadata) >= ONE_BYTE_LENGTHS_END:
        return CoordinatorRecord(key, encode_coordinator_value(value, OFFSET_COMMIT_VERSION))
    # By hand, because thousands are written in a second: what the compiled codec makes of it, too.
    head = OFFSET_HEAD.pack(OFFSET_COMMIT_VERSION, value.offset, value.leader_epoch, len(metadata) + 1)
    tail = NO_TOPIC_ID if value.topic_id == ZERO_UUID else TOPIC_ID_TAG + value.topic_id.bytes
    return CoordinatorRecord(key, b"".join((head, metadata, COMMIT_TIMESTAMP.pack(value.commit_timestamp), tail)))


def offset_tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(offset_key(group_id, topic, partition), None)


def offset_key(group_id: str, topic: str, partition: int) -> bytes:
    group, name = group_id.encode(), topic.encode()
    return b"".join(
        (KEY_HEAD.pack(OffsetCommitKey.API_KEY, len(group)), group, LENGTH.pack(len(name)), name, INDEX.pack(partition))
    )


def group_tombstone(group_id: str) -> CoordinatorRecord:
    return CoordinatorRecord(encode_coordinator_key(GroupMetadataKey(group=group_id)), None)


def group_metadata_record(group: ClassicGroup, *, is_agreed: bool = True) -> CoordinatorRecord:
    """A group whose members have yet to agree on a generation is recorded without a leader; see `ClassicGroup`."""
    key = encode_coordinator_key(GroupMetadataKey(group=group.group_id))
    value = group_metadata_value(group)
    if not is_agreed:
        value.leader = None
    return CoordinatorRecord(key, encode_coordinator_value(value, GROUP_METADATA_VERSION))


def group_metadata_value(group: ClassicGroup) -> GroupMetadataValue:
    """What survives of a group: between generations that is the last generation that got its assignment."""
    return GroupMetadataValue(
        protocol_type=group.protocol_type or "",
        generation=group.generation_id,
        protocol=group.protocol_name,
        leader=group.leader_id,
        current_state_timestamp=group.state_timestamp_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.metadata_of(group.protocol_name),
                assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )


def group_from_metadata(group_id: str, value: GroupMetadataValue) -> ClassicGroup:
    group = ClassicGroup(group_id, now_ms=value.current_state_timestamp)
    group.state = GroupState.STABLE if value.members else GroupState.EMPTY
    group.generation_id = value.generation
    group.protocol_type = value.protocol_type or None
    # A generation has a protocol; what a damaged writer left out must not surprise us at the next SyncGroup.
    group.protocol_name = (value.protocol or "") if value.members else None
    group.leader_id = value.leader
    group.is_agreed = value.leader is not None or not value.members
    for member in value.members:
        group.add(
            ClassicGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # Version 0 had no rebalance timeout; members of that time used their session timeout for both.
                rebalance_timeout_ms=member.rebalance_timeout
                if member.rebalance_timeout != -1
                else member.session_timeout,
                session_timeout_ms=member.session_timeout,
                # Only the protocol that won is recorded. A member offers the others again when it joins again.
                protocols=(Protocol(value.protocol or "", member.subscription),),
                assignment=member.assignment,
            ),
            value.protocol_type,
        )
    return group
