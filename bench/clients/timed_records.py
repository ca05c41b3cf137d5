"""Records that carry the moment at which they were due, so that a consumer knows how long each was under way.

`role` is "produce" or "consume". Both are processes of one machine, which share the monotonic clock. A record counts
from the moment at which it was due, so a producer that falls behind does not hide it.
"""

from __future__ import annotations

import struct
import time
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile

VALUE_BYTES = 100
TICK_S = 0.001
"""Records go out once a millisecond: an alarm for each would cost more than the record."""
SILENCE_MAX_S = 60.0
_DUE = struct.Struct(">d")
_PADDING = b"x" * (VALUE_BYTES - _DUE.size)


def produce(options: dict[str, Any]) -> None:
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(str(error))

    # Only failures come back into Python.
    config = {"bootstrap.servers": options["bootstrap"], "acks": "all", "linger.ms": 0}
    producer = Producer({**config, "delivery.report.only.error": True})
    producer.list_topics(options["topic"], timeout=30)
    wait_for_sign()
    partitions, interval_s, sent = options["partitions"], 1 / options["rate_per_s"], 0
    start = time.monotonic()
    while sent < options["count"]:
        now = time.monotonic()
        while sent < options["count"] and (due := start + sent * interval_s) <= now:
            value = _DUE.pack(due) + _PADDING
            producer.produce(options["topic"], value, partition=sent % partitions, on_delivery=on_delivery)
            sent += 1
        producer.poll(0)
        time.sleep(TICK_S)
    left = producer.flush(60)
    if left or failures:
        raise SystemExit(f"{left} records without an ack, {len(failures)} failed: {failures[:1]}")
    finish(records=sent, seconds=time.monotonic() - start)


def consume(options: dict[str, Any]) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": options["bootstrap"],
            "group.id": "bench",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
        }
    )
    places = [TopicPartition(options["topic"], number) for number in range(options["partitions"])]
    for place in places:
        place.offset = consumer.get_watermark_offsets(place, timeout=30)[1]
    consumer.assign(places)
    consumer.poll(0.5)  # Nothing is there yet; the first Fetch waits at the broker when the first record comes.
    wait_for_sign()
    latencies: list[float] = []
    received_at = time.monotonic()
    while len(latencies) < options["count"]:
        message = consumer.poll(1.0)
        now = time.monotonic()
        if message is None:
            if now - received_at > SILENCE_MAX_S:
                raise SystemExit(f"silence after {len(latencies)} of {options['count']} records")
            continue
        if message.error() is not None:
            raise SystemExit(str(message.error()))
        latencies.append(now - _DUE.unpack_from(message.value())[0])
        received_at = now
    counted = latencies[options["skip"] :]
    finish(
        records=len(counted),
        p50_ms=percentile(counted, 50) * 1e3,
        p99_ms=percentile(counted, 99) * 1e3,
        p999_ms=percentile(counted, 99.9) * 1e3,
    )


if __name__ == "__main__":
    {"produce": produce, "consume": consume}[task()["role"]](task())
