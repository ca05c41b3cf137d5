"""A commit of thousands of partitions is made in parts, a share per turn, and answered once."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.unit.coordinators.world import World

from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestGroup
from strandline.errors import DiskFailed, ErrorCode
from strandline.handlers import k08_offset_commit, k09_offset_fetch

TOPICS, PARTITIONS = ("a", "b", "c"), 450


class Weary:
    """A clock that goes on by ten milliseconds whenever it is read: every slice is one step long."""

    def __init__(self, world: World) -> None:
        self._clock = world.clock
        world.clock.monotonic = self._look  # type: ignore[method-assign]

    def _look(self) -> float:
        self._clock.time_s += 0.01
        return self._clock.time_s


@pytest.fixture
def world() -> World:
    made = World()
    for name in TOPICS:
        made.make_topic(name, partition_count=PARTITIONS)
    # The first request for a group loads its shard.
    made.ask(k09_offset_fetch, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8)
    made.clock.run()
    return made


def commit_all() -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[
                    OffsetCommitRequestPartition(partition_index=index, committed_offset=1000 + index)
                    # One partition of each is not there: its refusal goes into the same entry.
                    for index in range(PARTITIONS + 1)
                ],
            )
            for name in TOPICS
        ],
    )


def codes(response: object) -> dict[tuple[str, int], int]:
    topics = response.topics  # type: ignore[attr-defined]
    assert [topic.name for topic in topics] == list(TOPICS), "one entry for each topic"
    return {(topic.name, each.partition_index): each.error_code for topic in topics for each in topic.partitions}


def expected(code: ErrorCode) -> dict[tuple[str, int], int]:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return {(name, at): unknown if at == PARTITIONS else code for name in TOPICS for at in range(PARTITIONS + 1)}


@pytest.mark.parametrize("is_weary", [False, True])
def test_every_partition_is_committed_and_answered_once(world: World, is_weary: bool) -> None:
    if is_weary:
        Weary(world)
    asked = world.ask(k08_offset_commit, commit_all(), 9)
    assert not asked.is_answered
    world.clock.run(10)
    assert codes(asked.response) == expected(ErrorCode.NONE)
    if is_weary:
        # Each part was written in a turn of its own; without haste they share one batch.
        assert world.partition_of("g").record_counts == [500, 500, 350]
    fetched = world.ask(
        k09_offset_fetch, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)]), 8
    )
    world.clock.run(10)
    (group,) = fetched.response.groups
    assert {(t.name, p.partition_index): p.committed_offset for t in group.topics for p in t.partitions} == {
        (name, index): 1000 + index for name in TOPICS for index in range(PARTITIONS)
    }


@pytest.mark.parametrize("is_weary", [False, True])
def test_a_failed_append_refuses_every_part_that_waits(world: World, is_weary: bool) -> None:
    if is_weary:
        Weary(world)
    world.partition_of("g").error = DiskFailed("no more")
    asked = world.ask(k08_offset_commit, commit_all(), 9)
    world.clock.run(10)
    told = codes(asked.response)
    assert {code for (_, index), code in told.items() if index < PARTITIONS} <= {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    }
    assert len(told) == len(expected(ErrorCode.NONE))


def test_parts_have_every_partition_in_its_order() -> None:
    request = commit_all()
    parts = list(k08_offset_commit.parts_of(request))
    assert [sum(len(topic.partitions) for topic in part.topics) for part in parts] == [500, 500, 353]
    flat = [(t.name, p.partition_index) for part in parts for t in part.topics for p in t.partitions]
    assert flat == [(t.name, p.partition_index) for t in request.topics for p in t.partitions]
    assert all(part.group_id == "g" for part in parts)


@pytest.mark.parametrize(
    ("version", "code"), [(9, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), (10, ErrorCode.UNKNOWN_TOPIC_ID)]
)
def test_a_late_part_does_not_touch_the_next_topic(world: World, version: int, code: ErrorCode) -> None:
    """The topic is deleted and made again between two parts, and a group commits for the new one."""
    Weary(world)
    old_ids = {name: topic_id(world, name) for name in TOPICS}
    request = commit_all()
    for topic in request.topics:
        topic.topic_id = old_ids[topic.name]
    asked = world.ask(k08_offset_commit, request, version)
    world.remove_topic(old_ids["c"])
    new_id = world.make_topic("c", partition_count=PARTITIONS)
    partition = OffsetCommitRequestPartition(partition_index=PARTITIONS - 1, committed_offset=7)
    topics = [OffsetCommitRequestTopic(name="c", partitions=[partition])]
    world.ask(k08_offset_commit, OffsetCommitRequest(group_id="g", topics=topics), 9)
    world.clock.run(10)
    assert asked.response.topics[-1].partitions[-2].error_code == code
    shard = world.groups.shard_of("g")
    assert shard is not None
    value = shard.offsets.current("g", "c", new_id, PARTITIONS - 1)
    assert value is not None
    assert value.offset == 7


def topic_id(world: World, name: str) -> UUID:
    topic = world.image.topic_by_name(name)
    assert topic is not None
    return topic.id
