"""The shop's programs: stock Kafka clients, with nothing special in their settings but patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
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


def create_topic(bootstrap: str, topic: str = TOPIC) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    admin.create_topics([NewTopic(topic, PARTITIONS, 1)], operation_timeout=10)[topic].result(_WAIT_S_MAX)


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
    return _read_assigned(bootstrap, dict.fromkeys(range(PARTITIONS), 0))


def read_committed_values(bootstrap: str, topic: str) -> list[bytes]:
    """Every value of a topic but those of transactions that were aborted or are open."""
    consumer = _consumer(bootstrap, **{"isolation.level": "read_committed", "enable.partition.eof": True})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        values: list[bytes] = []
        unread = set(range(PARTITIONS))
        deadline = time.monotonic() + _WAIT_S_MAX
        while unread:
            for message in consumer.consume(500, 0.1):
                if message.error() is None:
                    values.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    unread.discard(message.partition())
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(unread)} of {topic} were not read in {_WAIT_S_MAX:g} s")
        return values
    finally:
        consumer.close()


def group_positions(bootstrap: str, group: str) -> dict[int, int]:
    """Where a group stands in the orders, whoever committed it."""
    consumer = _consumer(bootstrap, group=group)
    try:
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        return {each.partition: max(0, each.offset) for each in consumer.committed(places, timeout=_WAIT_S_MAX)}
    finally:
        consumer.close()


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
        return _read_to(consumer, starts, end_offsets(bootstrap))
    finally:
        consumer.close()


class GroupReader:
    """A member of a consumer group that remembers nothing: its position lives in the log."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        self._bootstrap = bootstrap
        self._consumer = _consumer(bootstrap, group=group)
        self._consumer.subscribe([TOPIC])

    def read(self, count_max: int | None = None) -> list[Seen]:
        """Read to the end as it is now, or `count_max` records; commit exactly what was read."""
        found = _read_to(self._consumer, self.positions(), end_offsets(self._bootstrap), count_max)
        self._consumer.commit(asynchronous=False)
        return found

    def positions(self) -> dict[int, int]:
        """The committed position in each partition."""
        places = [TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)]
        committed = self._consumer.committed(places, timeout=_WAIT_S_MAX)
        return {place.partition: max(0, place.offset) for place in committed}

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


def _consumer(bootstrap: str, group: str = "demo-without-group", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            **_QUIET,
            **settings,
        }
    )


def _read_to(
    consumer: Consumer, positions: dict[int, int], ends: dict[int, int], count_max: int | None = None
) -> list[Seen]:
    """Read until every partition's end is reached, or `count_max` records came."""
    found: list[Seen] = []
    left = {partition for partition, position in positions.items() if position < ends[partition]}
    deadline = time.monotonic() + _WAIT_S_MAX
    while left and len(found) != count_max:
        limit = 500 if count_max is None else min(500, count_max - len(found))
        for message in consumer.consume(limit, 0.1):
            if message.error() is not None:
                # The client tells of a lost connection here and mends it by itself.
                continue
            place = (message.partition(), message.offset())
            found.append(Seen(*place, message.timestamp()[1], message.key(), message.value()))
            if message.offset() + 1 >= ends[message.partition()]:
                left.discard(message.partition())
        if time.monotonic() > deadline:
            raise TimeoutError(f"partitions {sorted(left)} were not read to their end in {_WAIT_S_MAX:g} s")
    return found
