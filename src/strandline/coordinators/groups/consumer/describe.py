"""ConsumerGroupDescribe: what a group of the consumer protocol is like, member by member."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

from strandline.codec.messages.consumer_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from strandline.coordinators.groups.events import DescribeConsumerGroup
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics
from strandline.errors import ErrorCode

CONSUMER_MEMBER = 1
CLASSIC_MEMBER = 0


def describe(group: Group | None, event: DescribeConsumerGroup, step: StepContext) -> None:
    if not step.config.is_consumer_protocol_enabled:
        step.reply(event.token, DescribedGroup(group_id=event.group_id, error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    if isinstance(group, ConsumerGroup):
        step.reply(event.token, described(group, step))
        return
    if not event.group_id:
        step.reply(event.token, DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    what = "not found" if group is None else "is not a consumer group"
    step.reply(
        event.token,
        DescribedGroup(
            group_id=event.group_id,
            error_code=ErrorCode.GROUP_ID_NOT_FOUND,
            error_message=f"Group {event.group_id} {what}.",
        ),
    )


def described(group: ConsumerGroup, step: StepContext) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state,
        group_epoch=group.group_epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.preferred_assignor(step.config.consumer_assignors),
        members=[described_member(group, member, step.topics) for member in group.members.values()],
    )


def described_member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        subscribed_topic_regex=member.subscribed_topic_regex,
        assignment=described_partitions(member.assigned, topics),
        target_assignment=described_partitions(group.target.get(member.member_id, {}), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def described_partitions(partitions: Mapping[UUID, Iterable[int]], topics: Topics) -> Assignment:
    """Topics that are gone have no name any more and are left out."""
    return Assignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=facts.name, partitions=sorted(indexes))
            for topic_id, indexes in partitions.items()
            if (facts := topics.by_id(topic_id)) is not None
        ]
    )
