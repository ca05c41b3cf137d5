"""A producer that never stops, for tests that kill what reads its records."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from confluent_kafka import KafkaError, Producer
from tests.java_ecosystem.java_process import WAIT_S

KEYS = 4
"""Keys of a partition."""


@contextlib.contextmanager
def writing(bootstrap: str, topic: str, partitions: int) -> Iterator[list[int]]:
    """Write each number to every partition, without a long pause. Yield the numbers so far."""
    failures: list[KafkaError] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "message.timeout.ms": 0,
            "reconnect.backoff.max.ms": 200,
            "log_level": 0,
        }
    )
    stop = threading.Event()
    numbers: list[int] = []

    def write() -> None:
        while not stop.wait(0.02):
            number = len(numbers)
            for partition in range(partitions):
                producer.produce(
                    topic,
                    b"%d" % number,
                    key_of(partition, number),
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error is not None else None,
                )
            numbers.append(number)
            producer.poll(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        yield numbers
    finally:
        stop.set()
        writer.join()
        left = producer.flush(WAIT_S)
    assert left == 0
    assert not failures, failures[0]


def key_of(partition: int, number: int) -> bytes:
    """Return the key of a number; no key is in two partitions."""
    return b"%d.%d" % (partition, number % KEYS)
