"""Kafka Streams, exactly once, while its instances and brokers are killed and a writer never stops."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from pathlib import Path

import pytest
from bench.kafka_jars import KafkaUnavailable
from tests.clients.transactions.streams_jars import streams_class_path
from tests.connect.running import wait_until
from tests.java_ecosystem.committed import CommittedRecords
from tests.java_ecosystem.java_process import WAIT_S, JavaProcess
from tests.java_ecosystem.steady_producer import KEYS, key_of, writing

import strandline

PARTITIONS = 3
BROKERS = {
    "transaction.state.log.num.partitions": "4",
    "offsets.topic.num.partitions": "4",
}


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(1800)
def test_each_record_is_counted_once_and_in_order_though_everything_is_killed(tmp_path: Path) -> None:
    try:
        class_path = streams_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(str(reason))
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(strandline.embedded(nodes=3, properties=BROKERS))
        for topic in ("orders", "counts"):
            cluster.create_topic(topic, PARTITIONS, min_insync_replicas=2)
        found = CommittedRecords(cluster.bootstrap, "counts", PARTITIONS)
        stack.callback(found.close)
        first, second = (
            stack.enter_context(
                JavaProcess(tmp_path / name, class_path, "RunningCount", settings(cluster.bootstrap, tmp_path / name))
            )
            for name in ("first", "second")
        )
        with writing(cluster.bootstrap, "orders", PARTITIONS) as numbers:

            def goes_on(after: str) -> None:
                """Wait for counts of records that are written from now on."""
                due = (len(numbers) + 20) * PARTITIONS
                wait_until(lambda: found.read() >= due, f"counts come {after}", WAIT_S)

            goes_on("at the start")
            first.kill()
            killed = cluster.leader_of("counts")
            cluster.kill(killed)
            goes_on("after an instance and the leader of its output were killed")
            cluster.start(killed)
            first.start()
            second.kill()
            goes_on("after the other instance was killed")
            second.start()
            killed = cluster.leader_of("__transaction_state")
            cluster.kill(killed)
            for each in (first, second):
                each.kill()
                each.start()
            goes_on("after both instances and a transaction coordinator were killed")
            cluster.start(killed)
            killed = cluster.leader_of("orders", 1)
            cluster.kill(killed)
            goes_on("after the leader of the input was killed")
        wait_until(lambda: found.read() >= len(numbers) * PARTITIONS, "all counts come", WAIT_S)
    counts: dict[bytes, list[bytes]] = defaultdict(list)
    for value in (value for values in found.values for value in values):
        key, _, counted = value.partition(b" ")
        counts[key].append(counted)
    assert counts == {
        key_of(partition, first_number): [
            b"%d %d" % (count, number) for count, number in enumerate(numbers[first_number::KEYS], start=1)
        ]
        for partition in range(PARTITIONS)
        for first_number in range(KEYS)
    }


def settings(bootstrap: str, directory: Path) -> dict[str, str]:
    """Return the settings of an instance, which has its own directory of state."""
    return {
        "bootstrap.servers": bootstrap,
        "application.id": "running-count",
        "processing.guarantee": "exactly_once_v2",
        "replication.factor": "3",
        "state.dir": str(directory / "state"),
        "commit.interval.ms": "100",
        # With a cache only the last count of a transaction is produced.
        "statestore.cache.max.bytes": "0",
        "consumer.auto.offset.reset": "earliest",
        "consumer.session.timeout.ms": "10000",
        "consumer.heartbeat.interval.ms": "1000",
        "source": "orders",
        "target": "counts",
    }
