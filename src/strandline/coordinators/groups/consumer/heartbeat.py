"""ConsumerGroupHeartbeat: the one request by which a member of the consumer protocol joins, lives, changes and leaves.

Everything that can be refused is refused before anything is changed, by raising; so a refusal leaves no trace.
"""

from __future__ import annotations

import base64
from collections.abc import MutableMapping
from typing import TYPE_CHECKING

from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.consumer_group_heartbeat_response import (
    Assignment,
    ConsumerGroupHeartbeatResponse,
    TopicPartitions,
)
from strandline.coordinators.groups import migration
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.consumer.checks import (
    check_epoch,
    check_is_known,
    check_request,
    check_room,
    check_static_seat,
    not_a_consumer_group,
    not_found,
)
from strandline.coordinators.groups.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from strandline.coordinators.groups.consumer.fencing import rebalance_key, remove_member, restart_session
from strandline.coordinators.groups.consumer.reconciliation import reconcile
from strandline.coordinators.groups.consumer.records import consumer_group_records, current_record, member_record
from strandline.coordinators.groups.consumer.static_members import keep_seat, replace_static_member
from strandline.coordinators.groups.consumer.target_assignment import maybe_assign, move_epoch
from strandline.coordinators.groups.events import ConsumerHeartbeat
from strandline.coordinators.groups.group_records import group_tombstone
from strandline.coordinators.groups.history.assignment_diff import MemberRef
from strandline.coordinators.groups.history.group_history import Happening
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.share.share_group import ShareGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.errors import ErrorCode, RequestError

if TYPE_CHECKING:
    from random import Random


def heartbeat(groups: MutableMapping[str, Group], event: ConsumerHeartbeat, step: StepContext, random: Random) -> None:
    request = event.request
    try:
        check_request(request, event.api_version, step.config)
        if request.member_epoch in (LEAVE_EPOCH, STATIC_LEAVE_EPOCH):
            response = leave(groups, request, step)
        elif request.member_epoch == JOIN_EPOCH:
            response = join(groups, event, step, random)
        else:
            response = live_on(groups, event, step)
    except RequestError as refused:
        if refused.code in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNRELEASED_INSTANCE_ID):
            who = MemberRef(request.member_id, request.instance_id, event.client_id, event.client_host)
            step.note_fenced(consumer_group(groups, request), who)
        response = ConsumerGroupHeartbeatResponse(error_code=refused.code, error_message=str(refused) or None)
    step.reply(event.token, response)


# ---- joining


def join(
    groups: MutableMapping[str, Group], event: ConsumerHeartbeat, step: StepContext, random: Random
) -> ConsumerGroupHeartbeatResponse:
    request = event.request
    records: list[CoordinatorRecord] = []
    found = groups.get(request.group_id)
    group = joinable_group(found, request.group_id, records, step)
    # A client makes its own id from version 1 on; so a join that is repeated because its answer was lost is the same.
    member_id = request.member_id or new_member_id(random)
    member = group.members.get(member_id)
    seated = None if request.instance_id is None else group.static_member(request.instance_id)
    if seated is not None and (seated is not member or member.member_epoch == STATIC_LEAVE_EPOCH):
        check_static_seat(seated, request)
    else:
        # A member that was fenced comes again under its own id, with nothing, and is let go on from where it is.
        seated = None
        check_room(group, member_id, step.config)
    # From here on nothing can be refused any more.
    groups[request.group_id] = group
    if isinstance(found, ClassicGroup):
        if found.members:
            step.note(found, Happening.CONVERTED, reason="a member of the consumer protocol joins")
        migration.release(found, step)
    if seated is not None:
        step.note(group, Happening.RETURNED, seated, opens=False)
        member = replace_static_member(group, seated, member_id, records, step)
    elif member is None:
        member = ConsumerMember(
            member_id, request.instance_id, client_id=event.client_id, client_host=event.client_host
        )
        step.note(group, Happening.JOINED, member)
        group.add(member)
    return proceed(group, member, event, records, step)


def joinable_group(
    found: Group | None, group_id: str, records: list[CoordinatorRecord], step: StepContext
) -> ConsumerGroup:
    if isinstance(found, ConsumerGroup):
        return found
    if found is None:
        return ConsumerGroup(group_id)
    if isinstance(found, ShareGroup):
        raise not_a_consumer_group(group_id)
    if found.state is GroupState.EMPTY:
        # Its members are gone for good, and a new group begins. The offsets are its own, whatever protocol it speaks.
        group = ConsumerGroup(group_id)
        # The epochs go on, though: a commit that was under way since the group last had members of this protocol must
        # not pass for one of an epoch that has come once more.
        group.group_epoch = found.generation_id
    else:
        group = migration.upgraded(found, step)
    records.append(group_tombstone(group_id))
    if group.members:
        records += consumer_group_records(group)
    return group


def new_member_id(random: Random) -> str:
    """Return a random id in the form of Kafka."""
    return base64.urlsafe_b64encode(random.getrandbits(128).to_bytes(16, "big")).rstrip(b"=").decode()


# ---- living


def live_on(
    groups: MutableMapping[str, Group], event: ConsumerHeartbeat, step: StepContext
) -> ConsumerGroupHeartbeatResponse:
    group = consumer_group(groups, event.request)
    member = check_is_known(group, event.request)
    check_epoch(member, event.request)
    return proceed(group, member, event, [], step)


def consumer_group(groups: MutableMapping[str, Group], request: ConsumerGroupHeartbeatRequest) -> ConsumerGroup:
    group = groups.get(request.group_id)
    if group is None:
        raise not_found(request)
    if not isinstance(group, ConsumerGroup):
        raise not_a_consumer_group(request.group_id)
    return group


def proceed(
    group: ConsumerGroup,
    member: ConsumerMember,
    event: ConsumerHeartbeat,
    records: list[CoordinatorRecord],
    step: StepContext,
) -> ConsumerGroupHeartbeatResponse:
    """Take over what the member says of itself, move the group on if that changes it, and the member towards it."""
    request = event.request
    assigned_before = member.assigned
    has_changed, subscription_changed = take_over(group, member, event, step)
    if has_changed:
        records.append(member_record(group.group_id, member))
    must_move = subscription_changed or group.group_epoch == 0
    if must_move or group.metadata_may_have_changed:
        records += move_epoch(group, step, must_move=must_move)
    records += maybe_assign(group, step)
    if reconcile(group, member, step.topics, owned=request.topic_partitions, subscription_changed=subscription_changed):
        records.append(current_record(group.group_id, member))
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            step.start_timer(rebalance_key(group, member.member_id), max(member.rebalance_timeout_ms, 0))
        else:
            step.cancel_timer(rebalance_key(group, member.member_id))
    if records:
        step.append(*records)
        step.settle(group)
    restart_session(group, member, step)
    response = ConsumerGroupHeartbeatResponse(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=step.config.consumer_settings(group.group_id).heartbeat_interval_ms,
    )
    if is_full(request) or not same_partitions(assigned_before, member.assigned):
        response.assignment = assignment_of(member.assigned)
    return response


def take_over(
    group: ConsumerGroup, member: ConsumerMember, event: ConsumerHeartbeat, step: StepContext
) -> tuple[bool, bool]:
    """What the member says of itself; what it leaves out is as before. Did anything change, and did what it reads?"""
    request = event.request
    names = member.subscribed_topic_names
    if request.subscribed_topic_names is not None and len(request.subscribed_topic_names) + len(names):
        names = frozenset(request.subscribed_topic_names)
    pattern = (
        member.subscribed_topic_regex if request.subscribed_topic_regex is None else request.subscribed_topic_regex
    )
    subscription_changed = names != member.subscribed_topic_names or pattern != member.subscribed_topic_regex
    if subscription_changed:
        if member.member_epoch != JOIN_EPOCH:
            step.note(group, Happening.SUBSCRIBED, member)
        group.subscribe(member, names, pattern)
    facts = (
        event.client_id,
        event.client_host,
        member.rack_id if request.rack_id is None else request.rack_id,
        member.rebalance_timeout_ms if request.rebalance_timeout_ms == -1 else request.rebalance_timeout_ms,
        member.server_assignor if request.server_assignor is None else request.server_assignor,
        None,
    )
    before = (
        member.client_id,
        member.client_host,
        member.rack_id,
        member.rebalance_timeout_ms,
        member.server_assignor,
        member.classic,
    )
    has_changed = subscription_changed or facts != before
    if has_changed:
        (
            member.client_id,
            member.client_host,
            member.rack_id,
            member.rebalance_timeout_ms,
            member.server_assignor,
            member.classic,
        ) = facts
    if request.instance_id is not None and request.instance_id != member.instance_id:
        group.set_instance_id(member, request.instance_id)
        has_changed = True
    return has_changed, subscription_changed


def is_full(request: ConsumerGroupHeartbeatRequest) -> bool:
    """Return whether the member says everything of itself: it joins, or an error made it unsure of what we know."""
    return request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != -1
        and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
        and request.topic_partitions is not None
    )


def same_partitions(before: Partitions, after: Partitions) -> bool:
    """Return whether the member owns the same, whenever it was given it."""
    return before is after or (
        before.keys() == after.keys() and all(before[topic_id].keys() == after[topic_id].keys() for topic_id in before)
    )


def assignment_of(partitions: Partitions) -> Assignment:
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, partitions=sorted(indexes)) for topic_id, indexes in partitions.items()
        ]
    )


# ---- leaving


def leave(
    groups: MutableMapping[str, Group], request: ConsumerGroupHeartbeatRequest, step: StepContext
) -> ConsumerGroupHeartbeatResponse:
    group = consumer_group(groups, request)
    member = check_is_known(group, request)
    if request.member_epoch == STATIC_LEAVE_EPOCH:
        keep_seat(group, member, step)
    else:
        step.note(group, Happening.LEFT, member)
        remove_member(groups, group, member, step)
    return ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
