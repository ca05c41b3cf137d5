"""A broker that is killed while it writes dead letters: in the end each has exactly one committed copy."""

from __future__ import annotations

import contextlib
import random
import threading
from collections import Counter
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from tests.crash.harness import new_seed
from tests.hostile.peer import Closed
from tests.scenarios.share_worker import ShareWorker, begin_group

from strandline.coordinators.shares.delivery.acknowledgements import REJECT
from strandline.errors import ErrorCode
from strandline.local.embedded import embedded
from strandline.local.embedded_broker import EmbeddedBroker

TOPIC, DEAD, GROUP = "jobs", "dlq.jobs", "workers"
QUICK = {
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
}
SETTINGS = {"errors.deadletterqueue.topic.name": DEAD, "errors.deadletterqueue.copy.record.enable": "true"}


def pause(seconds: float) -> None:
    """Part of the fault schedule: how far into its work the broker comes before it dies."""
    threading.Event().wait(seconds)


def write(broker: EmbeddedBroker, first: int, count: int) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number in range(first, first + count):
        producer.produce(TOPIC, f"job-{number}".encode(), partition=0)
    assert producer.flush(60) == 0


def committed(broker: EmbeddedBroker) -> list[tuple[int, bytes]]:
    """Return source offset and value of every committed dead letter."""
    consumer = Consumer(
        {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(DEAD, 0, 0)])
    found = []
    while (message := consumer.poll(30.0)) is not None:
        if message.error() is not None:
            assert message.error().name() == "_PARTITION_EOF", message.error()
            break
        headers = dict(message.headers())
        found.append((int(headers["__dlq.errors.offset"]), message.value()))
    consumer.close()
    return found


def run_kills(kills: int, directory: Path) -> None:
    rng = random.Random(new_seed())
    with embedded(data=directory / "data", properties=QUICK) as broker:
        broker.create_topic(TOPIC)
        broker.create_topic(DEAD, errors_deadletterqueue_group_enable="true")
        begin_group(broker.bootstrap, GROUP, TOPIC, SETTINGS)
        written = 0
        for _ in range(kills):
            size = rng.randint(1, 30)
            write(broker, written, size)
            written += size
            worker = ShareWorker(broker.port, GROUP, TOPIC)
            for first, last, _ in worker.poll():
                with contextlib.suppress(OSError, Closed):
                    worker.acknowledge(first, last, REJECT)
            pause(rng.choice((0.0, rng.uniform(0.0, 0.03), rng.uniform(0.0, 0.2))))
            broker.kill()
            worker.close()
            while rng.random() < 0.2:
                broker.spawn()
                pause(rng.uniform(0.0, 0.5))
                broker.kill()
            broker.start()
        worker = ShareWorker(broker.port, GROUP, TOPIC)
        for _ in range(300):
            for first, last, _ in worker.poll(wait_ms=200):
                assert worker.acknowledge(first, last, REJECT) is ErrorCode.NONE
            if len({offset for offset, _ in committed(broker)}) == written:
                break
        pause(1.0)
        found = committed(broker)
        assert Counter(offset for offset, _ in found) == Counter(range(written)), "not one copy of each"
        assert all(value == f"job-{offset}".encode() for offset, value in found)
        worker.close()


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_each_dead_letter_has_one_copy_when_the_broker_is_killed(tmp_path: Path) -> None:
    run_kills(30, tmp_path)
