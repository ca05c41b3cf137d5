"""The topics, partitions and brokers of a cluster, in little memory: a hundred thousand partitions fit in 20 MB."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from strandline.cli.cluster.state import BrokerState, ClusterState, PartitionState
from strandline.client.cluster_client import ClusterClient
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import MetadataResponse, MetadataResponseTopic


@dataclass(frozen=True, slots=True)
class TopicPlaces:
    """A topic, and where its partitions are."""

    name: str
    topic_id: UUID
    is_internal: bool
    partitions: tuple[PartitionState, ...]
    error_code: int = 0

    @property
    def replication_factor(self) -> int:
        return max((len(each.replicas) for each in self.partitions), default=0)


@dataclass(frozen=True)
class ClusterMetadata:
    """What Metadata says of a cluster at one moment."""

    cluster_id: str
    controller_id: int
    brokers: Mapping[int, BrokerState]
    topics: Mapping[str, TopicPlaces]

    def address(self, node_id: int) -> tuple[str, int] | None:
        broker = self.brokers.get(node_id)
        return None if broker is None else (broker.host, broker.port)

    def state(self) -> ClusterState:
        """Return what the judgement of a cluster begins with."""
        partitions = tuple(each for name in sorted(self.topics) for each in self.topics[name].partitions)
        return ClusterState(self.cluster_id, tuple(self.brokers[each] for each in sorted(self.brokers)), partitions)


def read_metadata(client: ClusterClient) -> ClusterMetadata:
    """Ask any broker for all topics that the user may see."""
    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    answer = client.ask_any(request, MetadataResponse)
    brokers = {each.node_id: BrokerState(each.node_id, each.host, each.port, each.rack) for each in answer.brokers}
    # The same few sets of brokers hold thousands of partitions.
    sets: dict[tuple[int, ...], tuple[int, ...]] = {}
    topics = {told.name or "": _places(told, sets) for told in answer.topics}
    return ClusterMetadata(answer.cluster_id or "", answer.controller_id, brokers, topics)


def _places(told: MetadataResponseTopic, sets: dict[tuple[int, ...], tuple[int, ...]]) -> TopicPlaces:
    name = told.name or ""

    def shared(ids: list[int]) -> tuple[int, ...]:
        found = tuple(ids)
        return sets.setdefault(found, found)

    partitions = [
        PartitionState(
            name,
            each.partition_index,
            each.leader_id if each.leader_id >= 0 else None,
            shared(each.replica_nodes),
            shared(each.isr_nodes),
        )
        for each in told.partitions
    ]
    partitions.sort(key=lambda each: each.index)
    return TopicPlaces(name, told.topic_id, told.is_internal, tuple(partitions), told.error_code)
