"""Broker CPU per MB fetched: one librdkafka consumer reads a topic that the page cache holds, from its beginning.

The same log files go through a bare sendfile loop in the same rounds: no broker can send them for less.
"""

from __future__ import annotations

from bench.bare_sendfile import cpu_ms_per_mb
from bench.brokers import STRANDLINE, Broker
from bench.client_process import run_measured
from bench.figures import Figure, ratio_at_most
from bench.measure import MB
from bench.scenarios.produce_1k import PARTITIONS, produced
from bench.stage import Stage, beside_kafka

NAME = "fetch-1k"
SUMMARY = "broker CPU per MB fetched, 1 KiB records"


def run(stage: Stage) -> list[Figure]:
    brokers = stage.shared_pair()
    count = stage.scaled(500_000, 10_000)
    for broker in brokers:
        broker.create_topic(NAME, PARTITIONS)
        produced(broker, topic=NAME, count=count, value_bytes=1024)

    def work(broker: Broker) -> dict[str, float]:
        measured = fetched(broker, topic=NAME, count=count)
        if broker.name == STRANDLINE:
            measured["floor_ms_per_mb"] = cpu_ms_per_mb(sorted(broker.data.glob(f"{NAME}-*/*.log")))
        return measured

    samples = stage.take_turns(brokers, work)
    for broker in brokers:
        broker.delete_topic(NAME)
    ours, floor = (samples.of(STRANDLINE, metric) for metric in ("ms_per_mb", "floor_ms_per_mb"))
    note = "the same files over one socket, nothing else"
    return [
        beside_kafka(samples, "ms_per_mb", "broker CPU per MB fetched, 1 KiB", "ms/MB", ratio_at_most(0.4)),
        Figure(
            "broker CPU per MB fetched, beside a bare loop",
            "ms/MB",
            ours,
            floor,
            "sendfile loop",
            ratio_at_most(1.15),
            note,
        ),
        beside_kafka(
            samples, "mb_per_s", "fetched, 1 KiB", "MB/s", None, "librdkafka; MB/s is bound by the one client"
        ),
    ]


def fetched(broker: Broker, *, topic: str, count: int, consumers: int = 1, processes: int = 1) -> dict[str, float]:
    """Let every consumer read `count` records of the topic."""
    shares = [consumers // processes + (number < consumers % processes) for number in range(processes)]
    tasks = [("consume", {"topic": topic, "count": count, "consumers": share}) for share in shares]
    cpu_s, elapsed_s, results = run_measured(broker, tasks)
    fetched_mb = sum(result["bytes"] for result in results) / MB
    return {"ms_per_mb": cpu_s * 1e3 / fetched_mb, "mb_per_s": fetched_mb / elapsed_s}
