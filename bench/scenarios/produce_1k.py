"""Broker CPU per MB produced: records of 1 KiB that do not compress, librdkafka's default batching, acks=all."""

from __future__ import annotations

from bench.brokers import Broker, Server
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_most
from bench.measure import MB
from bench.stage import Stage, beside_kafka

NAME = "produce-1k"
SUMMARY = "broker CPU per MB produced, 1 KiB records, plain"
PARTITIONS = 4


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    count = stage.scaled(250_000, 10_000)
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)

    def work(broker: Broker) -> dict[str, float]:
        return produced(broker, topic=NAME, count=count, value_bytes=1024)

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    note = "librdkafka; MB/s is bound by the one client"
    return [
        beside_kafka(samples, "ms_per_mb", "broker CPU per MB produced, 1 KiB", "ms/MB", ratio_at_most(0.5)),
        beside_kafka(samples, "mb_per_s", "produced, 1 KiB", "MB/s", None, note),
    ]


def produced(
    broker: Server, *, topic: str, count: int, value_bytes: int, values: str = "random", **config: object
) -> dict[str, float]:
    """Produce with one librdkafka client; MB are bytes of values before compression."""
    options = {key.replace("_", "."): setting for key, setting in config.items()}
    task = {"topic": topic, "count": count, "value_bytes": value_bytes, "values": values, "config": options}
    cpu_s, _, (result,) = run_measured(broker, [("produce", task)])
    return {
        "ms_per_mb": cpu_s * 1e3 / (result["bytes"] / MB),
        "mb_per_s": result["bytes"] / MB / result["seconds"],
    }
