"""DescribeTopicPartitions (75), version 0: topics page by page, so that no answer grows without end.

Honoured: some topics or all (an empty list), sorted by name; a cursor; the request's limit of partitions in an answer
and `max.request.partition.size.limit`; authorized operations, which are all of them while there are no access rules.
A cursor that names no topic of the list, or a partition below 0, is INVALID_REQUEST for each topic.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message import encode
from strandline.codec.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest
from strandline.codec.messages.describe_topic_partitions_response import (
    Cursor,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from strandline.errors import ErrorCode
from strandline.handlers.context import EncodedResponse, RequestContext
from strandline.handlers.k03_metadata import OPERATIONS_NOT_ASKED, TOPIC_OPERATIONS, partition_state
from strandline.handlers.shares import gradually, joined
from strandline.quorum.cluster_image import ClusterImage, PartitionImage, Topic
from strandline.quorum.topic_names import is_internal, why_invalid

API_KEY = 75
VERSIONS = (0, 0)

_OPERATIONS_SIZE = 4
"""What follows the partitions of a topic on the wire."""


def handle(context: RequestContext, request: DescribeTopicPartitionsRequest) -> DescribeTopicPartitionsResponse | None:
    image = context.node.image
    cursor_topic, cursor_partition = ("", 0)
    if request.cursor is not None:
        cursor_topic, cursor_partition = request.cursor.topic_name, request.cursor.partition_index
    names = {topic.name for topic in request.topics} or image.topics.keys()
    ordered = sorted(name for name in names if name >= cursor_topic)
    if cursor_partition < 0 or (request.cursor is not None and request.topics and cursor_topic not in ordered):
        return DescribeTopicPartitionsResponse(
            topics=[_error(topic.name, ErrorCode.INVALID_REQUEST) for topic in request.topics]
        )
    limit = min(context.node.config.max_request_partition_size_limit, request.response_partition_limit)
    page = _Page(image, ordered, first_partition={cursor_topic: cursor_partition}, partitions_max=max(1, limit))

    def on_done(parts: list[tuple[int, bytes]]) -> None:
        context.reply(page.joined(parts))

    gradually(context.node.runtime, page.partitions(), on_done)
    return None


class _Page:
    """One page: as many partitions as may be, from the first topic on, and where the next page begins."""

    def __init__(
        self, image: ClusterImage, names: list[str], *, first_partition: dict[str, int], partitions_max: int
    ) -> None:
        self._image = image
        self._topics: list[DescribeTopicPartitionsResponseTopic] = []
        self._slices: list[tuple[Topic | None, range]] = []
        self._next: Cursor | None = None
        left = partitions_max
        for name in names:
            if left == 0:
                self._next = Cursor(topic_name=name, partition_index=0)
                break
            topic = image.topics.get(name)
            if topic is None:
                invalid = why_invalid(name) is not None
                code = ErrorCode.INVALID_TOPIC_EXCEPTION if invalid else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                self._add(_error(name, code, TOPIC_OPERATIONS), None, range(0))
                continue
            first = first_partition.get(name, 0)
            end = min(len(topic.partitions), first + left)
            self._add(_described(topic), topic, range(first, end))
            if end < len(topic.partitions):
                self._next = Cursor(topic_name=name, partition_index=end)
                break
            left -= max(0, end - first)

    def _add(self, described: DescribeTopicPartitionsResponseTopic, topic: Topic | None, indexes: range) -> None:
        self._topics.append(described)
        self._slices.append((topic, indexes))

    def partitions(self) -> Iterator[tuple[int, bytes]]:
        """Each partition, encoded, with the place of its topic on the page."""
        for place, (topic, indexes) in enumerate(self._slices):
            if topic is not None:
                for index in indexes:
                    yield place, encode(_partition(self._image, index, topic.partitions[index]), VERSIONS[1])

    def joined(self, parts: list[tuple[int, bytes]]) -> EncodedResponse:
        of_topic: list[list[bytes]] = [[] for _ in self._topics]
        for place, part in parts:
            of_topic[place].append(part)
        topics = [
            joined(topic, VERSIONS[1], each, tail_size=_OPERATIONS_SIZE)
            for topic, each in zip(self._topics, of_topic, strict=True)
        ]
        # Behind the topics stands the cursor: one byte that says whether there is one, and then its fields.
        tail_size = 1 if self._next is None else 1 + len(encode(self._next, VERSIONS[1]))
        around = DescribeTopicPartitionsResponse(next_cursor=self._next)
        return EncodedResponse(joined(around, VERSIONS[1], topics, tail_size=tail_size))


def _described(topic: Topic) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _error(name: str, code: ErrorCode, operations: int = OPERATIONS_NOT_ASKED) -> DescribeTopicPartitionsResponseTopic:
    return DescribeTopicPartitionsResponseTopic(
        name=name, error_code=code, is_internal=is_internal(name), topic_authorized_operations=operations
    )


def _partition(image: ClusterImage, index: int, partition: PartitionImage) -> DescribeTopicPartitionsResponsePartition:
    leader, offline = partition_state(image, partition)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        eligible_leader_replicas=partition.eligible_leader_replicas or [],
        last_known_elr=partition.last_known_elr or [],
        offline_replicas=offline,
    )
