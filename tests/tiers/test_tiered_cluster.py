"""Tiered topics in a cluster of three: leaders move and die, and replicas begin behind what is in the store."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import fetch_once, listed
from tests.tiers.tiered_nodes import (
    WAIT_S,
    copies,
    delete_topics,
    fill,
    local_bases,
    objects,
    properties,
    read,
    settings_of_tiered,
    wait_until,
)

import strandline
from strandline.local.embedded_cluster import EmbeddedCluster

TOPIC, PAIR = "orders", "pairs"
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5


class World(NamedTuple):
    cluster: EmbeddedCluster
    data: Path
    store: Path

    def peer(self, node_id: int) -> Peer:
        return Peer(self.cluster.nodes[node_id].port)

    def data_of(self, node_id: int) -> Path:
        return next(path.parent for path in self.data.rglob("meta.properties") if is_of(path, node_id))

    def replicas(self, topic: str) -> list[int]:
        return list(self.cluster.partitions(topic)[0].replicas)

    def is_copied(self, topic: str = TOPIC) -> bool:
        """Return whether all sealed segments of the leader are in the store, and local ones are gone on all nodes."""
        leader = self.cluster.leader_of(topic)
        with self.peer(leader) as peer:
            copied = listed(peer, topic, LATEST_TIERED).offset
        running = [each for each in self.replicas(topic) if self.cluster.nodes[each].running]
        bases = {each: local_bases(self.data_of(each), topic) for each in running}
        return copied == bases[leader][-1] - 1 and all(len(each) <= 4 for each in bases.values())

    def values(self, start: int, end: int, topic: str = TOPIC) -> list[bytes | None]:
        return [each[2] for each in read(self.cluster.bootstrap_servers, topic, start, end)]


def is_of(path: Path, node_id: int) -> bool:
    return f"node.id={node_id}\n" in path.read_text() + "\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(nodes=3, data=data, properties=properties(store)) as cluster:
        found = World(cluster, data, store)
        cluster.create_topic(TOPIC, replication_factor=3, **settings_of_tiered(retention_ms=-1))
        yield found


def written(world: World, count: int, seed: int = 1, topic: str = TOPIC) -> list[bytes]:
    rng = random.Random(seed)
    values = [rng.randbytes(500) for _ in range(count)]
    fill(world.cluster.bootstrap_servers, [topic], values)
    return values


def test_a_leader_dies_and_its_successor_serves_all_records(world: World) -> None:
    values = written(world, 400)
    wait_until(world.is_copied, "the topic is copied")
    leader = world.cluster.leader_of(TOPIC)
    world.cluster.kill(leader)
    wait_until(lambda: world.cluster.leader_of(TOPIC) != leader, "another node leads")
    assert world.values(0, len(values)) == values, "a new leader serves what its predecessor copied"
    world.cluster.start(leader)
    world.cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
    values += written(world, 200, seed=2)
    wait_until(world.is_copied, "the topic is copied")
    assert world.values(0, len(values)) == values
    bases = sorted(int(path.name[:20]) for path in copies(world.store))
    assert len(bases) == len(set(bases)), "each segment is copied once"


@pytest.mark.slow
def test_a_replica_without_its_log_begins_behind_what_is_in_the_store(world: World) -> None:
    """Then its leader dies, and it leads, with the epochs of records that it never had."""
    cluster = world.cluster
    cluster.create_topic(PAIR, replication_factor=2, **settings_of_tiered(retention_ms=-1))
    values = written(world, 600, topic=PAIR)
    wait_until(lambda: world.is_copied(PAIR), "the topic is copied")
    leader = cluster.leader_of(PAIR)
    (victim,) = [each for each in world.replicas(PAIR) if each != leader]
    cluster.stop(victim)
    shutil.rmtree(world.data_of(victim) / f"{PAIR}-0")
    cluster.start(victim)
    cluster.wait_in_sync(PAIR, timeout_s=WAIT_S)
    bases = local_bases(world.data_of(victim), PAIR)
    assert bases[0] >= local_bases(world.data_of(leader), PAIR)[0] > 300, "it copied tiered data"
    assert (world.data_of(victim) / f"{PAIR}-0" / f"{bases[0]:020}.snapshot").exists(), "it knows no producers"
    cluster.kill(leader)
    wait_until(lambda: cluster.leader_of(PAIR) == victim, "the replica leads")
    with world.peer(victim) as peer:
        wait_until(lambda: not fetch_once(peer, PAIR, 0).error_code, "it has read the metadata")
        assert listed(peer, PAIR, EARLIEST).offset == 0
        assert listed(peer, PAIR, EARLIEST_LOCAL).offset == bases[0]
    assert world.values(0, len(values), PAIR) == values


@pytest.mark.slow
def test_a_deleted_topic_leaves_nothing_although_its_leader_dies(world: World) -> None:
    written(world, 400)
    wait_until(world.is_copied, "the topic is copied")
    leader = world.cluster.leader_of(TOPIC)
    delete_topics(world.cluster.bootstrap_servers, TOPIC)
    world.cluster.kill(leader)
    wait_until(lambda: not objects(world.store), "the store is empty")
