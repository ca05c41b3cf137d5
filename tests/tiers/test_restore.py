"""`storage restore`: every disk is thrown away, and a new cluster has what was in the last checkpoints."""

from __future__ import annotations

import random
import shutil
import time
from contextlib import suppress
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import CommandLine
from tests.hostile.peer import Peer
from tests.tiers.compacted_topics import World, Written, compacting, end_of, settings_of_compacted, wait_compacted
from tests.tiers.raw_reads import listed
from tests.tiers.test_unfinished_copies import cluster_of
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
    watermarks,
)

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.quorum.raft.state_files import uuid_text
from strandline.tiers.records import RemoteSegment, TieredPartition
from strandline.tiers.restoring import lineage_of
from strandline.tiers.segment_states import SegmentState
from strandline.tiers.tier_checkpoint import PartitionCheckpoint, TierCheckpoint, decode_checkpoint, newest_of

RECORDS = 400
LATEST_TIERED = -5
INTERVAL = "strandline.remote.checkpoint.interval.ms"


def settings(store: Path, **more: str) -> dict[str, str]:
    return {**properties(store), INTERVAL: "200", **{name.replace("_", "."): value for name, value in more.items()}}


def newest_checkpoint(store: Path) -> TierCheckpoint | None:
    """Return the newest of all nodes, also of those that were thrown away. Old ones may be deleted meanwhile."""
    found = []
    for path in store.glob("*/checkpoint/[0-9]*/*"):
        with suppress(FileNotFoundError):
            found.append(decode_checkpoint(path.read_bytes()))
    return max(found, key=lambda each: each.written_ms, default=None)


def copied_up_to(log: EmbeddedBroker, topic: str) -> int:
    with Peer(log.port) as peer:
        return listed(peer, topic, LATEST_TIERED).offset + 1


def wait_checkpoint(log: EmbeddedBroker, store: Path, topic: str, data: Path) -> int:
    """Wait until all sealed segments are copied and a checkpoint has them. Return their end."""
    last = local_bases(data, topic)[-1]
    wait_until(lambda: copied_up_to(log, topic) == last, "segments are copied")

    def is_written() -> bool:
        found = newest_checkpoint(store)
        states = () if found is None else found.partitions
        return any(
            each.place.topic == topic
            and max((one.end_offset for one in each.segments), default=-1) == last - 1
            and all(one.state == SegmentState.COPY_FINISHED for one in each.segments)
            for each in states
        )

    wait_until(is_written, "a checkpoint is written")
    return last


def checkpointed_up_to(store: Path, topic: str) -> int:
    """Return the end of what the newest checkpoint has of a topic."""
    found = newest_checkpoint(store)
    places = () if found is None else found.partitions
    return max((one.end_offset + 1 for each in places if each.place.topic == topic for one in each.segments), default=0)


def throw_away(data: Path, cluster_id: str) -> None:
    """Replace the data of a node by an empty directory that is formatted for the same cluster."""
    shutil.rmtree(data)
    data.mkdir()
    told = f"version=1\nnode.id=1\ncluster.id={cluster_id}\ndirectory.id={uuid_text(uuid4())}\n"
    (data / "meta.properties").write_text(told)


def test_a_cluster_without_disks_comes_back_up_to_its_checkpoint(tmp_path: Path) -> None:
    store, data, rng = tmp_path / "store", tmp_path / "data", random.Random(1)
    with strandline.embedded(data=data, properties=settings(store)) as log:
        log.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        log.create_topic("plain")
        producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "shop"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        values = [rng.randbytes(500) for _ in range(RECORDS)]
        fill(log.bootstrap, ["orders"], values)
        producer.produce("orders", b"never committed", partition=0)
        assert producer.flush(WAIT_S) == 0
        last = wait_checkpoint(log, store, "orders", data)
        cluster_id = cluster_of(store)
        before = read(log.bootstrap, "orders", 0, last)
        log.kill()
    throw_away(data, cluster_id)
    with strandline.embedded(data=data, properties=settings(store)) as log:
        cli = CommandLine(log.bootstrap)
        alive = cli.run("storage", "restore", "--yes")
        assert alive.status == 1
        assert "the old cluster may still run" in alive.stderr
        assert "offsets up to" in cli.ok("storage", "restore", "--force", "--dry-run").stderr
        assert not cli.ok("topic", "list", "--json").objects
        (told,) = cli.ok("storage", "restore", "--force", "--yes", "--json").objects
        assert (told["from"], told["restored_to"], told["known_to"]) == (0, last, RECORDS + 1)
        assert told["missing"] == RECORDS + 1 - last
        assert told["damages"] == []
        assert watermarks(log.bootstrap, "orders") == (0, last)
        assert watermarks(log.bootstrap, "plain") == (0, 0)
        assert read(log.bootstrap, "orders", 0, last) == before
        assert "all is well" in cli.ok("storage", "check", "--deep").stderr
        # It goes on: more records, copies, checkpoints; and the same once more.
        fill(log.bootstrap, ["orders"], values)
        log.kill()
        log.restart()
        assert [each[2] for each in read(log.bootstrap, "orders", 0, last + RECORDS)] == values[:last] + values
        second = wait_checkpoint(log, store, "orders", data)
        assert second > last
        log.kill()
    throw_away(data, cluster_id)
    with strandline.embedded(data=data, properties=settings(store)) as log:
        cli = CommandLine(log.bootstrap)
        copies(store)[1].unlink()
        (told,) = cli.ok("storage", "restore", "orders", "--force", "--yes", "--json").objects
        assert told["restored_to"] == second
        assert "is not in the store" in told["damages"][0], "an object that is gone is named"
        assert (watermarks(log.bootstrap, "orders")) == (0, second)
        delete_topics(log.bootstrap, "orders")
        wait_until(lambda: not objects(store), "the objects are the new cluster's own")


def test_a_compacted_topic_comes_back_with_the_newest_values(tmp_path: Path) -> None:
    """What a compaction replaced stays until a checkpoint names what came in its place."""
    store, data = tmp_path / "store", tmp_path / "data"
    seldom = {**compacting(store), INTERVAL: "3600000"}
    with strandline.embedded(data=data, properties=seldom) as log:
        log.create_topic("orders", **settings_of_compacted())
        written = Written(log.bootstrap, ["orders"], seed=11)
        written.write(600)
        world = World(log, data, store)
        first_end = end_of(world, "orders")

        def is_in_checkpoint() -> bool:
            # Of few keys: the newest values of the others stay below.
            written.write(50, keys=5)
            return checkpointed_up_to(store, "orders") >= first_end

        wait_until(is_in_checkpoint, "a compaction has written a checkpoint that has the first records")
        wait_compacted(world, "orders")
        before = read(log.bootstrap, "orders", 0, local_bases(data, "orders")[-1])
        cluster_id = cluster_of(store)
        log.kill()
    throw_away(data, cluster_id)
    with strandline.embedded(data=data, properties=seldom) as log:
        (told,) = CommandLine(log.bootstrap).ok("storage", "restore", "--force", "--yes", "--json").objects
        assert told["damages"] == []
        found = {each[0]: each[1:3] for each in read(log.bootstrap, "orders", 0, told["restored_to"])}
    newest = {key: (offset, value) for offset, key, value, _ in before}
    needed = {offset: (key, value) for key, (offset, value) in newest.items() if offset < told["restored_to"]}
    assert len(needed) > 40, "most keys were copied before the last checkpoint"
    assert {offset: found.get(offset) for offset in needed} == needed


@pytest.mark.slow
def test_a_second_cluster_reads_and_never_writes(tmp_path: Path) -> None:
    store, data, rng = tmp_path / "store", tmp_path / "data", random.Random(2)
    with strandline.embedded(data=data, properties=settings(store)) as log:
        log.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        values = [rng.randbytes(500) for _ in range(RECORDS)]
        began = time.monotonic()
        fill(log.bootstrap, ["orders"], values)
        last = wait_checkpoint(log, store, "orders", data)
        copying_s = time.monotonic() - began
        log.stop()
        state = whole(store)
        with strandline.embedded(data=tmp_path / "plain", properties=settings(store)) as other:
            refused = CommandLine(other.bootstrap).run("storage", "restore", "--yes")
            assert refused.status == 1
            assert "strandline.remote.store.read.only=true" in refused.stderr
        read_only = settings(store, strandline_remote_store_read_only="true")
        with strandline.embedded(data=tmp_path / "reader", properties=read_only) as other:
            cli = CommandLine(other.bootstrap)
            cli.ok("storage", "restore", "--yes")
            assert [each[2] for each in read(other.bootstrap, "orders", 0, last)] == values[:last]
            # What would be copied, expires or is deleted elsewhere stays as it is in the store.
            fill(other.bootstrap, ["orders"], values)
            cli.ok("topic", "alter", "orders", "--config", "retention.ms=1", "--yes")
            assert [each[2] for each in read(other.bootstrap, "orders", last, last + RECORDS)] == values
            other.kill()
            other.restart()
            assert watermarks(other.bootstrap, "orders") == (0, last + RECORDS)
            # It has more time than the cluster that writes needed.
            time.sleep(2 * copying_s)
            delete_topics(other.bootstrap, "orders")
            other.stop()
            other.restart()
            wait_until(lambda: not cli.ok("topic", "list", "--json").objects, "the topic is gone")
        assert whole(store) == state
        log.restart()
        assert [each[2] for each in read(log.bootstrap, "orders", 0, RECORDS)] == values


def whole(store: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in store.rglob("*") if path.is_file() and ".tmp" not in path.parts}


def test_with_their_disks_nodes_that_died_at_once_lose_nothing(tmp_path: Path) -> None:
    store, rng = tmp_path / "store", random.Random(3)
    with strandline.embedded(data=tmp_path / "data", properties=settings(store)) as log:
        log.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        values = [rng.randbytes(500) for _ in range(RECORDS)]
        fill(log.bootstrap, ["orders"], values)
        log.kill()
        log.restart()
        assert watermarks(log.bootstrap, "orders") == (0, RECORDS)
        assert [each[2] for each in read(log.bootstrap, "orders", 0, RECORDS)] == values


PLACE = TieredPartition(UUID(int=5), 0, "orders")


def segment(number: int, start: int, end: int, epoch: int, state: SegmentState) -> RemoteSegment:
    return RemoteSegment(UUID(int=number), start, end, ((epoch, start),), 5, 100, 1, 1, state, is_txn_index_empty=True)


def test_only_whole_segments_of_the_leaders_log_are_restored() -> None:
    """Leader 0 copied 10 to 19 as well; an unclean election took that back, and leader 1 wrote other records there."""
    done = SegmentState.COPY_FINISHED
    segments = (
        segment(1, 0, 9, 0, done),
        segment(2, 10, 19, 0, done),
        segment(3, 10, 14, 1, done),
        segment(4, 15, 24, 1, SegmentState.COPY_STARTED),
        segment(5, 15, 24, 1, SegmentState.DELETE_STARTED),
    )
    state = PartitionCheckpoint(PLACE, 1, 0, 30, ((0, 0), (1, 10)), segments)
    assert [each.id.int for each in lineage_of(state)] == [1, 3]


def test_the_newest_leader_and_the_newest_metadata_decide() -> None:
    def checkpoint(node: int, offset: int, epoch: int, end: int, names: list[str]) -> TierCheckpoint:
        from strandline.tiers.tier_checkpoint import TopicDefinition

        topics = tuple(TopicDefinition(name, UUID(int=5 + at), 1, 1, {}) for at, name in enumerate(names))
        return TierCheckpoint(node, node, 1, offset, topics, (PartitionCheckpoint(PLACE, epoch, 0, end, (), ()),))

    topics, partitions = newest_of(
        [checkpoint(1, 50, 3, 100, ["orders", "gone"]), checkpoint(2, 60, 2, 90, ["orders"])]
    )
    assert [each.name for each in topics] == ["orders"]
    assert [each.end_offset for each in partitions] == [100]
