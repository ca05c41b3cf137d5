"""AlterPartition: a leader asks for another in-sync set.

A compare-and-set on the partition epoch (KIP-497): what the leader believes must be what is decided, or it learns the
newer state first. No broker enters the set that is fenced, shuts down or is another incarnation than the leader knows
(KIP-841, KIP-903): a broker that came back empty must not become a member by a request from before it died.

A leader that asks for the set that is decided already says that it knows of it: see `partition_changes`.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from strandline.codec.messages.alter_partition_request import AlterPartitionRequest
from strandline.codec.messages.alter_partition_request import PartitionData as Asked
from strandline.codec.messages.alter_partition_response import PartitionData
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.partition_changes import RECOVERED, RECOVERING
from strandline.quorum.controller.state import ControllerState, Decision
from strandline.quorum.image.cluster_image import NO_LEADER_CHANGE, PartitionImage

EPOCHS_FROM = 3
"""From this version on, members of the in-sync set are named with their broker epochs."""

UNKNOWN_EPOCH = -1
"""The leader does not know the epoch: it is not compared."""


class InSyncChanges:
    def __init__(self, state: ControllerState) -> None:
        self._state = state

    def decide(
        self, request: AlterPartitionRequest, version: int
    ) -> Iterator[Decision[tuple[uuid.UUID, PartitionData]]]:
        """Yield for each partition its records and its part of the response; raise for another incarnation."""
        self._state.broker(request.broker_id, request.broker_epoch)
        for topic in request.topics:
            for asked in topic.partitions:
                members = (
                    [(each.broker_id, each.broker_epoch) for each in asked.new_isr_with_epochs]
                    if version >= EPOCHS_FROM
                    else [(broker_id, UNKNOWN_EPOCH) for broker_id in asked.new_isr]
                )
                try:
                    # Asked again with every partition: between two of them the broker may have been fenced off.
                    self._state.broker(request.broker_id, request.broker_epoch)
                    records, answer = self._changed(request.broker_id, topic.topic_id, asked, members)
                except RequestError as refusal:
                    yield [], (topic.topic_id, PartitionData(asked.partition_index, error_code=refusal.code))
                else:
                    yield records, (topic.topic_id, answer)

    def _changed(
        self, leader_id: int, topic_id: uuid.UUID, asked: Asked, members: list[tuple[int, int]]
    ) -> Decision[PartitionData]:
        state = self._state
        topic = state.image.topic_by_id(topic_id)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id does not exist.")
        index = asked.partition_index
        if not 0 <= index < len(topic.partitions):
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This partition does not exist.")
        self._check(topic.partitions[index], leader_id, asked, members)
        change = state.change(topic, index)
        change.election = state.election_of(topic)
        change.isr = [broker_id for broker_id, _ in members]
        change.is_asked_by_leader = True
        change.leader_recovery_state = asked.leader_recovery_state
        record = change.record()
        records = [] if record is None else state.decided([record])
        if record is not None and record.leader not in (leader_id, NO_LEADER_CHANGE):
            # The set completed a reassignment, and the leader was among those that it removes.
            return records, PartitionData(index, error_code=ErrorCode.NEW_LEADER_ELECTED)
        partition = topic.partitions[index]
        return records, PartitionData(
            index,
            leader_id=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=partition.isr,
            leader_recovery_state=partition.leader_recovery_state,
            partition_epoch=partition.partition_epoch,
        )

    def _check(self, partition: PartitionImage, leader_id: int, asked: Asked, members: list[tuple[int, int]]) -> None:
        if asked.leader_epoch > partition.leader_epoch or asked.partition_epoch > partition.partition_epoch:
            # The leader knows more than we do: another controller has taken over.
            raise RequestError(ErrorCode.NOT_CONTROLLER, "The leader has seen newer metadata.")
        if asked.leader_epoch < partition.leader_epoch:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, f"The leader epoch is {partition.leader_epoch}.")
        if leader_id != partition.leader:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"The leader is {partition.leader}.")
        if asked.partition_epoch < partition.partition_epoch:
            raise RequestError(ErrorCode.INVALID_UPDATE_VERSION, f"The partition epoch is {partition.partition_epoch}.")
        ids = [broker_id for broker_id, _ in members]
        if len(set(ids)) != len(ids) or not set(ids) <= set(partition.replicas) or leader_id not in ids:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"{ids} is no in-sync set of this partition.")
        state = asked.leader_recovery_state
        if (
            state not in (RECOVERED, RECOVERING)
            or (state == RECOVERING and len(ids) > 1)
            or (state == RECOVERING and partition.leader_recovery_state == RECOVERED)
        ):
            raise RequestError(ErrorCode.INVALID_REQUEST, f"The leader cannot be in recovery state {state}.")
        for broker_id, broker_epoch in members:
            self._check_member(broker_id, broker_epoch)

    def _check_member(self, broker_id: int, broker_epoch: int) -> None:
        broker = self._state.image.brokers.get(broker_id)
        if broker is None:
            raise _ineligible(broker_id, "not registered")
        if broker.registration.in_controlled_shutdown:
            raise _ineligible(broker_id, "shutting down")
        if broker.registration.fenced or broker_id in self._state.leaving:
            raise _ineligible(broker_id, "fenced")
        if broker_epoch not in (UNKNOWN_EPOCH, broker.epoch):
            raise _ineligible(broker_id, f"broker epoch mismatch: requested={broker_epoch} VS expected={broker.epoch}")


def _ineligible(broker_id: int, reason: str) -> RequestError:
    return RequestError(ErrorCode.INELIGIBLE_REPLICA, f"{broker_id} ({reason})")
