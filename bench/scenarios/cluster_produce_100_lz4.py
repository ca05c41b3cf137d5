"""Three brokers, three copies, acks=all, with small records in lz4 batches."""

from __future__ import annotations

from bench.clusters import Cluster
from bench.figures import Figure, ratio_at_least, ratio_at_most
from bench.scenarios.cluster_produce_1k import PARTITIONS
from bench.scenarios.produce_1k import produced
from bench.stage import Stage, beside_kafka

NAME = "cluster-produce-100-lz4"
SUMMARY = "three brokers, RF 3, acks=all: CPU of all per MB produced and MB/s, 100 B records, lz4"


def run(stage: Stage) -> list[Figure]:
    clusters = stage.shared_clusters()
    count = stage.scaled(800_000, 20_000)
    for cluster in clusters:
        cluster.create_topic(NAME, PARTITIONS)

    def work(cluster: Cluster) -> dict[str, float]:
        return produced(cluster, topic=NAME, count=count, value_bytes=100, values="orders", compression_type="lz4")

    samples = stage.take_turns(clusters, work)
    for cluster in clusters:
        cluster.delete_topic(NAME)
    note = "MB of values before compression"
    return [
        beside_kafka(samples, "ms_per_mb", "CPU of three brokers per MB, 100 B lz4", "ms/MB", ratio_at_most(0.6), note),
        beside_kafka(samples, "mb_per_s", "produced to three, 100 B lz4", "MB/s", ratio_at_least(1.0), note),
    ]
