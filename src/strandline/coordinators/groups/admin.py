"""What administrators ask of groups: describe, list and delete them, and delete offsets.

Each answers for groups of all kinds. Consumer and share groups are described by requests of their own; to
DescribeGroups they do not exist.
"""

from __future__ import annotations

from collections.abc import Mapping

from strandline.codec.messages.delete_groups_response import DeletableGroupResult
from strandline.codec.messages.describe_groups_response import DescribedGroup, DescribedGroupMember
from strandline.codec.messages.list_groups_response import ListedGroup, ListGroupsResponse
from strandline.codec.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, GroupState
from strandline.coordinators.groups.classic.consumer_protocol import PROTOCOL_TYPE
from strandline.coordinators.groups.classic.rebalance import session_key
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup
from strandline.coordinators.groups.consumer.records import consumer_group_tombstones
from strandline.coordinators.groups.events import DeleteGroup, DeleteOffsets, DescribeGroup, ListGroups
from strandline.coordinators.groups.group_records import group_tombstone, offset_tombstone
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.subscribed_topics import subscribed_topics, uses_consumer_protocol
from strandline.coordinators.offsets.offsets import CommittedOffsets
from strandline.errors import ErrorCode

GROUP_ID_NOT_FOUND_FROM_VERSION = 6
CLASSIC_TYPE = "classic"
CONSUMER_TYPE = "consumer"
SHARE_TYPE = "share"


def describe(group: Group | None, event: DescribeGroup, step: StepContext) -> None:
    if isinstance(group, ClassicGroup):
        step.reply(event.token, described(group))
        return
    absent = DescribedGroup(group_id=event.group_id, group_state=GroupState.DEAD)
    if event.api_version >= GROUP_ID_NOT_FOUND_FROM_VERSION:
        absent.error_code = ErrorCode.GROUP_ID_NOT_FOUND
        absent.error_message = (
            f"Group {event.group_id} not found." if group is None else f"Group {event.group_id} is not a classic group."
        )
    step.reply(event.token, absent)


def described(group: ClassicGroup) -> DescribedGroup:
    # Between two generations there is no protocol that all have agreed on, hence no metadata to show either.
    protocol_name = group.protocol_name if group.state is GroupState.STABLE else None
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol_name or "",
        members=[described_member(member, protocol_name) for member in group.members.values()],
    )


def described_member(member: ClassicGroupMember, protocol_name: str | None) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.group_instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        member_metadata=b"" if protocol_name is None else member.metadata_of(protocol_name),
        member_assignment=b"" if protocol_name is None else member.assignment,
    )


def list_groups(groups: Mapping[str, Group], event: ListGroups, step: StepContext) -> None:
    """Groups that are gone since the ids were looked up are left out."""
    listed = (listed_group(group) for group_id in event.group_ids if (group := groups.get(group_id)) is not None)
    step.reply(
        event.token,
        ListGroupsResponse(
            groups=[
                group
                for group in listed
                if (not event.states or group.group_state.lower() in event.states)
                and (not event.types or group.group_type in event.types)
            ]
        ),
    )


def listed_group(group: Group) -> ListedGroup:
    if isinstance(group, ConsumerGroup):
        return ListedGroup(
            group_id=group.group_id, protocol_type=PROTOCOL_TYPE, group_state=group.state, group_type=CONSUMER_TYPE
        )
    if isinstance(group, ShareGroup):
        return ListedGroup(
            group_id=group.group_id, protocol_type=SHARE_TYPE, group_state=group.state, group_type=SHARE_TYPE
        )
    return ListedGroup(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        group_state=group.state,
        group_type=CLASSIC_TYPE,
    )


def deletion_error(group: Group | None) -> ErrorCode:
    if group is None:
        return ErrorCode.GROUP_ID_NOT_FOUND
    return ErrorCode.NONE if group.state == GroupState.EMPTY else ErrorCode.NON_EMPTY_GROUP


def refuse_deletion(event: DeleteGroup, code: ErrorCode, step: StepContext) -> None:
    step.reply(event.token, DeletableGroupResult(group_id=event.group_id, error_code=code))


def delete(
    group: ClassicGroup | ConsumerGroup, offsets: CommittedOffsets, event: DeleteGroup, step: StepContext
) -> None:
    """Delete what `deletion_error` let pass. Should a crash come in between, the group is still there."""
    if isinstance(group, ClassicGroup):
        for member_id in group.pending_join:
            step.cancel_timer(session_key(group, member_id))
    step.append(
        *(
            offset_tombstone(group.group_id, topic, partition)
            for topic, partition in offsets.discard_all(group.group_id)
        ),
        *group_tombstones(group),
    )
    step.reply(event.token, DeletableGroupResult(group_id=group.group_id))


def group_tombstones(group: ClassicGroup | ConsumerGroup) -> list[CoordinatorRecord]:
    if isinstance(group, ConsumerGroup):
        return consumer_group_tombstones(group)
    return [group_tombstone(group.group_id)]


def offset_deletion_error(group: Group | None, group_id: str) -> ErrorCode:
    if not group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or isinstance(group, ShareGroup):
        return ErrorCode.GROUP_ID_NOT_FOUND
    if isinstance(group, ClassicGroup) and group.state is not GroupState.EMPTY and not uses_consumer_protocol(group):
        # Only of consumers it is known what they subscribe to.
        return ErrorCode.NON_EMPTY_GROUP
    return ErrorCode.NONE


def delete_offsets(group: Group | None, offsets: CommittedOffsets, event: DeleteOffsets, step: StepContext) -> None:
    request = event.request
    code = offset_deletion_error(group, request.group_id)
    if group is None or code is not ErrorCode.NONE:
        step.reply(event.token, OffsetDeleteResponse(error_code=code))
        return
    records: list[CoordinatorRecord] = []
    response = OffsetDeleteResponse()
    subscribed = subscribed_topics(group)
    for topic in request.topics:
        # A member that reads the topic would commit the offset again, or miss it at its next start.
        code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic.name in subscribed else ErrorCode.NONE
        answered = OffsetDeleteResponseTopic(name=topic.name)
        response.topics.append(answered)
        for partition in topic.partitions:
            index = partition.partition_index
            answered.partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
            if code is ErrorCode.NONE and offsets.discard(group.group_id, topic.name, index):
                records.append(offset_tombstone(group.group_id, topic.name, index))
    if records:
        step.append(*records)
    step.reply(event.token, response)
