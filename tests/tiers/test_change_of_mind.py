"""`topic alter --storage`: a live topic becomes tiered and local again, and no record or offset changes."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.cli.conftest import CommandLine
from tests.tiers.tiered_nodes import (
    SEGMENT_BYTES,
    WAIT_S,
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

RECORDS = 400


@pytest.fixture
def log(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    with strandline.embedded(data=tmp_path / "data", properties=properties(tmp_path / "store")) as found:
        yield found


def test_a_topic_comes_back_whole_and_becomes_tiered_again(log: EmbeddedBroker, tmp_path: Path) -> None:
    cli, rng, data = CommandLine(log.bootstrap), random.Random(3), tmp_path / "data"
    log.create_topic("orders", internal_segment_bytes=SEGMENT_BYTES, file_delete_delay_ms=0)
    values = [rng.randbytes(500) for _ in range(RECORDS)]
    fill(log.bootstrap, ["orders"], values)
    before = read(log.bootstrap, "orders", 0, RECORDS)
    assert "orders is local already" in cli.ok("topic", "alter", "orders", "--storage", "local").stderr
    for turn in range(2):
        cli.ok("topic", "alter", "orders", "--storage", "tiered", "--config", f"local.retention.bytes={SEGMENT_BYTES}")
        wait_until(lambda: local_bases(data, "orders")[0] > 200, "local segments are gone")
        refused = cli.run("topic", "alter", "orders", "--storage", "local")
        assert refused.status == 2, "it asks first"
        assert "nothing was changed" in refused.stderr
        assert local_bases(data, "orders")[0] > 200
        cli.ok("topic", "alter", "orders", "--storage", "local", "--yes")
        assert local_bases(data, "orders")[0] == 0, turn
        assert read(log.bootstrap, "orders", 0, RECORDS) == before
    assert [each[2] for each in before] == values


def test_deleted_records_stay_deleted(log: EmbeddedBroker, tmp_path: Path) -> None:
    cli, rng = CommandLine(log.bootstrap), random.Random(4)
    log.create_topic("orders", **settings_of_tiered(retention_ms=-1))
    values = [rng.randbytes(500) for _ in range(RECORDS)]
    fill(log.bootstrap, ["orders"], values)
    wait_until(lambda: local_bases(tmp_path / "data", "orders")[0] > 200, "local segments are gone")
    cli.ok("topic", "trim", "orders", "--before", "87", "--yes")
    # The log starts inside of a batch that is in the store alone.
    assert [each[2] for each in read(log.bootstrap, "orders", 87, RECORDS)] == values[87:]
    cli.ok("topic", "alter", "orders", "--storage", "local", "--yes")
    assert watermarks(log.bootstrap, "orders") == (87, RECORDS)
    assert [each[2] for each in read(log.bootstrap, "orders", 87, RECORDS)] == values[87:]


class Traffic:
    """A producer that keeps what was acknowledged, and a consumer that reads along."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.acknowledged: dict[int, bytes] = {}
        self.seen: dict[int, bytes] = {}
        self._bootstrap, self._topic = bootstrap, topic
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=each, daemon=True) for each in (self._produce, self._consume)]
        for thread in self._threads:
            thread.start()

    def _produce(self) -> None:
        producer = Producer({"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "linger.ms": 5})
        rng = random.Random(7)

        def on_delivery(error: object, message: object) -> None:
            if error is None:
                self.acknowledged[message.offset()] = message.value()  # type: ignore[attr-defined]

        while not self._ends.is_set():
            producer.produce(self._topic, rng.randbytes(200), partition=0, on_delivery=on_delivery)
            producer.poll(0.01)
        assert producer.flush(WAIT_S) == 0

    def _consume(self) -> None:
        consumer = Consumer({"bootstrap.servers": self._bootstrap, "group.id": "along", "auto.offset.reset": "error"})
        consumer.assign([TopicPartition(self._topic, 0, 0)])
        while not (self._ends.is_set() and len(self.seen) > max(self.acknowledged, default=0)):
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    offset = message.offset()
                    assert self.seen.setdefault(offset, message.value()) == message.value()  # type: ignore[arg-type]
        consumer.close()

    def end(self) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join(WAIT_S)
            assert not thread.is_alive()


@pytest.mark.slow
def test_nodes_and_command_are_killed_on_the_way_under_load(tmp_path: Path) -> None:
    store, data, rng = tmp_path / "store", tmp_path / "data", random.Random(5)
    with strandline.embedded(nodes=3, data=data, properties=properties(store)) as cluster:
        cluster.create_topic("orders", replication_factor=3, **settings_of_tiered(retention_ms=-1))
        values = [rng.randbytes(500) for _ in range(RECORDS)]
        fill(cluster.bootstrap_servers, ["orders"], values)
        directories = [path.parent for path in data.rglob("meta.properties")]
        wait_until(lambda: all(local_bases(each, "orders")[0] > 100 for each in directories), "local segments are gone")
        traffic = Traffic(cluster.bootstrap_servers, "orders")
        cli = CommandLine(cluster.bootstrap_servers)
        command = cli.start("topic", "alter", "orders", "--storage", "local", "--yes")
        leader = cluster.leader_of("orders")
        wait_until(lambda: any(local_bases(each, "orders")[0] < 100 for each in directories), "it has begun")
        cluster.kill(leader)
        command.send_signal(signal.SIGKILL)
        command.communicate(timeout=WAIT_S)
        wait_until(lambda: cluster.leader_of("orders") != leader, "another node leads")
        cluster.start(leader)
        cli.ok("topic", "alter", "orders", "--storage", "local", "--yes", "--timeout", str(int(WAIT_S)))
        traffic.end()
        assert all(local_bases(each, "orders")[0] == 0 for each in directories)
        wait_until(lambda: not objects(store), "the store is empty")
        end = watermarks(cluster.bootstrap_servers, "orders")[1]
        found = {each[0]: each[2] for each in read(cluster.bootstrap_servers, "orders", 0, end)}
        assert [found[offset] for offset in range(RECORDS)] == values
        assert sorted(found) == list(range(end)), "no offset is missing"
        assert {offset: found[offset] for offset in traffic.acknowledged} == traffic.acknowledged
        assert {offset: found[offset] for offset in traffic.seen} == traffic.seen
        # The next leader has everything, too.
        cluster.wait_in_sync("orders", timeout_s=WAIT_S)
        leader = cluster.leader_of("orders")
        cluster.kill(leader)
        wait_until(lambda: cluster.leader_of("orders") != leader, "another node leads")
        assert watermarks(cluster.bootstrap_servers, "orders")[0] == 0
        assert [each[2] for each in read(cluster.bootstrap_servers, "orders", 0, RECORDS)] == values
