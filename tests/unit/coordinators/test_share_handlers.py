"""The requests of share groups through the wire format and the driver of groups, with share coordinators in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from tests.unit.coordinators.world import Asked, World

from strandline.broker.coordinating.group_driver import GroupDriver
from strandline.broker.coordinating.group_topics import TopicsOfNode
from strandline.codec.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.feature_level_record import FeatureLevelRecord
from strandline.codec.messages.share_group_describe_request import ShareGroupDescribeRequest
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.coordinators.shares.share_state import ShareSummary
from strandline.errors import ErrorCode, NotLeader
from strandline.handlers import (
    k42_delete_groups,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)
from strandline.handlers.support.services import NamedSharePartition, ShareOffset

Key = tuple[str, UUID, int]


class StatesInMemory:
    """Share coordinators that answer when they are told to, and the states that they keep."""

    def __init__(self) -> None:
        self.states: dict[Key, tuple[int, int]] = {}
        """State epoch and start offset."""
        self.waiting: list[Callable[[], object]] = []
        self.answers_at_once = True
        self.code = ErrorCode.NONE

    def initialize(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        state_epoch: int,
        start_offset: int,
        on_done: Callable[[ErrorCode], object],
    ) -> None:
        def make() -> None:
            if self.code is ErrorCode.NONE:
                self.states[group_id, topic_id, partition] = state_epoch, start_offset
            on_done(self.code)

        self._do(make)

    def delete(self, group_id: str, topic_id: UUID, partition: int, on_done: Callable[[ErrorCode], object]) -> None:
        def remove() -> None:
            if self.code is ErrorCode.NONE:
                self.states.pop((group_id, topic_id, partition), None)
            on_done(self.code)

        self._do(remove)

    def summary(
        self,
        group_id: str,
        topic_id: UUID,
        partition: int,
        leader_epoch: int,
        on_done: Callable[[ErrorCode, ShareSummary | None], object],
    ) -> None:
        epoch, start = self.states.get((group_id, topic_id, partition), (0, -1))
        on_done(ErrorCode.NONE, ShareSummary(epoch, 0, start))

    def read(
        self,
        group_id: str,
        partitions: list[NamedSharePartition],
        on_done: Callable[[dict[tuple[UUID, int], ShareOffset]], object],
    ) -> None:
        """Answer for `ShareOffsets`: every log ends at 100."""
        found = {}
        for _, topic_id, index in partitions:
            _, start = self.states.get((group_id, topic_id, index), (0, -1))
            found[topic_id, index] = ShareOffset(ErrorCode.NONE, start, lag=-1 if start < 0 else 100 - start)
        on_done(found)

    def _do(self, what: Callable[[], object]) -> None:
        if self.answers_at_once:
            what()
        else:
            self.waiting.append(what)

    def answer(self) -> None:
        waiting, self.waiting = self.waiting, []
        for what in waiting:
            what()


class ShareWorld(World):
    def __init__(self) -> None:
        super().__init__()
        self.states = StatesInMemory()
        self.share_offsets = self.states
        self.image.apply(FeatureLevelRecord(name="share.version", feature_level=1))
        self.topic_id = self.make_topic("t", partition_count=2)
        self.start()

    def start(self) -> None:
        topics = TopicsOfNode(lambda: self.image)
        self.groups = GroupDriver(self.clock, self.config, self.offsets_topic, topics, lambda: self.states)

    def beat(self, member_id: str, epoch: int, **fields: Any) -> Asked:
        request = ShareGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
        return self.ask(k76_share_group_heartbeat, request, 1)

    def join(self, member_id: str) -> Any:
        asked = self.beat(member_id, 0, subscribed_topic_names=["t"])
        self.clock.run()
        return asked.response

    def describe(self, *group_ids: str) -> list[Any]:
        request = ShareGroupDescribeRequest(group_ids=list(group_ids), include_authorized_operations=True)
        asked = self.ask(k77_share_group_describe, request, 1)
        self.clock.run()
        groups: list[Any] = asked.response.groups
        return groups

    def alter(self, starts: dict[int, int], *, topic: str = "t") -> Asked:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
            for index, start in starts.items()
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
        asked = self.ask(k91_alter_share_group_offsets, AlterShareGroupOffsetsRequest(group_id="g", topics=topics), 0)
        self.clock.run()
        return asked

    def offsets(self, topics: dict[str, list[int]] | None, *, version: int = 1) -> Any:
        named = topics and [
            DescribeShareGroupOffsetsRequestTopic(topic_name=name, partitions=partitions)
            for name, partitions in topics.items()
        ]
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id="g", topics=named)]
        asked = self.ask(k90_describe_share_group_offsets, DescribeShareGroupOffsetsRequest(groups=groups), version)
        self.clock.run()
        (group,) = asked.response.groups
        return group


@pytest.fixture
def world() -> ShareWorld:
    return ShareWorld()


def assigned(response: Any) -> list[list[int]]:
    return [topic.partitions for topic in response.assignment.topic_partitions]


def test_a_member_joins_and_is_described(world: ShareWorld) -> None:
    joined = world.join("m")
    assert (joined.error_code, joined.member_id, joined.member_epoch, assigned(joined)) == (0, "m", 2, [])
    assert world.states.states == {("g", world.topic_id, 0): (2, -1), ("g", world.topic_id, 1): (2, -1)}
    beat = world.beat("m", 2)
    world.clock.run()
    world.clock.run(1.0)
    beat = world.beat("m", beat.response.member_epoch)
    world.clock.run()
    assert assigned(beat.response) == [[0, 1]]
    group, stranger = world.describe("g", "nobody", "g")
    assert (group.group_state, group.assignor_name, group.authorized_operations > 0) == ("Stable", "simple", True)
    (member,) = group.members
    assert (member.member_id, member.client_id, member.client_host) == ("m", "client", "/127.0.0.1")
    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("t", [0, 1])]
    assert stranger.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert (77, ErrorCode.GROUP_ID_NOT_FOUND) in world.errors


def test_the_share_coordinator_is_asked_when_the_log_has_it(world: ShareWorld) -> None:
    partition = world.partition_of("g")
    partition.commits_at_once = False
    joined = world.beat("m", 0, subscribed_topic_names=["t"])
    world.clock.run()
    assert not world.states.states
    assert not joined.is_answered
    partition.commit()
    assert len(world.states.states) == 2
    assert joined.is_answered


def test_a_coordinator_that_lost_its_partition_asks_nothing(world: ShareWorld) -> None:
    partition = world.partition_of("g")
    partition.commits_at_once = False
    joined = world.beat("m", 0, subscribed_topic_names=["t"])
    world.clock.run()
    partition.commit(NotLeader("elsewhere"))
    assert joined.response.error_code == ErrorCode.NOT_COORDINATOR
    assert not world.states.states


def test_an_answer_for_a_shard_that_is_gone_is_dropped(world: ShareWorld) -> None:
    world.states.answers_at_once = False
    world.join("m")
    first, world.states.waiting = world.states.waiting, []
    world.groups.stop_leading(world.groups.partition_index("g"))
    for answer in first:
        answer()
    beat = world.beat("m", 2)
    world.clock.run()
    assert not world.states.states.keys() - {("g", world.topic_id, 0), ("g", world.topic_id, 1)}
    assert beat.response.error_code == ErrorCode.NONE
    assert len(world.states.waiting) == 2, "the new shard asks for itself"
    before = dict(world.states.states)
    world.states.answer()
    assert all(world.states.states[key] > before[key] for key in before), "with a higher epoch"


def test_offsets_are_altered_described_and_deleted(world: ShareWorld) -> None:
    world.states.answers_at_once = False
    altered = world.alter({0: 40, 5: 1})
    assert not altered.is_answered
    world.states.answer()
    world.clock.run()
    [topic] = altered.response.responses
    assert (topic.topic_name, topic.topic_id) == ("t", world.topic_id)
    assert [(each.partition_index, each.error_code) for each in topic.partitions] == [(0, 0), (5, 3)]
    world.states.answers_at_once = True

    everything = world.offsets(None)
    [topic] = everything.topics
    assert [(each.partition_index, each.start_offset, each.lag) for each in topic.partitions] == [(0, 40, 60)]
    named = world.offsets({"t": [1, 0, 9], "none": [2]}, version=0)
    assert [
        (topic.topic_name, topic.topic_id.int > 0, [(each.partition_index, each.start_offset, each.error_code)])
        for topic in named.topics
        for each in topic.partitions
    ] == [
        ("t", True, [(1, -1, 0)]),
        ("t", True, [(0, 40, 0)]),
        ("t", True, [(9, -1, 0)]),
        ("none", False, [(2, -1, 0)]),
    ]

    names = [DeleteShareGroupOffsetsRequestTopic(topic_name=name) for name in ("t", "none")]
    request = DeleteShareGroupOffsetsRequest(group_id="g", topics=names)
    deleted = world.ask(k92_delete_share_group_offsets, request, 0)
    world.clock.run()
    assert [(each.topic_name, each.error_code) for each in deleted.response.responses] == [("t", 0), ("none", 3)]
    assert not world.states.states
    assert world.offsets(None).topics == []


def test_a_group_is_deleted_when_its_states_are(world: ShareWorld) -> None:
    world.alter({0: 1, 1: 2})
    world.states.answers_at_once = False
    asked = world.ask(k42_delete_groups, DeleteGroupsRequest(groups_names=["g", "none"]), 2)
    world.clock.run()
    assert not asked.is_answered
    world.states.answer()
    world.clock.run()
    assert {each.group_id: each.error_code for each in asked.response.results} == {"g": 0, "none": 69}
    assert not world.states.states


def test_a_request_that_waits_is_refused_when_the_coordinator_moves(world: ShareWorld) -> None:
    world.states.answers_at_once = False
    altered = world.alter({0: 40})
    world.groups.stop_leading(world.groups.partition_index("g"))
    assert altered.response.error_code == ErrorCode.NOT_COORDINATOR


def test_without_the_feature_nothing_is_served(world: ShareWorld) -> None:
    world.image.apply(FeatureLevelRecord(name="share.version", feature_level=0))
    code = ErrorCode.UNSUPPORTED_VERSION
    assert world.beat("m", 0, subscribed_topic_names=["t"]).response.error_code == code
    assert [group.error_code for group in world.describe("g")] == [code]
    assert world.alter({0: 1}).response.error_code == code
    assert world.offsets(None).error_code == code
    request = DeleteShareGroupOffsetsRequest(group_id="g")
    assert world.ask(k92_delete_share_group_offsets, request, 0).response.error_code == code
