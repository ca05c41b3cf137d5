"""Compaction of tiered topics through the front door: the newest value of each key is read, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.cli.conftest import CommandLine
from tests.hostile.peer import Peer
from tests.tiers.compacted_topics import (
    SEGMENT_BYTES,
    Found,
    World,
    Written,
    compacting,
    end_of,
    metrics,
    read_all,
    read_while_still,
    settings_of_compacted,
    stored_bytes,
    wait_compacted,
)
from tests.tiers.raw_reads import listed
from tests.tiers.tiered_nodes import (
    WAIT_S,
    copies,
    local_bases,
    read,
    settings_of_tiered,
    wait_until,
    watermarks,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import free_port
from strandline.runtime import fault_points

TWIN = {
    "cleanup_policy": "compact",
    "internal_segment_bytes": SEGMENT_BYTES,
    "min_cleanable_dirty_ratio": 0.01,
    "file_delete_delay_ms": 0,
}
EARLIEST = -2
QUICK = ("tier-swap-done",)
"""Behind the record that decides. The other points are reached in the long run."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(data=data, properties=compacting(store)) as log:
        yield World(log, data, store)


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 10))])
def test_tiered_topics_and_their_local_twin_read_alike(world: World, seed: int) -> None:
    """One keeps tombstones for an hour, the other lets them go at once. No older value comes back in either."""
    world.log.create_topic("tiered", **settings_of_compacted())
    world.log.create_topic("brief", **settings_of_compacted(delete_retention_ms=0))
    world.log.create_topic("plain", **TWIN)
    topics = ["tiered", "brief", "plain"]
    written = Written(world.log.bootstrap, topics, seed)
    for _ in range(4):
        written.write(250)
        written.write_in_transactions(8)
        for topic in topics:
            written.check(read_all(world, topic))
    for topic in ("tiered", "brief"):
        wait_compacted(world, topic)
        assert local_bases(world.data, topic)[0] > 500, "most is in the store alone"
    for topic in topics:
        written.check(read_all(world, topic))
    # From each offset on: what is read is what the whole log, read once, has from there on.
    end = end_of(world, "tiered")
    whole, from_others = read_while_still(world, "tiered", range(0, end, end // 12))
    for start, found in from_others.items():
        assert found == [each for each in whole if each[0] >= start], start


@pytest.mark.parametrize(
    "point",
    [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in fault_points.TIER_POINTS],
)
def test_kill_9_in_a_compaction_loses_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    killed = tmp_path / "killed"
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:kill:{killed}")
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(data=data, properties=compacting(store)) as log, ThreadPoolExecutor(1) as pool:
        world, cli = World(log, data, store), CommandLine(log.bootstrap)
        log.create_topic("orders", **settings_of_compacted(delete_retention_ms=0))
        written = Written(log.bootstrap, ["orders"], seed=5)
        restarted = pool.submit(restart_after, log, killed)
        while not killed.exists():
            written.write(100, keys=150)
        restarted.result(WAIT_S)
        written.check(read_all(world, "orders"))
        written.write_in_transactions(10)
        written.write(100)
        wait_compacted(world, "orders", bytes_max=5 * SEGMENT_BYTES)
        written.check(read_all(world, "orders"))
        scratch = data / "remote-log-index-cache"
        wait_until(lambda: not list(scratch.iterdir()), "what the compaction had on the disk is gone")
        sound = cli.ok("storage", "check", "--deep", "--grace", "0")
        assert "all is well" in sound.stderr


def restart_after(log: EmbeddedBroker, killed: Path) -> None:
    """Start the broker again when it was killed."""
    wait_until(killed.exists, "the broker is killed")
    log.kill()
    log.start()


def test_a_topic_that_was_not_compacted_becomes_so(world: World) -> None:
    """Its segments in the store have old values, and records of transactions that were aborted."""
    world.log.create_topic(
        "orders",
        **settings_of_tiered(
            internal_segment_bytes=SEGMENT_BYTES, local_retention_bytes=SEGMENT_BYTES, retention_ms=-1
        ),
    )
    written = Written(world.log.bootstrap, ["orders"], seed=8)
    for _ in range(3):
        written.write(150)
        written.write_in_transactions(12)
    written_in_transactions = end_of(world, "orders")
    # Other keys, so that aborted records are the last of theirs.
    written.write(250, keys=5000)
    with Peer(world.log.port) as peer:
        wait_until(
            lambda: local_bases(world.data, "orders")[0] > written_in_transactions, "they are in the store alone"
        )
        assert listed(peer, "orders", EARLIEST).offset == 0
    cli = CommandLine(world.log.bootstrap)
    more = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    cli.ok("topic", "alter", "orders", "--yes", *(f"--config={name}={value}" for name, value in more.items()))
    written.check(read_all(world, "orders"))
    wait_compacted(world, "orders", segments_max=12, bytes_max=5 * SEGMENT_BYTES)
    written.check(read_all(world, "orders"))


def test_compact_and_delete_moves_the_log_start(world: World) -> None:
    settings = settings_of_compacted(cleanup_policy="compact,delete", retention_bytes=5 * SEGMENT_BYTES)
    world.log.create_topic("orders", **settings)
    written = Written(world.log.bootstrap, ["orders"], seed=9)
    with Peer(world.log.port) as peer:
        for _ in range(4):
            # Nearly all keys are different, so compaction makes nothing small.
            written.write(200, keys=10**9)

        def read_from_start() -> Found | None:
            try:
                return read_all(world, "orders", start=listed(peer, "orders", EARLIEST).offset)
            except AssertionError:
                # The log start moved on in between.
                return None

        wait_until(lambda: listed(peer, "orders", EARLIEST).offset, "the log start moves")
        found = wait_until(read_from_start, "what is left is read")
        assert {(key, value) for _, key, value, _ in found} <= written.values
        assert found[-1][0] == end_of(world, "orders") - 1


def test_a_compaction_reads_each_byte_at_most_twice(tmp_path: Path) -> None:
    port = free_port()
    settings = compacting(tmp_path / "store", **{"http.listener": f"127.0.0.1:{port}"})
    with strandline.embedded(data=tmp_path / "data", properties=settings) as log:
        world = World(log, tmp_path / "data", tmp_path / "store")
        log.create_topic("orders", **settings_of_compacted(min_cleanable_dirty_ratio=0.3))
        written = Written(log.bootstrap, ["orders"], seed=7)
        for _ in range(4):
            written.write(200, keys=150)
        with Peer(log.port) as peer:
            wait_until(lambda: local_bases(world.data, "orders")[0] > 300, "segments are in the store alone")
            assert listed(peer, "orders", EARLIEST).offset == 0
        wait_until(lambda: metrics(port)["replaced_segments_total"], "the store is compacted")
        found = metrics(port)
        assert not found["compaction_failures_total"]
        assert 0 < found["compaction_read_bytes_total"] <= 2 * found["compaction_source_bytes_total"]
        written.check(read_all(world, "orders"))


@pytest.mark.slow
def test_leaders_die_while_they_compact(tmp_path: Path) -> None:
    store, rounds = tmp_path / "store", 4
    with strandline.embedded(nodes=3, data=tmp_path / "data", properties=compacting(store)) as cluster:
        settings = settings_of_compacted(delete_retention_ms=0, file_delete_delay_ms=500)
        cluster.create_topic("orders", replication_factor=3, **settings)
        written = Written(cluster.bootstrap_servers, ["orders"], seed=12)

        def all_of_it() -> Found:
            end = watermarks(cluster.bootstrap_servers, "orders")[1]
            return read(cluster.bootstrap_servers, "orders", 0, end)

        for turn in range(rounds):
            written.write(150, keys=150)
            written.write_in_transactions(6)
            leader = cluster.leader_of("orders")
            wait_until(lambda: len(copies(store)) > turn, "segments are copied, and perhaps being compacted")  # noqa: B023
            cluster.kill(leader)
            wait_until(lambda: cluster.leader_of("orders") != leader, "another node leads")  # noqa: B023
            written.check(all_of_it())
            cluster.start(leader)
            cluster.wait_in_sync("orders", timeout_s=WAIT_S)
        written.write(150, keys=150)
        wait_until(lambda: 0 < stored_bytes(copies(store)) < 6 * SEGMENT_BYTES, "it is compacted")
        written.check(all_of_it())
