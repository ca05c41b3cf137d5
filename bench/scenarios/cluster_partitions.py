"""A thousand partitions with three copies each: made, at rest, and whole again after a node was killed."""

from __future__ import annotations

import time

from bench.clusters import Cluster
from bench.figures import Figure, Samples, at_most
from bench.measure import cpu_seconds
from bench.stage import Stage, beside_kafka

NAME = "cluster-partitions"
SUMMARY = "1,000 partitions on three brokers: created, idle CPU, a node back in sync after kill -9"
PARTITIONS = 1_000
SETTLED_S = 3.0
"""A node that answers this long and was never missing in the metadata has not been missed."""


def run(stage: Stage) -> list[Figure]:
    partitions = stage.scaled(PARTITIONS, 60)
    samples = Samples()
    stage.put_shared_pair_away()
    for name in stage.starters():
        cluster = stage.start_cluster(name)
        try:
            for number in range(stage.scaled(min(stage.rounds, 3), 1)):
                measured = lived_through(cluster, f"{NAME}-{number}", partitions, rest_s=stage.scaled(20, 2))
                stage.say(f"  {name:10} {measured}")
                samples.add(name, measured)
        finally:
            stage.discard(cluster)
    words = f"{partitions:,} partitions, RF 3"
    return [
        beside_kafka(samples, "create_s", "created, until served and in sync", "s", at_most(10.0), words),
        beside_kafka(samples, "idle_percent", "CPU of the busiest idle node", "% of a core", at_most(10.0), words),
        beside_kafka(samples, "back_s", "a node back in sync, from its kill -9", "s", at_most(15.0), words),
        beside_kafka(samples, "delete_s", "deleted", "s", None, words),
        beside_kafka(samples, "rss_mb", "memory of three nodes (RSS)", "MB", None, words),
    ]


def lived_through(cluster: Cluster, topic: str, partitions: int, *, rest_s: float) -> dict[str, float]:
    start = time.perf_counter()
    cluster.create_topic(topic, partitions)
    create_s = time.perf_counter() - start
    time.sleep(rest_s / 2)  # What creating left behind has to settle before rest can be measured.
    idle_percent = busiest(cluster, rest_s)
    rss_mb = cluster.resident_mb()
    back_s = killed_and_back(cluster, topic, partitions)
    start = time.perf_counter()
    cluster.delete_topic(topic)
    delete_s = time.perf_counter() - start
    return {
        "create_s": create_s,
        "idle_percent": idle_percent,
        "back_s": back_s,
        "delete_s": delete_s,
        "rss_mb": rss_mb,
    }


def busiest(cluster: Cluster, span_s: float) -> float:
    before = [cpu_seconds(node.pid) for node in cluster.nodes]
    start = time.perf_counter()
    time.sleep(span_s)
    elapsed_s = time.perf_counter() - start
    used = [cpu_seconds(node.pid) - earlier for node, earlier in zip(cluster.nodes, before, strict=True)]
    return max(used) / elapsed_s * 100


def killed_and_back(cluster: Cluster, topic: str, partitions: int) -> float:
    """From the kill of a leader, which is started again at once, until every replica is in sync."""
    node = cluster.leader_of(topic, 0)
    start = time.perf_counter()
    node.kill()
    node.spawn()
    node.wait_answering()
    answered = time.perf_counter()
    was_missed = False
    while True:
        is_whole = cluster.is_whole(topic, partitions)
        was_missed = was_missed or not is_whole
        if is_whole and (was_missed or time.perf_counter() - answered > SETTLED_S):
            cluster.wait_for(lambda: cluster.is_served(topic, partitions))
            return (time.perf_counter() if was_missed else answered) - start
        time.sleep(0.05)
