"""How long nobody can produce when a leader leaves in good order or is killed, and how long nobody controls.

A producer sends to one partition all the time; the longest silence between two acknowledgements is the figure. Each
kill is one sample. After it the node is started again and everything is in sync before the next.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bench.asking import Question
from bench.brokers import BrokerFailed
from bench.client_process import ClientFailed, ClientProcess
from bench.cluster_node import ClusterNode
from bench.clusters import Cluster
from bench.figures import Figure, Samples, Target, at_most
from bench.measure import percentile
from bench.stage import Stage, beside_kafka
from bench.wire import PeerClosed, ServerRefused
from strandline.codec.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from strandline.errors import StrandlineError

NAME = "cluster-failover"
SUMMARY = "three brokers: a clean move of leadership, kill -9 of a leader, kill -9 of the controller"
LOWER_SESSION = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
PARTITIONS = 6
RUN_UP_S = 1.0
CALM_S = 1.0
GIVE_UP_S = 60.0


def run(stage: Stage) -> list[Figure]:
    figures: list[Figure] = []
    kills = stage.scaled(max(10, 2 * stage.rounds), 1)
    for settings, words in ((None, "default session"), (LOWER_SESSION, "session of 3 s")):
        with stage.fresh_clusters(settings=settings) as clusters:
            samples = Samples()
            for cluster in clusters:
                cluster.create_topic(NAME, PARTITIONS)
            for number in range(kills):
                for cluster in clusters:
                    # Every other time the leader is the active controller, too: its session begins with the next one.
                    controls = number % 2 == 0
                    measured = {"kill_s": silence(cluster, ClusterNode.kill, controls=controls)}
                    if settings is None:
                        measured["move_s"] = silence(cluster, ClusterNode.stop, controls=controls)
                        measured["controller_s"] = without_controller(cluster, f"{NAME}-{number}")
                    role = "the controller, too" if controls else "no controller"
                    stage.say(f"  {cluster.name:10} {words}, a leader that is {role}: {measured}")
                    samples.add(cluster.name, measured)
        figures += _both(samples, "kill_s", f"silence after kill -9 of a leader, {words}", at_most(10.0), kills)
        if settings is None:
            figures += _both(samples, "move_s", "silence when a leader is stopped in good order", at_most(1.0), kills)
            figures += _both(samples, "controller_s", "without a controller after kill -9", at_most(3.0), kills)
    return figures


def _both(samples: Samples, metric: str, name: str, target: Target, kills: int) -> list[Figure]:
    worst = Samples()
    for broker, metrics in samples.by_broker.items():
        worst.add(broker, {metric: percentile(metrics[metric], 99)})
    note = f"{kills} times"
    return [
        beside_kafka(samples, metric, f"{name}, p50", "s", None, note),
        beside_kafka(worst, metric, f"{name}, p99", "s", target, note),
    ]


def a_partition(cluster: Cluster, *, controls: bool) -> int:
    """A partition whose leader is the active controller, or is not, as wanted; any other if there is none."""
    controller = cluster.quorum().leader
    states = cluster.partitions(NAME)
    wanted = [state.partition for state in states if (state.leader == controller) is controls]
    return wanted[0] if wanted else states[0].partition


def silence(cluster: Cluster, end: Callable[[ClusterNode], None], *, controls: bool) -> float:
    """The longest time without an acknowledgement while the leader of a partition ends and another takes over."""
    partition = a_partition(cluster, controls=controls)
    leader = cluster.leader_of(NAME, partition)
    with ClientProcess("steady", bootstrap=cluster.bootstrap, topic=NAME, partition=partition) as client:
        client.wait_ready()
        client.tell()
        time.sleep(RUN_UP_S)
        end(leader)
        cluster.wait_for(lambda: cluster.leader_of(NAME, partition) is not leader, timeout_s=GIVE_UP_S)
        # The new leader is known; what is left is for the client to find it and be acknowledged.
        time.sleep(CALM_S)
        client.tell()
        result = client.result()
    if result["failed"]:
        raise ClientFailed(f"{result['failed']} records failed: {result['why']}")
    _mend(cluster, leader)
    return float(result["silence_s"])


def without_controller(cluster: Cluster, topic: str) -> float:
    """From the kill of the active controller until another one has created a topic."""
    controller = cluster.node(cluster.quorum().leader)
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    request = CreateTopicsRequest(topics=[wanted], timeout_ms=1_000)
    controller.kill()
    start = time.perf_counter()
    while not _is_created(cluster, request):
        if time.perf_counter() - start > GIVE_UP_S:
            raise BrokerFailed(f"{cluster.name}: no controller within {GIVE_UP_S:g} s")
        time.sleep(0.02)
    elapsed_s = time.perf_counter() - start
    _mend(cluster, controller)
    cluster.delete_topic(topic)
    return elapsed_s


def _is_created(cluster: Cluster, request: CreateTopicsRequest) -> bool:
    def create(question: Question) -> bool:
        topic_already_exists = 36
        answer = question.ask(request, 5)
        return answer.topics[0].error_code in (0, topic_already_exists)

    try:
        return cluster.first_answer(create, timeout_s=2.0)
    except (BrokerFailed, PeerClosed, ServerRefused, StrandlineError, OSError):
        return False


def _mend(cluster: Cluster, node: ClusterNode) -> None:
    node.spawn()
    node.wait_answering()
    cluster.wait_for(lambda: node.node_id in _in_sync_everywhere(cluster))


def _in_sync_everywhere(cluster: Cluster) -> set[int]:
    return set.intersection(*(set(state.in_sync) for state in cluster.partitions(NAME)))
