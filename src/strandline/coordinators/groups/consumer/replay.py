"""How the records of groups of the consumer protocol are folded back into the state when a shard is loaded.

Whatever a record says is taken, in any order: compaction may have taken away what came between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING

from strandline.codec.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from strandline.codec.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from strandline.codec.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from strandline.codec.messages.consumer_group_member_metadata_value import ConsumerGroupMemberMetadataValue
from strandline.codec.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from strandline.codec.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from strandline.codec.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from strandline.codec.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from strandline.codec.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from strandline.codec.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from strandline.codec.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from strandline.codec.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from strandline.codec.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import Protocol
from strandline.coordinators.groups.consumer import regex_subscriptions
from strandline.coordinators.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)

if TYPE_CHECKING:
    from strandline.codec.message import Message

_STATES = frozenset(MemberState)


def load(groups: MutableMapping[str, Group], key: Message, value: Message | None) -> None:
    """Fold one record into the groups. Records of groups of a third kind are passed over."""
    match key:
        case ConsumerGroupMetadataKey(group_id=group_id):
            if value is None:
                if isinstance(groups.get(group_id), ConsumerGroup):
                    del groups[group_id]
                return
            assert isinstance(value, ConsumerGroupMetadataValue)
            group = _group(groups, group_id)
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        case ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id):
            _load_member(groups, group_id, member_id, value)
        case ConsumerGroupCurrentMemberAssignmentKey(group_id=group_id, member_id=member_id):
            _load_current(groups, group_id, member_id, value)
        case ConsumerGroupTargetAssignmentMemberKey(group_id=group_id, member_id=member_id):
            _load_target(groups, group_id, member_id, value)
        case ConsumerGroupTargetAssignmentMetadataKey(group_id=group_id):
            if (group_or_none := _group_if(groups, group_id, value)) is not None:
                epoch = ConsumerGroupTargetAssignmentMetadataValue() if value is None else value
                assert isinstance(epoch, ConsumerGroupTargetAssignmentMetadataValue)
                group_or_none.assignment_epoch = epoch.assignment_epoch
                group_or_none.assignment_timestamp_ms = epoch.assignment_timestamp
        case ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=pattern):
            _load_regex(groups, group_id, pattern, value)
        case ConsumerGroupPartitionMetadataKey(group_id=group_id):
            if (group_or_none := _group_if(groups, group_id, value)) is not None:
                group_or_none.has_partition_metadata_record = value is not None
        case _:
            pass


def _group(groups: MutableMapping[str, Group], group_id: str) -> ConsumerGroup:
    group = groups.get(group_id)
    if not isinstance(group, ConsumerGroup):
        # A classic group of that name was taken over. Compaction may have left its record without the tombstone.
        group = groups[group_id] = ConsumerGroup(group_id)
    return group


def _group_if(groups: MutableMapping[str, Group], group_id: str, value: object) -> ConsumerGroup | None:
    """The group that a record is about. A tombstone makes none: compaction keeps it longer than the group."""
    if value is not None:
        return _group(groups, group_id)
    group = groups.get(group_id)
    return group if isinstance(group, ConsumerGroup) else None


def _member(group: ConsumerGroup, member_id: str) -> ConsumerMember:
    member = group.members.get(member_id)
    if member is None:
        member = ConsumerMember(member_id)
        group.add(member)
    return member


def _load_member(groups: MutableMapping[str, Group], group_id: str, member_id: str, value: Message | None) -> None:
    group = _group_if(groups, group_id, value)
    if group is None:
        return
    if value is None:
        if member_id in group.members:
            group.remove(member_id)
        return
    assert isinstance(value, ConsumerGroupMemberMetadataValue)
    member = _member(group, member_id)
    group.set_instance_id(member, value.instance_id)
    member.rack_id = value.rack_id
    member.client_id = value.client_id
    member.client_host = value.client_host
    group.subscribe(member, frozenset(value.subscribed_topic_names), value.subscribed_topic_regex or "")
    member.rebalance_timeout_ms = value.rebalance_timeout_ms
    member.server_assignor = value.server_assignor
    classic = value.classic_member_metadata
    member.classic = (
        None
        if classic is None
        else ClassicMember(
            classic.session_timeout_ms,
            tuple(Protocol(protocol.name, protocol.metadata) for protocol in classic.supported_protocols),
        )
    )


def _load_current(groups: MutableMapping[str, Group], group_id: str, member_id: str, value: Message | None) -> None:
    group = _group_if(groups, group_id, value)
    if group is None:
        return
    if value is None:
        member = group.members.get(member_id)
        if member is None:
            return
        value = ConsumerGroupCurrentMemberAssignmentValue(previous_member_epoch=-1)
    member = _member(group, member_id)
    assert isinstance(value, ConsumerGroupCurrentMemberAssignmentValue)
    member.member_epoch = value.member_epoch
    member.previous_member_epoch = value.previous_member_epoch
    member.state = MemberState(value.state) if value.state in _STATES else MemberState.UNKNOWN
    group.set_partitions(
        member,
        assigned=_partitions(value.assigned_partitions, value.member_epoch),
        pending_revocation=_partitions(value.partitions_pending_revocation, value.member_epoch),
    )


def _partitions(topics: Iterable[TopicPartitions], member_epoch: int) -> Partitions:
    """A coordinator before Kafka 4.3 wrote no epochs. Then the member's own stands for all, which is never too old."""
    found: Partitions = {}
    for topic in topics:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [member_epoch] * len(topic.partitions)
        if topic.partitions:
            found[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return found


def _load_target(groups: MutableMapping[str, Group], group_id: str, member_id: str, value: Message | None) -> None:
    group = _group_if(groups, group_id, value)
    if group is None:
        return
    if value is None:
        group.target.pop(member_id, None)
        return
    assert isinstance(value, ConsumerGroupTargetAssignmentMemberValue)
    group.target[member_id] = {
        topic.topic_id: list(topic.partitions) for topic in value.topic_partitions if topic.partitions
    }


def _load_regex(groups: MutableMapping[str, Group], group_id: str, pattern: str, value: Message | None) -> None:
    group = _group_if(groups, group_id, value)
    if group is None:
        return
    if value is None:
        group.regexes.pop(pattern, None)
    else:
        assert isinstance(value, ConsumerGroupRegularExpressionValue)
        group.regexes[pattern] = regex_subscriptions.from_value(value)
    group.patterns_changed()
