"""SyncGroup, Heartbeat and LeaveGroup: the life of a member between two joins."""

from __future__ import annotations

from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.classic.rebalance import (
    maybe_complete_join,
    prepare_rebalance,
    propagate_assignment,
    remove_member,
    restart_session,
    sync_key,
)
from strandline.coordinators.groups.events import Heartbeat, LeaveGroup, SyncGroup
from strandline.coordinators.groups.group_records import group_metadata_record
from strandline.coordinators.groups.history.assignment_diff import MemberRef
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.step_context import StepContext
from strandline.errors import ErrorCode


def sync(group: ClassicGroup | None, event: SyncGroup, step: StepContext) -> None:
    request = event.request
    code = sync_error(group, request)
    if group is None or code is not ErrorCode.NONE:
        if group is not None and code is ErrorCode.FENCED_INSTANCE_ID:
            step.note_fenced(group, MemberRef(request.member_id, request.group_instance_id))
        step.reply(event.token, SyncGroupResponse(error_code=code))
        return
    # A client that repeats its SyncGroup has given up on the first one.
    waiting = group.awaiting_sync.pop(request.member_id, None)
    if waiting is not None:
        step.reply(waiting, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
    group.awaiting_sync[request.member_id] = event.token
    group.pending_sync.pop(request.member_id, None)
    if not group.pending_sync:
        step.cancel_timer(sync_key(group))
    if group.state is GroupState.COMPLETING_REBALANCE and request.member_id == group.leader_id:
        assign(group, request, step)
    if group.state is GroupState.STABLE:
        propagate_assignment(group, step, error=ErrorCode.NONE)


def sync_error(group: ClassicGroup | None, request: SyncGroupRequest) -> ErrorCode:
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if group is None or group.state is GroupState.EMPTY:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.member_error(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if request.generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if None not in (request.protocol_name, group.protocol_name) and request.protocol_name != group.protocol_name:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if group.state is GroupState.PREPARING_REBALANCE:
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def assign(group: ClassicGroup, request: SyncGroupRequest, step: StepContext) -> None:
    """Store the leader's assignment. A member that it left out gets an empty one; unknown members are ignored."""
    assignments = {assignment.member_id: assignment.assignment for assignment in request.assignments}
    for member in group.members.values():
        member.assignment = assignments.get(member.member_id, b"")
    group.transition_to(GroupState.STABLE, now_ms=step.now_ms)
    record = group_metadata_record(group)
    if record.size_bytes > step.config.group_record_bytes_max:
        refuse_assignment(group, step)
        return
    # Before the answers: a member must not work on partitions by an assignment that a crash could take back.
    step.append(record)
    step.settle(group)


def refuse_assignment(group: ClassicGroup, step: StepContext) -> None:
    """What the members say of themselves is too much to be kept. It fails again until they say less, as in Kafka."""
    for member in group.members.values():
        member.assignment = b""
    propagate_assignment(group, step, error=ErrorCode.UNKNOWN_SERVER_ERROR)
    prepare_rebalance(group, step)


def heartbeat(group: ClassicGroup | None, event: Heartbeat, step: StepContext) -> None:
    request = event.request
    if not request.group_id:
        code = ErrorCode.INVALID_GROUP_ID
    elif group is None:
        code = ErrorCode.UNKNOWN_MEMBER_ID
    else:
        code = group.member_error(request.member_id, request.group_instance_id)
        if code is ErrorCode.NONE and request.generation_id != group.generation_id:
            code = ErrorCode.ILLEGAL_GENERATION
        if code is ErrorCode.NONE:
            restart_session(group, group.members[request.member_id], step)
            if group.state is GroupState.PREPARING_REBALANCE:
                code = ErrorCode.REBALANCE_IN_PROGRESS
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            step.note_fenced(group, MemberRef(request.member_id, request.group_instance_id))
    step.reply(event.token, HeartbeatResponse(error_code=code))


def leave(group: ClassicGroup | None, event: LeaveGroup, step: StepContext) -> None:
    request: LeaveGroupRequest = event.request
    if not request.group_id:
        step.reply(event.token, LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    members_before = 0 if group is None else len(group.members)
    responses = [
        MemberResponse(
            member_id=identity.member_id,
            group_instance_id=identity.group_instance_id,
            error_code=ErrorCode.UNKNOWN_MEMBER_ID if group is None else leave_one(group, identity, step),
        )
        for identity in request.members
    ]
    if group is not None:
        if group.state is GroupState.PREPARING_REBALANCE:
            maybe_complete_join(group, step)
        elif len(group.members) < members_before:
            prepare_rebalance(group, step)
    step.reply(event.token, LeaveGroupResponse(members=responses))


def leave_one(group: ClassicGroup, identity: MemberIdentity, step: StepContext) -> ErrorCode:
    if identity.member_id == "":
        # An administrator removes a static member by its instance id alone.
        member_id = group.static_members.get(identity.group_instance_id or "")
        if identity.group_instance_id is None or member_id is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        remove_member(group, member_id, step, why=Happening.REMOVED, reason=identity.reason or "")
        return ErrorCode.NONE
    if identity.member_id in group.pending_join:
        remove_member(group, identity.member_id, step, why=Happening.LEFT, reason=identity.reason or "")
        return ErrorCode.NONE
    code = group.member_error(identity.member_id, identity.group_instance_id)
    if code is ErrorCode.NONE:
        remove_member(group, identity.member_id, step, why=Happening.LEFT, reason=identity.reason or "")
    return code
