"""The driver of groups: when replies may leave, what an append that fails takes along, loading, timers."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinators.world import Asked, MemoryPartition, World

from strandline.broker.coordinating import coordinator_context, pending_appends
from strandline.broker.coordinating.coordinator_runtime import CoordinatorTopicOfNode
from strandline.codec.messages.heartbeat_request import HeartbeatRequest
from strandline.codec.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from strandline.codec.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.errors import BatchTooLarge, CorruptLog, DiskFailed, ErrorCode, NotLeader, WorldError
from strandline.handlers import (
    k08_offset_commit,
    k09_offset_fetch,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
)

E = ErrorCode


def join(world: World, member_id: str = "", *, version: int = 9) -> Asked:
    return world.ask(
        k11_join_group,
        JoinGroupRequest(
            group_id="g",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000 if version >= 1 else -1,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
        ),
        version,
    )


def sync(world: World, joined: Any, assignments: dict[str, bytes], *, version: int = 5) -> Asked:
    return world.ask(
        k14_sync_group,
        SyncGroupRequest(
            group_id="g",
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer" if version >= 5 else None,
            protocol_name="range" if version >= 5 else None,
            assignments=[SyncGroupRequestAssignment(member_id=m, assignment=a) for m, a in assignments.items()],
        ),
        version,
    )


def heartbeat(world: World, joined: Any, *, version: int = 4) -> Asked:
    request = HeartbeatRequest(group_id="g", generation_id=joined.generation_id, member_id=joined.member_id)
    return world.ask(k12_heartbeat, request, version)


def commit(world: World, offset: int, *, group_id: str = "g", topic: str = "t", version: int = 9, **more: Any) -> Asked:
    return world.ask(
        k08_offset_commit,
        OffsetCommitRequest(
            group_id=group_id,
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=more.pop("topic_id", OffsetCommitRequestTopic().topic_id),
                    partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
            **more,
        ),
        version,
    )


def fetch(world: World, *group_ids: str, version: int = 9) -> Asked:
    topics = [OffsetFetchRequestTopics(name="t", partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=group_id, topics=list(topics)) for group_id in group_ids or ("g",)]
    return world.ask(k09_offset_fetch, OffsetFetchRequest(groups=groups), version)


def committed(world: World, group_id: str = "g") -> int:
    offset: int = fetch(world, group_id).response.groups[0].topics[0].partitions[0].committed_offset
    return offset


def code(asked: Asked) -> ErrorCode:
    return E(asked.response.topics[0].partitions[0].error_code)


def one_member(world: World, *, version: int = 9) -> Any:
    """A stable group of one; the answer to its JoinGroup."""
    if version >= 4:
        required = join(world, version=version).response
        assert required.error_code == E.MEMBER_ID_REQUIRED
        asked = join(world, required.member_id, version=version)
    else:
        asked = join(world, version=version)
    assert not asked.is_answered
    world.clock.run(3)
    joined = asked.response
    asked = sync(world, joined, {joined.member_id: b"p0"}, version=min(version, 5))
    world.clock.run()
    assert asked.response.assignment == b"p0"
    return joined


def shard_of_g(world: World) -> GroupShard:
    shard = world.groups.shard_of("g")
    assert shard is not None
    return shard


@pytest.fixture
def world() -> World:
    world = World()
    world.make_topic("t")
    return world


@pytest.mark.parametrize("version", range(10))
def test_the_life_of_a_member_in_every_version(world: World, version: int) -> None:
    joined = one_member(world, version=version)
    assert (joined.generation_id, joined.leader, joined.protocol_name) == (1, joined.member_id, "range")
    assert joined.protocol_type == ("consumer" if version >= 7 else None)
    assert [member.metadata for member in joined.members] == [b"m"]
    assert heartbeat(world, joined, version=min(version, 4)).response.error_code == E.NONE
    if version < 3:
        request = LeaveGroupRequest(group_id="g", member_id=joined.member_id)
        nobody = LeaveGroupRequest(group_id="g", member_id="nobody")
    else:
        request = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id=joined.member_id)])
        nobody = LeaveGroupRequest(group_id="g", members=[MemberIdentity(member_id="nobody")])
    refused = world.ask(k13_leave_group, nobody, min(version, 5)).response
    assert (refused.error_code or refused.members[0].error_code) == E.UNKNOWN_MEMBER_ID
    assert (refused.error_code == E.NONE) == (version >= 3)
    asked = world.ask(k13_leave_group, request, min(version, 5))
    world.clock.run()
    assert asked.response.error_code == E.NONE
    assert heartbeat(world, joined).response.error_code == E.UNKNOWN_MEMBER_ID


def test_an_answer_waits_for_its_record_and_so_does_everything_after_it(world: World) -> None:
    joined = one_member(world)
    partition = world.partition_of("g")
    partition.commits_at_once = False
    saved = commit(world, 5, generation_id_or_member_epoch=1, member_id=joined.member_id)
    read = fetch(world)
    alive = heartbeat(world, joined)
    world.clock.run()
    assert not any(asked.is_answered for asked in (saved, read, alive)), "a crash could still take it back"
    elsewhere = fetch(world, "other")
    assert elsewhere.is_answered == (world.partition_of("other") is not partition)
    partition.commit()
    assert code(saved) is E.NONE
    assert read.response.groups[0].topics[0].partitions[0].committed_offset == 5
    assert alive.response.error_code == E.NONE
    assert committed(world) == 5


def test_the_commits_of_one_turn_share_a_batch(world: World) -> None:
    committed(world)
    asked = [commit(world, offset) for offset in range(40)]
    world.clock.run()
    assert {code(each) for each in asked} == {E.NONE}
    assert world.partition_of("g").record_counts == [40]
    assert committed(world) == 39


def test_a_large_turn_is_cut_into_batches(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_appends, "BATCH_BYTES_MAX", 200)
    partition = world.partition_of("g")
    partition.commits_at_once = False
    asked = [commit(world, offset) for offset in range(20)]
    world.clock.run()
    assert len(partition.batches) > 3
    assert sum(partition.record_counts) == 20
    waiting = partition.uncommitted[:]
    for on_committed in waiting[:-1]:
        on_committed(None)
    assert not any(each.is_answered for each in asked), "the last batch of the turn decides"
    waiting[-1](None)
    assert {code(each) for each in asked} == {E.NONE}


def test_a_very_large_turn_is_written_over_several(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pending_appends, "RECORDS_PER_TURN_MAX", 3)
    partition = world.partition_of("g")
    partition.commits_at_once = False
    first = [commit(world, offset) for offset in range(7)]
    world.clock.turn()
    assert partition.record_counts == [3]
    # What is asked meanwhile comes behind, and waits for its own records.
    second = commit(world, 7)
    world.clock.turn()
    assert partition.record_counts == [3, 3]
    partition.commit()
    world.clock.run()
    assert partition.record_counts == [3, 3, 1, 1]
    assert not any(each.is_answered for each in first)
    on_first, on_second = partition.uncommitted
    on_first(None)
    assert {code(each) for each in first} == {E.NONE}
    assert not second.is_answered
    on_second(None)
    assert code(second) is E.NONE
    assert committed(world) == 7


def test_a_driver_that_is_closed_writes_all_that_it_was_asked_for(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pending_appends, "RECORDS_PER_TURN_MAX", 3)
    asked = [commit(world, offset) for offset in range(7)]
    world.groups.close()
    assert world.partition_of("g").record_counts == [3, 3, 1]
    assert {code(each) for each in asked} == {E.NONE}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (DiskFailed("EIO"), E.NOT_COORDINATOR),
        (OSError(28, "no space left"), E.NOT_COORDINATOR),
        (NotLeader("moved"), E.NOT_COORDINATOR),
        (BatchTooLarge("huge"), E.UNKNOWN_SERVER_ERROR),
        (WorldError("too few replicas"), E.COORDINATOR_NOT_AVAILABLE),
    ],
)
@pytest.mark.parametrize("at_once", [True, False])
def test_a_failed_append_is_not_remembered(world: World, error: Exception, told: ErrorCode, at_once: bool) -> None:
    joined = one_member(world)
    partition = world.partition_of("g")
    member = {"generation_id_or_member_epoch": 1, "member_id": joined.member_id}
    assert code_after_run(world, commit(world, 5, **member)) is E.NONE
    newcomer = join(world, join(world).response.member_id)
    assert not newcomer.is_answered

    if at_once:
        partition.error = error
    else:
        partition.commits_at_once = False
    lost = commit(world, 6, **member)
    read = fetch(world)
    world.clock.run()
    if not at_once:
        del partition.batches[-1]
        partition.commit(error)
    assert code(lost) is told
    assert read.response.groups[0].error_code == told
    assert newcomer.response.error_code == told, "no member waits for ever"

    partition.error = None
    partition.commits_at_once = True
    assert committed(world) == 5, "the shard is what the log says"
    assert heartbeat(world, joined).response.error_code == E.NONE
    assert code_after_run(world, commit(world, 7, **member)) is E.NONE


def code_after_run(world: World, asked: Asked) -> ErrorCode:
    world.clock.run()
    return code(asked)


def test_a_restart_finds_groups_and_offsets(world: World) -> None:
    joined = one_member(world)
    commit(world, 5, generation_id_or_member_epoch=1, member_id=joined.member_id)
    world.clock.run()
    world.restart()
    assert committed(world) == 5
    assert heartbeat(world, joined).response.error_code == E.NONE
    world.clock.run(11)
    assert heartbeat(world, joined).response.error_code == E.UNKNOWN_MEMBER_ID


def test_a_large_shard_is_loaded_in_slices(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    joined = one_member(world)
    for offset in range(10):
        commit(world, offset, generation_id_or_member_epoch=1, member_id=joined.member_id)
        world.clock.run()
    monkeypatch.setattr(coordinator_context, "LOAD_RECORDS_PER_TURN_MAX", 4)
    world.restart()
    assert fetch(world).response.groups[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert code(commit(world, 3)) is E.COORDINATOR_LOAD_IN_PROGRESS
    assert join(world).response.error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    assert heartbeat(world, joined).response.error_code == E.NONE, "its session has not begun, so it cannot be over"
    world.clock.turn()
    assert fetch(world).response.groups[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    world.clock.run()
    assert committed(world) == 9


def test_what_a_predecessor_may_not_have_committed_is_not_served(world: World) -> None:
    joined = one_member(world)
    commit(world, 7, generation_id_or_member_epoch=1, member_id=joined.member_id)
    world.clock.run()
    partition = world.offsets_topic.partitions[world.groups.partition_index("g")]
    assert partition is not None
    partition.has_uncommitted = True
    world.restart()
    assert fetch(world).response.groups[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    world.clock.run(1.0)
    assert fetch(world).response.groups[0].error_code == E.COORDINATOR_LOAD_IN_PROGRESS
    partition.has_uncommitted = False
    world.clock.run(1.0)
    assert committed(world) == 7


def test_a_damaged_partition_is_not_served(world: World) -> None:
    class Damaged(MemoryPartition):
        def read_all(self) -> Any:
            yield from self.batches
            raise CorruptLog("a hole")

    damaged = Damaged()
    world.offsets_topic.partitions = [damaged, damaged, damaged]
    assert fetch(world).response.groups[0].error_code == E.NOT_COORDINATOR
    assert join(world).response.error_code == E.NOT_COORDINATOR


def test_a_partition_led_elsewhere_is_not_ours(world: World) -> None:
    joined = one_member(world)
    parked = join(world, join(world).response.member_id)
    index = world.groups.partition_index("g")
    world.offsets_topic.partitions[index] = None
    world.groups.stop_leading(index)
    assert parked.response.error_code == E.NOT_COORDINATOR
    assert heartbeat(world, joined).response.error_code == E.NOT_COORDINATOR
    assert code(commit(world, 1)) is E.NOT_COORDINATOR
    assert world.clock.waiting == [], "no timer of the shard is left"
    asked = fetch_v1(world)
    assert asked.response.topics[0].partitions[0].error_code == E.NOT_COORDINATOR, "version 1 has no other place"


def fetch_v1(world: World) -> Asked:
    topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
    return world.ask(k09_offset_fetch, OffsetFetchRequest(group_id="g", topics=topics), 1)


def test_heartbeats_start_no_timers_and_silence_ends_the_session_in_time(world: World) -> None:
    joined = one_member(world)
    started = world.clock.timers_started
    for _ in range(60):
        world.clock.run(1)
        for _ in range(5):
            assert heartbeat(world, joined).response.error_code == E.NONE
    assert world.clock.timers_started - started < 10
    world.clock.run(9.9)
    group = shard_of_g(world).groups["g"]
    assert group.state == "Stable"
    world.clock.run(0.2)
    assert group.state == "Empty"


def test_a_request_that_an_answer_brings_waits_for_its_turn(world: World) -> None:
    first = join(world, join(world).response.member_id)
    second = join(world, join(world).response.member_id)
    heard: list[str] = []

    def leave_at_once() -> None:
        heard.append("first joined")
        members = [MemberIdentity(member_id=first.response.member_id)]
        left = world.ask(k13_leave_group, LeaveGroupRequest(group_id="g", members=members), 5)
        left.on_reply = lambda: heard.append("first left")
        if left.is_answered:
            heard.append("first left")

    first.on_reply = leave_at_once
    second.on_reply = lambda: heard.append("second joined")
    world.clock.run(6)
    assert heard == ["first joined", "second joined", "first left"]
    assert heartbeat(world, second.response).response.error_code == E.REBALANCE_IN_PROGRESS


def test_after_close_answers_still_leave_and_nothing_new_is_taken(world: World) -> None:
    one_member(world)
    partition = world.partition_of("g")
    parked = join(world, join(world).response.member_id)
    partition.commits_at_once = False
    saved = commit(world, 8, group_id=same_shard(world))
    world.groups.close()
    assert parked.response.error_code == E.COORDINATOR_NOT_AVAILABLE
    assert code(commit(world, 9)) is E.COORDINATOR_NOT_AVAILABLE
    assert not saved.is_answered
    partition.commit()
    assert code(saved) is E.NONE
    world.clock.run()
    world.restart()
    assert committed(world, same_shard(world)) == 8


def same_shard(world: World) -> str:
    """A group without members in the shard of "g"."""
    index = world.groups.partition_index("g")
    return next(f"job-{n}" for n in range(100) if world.groups.partition_index(f"job-{n}") == index)


def test_a_shard_that_is_to_be_let_go_answers_nothing(world: World) -> None:
    """The image has another coordinator, which may have taken newer offsets."""
    commit(world, 5)
    world.clock.run()
    world.offsets_topic.moved.add(world.groups.partition_index("g"))
    assert fetch(world).response.groups[0].error_code == E.NOT_COORDINATOR
    assert code(commit(world, 6)) is E.NOT_COORDINATOR
    world.offsets_topic.moved.clear()
    assert committed(world) == 5


@pytest.mark.parametrize("is_there", [True, False])
def test_a_shard_that_is_about_to_be_led_is_loading(world: World, is_there: bool) -> None:
    """FindCoordinator sends clients here by the image, and some give up where they are not expected."""
    index = world.groups.partition_index("g")
    partition = world.offsets_topic.partitions[index]
    world.offsets_topic.due.add(index)
    if not is_there:
        world.offsets_topic.partitions[index] = None
    assert code(commit(world, 5)) is E.COORDINATOR_LOAD_IN_PROGRESS
    world.offsets_topic.due.clear()
    world.offsets_topic.partitions[index] = partition
    assert code_after_run(world, commit(world, 5)) is E.NONE


def test_a_node_leads_where_its_image_and_its_partition_agree() -> None:
    image = SimpleNamespace(leader=1, leader_epoch=4)
    log = SimpleNamespace(failure=None)
    first: Any = SimpleNamespace(topic="t", index=0, is_leader=True, leader_epoch=4, log=log)
    second: Any = SimpleNamespace(topic="t", index=1, is_leader=True, leader_epoch=4, log=log)
    environment: Any = SimpleNamespace(
        node_id=1, image=lambda: SimpleNamespace(partition=lambda topic, index: {("t", 0): image}.get((topic, index)))
    )
    parts: dict[int, Any] = {0: first, 1: second}
    topic = CoordinatorTopicOfNode(environment, lambda _, index: parts.get(index), "t", lambda _: 2)
    assert topic.is_led(0)
    assert not topic.is_due(0)
    assert not topic.is_led(1), "it was deleted, and made again with fewer partitions"
    assert not topic.is_due(1)
    image.leader_epoch = 6
    assert not topic.is_led(0), "another led in between"
    assert topic.is_due(0)
    parts.clear()
    assert topic.is_due(0), "its log is not there yet"
    parts[0] = first
    first.log.failure = OSError(5, "input/output error")
    assert not topic.is_due(0)
    image.leader_epoch, image.leader = 4, 2
    assert not topic.is_led(0)
    parts.clear()
    assert not topic.is_due(0)


def test_a_deleted_topic_is_forgotten(world: World) -> None:
    commit(world, 5)
    world.clock.run()
    world.groups.on_topic_deleted("t", topic_id(world))
    world.clock.run()
    assert committed(world) == -1
    assert world.partition_of("g").record_counts == [1, 1]


def topic_id(world: World) -> uuid.UUID:
    topic = world.image.topic_by_name("t")
    assert topic is not None
    return topic.id


def test_a_deletion_that_is_worked_off_late_spares_the_next_topic(world: World) -> None:
    """The image has the new topic before the coordinator is told that the old one is gone."""
    commit(world, 100)
    world.clock.run()
    old_id = topic_id(world)
    world.remove_topic(old_id)
    world.make_topic("t")
    accepted = commit(world, 7)
    world.clock.run()
    assert code(accepted) is E.NONE
    world.groups.on_topic_deleted("t", old_id)
    world.clock.run()
    assert committed(world) == 7
    world.restart()
    fetch(world)
    world.clock.run()
    world.groups.on_topic_deleted("t", old_id)
    world.clock.run()
    assert committed(world) == 7, "another coordinator works the deletion off, too"


def test_a_topic_deleted_during_the_load_is_forgotten_after_it(world: World) -> None:
    commit(world, 5, version=4, retention_time_ms=60_000)
    world.clock.run()
    world.restart()
    partition = world.partition_of("g")
    partition.has_uncommitted = True
    fetch(world)
    old_id = topic_id(world)
    world.remove_topic(old_id)
    world.groups.on_topic_deleted("t", old_id)
    world.make_topic("t")
    partition.has_uncommitted = False
    world.clock.run(1)
    assert committed(world) == -1, "its record has no topic id, so it would fit the new topic"


# ---- OffsetCommit and OffsetFetch at the edge


@pytest.mark.parametrize("version", range(2, 11))
def test_commit_in_every_version(world: World, version: int) -> None:
    topic = world.image.topic_by_name("t")
    assert topic is not None
    asked = commit(world, 5, version=version, topic_id=topic.id)
    world.clock.run()
    answered = asked.response.topics[0]
    assert code(asked) is E.NONE
    assert (answered.name, answered.topic_id == topic.id) == (("t", False) if version < 10 else ("", True))
    assert committed(world) == 5


def test_unknown_topics_and_partitions_are_refused_and_the_rest_is_committed(world: World) -> None:
    request = OffsetCommitRequest(
        group_id="g",
        topics=[
            OffsetCommitRequestTopic(
                name=name,
                partitions=[OffsetCommitRequestPartition(partition_index=i, committed_offset=7) for i in partitions],
            )
            for name, partitions in (("nowhere", [0]), ("t", [-1, 0, 1, 2]))
        ],
    )
    asked = world.ask(k08_offset_commit, request, 9)
    world.clock.run()
    assert {
        (topic.name, partition.partition_index): E(partition.error_code)
        for topic in asked.response.topics
        for partition in topic.partitions
    } == {
        ("nowhere", 0): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", -1): E.UNKNOWN_TOPIC_OR_PARTITION,
        ("t", 0): E.NONE,
        ("t", 1): E.NONE,
        ("t", 2): E.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert len(asked.response.topics) == 2
    assert code(commit(world, 1, topic="nowhere")) is E.UNKNOWN_TOPIC_OR_PARTITION
    unknown_id = commit(world, 1, topic_id=world.make_topic("gone"), version=10)
    world.clock.run()
    assert code(unknown_id) is E.NONE
    world.remove_topic(unknown_id.response.topics[0].topic_id)
    assert code(commit(world, 1, topic_id=unknown_id.response.topics[0].topic_id, version=10)) is E.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize("version", range(1, 8))
def test_fetch_of_one_group_in_every_version(world: World, version: int) -> None:
    commit(world, 5)
    world.clock.run()
    named = [OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])]
    answered = world.ask(k09_offset_fetch, OffsetFetchRequest(group_id="g", topics=named), version).response
    assert [partition.committed_offset for partition in answered.topics[0].partitions] == [5, -1]
    assert [partition.error_code for partition in answered.topics[0].partitions] == [0, 0]
    if version >= 2:
        everything = world.ask(k09_offset_fetch, OffsetFetchRequest(group_id="g", topics=None), version).response
        assert [(topic.name, len(topic.partitions)) for topic in everything.topics] == [("t", 1)]


@pytest.mark.parametrize("version", range(8, 11))
def test_fetch_of_many_groups_over_many_shards(world: World, version: int) -> None:
    names = [f"g{n}" for n in range(9)]
    assert {world.groups.partition_index(name) for name in names} == {0, 1, 2}
    for offset, name in enumerate(names):
        commit(world, offset, group_id=name)
    topic = world.image.topic_by_name("t")
    assert topic is not None
    for partition in world.offsets_topic.partitions:
        assert partition is not None
        partition.commits_at_once = False
    world.clock.run()
    asked = world.ask(
        k09_offset_fetch,
        OffsetFetchRequest(
            groups=[
                OffsetFetchRequestGroup(
                    group_id=name, topics=[OffsetFetchRequestTopics(name="t", topic_id=topic.id, partition_indexes=[0])]
                )
                for name in names
            ]
        ),
        version,
    )
    for partition in world.offsets_topic.partitions:
        assert not asked.is_answered
        assert partition is not None
        partition.commit()
    groups = asked.response.groups
    assert [group.group_id for group in groups] == names
    assert [group.topics[0].partitions[0].committed_offset for group in groups] == list(range(9))


def test_a_topic_made_again_has_no_offsets(world: World) -> None:
    old = world.image.topic_by_name("t")
    assert old is not None
    commit(world, 5)
    world.clock.run()
    old_id = old.id
    world.remove_topic(old_id)
    new_id = world.make_topic("t")
    assert committed(world) == -1

    def ask_v10(topics: list[OffsetFetchRequestTopics] | None) -> Any:
        groups = [OffsetFetchRequestGroup(group_id="g", topics=topics)]
        return world.ask(k09_offset_fetch, OffsetFetchRequest(groups=groups), 10).response.groups[0]

    assert ask_v10(None).topics == []
    by_id = ask_v10([OffsetFetchRequestTopics(topic_id=each, partition_indexes=[0]) for each in (old_id, new_id)])
    assert {
        topic.topic_id: (topic.partitions[0].committed_offset, E(topic.partitions[0].error_code))
        for topic in by_id.topics
    } == {old_id: (-1, E.UNKNOWN_TOPIC_ID), new_id: (-1, E.NONE)}
    commit(world, 2)
    world.clock.run()
    assert [topic.topic_id for topic in ask_v10(None).topics] == [new_id]


def test_sync_must_name_the_protocol_from_version_5_on(world: World) -> None:
    joined = one_member(world)
    request = SyncGroupRequest(group_id="g", generation_id=1, member_id=joined.member_id)
    assert world.ask(k14_sync_group, request, 5).response.error_code == E.INCONSISTENT_GROUP_PROTOCOL
    assert world.ask(k14_sync_group, request, 4).response.error_code == E.NONE
