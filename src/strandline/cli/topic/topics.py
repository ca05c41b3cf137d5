"""What the topic verbs ask of a cluster: topics, their offsets and their sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from strandline.cli.common.client import Cluster, admin_api, kafka_api
from strandline.cli.common.conversation import converse, is_spoken
from strandline.cli.common.failures import NotFound, topic_not_found
from strandline.cli.common.partition_places import BrokerAddress, offsets_of
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import known_topics
from strandline.client.cluster_client import READ_UNCOMMITTED

# Log start offset and high watermark; None for a partition without a leader.
OffsetRange = tuple[int | None, int | None]

# Errors of librdkafka's list; `partition_places` has the reasons.
_NOT_SERVED = (
    "LEADER_NOT_AVAILABLE",
    "NOT_LEADER_FOR_PARTITION",
    "UNKNOWN_LEADER_EPOCH",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
)
_UNKNOWN = ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC")


def described_all(cluster: Cluster, admin: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return librdkafka's `TopicDescription` of each topic; raise for the first that does not exist."""
    kafka, wanted = kafka_api(), list(dict.fromkeys(names))
    found: dict[str, Any] = {}
    if not wanted:
        return found
    with cluster.errors("cannot describe topics"):
        answers = admin.describe_topics(kafka.TopicCollection(wanted), request_timeout=cluster.timeout_s)
        for name in wanted:
            try:
                found[name] = answers[name].result()
            except kafka.KafkaException as error:
                if error.args[0].name() in _UNKNOWN:
                    raise topic_not_found(name, known_topics(cluster, admin)) from error
                raise
    return found


def described(cluster: Cluster, admin: Any, name: str) -> Any:
    return described_all(cluster, admin, [name])[name]


def chosen_partitions(topic: Any, wanted: list[int] | None) -> list[int]:
    """Return the partitions of a topic that a command works on: those named, which must exist, or all."""
    existing = sorted(partition.id for partition in topic.partitions)
    missing = set(wanted or []) - set(existing)
    if missing:
        there = f"it has {count(len(existing), 'partition')}, 0 to {existing[-1]}"
        raise NotFound(f"topic {topic.name!r} has no partition {min(missing)}", hint=there)
    return sorted(set(wanted)) if wanted else existing


def offset_ranges(cluster: Cluster, admin: Any, topics: Iterable[Any]) -> dict[tuple[str, int], OffsetRange]:
    """By topic and partition."""
    places = [(topic.name, partition.id) for topic in topics for partition in topic.partitions]
    spec_of = admin_api().OffsetSpec
    starts = look_up_offsets(cluster, admin, places, spec_of.earliest())
    ends = look_up_offsets(cluster, admin, places, spec_of.latest())
    return {place: (starts[place], ends[place]) for place in places}


def look_up_offsets(
    cluster: Cluster,
    admin: Any,
    places: list[tuple[str, int]],
    spec: Any,
    *,
    leaders: Mapping[tuple[str, int], BrokerAddress | None] | None = None,
    **options: Any,
) -> dict[tuple[str, int], int | None]:
    """Return the offset of each partition that `spec` asks for; None if it has no leader, or its log failed.

    `leaders` are those of a look just before, which saves another one.
    """
    if not places:
        return {}
    if is_spoken(cluster):
        isolation = options.get("isolation_level")
        level = READ_UNCOMMITTED if isolation is None else isolation.value
        return offsets_of(cluster, places, spec._value, level, leaders=leaders)
    kafka = kafka_api()
    found: dict[tuple[str, int], int | None] = {}
    wanted = {kafka.TopicPartition(topic, partition): spec for topic, partition in places}
    with cluster.errors("cannot read offsets"):
        for place, future in admin.list_offsets(wanted, request_timeout=cluster.timeout_s, **options).items():
            try:
                found[place.topic, place.partition] = told_offset(future)
            except kafka.KafkaException as error:
                if error.args[0].name() not in _NOT_SERVED:
                    raise
                found[place.topic, place.partition] = None
    return found


def told_offset(future: Any) -> int:
    """Return an offset that an AdminClient got. If the leader died meanwhile it is negative, without an error."""
    offset: int = future.result().offset
    kafka = kafka_api()
    if offset == kafka.OFFSET_INVALID:
        raise kafka.KafkaException(kafka.KafkaError(kafka.KafkaError._TIMED_OUT))
    return offset


def records_between(ranges: Iterable[OffsetRange]) -> int:
    return sum(end - start for start, end in ranges if start is not None and end is not None)


def log_sizes(cluster: Cluster, topic: Any) -> dict[int, int] | None:
    """Bytes of each partition on its leader's disk; None where the cluster does not tell."""
    from strandline.codec.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
    from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse

    led_by: dict[int, list[Any]] = {}
    for partition in topic.partitions:
        if partition.leader is not None:
            led_by.setdefault(partition.leader.id, []).append(partition)
    sizes: dict[int, int] = {}
    for led in led_by.values():
        wanted = DescribableLogDirTopic(topic=topic.name, partitions=[partition.id for partition in led])
        conversation = converse(cluster, led[0].leader)
        if conversation is None:
            return None
        with conversation:
            answer = conversation.ask(DescribeLogDirsRequest(topics=[wanted]), DescribeLogDirsResponse)
        if answer is None:
            return None
        for directory in answer.results:
            for found in directory.topics:
                sizes.update({p.partition_index: p.partition_size for p in found.partitions if not p.is_future_key})
    return sizes


class ReplicaSize(NamedTuple):
    """One replica as DescribeLogDirs has it."""

    partition: int
    broker: int
    directory: str
    size_bytes: int
    offset_lag: int
    is_future: bool
    """Whether it is on its way from another directory of the broker."""


def replica_sizes(cluster: Cluster, topic: Any) -> list[ReplicaSize] | None:
    """Every replica on every broker that answers; None where the cluster does not tell."""
    from strandline.codec.messages.describe_log_dirs_request import DescribableLogDirTopic, DescribeLogDirsRequest
    from strandline.codec.messages.describe_log_dirs_response import DescribeLogDirsResponse

    nodes = {node.id: node for partition in topic.partitions for node in partition.isr}
    sizes: list[ReplicaSize] = []
    for broker_id, node in sorted(nodes.items()):
        held = [each.id for each in topic.partitions if any(replica.id == broker_id for replica in each.replicas)]
        conversation = converse(cluster, node)
        if conversation is None:
            return None
        wanted = DescribableLogDirTopic(topic=topic.name, partitions=held)
        with conversation:
            answer = conversation.ask(DescribeLogDirsRequest(topics=[wanted]), DescribeLogDirsResponse)
        if answer is None:
            return None
        for directory in answer.results:
            sizes += [
                ReplicaSize(
                    found.partition_index,
                    broker_id,
                    directory.log_dir,
                    found.partition_size,
                    found.offset_lag,
                    found.is_future_key,
                )
                for each in directory.topics
                for found in each.partitions
            ]
    return sorted(sizes)


def topic_id(topic: Any) -> str:
    # librdkafka prints the id in base64 with + and /, while Kafka's own tools and files use the URL-safe letters.
    return str(topic.topic_id).replace("+", "-").replace("/", "_")
