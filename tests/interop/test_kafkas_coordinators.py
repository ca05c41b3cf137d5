"""A node on the directory that Apache Kafka left: it finds every group and every transactional id."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from tests.cli.conftest import CommandLine
from tests.clients.kafka_server import running_kafka

import strandline
from strandline.coordinators.partitioning import java_string_hash

pytestmark = [pytest.mark.slow, pytest.mark.java]

IDS = ["orders", "group", "payments", "a", "polygenelubricants", "spark.orders", "readers-1", "readers-2"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a Kafka that has stopped, with a position of each group and a use of each transactional id."""
    with running_kafka(tmp_path_factory) as kafka:
        kafka.create_topic("t")
        settings = {"bootstrap.servers": kafka.bootstrap, "log_level": 0}
        for number, each in enumerate(IDS):
            producer = Producer(settings | {"transactional.id": each})
            producer.init_transactions(60)
            producer.begin_transaction()
            producer.produce("t", each.encode())
            producer.commit_transaction(60)
            commit(settings | {"group.id": each}, 100 + number)
        kafka.stop()
        yield kafka.data


def commit(settings: dict[str, Any], offset: int) -> None:
    """Commit a position, again while the coordinator is being found or loads."""
    consumer, deadline = Consumer(settings), time.monotonic() + 120
    while True:
        try:
            consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            break
        except KafkaException:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    consumer.close()


def test_positions_and_transactional_ids_are_found(data: Path) -> None:
    assert sum(java_string_hash(each) < 0 for each in IDS) >= 3
    with strandline.embedded(data=data) as broker:
        for number, each in enumerate(IDS):
            consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": each})
            (place,) = consumer.committed([TopicPartition("t", 0)], timeout=60)
            consumer.close()
            assert place.offset == 100 + number, each
            # Of an id that is not where it is looked for, nothing is known.
            assert CommandLine(broker.bootstrap).ok("txn", "describe", each, "--json").objects
