"""Logs and positions as a test wants them: records of a given age, offsets by who is no member, markers all written."""

from __future__ import annotations

import contextlib
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


def until_decided(bootstrap: str, *topics: str) -> None:
    """Wait for the markers of ended transactions.

    Who commits or aborts is answered when that is decided, and the markers follow: at once in a broker that is idle,
    and at the next start in one that is killed between the two.
    """
    from strandline.client.cluster_client import LATEST, READ_COMMITTED, READ_UNCOMMITTED, ClientSettings, ClusterClient
    from strandline.ids import TopicPartition

    with contextlib.closing(ClusterClient(ClientSettings(bootstrap))) as client:
        found = client.topics(topics)
        ends = {TopicPartition(name, each): LATEST for name in topics for each in found[name].leaders}

        def are_decided() -> bool:
            # The high watermarks second: what comes between the two is then waited for, too.
            stable = client.list_offsets(ends, isolation_level=READ_COMMITTED)
            return stable == client.list_offsets(ends, isolation_level=READ_UNCOMMITTED)

        until(f"the markers of {', '.join(topics)}", are_decided)
