"""One producer that writes a record to every partition of a topic in each round, and begins a round every `every_s`."""

from __future__ import annotations

import time

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.turn import finish, task, wait_for_sign


def main() -> None:
    options = task()
    topic, partitions = options["topic"], options["partitions"]
    value = b"x" * options.get("value_bytes", 100)
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(f"partition {message.partition()}: {error}")

    producer = Producer({"bootstrap.servers": options["bootstrap"], "acks": "all", "linger.ms": 20})

    def send_round() -> None:
        for partition in range(partitions):
            producer.produce(topic, value, partition=partition, on_delivery=on_delivery)

    send_round()
    left = producer.flush(120)
    wait_for_sign()

    start = time.perf_counter()
    for number in range(options["rounds"]):
        send_round()
        while (wait_s := start + (number + 1) * options["every_s"] - time.perf_counter()) > 0:
            producer.poll(wait_s)
    left += producer.flush(120)
    seconds = time.perf_counter() - start
    if left or failures:
        raise SystemExit(f"{left} records without an ack, {len(failures)} failed: {failures[:1]}")
    finish(seconds=seconds, records=options["rounds"] * partitions)


if __name__ == "__main__":
    main()
