"""A member of the consumer protocol (KIP-848) in the simulation: it says that it lives, and is told what to own.

Told to own something else it first commits and lets go of what it loses, then says what it owns now; what it gains it
reads from where the group stands. After an answer that got lost it says everything once more, as real clients do.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final
from uuid import UUID

from tests.simulator.clients.member import SimMember

from strandline.codec.messages.consumer_group_heartbeat_request import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from strandline.codec.messages.consumer_group_heartbeat_response import Assignment, ConsumerGroupHeartbeatResponse
from strandline.errors import ErrorCode
from strandline.ids import TopicPartition

HEARTBEAT_VERSION: Final = 1
JOINING: Final = 0
LEAVING: Final = -1
LEAVING_FOR_A_WHILE: Final = -2


class SimConsumerMember(SimMember):
    fenced_by: ClassVar[tuple[ErrorCode, ...]] = (
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.GROUP_ID_NOT_FOUND,
    )
    names_itself: ClassVar[bool] = True
    assignor: str | None = None
    _target: tuple[TopicPartition, ...] = ()
    """What the coordinator last said that it may own."""
    _owns: tuple[TopicPartition, ...] = ()
    """What it says that it owns."""
    _epoch: int = JOINING
    _is_beating: bool = False
    _is_revoking: bool = False
    _says_all: bool = True
    """Whether the next heartbeat must say everything."""
    _says_owned: bool = False
    _beat: int = 0
    """Grows with each heartbeat, so that of several that are due one is sent."""
    _interval_s: float = 1.0

    @property
    def is_reconciled(self) -> bool:
        """Whether the coordinator has been told all that it wants to hear."""
        return self.generation > 0 and not (self._is_revoking or self._says_owned or self._says_all)

    def begin(self) -> None:
        self.member_id = str(UUID(int=self.random.getrandbits(128), version=4))
        self._heartbeat()

    def wants(self, partition: TopicPartition) -> bool:
        return partition in self._owns

    def on_fenced(self) -> None:
        self._owns = self._target = ()
        self.claim(self._owns)
        self._epoch, self.generation = JOINING, -1
        self._is_beating = self._is_revoking = self._says_owned = False
        self._says_all = True
        self._heartbeat()

    # Saying that it lives

    def _heartbeat_at(self, delay_s: float) -> None:
        self._beat += 1
        self._in_term(delay_s, self._heartbeat_if, self._beat)

    def _heartbeat_if(self, beat: int) -> None:
        if beat == self._beat:
            self._heartbeat()

    def _heartbeat(self) -> None:
        if self._is_beating:
            # What is to be said now is said as soon as the answer is there.
            return
        self._is_beating = True
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=self._epoch, instance_id=self.instance_id
        )
        if self._says_all:
            request.rebalance_timeout_ms = int(self.manners.rebalance_timeout_s * 1000)
            request.subscribed_topic_names = list(self.topics)
            request.server_assignor = self.assignor
        if self._says_all or self._says_owned:
            request.topic_partitions = self._named(self._owns)
        self._says_all = self._says_owned = False
        owns = self._owns

        def on_answer(answer: ConsumerGroupHeartbeatResponse | None) -> None:
            self._is_beating = False
            self._on_heartbeat(answer, has_said=owns)

        self.ask_coordinator(request, HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse, on_answer)

    def _named(self, partitions: Iterable[TopicPartition]) -> list[TopicPartitions]:
        topics: dict[UUID, TopicPartitions] = {}
        for partition in partitions:
            topic_id = self.known[partition].topic_id
            topics.setdefault(topic_id, TopicPartitions(topic_id=topic_id)).partitions.append(partition.partition)
        return list(topics.values())

    def _on_heartbeat(
        self, answer: ConsumerGroupHeartbeatResponse | None, *, has_said: tuple[TopicPartition, ...]
    ) -> None:
        code = ErrorCode.REQUEST_TIMED_OUT if answer is None else answer.error_code
        if answer is None or code:
            # Whether it arrived is unknown, and the answer is lost.
            self._says_all = True
        if answer is None or self.is_elsewhere(code):
            self._heartbeat_at(0.3 * self.random.random())
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            self.end()
        elif code in self.fenced_by:
            self.lose()
        elif code:
            # Another life of this static member is still in its place, or something that passes.
            self._heartbeat_at(self._interval_s)
        else:
            self._on_told(answer)
            is_due = self._says_owned or self._owns != has_said
            self._says_owned = is_due
            self._heartbeat_at(0.0 if is_due else self._interval_s * (0.9 + 0.2 * self.random.random()))

    def _on_told(self, answer: ConsumerGroupHeartbeatResponse) -> None:
        if answer.member_epoch != self._epoch:
            self.send_late()
        self._epoch = self.generation = answer.member_epoch
        self._interval_s = answer.heartbeat_interval_ms / 1000
        if answer.assignment is not None:
            self._target = self._understand(answer.assignment)
            self._reconcile()

    def _understand(self, assignment: Assignment) -> tuple[TopicPartition, ...]:
        told = frozenset((topic.topic_id, index) for topic in assignment.topic_partitions for index in topic.partitions)
        self.truth.on_assignment(self.group, self.member_id, self._epoch, told)
        places = {(known.topic_id, each.partition): each for each, known in self.known.items()}
        return tuple(sorted(places[place] for place in told if place in places))

    # Owning what it is told to

    def _reconcile(self) -> None:
        if self._is_revoking:
            return
        if any(each not in self._target for each in self._owns):
            self._is_revoking = True
            self.commit(self._on_revoked)
        elif self._owns != self._target:
            self._own(self._target)

    def _on_revoked(self) -> None:
        self._is_revoking = False
        # The target may have changed meanwhile: what comes back was never given up.
        self._own(self._target)

    def _own(self, partitions: tuple[TopicPartition, ...]) -> None:
        self._owns = partitions
        self.claim(self._owns)
        self._says_owned = True
        self.take(partitions)
        self._heartbeat()

    def leave(self) -> None:
        self.commit(self._leave)

    def _leave(self) -> None:
        epoch = LEAVING if self.instance_id is None else LEAVING_FOR_A_WHILE
        request = ConsumerGroupHeartbeatRequest(
            group_id=self.group, member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.give_up()
        self._owns = ()
        self.claim(self._owns)
        self.ask_coordinator(request, HEARTBEAT_VERSION, ConsumerGroupHeartbeatResponse, lambda _: self.end())
