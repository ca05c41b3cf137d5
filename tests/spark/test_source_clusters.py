"""The raw reader beside Apache Kafka, with compaction and small segments; and while leaders die."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench.brokers import Broker
from confluent_kafka import Producer
from tests.clients.kafka_server import running_kafka
from tests.spark.source_ground import WAIT_S, client_of, consumed, end_of, fill, read

from strandline.testing import embedded

SEED = random.randrange(2**32)
KAFKA_SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.backoff.ms": "100",
    "auto.create.topics.enable": "false",
}
# An index that is full ends its segment.
SMALL_SEGMENTS = {"index.interval.bytes": "200", "segment.index.bytes": "240"}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_kafka(tmp_path_factory, KAFKA_SETTINGS) as broker:
        yield broker


def equals_the_consumer_in_parts(bootstrap: str, topic: str, rng: random.Random) -> None:
    with client_of(bootstrap) as client:
        for committed in (True, False):
            expected = consumed(bootstrap, topic, committed=committed)
            end = end_of(client, topic, committed=committed)
            for parts in (1, 15):
                bounds = sorted({0, end, *(rng.randrange(end) for _ in range(parts - 1))})
                found = []
                for start, behind in itertools.pairwise(bounds):
                    size = rng.choice((1000, 20_000, 1 << 22))
                    found += read(client, topic, start, behind, committed=committed, partition_bytes_max=size)
                assert found == expected


@pytest.mark.slow
@pytest.mark.java
def test_any_split_of_a_log_of_kafkas(kafka: Broker) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    kafka.create_topic("mixed", 1, SMALL_SEGMENTS)
    fill(kafka.bootstrap, "mixed", rng, transactions=60)
    equals_the_consumer_in_parts(kafka.bootstrap, "mixed", rng)


@pytest.mark.slow
@pytest.mark.java
def test_any_split_of_a_compacted_log(kafka: Broker) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    settings = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "500"}
    kafka.create_topic("compacted", 1, SMALL_SEGMENTS | settings)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "linger.ms": 1, "batch.num.messages": 20})
    deadline = time.monotonic() + 2 * WAIT_S
    written = 0
    while not written or len(consumed(kafka.bootstrap, "compacted")) > written * 0.7:
        assert time.monotonic() < deadline, "nothing was compacted"
        for _ in range(2000):
            producer.produce("compacted", rng.randbytes(50), b"%d" % rng.randrange(300), partition=0)
        written += 2000
        assert producer.flush(WAIT_S) == 0
    equals_when_it_stands_still(kafka.bootstrap, rng)


def equals_when_it_stands_still(bootstrap: str, rng: random.Random) -> None:
    """What is compacted meanwhile is not the same to two readers: compared between two looks that saw the same."""
    deadline = time.monotonic() + 2 * WAIT_S
    with client_of(bootstrap) as client:
        while True:
            before = consumed(bootstrap, "compacted")
            end = end_of(client, "compacted")
            bounds = sorted({0, end, *(rng.randrange(end) for _ in range(15))})
            found = [
                seen
                for start, behind in itertools.pairwise(bounds)
                for seen in read(client, "compacted", start, behind, partition_bytes_max=20_000)
            ]
            if consumed(bootstrap, "compacted") == before:
                assert found == before
                assert any(after - first > 1 for first, after in itertools.pairwise(seen.offset for seen in found))
                return
            assert time.monotonic() < deadline, "it never stands still"


@pytest.mark.slow
def test_leaders_die_while_a_range_is_read(tmp_path: Path) -> None:
    with embedded(nodes=3) as cluster:
        cluster.create_topic("orders", 1, replication_factor=3, min_insync_replicas=2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "batch.num.messages": 100})
        for number in range(5000):
            producer.produce("orders", b"%d" % number, partition=0)
        assert producer.flush(WAIT_S) == 0
        with client_of(cluster.bootstrap) as client:
            for _ in range(3):
                first = read(client, "orders", 0, 2500, partition_bytes_max=5000)
                dead = cluster.leader_of("orders", 0)
                cluster.kill(dead)
                rest = read(client, "orders", 2500, 5000, partition_bytes_max=5000)
                assert [seen.value for seen in first + rest] == [b"%d" % number for number in range(5000)]
                cluster.start(dead)
