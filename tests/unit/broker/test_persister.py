"""The persister: operations of a share partition in turn, writes merged, coordinators asked until there is one."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinators.world import TurnedClock

from strandline.broker.coordinating import persister as persister_module
from strandline.broker.coordinating.persister import MERGED_BATCHES_MAX, WAIT_S_MAX, Persister
from strandline.broker.network import broker_channels
from strandline.codec.messages.write_share_group_state_request import WriteShareGroupStateRequest
from strandline.codec.messages.write_share_group_state_response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from strandline.coordinators.shares.events import ReadState, StateAnswer, WriteState
from strandline.coordinators.shares.share_state import ShareState, StateBatch
from strandline.errors import ErrorCode

TOPIC_ID = uuid.UUID(int=7)
HERE, THERE = 1, 2


class FakeChannel:
    """A connection to another broker; the test answers."""

    asked: list[tuple[Any, int, Any]]

    def __init__(self, *where: object, client_id: str, login: object) -> None:
        self.address = where[2], where[3]

    def ask(self, request: object, version: int, on_answer: Any, *, timeout_s: float) -> None:
        FakeChannel.asked.append((request, version, on_answer))

    def close(self) -> None:
        """Close the connection: nothing is open."""


class Ground:
    """A broker whose share coordinator and image are the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, leader: int = HERE) -> None:
        monkeypatch.setattr(broker_channels, "Channel", FakeChannel)
        monkeypatch.setattr(persister_module, "create_missing", lambda *_: None)
        FakeChannel.asked = []
        self.clock = TurnedClock()
        self.leader = leader
        self.submitted: list[Any] = []
        self.done: list[tuple[Any, ...]] = []
        topic = SimpleNamespace(partitions=range(3))
        image = SimpleNamespace(
            topic_by_name=lambda name: SimpleNamespace(partitions=[SimpleNamespace(leader=self.leader)]),
            topic_by_id=lambda topic_id: topic if topic_id == TOPIC_ID else None,
        )
        environment: Any = SimpleNamespace(
            node_id=HERE,
            runtime=self.clock,
            network=None,
            broker_login=None,
            image=lambda: image,
            config=lambda: SimpleNamespace(share_coordinator_write_timeout_ms=5_000),
            address_of=lambda broker_id: ("broker", broker_id),
        )
        coordinator = SimpleNamespace(submit=lambda key, event: self.submitted.append(event))
        services: Any = SimpleNamespace(share_coordinator=coordinator)
        self.persister = Persister(environment, services)

    def write(self, *offsets: int, partition: int = 0, start: int = -1, epoch: int = 0) -> None:
        batches = [StateBatch(offset, offset, 2, 1) for offset in offsets]
        self.persister.write(
            "g",
            TOPIC_ID,
            partition,
            1,
            epoch,
            start,
            len(offsets),
            batches,
            lambda code: self.done.append((code, *offsets)),
        )

    def run(self, for_s: float = 0.0) -> None:
        self.clock.run(for_s)

    def answer(self, code: ErrorCode = ErrorCode.NONE, value: ShareState | None = None) -> None:
        """Answer the oldest event that was submitted here."""
        event = self.submitted.pop(0)
        event.token.answer(StateAnswer(code, value=value))
        self.run()


def offsets_of(event: Any) -> list[int]:
    assert isinstance(event, WriteState)
    return [batch.first_offset for batch in event.batches]


def test_nothing_is_done_before_the_method_returns(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    assert ground.submitted == []
    ground.run()
    assert offsets_of(ground.submitted[0]) == [0]
    assert ground.done == []
    ground.answer()
    assert ground.done == [(ErrorCode.NONE, 0)]


def test_writes_that_wait_are_merged_and_end_together(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    ground.run()
    ground.write(1, 2, start=5)
    ground.write(3, start=-1)
    ground.write(4, partition=1)
    ground.run()
    assert [offsets_of(event) for event in ground.submitted] == [[0], [4]], "another share partition does not wait"
    ground.answer()
    assert [offsets_of(event) for event in ground.submitted] == [[4], [1, 2, 3]]
    merged = ground.submitted[1]
    assert (merged.start_offset, merged.delivery_complete_count) == (5, 1), "the furthest start, and the last count"
    ground.answer()
    ground.answer(ErrorCode.FENCED_STATE_EPOCH)
    fenced = ErrorCode.FENCED_STATE_EPOCH
    assert ground.done == [(ErrorCode.NONE, 0), (ErrorCode.NONE, 4), (fenced, 1, 2), (fenced, 3)]


def test_only_writes_of_the_same_epochs_are_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    ground.write(1, epoch=1)
    ground.persister.read("g", TOPIC_ID, 0, 2, lambda code, state: ground.done.append((code, state)))
    ground.write(2, epoch=1)
    ground.run()
    for expected in ([0], [1]):
        assert [offsets_of(event) for event in ground.submitted] == [expected]
        ground.answer()
    assert [type(event) for event in ground.submitted] == [ReadState]
    state = ShareState(1, 0, ())
    ground.answer(value=state)
    assert ground.done[-1] == (ErrorCode.NONE, state)
    assert offsets_of(ground.submitted[0]) == [2]


def test_many_writes_are_merged_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    ground.run()
    for number in range(4):
        ground.write(*range(number * 3_000, number * 3_000 + 3_000))
    ground.answer()
    assert MERGED_BATCHES_MAX <= len(ground.submitted[0].batches) < MERGED_BATCHES_MAX + 3_000


def test_a_coordinator_that_moved_is_looked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    ground.run()
    ground.write(1)
    ground.leader = THERE
    ground.answer(ErrorCode.NOT_COORDINATOR)
    ground.run(0.1)
    assert ground.submitted == []
    ((request, version, on_answer),) = FakeChannel.asked
    assert isinstance(request, WriteShareGroupStateRequest)
    assert version == 1
    assert [each.first_offset for each in request.topics[0].partitions[0].state_batches] == [0], "in the old order"
    result = WriteStateResult(topic_id=TOPIC_ID, partitions=[PartitionResult(partition=0)])
    on_answer(WriteShareGroupStateResponse(results=[result]), None)
    ground.run()
    assert ground.done == [(ErrorCode.NONE, 0)]
    assert len(FakeChannel.asked) == 2


def test_what_is_asked_in_one_turn_goes_together(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch, leader=THERE)
    for partition in range(3):
        ground.write(partition, partition=partition)
    ground.run()
    ((request, _, on_answer),) = FakeChannel.asked
    assert [part.partition for part in request.topics[0].partitions] == [0, 1, 2]
    on_answer(None, ConnectionError())
    ground.run(0.1)
    assert len(FakeChannel.asked) == 2, "again, and together"


def test_a_topic_that_the_coordinator_does_not_know_yet_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0, partition=2)
    ground.write(1, partition=3)
    ground.run()
    ground.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    ground.answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert ground.done == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 1)], "this broker does not know it either"
    ground.run(0.1)
    ground.answer()
    assert ground.done[1:] == [(ErrorCode.NONE, 0)]


def test_an_operation_is_given_up_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch, leader=-1)
    ground.write(0)
    ground.run(WAIT_S_MAX / 2)
    ground.write(1)
    ground.run(WAIT_S_MAX / 2 + 2)
    assert ground.done == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)]
    ground.leader = HERE
    ground.run(2)
    ground.answer()
    assert ground.done[1:] == [(ErrorCode.NONE, 1)]


def test_a_coordinator_here_that_never_commits_is_given_up_too(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    ground.run(WAIT_S_MAX + 2)
    assert ground.done == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, 0)]
    ground.answer()
    assert len(ground.done) == 1, "its answer comes too late"


def test_closing_gives_everything_up(monkeypatch: pytest.MonkeyPatch) -> None:
    ground = Ground(monkeypatch)
    ground.write(0)
    ground.run()
    ground.write(1)
    ground.persister.close()
    ground.write(2)
    ground.run()
    assert ground.done == [(ErrorCode.COORDINATOR_NOT_AVAILABLE, offset) for offset in range(3)]
