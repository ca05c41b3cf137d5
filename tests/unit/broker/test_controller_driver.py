"""The controller of a node is looked at by time, step by step, for as long as it is the active one."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.kraft.controller_driver import LOOK_S, ControllerDriver
from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.config.node_config import BrokerConfig
from strandline.quorum.controller.controller import Controller
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.controller.state import CHANGES_PER_STEP
from strandline.quorum.image.cluster_image import ClusterImage

SESSION_S = 9.0
PARTITIONS = 1000


class Active:
    """A driver whose writes are committed at once; the brokers are silent."""

    def __init__(self) -> None:
        self.runtime = ManualRuntime()
        self.image = ClusterImage()
        self.offset = 0
        self.writes: list[list[Any]] = []
        self.controller = Controller(None, config=BrokerConfig.load(), rng=random.Random(3))
        self.driver = ControllerDriver(self.runtime, self.controller, self.write)
        self.driver.begin(self.image)
        self.commit(self.controller.bootstrap())
        for broker_id in (1, 2):
            self.commit(
                self.controller.register_broker(
                    broker_id,
                    epoch=self.offset,
                    incarnation_id=uuid.UUID(int=broker_id),
                    endpoints=[("PLAINTEXT", f"host-{broker_id}", 9092)],
                    log_dirs=[uuid.UUID(int=1000 + broker_id)],
                    now=self.runtime.now,
                )
            )
        assignment = [(index, [1, 2]) for index in range(PARTITIONS)]
        self.commit(self.controller.create_topics([NewTopic("a", assignment=assignment)])[0])

    def commit(self, records: list[Any]) -> None:
        for record in records:
            self.image.apply(record, self.offset)
            self.offset += 1

    def write(self, records: list[Any], on_done: Callable[[BaseException | None], object]) -> None:
        self.writes.append(records)
        self.commit(records)
        on_done(None)

    def advance(self, seconds: float) -> None:
        """Let timers run as they fall due."""
        end = self.runtime.now + seconds
        while True:
            due = sorted((timer for timer in self.runtime.timers if not timer.cancelled), key=lambda timer: timer.due)
            if not due or due[0].due > end:
                break
            self.runtime.timers.remove(due[0])
            self.runtime.now = max(self.runtime.now, due[0].due)
            due[0].callback()
        self.runtime.now = end

    def is_fenced(self, broker_id: int) -> bool:
        return self.image.brokers[broker_id].registration.fenced


def test_a_silent_broker_is_fenced_step_by_step_and_others_lead() -> None:
    active = Active()
    active.advance(SESSION_S / 2)
    active.controller._state.sessions.touch(2, -1, active.runtime.now)
    active.advance(SESSION_S / 2 - 1)
    assert not active.is_fenced(1)
    active.advance(2)
    assert active.is_fenced(1)
    assert not active.is_fenced(2)
    assert {partition.leader for partition in active.image.topics["a"].partitions} == {2}
    assert len(active.writes) >= PARTITIONS // CHANGES_PER_STEP, "a thousand partitions are more than one turn's work"
    assert max(map(len, active.writes)) <= CHANGES_PER_STEP + 1
    # The fence is the last word: who takes over in between still has it to do.
    assert isinstance(active.writes[-1][-1], BrokerRegistrationChangeRecord)
    assert not any(isinstance(each, BrokerRegistrationChangeRecord) for batch in active.writes[:-1] for each in batch)


def test_half_done_steps_are_finished_by_the_next_controller() -> None:
    active = Active()
    active.runtime.now += SESSION_S
    while not active.writes:
        active.advance(LOOK_S)
    active.driver.end()
    assert not active.controller.is_active
    count = len(active.writes)
    active.advance(60)
    assert len(active.writes) == count, "it decides no more"
    active.driver.begin(active.image)
    active.advance(SESSION_S + 2)
    assert active.is_fenced(1)
    assert active.is_fenced(2)
    assert {partition.leader for partition in active.image.topics["a"].partitions} == {-1}


def test_the_session_of_the_broker_that_led_before_runs_since_it_was_heard() -> None:
    # Its death costs its partitions one session, not the election of a controller and then a session.
    active = Active()
    active.driver.end()
    active.runtime.now += 100
    active.driver.begin(active.image, heard_leader=(1, active.runtime.now - 3))
    active.advance(SESSION_S - 3 - 2 * LOOK_S)
    assert not active.is_fenced(1)
    active.advance(4 * LOOK_S)
    assert active.is_fenced(1)
    assert not active.is_fenced(2)


def test_a_look_that_fails_is_not_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    active = Active()

    def fail(now: float) -> list[Any]:
        raise RuntimeError("planted")

    with monkeypatch.context() as planted:
        planted.setattr(active.controller, "tick", fail)
        with pytest.raises(RuntimeError, match="planted"):
            active.advance(LOOK_S)
    active.advance(SESSION_S + 2)
    assert active.is_fenced(1)


def test_what_goes_wrong_while_it_asks_after_brokers_keeps_no_session_from_ending() -> None:
    active = Active()

    def fail(now: float) -> None:
        raise RuntimeError("planted")

    active.driver.on_look = fail
    deadline = active.runtime.now + 2 * SESSION_S
    while not active.is_fenced(1):
        with pytest.raises(RuntimeError, match="planted"):
            active.advance(LOOK_S)
        assert active.runtime.now < deadline
