"""Offsets of transactions: pending until the marker, protected, hidden, and fenced by the group."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import pytest
from tests.unit.coordinators.story import SESSION_MS, Story
from tests.unit.coordinators.test_group_admin import stable

from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestTopics
from strandline.codec.messages.offset_fetch_response import OffsetFetchResponsePartitions
from strandline.coordinators.groups.consumer.consumer_group import ConsumerGroup, ConsumerMember
from strandline.coordinators.groups.events import DeleteGroup, DeleteOffsets, TopicDeleted
from strandline.coordinators.offsets.transactional_offsets import commit_error
from strandline.errors import ErrorCode

E = ErrorCode
OLD, NEW = UUID(int=1), UUID(int=2)
RETENTION_MS = 3_600_000
CHECK_MS = 60_000


@pytest.fixture
def story() -> Story:
    return Story(offsets_retention_ms=RETENTION_MS, offsets_retention_check_interval_ms=CHECK_MS)


def stable_partition(story: Story, partition: int = 0) -> OffsetFetchResponsePartitions:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[partition])]
    return story.fetch(topics, require_stable=True).topics[0].partitions[0]


# ---- until the marker, and from it on


def test_an_offset_counts_from_the_commit_of_its_transaction_on(story: Story) -> None:
    story.commit("job", 3, generation_id=-1)
    assert story.commit_in_transaction(7, 10) is E.NONE
    assert story.committed() == 3
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 10
    assert story.told() == [
        "log: orders t-0 = 3",
        "job: commit NONE",
        "log: orders t-0 = 10, by 7",
        "producer 7: commit NONE",
    ]


def test_an_offset_of_an_aborted_transaction_never_counts(story: Story) -> None:
    story.commit("job", 3, generation_id=-1)
    story.commit_in_transaction(7, 10)
    story.end_transaction(7, is_commit=False)
    assert story.committed() == 3
    assert stable_partition(story).committed_offset == 3


def test_the_last_offset_of_a_transaction_is_the_one(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    story.commit_in_transaction(7, 12)
    story.commit_in_transaction(7, 5, partition=1)
    story.end_transaction(7, is_commit=True)
    assert (story.committed(), story.committed(partition=1)) == (12, 5)


def test_a_transaction_ends_for_its_own_producer_only(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    story.commit_in_transaction(8, 20, partition=1)
    story.end_transaction(9, is_commit=True)
    story.end_transaction(8, is_commit=True)
    assert (story.committed(), story.committed(partition=1)) == (-1, 20)


def test_a_marker_that_comes_twice_ends_once(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    story.end_transaction(7, is_commit=True)
    story.commit("job", 3, generation_id=-1)
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 3


@pytest.mark.parametrize("first", [7, 8])
def test_of_two_transactions_the_later_record_wins_whichever_ends_first(story: Story, first: int) -> None:
    story.commit_in_transaction(7, 10)
    story.commit_in_transaction(8, 5)
    story.end_transaction(first, is_commit=True)
    story.end_transaction(15 - first, is_commit=True)
    assert story.committed() == 5


def test_an_earlier_record_wins_if_the_later_one_is_aborted(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    story.commit_in_transaction(8, 5)
    story.end_transaction(8, is_commit=False)
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 10


def test_a_plain_commit_behind_it_wins(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    story.commit("job", 3, generation_id=-1)
    assert stable_partition(story).error_code == E.UNSTABLE_OFFSET_COMMIT
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 3


@pytest.mark.parametrize("is_commit", [True, False])
def test_another_coordinator_goes_on_in_the_middle(story: Story, is_commit: bool) -> None:
    story.commit("job", 3, generation_id=-1)
    story.commit_in_transaction(7, 10)
    story.restart()
    assert stable_partition(story).error_code == E.UNSTABLE_OFFSET_COMMIT
    story.commit_in_transaction(7, 11, partition=1)
    story.end_transaction(7, is_commit=is_commit)
    story.restart()
    assert (story.committed(), story.committed(partition=1)) == ((10, 11) if is_commit else (3, -1))


def test_metadata_too_large_is_refused_and_the_rest_is_taken(story: Story) -> None:
    assert story.commit_in_transaction(7, 10, metadata="x" * 4097) is E.OFFSET_METADATA_TOO_LARGE
    assert story.told() == ["producer 7: commit OFFSET_METADATA_TOO_LARGE"]
    assert not story.shard.groups
    story.commit_in_transaction(7, 10, metadata="x" * 4096)
    story.end_transaction(7, is_commit=True)
    value = story.shard.offsets.get("orders", "t", 0)
    assert value is not None
    assert (value.metadata, value.leader_epoch) == ("x" * 4096, 4)


# ---- who asks for stable offsets only


def test_only_who_asks_for_stable_offsets_is_kept_waiting(story: Story) -> None:
    story.commit("job", 3, generation_id=-1)
    story.commit("job", 4, generation_id=-1, partition=1)
    story.commit_in_transaction(7, 10)
    waits = stable_partition(story)
    assert (waits.error_code, waits.committed_offset, waits.metadata) == (E.UNSTABLE_OFFSET_COMMIT, -1, "")
    assert stable_partition(story, 1).committed_offset == 4
    listed = {p.partition_index: p for p in story.fetch(require_stable=True).topics[0].partitions}
    assert [(p.committed_offset, p.error_code) for p in listed.values()] == [(-1, E.UNSTABLE_OFFSET_COMMIT), (4, 0)]
    listed = {p.partition_index: p for p in story.fetch().topics[0].partitions}
    assert [(p.committed_offset, p.error_code) for p in listed.values()] == [(3, 0), (4, 0)]


def test_pending_offsets_are_not_listed(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    assert story.fetch().topics == []
    assert story.fetch(require_stable=True).topics == []
    assert stable_partition(story).error_code == E.UNSTABLE_OFFSET_COMMIT


# ---- what is pending protects


def test_a_group_is_not_forgotten_while_a_transaction_is_open(story: Story) -> None:
    story.commit("job", 3, generation_id=-1)
    story.commit("job", 4, generation_id=-1, partition=1)
    story.commit_in_transaction(7, 10)
    story.pass_ms(2 * RETENTION_MS)
    assert (story.committed(), story.committed(partition=1)) == (3, -1)
    story.end_transaction(7, is_commit=False)
    story.pass_ms(2 * CHECK_MS)
    assert not story.shard.groups


def test_a_group_without_an_offset_is_not_forgotten_either(story: Story) -> None:
    stable(story, "t")
    story.leave("A")
    story.commit_in_transaction(7, 10)
    story.pass_ms(2 * RETENTION_MS)
    assert "orders" in story.shard.groups
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 10


def test_a_group_that_came_with_a_transaction_goes_with_its_abort(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    assert "orders" in story.shard.groups
    story.restart()
    assert "orders" in story.shard.groups
    story.end_transaction(7, is_commit=False)
    assert not story.shard.groups


# ---- what is deleted does not come back with the marker


def delete_group(story: Story) -> None:
    story.step(DeleteGroup(story.call("admin"), "orders"))


def delete_offset(story: Story) -> None:
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    story.step(DeleteOffsets(story.call("admin"), OffsetDeleteRequest(group_id="orders", topics=[topic])))


def delete_topic(story: Story) -> None:
    story.step(TopicDeleted("t", OLD))


@pytest.mark.parametrize("has_committed", [True, False])
@pytest.mark.parametrize("delete", [delete_group, delete_offset, delete_topic])
def test_what_is_deleted_stays_so(story: Story, delete: Callable[[Story], None], has_committed: bool) -> None:
    if has_committed:
        story.commit("job", 3, generation_id=-1)
    story.commit_in_transaction(7, 10)
    story.told()
    delete(story)
    assert [line for line in story.told() if "t-0" in line] == ["log: orders t-0 = tombstone"]
    assert stable_partition(story).error_code == E.NONE
    story.end_transaction(7, is_commit=True)
    assert story.committed() == -1
    story.restart()
    assert story.committed() == -1


def test_a_transaction_may_commit_again_what_was_deleted_under_it(story: Story) -> None:
    story.commit_in_transaction(7, 10)
    delete_group(story)
    story.commit_in_transaction(7, 11)
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 11


# ---- who may commit


def test_a_producer_is_fenced_with_the_member_it_commits_for(story: Story) -> None:
    stable(story, "t")
    commit = story.commit_in_transaction
    generation = story.client("A").generation_id
    assert commit(7, 1, name="A") is E.NONE
    assert commit(7, 2, name="A", generation_id=generation - 1) is E.ILLEGAL_GENERATION
    assert commit(7, 2, name="A", generation_id=generation + 1) is E.ILLEGAL_GENERATION
    assert commit(7, 2, name="A", generation_id=-1) is E.ILLEGAL_GENERATION
    assert commit(7, 2, name="A", member_id="somebody") is E.UNKNOWN_MEMBER_ID
    assert commit(7, 2, name="A", member_id="") is E.UNKNOWN_MEMBER_ID
    story.end_transaction(7, is_commit=True)
    assert story.committed() == 1


def test_a_producer_that_names_no_member_may_always(story: Story) -> None:
    """As those before KIP-447: their transactional id stands for the partitions that they read."""
    stable(story, "t")
    assert story.commit_in_transaction(7, 1) is E.NONE


def test_a_generation_may_commit_before_its_assignment(story: Story) -> None:
    stable(story, "t")
    story.enter("B")
    story.join("A")
    assert story.shard.groups["orders"].state == "CompletingRebalance"
    assert story.commit("A", 5) is E.REBALANCE_IN_PROGRESS
    assert story.commit_in_transaction(7, 5, name="A") is E.NONE


def test_an_instance_that_was_taken_over_is_fenced(story: Story) -> None:
    story.client("A", instance_id="one")
    stable(story, "t")
    story.client("B", instance_id="one")
    story.join("B")
    assert story.commit_in_transaction(7, 5, name="A") is E.FENCED_INSTANCE_ID


def test_a_group_that_is_not_there(story: Story) -> None:
    assert story.commit_in_transaction(7, 5, generation_id=3, member_id="A") is E.ILLEGAL_GENERATION
    assert not story.shard.groups
    assert story.commit_in_transaction(7, 5, generation_id=-1, member_id="A") is E.NONE


def test_an_empty_group_knows_no_generation(story: Story) -> None:
    stable(story, "t")
    story.leave("A")
    assert story.commit_in_transaction(7, 5, name="A") is E.UNKNOWN_MEMBER_ID
    assert story.commit_in_transaction(7, 5) is E.NONE


def test_a_transactional_commit_is_no_sign_of_life(story: Story) -> None:
    stable(story, "t")
    story.pass_ms(SESSION_MS // 2)
    assert story.commit_in_transaction(7, 5, name="A") is E.NONE
    story.pass_ms(SESSION_MS // 2 + 1)
    assert story.commit_in_transaction(7, 5, name="A") is E.UNKNOWN_MEMBER_ID


TOPIC_ID = UUID(int=7)


@pytest.mark.parametrize(
    ("member_id", "epoch", "partition", "expected"),
    [
        ("A", 5, 0, E.NONE),
        ("A", 5, 3, E.NONE),
        ("A", 4, 0, E.NONE),
        ("A", 3, 0, E.ILLEGAL_GENERATION),
        ("A", 4, 3, E.ILLEGAL_GENERATION),
        ("A", 6, 0, E.ILLEGAL_GENERATION),
        ("A", 5, 1, E.ILLEGAL_GENERATION),
        ("A", -1, 0, E.ILLEGAL_GENERATION),
        ("C", 5, 0, E.UNKNOWN_MEMBER_ID),
        ("", -1, 1, E.NONE),
        ("", -2, 0, E.UNKNOWN_MEMBER_ID),
        ("", 5, 0, E.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_group_of_the_consumer_protocol_fences_by_epoch(
    member_id: str, epoch: int, partition: int, expected: ErrorCode
) -> None:
    """A has partition 0 since epoch 4 and B has partition 1; both are in epoch 5."""
    group = ConsumerGroup("orders")
    for name, index in (("A", 0), ("B", 1)):
        member = ConsumerMember(name)
        member.member_epoch = 5
        member.assigned = {TOPIC_ID: {index: 4}}
        group.members[name] = member
    group.owners = {TOPIC_ID: {0: "A", 1: "B"}}
    committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=1)
    request = OffsetCommitRequest(
        group_id="orders",
        generation_id_or_member_epoch=epoch,
        member_id=member_id,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=TOPIC_ID, partitions=[committed])],
    )
    assert commit_error(group, request) is expected
    group.members.clear()
    assert commit_error(group, request) is (E.NONE if epoch < 0 else E.UNKNOWN_MEMBER_ID)


# ---- a topic is deleted and made again while transactions are open


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_pending_position_of_the_next_topic_outlives_a_late_deletion(story: Story, is_restarted: bool) -> None:
    story.commit("job", 100, topic_id=OLD, generation_id=-1)
    story.commit_in_transaction(7, 3, topic_id=NEW)
    if is_restarted:
        story.restart()
    story.told()
    story.step(TopicDeleted("t", OLD))
    assert story.told() == [], "a tombstone would take the pending position along"
    assert story.committed(topic_id=NEW) == -1
    story.end_transaction(7, is_commit=True)
    assert story.committed(topic_id=NEW) == 3
    story.restart()
    assert story.committed(topic_id=NEW) == 3


def test_a_pending_position_of_the_topic_before_never_comes_back(story: Story) -> None:
    story.commit_in_transaction(7, 100, topic_id=OLD)
    story.commit("job", 3, topic_id=NEW, generation_id=-1)
    story.step(TopicDeleted("t", OLD))
    story.end_transaction(7, is_commit=True)
    assert story.committed(topic_id=NEW) == 3
    story.restart()
    assert story.committed(topic_id=NEW) == 3
