"""Several listeners for clients: clients get addresses that they can reach, and brokers keep to their own listener."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.hostile.peer import ROUTES, Closed, Peer, answer_of, request
from tests.scenarios.nodes_by_hand import NodeByHand, nodes_by_hand

from strandline.codec.message import Message
from strandline.codec.messages.describe_cluster_request import DescribeClusterRequest
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.local.free_ports import free_port
from strandline.local.node_process import BrokerFailed
from strandline.quorum.raft.state_files import uuid_text

WAIT_S_MAX = 60.0


@contextmanager
def cluster(root: Path, count: int, more: Mapping[str, str] | None = None) -> Iterator[list[tuple[NodeByHand, int]]]:
    """Nodes that all are controllers and brokers, with a listener INSIDE and one OUTSIDE, whose port is given."""
    with nodes_by_hand(root, count) as nodes:
        outside = [free_port() for _ in nodes]
        voters = ",".join(f"{node.node_id}@{node.controller_address}" for node in nodes)
        cluster_id = uuid_text(uuid.uuid4())
        for node, port in zip(nodes, outside, strict=True):
            listeners = f"INSIDE://127.0.0.1:{node.port},OUTSIDE://127.0.0.1:{port}"
            settings = {
                "listeners": f"{listeners},CONTROLLER://{node.controller_address}",
                "controller.quorum.voters": voters,
                "inter.broker.listener.name": "INSIDE",
                **(more or {}),
            }
            node.configure("broker,controller", settings)
            formatted = node.format(cluster_id)
            assert formatted.returncode == 0, formatted.stderr
        for node in nodes:
            node.spawn()
        for node in nodes:
            node.wait_ready()
        yield list(zip(nodes, outside, strict=True))


def asked(port: int, message: Message, version: int) -> Any:
    with Peer(port) as peer:
        peer.send(request(message, version))
        return answer_of(ROUTES[message.API_KEY], version, peer.receive_answer())


def test_each_client_gets_addresses_of_the_listener_it_uses(tmp_path: Path) -> None:
    with cluster(tmp_path, 3) as nodes:
        bootstrap = f"127.0.0.1:{nodes[0][1]}"
        admin = AdminClient({"bootstrap.servers": bootstrap})
        admin.create_topics([NewTopic("orders", 3, 3)])["orders"].result(WAIT_S_MAX)
        producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
        failures: list[Any] = []
        for number in range(30):
            producer.produce("orders", partition=number % 3, on_delivery=lambda error, _: failures.append(error))
        assert producer.flush(WAIT_S_MAX) == 0
        assert failures == [None] * 30, "acks=all needs followers, which fetch by the listener INSIDE"
        for ports in ([node.port for node, _ in nodes], [port for _, port in nodes]):
            described = asked(ports[0], DescribeClusterRequest(), 1)
            assert sorted(each.port for each in described.brokers) == sorted(ports)
            metadata = asked(ports[1], MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 12)
            assert sorted(each.port for each in metadata.brokers) == sorted(ports)
            assert {each.error_code for each in metadata.topics[0].partitions} == {0}
            found = asked(ports[2], FindCoordinatorRequest(key="a-group", key_type=0), 3)
            while found.error_code:
                found = asked(ports[2], FindCoordinatorRequest(key="a-group", key_type=0), 3)
            assert found.port in ports


def test_a_listener_has_limits_of_its_own(tmp_path: Path) -> None:
    limits = {"max.connections": "3", "listener.name.outside.max.connections": "1"}
    with cluster(tmp_path, 1, limits) as [(node, outside)], Peer(outside) as first:
        assert is_served(first)
        with Peer(outside) as second:
            assert not is_served(second)
        # The node's limit does not hold for brokers among themselves.
        with Peer(node.port) as a, Peer(node.port) as b, Peer(node.port) as c, Peer(node.port) as d:
            assert all(map(is_served, (a, b, c, d)))


def is_served(peer: Peer) -> bool:
    try:
        peer.send(request(MetadataRequest(topics=[]), 12))
        peer.receive_answer()
    except Closed:
        return False
    return True


def test_a_new_node_does_not_serve_other_machines_without_authentication(tmp_path: Path) -> None:
    with nodes_by_hand(tmp_path, 1) as [node]:

        def configure(**more: str) -> None:
            given = {name.replace("_", "."): value for name, value in more.items()}
            listeners = {
                "listeners": f"INSIDE://:{node.port}",
                "advertised.listeners": f"INSIDE://127.0.0.1:{node.port}",
            }
            node.configure("broker,controller", {**listeners, "controller.listener.names": "", **given})

        configure()
        with pytest.raises(BrokerFailed):
            node.start()
        assert "at every interface" in node.stderr_text()
        assert "or listener.unauthenticated.allow=true" in node.stderr_text()
        configure(listener_unauthenticated_allow="true")
        node.start()
        assert "without authentication: they can read and change everything" in node.stderr_text()
        node.stop()
        # A directory that has such a listener already goes on.
        configure()
        node.start()
        node.stop()
