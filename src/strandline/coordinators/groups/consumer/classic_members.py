"""Members of a consumer group that speak the classic protocol: SyncGroup, Heartbeat, LeaveGroup, and JoinGroup in
`consumer_classic_join`.

The group computes the assignment itself, so none of these members leads, and no JoinGroup waits for the others:

    Heartbeat   -> REBALANCE_IN_PROGRESS when the member has to give up or can be given partitions
    JoinGroup   its subscription says what it still owns; the member walks towards the target as any other
                -> generation = the member's epoch, at once
    SyncGroup   -> what is assigned to it in this epoch

One that rebalances eagerly gives up everything before it joins and so arrives in one round; a cooperative one comes
once to hear what it has to give up, and again when it has done so. It is given the rebalance timeout to come when it
was told to, and again to ask for its assignment.
"""

from __future__ import annotations

from collections.abc import MutableMapping

from strandline.codec.messages.heartbeat_response import HeartbeatResponse
from strandline.codec.messages.leave_group_request import MemberIdentity
from strandline.codec.messages.leave_group_response import LeaveGroupResponse, MemberResponse
from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups import migration
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.consumer_protocol import PROTOCOL_TYPE
from strandline.coordinators.groups.classic.join import UNKNOWN_MEMBER_ID
from strandline.coordinators.groups.consumer.consumer_group import (
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
)
from strandline.coordinators.groups.consumer.fencing import remove_members, restart_session
from strandline.coordinators.groups.consumer.target_assignment import is_due, move_epoch
from strandline.coordinators.groups.events import Heartbeat, LeaveGroup, SyncGroup
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import TimerKey, TimerKind
from strandline.coordinators.groups.step_context import StepContext
from strandline.errors import ErrorCode, RequestError

# ---- SyncGroup and Heartbeat


def sync(group: ConsumerGroup, event: SyncGroup, step: StepContext) -> None:
    request = event.request
    try:
        member = speaking_member(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None
        check_protocol(member.classic, request)
        if is_outdated(group, member, step) and member.state is not MemberState.UNREVOKED_PARTITIONS:
            # It would have to come again at once. But one that has to give up partitions hears of it here.
            expect_join(group, member, step)
            raise RequestError(ErrorCode.REBALANCE_IN_PROGRESS, "The group rebalances again.")
    except RequestError as refused:
        step.reply(event.token, SyncGroupResponse(error_code=refused.code))
        return
    step.cancel_timer(sync_key(group, member))
    restart_session(group, member, step)
    step.reply(
        event.token,
        SyncGroupResponse(
            protocol_type=request.protocol_type,
            protocol_name=request.protocol_name,
            assignment=migration.assignment_of(member.assigned, step.topics, member.classic.protocols[0].metadata),
        ),
    )


def check_protocol(classic: ClassicMember, request: SyncGroupRequest) -> None:
    if request.protocol_type not in (None, PROTOCOL_TYPE) or request.protocol_name not in (
        None,
        classic.protocols[0].name,
    ):
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "Not the protocol that the JoinGroup was told.")


def heartbeat(group: ConsumerGroup, event: Heartbeat, step: StepContext) -> None:
    request = event.request
    code = ErrorCode.NONE
    try:
        member = speaking_member(group, request.member_id, request.group_instance_id, request.generation_id)
        assert member.classic is not None
        restart_session(group, member, step)
        if group.metadata_may_have_changed and (moved := move_epoch(group, step, must_move=False)):
            # Members of the consumer protocol look at the topics too, but there may be none.
            step.append(*moved)
        if must_join(group, member, step):
            expect_join(group, member, step)
            code = ErrorCode.REBALANCE_IN_PROGRESS
    except RequestError as refused:
        code = refused.code
    step.reply(event.token, HeartbeatResponse(error_code=code))


def speaking_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation_id: int
) -> ConsumerMember:
    """Raises RequestError unless it is a classic member that speaks, in its present epoch."""
    member = known_member(group, member_id, instance_id)
    if member.classic is None or not member.classic.protocols:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "The member does not use the classic protocol.")
    if generation_id != member.member_epoch:
        raise RequestError(ErrorCode.ILLEGAL_GENERATION, f"The member is in epoch {member.member_epoch}.")
    return member


def known_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    member = group.members.get(member_id) if instance_id is None else group.static_member(instance_id)
    if member is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "There is no such member.")
    if member.member_id != member_id:
        raise RequestError(ErrorCode.FENCED_INSTANCE_ID, f"The instance id belongs to {member.member_id}.")
    return member


def must_join(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> bool:
    return (
        is_outdated(group, member, step)
        or member.state is MemberState.UNREVOKED_PARTITIONS
        or (member.state is MemberState.UNRELEASED_PARTITIONS and not waits_for_others(group, member))
    )


def is_outdated(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> bool:
    """Return whether there is a newer target than the member's, or its JoinGroup would make one.

    While the next target has to wait for its time, a JoinGroup brings nothing, and each would be followed by another.
    """
    return member.member_epoch < group.assignment_epoch or is_due(group, step)


def waits_for_others(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether it lacks a partition that another has not given up."""
    return any(
        partition not in member.assigned.get(topic_id, {})
        and group.owner(topic_id, partition) not in (None, member.member_id)
        for topic_id, partitions in group.target.get(member.member_id, {}).items()
        for partition in partitions
    )


def expect_join(group: ConsumerGroup, member: ConsumerMember, step: StepContext) -> None:
    """Start the rebalance timeout when the member is first asked to join, not again with each reminder."""
    if not member.is_to_join:
        member.is_to_join = True
        step.start_timer(join_key(group, member), member.rebalance_timeout_ms)


def join_key(group: ConsumerGroup, member: ConsumerMember) -> TimerKey:
    return TimerKey(TimerKind.JOIN, group.group_id, member.member_id)


def sync_key(group: ConsumerGroup, member: ConsumerMember) -> TimerKey:
    return TimerKey(TimerKind.SYNC, group.group_id, member.member_id)


# ---- LeaveGroup


def leave(groups: MutableMapping[str, Group], group: ConsumerGroup, event: LeaveGroup, step: StepContext) -> None:
    """Members of the consumer protocol too: an administrator removes whom it names."""
    leaving: dict[str, ConsumerMember] = {}
    response = LeaveGroupResponse()
    for identity in event.request.members:
        code = ErrorCode.NONE
        try:
            member = leaving_member(group, identity)
            if member.member_id not in leaving:
                why = Happening.LEFT if identity.member_id else Happening.REMOVED
                step.note(group, why, member, reason=identity.reason or "")
                leaving[member.member_id] = member
        except RequestError as refused:
            code = refused.code
        response.members.append(
            MemberResponse(member_id=identity.member_id, group_instance_id=identity.group_instance_id, error_code=code)
        )
    if leaving:
        remove_members(groups, group, list(leaving.values()), step)
    step.reply(event.token, response)


def leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.member_id == UNKNOWN_MEMBER_ID and identity.group_instance_id is not None:
        # By its instance id alone an administrator removes a static member.
        seated = group.static_member(identity.group_instance_id)
        if seated is None:
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "There is no such member.")
        return seated
    return known_member(group, identity.member_id, identity.group_instance_id)
