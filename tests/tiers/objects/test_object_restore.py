"""`storage restore` of object topics: every disk is thrown away, and a new cluster goes on from the bucket."""

from __future__ import annotations

import random
import shutil
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from tests.cli.conftest import CommandLine
from tests.tiers.objects.test_object_topics import OBJECT, wal_objects
from tests.tiers.test_restore import INTERVAL, settings, throw_away, whole
from tests.tiers.tiered_nodes import SEGMENT_BYTES, WAIT_S, fill, objects, read, wait_until, watermarks

import strandline
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.tiers.wal.checkpoint import read_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold

RECORDS = 300
OFTEN = {
    "strandline_object_flush_interval_ms": "10",
    "strandline_object_checkpoint_interval_ms": "200",
    "log_segment_delete_delay_ms": "100",
}
SELDOM = "3600000"


def newest_fold(store: Path) -> CommitFold:
    """Return what the newest checkpoint of the commit log says. Old ones may be deleted meanwhile."""
    for path in sorted(store.glob("*/commits/*/*"), key=lambda each: (each.stat().st_mtime, each.name), reverse=True):
        with suppress(FileNotFoundError):
            return read_checkpoint(path.read_bytes(), int(path.name))
    return CommitFold()


def committed_up_to(store: Path) -> int:
    with suppress(FileNotFoundError):
        return max((each.end_offset for each in newest_fold(store).partitions.values()), default=0)
    return 0


def claimed_epoch(store: Path) -> int:
    return max((each.claim[1] for each in newest_fold(store).partitions.values()), default=-1)


def values_of(log: EmbeddedBroker, start: int, end: int) -> list[bytes | None]:
    return [each[2] for each in read(log.bootstrap, "orders", start, end, committed=False)]


def test_a_cluster_without_disks_goes_on_from_the_checkpoint_of_its_commit_log(tmp_path: Path) -> None:
    store, data, rng = tmp_path / "store", tmp_path / "data", random.Random(1)
    values = [rng.randbytes(500) for _ in range(RECORDS)]
    often = settings(store, **OFTEN, strandline_object_merge_interval_ms="300")
    with strandline.embedded(data=data, properties=often) as log:
        log.create_topic("orders", **OBJECT, internal_segment_bytes=SEGMENT_BYTES, retention_ms=-1)
        fill(log.bootstrap, ["orders"], values)
        wait_until(lambda: len(objects(store)) >= 4, "some are merged")
        producer = Producer({"bootstrap.servers": log.bootstrap, "transactional.id": "shop"})
        producer.init_transactions(WAIT_S)
        producer.begin_transaction()
        producer.produce("orders", b"never committed", partition=0)
        assert producer.flush(WAIT_S) == 0
        wait_until(lambda: committed_up_to(store) == RECORDS + 1, "a checkpoint has all")
        log.kill()
    cluster_id = next(store.glob("*/commits")).parent.name
    # What comes after the checkpoint is known by its objects alone.
    with strandline.embedded(data=data, properties=settings(store, **{**OFTEN, **_seldom()})) as log:
        fill(log.bootstrap, ["orders"], [b"too late"] * 5)
        log.kill()
    throw_away(data, cluster_id)
    before = {path: path.read_bytes() for path in wal_objects(store)}
    assert before
    with strandline.embedded(data=data, properties=settings(store, **OFTEN)) as log:
        cli = CommandLine(log.bootstrap)
        plan = cli.ok("storage", "restore", "--force", "--dry-run").stderr
        assert "the last checkpoint of __strandline_object_commits is" in plan
        assert "5 offsets" in plan
        (told,) = cli.ok("storage", "restore", "--force", "--yes", "--json").objects
        assert (told["from"], told["restored_to"], told["known_to"]) == (0, RECORDS + 1, RECORDS + 6)
        assert told["damages"] == []
        epoch_max = max(int(path.stem.split("-")[1]) for path in before)
        wait_until(lambda: claimed_epoch(store) > epoch_max, "its objects cannot have names of the lost one's")
        assert [each[2] for each in read(log.bootstrap, "orders", 0, RECORDS)] == values
        # The open transaction is aborted by its leader, and new records come behind its marker.
        wait_until(lambda: watermarks(log.bootstrap, "orders") == (0, RECORDS + 2), "the marker is written")
        fill(log.bootstrap, ["orders"], values)
        cli.ok("storage", "restore", "--force", "--yes")
        assert watermarks(log.bootstrap, "orders") == (0, 2 * RECORDS + 2), "once more changes nothing"
        for path, content in before.items():
            assert not path.exists() or path.read_bytes() == content, "nothing is written over"
        log.kill()
        log.restart()
        assert [each[2] for each in read(log.bootstrap, "orders", 0, 2 * RECORDS + 2)] == 2 * values
        assert "all is well" in cli.ok("storage", "check", "--deep").stderr


def _seldom() -> dict[str, str]:
    return {"strandline_object_checkpoint_interval_ms": SELDOM, "strandline_object_merge_interval_ms": SELDOM}


def test_what_was_merged_since_the_last_checkpoint_of_its_leader_is_not_lost(tmp_path: Path) -> None:
    """Ranges are released when a checkpoint names the segments, however seldom the node writes one."""
    store, data, rng = tmp_path / "store", tmp_path / "data", random.Random(2)
    values = [rng.randbytes(500) for _ in range(RECORDS)]
    seldom = {**settings(store, **OFTEN, strandline_object_merge_interval_ms="200"), INTERVAL: SELDOM}
    with strandline.embedded(data=data, properties=seldom) as log:
        log.create_topic("orders", **OBJECT, retention_ms=-1)
        fill(log.bootstrap, ["orders"], values)

        def is_merged() -> bool:
            found = newest_fold(store).partitions
            return any(each.end_offset == RECORDS and not each.ranges for each in found.values())

        wait_until(is_merged, "the checkpoint of the commit log has no range any more")
        log.kill()
    throw_away(data, next(store.glob("*/commits")).parent.name)
    with strandline.embedded(data=data, properties=seldom) as log:
        (told,) = CommandLine(log.bootstrap).ok("storage", "restore", "--force", "--yes", "--json").objects
        assert (told["restored_to"], told["missing"]) == (RECORDS, 0)
        assert [each[2] for each in read(log.bootstrap, "orders", 0, RECORDS)] == values


@pytest.mark.slow
def test_a_second_cluster_reads_the_bucket_and_damage_is_named(tmp_path: Path) -> None:
    store, rng = tmp_path / "store", random.Random(3)
    values = [rng.randbytes(500) for _ in range(RECORDS)]
    often = settings(store, **OFTEN)
    with strandline.embedded(data=tmp_path / "data", properties=often) as log:
        log.create_topic("orders", **OBJECT, retention_ms=-1)
        fill(log.bootstrap, ["orders"], values)
        wait_until(lambda: committed_up_to(store) == RECORDS, "a checkpoint has all")
        log.stop()
    lost = wal_objects(store)[2]
    kept = lost.read_bytes()
    lost.unlink()
    edited = max(store.glob("*/commits/*/*"), key=lambda each: each.name)
    shutil.copy(edited, edited.with_name(f"{int(edited.name) + 1:020}"))
    state = whole(store)
    read_only = settings(store, **OFTEN, strandline_remote_store_read_only="true")
    with strandline.embedded(data=tmp_path / "reader", properties=read_only) as other:
        cli = CommandLine(other.bootstrap)
        ended = cli.ok("storage", "restore", "--yes", "--json")
        assert "is passed over: a checkpoint of offset" in ended.stderr, "its name was edited"
        (told,) = ended.objects
        assert (told["restored_to"], told["known_to"]) == (RECORDS, RECORDS)
        (damage,) = told["damages"]
        assert f"{lost.relative_to(store).as_posix()} is not in the store" in damage
        start, end = (int(each) for each in damage.removeprefix("offsets ").split(" cannot")[0].split(" to "))
        assert values_of(other, 0, start) == values[:start]
        assert values_of(other, end, RECORDS) == values[end:], "what is sound is served"
        with pytest.raises(AssertionError, match=r"KAFKA_STORAGE_ERROR|was not read in time|disk"):
            _read_one(other, start)
        producer = Producer({"bootstrap.servers": other.bootstrap, "message.timeout.ms": 10_000})
        errors: list[str] = []
        producer.produce("orders", b"no", partition=0, on_delivery=lambda error, _: errors.append(error.name()))
        producer.flush(WAIT_S)
        assert errors == ["POLICY_VIOLATION"]
        lost.write_bytes(kept)
        assert values_of(other, 0, RECORDS) == values
        lost.unlink()
        other.kill()
        other.restart()
        assert values_of(other, 0, start) == values[:start]
        assert watermarks(other.bootstrap, "orders") == (0, RECORDS)
        assert whole(store) == state


def _read_one(log: EmbeddedBroker, offset: int) -> None:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": log.bootstrap, "group.id": "g", "auto.offset.reset": "error"})
    try:
        consumer.assign([TopicPartition("orders", 0, offset)])
        found = consumer.poll(3.0)
        raise AssertionError("was not read in time" if found is None else str(found.error()))
    finally:
        consumer.close()
