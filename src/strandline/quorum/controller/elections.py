"""Leaders: who leads after a broker came or went, and what ElectLeaders asks for.

Everything that goes through many partitions comes in steps (`ControllerState.change_partitions`). While a broker is
taken out step by step it is in `leaving`, so that it is neither elected nor put back into an in-sync set.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final

from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.partition_changes import Election, PartitionChange
from strandline.quorum.controller.state import ControllerState, Decision, Steps, Then
from strandline.quorum.image.cluster_image import NO_LEADER, PartitionImage

# Election types of the protocol.
ELECT_PREFERRED: Final = 0
ELECT_UNCLEAN: Final = 1


def _nothing(before: int) -> list[Any]:
    return []


class Elections:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    # A broker goes or comes.

    def leave(self, broker_id: int, then: Then = _nothing) -> Steps[None]:
        """Take the broker out of in-sync sets and leaderships; `then` is decided when nothing is left.

        Its records come with the last step, so that they are committed after all the others: a controller that dies
        in between leaves a broker that is still to be fenced, not a fenced one that still leads.
        """

        def concerns(partition: PartitionImage) -> bool:
            return broker_id in partition.isr or partition.leader == broker_id

        def change(asked: PartitionChange) -> PartitionChangeRecord | None:
            asked.isr = [each for each in asked.partition.isr if each != broker_id]
            return asked.record()

        return self._leaving(broker_id, concerns, change, then)

    def lose(self, broker_id: int, then: Then = _nothing) -> Steps[None]:
        """Take out a broker as `leave`, and out of the ELR as well, because it may have lost records."""

        def concerns(partition: PartitionImage) -> bool:
            return (
                broker_id in partition.isr
                or partition.leader == broker_id
                or broker_id in (partition.eligible_leader_replicas or ())
            )

        def change(asked: PartitionChange) -> PartitionChangeRecord | None:
            asked.isr = [each for each in asked.partition.isr if each != broker_id]
            asked.unclean_shutdown = broker_id
            return asked.record()

        return self._leaving(broker_id, concerns, change, then)

    def _leaving(
        self,
        broker_id: int,
        concerns: Callable[[PartitionImage], bool],
        change: Callable[[PartitionChange], PartitionChangeRecord | None],
        then: Then,
    ) -> Steps[None]:
        leaving = self._state.leaving
        leaving[broker_id] = leaving.get(broker_id, 0) + 1
        is_left = False

        def leave_be() -> None:
            nonlocal is_left
            if not is_left:
                is_left = True
                leaving[broker_id] -= 1
                if not leaving[broker_id]:
                    del leaving[broker_id]

        def last(before: int) -> list[Any]:
            leave_be()
            return then(before)

        try:
            yield from self._state.change_partitions(concerns, change, last)
        finally:
            leave_be()

    def evacuate(self, broker_id: int, directories: frozenset[uuid.UUID]) -> Steps[None]:
        """Move leaderships and in-sync places away from directories that are offline.

        Where no other replica can lead, the leader stays: records can still be read from a full disk.
        """

        def concerns(partition: PartitionImage) -> bool:
            if broker_id not in partition.isr and partition.leader != broker_id:
                return False
            held = dict(zip(partition.replicas, partition.directories, strict=False))
            return held.get(broker_id) in directories

        def change(asked: PartitionChange) -> PartitionChangeRecord | None:
            asked.isr = [each for each in asked.partition.isr if each != broker_id]
            asked.election = Election.ONLINE
            record = asked.record() if asked.isr else None
            return None if record is None or record.leader == NO_LEADER else record

        return self._state.change_partitions(concerns, change)

    def elect_leaderless(self) -> Steps[None]:
        """Elect a leader for every partition without one, or with one that may not lead, if a replica can."""

        def concerns(partition: PartitionImage) -> bool:
            return partition.leader < 0 or not self._is_led(partition)

        return self._state.change_partitions(concerns, PartitionChange.record)

    def _is_led(self, partition: PartitionImage) -> bool:
        broker = self._state.image.brokers.get(partition.leader)
        return broker is not None and broker.is_active

    def elect_preferred(self) -> Steps[None]:
        """Leadership back to the first replica, wherever it may lead."""
        state = self._state

        def concerns(partition: PartitionImage) -> bool:
            preferred = partition.replicas[0]
            return partition.leader != preferred and preferred in partition.isr and state.may_lead(partition, preferred)

        def change(asked: PartitionChange) -> PartitionChangeRecord | None:
            asked.election = Election.PREFERRED
            return asked.record()

        return state.change_partitions(concerns, change)

    # On request.

    def decide(
        self, election_type: int, asked: list[tuple[str, list[int]]] | None
    ) -> Iterator[Decision[tuple[str, int, RequestError | None] | None]]:
        """Yield (topic, index, outcome) for each partition; None asks for all, and yields only those that change.

        A decision without an outcome only lets other requests be served.
        """
        everything = asked is None
        if asked is None:
            topics = list(self._state.image.topics.values())
            asked = [(topic.name, list(range(len(topic.partitions)))) for topic in topics]
        return self._decide(election_type, asked, everything)

    def _decide(
        self, election_type: int, asked: list[tuple[str, list[int]]], everything: bool
    ) -> Iterator[Decision[tuple[str, int, RequestError | None] | None]]:
        for topic_name, indexes in asked:
            for index in indexes:
                records, refusal = self._elect(topic_name, index, election_type)
                if everything and refusal is not None and refusal.code == ErrorCode.ELECTION_NOT_NEEDED:
                    yield records, None
                else:
                    yield records, (topic_name, index, refusal)

    def _elect(self, topic_name: str, index: int, election_type: int) -> Decision[RequestError | None]:
        try:
            return self._elected(topic_name, index, election_type), None
        except RequestError as refusal:
            return [], refusal

    def _elected(self, topic_name: str, index: int, election_type: int) -> list[Any]:
        topic = self._state.image.topic_by_name(topic_name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {topic_name}")
        if not 0 <= index < len(topic.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {topic_name}-{index}")
        partition = topic.partitions[index]
        is_unclean = election_type == ELECT_UNCLEAN
        if partition.leader >= 0 if is_unclean else partition.leader == partition.replicas[0]:
            raise RequestError(ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
        change = self._state.change(topic, index)
        change.election = Election.UNCLEAN if is_unclean else Election.PREFERRED
        record = change.record()
        if record is None:
            if is_unclean:
                raise RequestError(
                    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
                    "Eligible topic partition leaders are not available.",
                )
            raise RequestError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
        return self._state.decided([record])
