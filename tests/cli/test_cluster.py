"""`strandline cluster info`."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from tests.cli.conftest import CommandLine

from strandline.cli.cluster import Health, health_of


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
