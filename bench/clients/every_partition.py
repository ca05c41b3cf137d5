"""Writes one record to every partition of a topic and reads every one of them back, value by value."""

from __future__ import annotations

import time

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from bench.clients.turn import finish, task, wait_for_sign

SILENCE_MAX_S = 60.0


def main() -> None:
    options = task()
    topic, partitions = options["topic"], options["partitions"]
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"partition {message.partition()}: {error}")

    producer = Producer({"bootstrap.servers": options["bootstrap"], "acks": "all", "message.timeout.ms": 120_000})
    producer.list_topics(topic, timeout=60)
    consumer = Consumer({"bootstrap.servers": options["bootstrap"], "group.id": "bench", "enable.auto.commit": False})
    wait_for_sign()

    start = time.perf_counter()
    for partition in range(partitions):
        producer.produce(topic, b"to %d" % partition, partition=partition, on_delivery=on_delivery)
        producer.poll(0)
    left = producer.flush(180)
    produce_s = time.perf_counter() - start
    if left or failures:
        raise SystemExit(f"{left} records without an ack, {len(failures)} failed: {failures[:1]}")

    start = heard = time.perf_counter()
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    seen: set[int] = set()
    while len(seen) < partitions and time.perf_counter() - heard < SILENCE_MAX_S:
        for message in consumer.consume(10_000, timeout=0.2):
            heard = time.perf_counter()
            source = message.partition()
            if source is not None and message.error() is None and message.value() == b"to %d" % source:
                seen.add(source)
    finish(produce_s=produce_s, fetch_s=time.perf_counter() - start, read_back=len(seen))


if __name__ == "__main__":
    main()
