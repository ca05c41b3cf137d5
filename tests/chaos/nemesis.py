"""Does one thing after the other to the nodes, leaders first, and writes down when.

A fault is inflicted, held, healed; then the cluster has until the next one to be whole again. In half of the cases the
target is who matters most just now: the leader of a partition, or the active controller, as the cluster itself says.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

from bench.asking import PartitionState
from bench.brokers import BrokerFailed
from bench.cluster_node import ClusterNode
from bench.wire import PeerClosed, ServerRefused
from tests.chaos.faults import Fault, start
from tests.chaos.ground import Ground

from strandline.errors import StrandlineError

INTERVAL_S = 14.0
"""From the beginning of one fault to that of the next, if the cluster is whole again by then."""
WHOLE_TIMEOUT_S = 120.0
DOUBLE_SHARE = 0.15
"""How often a second node is hit while the first is down."""


@dataclass
class Inflicted:
    """One fault from its beginning until every replica was in sync again."""

    kind: str
    node_id: int
    role: str
    """`controller`, `leader` or `any`: what the target was chosen for."""
    led: int
    """How many partitions of the workload the node led."""
    controlled: bool
    began_ns: int
    healed_ns: int = 0
    whole_ns: int = 0
    remark: str = ""

    @property
    def hit_a_leader(self) -> bool:
        return self.led > 0 or self.controlled

    def as_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass
class Nemesis:
    ground: Ground
    faults: list[Fault]
    rng: random.Random
    session_s: float
    say: Callable[[str], None]
    done: list[Inflicted] = field(default_factory=list)
    leader_changes: int = 0
    controller_changes: int = 0
    unexpected_exits: list[str] = field(default_factory=list)
    _epochs: dict[tuple[str, int], int] = field(default_factory=dict)
    _quorum_epoch: int | None = None

    def run(self, topic: str, *, until: float, stopping: threading.Event) -> None:
        """Faults until the monotonic time `until`; the last one is healed and recovered from."""
        while time.monotonic() < until and not stopping.is_set():
            began = time.monotonic()
            self.one_fault(topic)
            stopping.wait(max(0.0, min(began + INTERVAL_S, until) - time.monotonic()) * self.rng.random())

    def one_fault(self, topic: str) -> None:
        states = self._look_around(topic)
        is_whole = not self.missing(topic)
        fault = self._choose(is_whole)
        node, role = self._target(states)
        hit = [(fault, node, self._record(fault, node, role, states))]
        fault.inflict(self.ground, node, self.rng)
        if fault.soft and is_whole and self.rng.random() < DOUBLE_SHARE:
            second = self.rng.choice([each for each in self.faults if each.soft])
            other = self.rng.choice([each for each in self.ground.cluster.nodes if each is not node])
            self._hold(self.rng.uniform(0.0, 2.0))
            hit.append((second, other, self._record(second, other, "any", states)))
            second.inflict(self.ground, other, self.rng)
        self._hold(max(self._span_s(each) for each, _, _ in hit))
        for each, target, record in hit:
            if record.kind not in ("disk full", "power cut"):
                self._note_exit(each, target)
            each.heal(self.ground, target)
            record.healed_ns = time.monotonic_ns()
        self._wait_whole(topic, [record for _, _, record in hit])

    def _span_s(self, fault: Fault) -> float:
        if fault.beyond_session:
            return self.session_s + self.rng.uniform(0.5, 3.0)
        return self.rng.uniform(0.0, 3.0)

    def _hold(self, seconds: float) -> None:
        time.sleep(seconds)

    def _choose(self, is_whole: bool) -> Fault:
        allowed = [fault for fault in self.faults if fault.soft or is_whole]
        return self.rng.choices(allowed, weights=[fault.weight for fault in allowed])[0]

    def _target(self, states: list[PartitionState]) -> tuple[ClusterNode, str]:
        role = self.rng.choices(("leader", "controller", "any"), weights=(3, 2, 4))[0]
        leaders = [state.leader for state in states if state.leader > 0]
        if role == "leader" and leaders:
            return self.ground.cluster.node(self.rng.choice(leaders)), role
        if role == "controller":
            controller = self._controller()
            if controller > 0:
                return self.ground.cluster.node(controller), role
        return self.rng.choice(list(self.ground.cluster.nodes)), "any"

    def _record(self, fault: Fault, node: ClusterNode, role: str, states: list[PartitionState]) -> Inflicted:
        led = sum(state.leader == node.node_id for state in states)
        record = Inflicted(fault.kind, node.node_id, role, led, node.node_id == self._controller(), time.monotonic_ns())
        self.done.append(record)
        controls = ", controls" if record.controlled else ""
        self.say(f"  {fault.kind}: node {node.node_id} (leads {led}{controls})")
        return record

    def _controller(self) -> int:
        """The active controller, or -1 if nobody can say."""
        try:
            quorum = self.ground.cluster.quorum()
        except BrokerFailed:
            return -1
        if self._quorum_epoch is not None and quorum.epoch > self._quorum_epoch:
            self.controller_changes += 1
        self._quorum_epoch = max(quorum.epoch, self._quorum_epoch or 0)
        return quorum.leader

    def _look_around(self, topic: str) -> list[PartitionState]:
        try:
            states = self.ground.cluster.partitions(topic)
        except BrokerFailed:
            return []
        for state in states:
            key = (state.topic, state.partition)
            known = self._epochs.setdefault(key, state.leader_epoch)
            if state.leader_epoch > known:
                self.leader_changes += state.leader_epoch - known
                self._epochs[key] = state.leader_epoch
        return states

    def _note_exit(self, fault: Fault, node: ClusterNode) -> None:
        """A node that ends by itself under a fault that leaves its process alone has a bug."""
        by_us = ("kill -9", "clean restart")
        if fault.kind not in by_us and not node.is_running:
            self.unexpected_exits.append(
                f"node {node.node_id} ended by itself under {fault.kind}: {node.last_words(3)}"
            )

    def _wait_whole(self, topic: str, records: list[Inflicted]) -> None:
        """Until every replica is in sync again. A node that needs a restart for that gets one, and it is noted."""
        start_s, is_restarted = time.monotonic(), False
        while time.monotonic() - start_s < WHOLE_TIMEOUT_S:
            self._revive()
            self._look_around(topic)
            missing = self.missing(topic)
            if not missing:
                for record in records:
                    record.whole_ns = time.monotonic_ns()
                return
            if time.monotonic() - start_s > WHOLE_TIMEOUT_S / 2 and not is_restarted:
                is_restarted = True
                for record in records:
                    record.remark = "not whole by itself: the node was restarted"
                    node = self.ground.cluster.node(record.node_id)
                    after = f"{WHOLE_TIMEOUT_S / 2:g} s"
                    self.say(f"  node {node.node_id} is not back after {after} and is restarted: {missing}")
                    node.stop()
            time.sleep(0.2)
        for record in records:
            record.remark = f"not whole within {WHOLE_TIMEOUT_S:g} s"
        self.say(f"  not whole within {WHOLE_TIMEOUT_S:g} s: {self._look_around(topic)}")

    def missing(self, topic: str) -> str:
        """Say what a node still misses; empty if every node says that every replica is in sync.

        All are asked, because one alone may not know of the last fault yet.
        """
        for node in self.ground.cluster.nodes:
            try:
                with node.ask(timeout_s=2.0) as question:
                    states = question.partitions([topic])
                    brokers = len(question.brokers())
            except (OSError, PeerClosed, ServerRefused, StrandlineError) as error:
                return f"node {node.node_id} does not answer: {error}"
            if brokers < len(self.ground.cluster.nodes):
                return f"node {node.node_id} knows of {brokers} brokers"
            behind = [state for state in states if not state.is_whole]
            if behind or not states:
                return f"node {node.node_id} says {behind[:2]}, {len(behind)} of {len(states)} partitions"
        return ""

    def _revive(self) -> None:
        for node in self.ground.cluster.nodes:
            if not node.is_running:
                start(self.ground, node)
