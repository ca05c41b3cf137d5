"""A broker's part of the share coordinator's APIs, as raw requests: finds the coordinator, asks, retries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from tests.scenarios.sink_clients import patiently, talk

from strandline.codec.message import Message
from strandline.codec.messages import (
    delete_share_group_state_request as delete,
)
from strandline.codec.messages import (
    initialize_share_group_state_request as initialize,
)
from strandline.codec.messages import (
    read_share_group_state_request as read,
)
from strandline.codec.messages import (
    read_share_group_state_summary_request as summary,
)
from strandline.codec.messages import (
    write_share_group_state_request as write,
)
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from strandline.coordinators.shares.coordinator_key import coordinator_key
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode

SHARE = 2


def topic_id_of(ports: Sequence[int], topic: str) -> UUID:
    with talk(ports) as peer:
        (found,) = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12).topics
    assert found.error_code == 0
    return UUID(bytes=found.topic_id.bytes)


class ShareCoordinatorClient:
    """One share partition, as the leader of its partition and its group coordinator see it."""

    def __init__(self, ports: Sequence[int], key: SharePartitionKey) -> None:
        self.ports = ports
        self.key = key

    def coordinator_port(self) -> int:
        def ask() -> tuple[int, int]:
            request = FindCoordinatorRequest(coordinator_keys=[coordinator_key(self.key)], key_type=SHARE)
            with talk(self.ports) as peer:
                (found,) = peer.ask(request, 6).coordinators
            return found.error_code, found.port

        return int(patiently(ask))

    def ask(self, request: Message, version: int) -> Any:
        """Return the outcome of the one partition; ask again while there is no coordinator."""

        def ask() -> tuple[int, Any]:
            with talk([self.coordinator_port()]) as peer:
                ((part,),) = [topic.partitions for topic in peer.ask(request, version).results]
            again = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            is_gone = part.error_code in (*again, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            return part.error_code if is_gone else 0, part

        return patiently(ask)

    def initialize(self, epoch: int = 1, start: int = 0) -> ErrorCode:
        part = initialize.PartitionData(partition=self.key.partition, state_epoch=epoch, start_offset=start)
        topic = initialize.InitializeStateData(topic_id=self.key.topic_id, partitions=[part])
        request = initialize.InitializeShareGroupStateRequest(group_id=self.key.group_id, topics=[topic])
        return ErrorCode(self.ask(request, 0).error_code)

    def write(
        self, *batches: StateBatch, epoch: int = 1, leader: int = 0, start: int = -1, count: int = 0
    ) -> ErrorCode:
        part = write.PartitionData(
            partition=self.key.partition,
            state_epoch=epoch,
            leader_epoch=leader,
            start_offset=start,
            delivery_complete_count=count,
            state_batches=[write.StateBatch(*batch) for batch in batches],
        )
        topic = write.WriteStateData(topic_id=self.key.topic_id, partitions=[part])
        request = write.WriteShareGroupStateRequest(group_id=self.key.group_id, topics=[topic])
        return ErrorCode(self.ask(request, 1).error_code)

    def read(self, leader: int = 0) -> ShareState | ErrorCode:
        part = read.PartitionData(partition=self.key.partition, leader_epoch=leader)
        topic = read.ReadStateData(topic_id=self.key.topic_id, partitions=[part])
        found = self.ask(read.ReadShareGroupStateRequest(group_id=self.key.group_id, topics=[topic]), 0)
        if found.error_code:
            return ErrorCode(found.error_code)
        batches = [
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        ]
        return ShareState(found.state_epoch, found.start_offset, tuple(batches))

    def summary(self, version: int = 1) -> ShareSummary | ErrorCode:
        part = summary.PartitionData(partition=self.key.partition, leader_epoch=-1)
        topic = summary.ReadStateSummaryData(topic_id=self.key.topic_id, partitions=[part])
        request = summary.ReadShareGroupStateSummaryRequest(group_id=self.key.group_id, topics=[topic])
        found = self.ask(request, version)
        if found.error_code:
            return ErrorCode(found.error_code)
        return ShareSummary(found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count)

    def delete(self) -> ErrorCode:
        part = delete.PartitionData(partition=self.key.partition)
        topic = delete.DeleteStateData(topic_id=self.key.topic_id, partitions=[part])
        request = delete.DeleteShareGroupStateRequest(group_id=self.key.group_id, topics=[topic])
        return ErrorCode(self.ask(request, 0).error_code)
