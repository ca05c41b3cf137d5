"""Tiered topics through the front door of one node, beside topics that are not tiered and were fed alike."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)
from tests.hostile.peer import Peer
from tests.tiers.raw_reads import FETCH_VERSION, delete_records, fetch, fetch_once, listed
from tests.tiers.tiered_nodes import (
    SEGMENT_BYTES,
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
from strandline.codec.columns import records_of
from strandline.codec.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from strandline.codec.messages.record_counts_request import PartitionPositions, RecordCountsRequest, TopicPositions
from strandline.errors import ErrorCode
from strandline.local.embedded_broker import EmbeddedBroker
from strandline.local.free_ports import free_port
from strandline.tiers.objects import BLOCK_BYTES

RECORDS = 1500
BEGAN_MS = 1_700_000_000_000
EARLIEST, EARLIEST_LOCAL, LATEST_TIERED, PENDING = -2, -4, -5, -6
RANGES = 1500


class World(NamedTuple):
    log: EmbeddedBroker
    data: Path
    store: Path


def is_copied(world: World, topic: str, peer: Peer) -> bool:
    """Return whether all sealed segments are in the store, and local ones are gone as the topic asks for."""
    bases = local_bases(world.data, topic)
    return listed(peer, topic, LATEST_TIERED).offset == bases[-1] - 1 and len(bases) <= 4


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A node with a tiered topic and its twin, each with plain records, and two with transactions."""
    store, data = tmp_path_factory.mktemp("store"), tmp_path_factory.mktemp("data")
    rng = random.Random(11)
    with strandline.embedded(data=data, properties=properties(store)) as log:
        found = World(log, data, store)
        log.create_topic("tiered", **settings_of_tiered(retention_ms=-1))
        log.create_topic("plain", internal_segment_bytes=SEGMENT_BYTES, index_interval_bytes=1024, retention_ms=-1)
        values = [rng.randbytes(rng.randrange(20, 900)) for _ in range(RECORDS)]
        fill(log.bootstrap, ["tiered", "plain"], values, timestamps=BEGAN_MS)
        log.create_topic("tiered-txn", **settings_of_tiered(retention_ms=-1))
        log.create_topic("plain-txn", internal_segment_bytes=SEGMENT_BYTES, retention_ms=-1)
        fill_in_transactions(log.bootstrap, ["tiered-txn", "plain-txn"], rng)
        with Peer(log.port) as peer:
            for topic in ("tiered", "tiered-txn"):
                wait_until(lambda: is_copied(found, topic, peer), f"{topic} is copied")  # noqa: B023
        yield found


def fill_in_transactions(bootstrap: str, topics: list[str], rng: random.Random) -> None:
    """Write transactions, of which a third is aborted; some reach over segments, with others in between."""
    producers = []
    for number in range(3):
        settings = {"bootstrap.servers": bootstrap, "transactional.id": f"writer-{number}", "linger.ms": 0}
        producers.append(Producer(settings))
        producers[-1].init_transactions(WAIT_S)
    long, *short = producers
    long.begin_transaction()
    for turn in range(60):
        value = b"long %d" % turn + rng.randbytes(300)
        for topic in topics:
            long.produce(topic, value=value, partition=0)
        long.flush(WAIT_S)
        for producer in short:
            producer.begin_transaction()
            for _ in range(rng.randrange(1, 6)):
                value = b"short %d" % turn + rng.randbytes(rng.randrange(500))
                for topic in topics:
                    producer.produce(topic, value=value, partition=0)
            if rng.randrange(3):
                producer.commit_transaction(WAIT_S)
            else:
                producer.flush(WAIT_S)
                producer.abort_transaction(WAIT_S)
        if turn % 15 == 14:
            if turn % 30 == 14:
                long.abort_transaction(WAIT_S)
            else:
                long.commit_transaction(WAIT_S)
            long.begin_transaction()
    long.commit_transaction(WAIT_S)


def test_older_segments_are_in_the_store_alone(world: World) -> None:
    bases = local_bases(world.data, "tiered")
    assert bases[0] > RECORDS // 2
    assert len(copies(world.store)) > 10
    assert not any("tiered" in path.name for path in objects(world.store))


def test_any_range_is_byte_equal_to_the_twin(world: World) -> None:
    rng = random.Random(5)
    seam = local_bases(world.data, "tiered")[0]
    with Peer(world.log.port) as peer:
        for number in range(RANGES):
            near = rng.randrange(seam - 30, seam + 30)
            offset = near if number % 5 == 0 else rng.randrange(RECORDS)
            size = rng.choice((1, 200, 3000, 40_000, 300_000))
            found, expected = (fetch(peer, topic, offset, size=size) for topic in ("tiered", "plain"))
            common = min(len(found.records), len(expected.records))
            assert common > 0
            assert found.records[:common] == expected.records[:common], (offset, size)
            assert (found.high_watermark, found.log_start_offset) == (RECORDS, 0)


def test_a_client_reads_all_of_it(world: World) -> None:
    found, expected = (read(world.log.bootstrap, topic, 0, RECORDS) for topic in ("tiered", "plain"))
    assert len(found) == RECORDS
    assert found == expected


@pytest.mark.parametrize("committed", [True, False])
def test_transactions_read_as_in_the_twin(world: World, committed: bool) -> None:
    with Peer(world.log.port) as peer:
        end = listed(peer, "tiered-txn", -1).offset
    found, expected = (
        [each[2] for each in read(world.log.bootstrap, topic, 0, end, committed=committed)]
        for topic in ("tiered-txn", "plain-txn")
    )
    assert len(found) > 150
    # Offsets differ, because markers of both topics are written as they come.
    assert sorted(map(repr, found)) == sorted(map(repr, expected))


def test_aborted_transactions_are_named_from_any_offset(world: World) -> None:
    """Each offset in the store: what read_committed leaves out is what the whole log, read once, says."""
    with Peer(world.log.port) as peer:
        end = listed(peer, "tiered-txn", -1).offset
        committed = {each[0] for each in read(world.log.bootstrap, "tiered-txn", 0, end)}
        seam = local_bases(world.data, "tiered-txn")[0]
        assert seam > 100
    for start in range(0, seam, max(1, seam // 12)):
        found = {each[0] for each in read(world.log.bootstrap, "tiered-txn", start, end)}
        assert found == {offset for offset in committed if offset >= start}, start


def test_offsets_are_listed(world: World) -> None:
    seam, last = local_bases(world.data, "tiered")[0], local_bases(world.data, "tiered")[-1]
    with Peer(world.log.port) as peer:
        assert listed(peer, "tiered", EARLIEST).offset == 0
        assert listed(peer, "tiered", EARLIEST_LOCAL).offset == seam
        tiered = listed(peer, "tiered", LATEST_TIERED)
        assert (tiered.offset, tiered.leader_epoch) == (last - 1, 0)
        assert listed(peer, "tiered", PENDING).offset == last
        assert listed(peer, "plain", LATEST_TIERED).offset == -1
        assert listed(peer, "plain", PENDING).offset == -1


def test_times_are_found_in_the_store_and_in_the_log(world: World) -> None:
    rng = random.Random(3)
    with Peer(world.log.port) as peer:
        for _ in range(60):
            timestamp = BEGAN_MS + rng.randrange(-10, RECORDS + 10)
            found, expected = (listed(peer, topic, timestamp) for topic in ("tiered", "plain"))
            assert (found.offset, found.timestamp, found.error_code) == (
                expected.offset,
                expected.timestamp,
                expected.error_code,
            ), timestamp


def test_records_in_the_store_alone_are_not_counted_and_the_rest_is(world: World) -> None:
    """A count of the local records alone would pass for the lag of a group that is far behind."""
    with Peer(world.log.port) as peer:
        local = listed(peer, "tiered", EARLIEST_LOCAL).offset
        assert local > 0
        spots = [0, local - 1, local, RECORDS]
        topics = [
            TopicPositions(name=name, partitions=[PartitionPositions(partition=0, offsets=spots)])
            for name in ("tiered", "plain")
        ]
        answer = peer.ask(RecordCountsRequest(timeout_ms=5000, topics=topics), 0)
    found = {each.name: [count.records for count in each.partitions[0].counts] for each in answer.topics}
    assert found["plain"] == [RECORDS, RECORDS - local + 1, RECORDS - local, 0]
    assert found["tiered"] == [-1, -1, RECORDS - local, 0]


def test_one_fetch_reads_from_the_store_and_from_the_log(world: World) -> None:
    """Hot records come with the first answer, whether or not those of the store are there yet."""
    topics = [
        FetchTopic(topic=topic, partitions=[FetchPartition(fetch_offset=offset, partition_max_bytes=1 << 16)])
        for topic, offset in (("tiered", 7), ("plain", RECORDS - 1))
    ]
    with Peer(world.log.port) as peer:
        answer = peer.ask(FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=topics), FETCH_VERSION)
    found = {each.topic: each.partitions[0] for each in answer.responses}
    assert not any(each.error_code for each in found.values())
    assert found["plain"].records


def test_offsets_outside_are_out_of_range(world: World) -> None:
    with Peer(world.log.port) as peer:
        for offset in (-5, RECORDS + 1):
            assert fetch_once(peer, "tiered", offset).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


# What changes a topic


@pytest.fixture
def node(tmp_path: Path) -> Iterator[World]:
    store, data = tmp_path / "store", tmp_path / "data"
    with strandline.embedded(data=data, properties=properties(store)) as log:
        yield World(log, data, store)


def filled(world: World, topic: str, *, records: int = 500, **settings: str | int) -> list[bytes]:
    """Make a tiered topic, and wait until what can be is in the store."""
    rng = random.Random(records)
    world.log.create_topic(topic, **settings_of_tiered(**settings))
    values = [rng.randbytes(500) for _ in range(records)]
    fill(world.log.bootstrap, [topic], values)
    with Peer(world.log.port) as peer:
        wait_until(lambda: is_copied(world, topic, peer), f"{topic} is copied")
    return values


def values_of(world: World, topic: str, start: int, end: int) -> list[bytes | None]:
    return [each[2] for each in read(world.log.bootstrap, topic, start, end)]


def test_large_reads_go_over_the_blocks_of_the_cache(node: World) -> None:
    """What is sent in views of cached blocks is what was written, also where it ends beside the edge of one."""
    size = 3 * BLOCK_BYTES
    node.log.create_topic("large", **settings_of_tiered(internal_segment_bytes=size, index_interval_bytes=1 << 16))
    rng = random.Random(2)
    values = [rng.randbytes(rng.randrange(50_000, 150_000)) for _ in range(2 * size // 100_000 + 20)]
    fill(node.log.bootstrap, ["large"], values)
    seam = lambda: local_bases(node.data, "large")[0]  # noqa: E731
    with Peer(node.log.port) as peer:
        wait_until(lambda: is_copied(node, "large", peer) and seam() > len(values) // 3, "large is copied")
        for size_max in (BLOCK_BYTES, BLOCK_BYTES // 5, BLOCK_BYTES // 9):
            offset, found = 0, []
            while offset < seam():
                records = list(records_of(fetch(peer, "large", offset, size=size_max).records))
                found += [each.value for each in records if each.offset >= offset]
                offset = records[-1].offset + 1
            assert found == values[:offset], size_max


def test_deleted_records_leave_the_store(node: World) -> None:
    values = filled(node, "orders")
    before = copies(node.store)
    with Peer(node.log.port) as peer:
        assert delete_records(peer, "orders", 200).low_watermark == 200
        assert listed(peer, "orders", EARLIEST).offset == 200
        assert listed(peer, "orders", EARLIEST_LOCAL).offset > 200
        assert fetch_once(peer, "orders", 199).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        kept = {path for path in before if int(path.name[:20]) + 60 > 200}
        wait_until(lambda: set(copies(node.store)) <= kept, "objects below the log start are deleted")
    assert values_of(node, "orders", 200, 500) == values[200:]
    node.log.kill()
    node.log.start()
    with Peer(node.log.port) as peer:
        assert listed(peer, "orders", EARLIEST).offset == 200, "a restart brought deleted records back"
    assert values_of(node, "orders", 200, 500) == values[200:]


def test_total_retention_deletes_in_the_store(node: World) -> None:
    values = filled(node, "orders", retention_bytes=5 * SEGMENT_BYTES)
    with Peer(node.log.port) as peer:
        start = wait_until(lambda: listed(peer, "orders", EARLIEST).offset, "the log start moves")
        wait_until(lambda: len(copies(node.store)) <= 6, "segments beyond retention leave the store")
        start = listed(peer, "orders", EARLIEST).offset
    assert values_of(node, "orders", start, 500) == values[start:]
    assert {path.stem for path in objects(node.store)} == {path.stem for path in copies(node.store)}


def test_a_deleted_topic_leaves_nothing_in_the_store(node: World) -> None:
    filled(node, "orders")
    filled(node, "others", records=300)
    kept = [path for path in objects(node.store) if path.exists()]
    delete_topics(node.log.bootstrap, "orders")
    topic_ids = {path.parts[-3] for path in kept}
    assert len(topic_ids) == 2
    wait_until(lambda: len({path.parts[-3] for path in objects(node.store)}) == 1, "one topic is left in the store")
    assert len(values_of(node, "others", 0, 300)) == 300
    # Made again under its name it is another topic.
    values = filled(node, "orders")
    assert values_of(node, "orders", 0, 500) == values
    delete_topics(node.log.bootstrap, "orders", "others")
    wait_until(lambda: not objects(node.store), "the store is empty")


def test_a_deletion_goes_on_after_a_crash(node: World) -> None:
    filled(node, "orders")
    delete_topics(node.log.bootstrap, "orders")
    node.log.kill()
    node.log.start()
    wait_until(lambda: not objects(node.store), "the store is empty")


def test_kill_9_at_any_moment_leaves_all_records_and_no_orphan(node: World) -> None:
    rng = random.Random(1)
    node.log.create_topic("orders", **settings_of_tiered(retention_ms=-1))
    values = [rng.randbytes(500) for _ in range(600)]
    for part in range(0, 600, 200):
        fill(node.log.bootstrap, ["orders"], values[part : part + 200])
        node.log.kill()
        node.log.start()
    with Peer(node.log.port) as peer:
        wait_until(lambda: is_copied(node, "orders", peer), "the topic is copied")
    assert values_of(node, "orders", 0, 600) == values

    def bases() -> list[int]:
        return [int(path.name[:20]) for path in copies(node.store)]

    wait_until(lambda: len(set(bases())) == len(bases()), "what failed attempts left is deleted")
    assert len(objects(node.store)) == 2 * len(bases())


def test_a_damaged_object_is_never_served(node: World) -> None:
    values = filled(node, "orders")
    filled(node, "others")
    victim = next(path for path in copies(node.store) if int(path.name[:20]) > 0)
    topic_dir = victim.parts[-3]
    content = bytearray(victim.read_bytes())
    # In the base offset of the first batch, which no checksum of a batch covers.
    content[7] ^= 1
    victim.write_bytes(content)
    base = int(victim.name[:20])
    with Peer(node.log.port) as peer:
        answers = {topic: fetch(peer, topic, base) for topic in ("orders", "others")}
        codes = sorted(answer.error_code for answer in answers.values())
        assert codes == [ErrorCode.NONE, ErrorCode.KAFKA_STORAGE_ERROR], topic_dir
        damaged = next(topic for topic, answer in answers.items() if answer.error_code)
        assert not fetch(peer, damaged, 0).error_code, "other segments are served"
        content[7] ^= 1
        victim.write_bytes(content)
        assert not fetch(peer, damaged, base).error_code, "a restored object is served again"
    if damaged == "orders":
        assert values_of(node, "orders", 0, 500) == values


def test_an_object_that_was_deleted_by_hand_is_an_error_and_no_jump(node: World) -> None:
    filled(node, "orders")
    victim = next(path for path in copies(node.store) if int(path.name[:20]) == 0)
    victim.unlink()
    with Peer(node.log.port) as peer:
        assert fetch(peer, "orders", 0).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert listed(peer, "orders", EARLIEST).offset == 0
        seam = local_bases(node.data, "orders")[0]
        assert not fetch(peer, "orders", seam).error_code


def test_a_local_topic_becomes_tiered_and_back(node: World) -> None:
    rng = random.Random(2)
    node.log.create_topic("orders", internal_segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0)
    values = [rng.randbytes(500) for _ in range(500)]
    fill(node.log.bootstrap, ["orders"], values)
    alter(node, remote_storage_enable="true", local_retention_bytes=str(2 * SEGMENT_BYTES))
    with Peer(node.log.port) as peer:
        wait_until(lambda: is_copied(node, "orders", peer), "the topic is copied")
        assert values_of(node, "orders", 0, 500) == values
        with pytest.raises(
            KafkaException, match="It is invalid to disable remote storage without deleting remote data"
        ):
            alter(node, remote_storage_enable="false")
        seam = local_bases(node.data, "orders")[0]
        alter(node, remote_storage_enable="false", remote_log_delete_on_disable="true")
        wait_until(lambda: listed(peer, "orders", EARLIEST).offset == seam, "the log starts with its local segments")
        assert fetch_once(peer, "orders", seam - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(node, "orders", seam, 500) == values[seam:]
    wait_until(lambda: not objects(node.store), "the store is empty")


def alter(node: World, **settings: str) -> None:
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, "orders", incremental_configs=entries)
    client = AdminClient({"bootstrap.servers": node.log.bootstrap})
    for future in client.incremental_alter_configs([resource]).values():
        future.result(WAIT_S)


def test_a_topic_that_copies_no_more_goes_by_total_retention(node: World) -> None:
    filled(node, "orders", retention_bytes=20 * SEGMENT_BYTES)
    alter(node, local_retention_bytes="-2", remote_log_copy_disable="true", retention_bytes=str(3 * SEGMENT_BYTES))
    rng = random.Random(6)
    values = [rng.randbytes(500) for _ in range(500)]
    fill(node.log.bootstrap, ["orders"], values)
    wait_until(lambda: not objects(node.store), "what was copied is past retention")
    with Peer(node.log.port) as peer:
        start = wait_until(
            lambda: (found := listed(peer, "orders", EARLIEST).offset) > 600 and found, "the log start moves"
        )
        assert listed(peer, "orders", EARLIEST_LOCAL).offset == start
        assert fetch_once(peer, "orders", start - 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert values_of(node, "orders", start, 1000) == values[start - 500 :]


def test_a_node_with_logins_and_rights_copies_and_reads(tmp_path: Path) -> None:
    """A node of one has no login at itself, and its metadata topic is written all the same."""
    store, rng = tmp_path / "store", random.Random(9)
    with strandline.embedded(data=tmp_path / "data", properties=properties(store), secure=True) as log:
        log.create_topic("orders", **settings_of_tiered(retention_ms=-1))
        producer = Producer({**log.client_config, "linger.ms": 5})
        values = [rng.randbytes(500) for _ in range(400)]
        for number, value in enumerate(values):
            producer.produce("orders", value)
            if number % 5 == 4:
                assert producer.flush(WAIT_S) == 0
        wait_until(lambda: local_bases(tmp_path / "data", "orders")[0] > 0, "local segments are gone")
        consumer = Consumer({**log.client_config, "group.id": "readers", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition("orders", 0, 0)])
        found: list[bytes | None] = []
        while len(found) < len(values):
            found += [message.value() for message in consumer.consume(100, 1.0) if message.error() is None]
        consumer.close()
        assert found == values


def test_metrics_tell_what_was_copied_and_read(tmp_path: Path) -> None:
    port = free_port()
    settings = properties(tmp_path / "store", http_listener=f"127.0.0.1:{port}")
    with strandline.embedded(data=tmp_path / "data", properties=settings) as log:
        node = World(log, tmp_path / "data", tmp_path / "store")
        filled(node, "orders")
        values_of(node, "orders", 0, 100)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=WAIT_S) as answer:
            lines = dict(line.rsplit(" ", 1) for line in answer.read().decode().splitlines() if line[:1] != "#")
    found = {name: float(value) for name, value in lines.items() if name.startswith("strandline_remote_")}
    assert found["strandline_remote_copied_segments_total"] == len(copies(node.store))
    assert found["strandline_remote_log_size_bytes"] == sum(path.stat().st_size for path in copies(node.store))
    assert found["strandline_remote_copy_lag_segments"] == 0
    assert found["strandline_remote_read_bytes_total"] > 0
    assert found["strandline_remote_copy_failures_total"] == 0
