"""Through the front door: a group goes by its own settings, and sees topics that come while it lives."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.hostile.peer import Peer
from tests.scenarios.config_cases import BROKER, DELETE, GROUP, SET

import strandline
from strandline.codec.messages import incremental_alter_configs_request as incremental
from strandline.codec.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker

PATIENCE_S = 30.0
PROPERTIES = {"offsets.topic.num.partitions": "2", "group.consumer.assignment.interval.ms": "0"}


@pytest.fixture(scope="module")
def log() -> Iterator[EmbeddedBroker]:
    with strandline.embedded(properties=PROPERTIES) as log:
        yield log


@pytest.fixture
def peer(log: EmbeddedBroker) -> Iterator[Peer]:
    with Peer(log.port) as peer:
        # The first one creates the topic that groups live in.
        (found,) = peer.ask(FindCoordinatorRequest(coordinator_keys=["any"]), 4).coordinators
        assert found.error_code == 0, found.error_message
        yield peer


class Member:
    """Says what a consumer says, and gives up and takes whatever it is told to."""

    def __init__(self, peer: Peer, group_id: str, member_id: str, **subscription: Any) -> None:
        self.peer, self.group_id, self.member_id = peer, group_id, member_id
        self.epoch = 0
        self.owned: dict[Any, list[int]] = {}
        self.subscription = subscription
        self.heartbeat(rebalance_timeout_ms=10_000, topic_partitions=[], **subscription)

    def heartbeat(self, **more: Any) -> Any:
        fields = {
            "topic_partitions": [TopicPartitions(topic_id=topic, partitions=held) for topic, held in self.owned.items()]
        }
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group_id, member_id=self.member_id, member_epoch=self.epoch, **fields | more
        )
        deadline = time.monotonic() + PATIENCE_S
        while (answer := self.peer.ask(request, 1)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert time.monotonic() < deadline
        assert answer.error_code == 0, answer.error_message
        self.epoch = answer.member_epoch
        if answer.assignment is not None:
            self.owned = {each.topic_id: each.partitions for each in answer.assignment.topic_partitions}
        return answer

    @property
    def held(self) -> int:
        return sum(map(len, self.owned.values()))


def change(peer: Peer, kind: int, resource: str, name: str, value: str | None) -> int:
    config = incremental.AlterableConfig(name=name, config_operation=DELETE if value is None else SET, value=value)
    request = incremental.IncrementalAlterConfigsRequest(
        resources=[incremental.AlterConfigsResource(resource_type=kind, resource_name=resource, configs=[config])]
    )
    (response,) = peer.ask(request, 1).responses
    return int(response.error_code)


def create(peer: Peer, name: str, partitions: int) -> None:
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
    (created,) = peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 7).topics
    assert created.error_code == 0, created.error_message


def test_a_setting_of_a_group_counts_from_its_next_heartbeat(peer: Peer) -> None:
    member = Member(peer, "own", "m", subscribed_topic_names=["own-topic"])
    assert member.heartbeat().heartbeat_interval_ms == 5_000
    assert change(peer, GROUP, "own", "consumer.heartbeat.interval.ms", "7000") == 0
    assert member.heartbeat().heartbeat_interval_ms == 7_000
    other = Member(peer, "another", "m", subscribed_topic_names=["own-topic"])
    assert other.heartbeat().heartbeat_interval_ms == 5_000
    assert change(peer, GROUP, "own", "consumer.heartbeat.interval.ms", None) == 0
    assert member.heartbeat().heartbeat_interval_ms == 5_000


def test_a_setting_of_a_group_is_held_within_the_limits_of_the_node(peer: Peer) -> None:
    for value in ("4999", "15001", "often"):
        code = change(peer, GROUP, "bound", "consumer.heartbeat.interval.ms", value)
        assert code == ErrorCode.INVALID_CONFIG


def test_the_time_between_assignments_can_be_changed_while_the_node_runs(peer: Peer) -> None:
    create(peer, "paced", 2)
    first = Member(peer, "paced", "one", subscribed_topic_names=["paced"])
    assert first.held == 2
    assert change(peer, BROKER, "", "group.consumer.assignment.interval.ms", "15000") == 0
    try:
        second = Member(peer, "paced", "two", subscribed_topic_names=["paced"])
        first.heartbeat()
        assert (first.held, second.held) == (2, 0), "the next assignment is not due yet"
    finally:
        assert change(peer, BROKER, "", "group.consumer.assignment.interval.ms", None) == 0
    for _ in range(2):
        first.heartbeat()
        second.heartbeat()
    assert (first.held, second.held) == (1, 1)


def test_topics_that_come_grow_and_go_are_seen_by_patterns_and_names(peer: Peer) -> None:
    by_pattern = Member(peer, "by-pattern", "m", subscribed_topic_regex="seen-.*")
    by_name = Member(peer, "by-name", "m", subscribed_topic_names=["seen-later"])
    members = (by_pattern, by_name)

    def held() -> tuple[int, ...]:
        for member in members:
            member.heartbeat()
        return tuple(member.held for member in members)

    assert held() == (0, 0)
    create(peer, "seen-later", 3)
    assert held() == (3, 3)
    create(peer, "seen-also", 2)
    create(peer, "unseen", 2)
    assert held() == (5, 3)
    names = [DeleteTopicState(name="seen-later")]
    (deleted,) = peer.ask(DeleteTopicsRequest(topics=names, timeout_ms=10_000), 6).responses
    assert deleted.error_code == 0
    assert held() == (2, 0)


def test_a_pattern_that_is_none_is_refused(peer: Peer) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id="broken",
        member_id="m",
        member_epoch=0,
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="(",
        topic_partitions=[],
    )
    answer = peer.ask(request, 1)
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION
    assert "is not a valid regular expression" in answer.error_message
