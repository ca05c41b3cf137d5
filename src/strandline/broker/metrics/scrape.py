"""One look at a node: what several families need is gathered once, and does not change under their hands.

A page is written over many turns of the loop, and topics come and go in between. So lists are copied when the look
begins, and whatever hangs on them is read when its line is written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from strandline.broker.coordinating.lag_judging import Judged, judged
from strandline.coordinators.partitioning import CONSUMER_OFFSETS_TOPIC
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from strandline.broker.audit.node_audit import NodeAudit
    from strandline.broker.environment import Environment
    from strandline.broker.kraft.metadata_quorum import MetadataQuorum
    from strandline.broker.late_parts import LateParts
    from strandline.broker.metrics.watchdog import Watchdog
    from strandline.broker.network.dispatch import Dispatcher
    from strandline.broker.network.routes import Route
    from strandline.broker.network.throttling import Throttling
    from strandline.broker.network.tls.tls_listeners import NodeTls
    from strandline.broker.replicas.replicas import Replicas
    from strandline.config.node_config import BrokerConfig
    from strandline.coordinators.groups.group_shard import GroupShard
    from strandline.log.flusher import Flusher
    from strandline.log.log_directory import LogDirectory
    from strandline.partition.fetch_session import FetchSessions
    from strandline.quorum.image.cluster_image import ClusterImage
    from strandline.runtime.process import GcPauses
    from strandline.runtime.runtime import Runtime

T = TypeVar("T")

UNKNOWN_SOFTWARE = ("unknown", "unknown")


class ObservedBroker(Protocol):
    """The parts that metrics are read from."""

    node_id: int
    cluster_id: str
    started_ms: int
    has_failed: bool
    environment: Environment
    config: BrokerConfig
    audit: NodeAudit | None
    runtime: Runtime
    dispatcher: Dispatcher
    routes: dict[int, Route]
    sessions: FetchSessions
    metadata: MetadataQuorum
    directory: LogDirectory
    replicas: Replicas
    flusher: Flusher
    late: LateParts
    watchdog: Watchdog
    gc_pauses: GcPauses
    throttling: Throttling
    tls: NodeTls | None

    @property
    def image(self) -> ClusterImage: ...

    @property
    def is_serving(self) -> bool: ...


class Scrape:
    def __init__(self, node: ObservedBroker, *, deep: bool) -> None:
        self.node = node
        self.deep = deep
        """Whether there is a line for each topic and partition, or one for all of them together."""
        self.partitions: list[Partition] = list(node.replicas.all())
        self._judged: list[Judged] | None = None
        self._counted: dict[object, Any] = {}

    @cached_property
    def topics(self) -> dict[str, list[Partition]]:
        by_name: dict[str, list[Partition]] = {}
        for partition in self.partitions:
            by_name.setdefault(partition.topic, []).append(partition)
        return by_name

    @cached_property
    def software(self) -> Counter[tuple[str, str]]:
        """Connections by what their clients call themselves."""
        return Counter(each.software or UNKNOWN_SOFTWARE for each in self.node.dispatcher.limits.connections)

    @cached_property
    def waiting(self) -> Counter[str]:
        """Requests that were started and are not answered yet, by API."""
        waiting: Counter[str] = Counter()
        for connection in self.node.dispatcher.limits.connections:
            for exchange in connection.started or ():
                if exchange.meter is not None:
                    waiting[exchange.meter.name] += 1
        return waiting

    @cached_property
    def shards(self) -> list[GroupShard]:
        """The groups that are loaded, and one more part of them with each look at the whole page.

        Who is interested in lag wants that of a group whose members did not survive the restart, too.
        """
        groups = self.node.late.groups.get()
        if self.deep:
            for partition in self.topics.get(CONSUMER_OFFSETS_TOPIC, ()):
                if partition.log.log_end_offset and groups.load(partition.index):
                    break
        return groups.loaded_shards()

    def once(self, count: Callable[[ObservedBroker], Iterator[T | None]]) -> Iterator[T | None]:
        """What `count` comes to in the end, for all families that ask; None while the first of them counts."""
        if count not in self._counted:
            found = None
            for found in count(self.node):
                if found is None:
                    yield None
            self._counted[count] = found
        yield self._counted[count]

    def judged(self) -> Iterator[Judged]:
        """The positions of groups with figures and verdict, which the first family that asks works out line by line."""
        if self._judged is not None:
            yield from self._judged
            return
        found = []
        for each in judged(self.node.environment, self.node.late.groups.get(), self.node.late.lag.get()):
            found.append(each)
            yield each
        self._judged = found
