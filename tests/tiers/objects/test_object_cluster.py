"""Object topics in a cluster of three: leaders die, and no acknowledged record is lost or doubled."""

from __future__ import annotations

import random
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

import pytest
from confluent_kafka import Producer
from tests.tiers.tiered_nodes import WAIT_S, properties, read, wait_until, watermarks

import strandline
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.quorum.raft.state_files import uuid_text
from strandline.tiers.wal.events import COMMIT_TOPIC

TOPIC = "orders"
PARTITIONS = 3
CHECKPOINTS = {"strandline_object_checkpoint_interval_ms": "1000"}


class World(NamedTuple):
    cluster: EmbeddedCluster
    store: Path

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def values(self, index: int) -> list[bytes | None]:
        low, high = watermarks(self.bootstrap, TOPIC, index)
        return [each[2] for each in read(self.bootstrap, TOPIC, low, high, index=index)]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store = tmp_path / "store"
    settings = properties(store, strandline_object_flush_interval_ms="20", **CHECKPOINTS)
    with strandline.embedded(nodes=3, data=tmp_path / "data", properties=settings) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3, strandline_storage="object")
        try:
            yield World(cluster, store)
        finally:
            for node_id, text in cluster.stderr_texts().items():
                print(f"--- node {node_id}\n{text}")


class Writer:
    """A producer that writes numbered values to all partitions until it is stopped."""

    def __init__(self, bootstrap: str) -> None:
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        self._producer = Producer({**settings, "delivery.timeout.ms": 120_000})
        self.acknowledged: dict[int, list[bytes]] = {each: [] for each in range(PARTITIONS)}
        self.failed = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            value = b"%d" % number
            self._producer.produce(TOPIC, value=value, partition=number % PARTITIONS, on_delivery=self._on_delivery)
            self._producer.poll(0.002)
        assert self._producer.flush(WAIT_S) == 0

    def _on_delivery(self, error: object, message: object) -> None:
        if error is not None:
            self.failed += 1
        else:
            self.acknowledged[message.partition()].append(message.value())  # type: ignore[attr-defined]

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()


@pytest.mark.parametrize("kills", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_leaders_are_killed_and_every_acknowledged_record_is_there_once(world: World, kills: int) -> None:
    cluster, rng = world.cluster, random.Random(3)
    writer = Writer(world.bootstrap)
    try:
        for _ in range(kills):
            count = writer.count
            wait_until(lambda: writer.count > count + 100, "records are acknowledged")  # noqa: B023
            index = rng.randrange(PARTITIONS)
            leader = cluster.leader_of(TOPIC, index)
            cluster.kill(leader)
            wait_until(lambda: cluster.leader_of(TOPIC, index) != leader, "another node leads")  # noqa: B023
            cluster.start(leader)
            cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
    finally:
        writer.stop()
    assert writer.failed == 0
    for index in range(PARTITIONS):
        found = world.values(index)
        assert found == writer.acknowledged[index], index


@pytest.mark.slow
def test_a_leader_that_stood_still_is_fenced_and_no_offset_is_given_twice(world: World) -> None:
    """It goes on after its session has ended, with batches that it took before, while another leads."""
    cluster = world.cluster
    writer = Writer(world.bootstrap)
    try:
        for _ in range(2):
            wait_until(lambda: writer.count > 300, "records are acknowledged")
            leader = cluster.leader_of(TOPIC, 0)
            cluster.nodes[leader].pause()
            wait_until(lambda: cluster.leader_of(TOPIC, 0) != leader, "another node leads")  # noqa: B023
            count = writer.count
            wait_until(lambda: writer.count > count + 100, "the new leader acknowledges")  # noqa: B023
            cluster.nodes[leader].resume()
            cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
    finally:
        writer.stop()
    assert writer.failed == 0
    for index in range(PARTITIONS):
        assert world.values(index) == writer.acknowledged[index], index


@pytest.mark.slow
def test_all_nodes_are_killed_at_once_and_nothing_is_lost(world: World) -> None:
    cluster = world.cluster
    writer = Writer(world.bootstrap)
    wait_until(lambda: writer.count > 300, "records are acknowledged")
    cluster.kill_all()
    cluster.start_all()
    count = writer.count
    wait_until(lambda: writer.count > count + 100, "records are acknowledged again")
    writer.stop()
    assert writer.failed == 0
    for index in range(PARTITIONS):
        assert world.values(index) == writer.acknowledged[index], index


def replace_disk(cluster: EmbeddedCluster, node_id: int) -> None:
    """Kill a node, and start it with an empty directory that is formatted for it."""
    cluster.kill(node_id)
    wait_until(lambda: cluster.leader_of(COMMIT_TOPIC) not in (node_id, -1), "another node leads the commit log")
    data = cluster.nodes[node_id].data
    told = (data / "meta.properties").read_text()
    shutil.rmtree(data)
    data.mkdir()
    new = f"directory.id={uuid_text(uuid4())}"
    (data / "meta.properties").write_text(re.sub(r"directory\.id=.*", new, told))
    cluster.start(node_id)


def wait_whole(cluster: EmbeddedCluster) -> None:
    for topic in (TOPIC, COMMIT_TOPIC):
        cluster.wait_in_sync(topic, timeout_s=WAIT_S)


@pytest.mark.parametrize("disks", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_lost_commit_log_comes_back_from_another_broker(world: World, disks: int) -> None:
    """The broker that led the log loses its disk with it, and leads partitions again when it has read it elsewhere."""
    cluster = world.cluster
    writer = Writer(world.bootstrap)
    try:
        for _ in range(disks):
            count = writer.count
            wait_until(lambda: writer.count > count + 100, "records are acknowledged")  # noqa: B023
            lost = cluster.leader_of(COMMIT_TOPIC)
            replace_disk(cluster, lost)
            wait_whole(cluster)
            # The other two go one after the other, so that the log is read from the broker that had lost it.
            for other in [each for each in cluster.nodes if each != lost]:
                cluster.kill(other)
                count = writer.count
                wait_until(lambda: writer.count > count + 50, "the others acknowledge")  # noqa: B023
                cluster.start(other)
                wait_whole(cluster)
    finally:
        writer.stop()
    assert writer.failed == 0
    for index in range(PARTITIONS):
        assert world.values(index) == writer.acknowledged[index], index
