"""Data directories of Apache Kafka, killed and stopped in peace, and one of ours; Kafka's tools and a node for them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from bench.brokers import start_strandline
from bench.kafka_jars import KafkaUnavailable, kafka_class_path
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from tests.clients.broker import shared_broker
from tests.clients.kafka_server import archive_classes
from tests.interop.conversation import Ledger, write
from tests.interop.kafka_lives import TOPIC_SETTINGS, KafkaLives, live, recorded
from tests.interop.kafka_tools import Tools


@dataclass(frozen=True)
class OurLife:
    data: Path
    ledger: Ledger
    committed: dict[tuple[str, int], int]


@pytest.fixture(scope="session", params=["recorded", pytest.param("live", marks=[pytest.mark.slow, pytest.mark.java])])
def kafka_lives(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaLives]:
    home = tmp_path_factory.mktemp("kafka-lives")
    if request.param == "recorded":
        yield recorded(home)
        return
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no Apache Kafka: {reason}")
    with live(home) as lives:
        yield lives


@pytest.fixture(scope="session")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """Kafka's tools, and a node for them: ours, or the one that STRANDLINE_TEST_BOOTSTRAP names."""
    try:
        kafka_class_path()
    except KafkaUnavailable as reason:
        pytest.skip(f"no tools of Apache Kafka: {reason}")
    logs = tmp_path_factory.mktemp("tools")
    with shared_broker() as bootstrap:
        archive_classes(bootstrap, logs)
        yield Tools(bootstrap, logs)


@pytest.fixture(scope="session")
def broker_id(tools: Tools) -> str:
    (broker,) = AdminClient({"bootstrap.servers": tools.bootstrap}).list_topics(timeout=30).brokers
    return str(broker)


@pytest.fixture
def topic() -> str:
    """A name of its own for each test: the node is shared."""
    return f"tools-{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def our_life(tmp_path_factory: pytest.TempPathFactory) -> Iterator[OurLife]:
    """A Strandline node that was written to, read from by a group, and stopped."""
    broker = start_strandline(
        tmp_path_factory.mktemp("our-life") / "node", settings={"offsets.topic.num.partitions": "1"}
    )
    try:
        ledger = Ledger()
        broker.create_topic("orders", 2, TOPIC_SETTINGS)
        write(broker.bootstrap, "orders", ledger, rounds=60)
        committed = _commit(broker.bootstrap, ledger)
        broker.stop()
        assert broker.process.returncode == 0, broker.last_words()
        yield OurLife(broker.data, ledger, committed)
    finally:
        broker.discard()


def _commit(bootstrap: str, ledger: Ledger) -> dict[tuple[str, int], int]:
    committed = {name: max(records) + 1 for name, records in ledger.records.items()}
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "shipping", "enable.auto.commit": False})
    try:
        offsets = [TopicPartition(topic, index, offset) for (topic, index), offset in committed.items()]
        consumer.commit(offsets=offsets, asynchronous=False)
    finally:
        consumer.close()
    return committed
