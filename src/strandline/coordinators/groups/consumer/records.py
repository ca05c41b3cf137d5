"""The records of groups of the consumer protocol, in Kafka's schemas, and the tombstones that take them away.

    id  key                     value
     3  group                   group epoch, hash of the topics it subscribes to
     4  group                   topics and partitions; Kafka before 4.1 wrote it, we only clear it away
     5  group, member           who the member is and what it subscribes to
     6  group                   epoch and time of the target assignment
     7  group, member           its part of the target assignment
     8  group, member           its epoch and what it owns
    16  group, pattern          the topics that the pattern matches

A member goes with three tombstones, in the order 8, 7, 5, as an Apache Kafka broker insists on when it loads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.codec.internal_records import encode_coordinator_key, encode_coordinator_value
from strandline.codec.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from strandline.codec.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from strandline.codec.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from strandline.codec.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from strandline.codec.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from strandline.codec.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from strandline.codec.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from strandline.codec.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from strandline.codec.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
    TopicPartition,
)
from strandline.codec.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from strandline.codec.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from strandline.coordinators.groups.consumer import regex_subscriptions
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember, Partitions
from strandline.coordinators.groups.shard_terms import CoordinatorRecord

if TYPE_CHECKING:
    from strandline.codec.message import Message
    from strandline.coordinators.groups.assignors.spec import Assignment


def group_epoch_record(group: ConsumerGroup) -> CoordinatorRecord:
    return _record(
        ConsumerGroupMetadataKey(group_id=group.group_id),
        ConsumerGroupMetadataValue(epoch=group.group_epoch, metadata_hash=group.metadata_hash),
    )


def target_epoch_record(group: ConsumerGroup) -> CoordinatorRecord:
    return _record(
        ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id),
        ConsumerGroupTargetAssignmentMetadataValue(
            assignment_epoch=group.assignment_epoch, assignment_timestamp=group.assignment_timestamp_ms
        ),
    )


def target_record(group_id: str, member_id: str, target: Assignment) -> CoordinatorRecord:
    return _record(
        ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id),
        ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=[
                TopicPartition(topic_id=topic_id, partitions=list(partitions))
                for topic_id, partitions in target.items()
            ]
        ),
    )


def changed_targets(group: ConsumerGroup, target: Mapping[str, Assignment]) -> list[CoordinatorRecord]:
    """Return the records that replace the present target assignment by another."""
    return [
        target_record(group.group_id, member_id, assignment)
        for member_id, assignment in target.items()
        if group.target.get(member_id) != assignment
    ]


def member_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    classic = member.classic
    return _record(
        ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupMemberMetadataValue(
            instance_id=member.instance_id,
            rack_id=member.rack_id,
            client_id=member.client_id,
            client_host=member.client_host,
            subscribed_topic_names=sorted(member.subscribed_topic_names),
            subscribed_topic_regex=member.subscribed_topic_regex,
            rebalance_timeout_ms=member.rebalance_timeout_ms,
            server_assignor=member.server_assignor,
            classic_member_metadata=None
            if classic is None
            else ClassicMemberMetadata(
                session_timeout_ms=classic.session_timeout_ms,
                supported_protocols=[
                    ClassicProtocol(name=protocol.name, metadata=protocol.metadata) for protocol in classic.protocols
                ],
            ),
        ),
    )


def current_record(group_id: str, member: ConsumerMember) -> CoordinatorRecord:
    return _record(
        ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member.member_id),
        ConsumerGroupCurrentMemberAssignmentValue(
            member_epoch=member.member_epoch,
            previous_member_epoch=member.previous_member_epoch,
            state=member.state,
            assigned_partitions=_topic_partitions(member.assigned),
            partitions_pending_revocation=_topic_partitions(member.pending_revocation),
        ),
    )


def member_tombstones(group_id: str, member_id: str) -> list[CoordinatorRecord]:
    return [
        _tombstone(ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id)),
        _tombstone(ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id)),
        _tombstone(ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)),
    ]


def partition_metadata_tombstone(group_id: str) -> CoordinatorRecord:
    return _tombstone(ConsumerGroupPartitionMetadataKey(group_id=group_id))


def consumer_group_records(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return all records that are needed to load the group as it is."""
    group_id = group.group_id
    return [
        *(member_record(group_id, member) for member in group.members.values()),
        *(regex_subscriptions.regex_record(group_id, pattern, resolved) for pattern, resolved in group.regexes.items()),
        group_epoch_record(group),
        *(target_record(group_id, member_id, target) for member_id, target in group.target.items()),
        target_epoch_record(group),
        *(current_record(group_id, member) for member in group.members.values()),
    ]


def consumer_group_tombstones(group: ConsumerGroup) -> list[CoordinatorRecord]:
    """Return the tombstones of all records of the group, with those of its remaining members."""
    group_id = group.group_id
    by_member = [member_tombstones(group_id, member_id) for member_id in group.members]
    return [
        *(current for current, _, _ in by_member),
        *(target for _, target, _ in by_member),
        _tombstone(ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id)),
        *(member for _, _, member in by_member),
        *(regex_subscriptions.regex_tombstone(group_id, pattern) for pattern in group.regexes),
        *([partition_metadata_tombstone(group_id)] if group.has_partition_metadata_record else []),
        _tombstone(ConsumerGroupMetadataKey(group_id=group_id)),
    ]


def _record(key: Message, value: Message) -> CoordinatorRecord:
    return CoordinatorRecord(encode_coordinator_key(key), encode_coordinator_value(value))


def _tombstone(key: Message) -> CoordinatorRecord:
    return CoordinatorRecord(encode_coordinator_key(key), None)


def _topic_partitions(partitions: Partitions) -> list[TopicPartitions]:
    return [
        TopicPartitions(topic_id=topic_id, partitions=list(epochs), assignment_epochs=list(epochs.values()))
        for topic_id, epochs in partitions.items()
    ]
