"""From events to lines on the audit topic: nothing is lost in silence, nothing is written twice, nothing waits."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.coordinators.world import TurnedClock

from strandline.broker.audit import audit_log
from strandline.broker.audit.audit_log import LINES_MAX, STOP_S_MAX, AuditLog
from strandline.broker.audit.audit_topic import AuditTopic
from strandline.broker.network import broker_channels
from strandline.codec.columns import decode_batch
from strandline.codec.messages.append_audit_request import AppendAuditRequest
from strandline.config.node_config import BrokerConfig
from strandline.errors import DiskFailed, ErrorCode, NotLeader, StrandlineError
from strandline.security.audit.audit_event import AuditEvent

CONFIG = BrokerConfig.load("", {"strandline.audit.enable": "true"})


class Partition:
    """The partition of the audit topic on its leader: what was appended, and what of it is committed."""

    is_leader = True
    leader_epoch = 1

    def __init__(self) -> None:
        self.log = SimpleNamespace(log_end_offset=0)
        self.high_watermark = 0
        self.batches: list[bytes] = []
        self.failure: StrandlineError | None = None
        self.commits = True
        self.waiting: list[Any] = []

    def append_internal(self, batch: bytes, on_committed: Any) -> None:
        if self.failure is not None:
            raise self.failure
        self.batches.append(batch)
        self.log.log_end_offset += decode_batch(batch).count
        self.waiting.append(on_committed)
        if self.commits:
            self.commit()

    def when_committed(self, offset: int, listener: Any) -> None:
        self.waiting.append(lambda error: listener.on_commit(0))

    def commit(self, error: Exception | None = None) -> None:
        self.high_watermark = self.log.log_end_offset
        waiting, self.waiting = self.waiting, []
        for each in waiting:
            each(error)

    def lines(self) -> list[dict[str, Any]]:
        found = []
        for batch in self.batches:
            for record in decode_batch(batch).records():
                found.append(json.loads(record.value or b""))
                assert record.key == found[-1]["id"].encode()
                assert record.headers[0][0] == "writer"
        return found


class Stage:
    """A node whose audit topic is led by itself, or by another broker that is asked."""

    def __init__(self, leader: int = 1) -> None:
        self.clock = TurnedClock()
        self.partition = Partition()
        self.has_topic = True
        self.leader = leader
        self.asked: list[AppendAuditRequest] = []
        self.answers: list[Any] = []
        image: Any = SimpleNamespace(topic_by_name=lambda name: self._topic(), topics={})
        services: Any = SimpleNamespace(
            runtime=self.clock, partition=lambda topic, index: self.partition, image=image, config=CONFIG
        )
        environment: Any = SimpleNamespace(
            runtime=self.clock,
            node_id=1,
            config=lambda: CONFIG,
            image=lambda: image,
            address_of=lambda broker_id: ("broker", broker_id),
            network=None,
            broker_login=None,
        )
        self.topic = AuditTopic(services)
        self.log = AuditLog(environment, services, self.topic)

    def _topic(self) -> Any:
        return SimpleNamespace(partitions=[SimpleNamespace(leader=self.leader)]) if self.has_topic else None

    def record(self, *names: str) -> None:
        for name in names:
            self.log.record(AuditEvent("change", "success", resource=name))

    def names(self) -> list[str]:
        return [line.get("resource", line["outcome"]) for line in self.partition.lines()]


class Broker:
    """The channel to the other broker, which answers when the test says so."""

    def __init__(self, stage: Stage, address: tuple[str, int]) -> None:
        self.address = address
        self._stage = stage

    def ask(self, request: AppendAuditRequest, version: int, on_answer: Any, *, timeout_s: float) -> None:
        self._stage.asked.append(request)
        self._stage.answers.append(on_answer)

    def close(self) -> None: ...


def test_lines_go_to_the_topic_in_order() -> None:
    stage = Stage()
    stage.record("a", "b")
    stage.clock.run(1)
    stage.record("c")
    stage.clock.run(1)
    assert stage.names() == ["started", "a", "b", "c"]
    assert stage.log.queued == 0
    assert stage.log.written == 4


@pytest.mark.parametrize("failure", [NotLeader("moved"), DiskFailed("full")])
def test_what_cannot_be_written_is_tried_again(failure: StrandlineError) -> None:
    stage = Stage()
    stage.partition.failure = failure
    stage.record("a")
    stage.clock.run(30)
    assert stage.names() == []
    stage.partition.failure = None
    stage.record("b")
    stage.clock.run(10)
    assert stage.names() == ["started", "a", "b"]


def test_lines_wait_for_their_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.has_topic = False
    created: list[str] = []

    def create(node: Any, names: list[str], on_done: Any) -> None:
        created.extend(names)
        stage.has_topic = len(created) > 1
        on_done({})

    monkeypatch.setattr(audit_log, "create_missing", create)
    stage.record("a")
    stage.clock.run(10)
    assert created == ["__strandline_audit"] * 2
    assert stage.names() == ["started", "a"]


def test_lines_beyond_the_queue_are_counted_and_told() -> None:
    stage = Stage()
    stage.partition.failure = DiskFailed("full")
    for number in range(LINES_MAX + 100):
        stage.record(f"t{number}")
    stage.clock.run(10)
    assert stage.log.queued == LINES_MAX
    assert stage.log.lost == 101, "one place was for the line of the start"
    stage.partition.failure = None
    stage.clock.run(30)
    lines = stage.partition.lines()
    assert [line["count"] for line in lines if line["outcome"] == "lost"] == [101]
    assert len(lines) == LINES_MAX + 1
    assert len({line["id"] for line in lines}) == len(lines)


def test_a_stop_writes_repeats_and_what_waits() -> None:
    stage = Stage()
    stage.record("a", "a", "a")
    stopped: list[bool] = []
    stage.log.stop(lambda: stopped.append(True))
    assert not stopped
    stage.clock.run(1)
    assert stopped == [True]
    assert [(line.get("resource"), line["outcome"], line["count"]) for line in stage.partition.lines()] == [
        (None, "started", 1),
        ("a", "success", 1),
        ("a", "success", 2),
        (None, "stopped", 1),
    ]


def test_a_stop_does_not_wait_for_ever() -> None:
    stage = Stage()
    stage.partition.failure = DiskFailed("full")
    stage.record("a")
    stopped: list[bool] = []
    stage.log.stop(lambda: stopped.append(True))
    stage.clock.run(STOP_S_MAX + 1)
    assert stopped == [True]
    stage.partition.failure = None
    stage.record("late")
    stage.clock.run(60)
    assert stage.names() == [], "the logs are closed by now"
    idle = Stage()
    idle.log.stop(lambda: stopped.append(False))
    assert stopped == [True, False], "without any line there is nothing to say"


@pytest.fixture
def remote(monkeypatch: pytest.MonkeyPatch) -> Stage:
    stage = Stage(leader=2)
    monkeypatch.setattr(broker_channels, "Channel", lambda _, __, *address, **___: Broker(stage, address))
    return stage


def deliver(stage: Stage, request: AppendAuditRequest) -> list[ErrorCode]:
    codes: list[ErrorCode] = []
    stage.topic.append(request, "User:node 10.0.0.1", codes.append)
    return codes


def test_a_lost_answer_writes_nothing_twice_and_loses_nothing(remote: Stage) -> None:
    """The second request has more lines than the first, which the leader wrote."""
    remote.record("a")
    remote.clock.run(0.1)
    assert deliver(remote, remote.asked[0]) == [ErrorCode.NONE]
    remote.record("b")
    remote.answers[0](None, TimeoutError())
    remote.clock.run(10)
    assert len(remote.asked[1].lines) == 3
    [code] = deliver(remote, remote.asked[1])
    remote.answers[1](SimpleNamespace(error_code=code), None)
    remote.clock.run(1)
    assert remote.names() == ["started", "a", "b"]
    assert remote.log.queued == 0


def test_a_repeated_request_waits_for_the_commit(remote: Stage) -> None:
    remote.partition.commits = False
    remote.record("a")
    remote.clock.run(0.1)
    first, second = deliver(remote, remote.asked[0]), deliver(remote, remote.asked[0])
    assert first == second == [], "what is not committed may still be lost"
    remote.partition.commit()
    assert first == second == [ErrorCode.NONE]
    assert remote.names() == ["started", "a"]


def test_lines_of_a_former_leader_epoch_are_written_again(remote: Stage) -> None:
    remote.partition.commits = False
    remote.record("a")
    remote.clock.run(0.1)
    codes = deliver(remote, remote.asked[0])
    remote.partition.batches.clear()
    remote.partition.leader_epoch = 2
    remote.partition.commits = True
    assert deliver(remote, remote.asked[0])
    assert remote.names() == ["started", "a"]
    assert codes == [ErrorCode.NONE]


def test_lines_of_a_topic_that_was_deleted_are_written_to_the_next() -> None:
    stage = Stage()
    stage.partition.commits = False
    stage.record("a")
    stage.clock.run(1)
    stage.partition = Partition()
    stage.clock.run(20)
    assert stage.names() == ["started", "a"]
    assert stage.log.queued == 0
