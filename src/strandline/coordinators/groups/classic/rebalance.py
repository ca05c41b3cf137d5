"""How a group gets from one generation to the next, and what the group's timers do.

A rebalance has two waits. First every member joins again (`awaiting_join`) until all are there or the rebalance timeout
ends; then the leader, a client, computes the assignment and everybody asks for their part (`awaiting_sync`).
"""

from __future__ import annotations

from strandline.codec.messages.join_group_response import JoinGroupResponse, JoinGroupResponseMember
from strandline.codec.messages.sync_group_response import SyncGroupResponse
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, GroupState
from strandline.coordinators.groups.group_records import group_metadata_record
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import TimerKey, TimerKind
from strandline.coordinators.groups.step_context import StepContext
from strandline.errors import ErrorCode

NOT_JOINED = "did not join again within the rebalance timeout"
NOT_SYNCED = "did not ask for its assignment within the rebalance timeout"


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return TimerKey(TimerKind.SESSION, group.group_id, member_id)


def join_key(group: ClassicGroup) -> TimerKey:
    return TimerKey(TimerKind.JOIN, group.group_id)


def sync_key(group: ClassicGroup) -> TimerKey:
    return TimerKey(TimerKind.SYNC, group.group_id)


def restart_session(group: ClassicGroup, member: ClassicGroupMember, step: StepContext) -> None:
    step.start_timer(session_key(group, member.member_id), member.session_timeout_ms)


def join_response(
    group: ClassicGroup, member_id: str, *, with_members: bool, skip_assignment: bool = False
) -> JoinGroupResponse:
    """Return the JoinGroup response for the present generation. Only a leader gets the members, because it assigns."""
    return JoinGroupResponse(
        generation_id=group.generation_id,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader_id or "",
        skip_assignment=skip_assignment,
        member_id=member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata_of(group.protocol_name),
            )
            for member in group.members.values()
        ]
        if with_members
        else [],
    )


def join_refusal(code: ErrorCode, member_id: str) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=code, member_id=member_id, protocol_name=None)


def answer_waiting(
    group: ClassicGroup, member_id: str, code: ErrorCode, step: StepContext, *, told_id: str = ""
) -> None:
    """End every wait of a member with an error, so that no request is left without an answer."""
    token = group.awaiting_join.pop(member_id, None)
    if token is not None:
        step.reply(token, join_refusal(code, told_id))
    token = group.awaiting_sync.pop(member_id, None)
    if token is not None:
        step.reply(token, SyncGroupResponse(error_code=code))


def remove_member(group: ClassicGroup, member_id: str, step: StepContext, *, why: Happening, reason: str = "") -> None:
    """Remove a member or pending member. A client that still waits has to join again as a new member."""
    member = group.members.get(member_id)
    if member is not None:
        step.note(group, why, member, reason=reason)
    answer_waiting(group, member_id, ErrorCode.UNKNOWN_MEMBER_ID, step)
    step.cancel_timer(session_key(group, member_id))
    group.remove(member_id)


def maybe_prepare_or_complete(group: ClassicGroup, step: StepContext) -> None:
    if group.can_rebalance:
        prepare_rebalance(group, step)
    else:
        maybe_complete_join(group, step)


def prepare_rebalance(group: ClassicGroup, step: StepContext) -> None:
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader's assignment would be for members that are no longer the group's: all must join again.
        for member in group.members.values():
            member.assignment = b""
        propagate_assignment(group, step, error=ErrorCode.REBALANCE_IN_PROGRESS)
    group.pending_sync.clear()
    step.cancel_timer(sync_key(group))

    is_initial = group.state is GroupState.EMPTY
    group.transition_to(GroupState.PREPARING_REBALANCE, now_ms=step.now_ms)
    if is_initial:
        # A group that starts gets time for its members to arrive, so that they share one first generation.
        delay_ms = step.config.initial_rebalance_delay_ms
        group.joined_during_initial_delay = False
        group.initial_delay_ms = delay_ms
        group.initial_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
        step.start_timer(join_key(group), delay_ms)
    elif group.has_all_joined:
        complete_join(group, step)
    else:
        step.start_timer(join_key(group), group.rebalance_timeout_ms)


def maybe_complete_join(group: ClassicGroup, step: StepContext) -> None:
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and not group.is_initial_rebalance  # Its own delay decides.
        and group.has_all_joined
    ):
        complete_join(group, step)


def complete_join(group: ClassicGroup, step: StepContext) -> None:
    """End the wait: remove members that have not joined, and answer the others with the next generation."""
    step.cancel_timer(join_key(group))
    # A static member keeps its seat until its session ends: it may be restarting.
    absent = [
        member.member_id
        for member in group.members.values()
        if member.group_instance_id is None and member.member_id not in group.awaiting_join
    ]
    for member_id in absent:
        remove_member(group, member_id, step, why=Happening.LATE, reason=NOT_JOINED)

    if group.members and not group.elect_joined_leader():
        # Only static members are left and none of them is here. Their sessions end the wait, or one returns.
        step.start_timer(join_key(group), group.rebalance_timeout_ms)
        return

    group.begin_next_generation(now_ms=step.now_ms)
    if group.state is GroupState.EMPTY:
        step.append(group_metadata_record(group))
        step.settle(group)
        return
    for member in group.members.values():
        token = group.awaiting_join.pop(member.member_id, None)
        if token is not None:
            is_leader = member.member_id == group.leader_id
            step.reply(token, join_response(group, member.member_id, with_members=is_leader))
        restart_session(group, member, step)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    step.start_timer(sync_key(group), group.rebalance_timeout_ms)


def propagate_assignment(group: ClassicGroup, step: StepContext, *, error: ErrorCode) -> None:
    failed = error is not ErrorCode.NONE
    for member in group.members.values():
        token = group.awaiting_sync.pop(member.member_id, None)
        if token is None:
            continue
        step.reply(
            token,
            SyncGroupResponse(
                error_code=error,
                protocol_type=None if failed else group.protocol_type,
                protocol_name=None if failed else group.protocol_name,
                assignment=member.assignment,
            ),
        )
        # A session that ended while its member waited for this answer was let pass; the clock starts again now.
        restart_session(group, member, step)


# ---- timers


def on_session_timeout(group: ClassicGroup, member_id: str, step: StepContext) -> None:
    if member_id in group.pending_join:
        group.remove(member_id)
        if group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
            complete_join(group, step)
        return
    member = group.members.get(member_id)
    if member is None:
        return
    waits = member_id in group.awaiting_join or member_id in group.awaiting_sync
    if waits and not member.is_new:
        # Its request is parked with us, so it cannot send heartbeats: waiting is a sign of life.
        return
    remove_member(group, member_id, step, why=Happening.TIMED_OUT, reason=silence(member.session_timeout_ms))
    if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
        prepare_rebalance(group, step)
    elif group.state is GroupState.PREPARING_REBALANCE and group.has_all_joined:
        complete_join(group, step)


def silence(session_timeout_ms: int) -> str:
    return f"no heartbeat for its session, {session_timeout_ms} ms"


def on_join_timeout(group: ClassicGroup, step: StepContext) -> None:
    if group.state is not GroupState.PREPARING_REBALANCE:
        return
    if group.is_initial_rebalance and group.joined_during_initial_delay and group.initial_remaining_ms:
        # A member joined during the delay, so more may follow: wait again, within the rebalance timeout.
        delay_ms = min(step.config.initial_rebalance_delay_ms, group.initial_remaining_ms)
        group.joined_during_initial_delay = False
        group.initial_remaining_ms = max(group.initial_remaining_ms - group.initial_delay_ms, 0)
        group.initial_delay_ms = delay_ms
        step.start_timer(join_key(group), delay_ms)
    else:
        complete_join(group, step)


def on_sync_timeout(group: ClassicGroup, step: StepContext) -> None:
    if group.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE) or not group.pending_sync:
        return
    for member_id in list(group.pending_sync):
        remove_member(group, member_id, step, why=Happening.LATE, reason=NOT_SYNCED)
    prepare_rebalance(group, step)
