"""JoinGroup of a member that speaks the classic protocol to a consumer group; see `consumer_classic_members`.

Narrower than Kafka: a member that is unknown and claims to own partitions is refused. It was fenced and has not
noticed; let in, it would read on until it asks for its assignment, beside the new owner.

A classic member that replaces a consumer which has not left moves the group to a new epoch. A consumer keeps its member
id while its process runs. If it came back in the epoch in which it was replaced, its earlier commits would be accepted
and move positions back. A consumer that has left sends no more commits. Then the epoch stays, and a static member that
restarts with the other protocol causes no rebalance.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from strandline.codec.messages.consumer_group_heartbeat_request import TopicPartitions
from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.join_group_request import JoinGroupRequest
from strandline.codec.messages.join_group_response import JoinGroupResponse
from strandline.coordinators.groups import migration
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic import join as classic_join
from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.classic.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from strandline.coordinators.groups.consumer.classic_members import join_key, known_member, sync_key
from strandline.coordinators.groups.consumer.consumer_group import (
    STATIC_LEAVE_EPOCH,
    ClassicMember,
    ConsumerGroup,
    ConsumerMember,
)
from strandline.coordinators.groups.consumer.fencing import restart_session
from strandline.coordinators.groups.consumer.reconciliation import reconcile
from strandline.coordinators.groups.consumer.records import current_record, member_record
from strandline.coordinators.groups.consumer.static_members import own_from_now, replace_static_member
from strandline.coordinators.groups.consumer.target_assignment import maybe_assign, move_epoch
from strandline.coordinators.groups.events import JoinGroup
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics
from strandline.errors import ErrorCode, MalformedMessage, RequestError

if TYPE_CHECKING:
    from random import Random


def join(
    groups: MutableMapping[str, Group], group: ConsumerGroup, event: JoinGroup, step: StepContext, random: Random
) -> None:
    """Answered at once, unless it makes the group classic: there the JoinGroup may wait for the next generation."""
    try:
        subscription = joining_subscription(group, event.request, step)
    except RequestError as refused:
        classic_join.refuse(event, refused.code, step, member_id=classic_join.UNKNOWN_MEMBER_ID)
        return
    if classic_join.must_come_with_id(event):
        # Nothing is kept of the id. A consumer group takes any, and who comes with an unknown one is new.
        new_id = classic_join.new_member_id(event, random)
        classic_join.refuse(event, ErrorCode.MEMBER_ID_REQUIRED, step, member_id=new_id)
        return
    records: list[CoordinatorRecord] = []
    expels = expels_consumer(group, event.request)
    member = seat(group, event, records, step, random, expels=expels)
    proceed(group, member, event, subscription, records, step, expels=expels)
    classic = migration.downgrade(group, step)
    if classic is not None:
        groups[group.group_id] = classic
        go_on_in_classic(group, classic, member, event, step)
        return
    step.settle(group)
    if member.is_to_join:
        member.is_to_join = False
        step.cancel_timer(join_key(group, member))
    restart_session(group, member, step)
    step.start_timer(sync_key(group, member), member.rebalance_timeout_ms)
    step.reply(event.token, joined(member))


def joining_subscription(
    group: ConsumerGroup, request: JoinGroupRequest, step: StepContext
) -> ConsumerProtocolSubscription:
    """Return subscription and owned partitions of the member. Raise RequestError if it may not join."""
    member = group.members.get(request.member_id)
    has_seat = request.group_instance_id is not None and request.group_instance_id in group.static_members
    if member is None and not has_seat and len(group.members) >= step.config.consumer_group_size_max:
        raise RequestError(ErrorCode.GROUP_MAX_SIZE_REACHED, "The group is full.")
    if not is_supported(group, request):
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "No protocol that all members support.")
    try:
        # All protocols of a member come with the same subscription.
        subscription = decode_subscription(request.protocols[0].metadata)
    except MalformedMessage as malformed:
        raise RequestError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, str(malformed)) from None
    if request.member_id != classic_join.UNKNOWN_MEMBER_ID:
        if request.group_instance_id is not None:
            known_member(group, request.member_id, request.group_instance_id)
        elif member is None and any(owned.partitions for owned in subscription.owned_partitions):
            raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, "The member was fenced and still owns partitions.")
    return subscription


def is_supported(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Return whether all classic members, with this one, support one protocol, if the group became classic."""
    if request.protocol_type != PROTOCOL_TYPE or not request.protocols:
        return False
    seated = None if request.group_instance_id is None else group.static_members.get(request.group_instance_id)
    others = [each for each in group.classic_members() if each.member_id not in (request.member_id, seated)]
    if not others:
        return True
    common = migration.common_protocols(others)
    return any(protocol.name in common for protocol in request.protocols)


def expels_consumer(group: ConsumerGroup, request: JoinGroupRequest) -> bool:
    """Return whether the seat is that of a member of the consumer protocol, which may be alive and not know of it."""
    seated = None if request.group_instance_id is None else group.static_member(request.group_instance_id)
    return (
        seated is not None
        and seated.member_id != request.member_id
        and seated.classic is None
        and seated.member_epoch != STATIC_LEAVE_EPOCH
    )


def seat(
    group: ConsumerGroup,
    event: JoinGroup,
    records: list[CoordinatorRecord],
    step: StepContext,
    random: Random,
    *,
    expels: bool,
) -> ConsumerMember:
    """Return the joining member: a known one, the successor of a static one, or a new one."""
    request = event.request
    member_id = request.member_id or classic_join.new_member_id(event, random)
    seated = None if request.group_instance_id is None else group.static_member(request.group_instance_id)
    if seated is not None and seated.member_id != member_id:
        # Two processes with one instance id: the later one wins, as the classic protocol has it.
        reason = "its predecessor spoke the consumer protocol and has not left" if expels else ""
        step.note(group, Happening.RETURNED, seated, reason=reason, opens=expels)
        return replace_static_member(group, seated, member_id, records, step)
    member = group.members.get(member_id)
    if member is None:
        member = ConsumerMember(
            member_id, request.group_instance_id, client_id=event.client_id, client_host=event.client_host
        )
        step.note(group, Happening.JOINED, member, reason=request.reason or "")
        group.add(member)
    return member


def proceed(
    group: ConsumerGroup,
    member: ConsumerMember,
    event: JoinGroup,
    subscription: ConsumerProtocolSubscription,
    records: list[CoordinatorRecord],
    step: StepContext,
    *,
    expels: bool,
) -> None:
    """Take over what the member says of itself, move the group on if that changes it, and the member towards it."""
    has_changed, subscription_changed = take_over(group, member, event, subscription, step)
    if has_changed:
        records.append(member_record(group.group_id, member))
    if expels:
        # The target need not wait for its time: the member must not be let in with the epoch before.
        group.assignment_timestamp_ms = 0
    must_move = expels or subscription_changed
    if must_move or group.metadata_may_have_changed:
        records += move_epoch(group, step, must_move=must_move)
    records += maybe_assign(group, step)
    if expels:
        own_from_now(group, member)
    owned = owned_partitions(subscription, step.topics)
    has_moved = reconcile(group, member, step.topics, owned=owned, subscription_changed=subscription_changed)
    if has_moved or expels:
        records.append(current_record(group.group_id, member))
    if records:
        step.append(*records)


def take_over(
    group: ConsumerGroup,
    member: ConsumerMember,
    event: JoinGroup,
    subscription: ConsumerProtocolSubscription,
    step: StepContext,
) -> tuple[bool, bool]:
    """Did anything change of what is recorded of the member, and did what it reads?"""
    request = event.request
    names = frozenset(subscription.topics)
    subscription_changed = names != member.subscribed_topic_names or bool(member.subscribed_topic_regex)
    before = recorded(member)
    if subscription_changed:
        if member.classic is not None:
            step.note(group, Happening.SUBSCRIBED, member)
        group.subscribe(member, names, "")
    member.client_id = event.client_id
    member.client_host = event.client_host
    member.rack_id = subscription.rack_id or member.rack_id
    member.rebalance_timeout_ms = classic_join.rebalance_timeout_of(request)
    member.server_assignor = None
    member.classic = ClassicMember(request.session_timeout_ms, classic_join.protocols_of(request.protocols))
    if request.group_instance_id is not None and request.group_instance_id != member.instance_id:
        group.set_instance_id(member, request.group_instance_id)
    return subscription_changed or recorded(member) != before, subscription_changed


def recorded(member: ConsumerMember) -> tuple[object, ...]:
    return (
        member.client_id,
        member.client_host,
        member.rack_id,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.classic,
        member.instance_id,
    )


def owned_partitions(subscription: ConsumerProtocolSubscription, topics: Topics) -> list[TopicPartitions]:
    """Return the owned partitions by topic id, without those of deleted topics."""
    return [
        TopicPartitions(topic_id=facts.id, partitions=owned.partitions)
        for owned in subscription.owned_partitions
        if (facts := topics.named(owned.topic)) is not None
    ]


def joined(member: ConsumerMember) -> JoinGroupResponse:
    """Return the response without leader and members, because the coordinator assigns."""
    assert member.classic is not None
    return JoinGroupResponse(
        generation_id=member.member_epoch,
        protocol_type=PROTOCOL_TYPE,
        protocol_name=member.classic.protocols[0].name,
        member_id=member.member_id,
    )


def go_on_in_classic(
    group: ConsumerGroup, classic: ClassicGroup, member: ConsumerMember, event: JoinGroup, step: StepContext
) -> None:
    """Continue as a classic group, because this member replaced the last one of the consumer protocol."""
    step.note(group, Happening.CONVERTED, reason="only members of the classic protocol are left")
    seated = classic.members[member.member_id]
    if migration.is_agreed(group):
        classic.awaiting_join[member.member_id] = event.token
        classic_join.keep_generation(classic, event, seated, step, old_leader=None)
        step.settle(classic)
    else:
        classic_join.join_again(classic, seated, event, step)
