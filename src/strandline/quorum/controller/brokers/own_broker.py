"""The start of a quorum of one: controller and broker are one process, and the broker need not wait for anybody.

It is registered and unfenced with one list of records. If it is the only broker there ever was, each of its partitions
gets one record: the same leader with a new leader epoch, so that readers can tell what was appended before the restart
from what came after, even where a power cut took an unflushed tail away.
"""

from __future__ import annotations

import uuid
from typing import Any

from strandline.codec.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from strandline.codec.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.register_broker_record import BrokerEndpoint, BrokerFeature, RegisterBrokerRecord
from strandline.quorum.controller.brokers.broker_registry import BrokerRegistry
from strandline.quorum.controller.brokers.heartbeats import UNFENCE, Heartbeats
from strandline.quorum.controller.features import SUPPORTED_FEATURES
from strandline.quorum.controller.state import ControllerState
from strandline.quorum.image.cluster_image import PartitionImage


class OwnBroker:
    def __init__(self, state: ControllerState, registry: BrokerRegistry, heartbeats: Heartbeats) -> None:
        self._state = state
        self._registry = registry
        self._heartbeats = heartbeats

    def start(
        self,
        broker_id: int,
        *,
        epoch: int,
        incarnation_id: uuid.UUID,
        endpoints: list[tuple[str, str, int, int]],
        log_dirs: list[uuid.UUID],
        rack: str | None,
        previous_epoch: int,
        now: float,
    ) -> list[Any]:
        """`epoch` is the offset of the first of these records; `endpoints` are (listener, host, port, protocol)."""
        topics = self._state.image.topics.values()
        partitions = [each for topic in topics for each in topic.partitions]
        is_alone = self._state.image.brokers.keys() <= {broker_id}
        if is_alone and all(each.replicas == [broker_id] for each in partitions):
            return self._start_alone(broker_id, epoch, incarnation_id, endpoints, log_dirs, rack, now)
        request = BrokerRegistrationRequest(
            broker_id=broker_id,
            incarnation_id=incarnation_id,
            listeners=[Listener(*each) for each in endpoints],
            features=[Feature(name, *levels) for name, levels in SUPPORTED_FEATURES.items()],
            rack=rack,
            log_dirs=log_dirs,
            previous_broker_epoch=previous_epoch,
        )
        records: list[Any] = []
        steps = self._registry.registration(
            request, cluster_id="", now=now, next_offset=lambda: epoch + len(records), is_own=True
        )
        for more in steps:
            records += more
        records += self._heartbeats.unfence(self._state.image.brokers[broker_id])
        return records

    def _start_alone(
        self,
        broker_id: int,
        epoch: int,
        incarnation_id: uuid.UUID,
        endpoints: list[tuple[str, str, int, int]],
        log_dirs: list[uuid.UUID],
        rack: str | None,
        now: float,
    ) -> list[Any]:
        registration = RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=incarnation_id,
            broker_epoch=epoch,
            end_points=[BrokerEndpoint(*each) for each in endpoints],
            features=[
                BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
                for name, (lowest, highest) in SUPPORTED_FEATURES.items()
            ],
            rack=rack,
            fenced=True,
            log_dirs=log_dirs,
        )
        unfencing = BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=epoch, fenced=UNFENCE)
        elections = [
            _led_again(broker_id, topic.id, index, partition)
            for topic in self._state.image.topics.values()
            for index, partition in enumerate(topic.partitions)
        ]
        self._state.sessions.begin(broker_id, now)
        return self._state.decided([registration, unfencing, *elections])


def _led_again(broker_id: int, topic_id: uuid.UUID, index: int, partition: PartitionImage) -> PartitionChangeRecord:
    record = PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=broker_id)
    if partition.isr != [broker_id]:
        record.isr = [broker_id]
    if partition.eligible_leader_replicas:
        record.eligible_leader_replicas = []
    if partition.last_known_elr:
        record.last_known_elr = []
    return record
