"""A consumer that comes while a cluster is starting: its group waits for the brokers that its positions need."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.hostile.peer import Peer
from tests.scenarios.nodes_by_hand import nodes_by_hand

from strandline.codec.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.errors import ErrorCode
from strandline.local.node_process import wait_all_ready

CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0cw"
PATIENCE_S = 60.0


def find(peer: Peer) -> Any:
    (found,) = peer.ask(FindCoordinatorRequest(coordinator_keys=["g"]), 4).coordinators
    return found


@pytest.mark.slow
def test_the_offsets_topic_has_all_its_replicas_whoever_asks_first(tmp_path: Path) -> None:
    with nodes_by_hand(tmp_path, 3) as nodes:
        voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes)
        for node in nodes:
            node.configure(
                "broker,controller", {"controller.quorum.voters": voters, "offsets.topic.num.partitions": "3"}
            )
            assert node.format(CLUSTER_ID).returncode == 0
        for node in nodes[:2]:
            node.spawn()
        wait_all_ready(nodes[:2])
        with Peer(nodes[0].port) as peer:
            found = find(peer)
            assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
            assert "is to have 3 replicas, and 2 brokers are registered" in found.error_message
            nodes[2].spawn()
            wait_all_ready(nodes[2:])
            deadline = time.monotonic() + PATIENCE_S
            while (found := find(peer)).error_code != 0:
                assert found.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
                assert time.monotonic() < deadline, found.error_message
                time.sleep(0.05)
            request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="__consumer_offsets")])
            (topic,) = peer.ask(request, 0).topics
            assert [sorted(partition.replica_nodes) for partition in topic.partitions] == [[1, 2, 3]] * 3
