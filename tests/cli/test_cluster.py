"""`strandline cluster` against a single node; `test_cluster_story` has several."""

from __future__ import annotations

import json
import signal
from types import SimpleNamespace
from typing import Any

from tests.cli.conftest import TIMEOUT_S, CommandLine

from strandline.cli.cluster.info import Health, health_of


def test_the_cluster_in_json_and_words(cli: CommandLine, topic: str) -> None:
    (info,) = cli.ok("cluster", "info", "--json").objects
    (broker,) = info["brokers"]
    assert f"{broker['host']}:{broker['port']}" == cli.bootstrap
    assert broker["controller"] is True
    assert info["controller"] == broker["broker"]
    assert len(info["cluster_id"]) == 22
    assert info["topics"] >= 1
    assert info["partitions"] >= 3
    assert (info["offline"], info["under_replicated"]) == (0, 0)
    assert info["apis"]["18"][0] == 0
    assert info["features"]["metadata.version"]["level"] >= 7
    lines = cli.ok("cluster", "info").lines
    assert lines[0] == f"cluster     {info['cluster_id']}"
    assert any("all in sync" in line for line in lines)
    assert lines[-1].split()[:2] == [str(broker["broker"]), cli.bootstrap]


def partition(leader: int, replicas: list[int], isrs: list[int]) -> Any:
    return SimpleNamespace(leader=leader, replicas=replicas, isrs=isrs)


def test_partitions_that_are_not_well_are_counted() -> None:
    topics = {
        "orders": [partition(1, [1, 2], [1, 2]), partition(1, [1, 2], [1]), partition(-1, [1, 2], [])],
        "__consumer_offsets": [partition(1, [1], [1])],
    }
    described = {name: SimpleNamespace(partitions=dict(enumerate(listed))) for name, listed in topics.items()}
    assert health_of(described) == Health(
        topics=1, internal_topics=1, partitions=4, replicas=7, offline=1, under_replicated=2
    )


def test_a_single_node_is_a_cluster_that_is_well(cli: CommandLine, topic: str) -> None:
    (status,) = cli.ok("cluster", "status", "--json").objects
    (node,) = status["nodes"]
    assert (node["roles"], node["state"], node["active_controller"]) == (["broker", "controller"], "up", True)
    assert node["leaders"] == node["replicas"] == status["partitions"]
    assert node["disk_total_bytes"] > node["disk_usable_bytes"] > 0
    assert status["quorum"]["voters"] == [node["node"]]
    shown = cli.ok("cluster", "status").lines
    assert shown[1].startswith(f"quorum      node {node['node']} leads epoch")
    assert "all in sync" in shown[2]
    assert cli.ok("cluster", "health").lines[-1].startswith(("nothing is wrong", "it works, but degraded"))
    (quorum,) = cli.ok("cluster", "quorum", "--json").objects
    assert [(each["node"], each["role"]) for each in quorum["nodes"]] == [(node["node"], "leader")]
    assert cli.ok("cluster", "reassign").lines == ["nothing is being moved"]
    assert "preferred replica" in cli.ok("cluster", "elect").stderr


def test_what_cannot_be_is_refused(cli: CommandLine, topic: str) -> None:
    (node,) = cli.ok("cluster", "status", "--json").objects[0]["nodes"]
    drained = cli.run("cluster", "drain", str(node["node"]), "--yes")
    assert (drained.status, "only 0 other brokers are up" in drained.stderr) == (1, True)
    assert cli.run("cluster", "drain", "99", "--yes").status == 3
    assert cli.run("cluster", "forget", str(node["node"]), "--yes").status == 1
    assert cli.run("cluster", "elect", "--unclean").status == 2
    assert cli.run("cluster", "reassign", "--replicas", "1,2").status == 2
    assert cli.run("cluster", "reassign", "--topic", topic, "--replicas", "1,1", "--yes").status == 2
    assert cli.run("cluster", "reassign", "--topic", topic, "--replicas", "98,99", "--yes").status == 3
    assert cli.run("cluster", "reassign", "--topic", "no-such", "--replication-factor", "1", "--yes").status == 3
    unmoved = cli.run("cluster", "reassign", "--topic", topic, "--replication-factor", "1", "--yes")
    assert (unmoved.status, "nothing to move" in unmoved.stderr) == (0, True)


def test_watching_goes_on_until_it_is_interrupted(cli: CommandLine) -> None:
    watching = cli.start("cluster", "status", "--watch", "--every", "0.2", "--json")
    assert watching.stdout is not None
    first, second = (json.loads(watching.stdout.readline()) for _ in range(2))
    assert first["cluster_id"] == second["cluster_id"]
    watching.send_signal(signal.SIGINT)
    _, errors = watching.communicate(timeout=TIMEOUT_S)
    assert (watching.returncode, errors) == (0, b"")
