"""Object topics are read from the rack of the consumer (KIP-392), and the leader sends nothing."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.tiers.tiered_nodes import WAIT_S, properties, wait_until

import strandline
from strandline.local.embedded_cluster import EmbeddedCluster
from strandline.local.free_ports import free_port

TOPIC = "orders"
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
SETTINGS = {
    "strandline_object_flush_interval_ms": "20",
    "strandline_object_merge_interval_ms": "500",
    "strandline_object_checkpoint_interval_ms": "1000",
    "replica_selector_class": SELECTOR,
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[EmbeddedCluster]:
    settings = properties(tmp_path / "store", **SETTINGS)
    with strandline.embedded(nodes=3, data=tmp_path / "data", properties=settings) as found:
        found.kill_all()
        for node_id, node in found.nodes.items():
            node.properties["broker.rack"] = f"rack-{node_id}"
            node.properties["http.listener"] = f"127.0.0.1:{free_port()}"
        found.start_all()
        found.create_topic(TOPIC, partitions=1, replication_factor=3, strandline_storage="object")
        try:
            yield found
        finally:
            for node_id, text in found.stderr_texts().items():
                print(f"--- node {node_id}\n{text}")


def bytes_out(cluster: EmbeddedCluster, node_id: int, topic: str = TOPIC) -> int:
    """Return how many bytes of batches a node has sent to consumers of a topic since its start."""
    url = f"http://{cluster.nodes[node_id].properties['http.listener']}/metrics"
    text = urllib.request.urlopen(url, timeout=WAIT_S).read().decode()
    found = re.findall(
        rf'^kafka_server_brokertopicmetrics_bytesout_total{{topic="{topic}"}} (\S+)$', text, re.MULTILINE
    )
    return int(float(found[0])) if found else 0


class RackReader:
    """A consumer with a rack that reads the partition from its beginning."""

    def __init__(self, cluster: EmbeddedCluster, node_id: int, topic: str = TOPIC) -> None:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": f"reader-{time.monotonic_ns()}",
            "client.rack": f"rack-{node_id}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "isolation.level": "read_committed",
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, 0, 0)])
        self.values: list[bytes | None] = []

    def read(self, count: int) -> list[bytes | None]:
        """Read until there are so many values in all."""
        deadline = time.monotonic() + WAIT_S
        while len(self.values) < count:
            assert time.monotonic() < deadline, f"{len(self.values)} of {count} values were read"
            message = self._consumer.poll(1.0)
            if message is not None:
                error = message.error()
                assert error is None, error
                self.values.append(message.value())
        return self.values

    def close(self) -> None:
        self._consumer.close()


def write(cluster: EmbeddedCluster, first: int, last: int) -> list[bytes | None]:
    """Write transactions of one record each, every third of which is aborted. Return what is committed."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t", "log_level": 0})
    producer.init_transactions(WAIT_S)
    values: list[bytes | None] = []
    for number in range(first, last):
        value = json.dumps({"number": number, "filler": "x" * 300}).encode()
        producer.begin_transaction()
        producer.produce(TOPIC, value, partition=0)
        if number % 3 == 2:
            producer.flush(WAIT_S)
            producer.abort_transaction(WAIT_S)
        else:
            producer.commit_transaction(WAIT_S)
            values.append(value)
    return values


def leaders_send_nothing_of_local_topics(cluster: EmbeddedCluster) -> None:
    cluster.create_topic("plain", partitions=1, replication_factor=3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    values: list[bytes | None] = [b"%d" % number for number in range(20)]
    for value in values:
        producer.produce("plain", value, partition=0)
    assert producer.flush(WAIT_S) == 0
    cluster.wait_in_sync("plain", timeout_s=WAIT_S)
    leader = cluster.leader_of("plain", 0)
    elsewhere = next(each for each in cluster.nodes if each != leader)
    reader = RackReader(cluster, elsewhere, "plain")
    assert reader.read(len(values)) == values
    reader.close()
    assert bytes_out(cluster, leader, "plain") == 0
    assert bytes_out(cluster, elsewhere, "plain") > 0


def test_a_consumer_reads_in_its_rack_and_the_leader_sends_nothing(cluster: EmbeddedCluster) -> None:
    leaders_send_nothing_of_local_topics(cluster)
    expected = write(cluster, 0, 12)
    leader = cluster.leader_of(TOPIC, 0)
    others = [each for each in cluster.nodes if each != leader]
    readers = {each: RackReader(cluster, each) for each in others}
    try:
        for reader in readers.values():
            assert reader.read(len(expected)) == expected
        # Meanwhile the small objects are merged: the rest comes from segments.
        expected += write(cluster, 12, 24)
        for reader in readers.values():
            assert reader.read(len(expected)) == expected
        assert bytes_out(cluster, leader) == 0
        assert all(bytes_out(cluster, each) > 0 for each in others)
        # The leader dies, and one of the others leads. Nothing is read twice or left out.
        cluster.kill(leader)
        wait_until(lambda: cluster.leader_of(TOPIC, 0) not in (leader, -1), "another node leads")
        expected += write(cluster, 24, 30)
        for reader in readers.values():
            assert reader.read(len(expected)) == expected
        late = RackReader(cluster, next(each for each in others if each != cluster.leader_of(TOPIC, 0)))
        assert late.read(len(expected)) == expected
        late.close()
    finally:
        for reader in readers.values():
            reader.close()
