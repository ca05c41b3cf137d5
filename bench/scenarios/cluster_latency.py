"""One record per request, acks=all, three copies, while a thousand partitions are there.

Once with one request at a time, which shows the way of a record through three brokers, and once with 32 at a time,
which shows how they share two cores.
"""

from __future__ import annotations

from bench.clusters import Cluster
from bench.figures import Figure, ratio_at_most
from bench.scenarios.one_record import CLIENTS, CONNECTIONS, one_record
from bench.stage import Stage, beside_kafka

NAME = "cluster-latency"
SUMMARY = "three brokers, RF 3, acks=all, 1,000 partitions: one-record p50 and p99"
PRESENT = "cluster-present"


def run(stage: Stage) -> list[Figure]:
    clusters = stage.shared_clusters()
    partitions = stage.scaled(1_000, 50)
    for cluster in clusters:
        cluster.create_topic(PRESENT, partitions - CONNECTIONS)
        cluster.create_topic(NAME, CONNECTIONS)
    figures: list[Figure] = []
    for client, words in CLIENTS.items():
        for connections, count in ((1, stage.scaled(3_000, 200)), (CONNECTIONS, stage.scaled(32_000, 1_600))):

            def work(
                cluster: Cluster, client: str = client, connections: int = connections, count: int = count
            ) -> dict[str, float]:
                return one_record(cluster, client, topic=NAME, count=count, idempotent=True, connections=connections)

            samples = stage.take_turns(clusters, work)
            kind = f"{connections} at a time"
            figures += [
                beside_kafka(samples, "p50_ms", f"one record to three, p50, {kind}", "ms", ratio_at_most(1.3), words),
                beside_kafka(samples, "p99_ms", f"one record to three, p99, {kind}", "ms", ratio_at_most(1.3), words),
                beside_kafka(samples, "us", f"CPU of three brokers per record, {kind}", "us", None, words),
            ]
    for cluster in clusters:
        cluster.delete_topic(NAME)
        cluster.delete_topic(PRESENT)
    return figures
