"""Checks of a ConsumerGroupHeartbeat: each raises the error for the member, with Kafka's codes.

Milder than Kafka in two places. A static member that was fenced may join again under its own member id, where Kafka
says UNRELEASED_INSTANCE_ID until its session is over. And a static member that comes back to a full group is let in:
it takes its seat and no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from strandline.coordinators.groups.consumer import regex_subscriptions
from strandline.coordinators.groups.consumer.consumer_group import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    STATIC_LEAVE_EPOCH,
    ConsumerGroup,
    ConsumerMember,
    MemberState,
    Partitions,
)
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.errors import ErrorCode, RequestError

MEMBER_ID_FROM_VERSION = 1
"""From here on a client makes its member id itself, before it joins."""

SUBSCRIPTION_BYTES_MAX = 768 * 1024
"""Of the topics that one member names. They are one record, which must fit into a batch of `__consumer_offsets`."""

LENGTH_BYTES = 3
"""What the length of a name takes at most, in a record."""


def check_request(request: ConsumerGroupHeartbeatRequest, api_version: int, config: GroupConfig) -> None:
    """Raise RequestError for what is wrong regardless of the group."""
    if not config.is_consumer_protocol_enabled:
        raise RequestError(ErrorCode.UNSUPPORTED_VERSION, "")
    if is_blank(request.group_id):
        raise invalid("GroupId can't be empty.")
    if is_blank(request.instance_id):
        raise invalid("InstanceId can't be empty.")
    if is_blank(request.rack_id):
        raise invalid("RackId can't be empty.")
    epoch = request.member_epoch
    if not request.member_id and (epoch != JOIN_EPOCH or api_version >= MEMBER_ID_FROM_VERSION):
        raise invalid("MemberId can't be empty.")
    if epoch == JOIN_EPOCH:
        check_join(request)
    elif epoch == STATIC_LEAVE_EPOCH:
        if request.instance_id is None:
            raise invalid("InstanceId can't be null.")
    elif epoch < LEAVE_EPOCH:
        raise invalid("MemberEpoch is invalid.")
    if request.server_assignor is not None and request.server_assignor not in config.consumer_assignors:
        raise RequestError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. "
            f"Supported assignors: {', '.join(config.consumer_assignors)}.",
        )
    if request.subscribed_topic_names:
        check_size(request.subscribed_topic_names)
    if request.subscribed_topic_regex:
        regex_subscriptions.check(request.subscribed_topic_regex)


def is_blank(text: str | None) -> bool:
    return text is not None and not text.strip()


def check_size(names: Sequence[str]) -> None:
    size = sum(map(len, names)) + LENGTH_BYTES * len(names)
    # A character takes four bytes at most; they are only counted one by one where that matters.
    if 4 * size > SUBSCRIPTION_BYTES_MAX and (
        sum(len(name.encode()) for name in names) + LENGTH_BYTES * len(names) > SUBSCRIPTION_BYTES_MAX
    ):
        raise RequestError(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"The topic names take more than {SUBSCRIPTION_BYTES_MAX} bytes."
        )


def check_join(request: ConsumerGroupHeartbeatRequest) -> None:
    if request.rebalance_timeout_ms == -1:
        raise invalid("RebalanceTimeoutMs must be provided in first request.")
    if request.topic_partitions is None or request.topic_partitions:
        raise invalid("TopicPartitions must be empty when (re-)joining.")
    if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
        raise invalid("Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.")


def check_room(group: ConsumerGroup, member_id: str, config: GroupConfig) -> None:
    if len(group.members) >= config.consumer_group_size_max and member_id not in group.members:
        raise RequestError(
            ErrorCode.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {config.consumer_group_size_max} members.",
        )


def check_static_seat(seated: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    """Two processes with one instance id: the first keeps it until it leaves or is gone for its session.

    A member of the classic protocol is replaced at once, as that protocol has it.
    """
    if seated.classic is None and seated.member_epoch != STATIC_LEAVE_EPOCH:
        raise RequestError(
            ErrorCode.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group because "
            f"the instance id is owned by {seated.member_id} member.",
        )


def check_is_known(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> ConsumerMember:
    """Return the sending member; a static one is fenced when another process has its instance id."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise RequestError(
                ErrorCode.UNKNOWN_MEMBER_ID, f"Member {request.member_id} is not a member of group {group.group_id}."
            )
        return member
    seated = group.static_member(request.instance_id)
    if seated is None:
        raise RequestError(ErrorCode.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    if seated.member_id != request.member_id:
        raise RequestError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
            f"{seated.member_id}.",
        )
    return seated


def check_epoch(member: ConsumerMember, request: ConsumerGroupHeartbeatRequest) -> None:
    received, owned = request.member_epoch, request.topic_partitions
    if member.state is MemberState.UNKNOWN and (owned is None or owned):
        raise fenced("The consumer group member is in a unknown state.")
    if received in (JOIN_EPOCH, member.member_epoch):
        return
    # The answer that told of the present epoch may have got lost. Who has taken nothing that it has not been given
    # since may go on from the epoch before.
    if (
        received < member.member_epoch
        and received == member.previous_member_epoch
        and is_subset(owned, member.assigned)
    ):
        return
    relation = "greater" if received > member.member_epoch else "smaller"
    raise fenced(
        f"The consumer group member has a {relation} member epoch ({received}) than the one known by the group "
        f"coordinator ({member.member_epoch})."
    )


def is_subset(owned: Iterable[TopicPartitions] | None, assigned: Partitions) -> bool:
    if owned is None:
        return False
    return all(assigned.get(topic.topic_id, {}).keys() >= set(topic.partitions) for topic in owned)


def fenced(why: str) -> RequestError:
    return RequestError(ErrorCode.FENCED_MEMBER_EPOCH, f"{why} The member must abandon all its partitions and rejoin.")


def invalid(why: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REQUEST, why)


def not_found(request: ConsumerGroupHeartbeatRequest) -> RequestError:
    what = "Consumer group" if request.member_epoch >= JOIN_EPOCH else "Group"
    return RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"{what} {request.group_id} not found.")


def not_a_consumer_group(group_id: str) -> RequestError:
    return RequestError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} is not a consumer group.")
