"""More partitions for a topic: what a request may ask for, and the records that make it so."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.new_topics import (
    Pauses,
    Usable,
    active_in,
    bad_assignment,
    check_replicas,
    check_usable,
    in_slices,
    partition_record,
)
from strandline.quorum.controller.placement import place_replicas
from strandline.quorum.controller.prepared_records import RECORDS_PER_SLICE
from strandline.quorum.controller.topic_names import is_internal
from strandline.quorum.image.cluster_image import ClusterImage, Topic

if TYPE_CHECKING:
    import random


@dataclasses.dataclass(frozen=True, slots=True)
class MorePartitions:
    """A topic that shall have `count` partitions; `assignments` are the replicas of the new ones, None: anywhere."""

    name: str
    count: int
    assignments: Sequence[Sequence[int]] | None = None


def added_count(asked: MorePartitions, image: ClusterImage) -> int:
    """Return how many partitions a request would add; invalid numbers count as 0 and are rejected elsewhere."""
    topic = image.topic_by_name(asked.name)
    return 0 if topic is None else max(0, asked.count - len(topic.partitions))


def new_partition_records(
    asked: MorePartitions, *, image: ClusterImage, rng: random.Random, is_usable: Usable | None = None
) -> Pauses[list[Any]]:
    """Make the records that add the partitions; RequestError with Kafka's code if they may not be.

    If the topic or the brokers change during a pause, the records mean nothing: the caller starts over.
    """
    topic = image.topic_by_name(asked.name)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This server does not host this topic-partition.")
    if is_internal(asked.name):
        # Which partition keeps a group's offsets follows from their number: with another number they are not found.
        raise RequestError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"The number of partitions of internal topic {asked.name} is fixed."
        )
    present = len(topic.partitions)
    if asked.count == present:
        raise RequestError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if asked.count < present:
        raise RequestError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {asked.name} currently has {present} partition(s); {asked.count} would not be an increase.",
        )
    is_usable = is_usable or active_in(image)
    replica_lists = yield from _replica_lists(asked, topic, image, rng, is_usable)
    partitions = (
        partition_record(topic.id, index, replicas, image, is_usable)
        for index, replicas in enumerate(replica_lists, present)
    )
    return (yield from in_slices([], partitions, len(replica_lists)))


def _replica_lists(
    asked: MorePartitions, topic: Topic, image: ClusterImage, rng: random.Random, is_usable: Usable
) -> Pauses[list[list[int]]]:
    additional = asked.count - len(topic.partitions)
    replication_factor = len(topic.partitions[0].replicas)
    if asked.assignments is None:
        return place_replicas(
            image.brokers.values(),
            partition_count=additional,
            replication_factor=replication_factor,
            rng=rng,
            is_usable=is_usable,
        )
    if len(asked.assignments) != additional:
        raise bad_assignment(
            f"Attempted to add {additional} additional partition(s), but only {len(asked.assignments)} assignment(s) "
            "were specified."
        )
    replica_lists = [list(replicas) for replicas in asked.assignments]
    for index, replicas in enumerate(replica_lists, len(topic.partitions)):
        check_replicas(replicas, image)
        if len(replicas) != replication_factor:
            raise bad_assignment(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {replication_factor} replica(s)."
            )
        check_usable(replicas, index, is_usable)
        if index % RECORDS_PER_SLICE == 0:
            yield
    return replica_lists
