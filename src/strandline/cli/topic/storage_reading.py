"""Asks brokers how the logs of a topic lie on their disks (DescribeStorage), which only Strandline's tell.

Every broker with a replica is asked, for each deletes, cleans and scrubs its own files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import Conversation, is_spoken
from strandline.cli.common.failures import Unreachable
from strandline.cli.common.partition_places import brokers_of
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest, StorageTopic
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse, StoredPartition
from strandline.errors import ErrorCode


@dataclass(frozen=True)
class StoredReplica:
    """The log of a partition on one broker, and what that broker says of itself."""

    part: StoredPartition
    node: DescribeStorageResponse

    @property
    def name(self) -> str:
        return f"{self.part.topic}-{self.part.partition}"

    @property
    def is_being_recovered(self) -> bool:
        return self.part.error_code == ErrorCode.REPLICA_NOT_AVAILABLE


@dataclass
class Storage:
    replicas: list[StoredReplica] = field(default_factory=list)
    """By topic and partition, the leader before the followers."""
    silent: dict[int, str] = field(default_factory=dict)
    """Brokers that hold replicas and could not be asked, each with the reason."""
    is_known: bool = True
    """Whether the cluster tells of its storage at all: others than Strandline do not."""

    def leaders(self) -> list[StoredReplica]:
        return [replica for replica in self.replicas if replica.part.is_leader]


def read_storage(
    cluster: Cluster, topics: Iterable[Any], *, partitions: Iterable[int] | None = None, with_segments: bool = True
) -> Storage:
    """Of all replicas of `topics` (librdkafka's descriptions), or of some of their partitions."""
    if not is_spoken(cluster):
        return Storage(is_known=False)
    chosen = None if partitions is None else set(partitions)
    wanted: dict[int, dict[str, list[int]]] = {}
    for topic in topics:
        for partition in topic.partitions:
            if chosen is None or partition.id in chosen:
                for replica in partition.replicas:
                    wanted.setdefault(replica.id, {}).setdefault(topic.name, []).append(partition.id)
    return _ask_all(cluster, wanted, with_segments=with_segments)


def _ask_all(cluster: Cluster, wanted: dict[int, dict[str, list[int]]], *, with_segments: bool) -> Storage:
    addresses = {broker.id: (broker.host, broker.port) for broker in brokers_of(cluster)}
    found = Storage()
    for broker_id, topics in sorted(wanted.items()):
        if broker_id not in addresses:
            found.silent[broker_id] = "it is down"
            continue
        request = DescribeStorageRequest(
            topics=[StorageTopic(topic=name, partitions=numbers) for name, numbers in topics.items()],
            include_segments=with_segments,
        )
        try:
            with Conversation(*addresses[broker_id], cluster.timeout_s, cluster.security) as conversation:
                answer = conversation.ask(request, DescribeStorageResponse)
        except Unreachable as failure:
            found.silent[broker_id] = why_unreachable(failure)
            continue
        if answer is None:
            return Storage(is_known=False)
        found.replicas += [StoredReplica(part, answer) for part in answer.partitions]
    found.replicas.sort(key=_place)
    return found


def why_unreachable(failure: Unreachable) -> str:
    """Return the message without the question whether a node is running, because others are."""
    return failure.message.removesuffix(": is a node running?")


def _place(replica: StoredReplica) -> tuple[str, int, bool, int]:
    return replica.part.topic, replica.part.partition, not replica.part.is_leader, replica.node.node_id
