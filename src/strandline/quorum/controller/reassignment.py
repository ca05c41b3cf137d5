"""Reassignment: other replicas for a partition, without a moment with fewer than it had.

1. The new replicas join the list (`adding_replicas`), those that shall go stay in it (`removing_replicas`).
2. Followers catch up, and the leader takes them into the in-sync set.
3. When all that shall stay are in sync, the others leave; `PartitionChange` sees to that with the change that makes it
   so. A new order of the same replicas is complete at once.

A second reassignment replaces the first, and cancelling goes back to the replicas from before both. Topics that are
deleted take their reassignments with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.new_topics import check_replicas
from strandline.quorum.controller.partition_changes import Election
from strandline.quorum.controller.state import ControllerState, Decision
from strandline.quorum.image.cluster_image import ClusterImage, PartitionImage, Topic

Asked = tuple[str, int, Sequence[int] | None]
"""Topic, partition, and its replicas; None cancels."""


def is_reassigning(partition: PartitionImage) -> bool:
    return bool(partition.adding_replicas or partition.removing_replicas)


class Reassignments:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def decide(
        self, asked: Sequence[Asked], *, may_change_factor: bool = True
    ) -> Iterator[Decision[RequestError | None]]:
        """Yield for each partition in order its records, and None or why it stays as it is."""
        for topic_name, index, replicas in asked:
            try:
                topic = self._topic(topic_name, index)
                if replicas is None:
                    records = self._cancelled(topic, index)
                else:
                    records = self._begun(topic, index, list(replicas), may_change_factor)
            except RequestError as refusal:
                yield [], refusal
            else:
                yield records, None

    def _topic(self, name: str, index: int) -> Topic:
        topic = self._state.image.topic_by_name(name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find a topic named {name}.")
        if not 0 <= index < len(topic.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Unable to find partition {name}:{index}.")
        return topic

    def _begun(self, topic: Topic, index: int, target: list[int], may_change_factor: bool) -> list[Any]:
        state = self._state
        check_replicas(target, state.image)
        partition = topic.partitions[index]
        original = [each for each in partition.replicas if each not in partition.adding_replicas]
        if not may_change_factor and len(target) != len(original):
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"The replication factor is changed from {len(original)} to {len(target)}",
            )
        change = state.change(topic, index)
        change.removing = sorted(each for each in partition.replicas if each not in target)
        change.replicas = target + change.removing
        change.adding = sorted(each for each in change.replicas if each not in original)
        record = change.record()
        return [] if record is None else state.decided([record])

    def _cancelled(self, topic: Topic, index: int) -> list[Any]:
        state = self._state
        partition = topic.partitions[index]
        if not is_reassigning(partition):
            raise RequestError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
        change = state.change(topic, index)
        change.election = state.election_of(topic)
        change.replicas = [each for each in partition.replicas if each not in partition.adding_replicas]
        if not change.replicas:
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "Invalid replica assignment: addingReplicas contains all replicas.",
            )
        change.isr = [each for each in partition.isr if each not in partition.adding_replicas]
        change.removing = []
        change.adding = []
        eligible = change.isr or [each for each in partition.eligible_leader_replicas or () if each in change.replicas]
        candidates = change.replicas if change.election is Election.UNCLEAN else eligible
        if not any(state.may_lead(partition, each) for each in candidates):
            # Those that were there before have fallen behind, or are away: the partition would be without a leader.
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Unable to revert partition assignment for {topic.name}:{index} because it would require an unclean "
                "leader election.",
            )
        record = change.record()
        return [] if record is None else state.decided([record])


def ongoing(
    image: ClusterImage, asked: Sequence[tuple[str, Sequence[int]]] | None
) -> Iterator[tuple[str, int, PartitionImage] | None]:
    """Yield each partition that is being reassigned; None for each other one."""
    if asked is None:
        asked = [(topic.name, range(len(topic.partitions))) for topic in list(image.topics.values())]
    for name, indexes in asked:
        for index in indexes:
            partition = image.partition(name, index)
            yield (name, index, partition) if partition is not None and is_reassigning(partition) else None
