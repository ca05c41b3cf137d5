"""Producers of one user that send as fast as they may: how many bytes are acknowledged a second, after a while."""

from __future__ import annotations

import time
from functools import partial

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.turn import finish, task, wait_for_sign

FIRST_ACK_S = 30.0


def main() -> None:
    options = task()
    acknowledged = [0] * options["producers"]
    failures: list[str] = []

    def on_delivery(number: int, error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged[number] += len(message)
        else:
            failures.append(str(error))

    producers = [
        Producer(
            {
                "bootstrap.servers": options["bootstrap"],
                "client.id": f"limited-{number}",
                "queue.buffering.max.kbytes": 4096,
                "linger.ms": 5,
                "message.timeout.ms": 0,
                "log_level": 0,
            }
        )
        for number in range(options["producers"])
    ]
    callbacks = [partial(on_delivery, number) for number in range(len(producers))]
    value = bytes(options["value_bytes"])

    def turn() -> None:
        """Fill every queue, and take what was acknowledged."""
        for number, producer in enumerate(producers):
            try:
                while True:
                    producer.produce(options["topic"], value, on_delivery=callbacks[number])
            except BufferError:
                producer.poll(0)
        time.sleep(0.005)

    for producer, callback in zip(producers, callbacks, strict=True):
        producer.produce(options["topic"], value, on_delivery=callback)
        producer.flush(FIRST_ACK_S)
    if not all(acknowledged):
        raise SystemExit(f"the first records were not acknowledged: {failures[:1]}")
    wait_for_sign()
    settled_at = time.perf_counter() + options["settle_s"]
    while time.perf_counter() < settled_at:
        turn()
    before, start = list(acknowledged), time.perf_counter()
    while time.perf_counter() < start + options["span_s"]:
        turn()
    span_s = time.perf_counter() - start
    each = [(after - earlier) / span_s for after, earlier in zip(acknowledged, before, strict=True)]
    finish(bytes_per_s=sum(each), least_per_s=min(each), most_per_s=max(each), failed=len(failures))


if __name__ == "__main__":
    main()
