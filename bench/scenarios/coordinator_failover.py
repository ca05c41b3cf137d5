"""How long nobody can commit offsets of a group when its coordinator leaves in good order, or is killed.

Somebody commits all the time; the longest silence between two acknowledgements is the figure. A broker that is killed
is missed when its session is over, so the figure after a kill is that session and what comes after it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.client_process import ClientProcess
from bench.cluster_node import ClusterNode
from bench.clusters import Cluster
from bench.figures import Figure, Samples, Target, at_most
from bench.group_members import find_coordinator
from bench.measure import percentile
from bench.stage import Stage, beside_kafka

NAME = "coordinator-failover"
SUMMARY = "three brokers: the coordinator of a group is stopped, or killed with -9"
LOWER_SESSION = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "300"}
OFFSETS_TOPIC = "__consumer_offsets"
RUN_UP_S = 1.0
CALM_S = 1.0
GIVE_UP_S = 60.0
SILENCE_S_MAX = 3.0


def run(stage: Stage) -> list[Figure]:
    figures: list[Figure] = []
    times = stage.scaled(max(5, stage.rounds), 1)
    for settings, words in ((None, "default session"), (LOWER_SESSION, "session of 2 s")):
        with stage.fresh_clusters(settings=settings) as clusters:
            samples = Samples()
            for cluster in clusters:
                cluster.create_topic(NAME, 1)
            for number in range(times):
                for cluster in clusters:
                    measured = {"kill_s": silence(cluster, ClusterNode.kill, f"{NAME}-{number}")}
                    if settings is None:
                        measured["stop_s"] = silence(cluster, ClusterNode.stop, f"{NAME}-{number}")
                    stage.say(f"  {cluster.name:10} {words}: {measured}")
                    samples.add(cluster.name, measured)
        if settings is None:
            figures += _both(samples, "stop_s", "no commits when the coordinator stops", at_most(SILENCE_S_MAX), times)
            figures += _both(samples, "kill_s", f"no commits after kill -9, {words}", None, times)
        else:
            figures += _both(samples, "kill_s", f"no commits after kill -9, {words}", at_most(SILENCE_S_MAX), times)
    return figures


def _both(samples: Samples, metric: str, name: str, target: Target | None, times: int) -> list[Figure]:
    worst = Samples()
    for broker, metrics in samples.by_broker.items():
        worst.add(broker, {metric: percentile(metrics[metric], 99)})
    note = f"{times} times"
    return [
        beside_kafka(samples, metric, f"{name}, p50", "s", target, note),
        beside_kafka(worst, metric, f"{name}, worst", "s", None, note),
    ]


def coordinator_of(cluster: Cluster, group: str) -> ClusterNode:
    node_id, _, _ = cluster.first_answer(lambda question: find_coordinator(question, group), timeout_s=GIVE_UP_S)
    return cluster.node(node_id)


def silence(cluster: Cluster, end: Callable[[ClusterNode], None], group: str) -> float:
    """The longest time without an acknowledged commit while another node becomes the coordinator."""
    with ClientProcess("steady_commits", bootstrap=cluster.bootstrap, group=group, topic=NAME) as client:
        client.wait_ready()
        coordinator = coordinator_of(cluster, group)
        client.tell()
        time.sleep(RUN_UP_S)
        end(coordinator)
        cluster.wait_for(lambda: coordinator_of(cluster, group) is not coordinator, timeout_s=GIVE_UP_S)
        # The new one is known; what is left is for the client to find it and be acknowledged.
        time.sleep(CALM_S)
        client.tell()
        result = client.result()
    coordinator.spawn()
    coordinator.wait_answering()
    cluster.wait_for(lambda: all(state.is_whole for state in cluster.partitions(OFFSETS_TOPIC)))
    return float(result["silence_s"])
