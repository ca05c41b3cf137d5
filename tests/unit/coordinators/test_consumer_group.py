"""Groups of the consumer protocol, as stories: who says what, and what the coordinator answers."""

from __future__ import annotations

import dataclasses

import pytest
from tests.unit.coordinators.consumer_story import GROUP, REBALANCE_MS, SESSION_MS, ConsumerStory, told

from strandline.codec.internal_records import decode_coordinator_record
from strandline.coordinators.groups.consumer.consumer_group import MemberState
from strandline.errors import ErrorCode

ALL = {"1": [0, 1, 2, 3]}


def code(response: object) -> ErrorCode:
    return ErrorCode(response.error_code)  # type: ignore[attr-defined]


def test_the_first_member_owns_everything_at_once() -> None:
    story = ConsumerStory()
    answer = story.join("a")
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert told(answer) == ALL
    assert story.group.state == "Stable"


def test_an_answer_carries_the_assignment_only_if_it_changed_or_was_asked_for() -> None:
    story = ConsumerStory()
    story.join("a")
    records = len(story.records)
    assert told(story.say("a", 2)) is None
    assert told(story.say("a", 2, owns={"t": [0, 1, 2, 3]})) is None
    assert len(story.records) == records, "a heartbeat that changes nothing writes nothing"
    full = story.say("a", 2, owns={"t": [0, 1, 2, 3]}, names=["t"], rebalance_ms=REBALANCE_MS)
    assert told(full) == ALL


def test_a_partition_is_handed_over_only_when_it_was_given_up() -> None:
    story = ConsumerStory()
    story.join("a")
    assert told(story.join("b")) == {}
    assert story.group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert story.group.state == "Reconciling"

    asked = story.say("a", 2)
    assert (asked.member_epoch, told(asked)) == (2, {"1": [0, 1]}), "it stays in its epoch until it gave up"
    assert told(story.say("b", 3)) is None, "not yet"
    still = story.say("a", 2, owns={"t": [0, 1, 2]})
    assert still.member_epoch == 2
    assert told(story.say("b", 3)) is None, "not yet: one of two is still owned"

    done = story.say("a", 2, owns={"t": [0, 1]})
    assert (done.member_epoch, told(done)) == (3, None)
    assert told(story.say("b", 3)) == {"1": [2, 3]}
    assert story.group.state == "Stable"


def test_a_member_that_leaves_frees_what_it_owned() -> None:
    story = ConsumerStory()
    story.join("a")
    story.join("b")
    story.say("a", 2)
    story.say("a", 2, owns={"t": [0, 1]})
    story.say("b", 3)
    left = story.leave("a")
    assert (left.member_id, left.member_epoch, told(left)) == ("a", -1, None)
    answer = story.say("b", 3)
    assert (answer.member_epoch, told(answer)) == (4, ALL)


def test_the_last_member_leaves_an_empty_group_that_is_assigned_at_once_when_a_member_joins() -> None:
    story = ConsumerStory(interval_ms=1_000)
    story.join("a")
    story.leave("a")
    assert story.group.state == "Empty"
    assert (story.group.group_epoch, story.group.assignment_epoch, story.group.assignment_timestamp_ms) == (3, 3, 0)
    assert told(story.join("b")) == ALL


def test_a_silent_member_is_fenced_after_its_session() -> None:
    story = ConsumerStory()
    story.join("a")
    story.join("b")
    story.pass_ms(SESSION_MS - 100)
    story.say("b", 3)
    story.pass_ms(200)
    assert list(story.group.members) == ["b"]
    assert code(story.say("a", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert told(story.say("b", 3)) == ALL


def test_a_member_that_does_not_give_up_in_time_is_fenced() -> None:
    story = ConsumerStory()
    story.join("a", rebalance_ms=10_000)
    story.join("b")
    story.say("a", 2)
    story.pass_ms(6_000)
    story.say("a", 2, owns={"t": [0, 1, 2, 3]})
    story.pass_ms(5_000)
    assert list(story.group.members) == ["b"], "sessions are fine, but it held on for longer than it may"
    assert told(story.say("b", 3)) == ALL


def test_who_gave_up_in_time_is_not_fenced_later() -> None:
    story = ConsumerStory()
    story.join("a", rebalance_ms=10_000)
    story.join("b")
    story.say("a", 2)
    story.say("a", 2, owns={"t": [0, 1]})
    story.pass_ms(20_000)
    assert list(story.group.members) == ["a", "b"]


# ---- epochs


def test_a_lost_answer_is_no_reason_to_be_fenced() -> None:
    story = ConsumerStory()
    story.join("a")
    story.join("b")
    story.say("a", 2)
    lost = story.say("a", 2, owns={"t": [0, 1]})
    assert lost.member_epoch == 3
    again = story.say("a", 2, owns={"t": [0, 1]})
    assert (code(again), again.member_epoch) == (ErrorCode.NONE, 3)


@pytest.mark.parametrize(
    ("epoch", "owns"),
    [
        pytest.param(2, {"t": [0, 1, 2]}, id="owns more than it was given since"),
        pytest.param(2, None, id="does not say what it owns"),
        pytest.param(1, {"t": [0, 1]}, id="an epoch that it never had"),
        pytest.param(4, {"t": [0, 1]}, id="an epoch that does not exist yet"),
    ],
)
def test_a_member_of_another_epoch_is_fenced(epoch: int, owns: dict[str, list[int]] | None) -> None:
    story = ConsumerStory()
    story.join("a")
    story.join("b")
    story.say("a", 2)
    story.say("a", 2, owns={"t": [0, 1]})
    records = len(story.records)
    assert code(story.say("a", epoch, owns=owns)) is ErrorCode.FENCED_MEMBER_EPOCH
    assert len(story.records) == records


def test_a_join_that_is_repeated_because_its_answer_was_lost_is_the_same_join() -> None:
    story = ConsumerStory()
    story.join("a")
    again = story.join("a")
    assert (code(again), again.member_epoch, told(again)) == (ErrorCode.NONE, 2, ALL)
    assert story.group.group_epoch == 2


@pytest.mark.parametrize("instance_id", [None, "i"])
def test_a_member_that_was_fenced_joins_again_under_its_own_id_and_keeps_what_was_its(instance_id: str | None) -> None:
    story = ConsumerStory()
    story.join("a", instance_id=instance_id)
    story.join("b")
    story.say("a", 2, instance_id=instance_id)
    story.say("a", 2, owns={"t": [0, 1]}, instance_id=instance_id)
    assert code(story.say("a", 9, instance_id=instance_id)) is ErrorCode.FENCED_MEMBER_EPOCH
    again = story.join("a", instance_id=instance_id)
    assert (code(again), again.member_epoch, told(again)) == (ErrorCode.NONE, 3, {"1": [0, 1]})
    assert story.group.group_epoch == 3, "no other member noticed"


# ---- static members


def test_a_static_member_comes_back_under_another_id_to_what_it_owned() -> None:
    story = ConsumerStory()
    story.join("a", instance_id="i")
    story.join("b")
    story.say("a", 2, instance_id="i")
    story.say("a", 2, owns={"t": [0, 1]}, instance_id="i")
    story.say("b", 3)
    away = story.say("a", -2, instance_id="i")
    assert (away.member_id, away.member_epoch) == ("a", -2)
    assert told(story.say("b", 3)) is None, "no member gets what is kept"
    back = story.join("a2", instance_id="i")
    assert (back.member_epoch, told(back)) == (3, {"1": [0, 1]})
    assert story.group.group_epoch == 3, "no other member noticed"
    assert code(story.say("a", 3, instance_id="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert code(story.say("a", 3)) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_static_member_that_stays_away_loses_its_seat() -> None:
    story = ConsumerStory()
    story.join("a", instance_id="i")
    story.say("a", -2, instance_id="i")
    story.pass_ms(SESSION_MS + 1)
    assert story.group.state == "Empty"
    assert story.group.static_members == {}


def test_a_seat_that_is_taken_is_not_given_away() -> None:
    story = ConsumerStory()
    story.join("a", instance_id="i")
    assert code(story.join("b", instance_id="i")) is ErrorCode.UNRELEASED_INSTANCE_ID
    assert list(story.group.members) == ["a"]


def test_a_seat_is_free_for_who_comes_back_also_in_a_full_group() -> None:
    story = ConsumerStory(consumer_group_size_max=1)
    story.join("a", instance_id="i")
    story.say("a", -2, instance_id="i")
    assert code(story.join("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert told(story.join("a2", instance_id="i")) == ALL


def test_a_static_member_that_goes_while_it_gives_up_has_given_up() -> None:
    story = ConsumerStory()
    story.join("a", instance_id="i")
    story.join("b")
    story.say("a", 2, instance_id="i")
    story.say("a", -2, instance_id="i")
    assert told(story.say("b", 3)) == {"1": [2, 3]}
    story.restart()
    back = story.join("a2", instance_id="i")
    assert (back.member_epoch, told(back)) == (3, {"1": [0, 1]})
    assert story.group.state == "Stable"


def test_unknown_instance_ids() -> None:
    story = ConsumerStory()
    story.join("a", instance_id="i")
    assert code(story.say("a", 2, instance_id="j")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(story.leave("b", instance_id="i")) is ErrorCode.FENCED_INSTANCE_ID
    assert code(story.leave("a", instance_id="i")) is ErrorCode.NONE


# ---- subscriptions and topics


def test_a_topic_that_is_made_later_is_assigned_when_it_is_there() -> None:
    story = ConsumerStory(topics={})
    assert told(story.join("a", names=["t"])) == {}
    story.topics.make("t", 2)
    story.topics_changed("t")
    answer = story.say("a", 2)
    assert (answer.member_epoch, told(answer)) == (3, {"1": [0, 1]})


def test_partitions_that_are_added_are_assigned() -> None:
    story = ConsumerStory()
    story.join("a")
    story.topics.grow("t", 6)
    story.topics_changed("t")
    assert told(story.say("a", 2)) == {"1": [0, 1, 2, 3, 4, 5]}


def test_topics_of_others_cost_no_epoch() -> None:
    story = ConsumerStory()
    story.join("a")
    story.topics.make("other", 6)
    story.topics_changed("other")
    assert story.say("a", 2).member_epoch == 2
    assert story.group.group_epoch == 2


def test_a_topic_that_changed_without_a_coordinator_is_seen_by_the_next_one() -> None:
    story = ConsumerStory()
    story.join("a")
    story.topics.grow("t", 5)
    story.restart()
    assert told(story.say("a", 2)) == {"1": [0, 1, 2, 3, 4]}


def test_a_deleted_topic_is_taken_away() -> None:
    story = ConsumerStory(topics={"t": 2, "u": 2})
    story.join("a", names=["t", "u"])
    del story.topics.facts["u"]
    story.topics_changed("u")
    assert told(story.say("a", 2)) == {"1": [0, 1]}
    assert story.say("a", 2, owns={"t": [0, 1]}).member_epoch == 3


def test_who_subscribes_to_something_else_gives_up_first() -> None:
    story = ConsumerStory(topics={"t": 2, "u": 2})
    story.join("a", names=["t"])
    answer = story.say("a", 2, names=["u"], owns={"t": [0, 1]})
    assert (answer.member_epoch, told(answer)) == (2, {})
    done = story.say("a", 2, owns={})
    assert (done.member_epoch, told(done)) == (3, {"2": [0, 1]})


def test_who_unsubscribes_gives_up_although_the_next_assignment_is_not_due() -> None:
    story = ConsumerStory(interval_ms=60_000, topics={"t": 2, "u": 2})
    story.join("a", names=["t", "u"])
    answer = story.say("a", 2, names=["t"], owns={"t": [0, 1], "u": [0, 1]})
    assert told(answer) == {"1": [0, 1]}
    assert story.group.group_epoch > story.group.assignment_epoch


def test_a_group_without_subscriptions() -> None:
    story = ConsumerStory()
    answer = story.join("a", names=[])
    assert (code(answer), told(answer)) == (ErrorCode.NONE, {})


def test_a_subscription_of_ten_thousand_topics() -> None:
    story = ConsumerStory()
    names = [f"t{number}" for number in range(10_000)]
    assert code(story.join("a", names=names)) is ErrorCode.NONE
    assert story.group.members["a"].subscribed_topic_names == frozenset(names)


def test_a_pattern_finds_topics_that_are_made_later() -> None:
    story = ConsumerStory(topics={"ta": 1, "u": 1})
    assert told(story.join("a", pattern="t.*")) == {"1": [0]}
    story.topics.make("tb", 1)
    story.topics_changed("tb")
    assert told(story.say("a", 2)) == {"1": [0], "3": [0]}
    story.restart()
    assert told(story.say("a", 3)) is None
    answer = story.say("a", 3, pattern="", names=["u"], owns={"ta": [0], "tb": [0]})
    assert told(answer) == {}
    assert story.group.regexes == {}


# ---- assignors and the interval


def test_most_members_choose_the_assignor() -> None:
    story = ConsumerStory()
    story.join("a", assignor="range")
    assert story.describe().assignor_name == "range"
    story.join("b", assignor="uniform")
    story.join("c", assignor="uniform")
    assert story.describe().assignor_name == "uniform"


def test_who_names_no_assignor_gets_the_first_of_the_broker() -> None:
    story = ConsumerStory(consumer_assignors=("range", "uniform"))
    story.join("a")
    assert story.describe().assignor_name == "range"


def test_an_assignor_of_another_coordinator_counts_for_nothing() -> None:
    story = ConsumerStory()
    story.join("a", assignor="range")
    story.config = dataclasses.replace(story.config, consumer_assignors=("uniform",))
    story.restart()
    story.topics.grow("t", 5)
    story.topics_changed("t")
    assert told(story.say("a", 2)) == {"1": [0, 1, 2, 3, 4]}
    assert story.describe().assignor_name == "uniform"


def test_members_that_come_within_the_interval_are_assigned_together() -> None:
    story = ConsumerStory(interval_ms=1_000)
    story.join("a")
    early = story.join("b")
    assert (early.member_epoch, told(early)) == (2, {}), "let in, in the epoch of the assignment that stands"
    assert story.group.state == "Assigning"
    story.pass_ms(1_000)
    late = story.join("c")
    assert late.member_epoch == 4
    assert {member_id: sum(map(len, each.values())) for member_id, each in story.group.target.items()} == {
        "a": 2,
        "b": 1,
        "c": 1,
    }


# ---- what is refused


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"group_id": ""}, "GroupId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack": ""}, "RackId can't be empty."),
        ({"member_id": ""}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": 3}, "MemberId can't be empty."),
        ({"member_id": "", "epoch": -1, "api_version": 0}, "MemberId can't be empty."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"rebalance_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owns": None}, "TopicPartitions must be empty when (re-)joining."),
        ({"owns": {"t": [0]}}, "TopicPartitions must be empty when (re-)joining."),
    ],
)
def test_malformed_requests(request_: dict[str, object], message: str) -> None:
    story = ConsumerStory()
    whole = {"member_id": "a", "epoch": 0, "owns": {}, "names": ["t"], "rebalance_ms": 5, **request_}
    answer = story.say(**whole)  # type: ignore[arg-type]
    assert (code(answer), answer.error_message) == (ErrorCode.INVALID_REQUEST, message)
    assert not story.records
    assert not story.shard.groups


def test_refusals_leave_nothing_behind() -> None:
    story = ConsumerStory(consumer_group_size_max=1)
    assert code(story.join("a", assignor="magic")) is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert code(story.say("a", 5)) is ErrorCode.GROUP_ID_NOT_FOUND
    assert code(story.leave("a")) is ErrorCode.GROUP_ID_NOT_FOUND
    assert not story.shard.groups
    story.join("a")
    assert code(story.join("b")) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert code(story.say("b", 2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code(story.leave("b")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert list(story.group.members) == ["a"]


def test_a_broker_that_does_not_serve_the_protocol() -> None:
    story = ConsumerStory(is_consumer_protocol_enabled=False)
    assert code(story.join("a")) is ErrorCode.UNSUPPORTED_VERSION
    assert story.describe().error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_pattern_that_is_none() -> None:
    story = ConsumerStory()
    assert code(story.join("a", pattern="[")) is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert not story.shard.groups


def test_version_0_gets_a_member_id_of_the_coordinator() -> None:
    story = ConsumerStory()
    answer = story.join("", api_version=0)
    assert answer.member_id
    assert list(story.group.members) == [answer.member_id]


# ---- offsets


def test_only_a_member_of_the_present_epoch_moves_the_position() -> None:
    story = ConsumerStory()
    story.join("a")
    assert story.commit("a", 2, 10) is ErrorCode.NONE
    assert story.commit("a", 3, 11) is ErrorCode.STALE_MEMBER_EPOCH
    assert story.commit("a", 1, 11) is ErrorCode.STALE_MEMBER_EPOCH
    assert story.commit("z", 2, 11) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.commit("", -1, 11) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.commit("a", 2, 11, api_version=8) is ErrorCode.UNSUPPORTED_VERSION
    assert story.fetch().topics[0].partitions[0].committed_offset == 10


def test_who_has_not_heard_of_its_new_epoch_may_commit_what_it_has_owned_since_before() -> None:
    story = ConsumerStory()
    story.join("a")
    story.join("b")
    story.say("a", 2)
    story.say("a", 2, owns={"t": [0, 1]})
    story.say("b", 3)
    assert story.commit("a", 2, 5, partition=0) is ErrorCode.NONE
    assert story.commit("a", 2, 5, partition=2) is ErrorCode.STALE_MEMBER_EPOCH, "that is another's now"
    assert story.commit("b", 2, 5, partition=2) is ErrorCode.STALE_MEMBER_EPOCH, "it was given it later"
    assert story.commit("b", 3, 6, partition=2) is ErrorCode.NONE


def test_a_commit_that_was_under_way_when_its_partition_went_to_another_is_refused() -> None:
    """The member stays in its epoch, because it has to give up more, so the epoch alone would not tell."""
    story = ConsumerStory()
    story.join("a")
    story.join("b")
    story.say("a", 2)
    story.join("c")
    story.join("d")
    still = story.say("a", 2, owns={"t": [0, 1]})
    assert (still.member_epoch, told(still)) == (2, {"1": [0]})
    got = story.say("b", 3)
    (given,) = told(got)["1"]  # type: ignore[index]
    assert story.commit("a", 2, 5, partition=given) is ErrorCode.STALE_MEMBER_EPOCH
    assert story.commit("a", 2, 5, partition=1) is ErrorCode.NONE, "that one it is still giving up"
    assert story.commit("b", got.member_epoch, 5, partition=given) is ErrorCode.NONE


def test_unowned_partitions_may_be_committed_by_any_member() -> None:
    story = ConsumerStory(topics={"t": 2, "u": 1})
    story.join("a")
    assert story.commit("a", 2, 5, topic="u") is ErrorCode.NONE


def test_anybody_moves_the_positions_of_an_empty_group() -> None:
    story = ConsumerStory()
    story.join("a")
    story.leave("a")
    assert story.commit("", -1, 7) is ErrorCode.NONE
    assert story.commit("a", 2, 8) is ErrorCode.UNKNOWN_MEMBER_ID
    assert story.fetch().topics[0].partitions[0].committed_offset == 7


def test_who_may_fetch() -> None:
    story = ConsumerStory()
    story.join("a")
    assert story.fetch().error_code == ErrorCode.NONE
    assert story.fetch("a", 2).error_code == ErrorCode.NONE
    assert story.fetch("a", 1).error_code == ErrorCode.STALE_MEMBER_EPOCH
    assert story.fetch("z", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


# ---- describe and the log


def test_describe() -> None:
    story = ConsumerStory()
    story.join("a", instance_id="i", rack="r")
    story.join("b")
    group = story.describe()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 3, 3)
    first, second = group.members
    assert (first.member_id, first.instance_id, first.rack_id, first.member_epoch) == ("a", "i", "r", 2)
    assert first.subscribed_topic_names == ["t"]
    assert [(each.topic_name, each.partitions) for each in first.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert [each.partitions for each in first.target_assignment.topic_partitions] == [[0, 1]]
    assert second.assignment.topic_partitions == []
    assert (first.member_type, second.member_type) == (1, 1)
    nobody = story.describe("nobody")
    assert (nobody.error_code, nobody.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group nobody not found.")


def test_sessions_restart_with_another_coordinator() -> None:
    story = ConsumerStory()
    story.join("a", rebalance_ms=20_000)
    story.join("b")
    story.say("a", 2)
    story.pass_ms(15_000)
    story.restart()
    story.pass_ms(15_000)
    assert list(story.group.members) == ["a", "b"]
    story.pass_ms(6_000)
    assert list(story.group.members) == ["b"], "the rebalance timeout restarts, too, and ends"
    story.pass_ms(SESSION_MS)
    assert story.group.state == "Empty"


def test_the_records_of_a_member_go_in_the_order_that_kafka_insists_on() -> None:
    story = ConsumerStory()
    story.join("a")
    before = len(story.records)
    story.leave("a")
    keys = [type(decode_coordinator_record(key, value)[0]).__name__ for key, value in story.records[before:]]
    assert keys == [
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
    ]
    assert story.group.group_id == GROUP
