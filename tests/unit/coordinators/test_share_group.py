"""Share groups: how members join, are assigned initialised partitions, and go; what administrators may do."""

from __future__ import annotations

import pytest
from tests.unit.coordinators.consumer_story import SESSION_MS
from tests.unit.coordinators.share_group_story import GROUP, ShareStory, told

from strandline.codec.messages.alter_share_group_offsets_request import AlterShareGroupOffsetsRequest
from strandline.codec.messages.alter_share_group_offsets_response import AlterShareGroupOffsetsResponse
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from strandline.codec.messages.delete_share_group_offsets_request import DeleteShareGroupOffsetsRequest
from strandline.codec.messages.delete_share_group_offsets_response import DeleteShareGroupOffsetsResponse
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.list_groups_response import ListGroupsResponse
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_delete_request import OffsetDeleteRequest
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestGroup
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.codec.messages.sync_group_request import SyncGroupRequest
from strandline.coordinators.groups.events import (
    AlterShareOffsets,
    CommitOffsets,
    CommitTransactionalOffsets,
    ConsumerHeartbeat,
    DeleteOffsets,
    DeleteShareOffsets,
    DeleteShareState,
    DescribeConsumerGroup,
    DescribeGroup,
    DescribeShareGroup,
    FetchOffsets,
    Heartbeat,
    InitializeShareState,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    ListSharePartitions,
    Reply,
    ShareHeartbeat,
    SyncGroup,
)
from strandline.coordinators.groups.group_config import GroupConfig
from strandline.coordinators.groups.share.initialization import PARTITIONS_MAX, PAUSE_MS
from strandline.errors import ErrorCode


def ready(story: ShareStory, *members: str) -> ShareStory:
    """Members that have joined, with every partition of their topic."""
    for member_id in members:
        story.join(member_id)
        while story.asked:
            story.answer()
    for _ in range(2):
        for member_id in members:
            story.beat(member_id)
    return story


# ---- joining and the state of partitions


def test_partitions_are_assigned_when_they_have_a_state() -> None:
    story = ShareStory()
    joined = story.join("a")
    assert (joined.error_code, joined.member_id, joined.member_epoch) == (0, "a", 2)
    assert joined.heartbeat_interval_ms == 5_000
    assert told(joined) == {}
    [asked] = story.asked
    assert isinstance(asked, InitializeShareState)
    assert asked.state_epoch == 2
    assert [(each.partition, each.start_offset) for each in asked.partitions] == [(0, -1), (1, -1)]
    assert told(story.beat("a")) is None
    assert len(story.asked) == 1, "asked for once"
    story.answer()
    assigned = story.beat("a")
    assert (assigned.member_epoch, told(assigned)) == (3, {1: [0, 1]})
    assert told(story.beat("a")) is None


def test_the_state_is_asked_for_when_that_is_in_the_log() -> None:
    """The driver performs effects in order and waits for the log in between."""
    story = ShareStory()
    story.join("a")
    assert story.loaded().groups.keys() == {GROUP}
    assert [topic.partitions for topic in story.group.initializing.values()] == [{0, 1}]


def test_what_the_share_coordinator_refuses_is_asked_for_again_with_a_higher_epoch() -> None:
    story = ShareStory()
    story.join("a")
    story.answer({story.place("t", 1): ErrorCode.COORDINATOR_NOT_AVAILABLE})
    assert told(story.beat("a")) == {1: [0]}
    assert not story.asked, "not at once"
    epoch = story.group.group_epoch
    story.pass_ms(PAUSE_MS)
    story.beat("a")
    [asked] = story.asked
    assert isinstance(asked, InitializeShareState)
    assert [each.partition for each in asked.partitions] == [1]
    assert asked.state_epoch >= epoch > 2
    story.answer()
    assert told(story.beat("a")) == {1: [0, 1]}


def test_a_new_coordinator_asks_again_with_a_higher_epoch() -> None:
    """The first request may still be under way, and would begin the partition anew while it is being read."""
    story = ShareStory()
    story.join("a")
    [asked] = story.asked
    assert isinstance(asked, InitializeShareState)
    story.restart()
    story.beat("a")
    [again] = story.asked
    assert isinstance(again, InitializeShareState)
    assert again.partitions == asked.partitions
    assert again.state_epoch > asked.state_epoch
    story.answer()
    assert told(story.beat("a")) == {1: [0, 1]}


def test_a_new_coordinator_leaves_what_is_assigned() -> None:
    story = ready(ShareStory(), "a", "b")
    epoch = story.group.group_epoch
    story.restart()
    assert told(story.beat("a")) is None
    assert story.group.group_epoch == epoch
    assert not story.asked


def test_topics_that_come_and_grow_are_initialised() -> None:
    story = ready(ShareStory(topics={"t": 1}), "a")
    story.say("a", story.group.members["a"].member_epoch, names=["t", "later"])
    assert not story.asked
    story.topics.make("later", 1)
    story.topics.grow("t", 2)
    story.topics_changed("later", "t")
    story.beat("a")
    assert [(each.topic_id.int, each.partition) for each in story.asked[0].partitions] == [(2, 0), (1, 1)]
    story.answer()
    assert told(story.beat("a")) == {1: [0, 1], 2: [0]}


def test_a_topic_that_is_made_again_has_a_new_state() -> None:
    story = ready(ShareStory(topics={"t": 1}), "a")
    story.delete_topic("t")
    assert told(story.beat("a")) == {}
    assert not story.group.has_state
    story.topics.make("t", 1)
    story.topics_changed("t")
    story.beat("a")
    assert story.asked[0].partitions[0].topic_id.int == 2
    story.answer()
    assert told(story.beat("a")) == {2: [0]}


def test_a_topic_that_is_deleted_while_it_is_initialised_is_forgotten() -> None:
    story = ShareStory()
    story.join("a")
    story.delete_topic("t")
    story.answer()
    assert not story.group.has_state


def test_many_partitions_are_asked_for_in_parts() -> None:
    story = ShareStory(topics={"t": PARTITIONS_MAX + 5})
    story.join("a")
    assert len(story.answer().partitions) == PARTITIONS_MAX
    story.beat("a")
    assert len(story.answer().partitions) == 5
    assert told(story.beat("a")) == {1: list(range(PARTITIONS_MAX + 5))}


# ---- members


def test_more_members_than_partitions_share_them() -> None:
    story = ready(ShareStory(), "a", "b", "c")
    assigned = [story.group.members[member_id].assigned for member_id in ("a", "b", "c")]
    held = [index for topics in assigned for indexes in topics.values() for index in indexes]
    assert sorted(held) == [0, 0, 1, 1]
    assert all(assigned)


def test_partitions_of_a_member_that_leaves_go_to_the_others() -> None:
    story = ready(ShareStory(), "a", "b")
    left = story.leave("b")
    assert (left.error_code, left.member_id, left.member_epoch) == (0, "b", -1)
    assert told(story.beat("a")) == {1: [0, 1]}


def test_a_silent_member_is_removed() -> None:
    story = ready(ShareStory(), "a", "b")
    for _ in range(10):
        story.pass_ms(SESSION_MS // 9)
        story.beat("a")
    assert list(story.group.members) == ["a"]
    assert story.group.members["a"].assigned == {story.place("t", 0)[0]: [0, 1]}
    assert story.say("b", 3).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.lengthy("large inputs")
def test_a_group_without_members_stays_with_its_states() -> None:
    story = ready(ShareStory(), "a")
    story.leave("a")
    assert story.describe().group_state == "Empty"
    story.pass_ms(30 * 24 * 3_600_000)
    assert story.group.initialized
    joined = story.join("b")
    assert told(joined) == {1: [0, 1]}, "no state has to be made"


def test_the_assignment_waits_for_the_interval() -> None:
    story = ready(ShareStory(interval_ms=1_000), "a")
    story.pass_ms(1_000)
    story.beat("a")
    joined = story.join("b")
    assert (joined.error_code, told(joined)) == (0, {})
    story.pass_ms(1_000)
    assert told(story.beat("b")) == {1: [1]}


def test_a_lost_answer_is_sent_again_for_the_previous_epoch() -> None:
    story = ready(ShareStory(), "a")
    epoch = story.group.members["a"].member_epoch
    story.join("b")
    story.beat("a")
    again = story.say("a", epoch)
    assert (again.error_code, told(again)) == (0, None)
    again = story.say("a", epoch, names=["t"])
    assert (again.error_code, told(again)) == (0, {1: [0]})


@pytest.mark.parametrize(("ahead", "word"), [(1, "greater"), (-1, "smaller")])
def test_other_epochs_are_fenced(ahead: int, word: str) -> None:
    story = ready(ShareStory(), "a", "b", "c")
    refused = story.say("a", story.group.members["a"].member_epoch + ahead)
    assert refused.error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert f"has a {word} member epoch" in (refused.error_message or "")


def test_a_member_that_joins_again_under_its_id_is_the_same() -> None:
    story = ready(ShareStory(), "a")
    epoch = story.group.group_epoch
    again = story.join("a")
    assert (again.member_epoch, told(again)) == (epoch, {1: [0, 1]})


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"member_id": "m" * 37}, ErrorCode.INVALID_REQUEST),
        ({"member_id": " "}, ErrorCode.INVALID_REQUEST),
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST),
        ({"rack": ""}, ErrorCode.INVALID_REQUEST),
        ({"names": None}, ErrorCode.INVALID_REQUEST),
        ({"names": []}, ErrorCode.INVALID_REQUEST),
        ({"names": None, "epoch": -2}, ErrorCode.INVALID_REQUEST),
        ({"names": None, "epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND),
        ({"names": None, "epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND),
    ],
)
def test_what_is_refused_leaves_no_trace(fields: dict[str, object], code: ErrorCode) -> None:
    story = ShareStory()
    fields = {"member_id": "m", "epoch": 0, "names": ["t"]} | fields
    assert story.say(**fields).error_code == code  # type: ignore[arg-type]
    assert not story.shard.groups
    assert not story.records


def test_a_full_group_takes_no_more() -> None:
    story = ShareStory(share_group_size_max=2)
    ready(story, "a", "b")
    refused = story.join("c")
    assert refused.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert story.beat("a").error_code == ErrorCode.NONE


def test_describe() -> None:
    story = ready(ShareStory(), "a")
    described = story.describe()
    assert (described.group_state, described.group_epoch, described.assignor_name) == ("Stable", 3, "simple")
    [member] = described.members
    assert (member.member_id, member.client_id, member.subscribed_topic_names) == ("a", "client", ["t"])
    assert [(topic.topic_name, topic.partitions) for topic in member.assignment.topic_partitions] == [("t", [0, 1])]
    missing = story.describe("none")
    assert (missing.error_code, missing.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group none not found.")


# ---- groups of other kinds


def test_a_share_group_is_no_group_of_another_kind() -> None:
    story = ready(ShareStory(), "a")
    topic = OffsetCommitRequestTopic(name="t", partitions=[OffsetCommitRequestPartition(committed_offset=1)])
    join = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range")],
    )
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="a", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    leaving = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id="a")])
    commit = OffsetCommitRequest(group_id=GROUP, topics=[topic])
    deletion = OffsetDeleteRequest(group_id=GROUP)
    left = story.ask(LeaveGroup(story.token(), leaving))
    committed = story.ask(CommitOffsets(story.token(), commit, 8))
    in_transaction = story.ask(CommitTransactionalOffsets(story.token(), commit, 1, 0))
    answers = {
        "join": story.ask(JoinGroup(story.token(), join, 9, "c", "/h")),
        "sync": story.ask(SyncGroup(story.token(), SyncGroupRequest(group_id=GROUP, member_id="a"))),
        "heartbeat": story.ask(Heartbeat(story.token(), HeartbeatRequest(group_id=GROUP, member_id="a"))),
        "leave": left.members[0],  # type: ignore[attr-defined]
        "consumer heartbeat": story.ask(ConsumerHeartbeat(story.token(), consumer, 1, "c", "/h")),
        "commit": committed.topics[0].partitions[0],  # type: ignore[attr-defined]
        "transactional commit": in_transaction.topics[0].partitions[0],  # type: ignore[attr-defined]
        "fetch": story.ask(FetchOffsets(story.token(), OffsetFetchRequestGroup(group_id=GROUP, topics=None))),
        "delete offsets": story.ask(DeleteOffsets(story.token(), deletion)),
        "describe": story.ask(DescribeGroup(story.token(), GROUP, 6)),
        "describe consumer": story.ask(DescribeConsumerGroup(story.token(), GROUP)),
    }
    absent, unknown = ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_MEMBER_ID
    assert {name: ErrorCode(answer.error_code) for name, answer in answers.items()} == {  # type: ignore[attr-defined]
        "join": ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        "sync": unknown,
        "heartbeat": unknown,
        "leave": unknown,
        "consumer heartbeat": absent,
        "commit": absent,
        "transactional commit": absent,
        "fetch": ErrorCode.NONE,
        "delete offsets": absent,
        "describe": absent,
        "describe consumer": absent,
    }
    listed = story.ask(ListGroups(story.token(), (GROUP,)))
    assert isinstance(listed, ListGroupsResponse)
    assert [(each.group_id, each.protocol_type, each.group_state, each.group_type) for each in listed.groups] == [
        (GROUP, "share", "Stable", "share")
    ]
    assert story.beat("a").error_code == ErrorCode.NONE


def test_a_group_of_another_kind_is_no_share_group() -> None:
    story = ShareStory()
    consumer = ConsumerGroupHeartbeatRequest(
        group_id=GROUP, member_id="a", rebalance_timeout_ms=1, subscribed_topic_names=["t"], topic_partitions=[]
    )
    shard, now_ms = story.shard, story.now_ms
    shard.step(ConsumerHeartbeat(story.token(), consumer, 1, "c", "/h"), now_ms)
    joining = ShareGroupHeartbeatRequest(group_id=GROUP, member_id="b", subscribed_topic_names=["t"])
    alteration = AlterShareGroupOffsetsRequest(group_id=GROUP)
    for event in (
        ShareHeartbeat("joins", joining, "c", "/h"),
        DescribeShareGroup("describes", GROUP),
        AlterShareOffsets("alters", alteration),
        DeleteShareOffsets("deletes", DeleteShareGroupOffsetsRequest(group_id=GROUP)),
    ):
        [reply] = shard.step(event, now_ms)
        assert isinstance(reply, Reply)
        assert reply.response.error_code == ErrorCode.GROUP_ID_NOT_FOUND  # type: ignore[union-attr]
        assert reply.response.error_message == f"Group {GROUP} is not a share group."  # type: ignore[union-attr]


# ---- administrators


def offsets_codes(story: ShareStory, token: object) -> list[tuple[str, list[int]]] | int:
    reply = story.replies[token]
    if isinstance(reply, AlterShareGroupOffsetsResponse):
        topics = [(topic.topic_name, [each.error_code for each in topic.partitions]) for topic in reply.responses]
    else:
        assert isinstance(reply, DeleteShareGroupOffsetsResponse)
        topics = [(topic.topic_name, [topic.error_code]) for topic in reply.responses]
    return reply.error_code or topics


def test_altered_offsets_begin_with_a_higher_epoch() -> None:
    story = ready(ShareStory(), "a")
    story.leave("a")
    epoch = story.group.group_epoch
    token = story.alter({"t": {0: 7, 9: 1}, "none": {0: 1}})
    asked = story.asked[0]
    assert isinstance(asked, InitializeShareState)
    assert asked.state_epoch > epoch
    assert [(each.partition, each.start_offset) for each in asked.partitions] == [(0, 7)]
    assert token not in story.replies
    story.answer()
    assert offsets_codes(story, token) == [("t", [0, 3]), ("none", [3])]
    assert told(story.join("b")) == {1: [0, 1]}


def test_alter_makes_a_group() -> None:
    story = ShareStory()
    token = story.alter({"t": {1: 5}})
    story.answer()
    assert offsets_codes(story, token) == [("t", [0])]
    story.join("a")
    assert [(each.partition, each.start_offset) for each in story.asked[0].partitions] == [(0, -1)]


def test_alter_hands_on_what_the_share_coordinator_refuses() -> None:
    story = ShareStory()
    token = story.alter({"t": {0: 5, 1: 6}})
    story.answer({story.place("t", 1): ErrorCode.NOT_COORDINATOR})
    assert offsets_codes(story, token) == [("t", [0, ErrorCode.NOT_COORDINATOR])]


def test_an_alteration_of_nothing_makes_no_group() -> None:
    story = ShareStory()
    assert offsets_codes(story, story.alter({"none": {0: 5}, "t": {0: -2, -1: 4}})) == [("none", [3]), ("t", [42, 3])]
    assert not story.shard.groups


def test_deleted_offsets_begin_again() -> None:
    story = ready(ShareStory(topics={"t": 1, "u": 1}), "a")
    story.leave("a")
    token = story.delete_offsets("t", "u", "none")
    asked = story.answer()
    assert isinstance(asked, DeleteShareState)
    assert [each.topic_id.int for each in asked.partitions] == [1]
    assert offsets_codes(story, token) == [("t", [0]), ("u", [3]), ("none", [3])]
    assert [topic.topic_id.int for topic in story.replies[token].responses] == [1, 0, 0], "of what was deleted"
    story.join("a")
    assert isinstance(story.asked[0], InitializeShareState)


def test_a_deletion_that_failed_can_be_tried_again() -> None:
    story = ready(ShareStory(), "a")
    story.leave("a")
    token = story.delete_offsets("t")
    story.refuse()
    assert offsets_codes(story, token) == [("t", [ErrorCode.COORDINATOR_NOT_AVAILABLE])]
    story.restart()
    token = story.delete_offsets("t")
    assert len(story.answer().partitions) == 2
    assert offsets_codes(story, token) == [("t", [0])]
    assert not story.group.has_state


def test_a_group_is_deleted_with_its_states() -> None:
    story = ready(ShareStory(), "a")
    assert story.deletion_code(story.delete_group()) is ErrorCode.NON_EMPTY_GROUP
    story.leave("a")
    token = story.delete_group()
    assert story.deletion_code(token) is None
    story.refuse(ErrorCode.NOT_COORDINATOR)
    assert story.deletion_code(token) is ErrorCode.NOT_COORDINATOR
    token = story.delete_group()
    assert len(story.answer().partitions) == 2
    assert story.deletion_code(token) is ErrorCode.NONE
    assert not story.shard.groups
    assert story.deletion_code(story.delete_group()) is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_without_states_is_deleted_at_once() -> None:
    story = ShareStory(topics={})
    story.join("a")
    story.leave("a")
    assert story.deletion_code(story.delete_group()) is ErrorCode.NONE
    assert not story.shard.groups


def test_a_member_that_joins_while_its_group_is_deleted_keeps_it() -> None:
    story = ready(ShareStory(), "a")
    story.leave("a")
    token = story.delete_group()
    assert told(story.join("b")) == {}
    story.answer()
    assert story.deletion_code(token) is ErrorCode.NON_EMPTY_GROUP
    story.beat("b")
    assert isinstance(story.answer(), InitializeShareState)
    assert told(story.beat("b")) == {1: [0, 1]}


def test_one_conversation_with_the_share_coordinator_at_a_time() -> None:
    story = ShareStory()
    first = story.alter({"t": {0: 1}})
    busy = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert offsets_codes(story, story.alter({"t": {0: 2}})) == busy
    assert offsets_codes(story, story.delete_offsets("t")) == busy
    assert story.deletion_code(story.delete_group()) is busy
    story.join("a")
    assert len(story.asked) == 1
    story.answer()
    assert offsets_codes(story, first) == [("t", [0])]


@pytest.mark.parametrize("group_id", ["", "none"])
def test_offsets_of_no_group(group_id: str) -> None:
    story = ShareStory()
    code = ErrorCode.GROUP_ID_NOT_FOUND if group_id else ErrorCode.INVALID_GROUP_ID
    assert offsets_codes(story, story.delete_offsets("t", group_id=group_id)) == code
    if not group_id:
        assert offsets_codes(story, story.alter({"t": {0: 1}}, group_id="")) == code


def test_offsets_of_a_group_with_members_stay() -> None:
    story = ready(ShareStory(), "a")
    assert offsets_codes(story, story.alter({"t": {0: 1}})) == ErrorCode.NON_EMPTY_GROUP
    assert offsets_codes(story, story.delete_offsets("t")) == ErrorCode.NON_EMPTY_GROUP


def test_the_partitions_with_a_state() -> None:
    story = ready(ShareStory(), "a")
    assert story.ask(ListSharePartitions(story.token(), GROUP)) == {story.place("t", 0)[0]: [0, 1]}
    assert story.ask(ListSharePartitions(story.token(), "none")) == {}


def test_defaults_are_those_of_the_settings() -> None:
    config = GroupConfig()
    assert (config.share.session_timeout_ms, config.share_group_size_max, config.share_assignor) == (
        45_000,
        200,
        "simple",
    )
