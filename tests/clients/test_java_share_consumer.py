"""Java's KafkaShareConsumer against a node: stories that hold on Apache Kafka, too."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.clients.java_driver import JavaDriver

import strandline
from strandline.local.embedded_broker import EmbeddedBroker

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(600)]

TOPIC = "jobs"
GROUP = "workers"
DEAD = "dlq.jobs"
POLLS_MAX = 120


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    with strandline.embedded() as broker:
        broker.create_topic(TOPIC, 2)
        yield broker


@pytest.fixture
def java(broker: EmbeddedBroker, tmp_path: Path) -> Iterator[JavaDriver]:
    driver = JavaDriver(broker.bootstrap, tmp_path)
    yield driver
    driver.close()


class Member:
    """One KafkaShareConsumer."""

    def __init__(self, java: JavaDriver, **settings: str) -> None:
        self.java = java
        explicit = {"share.acknowledgement.mode": "explicit", **settings}
        self.number = java.ask("share", group=GROUP, topics=[TOPIC], settings=explicit)

    def poll(self, timeout_ms: int = 500) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.java.ask("share_poll", consumer=self.number, timeout_ms=timeout_ms)
        return found

    def poll_some(self) -> list[dict[str, Any]]:
        for _ in range(POLLS_MAX):
            if found := self.poll():
                return found
        raise AssertionError("nothing came")

    def join(self, broker: EmbeddedBroker) -> None:
        """Take part, so that what is written from now on is delivered: a group begins at the end."""
        for at in range(POLLS_MAX):
            write(broker, f"early-{at}")
            if found := self.poll():
                self.acknowledge("a")
                assert set(self.commit().values()) == {None}
                if found[-1]["value"] == f"early-{at}":
                    return
        raise AssertionError("the group was not assigned its partitions")

    def acknowledge(self, types: str) -> None:
        self.java.ask("share_acknowledge", consumer=self.number, types=types)

    def commit(self) -> dict[str, str | None]:
        outcome: dict[str, str | None] = self.java.ask("share_commit", consumer=self.number)
        return outcome

    def close(self) -> None:
        self.java.ask("share_close", consumer=self.number)


def write(broker: EmbeddedBroker, *values: str, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for value in values:
        producer.produce(TOPIC, value.encode(), partition=partition)
    assert producer.flush(30) == 0
    del producer


def test_every_record_is_worked_on_once_by_one_of_two(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann, bob = Member(java, **{"max.poll.records": "10"}), Member(java, **{"max.poll.records": "10"})
    ann.join(broker)
    values = {f"job-{each}" for each in range(200)}
    write(broker, *sorted(values))
    done: list[str] = []
    for _ in range(POLLS_MAX):
        for member in (ann, bob):
            done += [each["value"] for each in member.poll()]
            member.acknowledge("a")
            assert set(member.commit().values()) <= {None}
        if len(done) >= len(values):
            break
    assert sorted(each for each in done if each.startswith("job")) == sorted(values)


def test_released_records_come_again_and_rejected_ones_do_not(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann = Member(java)
    ann.join(broker)
    write(broker, "one", "two", "three")
    assert [each["value"] for each in ann.poll_some()] == ["one", "two", "three"]
    ann.acknowledge("alj")
    assert ann.commit() == {f"{TOPIC}-0": None}
    (again,) = ann.poll_some()
    assert (again["value"], again["count"]) == ("two", 2)
    ann.acknowledge("a")
    ann.commit()
    assert ann.poll(2_000) == []


def test_a_record_that_is_always_released_is_given_up(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann = Member(java)
    ann.join(broker)
    write(broker, "poison")
    for count in range(1, 6):
        (got,) = ann.poll_some()
        assert (got["value"], got["count"]) == ("poison", count)
        ann.acknowledge("l")
        ann.commit()
    assert ann.poll(2_000) == []


def test_closing_gives_the_rest_to_others(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann = Member(java)
    ann.join(broker)
    write(broker, "one", "two")
    assert len(ann.poll_some()) == 2
    ann.close()
    bob = Member(java)
    assert [(each["value"], each["count"]) for each in bob.poll_some()] == [("one", 2), ("two", 2)]


def test_a_strict_limit_of_records(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann = Member(java, **{"max.poll.records": "3", "share.acquire.mode": "record_limit"})
    ann.join(broker)
    write(broker, *[f"job-{each}" for each in range(7)])
    sizes = []
    while sum(sizes) < 7:
        got = ann.poll_some()
        sizes.append(len(got))
        ann.acknowledge("a")
        ann.commit()
    assert max(sizes) <= 3


def test_implicit_acknowledgement_by_the_next_poll(broker: EmbeddedBroker, java: JavaDriver) -> None:
    ann = Member(java, **{"share.acknowledgement.mode": "implicit"})
    seen: list[str] = []
    for at in range(POLLS_MAX):
        write(broker, f"job-{at}")
        seen += [each["value"] for each in ann.poll()]
        if len(seen) > 20:
            break
    assert len(seen) == len(set(seen))
    # The records of the last poll are acknowledged by the next one.
    seen += [each["value"] for each in ann.poll()]
    assert set(ann.commit().values()) <= {None}
    ann.close()
    bob = Member(java)
    assert not {each["value"] for each in bob.poll(2_000)} & set(seen)


def test_a_rejected_record_becomes_one_dead_letter(broker: EmbeddedBroker, java: JavaDriver) -> None:
    broker.create_topic(DEAD, errors_deadletterqueue_group_enable="true")
    settings = {"errors.deadletterqueue.topic.name": DEAD, "errors.deadletterqueue.copy.record.enable": "true"}
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET) for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.GROUP, GROUP, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
    ann = Member(java)
    ann.join(broker)
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
    ann, bob = Member(java), Member(java)
    ann.join(broker)
    producer = Producer({"bootstrap.servers": broker.bootstrap, "linger.ms": 100, "compression.type": "lz4"})
    for number in range(12):
        producer.produce(TOPIC, f"job-{number}".encode(), key=f"key-{number % 3}", partition=0)
    assert producer.flush(30) == 0
    del producer
    done: list[int] = []
    for _ in range(POLLS_MAX):
        for member in (ann, bob):
            got = [int(each["value"].removeprefix("job-")) for each in member.poll() if each["value"].startswith("job")]
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
    ann = Member(java)
    ann.join(broker)
    alter(broker, "TOPIC", TOPIC, {"strandline.delay.enable": "true"})
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
    alter(broker, "GROUP", GROUP, settings)


def alter(broker: EmbeddedBroker, kind: str, name: str, settings: dict[str, str]) -> None:
    entries = [ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in settings.items()]
    resource = ConfigResource(getattr(ResourceType, kind), name, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(30)
