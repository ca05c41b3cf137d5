"""Logs and positions as a test wants them: records of a given age, offsets by who is no member, markers all written."""

from __future__ import annotations

import time

from tests.clients.client import until


def write(
    bootstrap: str, topic: str, count: int, *, age_ms: int = 0, partition: int = 0, key: bytes | None = None
) -> None:
    """Records of a hundred bytes, written that long ago if one believes them."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap})
    for _ in range(count):
        written_ms = int(time.time() * 1000) - age_ms
        producer.produce(topic, value=b"x" * 100, key=key, partition=partition, timestamp=written_ms)
    assert producer.flush(30) == 0


def commit(bootstrap: str, group: str, topic: str, offset: int, *, partition: int = 0) -> None:
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    place = TopicPartition(topic, partition, offset)

    def is_committed() -> bool:
        try:
            answers = consumer.commit(offsets=[place], asynchronous=False)
        except KafkaException as error:
            # The first group of a cluster comes before its coordinator.
            if error.args[0].name() not in (
                "NOT_COORDINATOR",
                "COORDINATOR_NOT_AVAILABLE",
                "COORDINATOR_LOAD_IN_PROGRESS",
            ):
                raise
            return False
        return all(each.error is None for each in answers)

    until(f"{group} at {offset} of {topic}-{partition}", is_committed)
    consumer.close()


def until_decided(bootstrap: str, *topics: str, partition: int = 0) -> None:
    """Wait for the markers of ended transactions.

    Who commits or aborts is answered when that is decided, and the markers follow: at once in a broker that is idle,
    and at the next start in one that is killed between the two.
    """
    from confluent_kafka import Consumer, TopicPartition

    settings = {"bootstrap.servers": bootstrap, "group.id": "looks-at-ends"}
    all_records, committed = (
        Consumer(settings | {"isolation.level": level}) for level in ("read_uncommitted", "read_committed")
    )

    def is_decided(topic: str) -> bool:
        place = TopicPartition(topic, partition)
        # The high watermark second: what comes between the two is then waited for, too.
        stable = committed.get_watermark_offsets(place, 10)[1]
        return bool(stable == all_records.get_watermark_offsets(place, 10)[1])

    for topic in topics:
        until(f"the markers of {topic}-{partition}", lambda topic=topic: is_decided(topic))
    all_records.close()
    committed.close()
