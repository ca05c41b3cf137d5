"""One new topic: what a request may ask for, and the records that make it so."""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Collection, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar

from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, InvalidConfig, RequestError
from strandline.quorum.controller.placement import place_replicas
from strandline.quorum.controller.prepared_records import RECORDS_PER_SLICE, PreparedRecords
from strandline.quorum.controller.retention_lock import check_lock
from strandline.quorum.controller.topic_names import (
    AUDIT_TOPIC,
    CONSUMER_OFFSETS,
    SHARE_GROUP_STATE,
    TRANSACTION_STATE,
)
from strandline.quorum.controller.topic_tiering import check_tiering_of, origin_of
from strandline.quorum.image.cluster_image import RESOURCE_BROKER, RESOURCE_TOPIC, UNASSIGNED_DIRECTORY, ClusterImage

if TYPE_CHECKING:
    import random

IN_SYNC_MIN: Final = "min.insync.replicas"

Usable = Callable[[int], bool]
"""Whether a broker may lead from now on."""

T = TypeVar("T")
Pauses = Generator[None, None, T]
"""Long work that yields where others may be served; what it made is returned."""


@dataclasses.dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic that is asked for; -1 means the default, an assignment (partition, replicas) replaces both numbers."""

    name: str
    partition_count: int = -1
    replication_factor: int = -1
    assignment: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Sequence[tuple[str, str | None]] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class CreatedTopic:
    name: str
    id: uuid.UUID
    partition_count: int
    replication_factor: int
    config_overrides: dict[str, str]


def partition_count_asked(topic: NewTopic, config: BrokerConfig) -> int:
    """Return how many partitions a request would create; invalid numbers count as 0 and are rejected elsewhere."""
    if topic.assignment:
        return len(topic.assignment)
    return config.num_partitions if topic.partition_count == -1 else max(topic.partition_count, 0)


def new_topic_records(
    topic: NewTopic, *, image: ClusterImage, config: BrokerConfig, rng: random.Random, is_usable: Usable | None = None
) -> Pauses[tuple[list[Any], CreatedTopic]]:
    """Make the records that create `topic`, whose name is free; RequestError with Kafka's code if it may not be.

    If the brokers change during a pause, the records mean nothing: the caller starts over.
    """
    overrides = _checked_configs(topic, image, config)
    is_usable = is_usable or active_in(image)
    if topic.assignment:
        replica_lists = yield from _checked_assignment(topic, image, is_usable)
    else:
        replica_lists = _placed(topic, image, config, rng, is_usable)
    if IN_SYNC_MIN not in overrides and IN_SYNC_MIN not in image.configs.get((RESOURCE_BROKER, ""), ()):
        in_sync_min = config.in_sync_min_of_new_topic(len(replica_lists[0]))
        if in_sync_min is not None:
            overrides[IN_SYNC_MIN] = str(in_sync_min)
    try:
        origin = origin_of(overrides, len(replica_lists), image)
    except InvalidConfig as refusal:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(refusal)) from refusal
    topic_id, leader_epoch = (random_uuid(rng), 0) if origin is None else (origin.topic_id, origin.leader_epoch)
    first: list[Any] = [TopicRecord(name=topic.name, topic_id=topic_id)]
    # The order is Kafka's: a reader of the log knows the configs when the first partition appears.
    first += [
        ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in overrides.items()
    ]
    partitions = (
        partition_record(topic_id, index, replicas, image, is_usable, leader_epoch)
        for index, replicas in enumerate(replica_lists)
    )
    records = yield from in_slices(first, partitions, len(replica_lists))
    return records, CreatedTopic(topic.name, topic_id, len(replica_lists), len(replica_lists[0]), overrides)


def in_slices(first: list[Any], partitions: Iterable[PartitionRecord], count: int) -> Pauses[list[Any]]:
    """Return `first` and the records of `count` partitions; prepared, with pauses, if they are many."""
    if count <= RECORDS_PER_SLICE:
        return [*first, *partitions]
    yield  # Placing them took its time, and what was decided before has to be in the log.
    records = PreparedRecords(first)
    for made, record in enumerate(partitions, 1):
        records.append(record)
        if made % RECORDS_PER_SLICE == 0:
            records.prepare()
            yield
    records.prepare()
    return records


def internal_topic(
    name: str, *, image: ClusterImage, config: BrokerConfig, voter_ids: Collection[int] = ()
) -> NewTopic:
    """Return an internal topic with the node's settings for it; raise while too few brokers are registered.

    The first group of a young cluster asks for it when some nodes are still starting, and its number of replicas stays
    what it was made with. So a setting that was given is kept to the letter, as Kafka does. The default asks for no
    more replicas than there are nodes, and a voter that is no broker yet may be about to register as one.
    """
    if name == CONSUMER_OFFSETS:
        setting, factor = "offsets.topic.replication.factor", config.offsets_topic_replication_factor
    elif name == TRANSACTION_STATE:
        setting, factor = "transaction.state.log.replication.factor", config.transaction_state_log_replication_factor
    elif name == AUDIT_TOPIC:
        setting = "strandline.audit.topic.replication.factor"
        factor = config.strandline_audit_topic_replication_factor
    else:
        assert name == SHARE_GROUP_STATE, name
        setting = "share.coordinator.state.topic.replication.factor"
        factor = config.share_coordinator_state_topic_replication_factor
    if setting not in config.given:
        factor = max(1, min(factor, len({*image.brokers, *voter_ids})))
    if len(image.brokers) < factor:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{name} is to have {factor} replicas, and {len(image.brokers)} brokers are registered. It is created when "
            f"the others are, or with fewer if {setting} says so.",
        )
    return _MAKERS[name](factor, config)


def _offsets_topic(replication_factor: int, config: BrokerConfig) -> NewTopic:
    return NewTopic(
        name=CONSUMER_OFFSETS,
        partition_count=config.offsets_topic_num_partitions,
        replication_factor=replication_factor,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "producer"),
            ("segment.bytes", str(config.offsets_topic_segment_bytes)),
        ),
    )


def _transaction_topic(replication_factor: int, config: BrokerConfig) -> NewTopic:
    return NewTopic(
        name=TRANSACTION_STATE,
        partition_count=config.transaction_state_log_num_partitions,
        replication_factor=replication_factor,
        configs=(
            ("cleanup.policy", "compact"),
            ("compression.type", "uncompressed"),
            # Markers follow a decision within a millisecond: one that a power cut takes back cannot be told to some
            # partitions and not to others.
            ("flush.mode", "ack"),
            (IN_SYNC_MIN, str(config.transaction_state_log_min_isr)),
            ("segment.bytes", str(config.transaction_state_log_segment_bytes)),
            ("unclean.leader.election.enable", "false"),
        ),
    )


def _audit_topic(replication_factor: int, config: BrokerConfig) -> NewTopic:
    return NewTopic(
        name=AUDIT_TOPIC,
        # One, so that the lines of all nodes have an order.
        partition_count=1,
        replication_factor=replication_factor,
        configs=(
            ("cleanup.policy", "delete"),
            ("retention.ms", str(config.strandline_audit_retention_ms)),
            ("retention.bytes", "-1"),
            ("unclean.leader.election.enable", "false"),
        ),
    )


def _share_topic(replication_factor: int, config: BrokerConfig) -> NewTopic:
    return NewTopic(
        name=SHARE_GROUP_STATE,
        partition_count=config.share_coordinator_state_topic_num_partitions,
        replication_factor=replication_factor,
        configs=(
            # The coordinator removes what is not needed any more: updates cannot be compacted by their keys.
            ("cleanup.policy", "delete"),
            ("compression.type", "producer"),
            (IN_SYNC_MIN, str(config.share_coordinator_state_topic_min_isr)),
            # Whatever the defaults of this cluster's topics are: a state has no age, and the log stays short.
            ("retention.bytes", "-1"),
            ("retention.ms", "-1"),
            ("segment.bytes", str(config.share_coordinator_state_topic_segment_bytes)),
        ),
    )


_MAKERS: Final = {
    CONSUMER_OFFSETS: _offsets_topic,
    TRANSACTION_STATE: _transaction_topic,
    AUDIT_TOPIC: _audit_topic,
    SHARE_GROUP_STATE: _share_topic,
}


def random_uuid(rng: random.Random) -> uuid.UUID:
    """A random UUID, of Kafka's kind: not one of the reserved ones, and its text does not begin with a dash, which a
    command line would take for an option."""
    while True:
        candidate = uuid.UUID(int=rng.getrandbits(128), version=4)
        if candidate.int > 1 and candidate.bytes[0] >> 2 != 0b111110:
            return candidate


def _checked_configs(topic: NewTopic, image: ClusterImage, config: BrokerConfig) -> dict[str, str]:
    null_names = [name for name, value in topic.configs if value is None]
    if null_names:
        message = f"Null value not supported for topic configs: {','.join(null_names)}"
        raise RequestError(ErrorCode.INVALID_CONFIG, message)
    overrides = {name: value for name, value in topic.configs if value is not None}
    try:
        asked = config.topic_config(overrides)
        check_lock(topic.name, asked, image=image, config=config)
        check_tiering_of(topic.name, asked, image=image, config=config)
    except InvalidConfig as refusal:
        raise RequestError(ErrorCode.INVALID_CONFIG, str(refusal)) from refusal
    return overrides


def _placed(
    topic: NewTopic, image: ClusterImage, config: BrokerConfig, rng: random.Random, is_usable: Usable
) -> list[list[int]]:
    if topic.replication_factor < -1 or topic.replication_factor == 0:
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if topic.partition_count < -1 or topic.partition_count == 0:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
        )
    return place_replicas(
        image.brokers.values(),
        partition_count=partition_count_asked(topic, config),
        replication_factor=(
            config.replication_factor_of_new_topics(len(image.brokers))
            if topic.replication_factor == -1
            else topic.replication_factor
        ),
        rng=rng,
        is_usable=is_usable,
    )


def _checked_assignment(topic: NewTopic, image: ClusterImage, is_usable: Usable) -> Pauses[list[list[int]]]:
    for number, name in ((topic.replication_factor, "replication factor"), (topic.partition_count, "numPartitions")):
        if number != -1:
            message = f"A manual partition assignment was specified, but {name} was not set to -1."
            raise RequestError(ErrorCode.INVALID_REQUEST, message)
    assigned: dict[int, list[int]] = {}
    for index, replicas in topic.assignment:
        if index in assigned:
            raise bad_assignment(f"Found multiple manual partition assignments for partition {index}")
        check_replicas(list(replicas), image)
        check_usable(list(replicas), index, is_usable)
        assigned[index] = list(replicas)
        if len(assigned) % RECORDS_PER_SLICE == 0:
            yield
    if sorted(assigned) != list(range(len(assigned))):
        raise bad_assignment("partitions should be a consecutive 0-based integer sequence")
    sizes = {len(replicas) for replicas in assigned.values()}
    if len(sizes) > 1:
        raise bad_assignment("The manual partition assignment gives partitions different numbers of replicas.")
    return [assigned[index] for index in range(len(assigned))]


def check_replicas(replicas: list[int], image: ClusterImage) -> None:
    """Raise RequestError if a partition may not have these replicas; that one of them can lead is not checked."""
    if not replicas:
        raise bad_assignment("The manual partition assignment includes an empty replica list.")
    for broker_id in replicas:
        if broker_id not in image.brokers:
            raise bad_assignment(
                f"The manual partition assignment includes broker {broker_id}, but no such broker is registered."
            )
    if len(set(replicas)) < len(replicas):
        raise bad_assignment("The manual partition assignment includes a broker more than once.")


def check_usable(replicas: list[int], index: int, is_usable: Usable) -> None:
    """Return whether a new partition with these replicas would have a leader."""
    if not any(map(is_usable, replicas)):
        raise bad_assignment(
            f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
            "controlled shutdown."
        )


def bad_assignment(message: str) -> RequestError:
    return RequestError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)


def partition_record(
    topic_id: uuid.UUID,
    index: int,
    replicas: list[int],
    image: ClusterImage,
    is_usable: Usable,
    leader_epoch: int = 0,
) -> PartitionRecord:
    in_sync = [broker_id for broker_id in replicas if is_usable(broker_id)]
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=in_sync,
        leader=in_sync[0],
        leader_epoch=leader_epoch,
        partition_epoch=0,
        directories=[_directory(broker_id, image) for broker_id in replicas],
    )


def active_in(image: ClusterImage) -> Usable:
    return lambda broker_id: image.brokers[broker_id].is_active


def _directory(broker_id: int, image: ClusterImage) -> uuid.UUID:
    """Return the log directory of a new replica: the only one of the broker, or the id that lets it choose."""
    log_dirs = image.brokers[broker_id].registration.log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIRECTORY
