"""DescribeGroups, ListGroups, DeleteGroups and OffsetDelete over many groups and shards, and while some are loaded."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.coordinators.test_group_driver import commit, join
from tests.unit.coordinators.world import Asked, World

from strandline.broker.coordinating import coordinator_context
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.describe_groups_request import DescribeGroupsRequest
from strandline.codec.messages.list_groups_request import ListGroupsRequest
from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.errors import ErrorCode
from strandline.handlers import k15_describe_groups, k16_list_groups, k42_delete_groups, k47_offset_delete
from strandline.handlers.support import group_descriptions

E = ErrorCode
GROUPS = [f"job-{number}" for number in range(20)]


@pytest.fixture
def world() -> World:
    """Twenty groups in three shards."""
    world = World()
    world.make_topic("t", partition_count=2_000)
    for group_id in GROUPS:
        commit(world, 4, group_id=group_id)
    world.clock.run()
    return world


def list_groups(world: World, version: int = 5, **filters: Any) -> Asked:
    return world.ask(k16_list_groups, ListGroupsRequest(**filters), version)


def ids(asked: Asked) -> list[str]:
    assert asked.response.error_code == E.NONE
    return sorted(group.group_id for group in asked.response.groups)


def delete_offsets(world: World, topic: str, partitions: range) -> Asked:
    asked = [OffsetDeleteRequestPartition(partition_index=index) for index in partitions]
    topics = [OffsetDeleteRequestTopic(name=topic, partitions=asked)]
    return world.ask(k47_offset_delete, OffsetDeleteRequest(group_id="job-0", topics=topics), 0)


@pytest.mark.parametrize("version", range(6))
def test_the_groups_of_all_shards_are_listed(world: World, version: int) -> None:
    assert ids(list_groups(world, version)) == sorted(GROUPS)


def test_a_large_list_comes_in_parts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k16_list_groups, "GROUPS_PER_PART_MAX", 3)
    assert ids(list_groups(world)) == sorted(GROUPS)


def test_states_and_types_are_compared_in_any_case(world: World) -> None:
    assert ids(list_groups(world, states_filter=[" EMPTY "])) == sorted(GROUPS)
    assert ids(list_groups(world, types_filter=["Classic"])) == sorted(GROUPS)
    assert ids(list_groups(world, types_filter=["share"])) == []


def test_groups_that_are_not_loaded_are_loaded_first(world: World) -> None:
    world.restart()
    assert ids(list_groups(world)) == sorted(GROUPS)


def test_a_load_that_takes_its_time_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinator_context, "LOAD_RECORDS_PER_TURN_MAX", 1)
    world.restart()
    asked = list_groups(world)
    assert not asked.is_answered
    world.clock.run()
    assert ids(asked) == sorted(GROUPS)


def test_a_load_that_does_not_end_is_not_waited_for(world: World) -> None:
    world.restart()
    world.partition_of("job-0").has_uncommitted = True
    asked = list_groups(world)
    world.clock.run(k16_list_groups.LOAD_WAIT_S + 0.1)
    assert asked.response.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    # What comes too late is not answered again.
    world.partition_of("job-0").has_uncommitted = False
    world.clock.run(1)
    assert len(asked.replies) == 1
    assert ids(list_groups(world)) == sorted(GROUPS)


def test_groups_that_are_led_elsewhere_are_listed_there(world: World) -> None:
    moved = world.groups.partition_index("job-0")
    world.groups.stop_leading(moved)
    world.offsets_topic.partitions[moved] = None
    assert ids(list_groups(world)) == sorted(g for g in GROUPS if world.groups.partition_index(g) != moved)


def test_a_list_is_not_told_before_it_is_committed(world: World) -> None:
    world.partition_of("job-0").commits_at_once = False
    commit(world, 5, group_id="job-0")
    asked = list_groups(world)
    world.clock.run()
    assert not asked.is_answered
    world.partition_of("job-0").commit()
    assert ids(asked) == sorted(GROUPS)


def test_groups_that_move_while_they_are_listed_are_left_to_their_next_coordinator(world: World) -> None:
    moved = world.groups.partition_index("job-0")
    world.partition_of("job-0").commits_at_once = False
    commit(world, 5, group_id="job-0")
    asked = list_groups(world)
    world.clock.run()
    world.groups.stop_leading(moved)
    assert ids(asked) == sorted(g for g in GROUPS if world.groups.partition_index(g) != moved)


@pytest.mark.parametrize("version", range(7))
def test_many_groups_are_described_in_their_order_and_each_once(world: World, version: int) -> None:
    join(world)
    request = DescribeGroupsRequest(
        groups=["job-1", "nobody", "g", "job-1"], include_authorized_operations=version >= 3
    )
    groups = world.ask(k15_describe_groups, request, version).response.groups
    assert [(group.group_id, group.group_state) for group in groups] == [
        ("job-1", "Empty"),
        ("nobody", "Dead"),
        ("g", "Empty"),
    ]
    unknown = E.GROUP_ID_NOT_FOUND if version >= 6 else E.NONE
    assert [group.error_code for group in groups] == [E.NONE, unknown, E.NONE]
    assert world.errors == ([(15, unknown)] if unknown else [])
    if version >= 3:
        assert groups[0].authorized_operations == group_descriptions.GROUP_OPERATIONS


def test_who_does_not_lead_does_not_describe(world: World) -> None:
    index = world.groups.partition_index("job-0")
    world.groups.stop_leading(index)
    world.offsets_topic.partitions[index] = None
    request = DescribeGroupsRequest(groups=["job-0"])
    (group,) = world.ask(k15_describe_groups, request, 6).response.groups
    assert (group.group_id, group.error_code) == ("job-0", E.NOT_COORDINATOR)


@pytest.mark.parametrize("version", range(3))
def test_groups_are_deleted_for_good(world: World, version: int) -> None:
    request = DeleteGroupsRequest(groups_names=["job-0", "nobody", "job-1", "job-0"])
    asked = world.ask(k42_delete_groups, request, version)
    world.clock.run()
    assert [(each.group_id, each.error_code) for each in asked.response.results] == [
        ("job-0", E.NONE),
        ("nobody", E.GROUP_ID_NOT_FOUND),
        ("job-1", E.NONE),
    ]
    world.restart()
    assert ids(list_groups(world)) == sorted(set(GROUPS) - {"job-0", "job-1"})


def test_offsets_of_many_partitions_are_deleted_in_parts(world: World) -> None:
    partitions = range(3 * k47_offset_delete.PARTITIONS_PER_PART_MAX + 1)
    asked = delete_offsets(world, "t", range(-1, len(partitions)))
    world.clock.run()
    (topic,) = asked.response.topics
    codes = {each.partition_index: each.error_code for each in topic.partitions}
    assert codes == {-1: E.UNKNOWN_TOPIC_OR_PARTITION} | dict.fromkeys(partitions, E.NONE)
    shard = world.groups.shard_of("job-0")
    assert shard is not None
    assert not shard.offsets.has_any("job-0")


def test_of_a_topic_that_does_not_exist_each_partition_is_refused(world: World) -> None:
    (topic,) = delete_offsets(world, "nowhere", range(2)).response.topics
    assert [each.error_code for each in topic.partitions] == [E.UNKNOWN_TOPIC_OR_PARTITION] * 2
