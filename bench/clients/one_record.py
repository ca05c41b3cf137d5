"""`connections` librdkafka producers in this process, each with one record in flight, linger 0, acks=all.

A thread per producer sleeps in librdkafka until its ack is there. The latency is librdkafka's own stamp, from produce()
to the ack's arrival, so that the wait for the interpreter's lock is not in it.
"""

from __future__ import annotations

import threading
import time

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile

ACK_TIMEOUT_S = 30.0


class OneByOne(threading.Thread):
    def __init__(self, producer: Producer, topic: str, partition: int, count: int, start: threading.Event) -> None:
        super().__init__(daemon=True)
        self.producer, self.topic, self.partition = producer, topic, partition
        self.count, self.start_sign = count, start
        self.latencies: list[float] = []
        self.failure = ""

    def on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failure = str(error)
        self.latencies.append(message.latency() or 0.0)

    def one(self) -> None:
        acked = len(self.latencies) + 1
        deadline = time.perf_counter() + ACK_TIMEOUT_S
        self.producer.produce(self.topic, b"x" * 100, partition=self.partition, on_delivery=self.on_delivery)
        while len(self.latencies) < acked:
            self.producer.poll(1.0)
            if time.perf_counter() > deadline:
                self.failure = "no ack"
                return

    def run(self) -> None:
        self.start_sign.wait()
        while len(self.latencies) < self.count and not self.failure:
            self.one()


def main() -> None:
    options = task()
    config = {
        "bootstrap.servers": options["bootstrap"],
        "acks": "all",
        "linger.ms": 0,
        "enable.idempotence": options["idempotent"],
    }
    sign = threading.Event()
    each = options["count"] // options["connections"]
    workers = [
        OneByOne(Producer(config), options["topic"], number % options["partitions"], each, sign)
        for number in range(options["connections"])
    ]
    for worker in workers:
        worker.one()
        worker.latencies.clear()
        worker.start()
    wait_for_sign()

    start = time.perf_counter()
    sign.set()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - start
    failures = [worker.failure for worker in workers if worker.failure]
    if failures:
        raise SystemExit(f"{len(failures)} producers failed: {failures[0]}")
    latencies = [latency for worker in workers for latency in worker.latencies]
    finish(
        seconds=seconds,
        requests=len(latencies),
        p50_ms=percentile(latencies, 50) * 1e3,
        p99_ms=percentile(latencies, 99) * 1e3,
    )


if __name__ == "__main__":
    main()
