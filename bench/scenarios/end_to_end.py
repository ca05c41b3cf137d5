"""From produce to consume at a steady 10,000 records a second: how long a record is under way."""

from __future__ import annotations

from bench.brokers import Broker
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_most
from bench.stage import Stage, beside_kafka

NAME = "end-to-end"
SUMMARY = "produce to consume at 10,000 records/s: p50, p99, p99.9"
RATE_PER_S = 10_000
PARTITIONS = 4


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)
    seconds = stage.scaled(10, 2)

    def work(broker: Broker) -> dict[str, float]:
        return under_way(broker, NAME, NAME, seconds=seconds, skip_s=1, rate_per_s=RATE_PER_S)

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    note = "librdkafka, linger 0, 100 B, 4 partitions; from the moment a record was due"
    return [
        beside_kafka(samples, "p50_ms", "produce to consume, p50", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "p99_ms", "produce to consume, p99", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "p999_ms", "produce to consume, p99.9", "ms", ratio_at_most(1.0), note),
        beside_kafka(samples, "us", "broker CPU per record, produced and consumed", "us", None, note),
    ]


def under_way(
    broker: Broker, into: str, out_of: str, *, seconds: int, skip_s: int, rate_per_s: int
) -> dict[str, float]:
    """Produce into one topic and consume from the same or another; the records of the first `skip_s` do not count."""
    task = {"partitions": PARTITIONS, "count": seconds * rate_per_s, "rate_per_s": rate_per_s}
    consume = {**task, "role": "consume", "topic": out_of, "skip": skip_s * rate_per_s}
    produce = {**task, "role": "produce", "topic": into}
    cpu_s, _, (consumed, _) = run_measured(broker, [("timed_records", consume), ("timed_records", produce)])
    metrics = {metric: consumed[metric] for metric in ("p50_ms", "p99_ms", "p999_ms")}
    return {**metrics, "us": cpu_s * 1e6 / (seconds * rate_per_s)}
