"""ConsumerGroupHeartbeat and ConsumerGroupDescribe through the wire format and the driver of groups."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.coordinators.world import Asked, World

from strandline.broker.coordinating.group_driver import GroupDriver
from strandline.broker.coordinating.group_topics import TopicsOfNode
from strandline.codec.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.errors import ErrorCode, NotLeader
from strandline.handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
)

VERSIONS = pytest.mark.parametrize("version", [0, 1])


@pytest.fixture
def world() -> World:
    world = World()
    world.image.apply(FeatureLevelRecord(name="group.version", feature_level=1))
    world.groups = GroupDriver(world.clock, world.config, world.offsets_topic, TopicsOfNode(lambda: world.image))
    world.make_topic("t", partition_count=4)
    return world


def beat(world: World, member_id: str, epoch: int, *, version: int = 1, **fields: Any) -> Asked:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return world.ask(k68_consumer_group_heartbeat, request, version)


def join(world: World, member_id: str, *, version: int = 1) -> Asked:
    return beat(
        world,
        member_id,
        0,
        version=version,
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )


def describe(world: World, *group_ids: str, version: int = 1, with_operations: bool = False) -> list[Any]:
    request = ConsumerGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=with_operations)
    groups: list[Any] = world.ask(k69_consumer_group_describe, request, version).response.groups
    return groups


@VERSIONS
def test_a_member_joins_and_is_described(world: World, version: int) -> None:
    joined = join(world, "m", version=version)
    world.clock.run()
    topic = world.image.topic_by_name("t")
    assert topic is not None
    (assigned,) = joined.response.assignment.topic_partitions
    assert (assigned.topic_id, assigned.partitions) == (topic.id, [0, 1, 2, 3])
    group, stranger = describe(world, "g", "nobody", "g", version=version, with_operations=True)
    assert (group.group_state, group.group_epoch, group.assignor_name) == ("Stable", 2, "uniform")
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("m", "client", "/127.0.0.1")
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1, 2, 3])]
    assert member.member_type == (1 if version else -1)
    assert group.authorized_operations > 0
    assert stranger.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (69, ErrorCode.GROUP_ID_NOT_FOUND) in world.errors


def test_a_heartbeat_is_not_answered_before_its_records_are_committed(world: World) -> None:
    partition = world.partition_of("g")
    partition.commits_at_once = False
    joined = join(world, "m")
    world.clock.run()
    assert not joined.is_answered
    looked = world.ask(k69_consumer_group_describe, ConsumerGroupDescribeRequest(group_ids=["g"]), 1)
    assert not looked.is_answered
    partition.commit()
    assert joined.response.member_epoch == 2
    assert looked.response.groups[0].group_state == "Stable"


def test_what_an_append_that_failed_would_have_changed_did_not_change(world: World) -> None:
    join(world, "a")
    world.clock.run()
    world.partition_of("g").error = NotLeader("it went away")
    lost = join(world, "b")
    world.clock.run()
    assert lost.response.error_code == ErrorCode.NOT_COORDINATOR
    world.partition_of("g").error = None
    assert beat(world, "a", 2).response.error_code == ErrorCode.NONE
    (group,) = describe(world, "g")
    assert [member.member_id for member in group.members] == ["a"]


def test_a_member_lives_on_when_the_coordinator_moves(world: World) -> None:
    join(world, "a")
    world.clock.run()
    world.groups = GroupDriver(world.clock, world.config, world.offsets_topic, TopicsOfNode(lambda: world.image))
    beat(world, "a", 2)
    world.clock.run()
    answer = beat(world, "a", 2).response
    assert (answer.error_code, answer.member_epoch, answer.assignment) == (ErrorCode.NONE, 2, None)
    world.clock.run(44)
    assert [group.group_state for group in describe(world, "g")] == ["Stable"]
    world.clock.run(2)
    assert [group.group_state for group in describe(world, "g")] == ["Empty"]


def test_a_partition_moves_from_one_member_to_the_other(world: World) -> None:
    join(world, "a")
    world.clock.run(2)
    join(world, "b")
    topic = world.image.topic_by_name("t")
    assert topic is not None
    told = beat(world, "a", 2)
    world.clock.run()
    kept = told.response.assignment.topic_partitions[0].partitions
    given_up = beat(world, "a", 2, topic_partitions=[TopicPartitions(topic_id=topic.id, partitions=kept)])
    got = beat(world, "b", 3)
    world.clock.run()
    assert given_up.response.member_epoch == 3
    assert sorted([*kept, *got.response.assignment.topic_partitions[0].partitions]) == [0, 1, 2, 3]


def test_offsets_of_a_member(world: World) -> None:
    join(world, "a")
    world.clock.run()

    def commit(epoch: int) -> int:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=epoch,
            member_id="a",
            topics=[
                OffsetCommitRequestTopic(
                    name="t", partitions=[OffsetCommitRequestPartition(partition_index=1, committed_offset=9)]
                )
            ],
        )
        asked = world.ask(k08_offset_commit, request, 9)
        world.clock.run()
        code: int = asked.response.topics[0].partitions[0].error_code
        return code

    def fetch(epoch: int) -> Any:
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[1])]
        groups = [OffsetFetchRequestGroup(group_id="g", member_id="a", member_epoch=epoch, topics=topics)]
        return world.ask(k09_offset_fetch, OffsetFetchRequest(groups=groups), 9).response.groups[0]

    assert commit(2) == ErrorCode.NONE
    assert commit(1) == ErrorCode.STALE_MEMBER_EPOCH
    assert fetch(2).topics[0].partitions[0].committed_offset == 9
    stale = fetch(1)
    assert (stale.error_code, stale.topics) == (ErrorCode.STALE_MEMBER_EPOCH, [])


@VERSIONS
def test_a_cluster_whose_group_version_is_off(world: World, version: int) -> None:
    world.image.apply(FeatureLevelRecord(name="group.version", feature_level=0))
    assert join(world, "m", version=version).response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert [group.error_code for group in describe(world, "g", "h", version=version)] == [
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNSUPPORTED_VERSION,
    ]


def test_a_topic_that_is_gone_has_no_name_in_the_description(world: World) -> None:
    topic_id = world.make_topic("u", partition_count=1)
    beat(world, "m", 0, rebalance_timeout_ms=9, subscribed_topic_names=["u"], topic_partitions=[])
    world.clock.run()
    world.remove_topic(topic_id)
    (group,) = describe(world, "g")
    assert group.members[0].assignment.topic_partitions == []
