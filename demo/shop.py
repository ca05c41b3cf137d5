"""The shop's programs: stock Kafka clients, with nothing special in their settings but patience."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from examples.shop import Record

from demo.ledger import Ledger

TOPICS = ("orders", "clicks")
PARTITIONS = 2
_QUIET = {"log_level": 0, "reconnect.backoff.ms": 50, "reconnect.backoff.max.ms": 250}
_WAIT_S_MAX = 120.0


@dataclass(frozen=True)
class Seen:
    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, **_QUIET})
    for made in admin.create_topics(
        [NewTopic(topic, PARTITIONS, 1) for topic in TOPICS], operation_timeout=10
    ).values():
        made.result(_WAIT_S_MAX)


class ShopWriter:
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

    def write(self, record: Record, timestamp_ms: int | None = None) -> None:
        when = {} if timestamp_ms is None else {"timestamp": timestamp_ms}
        while True:
            try:
                self._producer.produce(
                    record.topic, key=record.key, value=record.value, on_delivery=self._on_delivery, **when
                )
                break
            except BufferError:
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self) -> int:
        """Wait for every acknowledgement; the number that did not come."""
        unanswered: int = self._producer.flush(_WAIT_S_MAX)
        return unanswered

    def _on_delivery(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self._ledger.failures.append(str(error))
        else:
            self._ledger.note(message.topic(), message.partition(), message.offset(), message.value())


class SteadyStream(threading.Thread):
    """Writes a feed at a steady rate from a thread of its own, while the story goes on.

    It does not run away from the story: it waits at a number of records until the story lets it go further.
    """

    def __init__(self, writer: ShopWriter, records: list[Record], *, rate: float, waits_at: float = 1.0) -> None:
        super().__init__(name="shop-feed", daemon=True)
        self.written = 0
        self.unanswered = 0
        self._writer = writer
        self._records = records
        self._rate = rate
        self._waits_at = int(len(records) * waits_at)
        self._may_go_on = threading.Event()

    @property
    def share(self) -> float:
        """How much of the feed is written."""
        return self.written / len(self._records)

    @property
    def now(self) -> Record:
        """What was written last."""
        return self._records[max(0, self.written - 1)]

    def let_go(self) -> None:
        self._may_go_on.set()

    def run(self) -> None:
        due = time.monotonic()
        for record in self._records:
            if self.written == self._waits_at and not self._may_go_on.is_set():
                self._may_go_on.wait()
                due = time.monotonic()
            due += 1 / self._rate
            time.sleep(max(0.0, due - time.monotonic()))
            self._writer.write(record)
            self.written += 1
        self.unanswered = self._writer.finish()


def read_whole(bootstrap: str, topics: Iterable[str]) -> list[Seen]:
    """Every committed record of some topics, by a reader without a group."""
    places = [TopicPartition(topic, partition, 0) for topic in topics for partition in partitions_of(bootstrap, topic)]
    return _read_to_the_end(bootstrap, places)


def replay_since(bootstrap: str, topic: str, timestamp_ms: int) -> tuple[dict[int, int], list[Seen]]:
    """Where that moment lies in each partition, and everything from there on."""
    consumer = _consumer(bootstrap)
    try:
        places = [TopicPartition(topic, partition, timestamp_ms) for partition in range(PARTITIONS)]
        found = consumer.offsets_for_times(places, timeout=_WAIT_S_MAX)
    finally:
        consumer.close()
    return {place.partition: place.offset for place in found}, _read_to_the_end(bootstrap, found)


def _read_to_the_end(bootstrap: str, places: list[TopicPartition]) -> list[Seen]:
    consumer = _consumer(bootstrap, **{"enable.partition.eof": True})
    try:
        consumer.assign(places)
        found: list[Seen] = []
        unread = {(place.topic, place.partition) for place in places}
        deadline = time.monotonic() + _WAIT_S_MAX
        while unread:
            for message in consumer.consume(1000, 0.1):
                if message.error() is None:
                    found.append(_seen(message))
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    unread.discard((message.topic(), message.partition()))
            if time.monotonic() > deadline:
                raise TimeoutError(f"{sorted(unread)} were not read in {_WAIT_S_MAX:g} s")
        return found
    finally:
        consumer.close()


class GroupReader:
    """A member of a consumer group that remembers nothing: its position lives in the log."""

    def __init__(self, bootstrap: str, group: str) -> None:
        self.group = group
        self._bootstrap = bootstrap
        self._consumer = _consumer(bootstrap, group=group)
        self._consumer.subscribe(["orders"])

    def read(self, count_max: int | None = None) -> list[Seen]:
        """Read to the end as it is now, or `count_max` records; commit exactly what was read."""
        ends, positions = end_offsets(self._bootstrap), self.positions()
        left = {partition for partition, position in positions.items() if position < ends[partition]}
        found: list[Seen] = []
        deadline = time.monotonic() + _WAIT_S_MAX
        while left and len(found) != count_max:
            limit = 500 if count_max is None else min(500, count_max - len(found))
            for message in self._consumer.consume(limit, 0.1):
                if message.error() is not None:
                    # The client tells of a lost connection here and mends it by itself.
                    continue
                found.append(_seen(message))
                if message.offset() + 1 >= ends[message.partition()]:
                    left.discard(message.partition())
            if time.monotonic() > deadline:
                raise TimeoutError(f"partitions {sorted(left)} were not read to their end in {_WAIT_S_MAX:g} s")
        self._consumer.commit(asynchronous=False)
        return found

    def positions(self) -> dict[int, int]:
        """The committed position in each partition."""
        places = [TopicPartition("orders", partition) for partition in range(PARTITIONS)]
        deadline = time.monotonic() + _WAIT_S_MAX
        while True:
            try:
                committed = self._consumer.committed(places, timeout=_WAIT_S_MAX)
                return {place.partition: max(0, place.offset) for place in committed}
            except KafkaException as error:
                # The group's first question may come before somebody coordinates it.
                if error.args[0].code() != KafkaError.NOT_COORDINATOR or time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        self._consumer.close()


def end_offsets(bootstrap: str) -> dict[int, int]:
    """Of the orders."""
    consumer = _consumer(bootstrap)
    try:
        return {
            partition: consumer.get_watermark_offsets(TopicPartition("orders", partition), timeout=_WAIT_S_MAX)[1]
            for partition in range(PARTITIONS)
        }
    finally:
        consumer.close()


def partitions_of(bootstrap: str, topic: str) -> list[int]:
    """None if the topic is not there, or nobody answers at the moment."""
    consumer = _consumer(bootstrap)
    try:
        return sorted(consumer.list_topics(topic, timeout=10).topics[topic].partitions)
    except KafkaException:
        return []
    finally:
        consumer.close()


def follow(bootstrap: str, partitions: Mapping[str, list[int]]) -> Consumer:
    """A consumer of committed records from the beginning on."""
    consumer = _consumer(bootstrap)
    consumer.assign([TopicPartition(topic, each, 0) for topic, those in partitions.items() for each in those])
    return consumer


def _consumer(bootstrap: str, group: str = "demo-without-group", **settings: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "allow.auto.create.topics": False,
            "fetch.wait.max.ms": 50,
            **_QUIET,
            **settings,
        }
    )


def _seen(message: Any) -> Seen:
    return Seen(
        message.topic(),
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
    )
