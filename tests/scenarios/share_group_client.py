"""A member of a share group and its administrator, as raw requests: finds the coordinator, asks, retries."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from tests.scenarios.sink_clients import patiently, talk
from tests.scenarios.transactional_clients import TRY_AGAIN

from strandline.codec.message import Message
from strandline.codec.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.delete_groups_request import DeleteGroupsRequest
from strandline.codec.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from strandline.codec.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.list_groups_request import ListGroupsRequest
from strandline.codec.messages.share_group_describe_request import ShareGroupDescribeRequest
from strandline.codec.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from strandline.errors import ErrorCode

GROUP_KEY = 0


class ShareGroupClient:
    """One share group, seen by an administrator."""

    def __init__(self, ports: Sequence[int], group_id: str) -> None:
        self.ports = ports
        self.group_id = group_id

    def coordinator_port(self) -> int:
        def ask() -> tuple[int, int]:
            with talk(self.ports) as peer:
                request = FindCoordinatorRequest(coordinator_keys=[self.group_id], key_type=GROUP_KEY)
                (found,) = peer.ask(request, 6).coordinators
            return found.error_code, found.port

        return int(patiently(ask))

    def ask(self, request: Message, version: int, code_of: Any = lambda response: response.error_code) -> Any:
        """Ask the coordinator, again while the answer says so."""

        def ask() -> tuple[int, Any]:
            with talk([self.coordinator_port()]) as peer:
                response = peer.ask(request, version)
            code = code_of(response)
            return (code if code in TRY_AGAIN else 0), response

        return patiently(ask)

    def describe(self) -> Any:
        request = ShareGroupDescribeRequest(group_ids=[self.group_id])
        return self.ask(request, 1, lambda response: response.groups[0].error_code).groups[0]

    def listed(self) -> tuple[str, str] | None:
        """Return type and state of the group, as ListGroups has them."""
        with talk([self.coordinator_port()]) as peer:
            groups = peer.ask(ListGroupsRequest(types_filter=["share"]), 5).groups
        return next(((each.group_type, each.group_state) for each in groups if each.group_id == self.group_id), None)

    def alter(self, topic: str, starts: Mapping[int, int]) -> dict[int, ErrorCode]:
        partitions = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=start)
            for index, start in starts.items()
        ]
        topics = [AlterShareGroupOffsetsRequestTopic(topic_name=topic, partitions=partitions)]
        response = self.ask(AlterShareGroupOffsetsRequest(group_id=self.group_id, topics=topics), 0)
        if response.error_code:
            return {-1: ErrorCode(response.error_code)}
        (answered,) = response.responses
        return {each.partition_index: ErrorCode(each.error_code) for each in answered.partitions}

    def offsets(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return start offset and lag of every partition with a state."""
        groups = [DescribeShareGroupOffsetsRequestGroup(group_id=self.group_id, topics=None)]
        request = DescribeShareGroupOffsetsRequest(groups=groups)
        (group,) = self.ask(request, 1, lambda response: response.groups[0].error_code).groups
        assert not group.error_code
        return {
            (topic.topic_name, each.partition_index): (each.start_offset, each.lag)
            for topic in group.topics
            for each in topic.partitions
            if not each.error_code
        }

    def delete_offsets(self, topic: str) -> ErrorCode:
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name=topic)]
        response = self.ask(DeleteShareGroupOffsetsRequest(group_id=self.group_id, topics=topics), 0)
        return ErrorCode(response.error_code or response.responses[0].error_code)

    def delete(self) -> ErrorCode:
        request = DeleteGroupsRequest(groups_names=[self.group_id])
        return ErrorCode(self.ask(request, 2, lambda response: response.results[0].error_code).results[0].error_code)


class ShareConsumer(ShareGroupClient):
    """A member of the group, which knows its epoch and what it was assigned."""

    def __init__(self, ports: Sequence[int], group_id: str, topics: Sequence[str]) -> None:
        super().__init__(ports, group_id)
        self.member_id = str(uuid.uuid4())
        self.topics = topics
        self.epoch = 0
        self.interval_ms = 0
        self.assigned: dict[uuid.UUID, list[int]] = {}

    def beat(self, epoch: int | None = None) -> ErrorCode:
        epoch = self.epoch if epoch is None else epoch
        response = self.ask(
            ShareGroupHeartbeatRequest(
                group_id=self.group_id,
                member_id=self.member_id,
                member_epoch=epoch,
                subscribed_topic_names=list(self.topics) if epoch == 0 else None,
            ),
            1,
        )
        if not response.error_code:
            self.epoch, self.interval_ms = response.member_epoch, response.heartbeat_interval_ms
            if response.assignment is not None:
                self.assigned = {each.topic_id: each.partitions for each in response.assignment.topic_partitions}
        return ErrorCode(response.error_code)

    def leave(self) -> ErrorCode:
        return self.beat(-1)

    def indexes(self) -> list[int]:
        return sorted(index for indexes in self.assigned.values() for index in indexes)
