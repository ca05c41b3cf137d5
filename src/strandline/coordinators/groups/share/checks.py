"""Checks of a ShareGroupHeartbeat: each raises the error for the member, with Kafka's codes and words."""

from __future__ import annotations

from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.consumer.checks import check_size, invalid, is_blank
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.share.share_group import JOIN_EPOCH, LEAVE_EPOCH, ShareGroup, ShareMember
from strandline.errors import ErrorCode, RequestError

MEMBER_ID_LENGTH_MAX = 36
"""Characters of a member id, which is a UUID as text."""


def check_request(request: ShareGroupHeartbeatRequest) -> None:
    """Raise RequestError for what is wrong regardless of the group."""
    if not 1 <= len(request.member_id) <= MEMBER_ID_LENGTH_MAX:
        raise invalid("")
    if is_blank(request.member_id):
        raise invalid("MemberId can't be empty.")
    if is_blank(request.group_id):
        raise invalid("GroupId can't be empty.")
    if is_blank(request.rack_id):
        raise invalid("RackId can't be empty.")
    if request.member_epoch == JOIN_EPOCH and not request.subscribed_topic_names:
        raise invalid("SubscribedTopicNames must be set in first request.")
    if request.member_epoch < LEAVE_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if request.subscribed_topic_names:
        check_size(request.subscribed_topic_names)


def share_group(group: Group | None, group_id: str, *, what: str = "Group") -> ShareGroup:
    """Return the group if it is a share group, else raise."""
    if isinstance(group, ShareGroup):
        return group
    reason = f"{what} {group_id} not found." if group is None else f"Group {group_id} is not a share group."
    raise RequestError(ErrorCode.GROUP_ID_NOT_FOUND, reason)


def check_room(group: ShareGroup, member_id: str, config: GroupConfig) -> None:
    if len(group.members) >= config.share_group_size_max and member_id not in group.members:
        raise RequestError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The share group has reached its maximum capacity of {config.share_group_size_max} members.",
        )


def known_member(group: ShareGroup, member_id: str) -> ShareMember:
    """Return the member, or raise if it is unknown."""
    member = group.members.get(member_id)
    if member is None:
        raise RequestError(
            ErrorCode.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
        )
    return member


def check_epoch(member: ShareMember, received: int) -> None:
    """Accept the present epoch, and the previous one, because the answer with the present one may be lost."""
    if received in (JOIN_EPOCH, member.member_epoch):
        return
    if received > member.member_epoch:
        what, which = "greater", ""
    elif received != member.previous_member_epoch:
        what = "smaller"
        which = f", and it does not match the previous member epoch ({member.previous_member_epoch})"
    else:
        return
    raise RequestError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The share group member has a {what} member epoch ({received}) than the one known by the group coordinator "
        f"({member.member_epoch}){which}. The member must abandon all its partitions and rejoin.",
    )
