"""Brokers, leaders and offsets of partitions by our own client: of a cluster of 100,000 partitions, too.

librdkafka's answers are Python objects that are all made at once while every other thread waits: 0.3 s for the metadata
of 100,000 partitions, and a future for each offset. Without a login of ours there is no other way.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from strandline.cli.common.client import Cluster
from strandline.cli.common.conversation import is_spoken
from strandline.cli.common.failures import SECURITY_HINT, CommandFailed, no_answer
from strandline.client.cluster_client import READ_UNCOMMITTED, ClientSettings, ClusterClient
from strandline.client.failures import ClusterFailed, DeadlinePassed
from strandline.client.large_answers import walk_metadata, walk_offsets
from strandline.client.security import NotAdmitted
from strandline.codec.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.codec.messages.metadata_response import MetadataResponseTopic
from strandline.errors import Disconnected, ErrorCode, TimedOut, named

Place = tuple[str, int]

# A broker that does not know a new leader yet answers UNKNOWN_LEADER_EPOCH; one whose log failed leads in name only.
NOT_SERVED: Final = frozenset(
    (
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)
_ATTEMPTS: Final = 3
_PAUSE_S: Final = 0.1
"""Between two attempts while a leader moves."""


@dataclass(frozen=True)
class BrokerAddress:
    """A broker, with the names that librdkafka's has."""

    id: int
    host: str
    port: int


class PartitionPlace(NamedTuple):
    """A partition, with the names that librdkafka's has; `leader` is -1 for none."""

    leader: int
    replicas: tuple[int, ...]
    isrs: tuple[int, ...]


class TopicPlace(NamedTuple):
    """The partitions of a topic, by their numbers."""

    partitions: dict[int, PartitionPlace]


class ClusterPlaces(NamedTuple):
    """The metadata of a whole cluster, with the names that librdkafka's has."""

    cluster_id: str | None
    brokers: dict[int, BrokerAddress]
    topics: dict[str, TopicPlace]


class _Leaders(NamedTuple):
    brokers: dict[int, BrokerAddress]
    topics: dict[str, dict[int, int]]
    """The leader of each partition, -1 for none. Topics that cannot be described are left out."""

    def by_place(self) -> dict[Place, BrokerAddress | None]:
        return {
            (name, index): self.brokers.get(leader)
            for name, leaders in self.topics.items()
            for index, leader in leaders.items()
        }


def brokers_of(cluster: Cluster) -> list[BrokerAddress]:
    """Return the brokers that are up, by their ids."""
    return [broker for _, broker in sorted(_look(cluster, []).brokers.items())]


def leaders_of(cluster: Cluster, topics: Collection[str] | None = None) -> dict[Place, BrokerAddress | None]:
    """Return the broker that leads each partition of these topics, or of all; None where there is none."""
    return _look(cluster, topics).by_place()


def places_of(cluster: Cluster) -> ClusterPlaces:
    """Return where all partitions are. Our own client must be able to log in."""

    def read(body: memoryview, at: int, version: int) -> ClusterPlaces:
        answer = walk_metadata(body, at, version)
        return ClusterPlaces(
            answer.cluster_id or None,
            {each.node_id: BrokerAddress(each.node_id, each.host, each.port) for each in answer.brokers},
            {told.name or "": TopicPlace(_places(told)) for told in answer.topics},
        )

    request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
    with _client(cluster, "cannot read the metadata of the cluster") as client:
        return client.retried("read the metadata", lambda: client.read_any(request, read))


def _places(told: MetadataResponseTopic) -> dict[int, PartitionPlace]:
    return {
        each.partition_index: PartitionPlace(each.leader_id, tuple(each.replica_nodes), tuple(each.isr_nodes))
        for each in sorted(told.partitions, key=lambda each: each.partition_index)
    }


def _look(cluster: Cluster, topics: Collection[str] | None) -> _Leaders:
    if is_spoken(cluster):
        with _client(cluster, "cannot read the metadata of the cluster") as client:
            return client.retried("read the metadata", lambda: _read_leaders(client, topics))
    with cluster.errors("cannot read the metadata of the cluster"):
        metadata = cluster.admin().list_topics(timeout=cluster.timeout_s)
    return _Leaders(
        {each.id: BrokerAddress(each.id, each.host, each.port) for each in metadata.brokers.values()},
        {
            name: {index: each.leader for index, each in sorted(topic.partitions.items())}
            for name, topic in metadata.topics.items()
            if topics is None or name in topics
        },
    )


def _read_leaders(client: ClusterClient, topics: Collection[str] | None) -> _Leaders:
    def read(body: memoryview, at: int, version: int) -> _Leaders:
        answer = walk_metadata(body, at, version)
        return _Leaders(
            {each.node_id: BrokerAddress(each.node_id, each.host, each.port) for each in answer.brokers},
            {
                told.name or "": dict(sorted((each.partition_index, each.leader_id) for each in told.partitions))
                for told in answer.topics
                if told.error_code == ErrorCode.NONE
            },
        )

    asked = None if topics is None else [MetadataRequestTopic(name=each) for each in sorted(topics)]
    return client.read_any(MetadataRequest(topics=asked, allow_auto_topic_creation=False), read)


def offsets_of(
    cluster: Cluster,
    places: Iterable[Place],
    timestamp: int,
    isolation: int = READ_UNCOMMITTED,
    *,
    leaders: Mapping[Place, BrokerAddress | None] | None = None,
) -> dict[Place, int | None]:
    """Return the offset of each place at a timestamp, or at the numbers that stand for the ends of a log.

    It is None where there is no leader, its log failed, or the topic is gone. `leaders` are those of a look just
    before; they are looked up again where they have moved. Our own client must be able to log in.
    """
    found: dict[Place, int | None] = dict.fromkeys(places)
    left = list(found)
    with _client(cluster, "cannot read offsets") as client:
        for attempt in range(_ATTEMPTS):
            if not left:
                break
            if attempt:
                # Nothing tells when another leader is known.
                time.sleep(_PAUSE_S)
            if attempt or leaders is None:
                names = {topic for topic, _ in left}
                leaders = client.retried("read the metadata", partial(_read_leaders, client, names)).by_place()
            left = _ask_leaders(client, leaders, left, found, timestamp, isolation, is_last=attempt == _ATTEMPTS - 1)
    return found


def _ask_leaders(
    client: ClusterClient,
    leaders: Mapping[Place, BrokerAddress | None],
    left: list[Place],
    found: dict[Place, int | None],
    timestamp: int,
    isolation: int,
    *,
    is_last: bool,
) -> list[Place]:
    """Ask all leaders once, side by side, and return the places whose leader has moved or did not answer."""
    led: dict[BrokerAddress, dict[str, list[int]]] = {}
    for topic, partition in left:
        leader = leaders.get((topic, partition))
        if leader is not None:
            led.setdefault(leader, {}).setdefault(topic, []).append(partition)
    requests = {
        (leader.host, leader.port): ListOffsetsRequest(
            replica_id=-1,
            isolation_level=isolation,
            topics=[
                ListOffsetsTopic(name, [ListOffsetsPartition(each, timestamp=timestamp) for each in partitions])
                for name, partitions in topics.items()
            ],
            timeout_ms=int(client.settings.request_timeout_s * 1000),
        )
        for leader, topics in led.items()
    }
    again: list[Place] = []

    def take(view: memoryview, at: int, version: int) -> None:
        for told in walk_offsets(view, at, version):
            for each in told.partitions:
                code = named(each.error_code)
                if code == ErrorCode.NONE:
                    found[told.name, each.partition_index] = each.offset
                elif code in NOT_SERVED:
                    again.append((told.name, each.partition_index))
                else:
                    raise CommandFailed(f"cannot read offsets of {told.name}-{each.partition_index}: {code.name}")

    for address, failure in client.read_each(requests, take).items():
        if failure is not None:
            if is_last:
                raise failure
            again.extend(
                (told.name, each.partition_index) for told in requests[address].topics for each in told.partitions
            )
    return again


@contextmanager
def _client(cluster: Cluster, doing: str) -> Iterator[ClusterClient]:
    """Open our own client; its failures become those of the command."""
    settings = ClientSettings.within(cluster.bootstrap, "strandline-cli", cluster.timeout_s, cluster.security)
    try:
        with closing(ClusterClient(settings)) as client:
            yield client
    except DeadlinePassed as error:
        raise no_answer(cluster.bootstrap, error.last_failure) from None
    except NotAdmitted as error:
        raise CommandFailed(str(error), hint=SECURITY_HINT) from None
    except (Disconnected, TimedOut) as error:
        raise no_answer(cluster.bootstrap, str(error)) from None
    except ClusterFailed as error:
        raise CommandFailed(f"{doing}: {error}") from None
