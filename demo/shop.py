"""The shop's programs: stock Kafka clients, with nothing special in their settings but patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from demo.ledger import Ledger
from demo.orders import OrderEvent

TOPIC = "orders"
PARTITIONS = 3
_QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 250}
_WAIT_S_MAX = 60.0


@dataclass(frozen=True)
class Seen:
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes
    value: bytes


def create_topic(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 1)], operation_timeout=10)[TOPIC].result(_WAIT_S_MAX)


class OrderWriter:
    """An idempotent producer with acks=all that enters every acknowledgement into the ledger."""

    def __init__(self, bootstrap: str, ledger: Ledger) -> None:
        self._ledger = ledger
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "retry.backoff.ms": 50,
                "retry.backoff.max.ms": 250,
                **_QUIET,
            }
        )

    def write(self, events: Iterable[OrderEvent]) -> None:
        for event in events:
            self._producer.produce(
                TOPIC,
                key=event.key,
                value=event.value,
                headers=event.headers,
                timestamp=event.timestamp_ms,
                on_delivery=self._on_delivery,
            )
            self._producer.poll(0)

    def finish(self) -> int:
        """Wait for every acknowledgement; the number that did not come."""
        unanswered: int = self._producer.flush(_WAIT_S_MAX)
        return unanswered

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._ledger.failures.append(str(error))
        else:
            self._ledger.note(message.partition(), message.offset(), message.value())


class SteadyStream(threading.Thread):
    """Writes a feed at a steady rate from a thread of its own, while the story goes on."""

    def __init__(self, writer: OrderWriter, events: list[OrderEvent], *, rate: float) -> None:
        super().__init__(name="order-feed")
        self._writer = writer
        self._events = events
        self._rate = rate
        self.unanswered = 0

    def run(self) -> None:
        begin = time.monotonic()
        for number, event in enumerate(self._events):
            time.sleep(max(0.0, begin + number / self._rate - time.monotonic()))
            self._writer.write([event])
        self.unanswered = self._writer.finish()


def read_whole_topic(bootstrap: str) -> list[Seen]:
    """Everything from the beginning to the end, as a reader without a group."""
    return _read_assigned(bootstrap, dict.fromkeys(range(PARTITIONS), OFFSET_BEGINNING))


def replay_since(bootstrap: str, timestamp_ms: int) -> tuple[dict[int, int], list[Seen]]:
    """Where that moment lies in each partition, and everything from there on."""
    consumer = _consumer(bootstrap)
    try:
        places = [TopicPartition(TOPIC, partition, timestamp_ms) for partition in range(PARTITIONS)]
        starts = {place.partition: place.offset for place in consumer.offsets_for_times(places, timeout=_WAIT_S_MAX)}
    finally:
        consumer.close()
    return starts, _read_assigned(bootstrap, starts)


def _read_assigned(bootstrap: str, starts: dict[int, int]) -> list[Seen]:
    consumer = _consumer(bootstrap)
    try:
        consumer.assign([TopicPartition(TOPIC, partition, offset) for partition, offset in starts.items()])
        found, at_end = [], set[int]()
        _wait(lambda: _poll(consumer, found, at_end) or len(at_end) == len(starts))
        return found
    finally:
        consumer.close()


class GroupReader:
    """A member of a consumer group that remembers nothing: its position lives in the log."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        self._consumer = _consumer(bootstrap, group=group)
        self._consumer.subscribe([TOPIC])

    def read(self, count: int | None = None) -> list[Seen]:
        """Read `count` records, or to the end; commit exactly what was read."""
        found: list[Seen] = []
        at_end: set[int] = set()

        def enough() -> bool:
            limit = 500 if count is None else min(500, count - len(found))
            _poll(self._consumer, found, at_end, limit=limit)
            assigned = {place.partition for place in self._consumer.assignment()}
            return len(found) == count if count is not None else bool(assigned) and assigned <= at_end

        _wait(enough)
        self._consumer.commit(asynchronous=False)
        return found

    def positions(self) -> dict[int, int]:
        """The committed position in each partition."""
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {
            place.partition: max(0, place.offset) for place in self._consumer.committed(places, timeout=_WAIT_S_MAX)
        }

    def close(self) -> None:
        self._consumer.close()


def end_offsets(bootstrap: str) -> dict[int, int]:
    consumer = _consumer(bootstrap)
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=_WAIT_S_MAX)[1]
            for partition in range(PARTITIONS)
        }
    finally:
        consumer.close()


def _consumer(bootstrap: str, group: str = "demo-without-group") -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **_QUIET,
        }
    )


def _poll(consumer: Consumer, found: list[Seen], at_end: set[int], limit: int = 500) -> bool:
    """Take what has come. Always False, so that it can stand before an `or`."""
    for message in consumer.consume(limit, 0.1):
        error = message.error()
        if error is None:
            at_end.discard(message.partition())
            found.append(
                Seen(message.partition(), message.offset(), message.timestamp()[1], message.key(), message.value())
            )
        elif error.code() == KafkaError._PARTITION_EOF:
            at_end.add(message.partition())
    return False


def _wait(finished: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WAIT_S_MAX
    while not finished():
        if time.monotonic() > deadline:
            raise TimeoutError(f"no end after {_WAIT_S_MAX:g} s")
