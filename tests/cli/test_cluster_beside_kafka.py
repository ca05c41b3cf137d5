"""The commands about a cluster, put to four brokers of Apache Kafka: tools are clients of any Kafka cluster."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.cluster_node import KafkaSystem
from bench.clusters import Cluster, local_cluster
from bench.kafka_jars import KafkaUnavailable
from tests.cli.conftest import CommandLine

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(300)]

TOPIC = "orders"
SETTLE_S_MAX = 60.0


@pytest.fixture(scope="module")
def kafkas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    try:
        system = KafkaSystem(heap_mb=256, jvm=["-XX:TieredStopAtLevel=1"])
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    cluster = local_cluster(system, tmp_path_factory.mktemp("kafkas"), nodes=4)
    try:
        cluster.start()
        cluster.create_topic(TOPIC, 4, {"min.insync.replicas": "2"})
        yield cluster
    finally:
        cluster.discard()


@pytest.fixture
def cli(kafkas: Cluster) -> CommandLine:
    return CommandLine(kafkas.bootstrap)


def wait_for_health(cli: CommandLine, status: int) -> None:
    deadline = time.monotonic() + SETTLE_S_MAX
    while (ended := cli.run("cluster", "health")).status != status:
        assert time.monotonic() < deadline, ended
        time.sleep(0.5)


def test_the_life_of_a_cluster(kafkas: Cluster, cli: CommandLine, tmp_path: Path) -> None:
    """One story, because four JVMs are started once: look, move, drain, lose one, lose the quorum."""
    (status,) = cli.ok("cluster", "status", "--json").objects
    assert [row["node"] for row in status["nodes"]] == [1, 2, 3, 4]
    assert all(row["roles"] == ["broker", "controller"] and row["state"] == "up" for row in status["nodes"])
    assert status["quorum"]["voters"] == [1, 2, 3, 4]
    assert status["under_replicated"] == {}
    (quorum,) = cli.ok("cluster", "quorum", "--json").objects
    assert quorum["leader"] == status["quorum"]["leader"]
    assert sorted(node["role"] for node in quorum["nodes"]) == ["leader", "voter", "voter", "voter"]
    assert all(node["lag_records"] < 1000 for node in quorum["nodes"])
    assert cli.ok("cluster", "health").status == 0

    drained = cli.ok("cluster", "drain", "4", "--yes", "--json").objects
    assert all(move["done"] and 4 not in move["after"] for move in drained)
    assert all(4 not in state.replicas for state in kafkas.partitions(TOPIC))
    refused = cli.run("cluster", "drain", "3", "--yes", "--json")
    assert refused.status == 0, "with an empty broker 4 there is room again"
    cli.ok("cluster", "reassign", "--topic", TOPIC, "--replicas", "1,2,3", "--yes")
    assert {state.replicas[0] for state in kafkas.partitions(TOPIC)} == {1, 2, 3}
    cli.ok("cluster", "elect", "--yes")
    assert all(state.leader == state.replicas[0] for state in kafkas.partitions(TOPIC))
    moves = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [4, 1]}]}
    (tmp_path / "moves.json").write_text(json.dumps(moves))
    (moved,) = cli.ok("cluster", "reassign", str(tmp_path / "moves.json"), "--yes", "--json").objects
    assert (moved["after"], moved["done"]) == ([4, 1], True)
    cli.ok("cluster", "reassign", "--topic", TOPIC, "--replication-factor", "3", "--yes")
    assert all(len(state.replicas) == 3 for state in kafkas.partitions(TOPIC))
    assert cli.ok("cluster", "reassign").lines == ["nothing is being moved"]
    assert cli.run("cluster", "forget", "4", "--yes").status == 1, "it is up"

    lost = kafkas.quorum().leader % 4 + 1
    kafkas.node(lost).kill()
    deadline = time.monotonic() + SETTLE_S_MAX
    while str(lost) not in (status := cli.ok("cluster", "status", "--json").objects[0])["under_replicated"]:
        assert time.monotonic() < deadline, status
        time.sleep(0.5)
    assert f"broker {lost} is down" in cli.ok("cluster", "health").stdout.decode()
    another = next(node for node in (1, 2, 3, 4) if node not in (lost, kafkas.quorum().leader))
    kafkas.node(another).kill()
    wait_for_health(cli, 5)
    assert "nobody leads the quorum" in cli.run("cluster", "health").stdout.decode()
    assert cli.run("cluster", "drain", str(lost), "--yes").status == 4
