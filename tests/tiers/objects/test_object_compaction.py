"""Compaction of object topics through the front door: the newest value of each key is read, whatever happens."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.hostile.peer import Peer
from tests.tiers.compacted_topics import (
    SEGMENT_BYTES,
    World,
    Written,
    compacting,
    end_of,
    read_all,
    settings_of_compacted,
    wait_compacted,
)
from tests.tiers.raw_reads import listed
from tests.tiers.test_tier_compaction import TWIN, restart_after
from tests.tiers.tiered_nodes import WAIT_S, local_bases, wait_until

import strandline
from strandline.broker.tiering.objects.range_reading import RangeReader
from strandline.broker.tiering.remote_reading import RemoteLog, aborted_among
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.runtime import fault_points
from strandline.tiers.records import RemoteSegment, TieredPartition
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.wal.commit_fold import CommitFold, CommittedPartition, WalRange
from strandline.tiers.wal.events import ObjectId

EARLIEST = -2
QUICKLY = {"strandline_object_flush_interval_ms": "10", "strandline_object_merge_interval_ms": "300"}
NODE = {name.replace("_", "."): value for name, value in QUICKLY.items()}


def stored(**more: str | int) -> dict[str, Any]:
    """Return the settings of a compacted object topic."""
    found = settings_of_compacted(strandline_storage="object", **more)
    del found["remote_storage_enable"]
    return found


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(data=data, properties=compacting(store, **NODE)) as log:
        yield World(log, data, store)


def kill_and_start(world: World, topics: list[str]) -> None:
    world.log.kill()
    world.log.start()
    wait_until(lambda: all(end_of(world, topic) > 0 for topic in topics), "all topics are led")


@pytest.mark.parametrize("seed", [3, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(4, 8))])
def test_object_topics_and_their_local_twin_read_alike(world: World, seed: int) -> None:
    """One keeps tombstones for an hour, one lets them go at once, and in between the leader loses its local log."""
    world.log.create_topic("stored", **stored())
    world.log.create_topic("brief", **stored(delete_retention_ms=0))
    world.log.create_topic("plain", **TWIN)
    topics = ["stored", "brief", "plain"]
    written = Written(world.log.bootstrap, topics, seed)
    for turn in range(4):
        written.write(150)
        written.write_in_transactions(8)
        if turn == 2:
            kill_and_start(world, topics)
        for topic in topics:
            written.check(read_all(world, topic))
    for topic in ("stored", "brief"):
        # How many segments the ranges were merged into depends on how fast they came. What stays of them does not.
        wait_compacted(world, topic, segments_max=30)
        assert local_bases(world.data, topic)[0] > 300, "most is in the store alone"
        written.check(read_all(world, topic))
    kill_and_start(world, topics)
    for topic in topics:
        written.check(read_all(world, topic))


@pytest.mark.slow
@pytest.mark.parametrize("point", fault_points.TIER_POINTS)
def test_kill_9_in_a_compaction_loses_nothing_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    killed = tmp_path / "killed"
    monkeypatch.setenv(fault_points.VARIABLE, f"{point}:kill:{killed}")
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(data=data, properties=compacting(store, **NODE)) as log, ThreadPoolExecutor(1) as pool:
        world = World(log, data, store)
        log.create_topic("orders", **stored(delete_retention_ms=0))
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


@pytest.mark.slow
def test_compact_and_delete_moves_the_log_start(world: World) -> None:
    settings = stored(cleanup_policy="compact,delete", retention_bytes=5 * SEGMENT_BYTES)
    world.log.create_topic("orders", **settings)
    written = Written(world.log.bootstrap, ["orders"], seed=9)
    with Peer(world.log.port) as peer:
        for _ in range(3):
            # Nearly all keys are different, so compaction makes nothing small.
            written.write(200, keys=10**9)
        start: int = wait_until(lambda: listed(peer, "orders", EARLIEST).offset, "the log start moves")
    assert 0 < start < end_of(world, "orders")


def test_a_marker_that_compaction_removed_aborts_nothing() -> None:
    """A range that is not released yet still has it. A reader that is told of it would drop what comes behind it."""
    fold, key = CommitFold(), (UUID(int=7), 0)
    known = fold.partitions[key] = CommittedPartition()
    known.end_offset = 200
    for base_offset, aborted in (
        (100, (AbortedTransaction(5, 90, 120, 121),)),
        (150, (AbortedTransaction(6, 130, 160, 161),)),
    ):
        known.ranges.append(WalRange(base_offset, base_offset + 50, ObjectId(1, 1, 1), 0, 1, 0, 0, aborted))
        known.bases.append(base_offset)
    epochs = LeaderEpochs()
    epochs.note(0, 0)
    log = SimpleNamespace(leader_epochs=epochs, log_start_offset=200, has_aborted=False)
    partition = cast("Any", SimpleNamespace(topic_id=key[0], index=0, log=log, runtime=None))
    segment = RemoteSegment(
        UUID(int=1), 0, 149, ((0, 0),), 5, 100, 1, 5, SegmentState.COPY_FINISHED, is_txn_index_empty=True
    )
    ranges = RangeReader(cast("Any", None), lambda: fold, "cluster", partition)
    remote = RemoteLog(TieredPartition(*key, "t"), partition, RemoteSegments(), "cluster", ranges)
    searching = aborted_among(remote, cast("Any", None), segment, 0, 150)
    with pytest.raises(StopIteration) as ended:
        searching.send(None)
    assert ended.value.value == [(6, 130)]
