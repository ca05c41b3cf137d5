"""Requests for a controller that is paused, or has no majority: each is answered at its own timeout."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic
from tests.hostile.peer import Peer
from tests.hostile.process import until

import strandline
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest
from strandline.errors import ErrorCode
from strandline.local.embedded_cluster import EmbeddedCluster

PATIENCE_MS = 60_000
SLACK_S = 25.0
"""What a busy machine may add; it is less than what other timeouts would add."""
EARLY_S = 0.01
"""Timers count in milliseconds, from the beginning of a turn of the loop."""
ATTEMPTS = 5
MADE_OR_THERE = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
"""The broker asks again if the connection to the controller breaks, and the first time may have been enough."""

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    with strandline.embedded(nodes=3) as made:
        made.create_topic("there", 1)
        yield made


def controller_of(cluster: EmbeddedCluster) -> int:
    asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
    with Peer(cluster.nodes[1].port, timeout_s=60) as peer:
        answer = peer.ask(DescribeQuorumRequest(topics=[asked]), 1)
    return int(answer.topics[0].partitions[0].leader_id)


def new_topic(name: str, timeout_ms: int) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)


def took(peer: Peer, request: Any, version: int) -> tuple[Any, float]:
    began = time.monotonic()
    answer = peer.ask(request, version)
    return answer, time.monotonic() - began


def test_librdkafka_does_not_wait(cluster: EmbeddedCluster) -> None:
    """With `operation_timeout=0` librdkafka takes REQUEST_TIMED_OUT for success: the request is under way."""
    for node in cluster.nodes.values():
        admin = AdminClient({"bootstrap.servers": node.bootstrap})
        name = f"at-once-{node.port}"
        (made,) = admin.create_topics([NewTopic(name, 1, 1)], operation_timeout=0).values()
        made.result(60)
        until(lambda admin=admin, name=name: name in admin.list_topics(timeout=60).topics, f"{name} exists")
        (gone,) = admin.delete_topics([name], operation_timeout=0).values()
        gone.result(60)
        until(lambda admin=admin, name=name: name not in admin.list_topics(timeout=60).topics, f"{name} is gone")


@pytest.mark.parametrize("asks_controller", [pytest.param(True, marks=pytest.mark.slow), False])
def test_without_a_majority(cluster: EmbeddedCluster, asks_controller: bool) -> None:
    """Both other nodes are paused; a client asks the controller, or a broker that finds no controller any more."""
    controller = controller_of(cluster)
    others = [node_id for node_id in cluster.nodes if node_id != controller]
    asked, paused = (controller, others) if asks_controller else (others[0], [controller, others[1]])
    grow = CreatePartitionsTopic(name="there", count=2, assignments=None)
    requests: list[tuple[Any, int]] = [
        (new_topic("late", 1_500), 7),
        (CreatePartitionsRequest(topics=[grow], timeout_ms=1_500), 3),
        (DeleteTopicsRequest(topics=[DeleteTopicState(name="there")], timeout_ms=1_500), 6),
        (ElectLeadersRequest(topic_partitions=None, timeout_ms=1_500), 2),
    ]
    for node_id in paused:
        cluster.pause(node_id)
    try:
        with Peer(cluster.nodes[asked].port, timeout_s=60) as peer:
            for request, version in requests:
                answer, seconds = took(peer, request, version)
                parts = getattr(answer, "topics", None) or getattr(answer, "results", None)
                parts = parts or getattr(answer, "responses", None) or [answer]
                assert [part.error_code for part in parts] == [ErrorCode.REQUEST_TIMED_OUT], answer
                assert 1.5 - EARLY_S <= seconds < 1.5 + SLACK_S, f"{type(request).__name__} took {seconds:.1f} s"
        admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{cluster.nodes[asked].port}", "log_level": 0})
        (made,) = admin.create_topics([NewTopic("later", 1, 1)], operation_timeout=2, request_timeout=60).values()
        with pytest.raises(KafkaException) as told:
            made.result(60)
        assert told.value.args[0].name() == "REQUEST_TIMED_OUT"
    finally:
        for node_id in paused:
            cluster.resume(node_id)
    with Peer(cluster.nodes[asked].port, timeout_s=120) as peer:
        answer = peer.ask(new_topic(f"after-{asks_controller}", PATIENCE_MS), 7)
        assert answer.topics[0].error_code in MADE_OR_THERE, "with a majority it is done again"


def test_while_another_controller_is_elected(cluster: EmbeddedCluster) -> None:
    """A short timeout ends before the election does; a long one sees the next controller."""
    for attempt in range(ATTEMPTS):
        controller = controller_of(cluster)
        asked = next(node_id for node_id in cluster.nodes if node_id != controller)
        cluster.pause(controller)
        try:
            with Peer(cluster.nodes[asked].port, timeout_s=120) as peer:
                answer, seconds = took(peer, new_topic(f"soon-{attempt}", 300), 7)
                if answer.topics[0].error_code == ErrorCode.NONE:
                    # Another node was elected before the broker was asked, or before the controller was paused.
                    continue
                assert answer.topics[0].error_code == ErrorCode.REQUEST_TIMED_OUT
                assert 0.3 - EARLY_S <= seconds < 0.3 + SLACK_S
                answer = peer.ask(new_topic("patient", PATIENCE_MS), 7)
                assert answer.topics[0].error_code in MADE_OR_THERE
                return
        finally:
            cluster.resume(controller)
    raise AssertionError(f"{ATTEMPTS} times another controller was there at once")
