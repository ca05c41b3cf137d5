"""A cluster made by hand: three directories on three ports, one that joins, one that is replaced, one that is wrong."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from tests.cli.conftest import CommandLine
from tests.scenarios.nodes_by_hand import NodeByHand, nodes_by_hand

from strandline.local.node_process import wait_all_ready
from strandline.testing import BrokerFailed

CLUSTER_ID = "c3RyYW5kbGluZS10ZXN0cw"
DIRECTORY_IDS = ("c3RyYW5kbGluZS0tLS0tMQ", "c3RyYW5kbGluZS0tLS0tMg", "c3RyYW5kbGluZS0tLS0tMw")
TOPIC = "orders"
PATIENCE_S = 60.0


def wait_for(holds: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_S
    while not (found := holds()):
        assert time.monotonic() < deadline, "it did not come to be so"
        time.sleep(0.1)
    return found


def produce(bootstrap: str, values: list[str]) -> None:
    refused: list[object] = []

    def told(error: object, message: Message) -> None:
        if error is not None:
            refused.append(error)

    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "enable.idempotence": True})
    for value in values:
        producer.produce(TOPIC, value, partition=0, on_delivery=told)
    assert producer.flush(PATIENCE_S) == 0
    assert refused == []


def consumed(bootstrap: str, count: int) -> list[str]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "enable.auto.commit": False})
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    try:
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while len(found) < count and time.monotonic() < deadline:
            for message in consumer.consume(count, 1.0):
                if message.error() is None:
                    found.append((message.value() or b"").decode())
        return found
    finally:
        consumer.close()


def form(nodes: list[NodeByHand]) -> str:
    """The first three become a cluster; its bootstrap servers."""
    voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes[:3])
    for node in nodes[:3]:
        node.configure("broker,controller", {"controller.quorum.voters": voters})
        formatted = node.format(CLUSTER_ID)
        assert formatted.returncode == 0, formatted.stderr
        assert CLUSTER_ID in formatted.stdout
    return start(nodes[:3])


def start(nodes: list[NodeByHand]) -> str:
    for node in nodes:
        node.spawn()
    wait_all_ready(nodes)
    return ",".join(node.bootstrap for node in nodes)


def status(cli: CommandLine) -> Any:
    return cli.ok("cluster", "status", "--json").objects[0]


def is_whole(cli: CommandLine) -> bool:
    found = status(cli)
    return not found["offline"] and not found["under_replicated"]


@pytest.fixture
def nodes(tmp_path: Path) -> Iterator[list[NodeByHand]]:
    with nodes_by_hand(tmp_path, 4) as places:
        yield places


def test_three_directories_on_three_ports_form_a_cluster(nodes: list[NodeByHand]) -> None:
    bootstrap = form(nodes)
    cli = CommandLine(bootstrap)
    found = wait_for(lambda: (seen := status(cli)) and len(seen["nodes"]) == 3 and seen)
    assert found["cluster_id"] == CLUSTER_ID
    assert [row["state"] for row in found["nodes"]] == ["up", "up", "up"]
    assert found["quorum"]["voters"] == [1, 2, 3]
    cli.ok("topic", "create", TOPIC)
    (described,) = cli.ok("topic", "describe", TOPIC, "--json").objects
    assert len(described["partitions"][0]["replicas"]) == 3, "with three brokers a topic has three replicas"
    assert described["configs"]["min.insync.replicas"] == "2"
    produce(bootstrap, ["paid", "sent"])
    for node in nodes[:3]:
        assert consumed(node.bootstrap, 2) == ["paid", "sent"], f"by way of node {node.node_id}"
    wait_for(lambda: is_whole(cli))
    assert cli.run("cluster", "health").status == 0
    for node in nodes[:3]:
        node.stop()


@pytest.mark.slow
def test_initial_controllers_and_bootstrap_servers_in_place_of_voters(nodes: list[NodeByHand]) -> None:
    controllers = ",".join(
        f"{node.node_id}@{node.controller_address}:{directory_id}"
        for node, directory_id in zip(nodes[:3], DIRECTORY_IDS, strict=True)
    )
    servers = ",".join(node.controller_address for node in nodes[:3])
    for node in nodes[:3]:
        node.configure("broker,controller", {"controller.quorum.bootstrap.servers": servers})
        assert node.format(CLUSTER_ID, "--initial-controllers", controllers).returncode == 0
    nodes[3].configure("broker", {"controller.quorum.bootstrap.servers": servers})
    assert nodes[3].format(CLUSTER_ID).returncode == 0
    cli = CommandLine(start(nodes))
    found = wait_for(lambda: (seen := status(cli)) and len(seen["nodes"]) == 4 and seen)
    assert found["quorum"]["voters"] == [1, 2, 3]
    assert found["nodes"][3]["roles"] == ["broker"]
    (quorum,) = cli.ok("cluster", "quorum", "--json").objects
    assert {node["role"] for node in quorum["nodes"] if node["node"] == 4} == {"observer"}


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_a_fourth_joins_and_one_is_replaced_with_an_empty_disk(nodes: list[NodeByHand]) -> None:
    bootstrap = form(nodes)
    cli = CommandLine(bootstrap)
    cli.ok("topic", "create", TOPIC)
    values = [f"v-{number}" for number in range(500)]
    produce(bootstrap, values)

    fourth = nodes[3]
    voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes[:3])
    fourth.configure("broker", {"controller.quorum.voters": voters})
    assert fourth.format(CLUSTER_ID).returncode == 0
    fourth.start()
    wait_for(lambda: [row["node"] for row in status(cli)["nodes"]] == [1, 2, 3, 4])
    assert cli.ok("cluster", "drain", "3", "--yes", "--json").objects, "the fourth takes what the third had"
    wait_for(lambda: is_whole(cli))
    held = {row["node"]: row["replicas"] for row in status(cli)["nodes"]}
    assert held[3] == 0
    assert held[4] > 0

    nodes[1].stop()
    shutil.rmtree(nodes[1].data)
    assert nodes[1].format(CLUSTER_ID).returncode == 0
    nodes[1].start()
    wait_for(lambda: is_whole(cli))
    segment = next((nodes[1].data / f"{TOPIC}-0").glob("*.log"))
    assert os.path.getsize(segment) > 0, "it has filled itself"
    assert consumed(bootstrap, len(values)) == values
    # Whoever held the records before is not needed any more.
    nodes[0].kill()
    assert consumed(nodes[1].bootstrap, len(values)) == values


@pytest.mark.slow
def test_a_node_that_cannot_be_right_refuses_in_a_sentence(nodes: list[NodeByHand]) -> None:
    first, second = nodes[:2]
    voters = f"1@{first.controller_address},2@{second.controller_address}"
    first.configure("broker,controller", {"controller.quorum.voters": voters})
    with pytest.raises(BrokerFailed, match=r"is not formatted, and the configuration names a quorum of other nodes"):
        first.start()
    assert first.format(CLUSTER_ID).returncode == 0
    again = first.format(CLUSTER_ID)
    assert (again.returncode, "is formatted already" in again.stderr) == (1, True)
    assert first.format(CLUSTER_ID, "--ignore-formatted").returncode == 0
    other = first.format("new")
    assert (other.returncode, f"belongs to cluster {CLUSTER_ID}" in other.stderr) == (1, True)
    second.configure("broker,controller", {"controller.quorum.voters": voters, "log.dirs": str(first.data)})
    with pytest.raises(BrokerFailed, match=r"belongs to node 1, and node.id is 2"):
        second.start()
    assert "belongs to node 1" in second.format(CLUSTER_ID).stderr


@pytest.mark.slow
def test_a_node_with_the_directory_of_another_cluster_refuses(nodes: list[NodeByHand]) -> None:
    form(nodes)
    stranger = nodes[3]
    servers = ",".join(node.controller_address for node in nodes[:3])
    stranger.configure("broker", {"controller.quorum.bootstrap.servers": servers})
    assert stranger.format("new").returncode == 0
    with pytest.raises(BrokerFailed, match=r"belongs to (another )?cluster"):
        stranger.start()
