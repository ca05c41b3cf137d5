"""Object topics when a broker is killed, stopped, started again, and added: when their partitions serve, what is moved.

A partition serves when a record was written to it and read from it, and its first record was read: from the store with
an object topic. A local topic with three replicas goes through the same in turn, on the same brokers. What both have
in common is what the cluster needs to see that a broker is gone, and to elect leaders.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Final

from bench.brokers import STRANDLINE
from bench.client_process import run_measured
from bench.cluster_node import ClusterNode
from bench.clusters import Cluster
from bench.figures import Figure, Samples, Target, at_most
from bench.serving_probe import ServingProbe
from bench.stage import Stage
from bench.store_server import metrics, running_store
from bench.wire import ServerRefused
from strandline.codec.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from strandline.codec.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from strandline.local.free_ports import free_port
from strandline.tiers.wal.events import COMMIT_TOPIC

NAME = "object-failover"
SUMMARY = (
    "1,000 object partitions on three brokers and an S3 server: kill -9, a stop, a broker more; beside a local topic"
)
PARTITIONS: Final = 1_000
PARTITIONS_QUICK: Final = 60
VALUE_BYTES: Final = 1_000
KINDS: Final[dict[str, dict[str, str]]] = {"object": {"strandline.storage": "object"}, "local": {}}
SERVES_S: Final = 3.0
PROBES_BYTES_MAX: Final = 1_024
"""What the probes may add to the files of a replica. A partition has more than that to be copied."""
ROLES: Final = ("leads the commit log", "is the controller", "is neither")
REPLICATED: Final = "kafka_server_brokertopicmetrics_replicationbytesin_total"
STORE_READ: Final = "strandline_remote_read_bytes_total"
EVENTS: Final = {
    "killed": "kill -9",
    "killed controller": "kill -9 of the active controller",
    "stopped": "stopped in good order",
    "elected": "preferred leaders elected after a restart",
    "added": "a fourth broker gets partitions",
}
LogBytes = dict[tuple[int, str], int]


def run(stage: Stage) -> list[Figure]:
    stage.put_shared_pair_away()
    samples = Samples()
    rounds = stage.scaled(max(3, stage.rounds), 1)
    with running_store(stage) as store:
        cluster = stage.start_cluster(STRANDLINE, settings=store.settings("failover"), with_metrics=True)
        try:
            for number in range(rounds):
                for kind in KINDS:
                    trial = _Trial(stage, cluster, samples, kind)
                    _with_topic(stage, cluster, kind, number, partial(trial.fail, number=number))
            added, start_s = _add_broker(cluster, store.settings("failover"))
            stage.say(f"  a fourth broker answers after {start_s:.2f} s")
            for number in range(rounds):
                for kind in KINDS:
                    trial = _Trial(stage, cluster, samples, kind)
                    _with_topic(stage, cluster, kind, number, partial(trial.add, added=added))
        finally:
            stage.discard(cluster)
    return _figures(samples, stage.scaled(PARTITIONS, PARTITIONS_QUICK), start_s)


def _with_topic(stage: Stage, cluster: Cluster, kind: str, number: int, work: Callable[[str], None]) -> None:
    """Have a topic with some records in each partition while something is done with it."""
    partitions = stage.scaled(PARTITIONS, PARTITIONS_QUICK)
    topic = f"{NAME}-{kind}-{len(cluster.nodes)}-{number}"
    cluster.create_topic(topic, partitions, KINDS[kind])
    task = {"topic": topic, "partitions": partitions, "value_bytes": VALUE_BYTES}
    run_measured(cluster, [("spread", {**task, "rounds": stage.scaled(19, 4), "every_s": 0.25})])
    work(topic)
    cluster.delete_topic(topic)


class _Trial:
    """One kind of topic and what happens to its brokers."""

    def __init__(self, stage: Stage, cluster: Cluster, samples: Samples, kind: str) -> None:
        self._stage = stage
        self._cluster = cluster
        self._samples = samples
        self._kind = kind

    def fail(self, topic: str, number: int) -> None:
        """Kill a broker, start it, have it lead again, stop it, and start it."""
        cluster, role = self._cluster, ROLES[number % len(ROLES)]
        victim = _a_broker(cluster, role)
        is_controller = victim.node_id == cluster.quorum().leader
        led = [each.partition for each in cluster.partitions(topic) if each.leader == victim.node_id]
        what = "killed controller" if is_controller else "killed"

        def is_elsewhere(leader: int) -> bool:
            return leader not in (-1, victim.node_id)

        self._measure(what, topic, led, victim.kill, is_elsewhere)
        back_s = self._start(victim, topic)
        self._samples.add(self._kind, {"back_s": back_s})
        preferred = [each.partition for each in cluster.partitions(topic) if each.replicas[0] == victim.node_id]
        self._elect(topic, preferred, victim)
        # Not `stop`, which waits for the end of the process.
        terminate = partial(os.kill, victim.pid, signal.SIGTERM)
        self._measure("stopped", topic, preferred, terminate, is_elsewhere)
        victim.stop()
        self._start(victim, topic)

    def _start(self, node: ClusterNode, topic: str) -> float:
        start = time.perf_counter()
        node.spawn()
        node.wait_answering()
        cluster = self._cluster
        cluster.wait_for(lambda: all(each.is_whole for each in cluster.partitions(topic)))
        return time.perf_counter() - start

    def _elect(self, topic: str, partitions: list[int], node: ClusterNode) -> None:
        def elect() -> None:
            asked = [TopicPartitions(topic=topic, partitions=partitions)]
            request = ElectLeadersRequest(topic_partitions=asked, timeout_ms=30_000)
            self._cluster.first_answer(lambda question: question.ask(request, 2), timeout_s=60.0)

        self._measure("elected", topic, partitions, elect, lambda leader: leader == node.node_id)

    def add(self, topic: str, added: ClusterNode) -> None:
        """Have an added broker take the place of the leaders of a quarter of the partitions."""
        without = [each for each in self._cluster.partitions(topic) if added.node_id not in each.replicas]
        changes = [
            ReassignablePartition(
                partition_index=each.partition,
                replicas=[added.node_id, *[one for one in each.replicas if one != each.leader]],
            )
            for each in without
        ]

        def reassign() -> None:
            asked = [ReassignableTopic(name=topic, partitions=changes)]
            request = AlterPartitionReassignmentsRequest(topics=asked, timeout_ms=30_000)
            self._cluster.first_answer(lambda question: question.ask(request, 0), timeout_s=60.0)

        moved = [each.partition for each in without]
        self._measure("added", topic, moved, reassign, lambda leader: leader == added.node_id)

    def _measure(
        self,
        what: str,
        topic: str,
        partitions: list[int],
        begin: Callable[[], None],
        is_new: Callable[[int], bool],
    ) -> None:
        """Have partitions be led elsewhere, and measure when they serve and what was moved for it."""
        cluster = self._cluster
        files, before = _log_bytes(cluster, topic, partitions), _counts(cluster)
        with ServingProbe(cluster, topic, partitions, is_new) as probe:
            start = time.perf_counter()
            begin()
            written = probe.until_written()
            # Now, because what readers have the store read is no part of a change of leaders.
            between = _counts(cluster)
            counting_s = time.perf_counter() - written
            served = probe.until_read(0) - counting_s
        after = _counts(cluster)
        measured = {
            "serves": served - start,
            "written": written - start,
            "elected": probe.elected_at - start,
            "moved": _copied_bytes(files, _log_bytes(cluster, topic, partitions)),
            "replicated": _growth(before, between, REPLICATED),
            "taken": _growth(before, between, STORE_READ),
            "read": _growth(between, after, STORE_READ),
            "partitions": float(len(partitions)),
        }
        shown = "  ".join(f"{name} {each:.4g}" for name, each in measured.items())
        self._stage.say(f"  {self._kind:6} {what:17} {shown}")
        self._samples.add(self._kind, {f"{what}, {name}": each for name, each in measured.items()})


def _a_broker(cluster: Cluster, role: str) -> ClusterNode:
    """Return a broker with a role; any if there is none."""
    controller, commits = cluster.quorum().leader, -1
    with contextlib.suppress(ServerRefused):
        commits = cluster.leader_of(COMMIT_TOPIC, 0).node_id
    has_role = {
        ROLES[0]: lambda each: each == commits,
        ROLES[1]: lambda each: each == controller,
        ROLES[2]: lambda each: each not in (controller, commits),
    }[role]
    # With two roles there is nothing to tell a broker of the first one apart, so those with one role come first.
    found = sorted(cluster.nodes, key=lambda node: (not has_role(node.node_id), node.node_id == controller))
    return found[0]


def _add_broker(cluster: Cluster, settings: Mapping[str, str]) -> tuple[ClusterNode, float]:
    """Start one more node, which is no controller; return it, and how long it took to answer."""
    first, number = cluster.nodes[0], len(cluster.nodes) + 1
    root = cluster.root / f"node-{number}"
    node = replace(
        first,
        node_id=number,
        port=free_port(),
        metrics_port=free_port(),
        root=root,
        data=root / "data",
        process=None,
    )
    roles = {"process.roles": "broker", "listeners": f"PLAINTEXT://{node.address}"}
    node.configure(cluster.nodes, {**settings, **roles})
    node.format()
    start = time.perf_counter()
    node.spawn()
    node.wait_answering()
    cluster.nodes = [*cluster.nodes, node]
    cluster.wait_for(lambda: node.node_id in cluster.first_answer(lambda question: question.brokers()))
    return node, time.perf_counter() - start


def _log_bytes(cluster: Cluster, topic: str, partitions: Iterable[int]) -> LogBytes:
    """Return the size of the records of each replica, by node and directory."""
    found = {}
    for node in cluster.nodes:
        for each in partitions:
            folder = node.data / f"{topic}-{each}"
            found[node.node_id, folder.name] = sum(path.stat().st_size for path in folder.glob("*.log"))
    return found


def _copied_bytes(before: LogBytes, after: LogBytes) -> float:
    """Return by how much replicas grew, without what the probes wrote."""
    grown = [size_bytes - before[replica] for replica, size_bytes in after.items()]
    return float(sum(each for each in grown if each > PROBES_BYTES_MAX))


def _counts(cluster: Cluster) -> dict[int, dict[str, float]]:
    """Return the metrics of the nodes that run and answer."""
    found = {}
    for node in cluster.nodes:
        if node.is_running:
            with contextlib.suppress(OSError):
                found[node.node_id] = metrics(node.metrics_port)
    return found


def _growth(before: dict[int, dict[str, float]], after: dict[int, dict[str, float]], metric: str) -> float:
    return sum(after[each][metric] - before[each].get(metric, 0.0) for each in before.keys() & after.keys())


def _figures(samples: Samples, partitions: int, start_s: float) -> list[Figure]:
    figures = []
    for what, words in EVENTS.items():
        found = samples.of("object", f"{what}, serves")
        if not found:
            continue
        moved = int(samples.of("object", f"{what}, partitions")[0])
        note = f"{moved:,} of {partitions:,} partitions, {len(found)} times, worst {max(found):.2f} s"

        def row(name: str, part: str, unit: str, target: Target | None = None, note: str = "") -> Figure:
            mine, local = (samples.of(kind, f"{what}, {part}") for kind in KINDS)  # noqa: B023
            return Figure(f"{words}: {name}", unit, mine, local, "local topic", target, note)  # noqa: B023

        figures += [
            row("all written and read again", "serves", "s", at_most(SERVES_S), note),
            row("of that until leaders are elected", "elected", "s"),
            row("of that until all are written again", "written", "s"),
            row("records moved to other brokers", "moved", "B", at_most(0)),
            row("replicated of all topics, commits too", "replicated", "B"),
            row("read from the store to lead", "taken", "B", at_most(0)),
            row("read from the store by readers after it", "read", "B"),
        ]
    mine, local = (samples.of(kind, "back_s") for kind in KINDS)
    return [
        *figures,
        Figure("a killed broker in sync again, from its start", "s", mine, local, "local topic"),
        Figure("a fourth broker answers, from its start", "s", [start_s]),
    ]
