"""Questions to a coordinator that does not answer: who waits is told soon, and asks whoever coordinates by then."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinators.world import TurnedClock

from strandline.broker.coordinating import transaction_verification
from strandline.broker.coordinating.transaction_verification import (
    CONNECTIONS_MAX,
    TIMEOUT_S,
    Place,
    TransactionVerification,
)
from strandline.errors import ErrorCode, TimedOut


class Silent:
    """A connection to a coordinator that hangs."""

    asked = 0
    is_closed = False

    def __init__(
        self, clock: TurnedClock, network: object, host: str, port: int, *, client_id: str, login: object
    ) -> None:
        self.address = host, port
        self._clock = clock

    def ask(self, request: object, version: int, on_answer: Any, *, timeout_s: float) -> None:
        Silent.asked += 1
        self._clock.call_later(timeout_s, on_answer, None, TimedOut("nothing"))


def test_nobody_waits_longer_for_a_silent_coordinator_than_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transaction_verification, "Channel", Silent)
    monkeypatch.setattr(Silent, "asked", 0)
    clock = TurnedClock()
    topic = SimpleNamespace(partitions=[SimpleNamespace(leader=2, leader_epoch=4)])
    environment: Any = SimpleNamespace(
        node_id=1,
        runtime=clock,
        network=None,
        broker_login=None,
        image=lambda: SimpleNamespace(topic_by_name=lambda name: topic),
        address_of=lambda broker_id: ("broker", broker_id),
    )
    driver: Any = SimpleNamespace(partition_index=lambda transactional_id: 0)
    verification = TransactionVerification(environment, lambda topic, index: None, driver)
    told: list[dict[Place, ErrorCode]] = []
    # Of one transactional id a request has one question, so this is as many requests.
    questions = 3 * CONNECTIONS_MAX
    for _ in range(questions):
        verification.verify("x", 5, 0, [("t", 0)], adds=True, then=told.append)
        clock.run()
    clock.run(TIMEOUT_S)
    assert told == [{("t", 0): ErrorCode.NETWORK_EXCEPTION}] * questions
    assert Silent.asked == CONNECTIONS_MAX
