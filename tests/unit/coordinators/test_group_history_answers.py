"""A node reports what it saw of its groups: in responses, and in its log."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from tests.unit.coordinators.test_group_driver import join, one_member, sync
from tests.unit.coordinators.test_group_history import group_of, owns
from tests.unit.coordinators.world import World

from strandline.broker.coordinating.group_log import LINES_PER_SECOND_MAX, GroupLog
from strandline.codec.messages.group_history_request import GroupHistoryRequest
from strandline.coordinators.groups.events import Tell
from strandline.coordinators.groups.history.group_history import Happening
from strandline.errors import ErrorCode
from strandline.handlers import k20001_group_history


@pytest.fixture
def world() -> World:
    world = World()
    world.node_id = 7  # type: ignore[attr-defined]
    return world


def ask(world: World, group_id: str = "g", rebalances_max: int = 100) -> Any:
    request = GroupHistoryRequest(group_id=group_id, rebalances_max=rebalances_max)
    asked = world.ask(k20001_group_history, request, 0)
    world.clock.run()
    return asked.response


def test_what_the_node_saw(world: World) -> None:
    joined = one_member(world)
    again = join(world, joined.member_id)
    world.clock.run()
    sync(world, again.response, {joined.member_id: owns(0, 1)})
    answer = ask(world)
    assert (answer.error_code, answer.node_id) == (0, 7)
    assert answer.since_ms <= answer.rebalances[0].began_ms <= answer.now_ms
    first, second = answer.rebalances
    assert [(note.what, note.client_id) for note in first.notes] == [("joined", "client")]
    assert first.ended_ms - first.began_ms == 3_000, "the delay of a group that starts"
    assert [(note.what, note.reason) for note in second.notes] == [("asked", "its leader")]
    assert (second.epoch, second.members, second.group_type) == (2, 1, "classic")
    (change,) = second.changes
    assert change.is_known is False, "what it had before was no assignment of a consumer"
    assert [each.epoch for each in ask(world, rebalances_max=1).rebalances] == [2]


def test_what_is_under_way(world: World) -> None:
    required = join(world).response
    join(world, required.member_id)
    (under_way,) = ask(world).rebalances
    assert under_way.ended_ms == -1


def test_what_another_coordinator_goes_on_with(world: World) -> None:
    required = join(world).response
    join(world, required.member_id)
    world.groups.stop_leading(world.groups.partition_index("g"))
    (interrupted,) = ask(world).rebalances
    assert interrupted.ended_ms >= interrupted.began_ms
    assert (interrupted.epoch, interrupted.is_rebalance) == (-1, True)
    assert [note.what for note in interrupted.notes] == ["joined"]


def test_an_unknown_group_has_no_history(world: World) -> None:
    answer = ask(world, "unknown")
    assert (answer.error_code, answer.rebalances) == (0, [])
    assert ask(world, "").error_code == ErrorCode.INVALID_GROUP_ID
    assert ask(world, rebalances_max=0).error_code == ErrorCode.INVALID_REQUEST
    assert ask(world, rebalances_max=-1).error_code == ErrorCode.INVALID_REQUEST


def test_a_topic_that_is_gone_has_its_id_for_a_name(world: World) -> None:
    topic_id = world.make_topic("t")
    group = group_of("a")
    world.groups.history.note(group, Happening.ASSIGNED, None, 1)
    group.members["a"].assignment = b""
    rebalance = world.groups.history.settle(group, 2)
    assert rebalance is not None
    (change,) = rebalance.changes
    rebalance.changes = (change._replace(before={topic_id: {0: 1, 1: 1}}),)
    lost = ask(world, "orders").rebalances[0].changes[0].lost
    assert [(each.topic, each.partitions) for each in lost] == [("t", [0, 1])]
    world.remove_topic(topic_id)
    lost = ask(world, "orders").rebalances[0].changes[0].lost
    assert [(each.topic, each.partitions) for each in lost] == [(f"a topic that is gone ({topic_id})", [0, 1])]


def test_the_log_has_sentences_with_their_facts(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline.groups")
    one_member(world)
    world.clock.run(20)  # It is silent, so its session ends.
    told = [(record.getMessage(), record.fields) for record in caplog.records]  # type: ignore[attr-defined]
    sentences = [sentence for sentence, _ in told]
    assert sentences == [
        "group g: rebalanced to generation 1 with 1 member in 3000 ms: client joined",
        "group g: client timed out (no heartbeat for its session, 10000 ms)",
        "group g: rebalanced to generation 2 with 0 members in 0 ms: "
        "client timed out (no heartbeat for its session, 10000 ms)",
    ]
    assert [facts["event"] for _, facts in told] == ["rebalanced", "timed out", "rebalanced"]
    assert {facts["group"] for _, facts in told} == {"g"}


def test_clients_cannot_flood_the_log(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "strandline.groups")
    group_log = GroupLog(world.clock)
    for number in range(1_000):
        group_log.tell(Tell(f"line {number}", {}))
    assert len(caplog.records) == LINES_PER_SECOND_MAX
    world.clock.run(1)
    group_log.tell(Tell("later", {}))
    assert [record.getMessage() for record in caplog.records[LINES_PER_SECOND_MAX:]] == [
        f"... and {1_000 - LINES_PER_SECOND_MAX} more about groups",
        "later",
    ]
