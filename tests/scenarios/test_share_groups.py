"""Membership of share groups, asked by raw requests: on one node, across a restart, and in a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from tests.scenarios.share_group_client import ShareConsumer, ShareGroupClient
from tests.scenarios.sink_clients import talk

import strandline
from strandline.codec.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from strandline.errors import ErrorCode

TOPIC = "jobs"
GROUP_RESOURCE = 32
QUICK = {
    "group.share.assignment.interval.ms": "0",
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    with strandline.embedded(properties=QUICK) as broker:
        broker.create_topic(TOPIC, 4)
        yield broker


def ports_of(broker: Any) -> list[int]:
    return [int(broker.bootstrap.rpartition(":")[2])]


def eventually(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < until
        time.sleep(0.02)


def settled(*members: ShareConsumer) -> list[list[int]]:
    """Send heartbeats until every partition of the topic is assigned, and return what each member has."""

    def is_assigned() -> bool:
        for member in members:
            assert member.beat() is ErrorCode.NONE
        epochs = {member.epoch for member in members}
        return len(epochs) == 1 and {index for member in members for index in member.indexes()} == {0, 1, 2, 3}

    eventually(is_assigned)
    return [member.indexes() for member in members]


def test_members_share_the_partitions_of_a_topic(node: Any) -> None:
    first, second = (ShareConsumer(ports_of(node), "sharing", [TOPIC]) for _ in range(2))
    assert settled(first) == [[0, 1, 2, 3]]
    assert sorted(map(len, settled(first, second))) == [2, 2]
    described = first.describe()
    assert (described.group_state, described.assignor_name, len(described.members)) == ("Stable", "simple", 2)
    assert first.listed() == ("share", "Stable")
    assert second.leave() is ErrorCode.NONE
    assert settled(first) == [[0, 1, 2, 3]]
    assert second.beat(3) is ErrorCode.UNKNOWN_MEMBER_ID
    assert first.delete() is ErrorCode.NON_EMPTY_GROUP
    assert first.leave() is ErrorCode.NONE
    assert first.listed() == ("share", "Empty")
    assert first.delete() is ErrorCode.NONE
    assert first.listed() is None
    assert first.delete() is ErrorCode.GROUP_ID_NOT_FOUND


def test_more_members_than_partitions(node: Any) -> None:
    members = [ShareConsumer(ports_of(node), "crowd", [TOPIC]) for _ in range(9)]
    for member in members:
        assert member.beat() is ErrorCode.NONE
    held = settled(*members)
    assert {len(indexes) for indexes in held} <= {1, 2}
    assert [sum(index in indexes for indexes in held) for index in range(4)] == [3, 3, 3, 3]


def test_offsets_are_altered_described_and_deleted(node: Any) -> None:
    producer = Producer({"bootstrap.servers": node.bootstrap})
    for _ in range(10):
        producer.produce(TOPIC, b"task", partition=2)
    assert producer.flush(30) == 0
    group = ShareGroupClient(ports_of(node), "moved")
    assert group.alter(TOPIC, {2: 4, 9: 1}) == {2: ErrorCode.NONE, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    start, lag = group.offsets()[TOPIC, 2]
    assert start == 4
    assert lag in (6, -1), "-1 as long as no leader has said how much is done above the start"
    member = ShareConsumer(ports_of(node), "moved", [TOPIC])
    assert settled(member) == [[0, 1, 2, 3]]
    assert group.alter(TOPIC, {2: 5}) == {-1: ErrorCode.NON_EMPTY_GROUP}
    assert group.delete_offsets(TOPIC) is ErrorCode.NON_EMPTY_GROUP
    assert group.offsets()[TOPIC, 2][0] == 4, "a member that joins leaves what was set"
    assert member.leave() is ErrorCode.NONE
    assert group.delete_offsets("none") is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert group.delete_offsets(TOPIC) is ErrorCode.NONE
    assert group.offsets() == {}


def test_a_group_has_settings_of_its_own(node: Any) -> None:
    def change(name: str, value: str) -> int:
        configs = [AlterableConfig(name=name, value=value)]
        resource = AlterConfigsResource(resource_type=GROUP_RESOURCE, resource_name="slow", configs=configs)
        with talk(ports_of(node)) as peer:
            (answered,) = peer.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        return int(answered.error_code)

    member = ShareConsumer(ports_of(node), "slow", [TOPIC])
    assert member.beat() is ErrorCode.NONE
    assert member.interval_ms == 5_000
    assert change("share.heartbeat.interval.ms", "7000") == ErrorCode.NONE
    eventually(lambda: member.beat() is ErrorCode.NONE and member.interval_ms == 7_000)
    for name, value in (
        ("share.heartbeat.interval.ms", "16000"),
        ("share.session.timeout.ms", "1000"),
        ("share.record.lock.duration.ms", "1000"),
        ("share.delivery.count.limit", "11"),
        ("share.partition.max.record.locks", "5000"),
        ("share.auto.offset.reset", "middle"),
        ("share.isolation.level", "dirty"),
    ):
        assert change(name, value) == ErrorCode.INVALID_CONFIG, name
    assert change("share.auto.offset.reset", "by_duration:PT1H") == ErrorCode.NONE


def test_a_restart_keeps_members_and_states(node: Any) -> None:
    member = ShareConsumer(ports_of(node), "lasting", [TOPIC])
    settled(member)
    epoch = member.epoch
    before = ShareGroupClient(ports_of(node), "lasting").offsets()
    assert len(before) == 4
    node.kill()
    node.start()
    member.ports = ports_of(node)
    assert member.beat() is ErrorCode.NONE
    assert (member.epoch, member.indexes()) == (epoch, [0, 1, 2, 3])
    assert ShareGroupClient(ports_of(node), "lasting").offsets() == before


@pytest.mark.slow
def test_a_group_survives_its_coordinator_in_a_cluster() -> None:
    with strandline.embedded(nodes=3, properties=QUICK) as cluster:
        cluster.create_topic(TOPIC, 4)
        ports = {node_id: place.port for node_id, place in zip(cluster.nodes, cluster.layout.places, strict=True)}
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
        for index in range(4):
            producer.produce(TOPIC, b"task", partition=index)
        assert producer.flush(30) == 0
        group = ShareGroupClient(list(ports.values()), "lasting")
        codes = group.alter(TOPIC, dict.fromkeys(range(4), 0))
        assert set(codes.values()) == {ErrorCode.NONE}
        member = ShareConsumer(list(ports.values()), "lasting", [TOPIC])
        assert settled(member) == [[0, 1, 2, 3]]
        port = member.coordinator_port()
        (lost,) = [node_id for node_id, each in ports.items() if each == port]
        cluster.kill(lost)
        member.ports = group.ports = [each for each in ports.values() if each != port]
        assert member.beat() is ErrorCode.NONE
        assert member.indexes() == [0, 1, 2, 3]
        eventually(lambda: {start for start, _ in group.offsets().values()} == {0} and len(group.offsets()) == 4)
