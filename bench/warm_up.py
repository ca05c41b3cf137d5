"""Brings both brokers to their working speed before anything is measured.

A cold JVM costs about three times as much as a warm one. What its compiler counts is calls, not bytes: a round of large
batches makes few calls, so every round also sends tens of thousands of one-record requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bench.brokers import Server
from bench.client_process import run_measured
from bench.measure import MB

TOPIC = "warm-up"
PARTITIONS = 8


def warm_up(brokers: Sequence[Server], *, rounds: int, quick: bool, say: Callable[[str], None]) -> None:
    requests, plain, packed = (2_000, 10_000, 50_000) if quick else (40_000, 100_000, 500_000)
    for broker in brokers:
        broker.create_topic(TOPIC, PARTITIONS)
    for number in range(rounds):
        for broker in brokers:
            one_record = {"topic": TOPIC, "partitions": PARTITIONS, "connections": 32, "count": requests}
            one_record["addresses"] = broker.addresses_of(TOPIC)
            cpu, _, _ = run_measured(broker, [("one_record_raw", {**one_record, "idempotent": number % 2 == 0})])
            cpu_plain, _, _ = run_measured(broker, [("produce", {"topic": TOPIC, "count": plain, "value_bytes": 1024})])
            lz4 = {"config": {"compression.type": "lz4"}, "values": "orders"}
            run_measured(broker, [("produce", {"topic": TOPIC, "count": packed, "value_bytes": 100, **lz4})])
            run_measured(broker, [("consume", {"topic": TOPIC, "count": (number + 1) * plain})])
            say(
                f"  warm-up {number + 1} {broker.name:10} {cpu / requests * 1e6:.1f} us per request, "
                f"{cpu_plain / (plain * 1024 / MB) * 1e3:.2f} ms per MB"
            )
    for broker in brokers:
        broker.delete_topic(TOPIC)
