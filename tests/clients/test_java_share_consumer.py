"""Java's KafkaShareConsumer with what Kafka 4.3 has not: dead letters, key order, delay.

What holds on Apache Kafka, too, is in `tests/clients/shares/stories.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ResourceType
from tests.clients.java_driver import JavaDriver
from tests.clients.shares.member import POLLS_MAX, ShareMember
from tests.clients.shares.stories import alter

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

TOPIC = "jobs"
GROUP = "workers"
DEAD = "dlq.jobs"


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as broker:
        broker.create_topic(TOPIC, 2)
        alter_group(broker, {"share.auto.offset.reset": "earliest"})
        yield broker


@pytest.fixture
def java(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[JavaDriver]:
    driver = JavaDriver(broker.bootstrap, tmp_path)
    yield driver
    driver.close()


def write(broker: EmbeddedBroker, *values: str) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 5_000})
    for value in values:
        producer.produce(TOPIC, value.encode(), partition=0)
    assert producer.flush(30) == 0


def test_a_rejected_record_becomes_one_dead_letter(broker: EmbeddedBroker, java: JavaDriver) -> None:
    broker.create_topic(DEAD, errors_deadletterqueue_group_enable="true")
    settings = {"errors.deadletterqueue.topic.name": DEAD, "errors.deadletterqueue.copy.record.enable": "true"}
    alter_group(broker, settings)
    ann = ShareMember(java, GROUP, TOPIC)
    write(broker, "good", "poison")
    assert [each["value"] for each in ann.poll_some()] == ["good", "poison"]
    ann.acknowledge("aj")
    assert ann.commit() == {f"{TOPIC}-0": None}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "reader", "auto.offset.reset": "earliest"})
    consumer.subscribe([DEAD])
    message = next(each for _ in range(POLLS_MAX) if (each := consumer.poll(1.0)) is not None)
    assert message.value() == b"poison"
    headers = dict(message.headers())
    assert headers["__dlq.errors.topic"] == TOPIC.encode()
    assert headers["__dlq.errors.message"] == b"Offset rejected by client."
    assert consumer.poll(2.0) is None
    consumer.close()


def test_a_group_with_an_order_gets_one_record_of_a_key_at_a_time(broker: EmbeddedBroker, java: JavaDriver) -> None:
    alter_group(broker, {"share.order": "key"})
    ann, bob = ShareMember(java, GROUP, TOPIC), ShareMember(java, GROUP, TOPIC)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100, "compression.type": "lz4"})
    for number in range(12):
        producer.produce(TOPIC, f"job-{number}".encode(), key=f"key-{number % 3}", partition=0)
    assert producer.flush(30) == 0
    del producer
    done: list[int] = []
    for _ in range(POLLS_MAX):
        for member in (ann, bob):
            got = [int(each["value"].removeprefix("job-")) for each in member.poll()]
            assert len({each % 3 for each in got}) == len(got), "two records of one key at once"
            done += got
            member.acknowledge("a")
            member.commit()
        if len(done) >= 12:
            break
    assert sorted(done) == list(range(12))
    for key in range(3):
        assert [each for each in done if each % 3 == key] == list(range(key, 12, 3))


def test_a_delayed_record_comes_when_it_is_due(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann = ShareMember(java, GROUP, TOPIC)
    # It is a member with an assignment before the record is written that is due soon.
    write(broker, "early")
    assert [each["value"] for each in ann.poll_some()] == ["early"]
    ann.settle("a")
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    alter(admin, ResourceType.TOPIC, TOPIC, {"strandline.delay.enable": "true"})
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    due_ms = time.time_ns() // 1_000_000 + 5_000
    producer.produce(TOPIC, b"later", partition=0, timestamp=due_ms)
    producer.produce(TOPIC, b"now", partition=0)
    assert producer.flush(30) == 0
    del producer
    assert [each["value"] for each in ann.poll_some()] == ["now"]
    ann.acknowledge("a")
    ann.commit()
    assert [each["value"] for each in ann.poll_some()] == ["later"]
    assert time.time_ns() // 1_000_000 >= due_ms


def alter_group(broker: EmbeddedBroker, settings: dict[str, str]) -> None:
    alter(AdminClient({"bootstrap.servers": broker.bootstrap}), ResourceType.GROUP, GROUP, settings)
