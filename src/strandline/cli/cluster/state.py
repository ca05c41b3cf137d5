"""A cluster at one moment: its nodes, quorum and partitions, and what follows from them in words (pure)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

SILENT_AFTER_MS = 10_000
"""A voter that has not asked the leader for so long is taken for gone; they ask several times a second."""
NAMES_SHOWN = 5


@dataclass(frozen=True)
class BrokerState:
    """One broker. `is_up` means that the controller hears from it; `disk` is None where it does not tell."""

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_up: bool = True
    disk: DiskState | None = None

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class DiskState:
    logs_bytes: int
    total_bytes: int | None = None
    usable_bytes: int | None = None
    failed_directories: int = 0
    sizes: Mapping[tuple[str, int], int] = field(default_factory=dict, repr=False)
    """Bytes of each replica, by topic and partition."""


@dataclass(frozen=True, slots=True)
class PartitionState:
    topic: str
    index: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    in_sync_min: int = 1

    @property
    def name(self) -> str:
        return f"{self.topic}-{self.index}"

    @property
    def missing(self) -> tuple[int, ...]:
        """The replicas that are not in sync."""
        if self.in_sync == self.replicas:
            return ()
        return tuple(replica for replica in self.replicas if replica not in self.in_sync)

    @property
    def preferred(self) -> int:
        return self.replicas[0]

    @property
    def refuses_writes(self) -> bool:
        """Whether acks=all is refused for want of replicas in sync."""
        return self.leader is not None and len(self.in_sync) < self.in_sync_min

    @property
    def is_at_minimum(self) -> bool:
        """Whether the loss of one more replica would stop writers, though the topic has replicas to lose."""
        return self.leader is not None and len(self.in_sync) == self.in_sync_min < len(self.replicas)


@dataclass(frozen=True)
class QuorumNode:
    """One node as the leader of the quorum knows it; times are the leader's, -1 where it does not tell."""

    node_id: int
    is_voter: bool
    log_end_offset: int
    last_fetch_ms: int = -1
    last_caught_up_ms: int = -1
    address: str | None = None
    directory_id: str | None = None


@dataclass(frozen=True)
class QuorumDescription:
    leader_id: int
    epoch: int
    high_watermark: int
    nodes: tuple[QuorumNode, ...]
    now_ms: int
    """What the clock of the leader showed."""

    @property
    def voters(self) -> list[QuorumNode]:
        return [node for node in self.nodes if node.is_voter]

    @property
    def end_offset(self) -> int:
        return max((node.log_end_offset for node in self.nodes if node.node_id == self.leader_id), default=0)

    def is_silent(self, node: QuorumNode) -> bool:
        if node.node_id == self.leader_id or not self.has_times:
            return False
        # A node without a time has never asked this leader: it was down when the leader was elected.
        return node.last_fetch_ms < 0 or self.now_ms - node.last_fetch_ms > SILENT_AFTER_MS

    @property
    def has_times(self) -> bool:
        """Whether the leader tells when nodes fetched. Of itself it says that it did now."""
        return any(node.last_fetch_ms >= 0 for node in self.nodes if node.node_id == self.leader_id)

    def silent_voters(self) -> list[int]:
        return [node.node_id for node in self.voters if self.is_silent(node)]


@dataclass(frozen=True)
class Reassignment:
    """A move that is under way: `adding` are being filled, `removing` go when those are in sync."""

    topic: str
    index: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class PartitionLists:
    """What follows from the partitions of a cluster, each found once: of 100,000 each takes 20 ms and more."""

    def __init__(self, partitions: tuple[PartitionState, ...]) -> None:
        self.partitions = partitions

    @cached_property
    def topics(self) -> frozenset[str]:
        return frozenset(each.topic for each in self.partitions)

    @cached_property
    def offline(self) -> list[PartitionState]:
        return [each for each in self.partitions if each.leader is None]

    @cached_property
    def under_replicated(self) -> list[PartitionState]:
        return [each for each in self.partitions if each.missing]

    @cached_property
    def refusing_writes(self) -> list[PartitionState]:
        return [each for each in self.partitions if each.refuses_writes]

    @cached_property
    def not_preferred(self) -> list[PartitionState]:
        return [
            each
            for each in self.partitions
            if each.leader is not None and each.leader != each.preferred and each.preferred in each.in_sync
        ]

    @cached_property
    def led_by_broker(self) -> Counter[int | None]:
        return Counter(each.leader for each in self.partitions)

    @cached_property
    def replicas_by_broker(self) -> Counter[int]:
        return Counter(replica for each in self.partitions for replica in each.replicas)


@dataclass(frozen=True)
class ClusterState:
    """`quorum` and `reassignments` are None where the cluster does not tell them."""

    cluster_id: str
    brokers: tuple[BrokerState, ...]
    partitions: tuple[PartitionState, ...]
    quorum: QuorumDescription | None = None
    quorum_failure: str | None = None
    """Why the state of the quorum is unknown, if it was asked for."""
    reassignments: tuple[Reassignment, ...] | None = None
    lists: PartitionLists | None = field(default=None, repr=False, compare=False)
    """Kept by `replace` as long as the partitions are the same."""
    _by_id: Mapping[int, BrokerState] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_by_id", {broker.node_id: broker for broker in self.brokers})
        if self.lists is None or self.lists.partitions is not self.partitions:
            object.__setattr__(self, "lists", PartitionLists(self.partitions))

    @property
    def found(self) -> PartitionLists:
        assert self.lists is not None, "made with the state"
        return self.lists

    @property
    def topics(self) -> frozenset[str]:
        return self.found.topics

    @property
    def has_lost_quorum(self) -> bool:
        """Whether the quorum has no leader: then brokers and partitions are as a broker knew them last."""
        return self.quorum_failure is not None or (self.quorum is not None and self.quorum.leader_id < 0)

    def broker(self, node_id: int) -> BrokerState | None:
        return self._by_id.get(node_id)

    def live_brokers(self) -> list[BrokerState]:
        return [broker for broker in self.brokers if broker.is_up]

    def roles(self) -> dict[int, list[str]]:
        """Return what each node does, by id; a controller without the broker's role is known from the quorum alone."""
        roles: dict[int, list[str]] = {broker.node_id: ["broker"] for broker in self.brokers}
        for node in self.quorum.voters if self.quorum is not None else ():
            roles.setdefault(node.node_id, []).append("controller")
        return dict(sorted(roles.items()))

    def offline(self) -> list[PartitionState]:
        return self.found.offline

    def under_replicated(self) -> list[PartitionState]:
        return self.found.under_replicated

    def refusing_writes(self) -> list[PartitionState]:
        return self.found.refusing_writes

    def not_preferred(self) -> list[PartitionState]:
        """Return those that another replica leads although the preferred one is in sync."""
        return self.found.not_preferred

    def why_missing(self, node_id: int) -> str:
        """Why a replica on that broker may be out of sync: `broker 3 is down`."""
        broker = self.broker(node_id)
        if broker is None:
            return f"broker {node_id} is not registered"
        return f"broker {node_id} is catching up" if broker.is_up else f"broker {node_id} is down"

    def missing_by_broker(self) -> dict[int, list[PartitionState]]:
        """Which partitions lack a replica, by the broker that should hold it."""
        found: dict[int, list[PartitionState]] = {}
        for partition in self.under_replicated():
            for node_id in partition.missing:
                found.setdefault(node_id, []).append(partition)
        return dict(sorted(found.items()))

    def why_offline(self, partition: PartitionState) -> str:
        """Say why the partition has no leader, and which replica could lead."""
        if not partition.in_sync:
            return "none of its replicas is known to be in sync"
        reasons = ", ".join(self.why_missing(node_id) for node_id in partition.in_sync)
        return f"only {', '.join(map(str, partition.in_sync))} may lead it, and {reasons}"


def listed(partitions: Iterable[PartitionState]) -> str:
    """`orders-0, orders-1 and 7 more`."""
    names = [each.name for each in partitions]
    shown = ", ".join(names[:NAMES_SHOWN])
    return shown if len(names) <= NAMES_SHOWN else f"{shown} and {len(names) - NAMES_SHOWN:,} more"
