"""The share coordinator, asked by raw requests: on one node, across restarts, and in a cluster that loses it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.scenarios.share_coordinator_client import SHARE, ShareCoordinatorClient, topic_id_of
from tests.scenarios.sink_clients import talk

import strandline
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.codec.messages.read_share_group_state_request import ReadShareGroupStateRequest
from strandline.codec.messages.write_share_group_state_request import WriteShareGroupStateRequest, WriteStateData
from strandline.coordinators.shares.coordinator_key import (
    SHARE_GROUP_STATE_TOPIC,
    coordinator_key,
    partition_of_share,
)
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode

TOPIC = "jobs"
GROUP = "workers:eu"
EARLIEST = -2

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(scope="module")
def node() -> Iterator[Any]:
    properties = {
        "share.coordinator.snapshot.update.records.per.snapshot": "3",
        "share.coordinator.state.topic.prune.interval.ms": "200",
        "share.coordinator.cold.partition.snapshot.interval.ms": "500",
        "share.coordinator.state.topic.num.partitions": "2",
    }
    with strandline.embedded(properties=properties) as broker:
        broker.create_topic(TOPIC, 4)
        yield broker


def port_of(broker: Any) -> int:
    return int(broker.bootstrap.rpartition(":")[2])


def client(broker: Any, partition: int = 0, group: str = GROUP) -> ShareCoordinatorClient:
    ports = [port_of(broker)]
    return ShareCoordinatorClient(ports, SharePartitionKey(group, topic_id_of(ports, TOPIC), partition))


def test_a_state_is_written_read_summarized_and_deleted(node: Any) -> None:
    share = client(node)
    assert share.summary() == ShareSummary(0, 0, -1, -1)
    assert share.read() is ErrorCode.INVALID_REQUEST
    assert share.initialize(epoch=2, start=10) is ErrorCode.NONE
    assert share.write(StateBatch(10, 14, 2, 1), StateBatch(20, 20, 0, 2), epoch=2, count=5) is ErrorCode.NONE
    assert share.summary() == ShareSummary(2, 0, 10, 5)
    assert share.summary(version=0) == ShareSummary(2, 0, 10, -1), "version 0 has no count"
    assert share.write(StateBatch(15, 19, 4, 5), epoch=2, start=15, count=5) is ErrorCode.NONE
    assert share.read(leader=1) == ShareState(2, 15, (StateBatch(15, 19, 4, 5), StateBatch(20, 20, 0, 2)))
    assert share.write(StateBatch(20, 20, 2, 3), epoch=2, leader=0) is ErrorCode.FENCED_LEADER_EPOCH
    assert share.write(StateBatch(20, 20, 2, 3), epoch=1, leader=1) is ErrorCode.FENCED_STATE_EPOCH
    assert share.initialize(epoch=1) is ErrorCode.FENCED_STATE_EPOCH
    assert share.delete() is ErrorCode.NONE
    assert share.delete() is ErrorCode.NONE
    assert share.read(leader=1) is ErrorCode.INVALID_REQUEST


def test_unknown_topics_and_partitions_have_no_state(node: Any) -> None:
    beyond = client(node, partition=4)
    assert beyond.initialize() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert beyond.summary() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    beyond.key = beyond.key._replace(topic_id=uuid.uuid4(), partition=0)
    assert beyond.initialize() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert beyond.delete() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_requests_that_name_nothing_get_an_empty_answer(node: Any) -> None:
    topic = WriteStateData(topic_id=client(node).key.topic_id)
    with talk([port_of(node)]) as peer:
        assert peer.ask(WriteShareGroupStateRequest(group_id=GROUP, topics=[topic]), 1).results == []
        assert peer.ask(ReadShareGroupStateRequest(group_id="", topics=[]), 0).results == []


@pytest.mark.parametrize("key", ["", "g", "g:t", "g:t:0", "g:AAAAAAAAAAAAAAAAAAAAAA:x", ":AAAAAAAAAAAAAAAAAAAAAA:0"])
def test_a_key_that_names_no_share_partition_has_no_coordinator(node: Any, key: str) -> None:
    with talk([port_of(node)]) as peer:
        (found,) = peer.ask(FindCoordinatorRequest(coordinator_keys=[key], key_type=SHARE), 6).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST
    with talk([port_of(node)]) as peer:
        keys = [coordinator_key(client(node).key)]
        (found,) = peer.ask(FindCoordinatorRequest(coordinator_keys=keys, key_type=SHARE), 5).coordinators
    assert found.error_code == ErrorCode.INVALID_REQUEST, "since version 6"


def log_start(broker: Any, partition: int) -> int:
    asked = ListOffsetsPartition(partition_index=partition, timestamp=EARLIEST)
    topic = ListOffsetsTopic(name=SHARE_GROUP_STATE_TOPIC, partitions=[asked])
    with talk([port_of(broker)]) as peer:
        ((found,),) = [each.partitions for each in peer.ask(ListOffsetsRequest(topics=[topic]), 7).topics]
    return int(found.offset)


def test_old_records_go_and_a_restart_finds_the_state(node: Any) -> None:
    busy, cold = client(node, 1), client(node, 2)
    for share in (busy, cold):
        assert share.initialize(start=0) is ErrorCode.NONE
    for offset in range(60):
        assert busy.write(StateBatch(offset, offset, 2, 1)) is ErrorCode.NONE
    index = partition_of_share(coordinator_key(busy.key), partition_count=2)
    until = time.monotonic() + 60
    while log_start(node, index) < 40:
        assert time.monotonic() < until
        time.sleep(0.05)
    node.kill()
    node.start()
    again = client(node, 1)
    assert again.read() == ShareState(1, 0, (StateBatch(0, 59, 2, 1),))
    assert client(node, 2).read() == ShareState(1, 0, ())


def test_the_state_of_a_deleted_topic_goes_with_it(node: Any) -> None:
    ports = [port_of(node)]
    node.create_topic("short-lived")
    first = ShareCoordinatorClient(ports, SharePartitionKey(GROUP, topic_id_of(ports, "short-lived"), 0))
    assert first.initialize(start=7) is ErrorCode.NONE
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.delete_topics(["short-lived"])["short-lived"].result()
    until = time.monotonic() + 60
    while first.summary() is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.slow
def test_a_state_that_was_acknowledged_survives_its_coordinator() -> None:
    properties = {
        "share.coordinator.snapshot.update.records.per.snapshot": "5",
        "share.coordinator.state.topic.num.partitions": "1",
    }
    with strandline.embedded(nodes=3, properties=properties) as cluster:
        cluster.create_topic(TOPIC, 1)
        ports = {node_id: place.port for node_id, place in zip(cluster.nodes, cluster.layout.places, strict=True)}
        key = SharePartitionKey(GROUP, topic_id_of(list(ports.values()), TOPIC), 0)
        share = ShareCoordinatorClient(list(ports.values()), key)
        assert share.initialize(start=0) is ErrorCode.NONE
        for offset in range(12):
            assert share.write(StateBatch(offset, offset, 2, 1)) is ErrorCode.NONE
        expected = ShareState(1, 0, (StateBatch(0, 11, 2, 1),))
        assert share.read(leader=1) == expected
        port = share.coordinator_port()
        (lost,) = [node_id for node_id, each in ports.items() if each == port]
        cluster.kill(lost)
        share.ports = [each for each in ports.values() if each != port]
        assert share.write(StateBatch(0, 0, 4, 9), leader=0) is ErrorCode.FENCED_LEADER_EPOCH
        assert share.read(leader=1) == expected
