"""Reads groups over the protocol: with our codec where the listener is plain, else what librdkafka tells of them.

librdkafka tells neither epochs nor subscriptions, and of groups of the consumer protocol not whether they are
assigning or reconciling. Everything else is the same on both ways, and both work against any Kafka cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from strandline.cli.common.client import Cluster, kafka_api
from strandline.cli.common.conversation import (
    BrokerApis,
    Conversation,
    ask_coordinator,
    ask_until_settled,
    check,
    is_spoken,
)
from strandline.cli.common.failures import CommandFailed, NotFound, Unreachable, did_you_mean
from strandline.cli.common.partition_places import brokers_of
from strandline.cli.group.state import GroupDescription, GroupMember, Place
from strandline.codec.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from strandline.codec.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse
from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.describe_groups_response import DescribeGroupsResponse
from strandline.codec.messages.list_groups_request import ListGroupsRequest
from strandline.codec.messages.list_groups_response import ListGroupsResponse
from strandline.coordinators.groups.classic.consumer_protocol import decode_assignment, decode_subscription
from strandline.errors import ErrorCode, MalformedMessage

GROUPS_PER_REQUEST = 200
DEAD = "Dead"


def read_groups(
    cluster: Cluster, *, with_members: bool = True, tell: Callable[[str], object] = lambda words: None
) -> list[GroupDescription]:
    """Every group of the cluster, by name. A broker that cannot be asked is told of, and its groups are missing."""
    if not is_spoken(cluster):
        return _listed_by_librdkafka(cluster, with_members=with_members)
    found: dict[str, GroupDescription] = {}
    for broker in brokers_of(cluster):
        try:
            with Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security) as conversation:
                listed = _list(conversation, broker.id, cluster.timeout_s)
                if with_members:
                    listed = _described(conversation, listed)
        except Unreachable as failure:
            tell(f"broker {broker.id} could not be asked, so its groups are missing: {failure.message}")
            continue
        found.update({group.group_id: group for group in listed})
    return [found[group_id] for group_id in sorted(found)]


def read_group(cluster: Cluster, group_id: str) -> GroupDescription:
    """One group, which must exist."""
    group = find_group(cluster, group_id)
    if group is None:
        raise group_not_found(cluster, group_id)
    return group


def find_group(cluster: Cluster, group_id: str) -> GroupDescription | None:
    """One group; None where there is none of that name."""
    if not group_id:
        raise NotFound("a group has a name")
    if not is_spoken(cluster):
        return _described_by_librdkafka(cluster, [group_id]).get(group_id)

    def ask(coordinator: BrokerApis, node_id: int) -> GroupDescription | None:
        # Its type is not known yet: it is asked for as either.
        (group,) = _described(coordinator, [GroupDescription(group_id, "", DEAD, node_id)])
        return None if group.state == DEAD else group

    return ask_coordinator(cluster, group_id, ask, doing=f"cannot describe group {group_id!r}")


def group_not_found(cluster: Cluster, group_id: str) -> NotFound:
    meant = did_you_mean(group_id, [group.group_id for group in read_groups(cluster, with_members=False)])
    return NotFound(
        f"there is no group {group_id!r}", hint=f"{meant}?" if meant else "see them with `strandline group list`"
    )


# ---- over a plain socket


def _list(conversation: Conversation, broker_id: int, timeout_s: float) -> list[GroupDescription]:
    def ask() -> list[GroupDescription]:
        answer = conversation.ask(ListGroupsRequest(), ListGroupsResponse)
        if answer is None:
            raise CommandFailed("this cluster does not offer ListGroups")
        check(answer.error_code, f"cannot list the groups of broker {broker_id}")
        return [
            GroupDescription(
                each.group_id,
                each.group_type.lower() or "classic",
                each.group_state,
                broker_id,
                each.protocol_type,
                members=None,
            )
            for each in answer.groups
        ]

    return ask_until_settled(ask, timeout_s, f"cannot list the groups of broker {broker_id}")


def _described(conversation: BrokerApis, groups: Sequence[GroupDescription]) -> list[GroupDescription]:
    """The same groups with their members. A group that went or moved meanwhile stays as it was listed."""
    told: dict[str, GroupDescription] = {}
    for part in _parts([group for group in groups if group.group_type in ("consumer", "")]):
        request = ConsumerGroupDescribeRequest(group_ids=list(part))
        answer = conversation.ask(request, ConsumerGroupDescribeResponse)
        told |= _told(part, [] if answer is None else answer.groups, _consumer_group)
    rest = [group for group in groups if group.group_type in ("classic", "") and group.group_id not in told]
    for part in _parts(rest):
        classic = conversation.ask(DescribeGroupsRequest(groups=list(part)), DescribeGroupsResponse)
        told |= _told(part, [] if classic is None else classic.groups, _classic_group)
    return [told.get(group.group_id, group) for group in groups]


def _told(
    asked: dict[str, GroupDescription],
    answers: Iterable[Any],
    read: Callable[[Any, GroupDescription], GroupDescription],
) -> dict[str, GroupDescription]:
    told = {}
    for each in answers:
        group = asked.get(each.group_id)
        if group is None or each.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
            continue
        if not group.group_type:
            # It is the one that was asked about, so what went wrong matters.
            check(each.error_code, f"cannot describe group {each.group_id!r}")
        if not each.error_code:
            told[each.group_id] = read(each, group)
    return told


def _parts(groups: Sequence[GroupDescription]) -> Iterator[dict[str, GroupDescription]]:
    for begin in range(0, len(groups), GROUPS_PER_REQUEST):
        yield {group.group_id: group for group in groups[begin : begin + GROUPS_PER_REQUEST]}


def _consumer_group(each: Any, asked: GroupDescription) -> GroupDescription:
    return replace(
        asked,
        group_type="consumer",
        state=each.group_state,
        assignor=each.assignor_name,
        epoch=each.group_epoch,
        assignment_epoch=each.assignment_epoch,
        members=tuple(
            GroupMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                owned=_places(member.assignment),
                target=_places(member.target_assignment),
                protocol="classic" if member.member_type == 0 else "consumer",
                epoch=member.member_epoch,
                rack=member.rack_id or None,
                topics=tuple(sorted(member.subscribed_topic_names)),
                pattern=member.subscribed_topic_regex or None,
            )
            for member in each.members
        ),
    )


def _places(assignment: Any) -> tuple[Place, ...]:
    return tuple((each.topic_name, partition) for each in assignment.topic_partitions for partition in each.partitions)


def _classic_group(each: Any, asked: GroupDescription) -> GroupDescription:
    return replace(
        asked,
        group_type="classic",
        state=each.group_state,
        protocol_type=each.protocol_type,
        assignor=each.protocol_data,
        members=tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.client_host,
                owned=_assigned(member.member_assignment),
                topics=_subscribed(member.member_metadata),
            )
            for member in each.members
        ),
    )


def _assigned(assignment: bytes) -> tuple[Place, ...] | None:
    """None if this is no consumer: what its kind means by an assignment is its own affair."""
    if not assignment:
        return ()
    try:
        assigned = decode_assignment(assignment).assigned_partitions
    except MalformedMessage:
        return None
    return tuple((each.topic, partition) for each in assigned for partition in each.partitions)


def _subscribed(metadata: bytes) -> tuple[str, ...] | None:
    try:
        return tuple(sorted(decode_subscription(metadata).topics))
    except MalformedMessage:
        return None


# ---- by librdkafka, where the login is not one of ours


def _listed_by_librdkafka(cluster: Cluster, *, with_members: bool) -> list[GroupDescription]:
    # The client is kept in a name, because it answers its futures only as long as it lives.
    admin = cluster.admin()
    with cluster.errors("cannot list groups"):
        answer = admin.list_consumer_groups(request_timeout=cluster.timeout_s).result()
        for error in answer.errors:
            raise error
    listed = {
        each.group_id: GroupDescription(each.group_id, _word(each.type), _state(each.state), None, members=None)
        for each in answer.valid
    }
    if with_members and listed:
        listed |= _described_by_librdkafka(cluster, listed)
    return [listed[group_id] for group_id in sorted(listed)]


def _described_by_librdkafka(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, GroupDescription]:
    admin = cluster.admin()
    answers = admin.describe_consumer_groups(list(group_ids), request_timeout=cluster.timeout_s)
    found = {}
    for group_id, future in answers.items():
        try:
            with cluster.errors(f"cannot describe group {group_id!r}"):
                each = future.result()
        except NotFound:
            continue
        if _state(each.state) == DEAD:
            continue
        members = tuple(
            GroupMember(
                member.member_id,
                member.group_instance_id,
                member.client_id,
                member.host,
                owned=_topic_partitions(member.assignment),
                target=None if member.target_assignment is None else _topic_partitions(member.target_assignment),
            )
            for member in each.members
        )
        coordinator = None if each.coordinator is None else each.coordinator.id
        found[group_id] = GroupDescription(
            group_id,
            _word(each.type),
            _state(each.state),
            coordinator,
            "consumer",
            each.partition_assignor,
            None,
            None,
            members,
        )
    return found


def _topic_partitions(assignment: Any) -> tuple[Place, ...]:
    return tuple((each.topic, each.partition) for each in assignment.topic_partitions)


def _word(group_type: Any) -> str:
    return "classic" if group_type == kafka_api().ConsumerGroupType.UNKNOWN else str(group_type.name).lower()


_STATES = {
    "PREPARING_REBALANCING": "PreparingRebalance",
    "COMPLETING_REBALANCING": "CompletingRebalance",
}


def _state(state: Any) -> str:
    name = str(state.name)
    return _STATES.get(name, name.title())
