"""DescribeProducers (61), version 0: the idempotent producers that a partition remembers.

Honoured: epoch, last sequence, last timestamp, coordinator epoch, and the first offset of an open transaction. A long
list is put together a share per turn of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message import encode
from strandline.codec.messages.describe_producers_request import DescribeProducersRequest
from strandline.codec.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from strandline.errors import ErrorCode
from strandline.handlers.absent_partitions import why_absent
from strandline.handlers.context import Node, RequestContext
from strandline.handlers.shares import gradually, joined, joined_response
from strandline.partition.producers import ProducerEntry
from strandline.quorum.topic_names import why_invalid

API_KEY = 61
VERSIONS = (0, 0)


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse | None:
    version = context.api_version
    asked = [(topic.name, index) for topic in request.topics for index in topic.partition_indexes]
    producers: list[list[bytes]] = [[] for _ in asked]
    codes = [_error_code(context.node, name, index) for name, index in asked]

    def on_done(parts: list[tuple[int, bytes]]) -> None:
        for place, part in parts:
            producers[place].append(part)
        answers = iter(
            joined(PartitionResponse(partition_index=index, error_code=code), version, each)
            for (_, index), code, each in zip(asked, codes, producers, strict=True)
        )
        topics = [
            joined(
                TopicResponse(name=topic.name), context.api_version, [next(answers) for _ in topic.partition_indexes]
            )
            for topic in request.topics
        ]
        context.reply(joined_response(DescribeProducersResponse(), version, topics))

    gradually(context.node.runtime, _producers(context, asked, codes), on_done)
    return None


def _error_code(node: Node, topic: str, index: int) -> int:
    if why_invalid(topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE if node.partition(topic, index) is not None else why_absent(node, topic, index)


def _producers(context: RequestContext, asked: list[tuple[str, int]], codes: list[int]) -> Iterator[tuple[int, bytes]]:
    """The producers of each partition, encoded, with the partition's place in the request."""
    for place, ((topic, index), code) in enumerate(zip(asked, codes, strict=True)):
        # Looked up anew: between two turns of the loop a topic may go.
        partition = context.node.partition(topic, index)
        if code == ErrorCode.NONE and partition is not None:
            for producer_id, entry in list(partition.producers.entries.items()):
                yield place, encode(_state(producer_id, entry), context.api_version)


def _state(producer_id: int, entry: ProducerEntry) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.batches[-1][1] if entry.batches else -1,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=entry.transaction_first_offset,
    )
