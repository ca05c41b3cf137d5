"""The commands about a cluster, put to four of our nodes and to four of Apache Kafka: tools are clients of any."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.cluster_node import KafkaSystem, StrandlineSystem, System
from bench.clusters import Cluster, local_cluster
from bench.kafka_jars import KafkaUnavailable
from tests.cli.conftest import CommandLine

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

TOPIC = "orders"
SETTLE_S_MAX = 60.0


@pytest.fixture(params=[pytest.param("kafka", marks=pytest.mark.java), "strandline"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Cluster]:
    system: System
    if request.param == "kafka":
        try:
            system = KafkaSystem(heap_mb=256, jvm=["-XX:TieredStopAtLevel=1"])
        except KafkaUnavailable as reason:
            pytest.skip(f"no Apache Kafka: {reason}")
    else:
        system = StrandlineSystem()
    nodes = local_cluster(system, tmp_path / "nodes", nodes=4)
    try:
        nodes.start()
        nodes.create_topic(TOPIC, 4, {"min.insync.replicas": "2"})
        yield nodes
    finally:
        nodes.discard()


@pytest.fixture
def cli(cluster: Cluster) -> CommandLine:
    return CommandLine(cluster.bootstrap)


def wait_for(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SETTLE_S_MAX
    while not holds():
        assert time.monotonic() < deadline, "it did not come to be so"
        time.sleep(0.5)


def roles_and_state(cli: CommandLine, node_id: int) -> tuple[list[str], str]:
    (status,) = cli.ok("cluster", "status", "--json").objects
    (row,) = [row for row in status["nodes"] if row["node"] == node_id]
    return row["roles"], row["state"]


def test_the_life_of_a_cluster(cluster: Cluster, cli: CommandLine, tmp_path: Path) -> None:
    """One story, because four nodes take their time to start: look, move, drain, lose one, lose the quorum."""
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
    # The controller is done; a broker may hear of it a moment later.
    wait_for(lambda: all(4 not in state.replicas for state in cluster.partitions(TOPIC)))
    cluster.node(4).stop()
    wait_for(lambda: roles_and_state(cli, 4) == (["broker", "controller"], "down"))
    assert cli.ok("cluster", "forget", "4", "--yes", "--json").objects == [{"node": 4, "forgotten": True}]
    wait_for(lambda: roles_and_state(cli, 4)[0] == ["controller"])
    cluster.node(4).spawn()
    cluster.node(4).wait_answering()
    wait_for(lambda: roles_and_state(cli, 4) == (["broker", "controller"], "up"))
    refused = cli.run("cluster", "drain", "3", "--yes", "--json")
    assert refused.status == 0, "with an empty broker 4 there is room again"
    cli.ok("cluster", "reassign", "--topic", TOPIC, "--replicas", "1,2,3", "--yes")
    wait_for(lambda: {state.replicas[0] for state in cluster.partitions(TOPIC)} == {1, 2, 3})
    cli.ok("cluster", "elect", "--yes")
    wait_for(lambda: all(state.leader == state.replicas[0] for state in cluster.partitions(TOPIC)))
    moves = {"version": 1, "partitions": [{"topic": TOPIC, "partition": 0, "replicas": [4, 1]}]}
    (tmp_path / "moves.json").write_text(json.dumps(moves))
    (moved,) = cli.ok("cluster", "reassign", str(tmp_path / "moves.json"), "--yes", "--json").objects
    assert (moved["after"], moved["done"]) == ([4, 1], True)
    cli.ok("cluster", "reassign", "--topic", TOPIC, "--replication-factor", "3", "--yes")
    wait_for(lambda: all(len(state.replicas) == 3 for state in cluster.partitions(TOPIC)))
    assert cli.ok("cluster", "reassign").lines == ["nothing is being moved"]
    assert cli.run("cluster", "forget", "4", "--yes").status == 1, "it is up"

    lost = cluster.quorum().leader
    cluster.node(lost).kill()
    wait_for(lambda: str(lost) in cli.ok("cluster", "status", "--json").objects[0]["under_replicated"])
    # The voter that led before is not heard of.
    wait_for(lambda: b"3 of 4 voters answer" in cli.ok("cluster", "health").stdout)
    told = cli.ok("cluster", "health").stdout.decode()
    assert f"broker {lost} is down" in told
    assert f"start broker {lost}, and it catches up" in told
    assert "it works, but degraded: " in told
    another = next(node for node in (1, 2, 3, 4) if node not in (lost, cluster.quorum().leader))
    cluster.node(another).kill()
    wait_for(lambda: cli.run("cluster", "health").status == 5)
    told = cli.run("cluster", "health").stdout.decode()
    assert "the quorum has no leader" in told
    assert "are in sync" not in told, "no broker can know that"
    told = cli.run("doctor").stdout.decode()
    assert "the quorum has no leader" in told
    assert f"start broker {another}" in told
    assert cli.run("cluster", "drain", str(lost), "--yes").status == 4
