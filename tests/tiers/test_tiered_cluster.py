"""Tiered topics in a cluster of three: leaders move and die, and replicas begin behind what is in the store."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import fetch, listed
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

TOPIC = "orders"
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED = -2, -4, -5


class World(NamedTuple):
    cluster: EmbeddedCluster
    data: Path
    store: Path

    def peer(self, node_id: int) -> Peer:
        return Peer(self.cluster.nodes[node_id].port)

    def data_of(self, node_id: int) -> Path:
        return next(path.parent for path in self.data.rglob("meta.properties") if is_of(path, node_id))

    def is_copied(self) -> bool:
        """Return whether all sealed segments of the leader are in the store, and local ones are gone on all nodes."""
        leader = self.cluster.leader_of(TOPIC)
        with self.peer(leader) as peer:
            copied = listed(peer, TOPIC, LATEST_TIERED).offset
        running = [each for each, node in self.cluster.nodes.items() if node.running]
        bases = {each: local_bases(self.data_of(each), TOPIC) for each in running}
        return copied == bases[leader][-1] - 1 and all(len(each) <= 4 for each in bases.values())

    def values(self, start: int, end: int) -> list[bytes | None]:
        return [each[2] for each in read(self.cluster.bootstrap_servers, TOPIC, start, end)]


def is_of(path: Path, node_id: int) -> bool:
    return f"node.id={node_id}\n" in path.read_text() + "\n"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(nodes=3, data=data, properties=properties(store)) as cluster:
        found = World(cluster, data, store)
        cluster.create_topic(TOPIC, replication_factor=3, **settings_of_tiered(retention_ms=-1))
        yield found


def written(world: World, count: int, seed: int = 1) -> list[bytes]:
    rng = random.Random(seed)
    values = [rng.randbytes(500) for _ in range(count)]
    fill(world.cluster.bootstrap_servers, [TOPIC], values)
    return values


def test_leaders_die_and_each_successor_serves_all_records(world: World) -> None:
    values = written(world, 400)
    wait_until(world.is_copied, "the topic is copied")
    for turn in range(2):
        leader = world.cluster.leader_of(TOPIC)
        world.cluster.kill(leader)
        wait_until(lambda: world.cluster.leader_of(TOPIC) != leader, "another node leads")  # noqa: B023
        assert world.values(0, len(values)) == values, "a new leader serves what its predecessor copied"
        world.cluster.start(leader)
        world.cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
        values += written(world, 200, seed=turn + 2)
        wait_until(world.is_copied, "the topic is copied")
    assert world.values(0, len(values)) == values
    bases = sorted(int(path.name[:20]) for path in copies(world.store))
    assert len(bases) == len(set(bases)), "each segment is copied once"


def test_a_replica_without_its_log_begins_behind_what_is_in_the_store(world: World) -> None:
    values = written(world, 600)
    wait_until(world.is_copied, "the topic is copied")
    leader = world.cluster.leader_of(TOPIC)
    victim = next(each for each in world.cluster.nodes if each != leader)
    directory = world.data_of(victim) / f"{TOPIC}-0"
    world.cluster.stop(victim)
    shutil.rmtree(directory)
    world.cluster.start(victim)
    world.cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
    bases = local_bases(world.data_of(victim), TOPIC)
    assert bases[0] >= local_bases(world.data_of(leader), TOPIC)[0] > 300, "it copied tiered data"
    # Both others die: it leads, and knows the epochs of what it never had.
    for each in [node for node in world.cluster.nodes if node not in (victim, leader)]:
        world.cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
        world.cluster.kill(each)
    move_leadership(world, victim, leader)
    with world.peer(victim) as peer:
        assert listed(peer, TOPIC, EARLIEST).offset == 0
        assert not fetch(peer, TOPIC, 0).error_code
    assert world.values(0, len(values)) == values


def move_leadership(world: World, to: int, away_from: int) -> None:
    """Stop the leader cleanly, so that another replica in sync leads, and start it again."""
    if world.cluster.leader_of(TOPIC) == to:
        return
    for each, node in world.cluster.nodes.items():
        if not node.running:
            world.cluster.start(each)
    world.cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
    others = [each for each in world.cluster.nodes if each not in (to, away_from)]
    world.cluster.stop(away_from)
    wait_until(lambda: world.cluster.leader_of(TOPIC) != away_from, "another node leads")
    if world.cluster.leader_of(TOPIC) != to:
        world.cluster.start(away_from)
        world.cluster.wait_in_sync(TOPIC, timeout_s=WAIT_S)
        world.cluster.stop(others[0])
        wait_until(lambda: world.cluster.leader_of(TOPIC) != others[0], "another node leads")
        if world.cluster.leader_of(TOPIC) != to:
            pytest.skip("the controller prefers another replica")


def test_a_deleted_topic_leaves_nothing_although_its_leader_dies(world: World) -> None:
    written(world, 400)
    wait_until(world.is_copied, "the topic is copied")
    leader = world.cluster.leader_of(TOPIC)
    delete_topics(world.cluster.bootstrap_servers, TOPIC)
    world.cluster.kill(leader)
    wait_until(lambda: not objects(world.store), "the store is empty")
