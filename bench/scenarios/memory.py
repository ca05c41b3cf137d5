"""Resident memory after load: large batches, small lz4 records, one-record requests and reads have all gone through."""

from __future__ import annotations

from bench.brokers import Broker
from bench.figures import Figure, ratio_at_most
from bench.measure import proportional_mb
from bench.scenarios.fetch_1k import fetched
from bench.scenarios.one_record import CONNECTIONS, one_record
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "memory"
SUMMARY = "resident memory after load"


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    plain, packed = stage.scaled(250_000, 10_000), stage.scaled(1_000_000, 50_000)
    requests = stage.scaled(32_000, 3_200)

    def work(broker: Broker) -> dict[str, float]:
        broker.create_topic(NAME, CONNECTIONS)
        produced(broker, topic=NAME, count=plain, value_bytes=1024)
        produced(broker, topic=NAME, count=packed, value_bytes=100, values="orders", compression_type="lz4")
        one_record(broker, "one_record_raw", topic=NAME, count=requests, idempotent=True)
        fetched(broker, topic=NAME, count=plain, consumers=4)
        measured = {"rss_mb": broker.resident_mb(), "pss_mb": proportional_mb(broker.pid)}
        broker.delete_topic(NAME)
        return measured

    samples = stage.take_turns(brokers, work, rounds=min(stage.rounds, 3), warm_rounds=1)
    return [
        beside_kafka(samples, "rss_mb", "memory after load (RSS)", "MB", ratio_at_most(0.15)),
        beside_kafka(samples, "pss_mb", "memory after load (PSS)", "MB", None),
    ]
