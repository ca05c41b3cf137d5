"""JoinGroup: who may enter, under which id, and whether the group has to rebalance for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, ClassicGroupMember, GroupState, Protocol
from strandline.coordinators.groups.classic.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from strandline.coordinators.groups.classic.rebalance import (
    answer_waiting,
    join_refusal,
    join_response,
    maybe_complete_join,
    maybe_prepare_or_complete,
    prepare_rebalance,
    remove_member,
    restart_session,
    session_key,
)
from strandline.coordinators.groups.events import JoinGroup
from strandline.coordinators.groups.group_records import group_metadata_record
from strandline.coordinators.groups.history.assignment_diff import MemberRef, ref_of
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.step_context import StepContext
from strandline.errors import ErrorCode, MalformedMessage

if TYPE_CHECKING:
    from random import Random

UNKNOWN_MEMBER_ID = ""
MEMBER_ID_REQUIRED_FROM_VERSION = 4
SKIP_ASSIGNMENT_FROM_VERSION = 9

COMPARED_BYTES_MAX = 65_536
"""Of a subscription; whether a longer one names other topics than before is not looked at."""


def request_error(request: JoinGroupRequest, step: StepContext) -> ErrorCode:
    """Return what is wrong with the request, regardless of the group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not step.config.min_session_timeout_ms <= request.session_timeout_ms <= step.config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def refuse(event: JoinGroup, code: ErrorCode, step: StepContext, *, member_id: str | None = None) -> None:
    told_id = event.request.member_id if member_id is None else member_id
    step.reply(event.token, join_refusal(code, told_id))


def join(group: ClassicGroup, event: JoinGroup, step: StepContext, random: Random, *, may_hand_out_id: bool) -> None:
    member_id = event.request.member_id
    if not has_room_for(group, member_id, step):
        if member_id in group.members or member_id in group.pending_join:
            remove_member(group, member_id, step, why=Happening.REMOVED, reason="the group is full")
        refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED, step, member_id=UNKNOWN_MEMBER_ID)
        maybe_complete_join(group, step)
    elif not group.supports(event.request.protocol_type, protocols_of(event.request.protocols)):
        refuse(event, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, step)
    elif member_id == UNKNOWN_MEMBER_ID:
        join_as_new(group, event, step, random, may_hand_out_id=may_hand_out_id)
    else:
        join_as_known(group, event, step)


def has_room_for(group: ClassicGroup, member_id: str, step: StepContext) -> bool:
    size_max = step.config.group_size_max
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            # Those who wait are counted, not the members: the limit may have been lowered since they joined, and the
            # last to join again are then the ones that have to go.
            return member_id in group.awaiting_join or len(group.awaiting_join) < size_max
        case GroupState.COMPLETING_REBALANCE | GroupState.STABLE:
            return member_id in group.members or len(group.members) < size_max
        case _:
            return True


def join_as_new(
    group: ClassicGroup, event: JoinGroup, step: StepContext, random: Random, *, may_hand_out_id: bool
) -> None:
    instance_id = event.request.group_instance_id
    new_id = new_member_id(event, random)
    if instance_id is not None and instance_id in group.static_members:
        replace_static_member(group, event, new_id, step)
    elif must_come_with_id(event):
        if not may_hand_out_id:
            refuse(event, ErrorCode.GROUP_MAX_SIZE_REACHED, step)
            return
        # The client must come back with this id. So a JoinGroup whose answer is lost leaves no ghost member behind.
        group.pending_join[new_id] = None
        step.start_timer(session_key(group, new_id), event.request.session_timeout_ms)
        refuse(event, ErrorCode.MEMBER_ID_REQUIRED, step, member_id=new_id)
    else:
        add_member(group, event, new_id, step)


def new_member_id(event: JoinGroup, random: Random) -> str:
    instance_id = event.request.group_instance_id
    return f"{event.client_id if instance_id is None else instance_id}-{UUID(int=random.getrandbits(128), version=4)}"


def must_come_with_id(event: JoinGroup) -> bool:
    request = event.request
    return (
        request.member_id == UNKNOWN_MEMBER_ID
        and request.group_instance_id is None
        and event.api_version >= MEMBER_ID_REQUIRED_FROM_VERSION
    )


def join_as_known(group: ClassicGroup, event: JoinGroup, step: StepContext) -> None:
    request = event.request
    if request.member_id in group.pending_join:
        if request.group_instance_id is not None:
            # Only dynamic members are handed a pending id, so no sound client can say this. Kafka's answer too.
            refuse(event, ErrorCode.UNKNOWN_SERVER_ERROR, step, member_id=UNKNOWN_MEMBER_ID)
        else:
            add_member(group, event, request.member_id, step)
        return
    code = group.member_error(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        if code is ErrorCode.FENCED_INSTANCE_ID:
            step.note_fenced(
                group, MemberRef(request.member_id, request.group_instance_id, event.client_id, event.client_host)
            )
        refuse(event, code, step)
        return
    member = group.members[request.member_id]
    is_leader = member.member_id == group.leader_id
    unchanged = member.protocols == protocols_of(request.protocols)
    match group.state:
        case GroupState.PREPARING_REBALANCE:
            join_again(group, member, event, step)
        case GroupState.COMPLETING_REBALANCE if unchanged:
            # The member may have missed the answer to its first JoinGroup; the generation is still the same.
            step.reply(event.token, join_response(group, member.member_id, with_members=is_leader))
        case GroupState.STABLE if unchanged and not is_leader:
            step.reply(event.token, join_response(group, member.member_id, with_members=False))
        case _:
            # A leader joins a stable group again when it has seen something that only it watches, such as new
            # partitions, so its JoinGroup rebalances although its metadata is the same.
            join_again(group, member, event, step)


def add_member(group: ClassicGroup, event: JoinGroup, member_id: str, step: StepContext) -> None:
    request = event.request
    member = ClassicGroupMember(
        member_id=member_id,
        group_instance_id=request.group_instance_id,
        client_id=event.client_id,
        client_host=event.client_host,
        rebalance_timeout_ms=rebalance_timeout_of(request),
        session_timeout_ms=request.session_timeout_ms,
        protocols=protocols_of(request.protocols),
        is_new=True,
    )
    if group.is_initial_rebalance:
        group.joined_during_initial_delay = True
    step.note(group, Happening.JOINED, member, reason=request.reason or "")
    group.add(member, request.protocol_type)
    group.awaiting_join[member_id] = event.token
    step.start_timer(session_key(group, member_id), step.config.new_member_join_timeout_ms)
    maybe_prepare_or_complete(group, step)


def join_again(group: ClassicGroup, member: ClassicGroupMember, event: JoinGroup, step: StepContext) -> None:
    if subscribes_to_others(member, event.request):
        step.note(group, Happening.SUBSCRIBED, member, reason=event.request.reason or "")
    elif group.state is not GroupState.PREPARING_REBALANCE:
        # During a rebalance all members join again. Here this member starts the rebalance.
        leads = "its leader" if member.member_id == group.leader_id else ""
        step.note(group, Happening.ASKED, member, reason=event.request.reason or leads)
    update_and_wait(group, member, event, step)
    maybe_prepare_or_complete(group, step)


def update_and_wait(group: ClassicGroup, member: ClassicGroupMember, event: JoinGroup, step: StepContext) -> None:
    # A client that repeats its JoinGroup has given up on the first one, whose wait must still end somehow.
    answer_waiting(group, member.member_id, ErrorCode.REBALANCE_IN_PROGRESS, step, told_id=member.member_id)
    group.update(
        member,
        protocols_of(event.request.protocols),
        rebalance_timeout_ms=rebalance_timeout_of(event.request),
        session_timeout_ms=event.request.session_timeout_ms,
    )
    group.awaiting_join[member.member_id] = event.token


def replace_static_member(group: ClassicGroup, event: JoinGroup, new_id: str, step: StepContext) -> None:
    assert event.request.group_instance_id is not None
    old_id = group.static_members[event.request.group_instance_id]
    old_leader = group.leader_id
    # Two processes with one instance id: the later one wins, and the earlier one hears it at once if it waits.
    if old_id in group.awaiting_join or old_id in group.awaiting_sync:
        step.note_fenced(group, ref_of(group.members[old_id]))
    answer_waiting(group, old_id, ErrorCode.FENCED_INSTANCE_ID, step, told_id=old_id)
    step.cancel_timer(session_key(group, old_id))
    member = group.replace_static(old_id, new_id)
    step.note(group, Happening.RETURNED, member, reason=event.request.reason or "", opens=False)
    update_and_wait(group, member, event, step)
    restart_session(group, member, step)
    if group.state is GroupState.STABLE:
        if group.select_protocol() != group.protocol_name:
            step.note(group, Happening.ASKED, member, reason="the protocol that all support is another one now")
            prepare_rebalance(group, step)
        elif group_metadata_record(group).size_bytes > step.config.group_record_bytes_max:
            # With its assignment it is told that it says too much.
            prepare_rebalance(group, step)
        else:
            keep_generation(group, event, member, step, old_leader=old_leader)
    elif group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already be computing an assignment for the old member id, which no longer exists.
        prepare_rebalance(group, step)
    else:
        maybe_complete_join(group, step)


def keep_generation(
    group: ClassicGroup, event: JoinGroup, member: ClassicGroupMember, step: StepContext, *, old_leader: str | None
) -> None:
    """Take back a static member within its session, without a rebalance."""
    del group.awaiting_join[member.member_id]
    step.append(group_metadata_record(group))
    if event.api_version >= SKIP_ASSIGNMENT_FROM_VERSION:
        is_leader = member.member_id == group.leader_id
        response = join_response(group, member.member_id, with_members=is_leader, skip_assignment=is_leader)
    else:
        # An older client would assign again if it learned that it leads, and a stable group ignores that. So it gets
        # the leader's former id: it then acts as a follower and asks for the assignment that it had.
        response = join_response(group, member.member_id, with_members=False)
        response.leader = old_leader or ""
    step.reply(event.token, response)


def subscribes_to_others(member: ClassicGroupMember, request: JoinGroupRequest) -> bool:
    """Return whether the member wants other topics than before. What it owns, which it says too, is left aside."""
    offered = protocols_of(request.protocols)
    if member.protocols == offered or request.protocol_type != PROTOCOL_TYPE:
        return False
    before = next((protocol.metadata for protocol in member.protocols), b"")
    after = next((protocol.metadata for protocol in offered), b"")
    if max(len(before), len(after)) > COMPARED_BYTES_MAX:
        return False
    try:
        return set(decode_subscription(before).topics) != set(decode_subscription(after).topics)
    except MalformedMessage:
        return False


def rebalance_timeout_of(request: JoinGroupRequest) -> int:
    # Version 0 has no rebalance timeout; the session timeout was for both.
    return request.session_timeout_ms if request.rebalance_timeout_ms < 0 else request.rebalance_timeout_ms


def protocols_of(protocols: Sequence[JoinGroupRequestProtocol]) -> tuple[Protocol, ...]:
    """Return the protocols in the member's order of preference, each name once."""
    first: dict[str, bytes] = {}
    for protocol in protocols:
        first.setdefault(protocol.name, protocol.metadata)
    return tuple(Protocol(name, metadata) for name, metadata in first.items())
