"""Requests to a share coordinator that does not answer in time, and the order of its answers."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import Any

from tests.unit.coordinators.world import TurnedClock

from strandline.codec.messages.write_share_group_state_request import (
    PartitionData,
    StateBatch,
    WriteShareGroupStateRequest,
    WriteStateData,
)
from strandline.coordinators.shares import share_state
from strandline.coordinators.shares.events import StateAnswer, WriteState
from strandline.errors import ErrorCode
from strandline.handlers import k85_write_share_group_state as write

FIRST, SECOND = uuid.UUID(int=1), uuid.UUID(int=2)
TIMEOUT_MS = 5_000


class Ground:
    """A node whose share coordinator is the test."""

    def __init__(self) -> None:
        self.clock = TurnedClock()
        self.replies: list[Any] = []
        self.submitted: list[tuple[str, WriteState]] = []
        coordinator = SimpleNamespace(submit=lambda key, event: self.submitted.append((key, event)))
        node = SimpleNamespace(
            runtime=self.clock,
            share_coordinator=coordinator,
            config=SimpleNamespace(share_coordinator_write_timeout_ms=TIMEOUT_MS),
        )
        self.context: Any = SimpleNamespace(node=node, reply=self.replies.append, api_version=1)

    def write(self) -> None:
        topics = [
            WriteStateData(topic_id=topic_id, partitions=[PartitionData(partition=index) for index in range(2)])
            for topic_id in (FIRST, SECOND)
        ]
        topics[0].partitions[0].state_batches = [StateBatch(3, 4, 2, 1)]
        write.handle(self.context, WriteShareGroupStateRequest(group_id="g", topics=topics))

    def codes(self) -> list[tuple[uuid.UUID, list[tuple[int, int]]]]:
        (response,) = self.replies
        return [
            (topic.topic_id, [(part.partition, part.error_code) for part in topic.partitions])
            for topic in response.results
        ]


def test_answers_are_in_the_order_of_the_request_whatever_comes_first() -> None:
    ground = Ground()
    ground.write()
    assert ground.submitted[0][1].batches == (share_state.StateBatch(3, 4, 2, 1),)
    assert [key.rpartition(":")[2] for key, _ in ground.submitted] == ["0", "1", "0", "1"]
    for number in (3, 1, 0, 2):
        assert ground.replies == []
        token: Any = ground.submitted[number][1].token
        token.answer(StateAnswer(ErrorCode(number)))
    assert ground.codes() == [(FIRST, [(0, 0), (1, 1)]), (SECOND, [(0, 2), (1, 3)])]
    assert ground.clock.waiting == []


def test_a_write_that_is_not_committed_in_time_is_to_be_tried_again() -> None:
    ground = Ground()
    ground.write()
    tokens: list[Any] = [event.token for _, event in ground.submitted]
    tokens[0].answer(StateAnswer(ErrorCode.NONE))
    ground.clock.run(TIMEOUT_MS / 1000 - 0.1)
    assert ground.replies == []
    ground.clock.run(0.2)
    late = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert ground.codes() == [(FIRST, [(0, 0), (1, late)]), (SECOND, [(0, late), (1, late)])]
    for token in tokens[1:]:
        token.answer(StateAnswer(ErrorCode.NONE))
    assert len(ground.replies) == 1
