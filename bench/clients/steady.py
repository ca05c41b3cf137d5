"""One idempotent producer that sends a small record every few milliseconds until it is told to stop.

Its result is how long the longest silence between two acknowledgements was: the time in which nobody could produce.
The client's own waits are short, so that the figure is the brokers'.
"""

from __future__ import annotations

import itertools
import select
import sys
import time

from confluent_kafka import KafkaError, Message, Producer

from bench.clients.turn import finish, task, wait_for_sign

INTERVAL_S = 0.005
IN_FLIGHT_MAX = 2_000
FIRST_ACK_S = 30.0


def main() -> None:
    options = task()
    acknowledged: list[float] = []
    failures: list[str] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is None:
            acknowledged.append(time.perf_counter())
        else:
            failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": options["bootstrap"],
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 100,
            "retry.backoff.ms": 20,
            "retry.backoff.max.ms": 100,
            "topic.metadata.refresh.fast.interval.ms": 50,
            "log_level": 0,
        }
    )

    def send() -> None:
        if len(producer) < IN_FLIGHT_MAX:
            producer.produce(options["topic"], b"x" * 100, partition=options["partition"], on_delivery=on_delivery)

    send()
    producer.flush(FIRST_ACK_S)
    if not acknowledged:
        raise SystemExit(f"the first record was not acknowledged: {failures[:1]}")
    wait_for_sign()
    acknowledged.clear()
    while not select.select([sys.stdin], [], [], 0)[0]:
        send()
        producer.poll(INTERVAL_S)
    sys.stdin.readline()
    producer.flush(FIRST_ACK_S)
    gaps = [later - earlier for earlier, later in itertools.pairwise(acknowledged)]
    finish(acknowledged=len(acknowledged), silence_s=max(gaps, default=0.0), failed=len(failures), why=failures[:1])


if __name__ == "__main__":
    main()
