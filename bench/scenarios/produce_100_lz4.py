"""Broker CPU per MB produced: records of 100 bytes in lz4 batches, as a feed of small JSON events sends them."""

from __future__ import annotations

from bench.brokers import Broker
from bench.figures import Figure, ratio_at_most
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import Stage, beside_kafka

NAME = "produce-100-lz4"
SUMMARY = "broker CPU per MB produced, 100 B records, lz4"


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    count = stage.scaled(1_000_000, 50_000)
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)

    def work(broker: Broker) -> dict[str, float]:
        return produced(broker, topic=NAME, count=count, value_bytes=100, values="orders", compression_type="lz4")

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    note = "MB of values before compression"
    return [
        beside_kafka(samples, "ms_per_mb", "broker CPU per MB produced, 100 B lz4", "ms/MB", ratio_at_most(0.5), note),
        beside_kafka(samples, "mb_per_s", "produced, 100 B lz4", "MB/s", None),
    ]
