"""Bits change on disks: what changed is never served, and where there is another copy it is mended from that."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition

import strandline
from strandline.cli.common.conversation import Conversation
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse, StoredPartition
from strandline.codec.messages.scrub_partitions_request import ScrubPartitionsRequest, ScrubTopic
from strandline.codec.messages.scrub_partitions_response import ScrubbedPartition, ScrubPartitionsResponse
from strandline.local.embedded_cluster import EmbeddedCluster

TOPIC = "orders"
SEED = 20_261_118
PATIENCE_S = 60.0
LOOK_S = 0.1
RECORDS = 400
SEGMENT_BYTES = 1 << 20

pytestmark = pytest.mark.timeout(180)


def produce(bootstrap: str, count: int = RECORDS) -> list[bytes]:
    """Records of about ten kilobytes, several to a batch; their values in the order of their offsets."""
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 5, "batch.size": 65_536})
    seed = random.Random(SEED)
    values = [b"%06d" % number + seed.randbytes(10_000) for number in range(count)]
    for value in values:
        producer.produce(TOPIC, value, partition=0)
    assert producer.flush(PATIENCE_S) == 0
    return values


def read(bootstrap: str, offset: int, until: int) -> tuple[dict[int, bytes], list[KafkaError]]:
    """What a stock consumer gets from `offset` on, up to `until` or the first error that it shows."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    got: dict[int, bytes] = {}
    errors: list[KafkaError] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, offset)])
        deadline = time.monotonic() + PATIENCE_S
        while not errors and time.monotonic() < deadline and (not got or max(got) + 1 < until):
            message = consumer.poll(0.2)
            if message is None:
                continue
            if message.error() is not None:
                errors.append(message.error())
            else:
                got[message.offset()] = message.value()
    finally:
        consumer.close()
    return got, errors


def segments(data: Path) -> list[Path]:
    return sorted((data / f"{TOPIC}-0").glob("*.log"))


def flip(path: Path, bit: int) -> None:
    """In place, as a disk would: the file stays the same one."""
    with path.open("r+b") as file:
        file.seek(bit // 8)
        [byte] = file.read(1)
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def scrub(port: int) -> ScrubbedPartition:
    request = ScrubPartitionsRequest(topics=[ScrubTopic(TOPIC, [0])])
    with Conversation("127.0.0.1", port, PATIENCE_S) as conversation:
        answer = conversation.ask(request, ScrubPartitionsResponse)
    assert answer is not None
    [partition] = answer.partitions
    return partition


def stored(port: int) -> StoredPartition:
    with Conversation("127.0.0.1", port, PATIENCE_S) as conversation:
        answer = conversation.ask(DescribeStorageRequest(), DescribeStorageResponse)
    assert answer is not None
    [partition] = [each for each in answer.partitions if each.topic == TOPIC]
    return partition


def wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK_S)


@pytest.mark.slow
def test_the_only_copy_is_told_of_and_not_served(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path) as broker:
        broker.create_topic(TOPIC, segment_bytes=SEGMENT_BYTES)
        values = produce(broker.bootstrap)
        broker.stop()
        [_, damaged, after, *_] = segments(tmp_path)
        flip(damaged, 8 * 30_000)
        broker.start()
        got, errors = read(broker.bootstrap, 0, RECORDS)
        assert [error.code() for error in errors] == [KafkaError.INVALID_MSG]
        assert int(damaged.stem) <= len(got) < int(after.stem)
        assert list(got.values()) == values[: len(got)], "what lies before is served"
        got, errors = read(broker.bootstrap, int(after.stem), RECORDS)
        assert errors == []
        assert list(got.values()) == values[int(after.stem) :], "what lies behind is served"
        answer = scrub(broker.port)
        assert answer.error_code == 0
        assert answer.bytes_read == sum(path.stat().st_size for path in segments(tmp_path))
        [damage] = answer.damages
        assert damage.base_offset == int(damaged.stem)
        assert 0 <= damage.position <= 30_000
        assert "no other copy" in damage.state
        partition = stored(broker.port)
        assert [each.base_offset for each in partition.damages] == [damage.base_offset]
        assert partition.scrubbed_ms > 0
        more = produce(broker.bootstrap, 5)
        got, errors = read(broker.bootstrap, RECORDS, RECORDS + 5)
        assert list(got.values()) == more, "and it goes on"


def test_a_flip_under_a_running_broker_is_found_by_a_scrub(tmp_path: Path) -> None:
    with strandline.embedded(data=tmp_path) as broker:
        broker.create_topic(TOPIC, segment_bytes=SEGMENT_BYTES)
        produce(broker.bootstrap)
        assert scrub(broker.port).damages == []
        first, *_, active = segments(tmp_path)
        flip(first, 8 * 1000)
        flip(active, 8 * 200)
        answer = scrub(broker.port)
        assert [each.base_offset for each in answer.damages] == [int(first.stem), int(active.stem)]
        _, errors = read(broker.bootstrap, 0, RECORDS)
        assert [error.code() for error in errors] == [KafkaError.INVALID_MSG]
        assert segments(tmp_path)[-1] != active, "what grows is rolled"


@pytest.mark.slow
def test_logs_are_read_through_by_themselves_and_that_is_remembered(tmp_path: Path) -> None:
    settings = {"log.scrub.interval.ms": "500", "log.scrub.max.bytes.per.second": "100000000"}
    with strandline.embedded(data=tmp_path, properties=settings) as broker:
        broker.create_topic(TOPIC, segment_bytes=SEGMENT_BYTES)
        produce(broker.bootstrap)
        wait_until(lambda: stored(broker.port).scrubbed_ms > 0, "it is scrubbed")
        flip(segments(tmp_path)[0], 8 * 5000)
        wait_until(lambda: bool(stored(broker.port).damages), "the damage is found")
        scrubbed_ms = stored(broker.port).scrubbed_ms
        broker.stop()
    with strandline.embedded(data=tmp_path) as broker:
        assert stored(broker.port).scrubbed_ms >= scrubbed_ms
        assert stored(broker.port).damages == [], "nobody has looked since the start"
        _, errors = read(broker.bootstrap, 0, RECORDS)
        assert [error.code() for error in errors] == [KafkaError.INVALID_MSG]
        assert len(stored(broker.port).damages) == 1


def a_cluster_with(cluster: EmbeddedCluster) -> list[bytes]:
    cluster.create_topic(TOPIC, 1, segment_bytes=SEGMENT_BYTES)
    values = produce(cluster.bootstrap_servers)
    cluster.wait_in_sync(TOPIC)
    return values


def damage(cluster: EmbeddedCluster, node_id: int, at: int, *, byte: int) -> Path:
    """Change a bit of a segment of a node while that is stopped."""
    node = cluster.nodes[node_id]
    cluster.stop(node_id)
    path = segments(node.data)[at]
    flip(path, 8 * byte + 3)
    cluster.start(node_id)
    cluster.wait_in_sync(TOPIC)
    return path


def is_mended(cluster: EmbeddedCluster, node_id: int) -> bool:
    answer = scrub(cluster.nodes[node_id].port)
    return answer.error_code == 0 and not answer.damages


def wait_mended(cluster: EmbeddedCluster, *node_ids: int) -> None:
    for node_id in node_ids:
        wait_until(lambda node_id=node_id: is_mended(cluster, node_id), f"node {node_id} is mended")  # type: ignore[misc]


def all_equal(cluster: EmbeddedCluster, name: str) -> bool:
    try:
        contents = {(node.data / f"{TOPIC}-0" / name).read_bytes() for node in cluster.nodes.values()}
    except FileNotFoundError:
        # The mended segment is about to take the place of the damaged one.
        return False
    return len(contents) == 1


@pytest.mark.slow
def test_a_follower_fetches_what_is_damaged_anew_and_stays_in_sync() -> None:
    with strandline.embedded(nodes=3) as cluster:
        values = a_cluster_with(cluster)
        leader = cluster.leader_of(TOPIC)
        follower = next(each for each in cluster.nodes if each != leader)
        path = damage(cluster, follower, 1, byte=20_000)
        assert not all_equal(cluster, path.name)
        found = scrub(cluster.nodes[follower].port)
        assert [each.base_offset for each in found.damages] in ([int(path.stem)], [])
        # A node that has not found the damage yet calls itself mended, too.
        wait_until(lambda: all_equal(cluster, path.name), "the copies are equal again")
        wait_mended(cluster, follower)
        [partition] = cluster.partitions(TOPIC)
        assert len(partition.isrs) == 3
        got, errors = read(cluster.bootstrap_servers, 0, RECORDS)
        assert (list(got.values()), errors) == (values, [])


@pytest.mark.slow
def test_a_leader_makes_way_and_is_mended() -> None:
    with strandline.embedded(nodes=3) as cluster:
        values = a_cluster_with(cluster)
        leader = cluster.leader_of(TOPIC)
        path = segments(cluster.nodes[leader].data)[1]
        flip(path, 8 * 20_000)
        scrub(cluster.nodes[leader].port)
        wait_until(lambda: cluster.leader_of(TOPIC) != leader, "another leads")
        wait_mended(cluster, leader)
        assert all_equal(cluster, path.name)
        got, errors = read(cluster.bootstrap_servers, 0, RECORDS)
        assert (list(got.values()), errors) == (values, [])


@pytest.mark.slow
def test_one_good_copy_of_three_is_enough() -> None:
    with strandline.embedded(nodes=3) as cluster:
        values = a_cluster_with(cluster)
        good = next(each for each in cluster.nodes if each != cluster.leader_of(TOPIC))
        bad = [each for each in cluster.nodes if each != good]
        paths = {damage(cluster, each, 1, byte=20_000 + each).name for each in bad}
        paths |= {damage(cluster, each, 3, byte=2_000 + each).name for each in bad}
        got, errors = read(cluster.bootstrap_servers, 0, RECORDS)
        assert (list(got.values()), errors) == (values, [])
        wait_mended(cluster, *cluster.nodes)
        assert all(all_equal(cluster, name) for name in paths)


@pytest.mark.slow
def test_each_copy_mends_what_another_lacks() -> None:
    with strandline.embedded(nodes=3) as cluster:
        values = a_cluster_with(cluster)
        paths = {damage(cluster, each, 1, byte=300_000 * each).name for each in cluster.nodes}
        assert len(paths) == 1, "the same segment, at different places"
        wait_mended(cluster, *cluster.nodes)
        assert all(all_equal(cluster, name) for name in paths)
        got, errors = read(cluster.bootstrap_servers, 0, RECORDS)
        assert (list(got.values()), errors) == (values, [])
