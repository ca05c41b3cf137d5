"""What the examples are run on: the feed in a log, and a stock consumer that reads what came of it."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from examples.feed import create_topics
from examples.shop import Record

WAIT_S_MAX = 60.0


class Written(NamedTuple):
    key: str | None
    value: bytes | None
    headers: dict[str, bytes]

    @property
    def fields(self) -> dict[str, Any]:
        assert self.value is not None
        return dict(json.loads(self.value))


def write(bootstrap: str, records: Iterable[Record]) -> None:
    """All of them, in order, acknowledged."""
    create_topics(bootstrap)
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})
    for record in records:
        producer.produce(record.topic, key=record.key, value=record.value)
        producer.poll(0)
    assert producer.flush(WAIT_S_MAX) == 0


def read(bootstrap: str, topic: str) -> list[Written]:
    """Every committed record of a topic, each partition in its order; none if nobody has made it yet."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": f"reader-{uuid.uuid4()}",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "log_level": 0,
        }
    )
    try:
        partitions = set(consumer.list_topics(topic, timeout=WAIT_S_MAX).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
        return _read_all(consumer, partitions) if partitions else []
    finally:
        consumer.close()


def _read_all(consumer: Consumer, unread: set[int]) -> list[Written]:
    found = []
    deadline = time.monotonic() + WAIT_S_MAX
    while unread:
        assert time.monotonic() < deadline, f"partitions {sorted(unread)} have no end"
        for message in consumer.consume(1000, 0.1):
            if message.error() is None:
                key = None if message.key() is None else message.key().decode()
                found.append(Written(key, message.value(), dict(message.headers() or ())))
            elif message.error().code() == KafkaError._PARTITION_EOF:
                unread.discard(message.partition())
            else:
                raise AssertionError(message.error())
    return found
