"""Produces in transactions of `transaction_ms`, one after the other, with librdkafka.

Without a transactional id it does the same as an idempotent producer, which is what transactions are held against.
With `per_transaction` each holds so many records, spread evenly over its time, so that what the broker is asked to do
in a transaction does not depend on how fast it is. Without, there are as many as the library takes, up to `count`.
"""

from __future__ import annotations

import math
import time

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.produce import CHUNK, QUEUED_MAX, random_values
from bench.clients.turn import finish, task, wait_for_sign
from bench.measure import percentile

BURSTS = 10
TIMEOUT_S = 120.0


class Load:
    def __init__(self, producer: Producer, topic: str, value_bytes: int) -> None:
        self.producer = producer
        self.topic = topic
        self.value_bytes = value_bytes
        self.records = [{"value": value} for value in random_values(value_bytes)]
        self.sent = 0
        self.commits_s: list[float] = []
        """How long each call to commit took: the last batches, and the end of the transaction."""
        self.failures: list[str] = []

    def plain(self, count: int) -> None:
        self._send_until(count, math.inf)
        if self.producer.flush(TIMEOUT_S):
            raise SystemExit("records without an ack")

    def flat_out(self, count: int, transaction_s: float) -> None:
        while self.sent < count:
            self.producer.begin_transaction()
            self._send_until(count, time.perf_counter() + transaction_s)
            self.commit()

    def _send_until(self, count: int, until: float) -> None:
        while self.sent < count and time.perf_counter() < until:
            if len(self.producer) > QUEUED_MAX:
                self.producer.poll(0.001)
            else:
                self.send(CHUNK)

    def steady(self, count: int, per_transaction: int, transaction_s: float) -> None:
        while self.sent < count:
            self.producer.begin_transaction()
            start = time.perf_counter()
            for burst in range(1, BURSTS + 1):
                self.send(per_transaction // BURSTS)
                time.sleep(max(0.0, start + transaction_s * burst / BURSTS - time.perf_counter()))
            self.commit()

    def send(self, count: int) -> None:
        queued = self.producer.produce_batch(self.topic, self.records[:count], on_delivery=self._on_delivery)
        if queued != count:
            raise SystemExit(f"librdkafka took only {queued} of {count} records")
        self.sent += count

    def commit(self) -> None:
        start = time.perf_counter()
        self.producer.commit_transaction(TIMEOUT_S)
        self.commits_s.append(time.perf_counter() - start)

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failures.append(str(error))


def main() -> None:
    options = task()
    settings = {"bootstrap.servers": options["bootstrap"], "delivery.report.only.error": True}
    transaction_s = options["transaction_ms"] / 1000
    if "transactional_id" in options:
        producer = Producer({**settings, "transactional.id": options["transactional_id"]})
        producer.init_transactions(TIMEOUT_S)
    else:
        producer = Producer({**settings, "enable.idempotence": True})
    producer.list_topics(options["topic"], timeout=30)
    load = Load(producer, options["topic"], options["value_bytes"])

    def work(count: int) -> None:
        if "transactional_id" not in options:
            load.plain(count)
        elif "per_transaction" in options:
            load.steady(count, options["per_transaction"], transaction_s)
        else:
            load.flat_out(count, transaction_s)

    # A little outside the measured span: a client finds its coordinator, its producer id and its partitions.
    work(CHUNK)
    load.sent, load.commits_s = 0, []
    wait_for_sign()

    start = time.perf_counter()
    work(options["count"])
    seconds = time.perf_counter() - start
    if load.failures:
        raise SystemExit(f"{len(load.failures)} records failed: {load.failures[:1]}")
    finish(
        seconds=seconds,
        bytes=load.sent * load.value_bytes,
        transactions=len(load.commits_s),
        p50_ms=percentile(load.commits_s, 50) * 1e3,
        p99_ms=percentile(load.commits_s, 99) * 1e3,
    )


if __name__ == "__main__":
    main()
