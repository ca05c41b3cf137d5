"""How the records of share groups are folded back into the state when a shard is loaded.

Every record is applied, in any order: compaction may have removed what came between two of them.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.codec.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from strandline.codec.messages.share_group_current_member_assignment_value import ShareGroupCurrentMemberAssignmentValue
from strandline.codec.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from strandline.codec.messages.share_group_member_metadata_value import ShareGroupMemberMetadataValue
from strandline.codec.messages.share_group_metadata_key import ShareGroupMetadataKey
from strandline.codec.messages.share_group_metadata_value import ShareGroupMetadataValue
from strandline.codec.messages.share_group_state_partition_metadata_key import ShareGroupStatePartitionMetadataKey
from strandline.codec.messages.share_group_state_partition_metadata_value import (
    ShareGroupStatePartitionMetadataValue,
    TopicPartitionsInfo,
)
from strandline.codec.messages.share_group_target_assignment_member_key import ShareGroupTargetAssignmentMemberKey
from strandline.codec.messages.share_group_target_assignment_member_value import ShareGroupTargetAssignmentMemberValue
from strandline.codec.messages.share_group_target_assignment_metadata_key import ShareGroupTargetAssignmentMetadataKey
from strandline.codec.messages.share_group_target_assignment_metadata_value import (
    ShareGroupTargetAssignmentMetadataValue,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.share.share_group import ShareGroup, ShareMember, TopicIndexes

if TYPE_CHECKING:
    from strandline.codec.message import Message

KEYS: Final = (
    ShareGroupMemberMetadataKey,
    ShareGroupMetadataKey,
    ShareGroupTargetAssignmentMetadataKey,
    ShareGroupTargetAssignmentMemberKey,
    ShareGroupCurrentMemberAssignmentKey,
    ShareGroupStatePartitionMetadataKey,
)
"""The keys of the records of share groups."""


def load(groups: MutableMapping[str, Group], key: Message, value: Message | None) -> None:
    """Fold one record with one of the `KEYS` into the groups."""
    group_id: str = key.group_id  # type: ignore[attr-defined]  # Each of the keys has it.
    group = groups.get(group_id)
    if not isinstance(group, ShareGroup):
        if value is None:
            # Compaction keeps a tombstone longer than the group.
            return
        group = groups[group_id] = ShareGroup(group_id)
    match key:
        case ShareGroupMetadataKey():
            if value is None:
                del groups[group_id]
                return
            assert isinstance(value, ShareGroupMetadataValue)
            group.group_epoch = value.epoch
            group.metadata_hash = value.metadata_hash
        case ShareGroupMemberMetadataKey(member_id=member_id):
            _load_member(group, member_id, value)
        case ShareGroupCurrentMemberAssignmentKey(member_id=member_id):
            _load_current(group, member_id, value)
        case ShareGroupTargetAssignmentMemberKey(member_id=member_id):
            _load_target(group, member_id, value)
        case ShareGroupTargetAssignmentMetadataKey():
            epoch = ShareGroupTargetAssignmentMetadataValue() if value is None else value
            assert isinstance(epoch, ShareGroupTargetAssignmentMetadataValue)
            group.assignment_epoch = epoch.assignment_epoch
            group.assignment_timestamp_ms = epoch.assignment_timestamp
        case ShareGroupStatePartitionMetadataKey():
            state = ShareGroupStatePartitionMetadataValue() if value is None else value
            assert isinstance(state, ShareGroupStatePartitionMetadataValue)
            group.initializing = _topics(state.initializing_topics)
            group.initialized = _topics(state.initialized_topics)
            group.deleting = {topic.topic_id: topic.topic_name for topic in state.deleting_topics}


def _member(group: ShareGroup, member_id: str) -> ShareMember:
    member = group.members.get(member_id)
    if member is None:
        member = ShareMember(member_id)
        group.add(member)
    return member


def _load_member(group: ShareGroup, member_id: str, value: Message | None) -> None:
    if value is None:
        if member_id in group.members:
            group.remove(member_id)
        return
    assert isinstance(value, ShareGroupMemberMetadataValue)
    member = _member(group, member_id)
    member.rack_id = value.rack_id
    member.client_id = value.client_id
    member.client_host = value.client_host
    group.subscribe(member, frozenset(value.subscribed_topic_names))


def _load_current(group: ShareGroup, member_id: str, value: Message | None) -> None:
    if value is None:
        if member_id not in group.members:
            return
        value = ShareGroupCurrentMemberAssignmentValue(previous_member_epoch=-1)
    assert isinstance(value, ShareGroupCurrentMemberAssignmentValue)
    member = _member(group, member_id)
    member.member_epoch = value.member_epoch
    member.previous_member_epoch = value.previous_member_epoch
    member.assigned = {
        topic.topic_id: list(topic.partitions) for topic in value.assigned_partitions if topic.partitions
    }


def _load_target(group: ShareGroup, member_id: str, value: Message | None) -> None:
    if value is None:
        group.target.pop(member_id, None)
        return
    assert isinstance(value, ShareGroupTargetAssignmentMemberValue)
    group.target[member_id] = {
        topic.topic_id: list(topic.partitions) for topic in value.topic_partitions if topic.partitions
    }


def _topics(topics: Iterable[TopicPartitionsInfo]) -> dict[UUID, TopicIndexes]:
    return {topic.topic_id: TopicIndexes(topic.topic_name, set(topic.partitions)) for topic in topics}
