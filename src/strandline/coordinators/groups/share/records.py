"""The records of share groups, in Kafka's schemas, and the tombstones that remove them.

    id  key              value
    10  group, member    who the member is and what it subscribes to
    11  group            group epoch, hash of the topics it subscribes to
    12  group            epoch and time of the target assignment
    13  group, member    its part of the target assignment
    14  group, member    its epoch and what it has
    15  group            topics whose state is being initialised, is initialised, is being deleted

A member goes with three tombstones, in the order 14, 13, 10, as an Apache Kafka broker insists on when it loads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from strandline.codec.messages.share_group_current_member_assignment_value import (
    ShareGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from strandline.codec.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from strandline.codec.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from strandline.codec.messages.share_group_metadata_key import ShareGroupMetadataKey
from strandline.codec.messages.share_group_metadata_value import ShareGroupMetadataValue
from strandline.codec.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from strandline.codec.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicInfo,
    TopicPartitionsInfo,
)
from strandline.codec.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from strandline.codec.messages.share_group_target_assignment_member_value import (
    ShareGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from strandline.codec.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from strandline.codec.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.share.share_group import ShareGroup, ShareMember, TopicIndexes

if TYPE_CHECKING:
    from strandline.codec.message import Message
    from strandline.coordinators.groups.assignors.spec import Assignment


def member_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return _record(
        ShareGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ShareGroupMemberMetadataValue(
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
        ),
    )


def group_epoch_record(group: ShareGroup) -> CoordinatorRecord:
    return _record(
        ShareGroupMetadataKey(group_id=group.group_id),
        ShareGroupMetadataValue(epoch=group.group_epoch, metadata_hash=group.metadata_hash),
    )


def target_epoch_record(group: ShareGroup) -> CoordinatorRecord:
    return _record(
        ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id),
        ShareGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_timestamp_ms
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return _record(
        ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ShareGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=list(indexes)) for topic_id, indexes in target.items()
            ]
        ),
    )


def changed_targets(group: ShareGroup, target: Mapping[str, Assignment]) -> list[CoordinatorRecord]:
    """Return the records that replace the present target assignment by another."""
    return [
        target_record(group.group_id, member_id, assignment)
        for member_id, assignment in target.items()
        if group.target.get(member_id) != assignment
    ]


def current_record(group_id: str, member: ShareMember) -> CoordinatorRecord:
    return _record(
        ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ShareGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            assigned_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=list(indexes))
                for topic_id, indexes in member.assigned.items()
            ],
        ),
    )


def state_record(group: ShareGroup) -> CoordinatorRecord:
    return _record(
        ShareGroupStatePartitionMetadataKey(group_id=group.group_id),
        ShareGroupStatePartitionMetadataValue(
            initializing_topics=_topics(group.initializing),
            initialized_topics=_topics(group.initialized),
            deleting_topics=[
                TopicInfo(topic_id=topic_id, topic_name=name) for topic_id, name in group.deleting.items()
            ],
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        _tombstone(ShareGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)),
        _tombstone(ShareGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        _tombstone(ShareGroupMemberMetadataKey(group_id=group_id, member_id=member_id)),
    ]


def share_group_tombstones(group: ShareGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of all records of a group without members."""
    return [
        _tombstone(ShareGroupTargetAssignmentMetadataKey(group_id=group.group_id)),
        _tombstone(ShareGroupStatePartitionMetadataKey(group_id=group.group_id)),
        _tombstone(ShareGroupMetadataKey(group_id=group.group_id)),
    ]


def _topics(topics: Mapping[UUID, TopicIndexes]) -> list[TopicPartitionsInfo]:
    return [
        TopicPartitionsInfo(topic_id=topic_id, topic_name=topic.name, partitions=sorted(topic.partitions))
        for topic_id, topic in topics.items()
    ]


def _record(key: Message, value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(encode_coordinator_key(key), encode_coordinator_value(value))


def _tombstone(key: Message) -> CoordinatorRecord:
    return CoordinatorRecord(encode_coordinator_key(key), None)
