"""From produce to acquire, at a rate that leaves every server idle for most of the time.

The same clients as in `queue`. They work flat out first, and then for some minutes at this rate, because what is not
warm in Java takes longer than all the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.brokers import KAFKA, STRANDLINE
from bench.figures import Figure, ratio_at_most
from bench.kafka_jars import KafkaUnavailable
from bench.queue_client import QueueServer
from bench.rabbitmq import RABBITMQ
from bench.scenarios.queue import (
    KAFKA_NOTE,
    PARTITIONS,
    PREFETCH,
    RABBITMQ_NOTE,
    RATE_PER_S,
    beside_kafka,
    beside_rabbitmq,
    clients,
)
from bench.stage import Stage

NAME = "queue-latency"
SUMMARY = "tasks through a share group beside RabbitMQ and Kafka: produce to acquire at 1,000 tasks/s"
WORKERS = 10


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    figures = []
    try:
        with beside_rabbitmq(stage) as servers:
            if servers:
                figures += _latency(stage, servers, RABBITMQ, RABBITMQ_NOTE)
        with beside_kafka(stage) as brokers:
            figures += _latency(stage, brokers, KAFKA, KAFKA_NOTE)
    except KafkaUnavailable as reason:
        stage.remarks.append(f"{NAME}: no Java clients: {reason}")
    return figures


def _latency(stage: Stage, servers: Sequence[QueueServer], other: str, note: str) -> list[Figure]:
    seconds = stage.scaled(5, 2)
    with clients(stage, servers, other) as by_name:
        for client in by_name.values():
            client.open(NAME, workers=WORKERS, prefetch=PREFETCH, partitions=PARTITIONS, linger_ms=0)
        for _ in range(stage.scaled(8, 1)):
            for client in by_name.values():
                client.run(count=stage.scaled(100_000, 4_000), size_bytes=100)

        def work(server: QueueServer) -> dict[str, float]:
            count = seconds * RATE_PER_S
            result = by_name[server.name].run(count=count, size_bytes=100, rate=RATE_PER_S, skip=RATE_PER_S)
            return {metric: result[metric] for metric in ("p50_ms", "p99_ms")}

        samples = stage.take_turns(servers, work, warm_rounds=stage.scaled(12, 0))
        for client in by_name.values():
            client.close()
    return [
        Figure(
            f"produce to acquire, {RATE_PER_S:,} tasks/s, {percent}",
            "ms",
            samples.of(STRANDLINE, f"{percent}_ms"),
            samples.of(other, f"{percent}_ms"),
            other,
            ratio_at_most(1.0),
            f"{note}; 100 B, {WORKERS} workers",
        )
        for percent in ("p50", "p99")
    ]
