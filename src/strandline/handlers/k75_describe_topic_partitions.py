"""DescribeTopicPartitions (75), version 0: topics page by page, so that no answer grows without end.

Honoured: some topics or all (an empty list), sorted by name; a cursor; the request's limit of partitions in an answer
and `max.request.partition.size.limit`; authorized operations and access rules.
A cursor that names no topic of the list, or a partition below 0, is INVALID_REQUEST for each topic.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from strandline.codec.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from strandline.errors import ErrorCode
from strandline.handlers.k03_metadata import OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS, brokers_without, partition_state
from strandline.handlers.support.context import EncodedResponse, RequestContext
from strandline.handlers.support.response_parts import joined
from strandline.quorum.controller.topic_names import is_internal, why_invalid
from strandline.quorum.image.cluster_image import PartitionImage, Topic
from strandline.runtime.time_slicing import gradually
from strandline.security.acl.kinds import Operation, ResourceType

API_KEY = 75
VERSIONS = (0, 0)

_OPERATIONS_SIZE = 4
"""What follows the partitions of a topic on the wire."""


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse | None:
    cursor_topic, cursor_partition = ("", 0)
    if request.cursor is not None:
        cursor_topic, cursor_partition = request.cursor.topic_name, request.cursor.partition_index
    names = {topic.name for topic in request.topics} or _shown(context)
    ordered = sorted(name for name in names if name >= cursor_topic)
    if cursor_partition < 0 or (request.cursor is not None and request.topics and cursor_topic not in ordered):
        return DescribeTopicPartitionsResponse(
            topics=[_error(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        )
    limit = min(context.node.config.max_request_partition_size_limit, request.response_partition_limit)
    page = _Page(context, first_partition={cursor_topic: cursor_partition})

    def on_done(_: list[None]) -> None:
        context.reply(page.response())

    gradually(context.node.runtime, page.fill(ordered, max(1, limit)), on_done)
    return None


class _Page:
    """One page: as many partitions as may be, from the first topic on, and where the next page begins."""

    def __init__(self, context: RequestContext, *, first_partition: dict[str, int]) -> None:
        self._node = context.node
        self._image = context.node.image
        self._guard = context.guard
        self._unreachable = brokers_without(self._image, context.listener_name)
        self._first_partition = first_partition
        self._topics: list[bytes] = []
        self._next: Cursor | None = None

    def fill(self, names: list[str], partitions_max: int) -> Iterator[None]:
        """Put topics on the page, with a pause after each partition."""
        left = partitions_max
        for name in names:
            if left == 0:
                self._next = Cursor(topic_name=name, partition_index=0)
                return
            if self._guard is not None and not self._guard.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
                code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                self._node.count_error(API_KEY, code)
                self._add(DescribeTopicPartitionsResponseTopic(name=name, error_code=code), [])
                yield
                continue
            topic = self._image.topics.get(name)
            if topic is None:
                invalid = why_invalid(name) is not None
                code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._node.count_error(API_KEY, code)
                self._add(_error(name, code, TOPIC_OPERATIONS), [])
                yield
                continue
            first = self._first_partition.get(name, 0)
            end = min(len(topic.partitions), first + left)
            partitions = []
            for index in range(first, end):
                partitions.append(encode(self._partition(index, topic.partitions[index]), VERSIONS[1]))
                yield
            self._add(_described(topic, self._operations(name)), partitions)
            if end < len(topic.partitions):
                self._next = Cursor(topic_name=name, partition_index=end)
                return
            left -= len(partitions)

    def _operations(self, name: str) -> int:
        return TOPIC_OPERATIONS if self._guard is None else self._guard.operations(ResourceType.TOPIC, name)

    def _partition(self, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
        leader, offline = partition_state(self._image, partition, self._unreachable)
        lacks_listener = leader < 0 and partition.leader in self._unreachable
        return DescribeTopicPartitionsResponsePartition(
            error_code=ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.NONE,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            eligible_leader_replicas=partition.eligible_leader_replicas or [],
            last_known_elr=partition.last_known_elr or [],
            offline_replicas=offline,
        )

    def _add(self, topic: DescribeTopicPartitionsResponseTopic, partitions: list[bytes]) -> None:
        self._topics.append(joined(topic, VERSIONS[1], partitions, tail_size=_OPERATIONS_SIZE))

    def response(self) -> EncodedResponse:
        # Behind the topics stands the cursor: one byte that says whether there is one, and then its fields.
        tail_size = 1 if self._next is None else 1 + len(encode(self._next, VERSIONS[1]))
        around = DescribeTopicPartitionsResponse(next_cursor=self._next)
        return EncodedResponse(joined(around, VERSIONS[1], self._topics, tail_size=tail_size))


def _shown(context: RequestContext) -> list[str]:
    guard, names = context.guard, context.node.image.topics
    return [name for name in names if guard is None or guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, name)]


def _described(topic: Topic, operations: int) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=operations,
    )


def _error(name: str, code: ErrorCode, operations: int = OPERATIONS_NOT_ASKED) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, is_internal=is_internal(name), topic_authorized_operations=operations
    )
