"""`txn` while markers cannot be written, and while a broker that may know more cannot be asked."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from tests.cli.conftest import CommandLine
from tests.scenarios.transactional_clients import PlainSpoken

from strandline.cli.common.conversation import Conversation
from strandline.codec.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from strandline.codec.messages.describe_producers_response import DescribeProducersResponse
from strandline.errors import ErrorCode
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.testing import embedded

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

PATIENCE_S = 60.0
PROPERTIES = {"transaction.state.log.num.partitions": "3", "broker.session.timeout.ms": "3000"}
ID = "worker"


def eventually(look: Callable[[], Any], wanted: Callable[[Any], bool]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not wanted(found := look()):
        assert time.monotonic() < deadline, found
    return found


def coordinator_of(cluster: EmbeddedCluster) -> int:
    with PlainSpoken([next(iter(cluster.nodes.values())).port], ID) as producer:
        port = producer.coordinator_port()
    return next(node_id for node_id, node in cluster.nodes.items() if node.port == port)


def open_on(port: int, topic: str) -> list[tuple[int, int]]:
    """Who has a transaction open on the first partition, and where it began, as the node says that is asked."""
    request = DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=[0])])
    with Conversation("127.0.0.1", port, PATIENCE_S) as conversation:
        answer = conversation.ask(request, DescribeProducersResponse)
    assert answer is not None
    (partition,) = answer.topics[0].partitions
    assert partition.error_code == ErrorCode.NONE
    return [
        (each.producer_id, each.current_txn_start_offset)
        for each in partition.active_producers
        if each.current_txn_start_offset >= 0
    ]


def test_markers_that_wait_for_a_partition_are_told_of() -> None:
    with embedded(nodes=3, properties=PROPERTIES) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=1)
        cluster.create_topic("paid")
        coordinator = coordinator_of(cluster)
        led = {partition: cluster.leader_of("orders", partition) for partition in range(3)}
        lonely, lost = next((index, leader) for index, leader in led.items() if leader != coordinator)
        other = next(index for index in led if led[index] != lost)
        cli = CommandLine(cluster.bootstrap_servers)
        with PlainSpoken([cluster.nodes[coordinator].port], ID) as producer:
            producer.init()
            assert producer.produce("orders", "a", partition=lonely) == ErrorCode.NONE
            assert producer.produce("orders", "b", partition=other) == ErrorCode.NONE
            assert producer.produce("paid", "c") == ErrorCode.NONE
            (told,) = cli.ok("txn", "list", "--json").objects
            assert (told["state"], told["coordinator"]) == ("Ongoing", coordinator)
            for node in cluster.nodes.values():
                # Followers tell of it, too, when they have it.
                eventually(partial(open_on, node.port, "paid"), lambda found: found == [(producer.producer_id, 0)])
            cluster.kill(lost)
            assert producer.end(commits=True).error_code == ErrorCode.NONE

        def waiting() -> Any:
            return cli.ok("txn", "describe", ID, "--json").objects[0]

        told = eventually(waiting, lambda each: [marker["leader"] for marker in each["waiting"]] == [-1])
        assert told["state"] == "PrepareCommit"
        assert told["ends"] == f"it is being committed: markers wait for orders-{lonely} (no leader)"
        why = cli.ok("txn", "why", f"orders-{lonely}").stdout.decode()
        assert "has no leader" in why
        refused = cli.run("txn", "abort", ID, "--yes")
        assert refused.status == 1
        assert "is decided (PrepareCommit) and cannot be changed" in refused.stderr

        cluster.start(lost)
        eventually(waiting, lambda each: each["state"] == "CompleteCommit")
        assert cli.ok("txn", "why", "orders", "--json").objects[lonely]["held_back"] == 0


def test_nothing_is_aborted_while_its_coordinator_may_be_silent() -> None:
    """A node that hangs is still in the metadata for a while, and what it coordinates cannot be asked for."""
    slow_to_miss = {"broker.session.timeout.ms": "60000", "transaction.partition.verification.enable": "false"}
    with embedded(nodes=3, properties=PROPERTIES | slow_to_miss) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=1)
        coordinator = coordinator_of(cluster)
        index = next(each for each in range(3) if cluster.leader_of("orders", each) != coordinator)
        others = [node.port for node_id, node in cluster.nodes.items() if node_id != coordinator]
        with PlainSpoken(others, ID) as producer:
            producer.init()
            assert producer.produce("orders", "a", partition=index) == ErrorCode.NONE
        cluster.pause(coordinator)
        try:
            cli = CommandLine(",".join(f"127.0.0.1:{port}" for port in others))
            where = ("--topic-partition", f"orders-{index}", "--start-offset", "0")
            refused = cli.run("txn", "abort", *where, "--yes", "--timeout", "3")
            assert refused.status == 4
            assert "could not be asked; nothing was aborted" in refused.stderr
        finally:
            cluster.resume(coordinator)
        (told,) = eventually(
            lambda: cli.run("txn", "why", f"orders-{index}", "--json").objects, lambda found: bool(found)
        )
        assert [each["verdict"] for each in told["transactions"]] == ["ongoing"]
