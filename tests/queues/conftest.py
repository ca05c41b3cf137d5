"""A node with share groups that decides quickly, topics on it, and tasks in them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pytest
from confluent_kafka import Producer

import strandline

QUICK = {
    "group.share.assignment.interval.ms": "0",
    "group.share.heartbeat.interval.ms": "1000",
    "group.share.min.heartbeat.interval.ms": "1000",
    "group.share.min.record.lock.duration.ms": "1000",
    "share.coordinator.state.topic.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
    "group.min.session.timeout.ms": "500",
    "group.initial.rebalance.delay.ms": "0",
}
EARLIEST = {"share.auto.offset.reset": "earliest"}
SHORT = EARLIEST | {"share.record.lock.duration.ms": "2000"}
"""Locks end soon, if they are not renewed."""


@pytest.fixture(scope="session")
def node() -> Iterator[Any]:
    with strandline.embedded(properties=QUICK) as broker:
        yield broker


@pytest.fixture
def topic(node: Any) -> str:
    name = f"tasks-{uuid.uuid4().hex[:8]}"
    node.create_topic(name, 2)
    return name


@pytest.fixture
def group() -> str:
    return f"workers-{uuid.uuid4().hex[:8]}"


def write(bootstrap: str, topic: str, values: Iterable[bytes], *, partition: int | None = None) -> None:
    """Write tasks; each has its value as its key, too."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for value in values:
        place: Mapping[str, int] = {} if partition is None else {"partition": partition}
        producer.produce(topic, value, key=value, **place)
    assert producer.flush(30) == 0


def eventually(is_so: Callable[[], object], what: str, within_s: float = 60.0) -> None:
    """Wait for a condition."""
    until = time.monotonic() + within_s
    while not is_so():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.02)
