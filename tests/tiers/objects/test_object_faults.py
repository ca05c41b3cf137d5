"""Object topics of one node while the store fails, and what is deleted."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.cli.conftest import CommandLine
from tests.hostile.batches import batch, produce
from tests.hostile.peer import Peer
from tests.tiers.objects.test_object_topics import World, wal_objects
from tests.tiers.raw_reads import delete_records, fetch, fetch_once, listed
from tests.tiers.tiered_nodes import WAIT_S, delete_topics, fill, objects, properties, read, wait_until, watermarks

import strandline
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from strandline.codec.messages.produce_request import PartitionProduceData
from strandline.errors import ErrorCode
from strandline.quorum.controller.topic_names import OBJECT_COMMITS

INTERVAL_S = 0.25
EARLIEST = -2
NOT_LEADER = ErrorCode.NOT_LEADER_OR_FOLLOWER
BEGAN_MS = 1_700_000_000_000


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    settings = {
        "strandline_object_merge_interval_ms": "3600000",
        "strandline_object_buffer_bytes": str(1 << 20),
        "log_segment_delete_delay_ms": "0",
    }
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(data=data, properties=properties(store, **settings)) as log:
        yield World(log, data, store)


def create(world: World, name: str = "orders", partitions: int = 1, **more: str | int) -> None:
    world.log.create_topic(name, partitions, strandline_storage="object", **more)


class Store:
    """The directory of the store, which can be taken away."""

    def __init__(self, world: World) -> None:
        self._here, self._away = world.store, world.store.with_name("away")

    def take_away(self) -> None:
        self._here.rename(self._away)

    def bring_back(self) -> None:
        self._away.rename(self._here)


def test_a_store_that_is_away_fails_produces_in_time_and_comes_back(world: World) -> None:
    create(world)
    fill(world.log.bootstrap, ["orders"], [b"before"], per_batch=1)
    store, failures = Store(world), []
    store.take_away()
    hasty = {"delivery.timeout.ms": 1500, "request.timeout.ms": 1000, "message.send.max.retries": 0}
    producer = Producer({"bootstrap.servers": world.log.bootstrap, **hasty})
    producer.produce("orders", value=b"lost", partition=0, on_delivery=lambda error, _: failures.append(error))
    producer.flush(WAIT_S)
    assert failures[0] is not None, "acknowledged without a store"
    assert watermarks(world.log.bootstrap, "orders") == (0, 1), "shown without a store"
    store.bring_back()
    fill(world.log.bootstrap, ["orders"], [b"after"], per_batch=1)
    low, high = watermarks(world.log.bootstrap, "orders")
    found = [each[2] for each in read(world.log.bootstrap, "orders", low, high)]
    # The client gave up a record that the broker had: it is written now, as with any broker.
    assert found in ([b"before", b"lost", b"after"], [b"before", b"after"])


@pytest.mark.slow
def test_producers_wait_above_the_limit_and_each_record_is_there_once(world: World) -> None:
    create(world, partitions=3)
    fill(world.log.bootstrap, ["orders"], [b"begin"], per_batch=1)
    store = Store(world)
    store.take_away()
    producer = Producer(
        {"bootstrap.servers": world.log.bootstrap, "enable.idempotence": True, "linger.ms": 5, "batch.size": 50_000}
    )
    failures: list[Any] = []
    values = [b"%06d" % number + bytes(10_000) for number in range(400)]
    for number, value in enumerate(values):
        producer.produce(
            "orders", value=value, partition=number % 3, on_delivery=lambda error, _: failures.append(error)
        )
    producer.poll(3.0)
    assert world_bytes(world) < 4 << 20, "no limit on what waits"
    assert not failures
    store.bring_back()
    assert producer.flush(WAIT_S) == 0
    assert failures == [None] * len(values)
    for index in range(3):
        low, high = watermarks(world.log.bootstrap, "orders", index)
        found = [each[2] for each in read(world.log.bootstrap, "orders", low, high, index=index)]
        assert found[-len(values[index::3]) :] == values[index::3]
        assert len(found) == len(values[index::3]) + (index == 0)


def world_bytes(world: World) -> int:
    return sum(path.stat().st_size for path in world.data.glob("orders-*/*.log"))


def test_one_object_an_interval_however_many_partitions_and_none_when_idle(world: World) -> None:
    create(world, partitions=20)
    producer = Producer({"bootstrap.servers": world.log.bootstrap, "linger.ms": 0})
    began = time.monotonic()
    for turn in range(8):
        for index in range(20):
            producer.produce("orders", value=b"%d" % turn, partition=index)
        assert producer.flush(WAIT_S) == 0
    took_s = time.monotonic() - began
    count = len(wal_objects(world.store))
    assert 2 <= count <= took_s / INTERVAL_S + 2
    with Peer(world.log.port) as peer:
        for _ in range(5):
            fetch_once(peer, "orders", 8, wait_ms=300)
    assert len(wal_objects(world.store)) == count, "an idle node writes"


def test_deleted_records_stay_deleted_after_a_kill(world: World) -> None:
    create(world)
    fill(world.log.bootstrap, ["orders"], [b"%d" % number for number in range(40)], per_batch=5)
    count = len(wal_objects(world.store))
    with Peer(world.log.port) as peer:
        assert delete_records(peer, "orders", 23).low_watermark == 23
    world.log.kill()
    world.log.start()
    wait_until(lambda: len(wal_objects(world.store)) < count, "objects without records are deleted")
    with Peer(world.log.port) as peer:
        wait_until(lambda: not listed(peer, "orders", EARLIEST).error_code, "the partition is led")
        assert listed(peer, "orders", EARLIEST).offset == 23
        assert fetch_once(peer, "orders", 22).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    found = read(world.log.bootstrap, "orders", 23, 40)
    assert [each[2] for each in found] == [b"%d" % number for number in range(23, 40)]


def test_a_deleted_topic_leaves_nothing_and_its_successor_begins_at_zero(world: World) -> None:
    create(world)
    create(world, "others")
    fill(world.log.bootstrap, ["orders", "others"], [b"%d" % number for number in range(20)])
    delete_topics(world.log.bootstrap, "orders")
    create(world)
    fill(world.log.bootstrap, ["orders"], [b"new"], per_batch=1)
    assert watermarks(world.log.bootstrap, "orders") == (0, 1)
    assert len(read(world.log.bootstrap, "others", 0, 20)) == 20
    delete_topics(world.log.bootstrap, "orders", "others")
    wait_until(lambda: not wal_objects(world.store) and not objects(world.store), "the store is empty")


def test_the_commit_log_stays_while_it_is_needed(world: World) -> None:
    cli = CommandLine(world.log.bootstrap)
    create(world)
    fill(world.log.bootstrap, ["orders"], [b"%d" % number for number in range(20)])
    refused = cli.run("topic", "delete", OBJECT_COMMITS, "--yes")
    assert refused.status == 1
    assert "or object topics" in refused.stderr
    for setting in ("retention.ms=1000", "retention.bytes=1", "cleanup.policy=compact,delete"):
        refused = cli.run("topic", "alter", OBJECT_COMMITS, "--config", setting, "--yes")
        assert refused.status == 1
        assert "says what the objects of object topics mean" in refused.stderr
    with Peer(world.log.port) as peer:
        (answered,) = peer.ask(
            DeleteTopicsRequest(topics=[DeleteTopicState(name=OBJECT_COMMITS)], timeout_ms=10_000), 6
        ).responses
        assert answered.error_code == ErrorCode.POLICY_VIOLATION
        assert "cannot be deleted while there are object topics" in answered.error_message
        assert delete_records(peer, OBJECT_COMMITS, -1).error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    world.log.kill()
    world.log.start()
    assert len(read(world.log.bootstrap, "orders", 0, 20)) == 20
    delete_topics(world.log.bootstrap, "orders")
    cli.ok("topic", "delete", OBJECT_COMMITS, "--yes")


def test_a_damaged_object_fails_its_range_and_nothing_else(world: World) -> None:
    create(world, partitions=2)
    # One request fills both ranges of one object; two might be on either side of an interval.
    asked = produce("orders", batch([b"0" * 5000]))
    asked.topic_data[0].partition_data.append(PartitionProduceData(index=1, records=batch([b"1" * 5000])))
    with Peer(world.log.port) as peer:
        for index in range(2):
            wait_until(lambda index=index: not listed(peer, "orders", EARLIEST, index=index).error_code, "it is led")
        (answered,) = peer.ask(asked, 12).responses
    assert [each.error_code for each in answered.partition_responses] == [ErrorCode.NONE] * 2
    world.log.stop()
    (path,) = wal_objects(world.store)
    body = bytearray(path.read_bytes())
    body[-2000] ^= 1
    path.write_bytes(body)
    world.log.start()
    with Peer(world.log.port) as peer:
        codes = [settled(peer, index) for index in range(2)]
    assert sorted(codes) == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR]
    fill(world.log.bootstrap, ["orders"], [b"next"], per_batch=1)


def settled(peer: Peer, index: int) -> int:
    """Return the error code of a fetch when the partition is led."""
    return wait_until(
        lambda: [each for each in [fetch(peer, "orders", 0, index=index).error_code] if each != NOT_LEADER],
        "the partition is led",
    )[0]


@pytest.mark.slow
def test_retention_goes_by_the_times_of_records(world: World) -> None:
    """And not by the clock: a broker whose clock is wrong must not delete young records."""
    create(world, retention_ms=3_600_000, internal_segment_bytes=20_000)
    old, new = [b"old" + bytes(1000)] * 60, [b"new" + bytes(1000)] * 60
    fill(world.log.bootstrap, ["orders"], old, timestamps=BEGAN_MS)
    fill(world.log.bootstrap, ["orders"], new, timestamps=int(time.time() * 1000))
    with Peer(world.log.port) as peer:
        wait_until(lambda: 40 <= listed(peer, "orders", EARLIEST).offset <= 60, "old segments are gone")
        start = listed(peer, "orders", EARLIEST).offset
    assert [each[2] for each in read(world.log.bootstrap, "orders", start, 120)] == [*old[start:], *new]


def test_where_a_topic_keeps_its_records_cannot_be_changed(world: World) -> None:
    create(world)
    world.log.create_topic("local")
    admin = AdminClient({"bootstrap.servers": world.log.bootstrap})
    for topic, name, value in (
        ("orders", "strandline.storage", "local"),
        ("orders", "strandline.object.ack", "wal"),
        ("local", "strandline.storage", "object"),
    ):
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        with pytest.raises(KafkaException):
            next(iter(admin.incremental_alter_configs([resource]).values())).result(WAIT_S)


def test_ack_wal_is_acknowledged_without_the_store(world: World) -> None:
    create(world, "quick", strandline_object_ack="wal", internal_segment_bytes=20_000, local_retention_bytes=20_000)
    fill(world.log.bootstrap, ["quick"], [b"first"], per_batch=1)
    store = Store(world)
    store.take_away()
    values = [b"%03d" % number + bytes(1000) for number in range(100)]
    fill(world.log.bootstrap, ["quick"], values)
    store.bring_back()
    with Peer(world.log.port) as peer:
        wait_until(lambda: listed(peer, "quick", -4).offset > 40, "segments are in the store alone")
    assert [each[2] for each in read(world.log.bootstrap, "quick", 1, 101)] == values
