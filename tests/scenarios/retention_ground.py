"""A broker's topics of small segments, as retention sees them: written by a client, seen by a client and on disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

TOPIC = "orders"
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
WAIT_S_MAX = 30.0
LOOK_EVERY_S = 0.02
SEGMENT_BYTES = 4096
VALUE = b"v" * 1000
PER_SEGMENT = 3
"""Records of `VALUE`, each a batch of its own, that fit a segment."""
QUICK = {"log.retention.check.interval.ms": "50"}


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def write(bootstrap: str, timestamps: Iterable[int], *, topic: str = TOPIC, key: bytes | None = b"k") -> None:
    """A batch for each record."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1, "acks": "all"})
    failures: list[object] = []

    def on_delivery(error: object, _: Message) -> None:
        if error is not None:
            failures.append(error)

    for timestamp_ms in timestamps:
        producer.produce(topic, VALUE, key, partition=0, timestamp=timestamp_ms, on_delivery=on_delivery)
    assert producer.flush(30) == 0
    assert not failures


def span(bootstrap: str, *, topic: str = TOPIC) -> tuple[int, int]:
    """Log start offset and high watermark, as a consumer is told them."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "looking"})
    try:
        low, high = consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=60)
        return low, high
    finally:
        consumer.close()


def read_offsets(bootstrap: str, *, topic: str = TOPIC) -> list[int]:
    """Every record that a consumer gets from the beginning on."""
    _, end = span(bootstrap, topic=topic)
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reading", "enable.partition.eof": True})
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    offsets: list[int] = []
    deadline = time.monotonic() + WAIT_S_MAX
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                offsets.append(int(message.offset() or 0))
            elif message is not None:
                return offsets
    finally:
        consumer.close()
    raise AssertionError(f"no end in sight at {end}")


def configure(bootstrap: str, *, topic: str = TOPIC, **settings: str | int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(20)


def delete_below(bootstrap: str, offset: int, *, topic: str = TOPIC) -> int:
    """DeleteRecords; the low watermark that is answered."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.delete_records([TopicPartition(topic, 0, offset)]).values()
    return int(future.result(20).low_watermark)


def until(condition: Callable[[], Any], what: str = "") -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not condition():
        assert time.monotonic() < deadline, what or "it did not come to that"
        time.sleep(LOOK_EVERY_S)


def bases(data: Path, *, topic: str = TOPIC) -> list[int]:
    """The base offsets of the segments on disk."""
    return sorted(int(path.stem) for path in (data / f"{topic}-0").glob("*.log"))


def leftovers(data: Path, *, topic: str = TOPIC) -> list[str]:
    return sorted(path.name for path in (data / f"{topic}-0").glob("*.deleted"))
