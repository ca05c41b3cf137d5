"""What producers and consumers in the simulation share: who leads what, connections, and the history they write.

A client trusts a leader epoch and never goes back to an older one, as Kafka's do. It runs on a machine of its own, so
partitions of the network cut it off from some brokers and not from others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from tests.simulator.world.network import SimNetwork
from tests.simulator.world.runtime import SimHost, SimRuntime
from tests.simulator.world.wire import OnAnswer, Wire

from strandline.codec.message import Message
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponse
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID, TopicPartition
from strandline.testing.history import Op

METADATA_VERSION: Final = 12
REQUEST_TIMEOUT_S: Final = 6.0
BACKOFF_S: Final = 0.2
METADATA_AGE_S: Final = 20.0


@dataclass(slots=True)
class Known:
    """What a client knows of one partition."""

    topic_id: UUID = ZERO_UUID
    leader: int = -1
    epoch: int = -1
    in_sync: tuple[int, ...] = ()
    replicas: tuple[int, ...] = ()


@dataclass
class History:
    """What all clients of a run did, in the order in which it was completed."""

    now_ns: Callable[[], int]
    ops: list[Op] = field(default_factory=list)
    processes: int = 0
    acknowledged: int = 0
    """Records that were acknowledged."""
    surprises: list[str] = field(default_factory=list)
    """What a client met that a sound cluster never shows."""

    def new_process(self) -> int:
        self.processes += 1
        return self.processes


class SimClient:
    def __init__(
        self,
        network: SimNetwork,
        host: SimHost,
        history: History,
        bootstrap: Sequence[tuple[str, int]],
        topics: Sequence[str],
    ) -> None:
        self.host = host
        self.runtime = SimRuntime(host, 1)
        self.network = network.of(self.runtime)
        self.random = self.runtime.random
        self.history = history
        self.topics = tuple(topics)
        self.more_topics: tuple[str, ...] = ()
        """Whose leaders have to be known, too."""
        self.brokers: dict[int, tuple[str, int]] = {}
        self.known: dict[TopicPartition, Known] = {}
        self.is_stopped = False
        self.leads: Callable[[TopicPartition, int], bool] = lambda partition, broker: True
        """Whether a broker really leads a partition. No client can know; what a deposed leader says is no surprise."""
        self.on_topology: Callable[[], object] = lambda: None
        """Called when news of leaders has come."""
        self._bootstrap = list(bootstrap)
        self._wires: dict[tuple[str, int, str], Wire] = {}
        self._is_refreshing = False
        self._is_refresh_due = False
        self._is_refresh_waiting = False

    def stop(self) -> None:
        """Ask nothing more; what is open stays open."""
        self.is_stopped = True

    def kill(self) -> None:
        for wire in list(self._wires.values()):
            wire.close()
        self.runtime.actor.kill()

    # Connections

    def wire(self, broker: int, purpose: str) -> Wire | None:
        """Return a connection to a broker; None if its address is unknown."""
        address = self.brokers.get(broker)
        return None if address is None else self._wire(address, purpose)

    def _wire(self, address: tuple[str, int], purpose: str) -> Wire:
        key = (*address, purpose)
        wire = self._wires.get(key)
        if wire is None or wire.is_lost:
            wire = self._wires[key] = Wire(
                self.runtime, self.network, *address, client_id=f"{self.host.name} {purpose}"
            )
        return wire

    def ask_any(self, request: Message, version: int, answer_class: type[Message], on_answer: OnAnswer) -> None:
        """Ask some broker, whichever."""
        address = self.random.choice(sorted(self.brokers.values()) or self._bootstrap)
        if self.random.random() < 0.2:
            # Known addresses may be old: a broker at one of the bootstrap addresses knows better.
            address = self.random.choice(self._bootstrap)
        self._wire(address, "any").ask(request, version, answer_class, on_answer, timeout_s=REQUEST_TIMEOUT_S)

    # Who leads

    def leader_of(self, partition: TopicPartition) -> Known | None:
        known = self.known.get(partition)
        return known if known is not None and known.leader >= 0 else None

    def refresh(self) -> None:
        """Ask who leads; one such request at a time."""
        if self._is_refreshing:
            self._is_refresh_due = True
            return
        self._is_refreshing = True
        self._is_refresh_due = False
        topics = [MetadataRequestTopic(name=name) for name in (*self.topics, *self.more_topics)]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        self.ask_any(request, METADATA_VERSION, MetadataResponse, self._on_metadata)

    def refresh_later(self) -> None:
        """Ask in a moment; others that want it by then share the request."""
        if not self._is_refresh_waiting:
            self._is_refresh_waiting = True
            self.runtime.call_later(BACKOFF_S * (0.5 + self.random.random()), self._refresh_now)

    def _refresh_now(self) -> None:
        self._is_refresh_waiting = False
        self.refresh()

    def _on_metadata(self, answer: MetadataResponse | None) -> None:
        self._is_refreshing = False
        if answer is None:
            self.refresh_later()
            return
        if answer.brokers:
            self.brokers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        is_whole = True
        for topic in answer.topics:
            if topic.error_code or topic.name is None:
                is_whole = False
                continue
            for each in topic.partitions:
                is_whole &= self._learn(TopicPartition(topic.name, each.partition_index), topic.topic_id, each)
        if not is_whole or self._is_refresh_due:
            self.refresh_later()
        self.on_topology()

    def _learn(self, partition: TopicPartition, topic_id: UUID, told: Any) -> bool:
        known = self.known.setdefault(partition, Known())
        if known.topic_id != topic_id:
            # The topic was created again: its epochs begin again.
            known.topic_id, known.epoch = topic_id, -1
        if told.leader_epoch >= known.epoch:
            known.leader, known.epoch = told.leader_id, told.leader_epoch
            known.in_sync = tuple(told.isr_nodes)
            known.replicas = tuple(told.replica_nodes)
        return told.error_code == ErrorCode.NONE and known.leader >= 0
