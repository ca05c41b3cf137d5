"""Three nodes that form a cluster, in the form that scenarios know from a single broker, and who leads what in it."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.asking import PartitionState, Question, QuorumState
from bench.brokers import BrokerFailed
from bench.cluster_node import ClusterNode, System
from bench.measure import cpu_seconds, resident_mb
from bench.wire import PeerClosed, ServerRefused
from strandline.codec.message import Message
from strandline.codec.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest
from strandline.codec.messages.list_offsets_request import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from strandline.errors import StrandlineError
from strandline.local.free_ports import free_port

NODES = 3
TOPIC_TIMEOUT_S = 120.0
_STALLS = re.compile(r"loop stalls above \d+ ms: (\d+), .*")
_EXPLAINED = re.compile(r"the loop stood still .*")
_UNREACHABLE = (OSError, PeerClosed, ServerRefused, StrandlineError)
_Answer = TypeVar("_Answer")


@dataclass
class Cluster:
    """`name` is its column in the report."""

    name: str
    nodes: Sequence[ClusterNode]
    root: Path

    @property
    def bootstrap(self) -> str:
        return ",".join(node.address for node in self.nodes)

    @property
    def command(self) -> Sequence[str]:
        return self.nodes[0].system.serve_command(self.nodes[0])

    def node(self, node_id: int) -> ClusterNode:
        return next(node for node in self.nodes if node.node_id == node_id)

    def start(self) -> None:
        for node in self.nodes:
            node.spawn()
        for node in self.nodes:
            node.wait_answering()
        self.wait_for(lambda: len(self.first_answer(lambda question: question.brokers())) == len(self.nodes))

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(node.pid) for node in self.nodes if node.is_running)

    def resident_mb(self) -> float:
        return sum(resident_mb(node.pid) for node in self.nodes if node.is_running)

    def first_answer(self, question: Callable[[Question], _Answer], *, timeout_s: float = 5.0) -> _Answer:
        """Ask the nodes in turn until one answers; BrokerFailed if none does."""
        reasons = []
        for node in self.nodes:
            if not node.is_running or node.is_paused:
                continue
            try:
                with node.ask(timeout_s=timeout_s) as asked:
                    return question(asked)
            except _UNREACHABLE as reason:
                reasons.append(f"node {node.node_id}: {type(reason).__name__}: {reason}")
        raise BrokerFailed(f"{self.name}: no node answers: {'; '.join(reasons) or 'none runs'}")

    def wait_for(
        self, holds: Callable[[], bool], *, timeout_s: float = TOPIC_TIMEOUT_S, pause_s: float = 0.05
    ) -> float:
        """Wait until something holds; the seconds that took."""
        start = time.monotonic()
        reason = ""
        while True:
            try:
                if holds():
                    return time.monotonic() - start
            except BrokerFailed as failure:
                reason = str(failure)
            if time.monotonic() - start > timeout_s:
                raise BrokerFailed(f"{self.name}: not within {timeout_s:g} s. {reason}")
            time.sleep(pause_s)

    def partitions(self, topic: str) -> list[PartitionState]:
        return self.first_answer(lambda question: question.partitions([topic]), timeout_s=30.0)

    def quorum(self) -> QuorumState:
        return self.first_answer(lambda question: question.quorum())

    def leader_of(self, topic: str, partition: int) -> ClusterNode:
        state = next(state for state in self.partitions(topic) if state.partition == partition)
        if state.leader < 0:
            raise BrokerFailed(f"{self.name}: {topic}-{partition} has no leader")
        return self.node(state.leader)

    def is_whole(self, topic: str, partitions: int) -> bool:
        """Whether every partition has a leader and all its replicas in sync."""
        states = self.partitions(topic)
        return len(states) == partitions and all(state.is_whole for state in states)

    def create_topic(
        self, topic: str, partitions: int = 1, settings: Mapping[str, str] | None = None, *, replication: int = NODES
    ) -> None:
        """Create the topic and wait until every leader serves its partitions and all replicas are in sync."""
        configs = [CreatableTopicConfig(name=name, value=value) for name, value in (settings or {}).items()]
        wanted = CreatableTopic(
            name=topic, num_partitions=partitions, replication_factor=replication, assignments=[], configs=configs
        )
        self._administer(CreateTopicsRequest(topics=[wanted], timeout_ms=int(TOPIC_TIMEOUT_S * 1000)), 5)
        self.wait_for(lambda: self.is_whole(topic, partitions))
        self.wait_for(lambda: self.is_served(topic, partitions))

    def delete_topic(self, topic: str) -> None:
        self._administer(DeleteTopicsRequest(topic_names=[topic], timeout_ms=60_000), 4)

    def _administer(self, request: Message, version: int) -> None:
        answer: Any = self.first_answer(lambda question: question.ask(request, version), timeout_s=TOPIC_TIMEOUT_S)
        outcomes = answer.topics if hasattr(answer, "topics") else answer.responses
        for outcome in outcomes:
            if outcome.error_code:
                message = getattr(outcome, "error_message", None) or ""
                raise ServerRefused(
                    f"{type(request).__name__} {outcome.name}: error code {outcome.error_code} {message}"
                )

    def is_served(self, topic: str, partitions: int) -> bool:
        """Whether every leader answers ListOffsets for what it leads: Metadata names a leader before it serves."""
        by_leader: dict[int, list[int]] = {}
        for state in self.partitions(topic):
            by_leader.setdefault(state.leader, []).append(state.partition)
        served = 0
        for leader, numbers in by_leader.items():
            if leader < 0:
                return False
            asked = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in numbers]
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=asked)])
            try:
                with self.node(leader).ask(timeout_s=30.0) as question:
                    answer = question.ask(request, 5)
            except _UNREACHABLE:
                return False
            served += sum(state.error_code == 0 for found in answer.topics for state in found.partitions)
        return served == partitions

    def addresses_of(self, topic: str) -> list[str]:
        """The leader's address for every partition, in order."""
        states = sorted(self.partitions(topic), key=lambda state: state.partition)
        return [self.node(state.leader).address for state in states]

    def stalls(self) -> str:
        """What the watchdogs of the nodes said of their loops, if there was a stall; the report repeats it."""
        said = []
        for node in self.nodes:
            text = node.log_text()
            found = [match for match in _STALLS.finditer(text) if int(match[1])]
            if found:
                said.append(f"node {node.node_id}: {'; '.join([found[-1][0], *_EXPLAINED.findall(text)[:3]])}")
        return "; ".join(said)

    def stop(self) -> None:
        for node in self.nodes:
            node.stop()

    def discard(self) -> None:
        for node in self.nodes:
            node.kill()
        shutil.rmtree(self.root, ignore_errors=True)


def local_cluster(
    system: System,
    root: Path,
    *,
    name: str = "",
    settings: Mapping[str, str] | None = None,
    nodes: int = NODES,
    with_metrics: bool = False,
) -> Cluster:
    """A formatted cluster on free ports of this machine, not yet started."""
    places = [
        ClusterNode(
            system,
            node_id,
            "127.0.0.1",
            free_port(),
            free_port(),
            root / f"node-{node_id}",
            root / f"node-{node_id}" / "data",
            metrics_port=free_port() if with_metrics else 0,
        )
        for node_id in range(1, nodes + 1)
    ]
    for node in places:
        node.configure(places, settings or {})
        node.format()
    return Cluster(name or system.name, places, root)
