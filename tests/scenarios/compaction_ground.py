"""A compacted topic as its users see it: written by clients, folded by a reader from the beginning."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.hostile.peer import Peer

from strandline.codec.messages.compact_partitions_request import CompactPartitionsRequest, CompactTopic
from strandline.codec.messages.compact_partitions_response import CompactedPartition

TOPIC = "table"
WAIT_S_MAX = 60.0
LOOK_EVERY_S = 0.02
QUICK = {"log.cleaner.backoff.ms": "50"}
AT_ONCE = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "4000",
    "min.cleanable.dirty.ratio": "0.01",
    "file.delete.delay.ms": "0",
}
"""Cleaned as soon as a segment is full."""
BY_HAND = AT_ONCE | {"min.cleanable.dirty.ratio": "1.0"}
"""Cleaned when somebody asks for it, and not before."""


def make(bootstrap: str, config: dict[str, str], *, topic: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1, config=config)]).values():
        future.result(30)


def put(
    bootstrap: str, records: Sequence[tuple[bytes | None, bytes | None]], *, topic: str = TOPIC, **settings: Any
) -> list[int]:
    """Write records, a batch for each; their offsets."""
    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 0, "batch.num.messages": 1, "acks": "all"} | settings
    )
    found: list[int] = []

    def on_delivery(error: object, message: Message) -> None:
        assert error is None, error
        found.append(int(message.offset() or 0))

    for key, value in records:
        producer.produce(topic, value, key, partition=0, on_delivery=on_delivery)
    assert producer.flush(WAIT_S_MAX) == 0
    return sorted(found)


def rounds(count: int, keys: int = 10, size: int = 100) -> list[tuple[bytes | None, bytes | None]]:
    """Every key again and again, each time with a value of its own."""
    return [
        (b"key %d" % key, (b"round %d of key %d " % (each, key)).ljust(size, b"."))
        for each in range(count)
        for key in range(keys)
    ]


def read(bootstrap: str, *, topic: str = TOPIC, **settings: Any) -> list[tuple[int, bytes | None, bytes | None]]:
    """Every record that a consumer gets from the beginning on, with its offset."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reading", "enable.partition.eof": True} | settings
    )
    consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
    found: list[tuple[int, bytes | None, bytes | None]] = []
    deadline = time.monotonic() + WAIT_S_MAX
    try:
        while time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                found.append((int(message.offset() or 0), message.key(), message.value()))
            elif message is not None:
                return found
    finally:
        consumer.close()
    raise AssertionError(f"no end in sight behind {found[-1:]}")


def folded(records: Sequence[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes]:
    """What the records say of each key in the end."""
    state: dict[bytes | None, bytes] = {}
    for _, key, value in records:
        if value is None:
            state.pop(key, None)
        else:
            state[key] = value
    return state


def compact_now(port: int, *, topic: str = TOPIC, partition: int = 0) -> CompactedPartition:
    """Ask for it, and wait until it is done."""
    request = CompactPartitionsRequest(topics=[CompactTopic(topic=topic, partitions=[partition])])
    with Peer(port, timeout_s=WAIT_S_MAX) as peer:
        (told,) = peer.ask(request, 0).partitions
    assert isinstance(told, CompactedPartition)
    return told


def until(is_so: Callable[[], object], what: str) -> None:
    deadline = time.monotonic() + WAIT_S_MAX
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(LOOK_EVERY_S)


def names(data: Path, *, topic: str = TOPIC) -> list[str]:
    return sorted(path.name for path in (data / f"{topic}-0").iterdir())
