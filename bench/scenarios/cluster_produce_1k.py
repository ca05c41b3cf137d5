"""Three brokers, three copies, acks=all: CPU of all three per MB produced, and how many MB a second."""

from __future__ import annotations

from bench.clusters import Cluster
from bench.figures import Figure, ratio_at_least, ratio_at_most
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "cluster-produce-1k"
SUMMARY = "three brokers, RF 3, acks=all: CPU of all per MB produced and MB/s, 1 KiB records"
PARTITIONS = 6


def run(stage: Stage) -> list[Figure]:
    clusters = stage.shared_clusters()
    count = stage.scaled(150_000, 5_000)
    for cluster in clusters:
        cluster.create_topic(NAME, PARTITIONS)

    def work(cluster: Cluster) -> dict[str, float]:
        return produced(cluster, topic=NAME, count=count, value_bytes=1024)

    samples = stage.take_turns(clusters, work)
    for cluster in clusters:
        cluster.delete_topic(NAME)
    note = "RF 3, acks=all, three brokers and the client on this machine"
    return [
        beside_kafka(samples, "ms_per_mb", "CPU of three brokers per MB, 1 KiB", "ms/MB", ratio_at_most(0.6), note),
        beside_kafka(samples, "mb_per_s", "produced to three, 1 KiB", "MB/s", ratio_at_least(1.0), note),
    ]
