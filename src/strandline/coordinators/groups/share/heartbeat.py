"""ShareGroupHeartbeat: the one request by which a member of a share group joins, lives, changes and leaves.

Everything that can be refused is refused before anything is changed, by raising; so a refusal leaves no trace.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from strandline.codec.messages.share_group_heartbeat_response import (
    Assignment as AssignmentMessage,
)
from strandline.codec.messages.share_group_heartbeat_response import (
    ShareGroupHeartbeatResponse,
    TopicPartitions,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.assignors.spec import Assignment
from strandline.coordinators.groups.events import ShareHeartbeat
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.share import initialization
from strandline.coordinators.groups.share.checks import (
    check_epoch,
    check_request,
    check_room,
    known_member,
    share_group,
)
from strandline.coordinators.groups.share.fencing import remove_member, restart_session
from strandline.coordinators.groups.share.records import current_record, member_record, state_record
from strandline.coordinators.groups.share.share_group import JOIN_EPOCH, LEAVE_EPOCH, ShareGroup, ShareMember
from strandline.coordinators.groups.share.target_assignment import maybe_assign, maybe_move_epoch
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics
from strandline.errors import RequestError


def heartbeat(groups: MutableMapping[str, Group], event: ShareHeartbeat, step: StepContext) -> None:
    try:
        check_request(event.request)
        response = (
            _leave(groups, event, step) if event.request.member_epoch == LEAVE_EPOCH else _live(groups, event, step)
        )
    except RequestError as refused:
        response = ShareGroupHeartbeatResponse(error_code=refused.code, error_message=str(refused) or None)
    step.reply(event.token, response)


def _leave(groups: MutableMapping[str, Group], event: ShareHeartbeat, step: StepContext) -> ShareGroupHeartbeatResponse:
    request = event.request
    group = share_group(groups.get(request.group_id), request.group_id)
    member = known_member(group, request.member_id)
    remove_member(group, member, step)
    return ShareGroupHeartbeatResponse(member_id=member.member_id, member_epoch=LEAVE_EPOCH)


def _live(groups: MutableMapping[str, Group], event: ShareHeartbeat, step: StepContext) -> ShareGroupHeartbeatResponse:
    request = event.request
    is_joining = request.member_epoch == JOIN_EPOCH
    found = groups.get(request.group_id)
    if found is None and is_joining:
        found = ShareGroup(request.group_id)
    group = share_group(found, request.group_id, what="Share group")
    check_room(group, request.member_id, step.config)
    if is_joining and request.member_id not in group.members:
        member = ShareMember(request.member_id)
        group.add(member)
    else:
        member = known_member(group, request.member_id)
        check_epoch(member, request.member_epoch)
    groups[request.group_id] = group
    return _proceed(group, member, event, step)


def _proceed(
    group: ShareGroup, member: ShareMember, event: ShareHeartbeat, step: StepContext
) -> ShareGroupHeartbeatResponse:
    """Take over what the member says of itself, move the group on if that changes it, and the member with it."""
    records: list[CoordinatorRecord] = []
    assigned_before = member.assigned
    has_changed, subscription_changed = _take_over(group, member, event)
    if has_changed:
        records.append(member_record(group.group_id, member))
    records += maybe_move_epoch(group, step, must_move=subscription_changed or group.epoch_is_spent)
    records += maybe_assign(group, step)
    if _reconcile(group, member, step.topics, subscription_changed=subscription_changed):
        records.append(current_record(group.group_id, member))
    asked = initialization.begin(group, step)
    if asked is not None:
        records.append(state_record(group))
    if records:
        step.append(*records)
    if asked is not None:
        step.effects.append(asked)
    restart_session(group, member.member_id, step)
    response = ShareGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=step.config.share_settings(group.group_id).heartbeat_interval_ms,
    )
    if event.request.subscribed_topic_names is not None or member.assigned != assigned_before:
        response.assignment = AssignmentMessage(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, partitions=indexes) for topic_id, indexes in member.assigned.items()
            ]
        )
    return response


def _take_over(group: ShareGroup, member: ShareMember, event: ShareHeartbeat) -> tuple[bool, bool]:
    """Take over what the member says of itself; whether anything changed, and whether its subscription did."""
    request = event.request
    names = member.subscribed_topic_names
    if request.subscribed_topic_names is not None:
        names = frozenset(request.subscribed_topic_names)
    subscription_changed = names != member.subscribed_topic_names
    if subscription_changed:
        group.subscribe(member, names)
    rack_id = member.rack_id if request.rack_id is None else request.rack_id
    facts = event.client_id, event.client_host, rack_id
    has_changed = facts != (member.client_id, member.client_host, member.rack_id)
    member.client_id, member.client_host, member.rack_id = facts
    return has_changed or subscription_changed, subscription_changed


def _reconcile(group: ShareGroup, member: ShareMember, topics: Topics, *, subscription_changed: bool) -> bool:
    """Give the member its part of the target; whether it changed."""
    if member.member_epoch == group.assignment_epoch and not subscription_changed:
        return False
    assigned = _readable(group.target.get(member.member_id, {}), member, topics)
    if member.member_epoch == group.assignment_epoch and assigned == member.assigned:
        return False
    if member.member_epoch != group.assignment_epoch:
        member.previous_member_epoch, member.member_epoch = member.member_epoch, group.assignment_epoch
    member.assigned = assigned
    return True


def _readable(target: Assignment, member: ShareMember, topics: Topics) -> Assignment:
    """Return what of the target is of topics that exist and that the member subscribes to."""
    return {
        topic_id: indexes
        for topic_id, indexes in target.items()
        if (facts := topics.by_id(topic_id)) is not None and facts.name in member.subscribed_topic_names
    }
