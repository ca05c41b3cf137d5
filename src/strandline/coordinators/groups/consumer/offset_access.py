"""Which members may commit and fetch offsets of a group of the consumer protocol.

A member commits in its present epoch. An older epoch is accepted for a partition that the member was assigned in that
epoch or before: it has owned the partition since, and has not learned of the new epoch yet.

Stricter than Kafka in one place: a commit for a partition that another member owns is rejected. A member can release a
partition and stay in its epoch, because it has to release more. Its late commit would move back the position of the new
owner.
"""

from __future__ import annotations

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestGroup
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponseGroup
from strandline.coordinators.groups.consumer.consumer_group import (
    MEMBER_EPOCH_FROM_VERSION,
    ConsumerGroup,
    ConsumerMember,
)
from strandline.errors import ErrorCode


def commit_error(group: ConsumerGroup, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
    member_epoch = request.generation_id_or_member_epoch
    if member_epoch < 0 and not group.members:
        # An administrator moves the positions of a group at rest, or a consumer that needs no group keeps them here.
        return ErrorCode.NONE
    member = group.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if member.classic is None and api_version < MEMBER_EPOCH_FROM_VERSION:
        return ErrorCode.UNSUPPORTED_VERSION
    if member_epoch == member.member_epoch:
        is_allowed = not is_owned_by_another(group, member, request)
    else:
        is_allowed = member_epoch < member.member_epoch and owned_since(member, request, member_epoch)
    if is_allowed:
        return ErrorCode.NONE
    return ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION


def is_owned_by_another(group: ConsumerGroup, member: ConsumerMember, request: OffsetCommitRequest) -> bool:
    """Return whether another member owns a partition of the commit. Any member may commit unowned ones."""
    for topic in request.topics:
        owners = group.owners.get(topic.topic_id)
        if owners is not None:
            for partition in topic.partitions:
                if owners.get(partition.partition_index, member.member_id) != member.member_id:
                    return True
    return False


def owned_since(member: ConsumerMember, request: OffsetCommitRequest, member_epoch: int) -> bool:
    """Return whether the member has owned every partition of the commit since that epoch at the latest."""
    for topic in request.topics:
        epochs = member.assigned.get(topic.topic_id, {})
        giving_up = member.pending_revocation.get(topic.topic_id, {})
        for partition in topic.partitions:
            index = partition.partition_index
            epoch = epochs.get(index, giving_up.get(index))
            if epoch is None or epoch > member_epoch:
                return False
    return True


def fetch_error(group: ConsumerGroup, request: OffsetFetchRequestGroup) -> ErrorCode:
    if request.member_id is None and request.member_epoch < 0:
        return ErrorCode.NONE
    return group.validate_member(request.member_id or "", request.member_epoch)


def refuse_fetch(request: OffsetFetchRequestGroup, code: ErrorCode) -> OffsetFetchResponseGroup:
    return OffsetFetchResponseGroup(group_id=request.group_id, error_code=code)
