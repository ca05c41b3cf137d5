"""Compacted object topics as followers serve them, from segments and ranges, while the leader compacts."""

from __future__ import annotations

import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.hostile.peer import Peer
from tests.tiers.compacted_topics import Found, Written, compacting
from tests.tiers.objects.test_object_compaction import NODE, stored
from tests.tiers.objects.test_object_racks import SELECTOR, bytes_out
from tests.tiers.raw_reads import listed
from tests.tiers.tiered_nodes import WAIT_S, wait_until, watermarks

import strandline
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.local.free_ports import free_port

TOPICS = ("stored", "brief")
"""One keeps tombstones for an hour, one lets them go at once."""
LATEST_TIERED = -5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    settings = compacting(tmp_path / "store", **NODE, **{"replica.selector.class": SELECTOR})
    with strandline.embedded(nodes=3, data=tmp_path / "data", properties=settings) as found:
        found.kill_all()
        for node_id, node in found.nodes.items():
            node.properties["broker.rack"] = f"rack-{node_id}"
            node.properties["http.listener"] = f"127.0.0.1:{free_port()}"
        found.start_all()
        found.create_topic("stored", partitions=1, replication_factor=3, **stored())
        found.create_topic("brief", partitions=1, replication_factor=3, **stored(delete_retention_ms=0))
        try:
            yield found
        finally:
            for node_id, text in found.stderr_texts().items():
                print(f"--- node {node_id}\n{text}")


def compactions(cluster: EmbeddedCluster, node_id: int) -> int:
    """Return how many compactions a node has finished since its start."""
    url = f"http://{cluster.nodes[node_id].properties['http.listener']}/metrics"
    text = urllib.request.urlopen(url, timeout=WAIT_S).read().decode()
    return sum(map(int, re.findall(r"^strandline_remote_compactions_total (\d+)", text, re.MULTILINE)))


def read_in_rack(cluster: EmbeddedCluster, node_id: int, topic: str) -> Found:
    """Return the records up to the end as a consumer in the rack of a node reads them."""
    _, end = watermarks(cluster.bootstrap_servers, topic)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-{time.monotonic_ns()}",
            "client.rack": f"rack-{node_id}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
    )
    found: Found = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + WAIT_S
        while time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is None:
                continue
            error, offset = message.error(), message.offset()
            assert offset is not None
            if error is None:
                found.append((offset, message.key(), message.value(), message.timestamp()[1]))
            else:
                assert error.name() == "_PARTITION_EOF", error
                # A follower ends where it has read the commit log so far.
                if offset >= end:
                    return found
    finally:
        consumer.close()
    raise AssertionError(f"{topic} was not read up to {end} in time")


def followers(cluster: EmbeddedCluster, topic: str) -> list[int]:
    leader = cluster.leader_of(topic, 0)
    return [each for each in cluster.nodes if each != leader]


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_followers_serve_the_newest_values_while_the_leader_compacts(cluster: EmbeddedCluster, seed: int) -> None:
    written = Written(cluster.bootstrap_servers, list(TOPICS), seed)
    for turn in range(4):
        written.write(150)
        written.write_in_transactions(8)
        if turn == 2:
            # Another node leads, and what the one before it committed is in ranges.
            leader = cluster.leader_of("stored", 0)
            cluster.kill(leader)
            wait_until(lambda: cluster.leader_of("stored", 0) not in (leader, -1), "another node leads")  # noqa: B023
            cluster.start(leader)
            for topic in TOPICS:
                cluster.wait_in_sync(topic, timeout_s=WAIT_S)
        for topic in TOPICS:
            for node_id in followers(cluster, topic):
                written.check(read_in_rack(cluster, node_id, topic))
    assert sum(compactions(cluster, each) for each in cluster.nodes) > 0


def test_a_follower_reads_on_from_compacted_segments_into_ranges(cluster: EmbeddedCluster) -> None:
    written = Written(cluster.bootstrap_servers, list(TOPICS), seed=7)
    written.write(300)
    written.write_in_transactions(10)
    leader = cluster.leader_of("brief", 0)
    wait_until(lambda: compactions(cluster, leader) > 0, "something is compacted")
    written.write(40)
    _, end = watermarks(cluster.bootstrap_servers, "brief")
    with Peer(cluster.nodes[leader].port) as peer:
        tiered = listed(peer, "brief", LATEST_TIERED).offset
    assert 0 < tiered < end
    sent = bytes_out(cluster, leader, "brief")
    for node_id in followers(cluster, "brief"):
        found = read_in_rack(cluster, node_id, "brief")
        written.check(found)
        assert len(found) < end - 20, "nothing was compacted"
        assert bytes_out(cluster, node_id, "brief") > 0
    assert bytes_out(cluster, leader, "brief") == sent
