"""Committed offsets: what is kept, what is asked for, and what a topic's end takes along."""

from __future__ import annotations

from uuid import UUID

from tests.unit.coordinators.story import Story

from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestTopics
from strandline.coordinators.groups.events import CommitOffsets, TopicDeleted
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID

OLD, NEW = UUID(int=1), UUID(int=2)


def commit_by_id(story: Story, topic_id: UUID, *offsets: int) -> None:
    partitions = [
        OffsetCommitRequestPartition(partition_index=index, committed_offset=offset)
        for index, offset in enumerate(offsets)
    ]
    request = OffsetCommitRequest(
        group_id=story.group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", topic_id=topic_id, partitions=partitions)],
    )
    story.step(CommitOffsets(story.call("job"), request, 10))


def fetch_by_id(story: Story, topic_id: UUID) -> int:
    topics = [OffsetFetchRequestTopics(name="t", topic_id=topic_id, partition_indexes=[0])]
    return story.fetch(topics).topics[0].partitions[0].committed_offset


def test_what_was_committed_is_fetched_whole() -> None:
    story = Story()
    story.commit("job", 17, generation_id=-1, member_id="", metadata="from batch 3")
    asked = [OffsetFetchRequestTopics(name="t", partition_indexes=[0, 1])]
    known, unknown = story.fetch(asked).topics[0].partitions
    assert (known.committed_offset, known.committed_leader_epoch, known.metadata) == (17, 4, "from batch 3")
    assert (unknown.committed_offset, unknown.committed_leader_epoch, unknown.metadata) == (-1, -1, "")
    assert unknown.error_code == ErrorCode.NONE


def test_all_offsets_of_a_group() -> None:
    story = Story()
    for topic, partition in (("t", 0), ("t", 2), ("u", 1)):
        story.commit("job", 10 + partition, generation_id=-1, member_id="", topic=topic, partition=partition)
    fetched = story.fetch(None)
    assert {
        (topic.name, partition.partition_index): partition.committed_offset
        for topic in fetched.topics
        for partition in topic.partitions
    } == {("t", 0): 10, ("t", 2): 12, ("u", 1): 11}


def test_a_group_that_is_unknown_has_no_offsets_and_is_not_made() -> None:
    story = Story()
    assert story.fetch(None).topics == []
    assert story.committed() == -1
    assert story.shard.groups == {}


def test_a_topic_made_again_under_its_name_inherits_no_positions() -> None:
    story = Story()
    commit_by_id(story, OLD, 100)
    assert fetch_by_id(story, OLD) == 100
    assert fetch_by_id(story, NEW) == -1
    story.restart()
    assert fetch_by_id(story, NEW) == -1, "the id is in the record"
    assert fetch_by_id(story, ZERO_UUID) == 100
    commit_by_id(story, NEW, 3)
    assert fetch_by_id(story, NEW) == 3


def test_all_offsets_tell_the_topics_apart() -> None:
    story = Story()
    commit_by_id(story, OLD, 100, 101)
    commit_by_id(story, NEW, 3)
    assert {
        (topic.topic_id, partition.partition_index): partition.committed_offset
        for topic in story.fetch(None).topics
        for partition in topic.partitions
    } == {(NEW, 0): 3, (OLD, 1): 101}


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    story = Story()
    story.commit("job", 1, generation_id=-1, member_id="", topic="t")
    story.commit("job", 2, generation_id=-1, member_id="", topic="u")
    story.told()
    story.step(TopicDeleted("t", OLD))
    assert story.told() == ["log: orders t-0 = tombstone"]
    story.restart()
    assert (story.committed(topic="t"), story.committed(topic="u")) == (-1, 2)
    story.step(TopicDeleted("u", OLD))
    assert story.shard.groups == {}, "a simple group is its offsets"
    story.told()
    story.step(TopicDeleted("u", OLD))
    assert story.told() == []


def test_a_late_deletion_spares_the_positions_of_the_next_topic() -> None:
    story = Story()
    commit_by_id(story, OLD, 100, 101)
    commit_by_id(story, NEW, 7)
    story.told()
    story.step(TopicDeleted("t", OLD))
    assert story.told() == ["log: orders t-1 = tombstone"]
    assert fetch_by_id(story, NEW) == 7
    story.restart()
    assert fetch_by_id(story, NEW) == 7
    story.step(TopicDeleted("t", OLD))
    assert story.told() == ["-- restart --"], "the next coordinator was late as well"
    story.step(TopicDeleted("t", NEW))
    assert fetch_by_id(story, NEW) == -1


def test_a_position_without_a_topic_id_goes_with_the_topic_of_that_name() -> None:
    """Its record is of an Apache Kafka broker before 4.1, or has an expiry: it would fit the next topic, too."""
    story = Story()
    commit_by_id(story, ZERO_UUID, 100)
    story.step(TopicDeleted("t", OLD))
    assert fetch_by_id(story, NEW) == -1


def test_a_position_with_an_expiry_outlives_the_late_deletion_of_an_earlier_topic() -> None:
    story = Story()
    story.commit("job", 7, topic_id=NEW, generation_id=-1, retention_ms=60_000)
    story.step(TopicDeleted("t", OLD))
    assert fetch_by_id(story, NEW) == 7
    assert fetch_by_id(story, OLD) == -1
    story.step(TopicDeleted("t", NEW))
    assert fetch_by_id(story, NEW) == -1


def test_a_retention_time_of_an_old_client_is_kept_with_the_offset() -> None:
    story = Story()
    story.commit("job", 1, generation_id=-1, member_id="", retention_ms=60_000)
    committed = story.shard.offsets.get("orders", "t", 0)
    assert committed is not None
    assert committed.expire_timestamp == committed.commit_timestamp + 60_000
    story.restart()
    assert story.shard.offsets.get("orders", "t", 0) == committed


def test_metadata_up_to_the_limit_is_kept() -> None:
    story = Story(offset_metadata_size_max=8)
    assert story.commit("job", 1, generation_id=-1, member_id="", metadata="12345678") is ErrorCode.NONE
    assert story.commit("job", 1, generation_id=-1, member_id="", metadata="🌊🌊🌊🌊") is ErrorCode.NONE
    assert story.commit("job", 2, generation_id=-1, member_id="", metadata="123456789") is (
        ErrorCode.OFFSET_METADATA_TOO_LARGE
    )
    assert story.committed() == 1


def test_a_commit_is_a_sign_of_life() -> None:
    story = Story()
    story.enter("A")
    story.pass_ms(3_000)
    story.sync("A", {"A": b"p0"})
    for offset in range(5):
        story.pass_ms(9_000)
        assert story.commit("A", offset) is ErrorCode.NONE
