"""DescribeProducers (61), version 0: the producers that a partition remembers.

Honoured: epoch, last sequence, last timestamp, coordinator epoch, and the first offset of an open transaction. A long
list is put together a share per turn of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_producers_request import DescribeProducersRequest
from strandline.codec.messages.describe_producers_response import (
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.absent_partitions import why_absent
from strandline.handlers.support.context import BrokerServices, EncodedResponse, RequestContext
from strandline.handlers.support.response_parts import joined, joined_response
from strandline.partition.producers import ProducerEntry
from strandline.quorum.controller.topic_names import why_invalid
from strandline.runtime.time_slicing import gradually

API_KEY = 61
VERSIONS = (0, 0)

_Part = int | bytes


def handle(context: RequestContext, request: DescribeProducersRequest) -> DescribeProducersResponse | None:
    def on_done(parts: list[_Part]) -> None:
        context.reply(_response(request, parts, context.api_version))

    gradually(context.node.runtime, _parts(context.node, request, context.api_version), on_done)
    return None


def _parts(node: BrokerServices, request: DescribeProducersRequest, version: int) -> Iterator[_Part]:
    """Yield for each partition its error code, followed by its encoded producers."""
    for topic in request.topics:
        for index in topic.partition_indexes:
            code = _error_code(node, topic.name, index)
            if code:
                node.count_error(API_KEY, code)
            yield code
            partition = node.partition(topic.name, index)
            if partition is not None:
                # A list of them: between two turns of the loop producers come and go.
                producers = partition.producers
                for producer_id, entry in list(producers.entries.items()):
                    first_offset = producers.open_transactions.get(producer_id, -1)
                    yield encode(_state(producer_id, entry, first_offset), version)


def _response(request: DescribeProducersRequest, parts: list[_Part], version: int) -> EncodedResponse:
    producers: list[tuple[int, list[bytes]]] = []
    for part in parts:
        if isinstance(part, bytes):
            producers[-1][1].append(part)
        else:
            producers.append((part, []))
    left = iter(producers)
    topics = []
    for topic in request.topics:
        partitions = []
        for index in topic.partition_indexes:
            code, each = next(left)
            answer = PartitionResponse(partition_index=index, error_code=code)
            answer.error_message = _words(topic.name, code) if code else None
            partitions.append(joined(answer, version, each))
        topics.append(joined(TopicResponse(name=topic.name), version, partitions))
    return joined_response(DescribeProducersResponse(), version, topics)


def _error_code(node: BrokerServices, topic: str, index: int) -> int:
    if why_invalid(topic) is not None:
        return ErrorCode.INVALID_TOPIC_EXCEPTION
    return ErrorCode.NONE if node.partition(topic, index) is not None else why_absent(node, topic, index)


def _words(topic: str, code: int) -> str:
    return why_invalid(topic) or f"{ErrorCode(code).name}: this partition cannot be looked at here."


def _state(producer_id: int, entry: ProducerEntry, first_offset: int) -> ProducerState:
    return ProducerState(
        producer_id=producer_id,
        producer_epoch=entry.epoch,
        last_sequence=entry.last_sequence,
        last_timestamp=entry.last_timestamp_ms,
        coordinator_epoch=entry.coordinator_epoch,
        current_txn_start_offset=first_offset,
    )
