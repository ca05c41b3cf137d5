"""What must be available again once all faults are mended, judged by the disks and the clients, not by a controller.

| promise | how it is seen |
|---|---|
| a partition that can be led is led | the nodes that hold every committed record are known; one of them must lead |
| a replica that may lead does so | every partition is led by its first replica after an election that asks for it |
| replicas come back | every replica is in sync again |
| refused clients get through | every producer, committer, group and transaction goes on and comes to an end |
| readers get everything | every consumer of the run reads up to where its partitions end |
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tests.simulator.clients.consumer import SimConsumer
    from tests.simulator.clients.producer import SimProducer
    from tests.simulator.truth.invariants import Invariants
    from tests.simulator.world.cluster import SimCluster

    from strandline.partition.partition import Partition


class Settling(Protocol):
    def unsettled(self) -> str: ...


class Availability:
    def __init__(self, cluster: SimCluster, invariants: Invariants) -> None:
        self._cluster = cluster
        self._invariants = invariants

    def leaderless(self) -> list[str]:
        """Return partitions without a leader that runs, though some node holds all that was committed; in words."""
        found = []
        for topic in self._invariants.image.topics.values():
            for index, partition in enumerate(topic.partitions):
                if self._leads(partition.leader, topic.id.bytes, index):
                    continue
                holders = [each for each in partition.replicas if self._holds_all(each, topic.id.bytes, index)]
                if holders:
                    found.append(
                        f"{topic.name}-{index} has leader {partition.leader}, in sync {partition.isr}, eligible "
                        f"{partition.eligible_leader_replicas}, and {holders} can hold every committed record"
                    )
        return found

    def _replica(self, node_id: int, topic_id: bytes, index: int) -> Partition | None:
        sim_node = self._cluster.nodes.get(node_id)
        node = None if sim_node is None else sim_node.node
        partitions = None if node is None else node.topics.get(topic_id)
        return partitions[index] if partitions is not None and index < len(partitions) else None

    def _leads(self, node_id: int, topic_id: bytes, index: int) -> bool:
        """Return whether a node that runs leads by its own account: one that was started again may not know of it."""
        partition = self._replica(node_id, topic_id, index)
        return partition is not None and partition.is_leader

    def _holds_all(self, node_id: int, topic_id: bytes, index: int) -> bool:
        partition = self._replica(node_id, topic_id, index)
        if partition is None:
            return True  # Not opened yet: its disk has what it had.
        if partition.log.failure is not None:
            return False
        if partition.config.commits_in_store:
            return True  # The object store has it.
        truth = self._invariants.partitions.get((topic_id, index))
        return truth is None or truth.may_lose or partition.log.log_end_offset >= truth.end

    def not_whole(self) -> list[str]:
        """Return partitions without all their replicas in sync, as the committed metadata says."""
        return [
            f"{topic.name}-{index} {partition.isr} of {partition.replicas}, leader {partition.leader}"
            for topic in self._invariants.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader < 0 or sorted(partition.isr) != sorted(partition.replicas)
        ]

    def led_by_others(self) -> list[str]:
        """Return partitions that another than their first replica leads."""
        return [
            f"{topic.name}-{index} is led by {partition.leader}, not by {partition.replicas[0]}"
            for topic in self._invariants.image.topics.values()
            for index, partition in enumerate(topic.partitions)
            if partition.leader != partition.replicas[0]
        ]

    def behind(self, consumers: Iterable[SimConsumer]) -> list[str]:
        """Return where consumers have not read all that is committed and stable."""
        found = []
        for consumer in consumers:
            for partition, position in consumer.positions.items():
                topic = self._invariants.image.topics.get(partition.topic)
                truth = (
                    None if topic is None else self._invariants.partitions.get((topic.id.bytes, partition.partition))
                )
                if truth is not None and position.offset < truth.end:
                    found.append(f"{consumer.host.name} is at {position.offset} of {truth.end} of {partition}")
        return found

    def unacknowledged(self, producers: Iterable[SimProducer]) -> list[str]:
        """Return what producers wait for."""
        return [
            f"{producer.host.name} {lane.partition} ({len(lane.unacknowledged)} batches)"
            for producer in producers
            for lane in producer.lanes
            if lane.unacknowledged
        ]


def unsettled(parts: Iterable[Settling]) -> list[str]:
    """Return what groups, or clients with transactions, still have to do."""
    return [words for words in (each.unsettled() for each in parts) if words]


def unread(readers: Iterable[SimConsumer]) -> list[str]:
    """Return where a final read has not reached the end."""
    return [
        f"{each.partition} ({each.offset} of {each.end})"
        for reader in readers
        if not reader.is_at_end
        for each in reader.positions.values()
        if each.end is None or each.offset < each.end
    ]
