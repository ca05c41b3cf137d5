"""ShareGroupDescribe: what a share group is like, member by member."""

from __future__ import annotations

from strandline.codec.messages.share_group_describe_response import (
    Assignment,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.events import DescribeShareGroup
from strandline.coordinators.groups.share.checks import share_group
from strandline.coordinators.groups.share.share_group import ShareMember
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import Topics
from strandline.errors import ErrorCode, RequestError


def describe(found: Group | None, event: DescribeShareGroup, step: StepContext) -> None:
    if not event.group_id:
        step.reply(event.token, DescribedGroup(error_code=ErrorCode.INVALID_GROUP_ID))
        return
    try:
        group = share_group(found, event.group_id)
    except RequestError as refused:
        described = DescribedGroup(group_id=event.group_id, error_code=refused.code, error_message=str(refused))
    else:
        described = DescribedGroup(
            group_id=group.group_id,
            group_state=group.state,
            group_epoch=group.group_epoch,
            assignment_epoch=group.assignment_epoch,
            assignor_name=step.config.share_assignor,
            members=[_described_member(member, step.topics) for member in group.members.values()],
        )
    step.reply(event.token, described)


def _described_member(member: ShareMember, topics: Topics) -> Member:
    """Describe a member. Topics that are gone have no name any more and are left out."""
    return Member(
        member_id=member.member_id,
        rack_id=member.rack_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.subscribed_topic_names),
        assignment=Assignment(
            topic_partitions=[
                TopicPartitions(topic_id=topic_id, topic_name=facts.name, partitions=sorted(indexes))
                for topic_id, indexes in member.assigned.items()
                if (facts := topics.by_id(topic_id)) is not None
            ]
        ),
    )
