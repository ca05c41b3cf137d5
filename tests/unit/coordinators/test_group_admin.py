"""Groups are described, listed and deleted, and offsets deleted."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.story import Story

from strandline.codec.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from strandline.codec.messages.delete_groups_response import DeletableGroupResult
from strandline.codec.messages.describe_groups_response import DescribedGroup
from strandline.codec.messages.list_groups_response import ListGroupsResponse
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.offset_delete_response import OffsetDeleteResponse
from strandline.coordinators.groups.classic.consumer_protocol import encode_subscription
from strandline.coordinators.groups.events import DeleteGroup, DeleteOffsets, DescribeGroup, ListGroups
from strandline.errors import ErrorCode

E = ErrorCode


def reading(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_subscription(ConsumerProtocolSubscription(topics=list(topics)), 3)),)


def stable(story: Story, *topics: str) -> None:
    story.enter("A", protocols=reading(*topics))
    story.pass_ms(3_000)
    story.sync("A", {"A": b"all"})


def describe(story: Story, *, group: str | None = None, api_version: int = 6) -> DescribedGroup:
    story.step(DescribeGroup(story.call("admin"), story.group if group is None else group, api_version))
    assert isinstance(story.last, DescribedGroup)
    return story.last


def listed(story: Story, *, states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    ids = (*story.shard.groups, "gone")
    story.step(ListGroups(story.call("admin"), ids, frozenset(states), frozenset(types)))
    assert isinstance(story.last, ListGroupsResponse)
    return [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in story.last.groups]


def delete(story: Story) -> ErrorCode:
    story.step(DeleteGroup(story.call("admin"), story.group))
    assert isinstance(story.last, DeletableGroupResult)
    assert story.last.group_id == story.group
    return ErrorCode(story.last.error_code)


def delete_offsets(story: Story, **topics: int) -> ErrorCode | dict[str, ErrorCode]:
    """What became of a partition of each topic, or of the whole request."""
    asked = [
        OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=partition)])
        for topic, partition in topics.items()
    ]
    story.step(DeleteOffsets(story.call("admin"), OffsetDeleteRequest(group_id=story.group, topics=asked)))
    assert isinstance(story.last, OffsetDeleteResponse)
    if story.last.error_code:
        return ErrorCode(story.last.error_code)
    return {topic.name: ErrorCode(topic.partitions[0].error_code) for topic in story.last.topics}


# ---- describe


def test_a_stable_group_is_described_with_its_members() -> None:
    story = Story()
    stable(story, "t")
    group = describe(story)
    assert (group.group_state, group.protocol_type, group.protocol_data) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert (member.client_id, member.client_host, member.member_assignment) == ("A", "/127.0.0.1", b"all")
    assert member.member_metadata == reading("t")[0][1]


def test_between_generations_no_metadata_is_told() -> None:
    story = Story()
    stable(story, "t")
    story.enter("B", protocols=reading("t"))
    group = describe(story)
    assert (group.group_state, group.protocol_data) == ("PreparingRebalance", "")
    assert [(m.client_id, m.member_metadata, m.member_assignment) for m in group.members] == [
        ("A", b"", b""),
        ("B", b"", b""),
    ]


@pytest.mark.parametrize("api_version", [0, 5, 6])
def test_a_group_that_does_not_exist_is_dead(api_version: int) -> None:
    group = describe(Story(), api_version=api_version)
    assert group.group_state == "Dead"
    assert group.error_code == (E.GROUP_ID_NOT_FOUND if api_version >= 6 else E.NONE)
    assert (group.error_message is not None) == (api_version >= 6)


# ---- list


def test_groups_are_chosen_by_state_and_type() -> None:
    story = Story()
    stable(story, "t")
    story.group = "job"
    story.commit("job", 4, generation_id=-1, member_id="")
    orders, job = ("orders", "consumer", "Stable", "classic"), ("job", "", "Empty", "classic")
    assert listed(story) == [orders, job]
    assert listed(story, states=("stable",)) == [orders]
    assert listed(story, states=("empty", "dead")) == [job]
    assert listed(story, states=("nonsense",)) == []
    assert listed(story, types=("classic",)) == [orders, job]
    assert listed(story, types=("consumer",)) == []


# ---- delete


def test_a_deleted_group_takes_its_offsets_along() -> None:
    story = Story()
    stable(story, "t")
    story.commit("A", 7)
    story.commit("A", 8, topic="u", partition=3)
    story.leave("A")
    story.told()
    assert delete(story) is E.NONE
    assert story.told() == ["log: orders t-0 = tombstone", "log: orders u-3 = tombstone", "log: orders tombstone"]
    assert delete(story) is E.GROUP_ID_NOT_FOUND
    story.restart()
    assert not story.shard.groups
    assert story.committed() == -1


def test_a_group_with_members_is_not_deleted() -> None:
    story = Story()
    story.enter("A")
    assert delete(story) is E.NON_EMPTY_GROUP
    story.pass_ms(3_000)
    assert delete(story) is E.NON_EMPTY_GROUP
    story.sync("A", {"A": b"all"})
    assert delete(story) is E.NON_EMPTY_GROUP
    assert story.heartbeat("A") is E.NONE


def test_who_was_on_its_way_to_a_deleted_group_comes_again() -> None:
    story = Story(pending_members_max=1)
    story.join("A")
    assert delete(story) is E.NONE
    story.join("A")
    assert story.client("A").errors[-1] is E.UNKNOWN_MEMBER_ID
    # The id that was handed out is not counted any more: there is room for the next.
    story.join("B")
    assert story.client("B").errors[-1] is E.MEMBER_ID_REQUIRED


# ---- delete offsets


def test_offsets_of_a_topic_that_is_read_are_kept() -> None:
    story = Story()
    stable(story, "t")
    story.commit("A", 7)
    story.commit("A", 8, topic="u")
    assert delete_offsets(story, t=0, u=0, v=0) == {"t": E.GROUP_SUBSCRIBED_TO_TOPIC, "u": E.NONE, "v": E.NONE}
    assert (story.committed(), story.committed(topic="u")) == (7, -1)
    story.restart()
    assert (story.committed(), story.committed(topic="u")) == (7, -1)


def test_nothing_is_deleted_of_members_with_unknown_metadata() -> None:
    story = Story()
    story.enter("A", protocols=(("range", b"topics"),))
    assert delete_offsets(story, t=0) == {"t": E.GROUP_SUBSCRIBED_TO_TOPIC}
    story.pass_ms(3_000)
    story.sync("A", {})
    assert delete_offsets(story, t=0) == {"t": E.GROUP_SUBSCRIBED_TO_TOPIC}
    story.leave("A")
    assert delete_offsets(story, t=0) == {"t": E.NONE}


def test_a_group_of_another_kind_of_members_must_be_empty() -> None:
    story = Story()
    story.enter("A", protocol_type="connect")
    assert delete_offsets(story, t=0) is E.NON_EMPTY_GROUP
    story.pass_ms(3_000)
    story.leave("A")
    assert delete_offsets(story, t=0) == {"t": E.NONE}


def test_offsets_of_an_unknown_group() -> None:
    story = Story()
    assert delete_offsets(story, t=0) is E.GROUP_ID_NOT_FOUND
    story.group = ""
    assert delete_offsets(story, t=0) is E.INVALID_GROUP_ID
