"""OffsetDelete (47), version 0: committed offsets go, of topics that no member of the group reads.

Topics and partitions that do not exist are refused one by one. Thousands of partitions are deleted in parts, over
several turns of the loop; each part is checked and written by itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from strandline.codec.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from strandline.coordinators.groups.events import DeleteOffsets
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.runtime.time_slicing import gradually

API_KEY = 47
VERSIONS = (0, 0)

PARTITIONS_PER_PART_MAX: Final = 500
"""Partitions whose offsets are deleted in one step of the shard; each costs it some microseconds."""


def handle(context: RequestContext, request: OffsetDeleteRequest) -> None:
    answered: dict[str, dict[int, ErrorCode]] = {}
    known: dict[str, dict[int, None]] = {}
    for topic in request.topics:
        known.setdefault(topic.name, {}).update(existing_partitions(context, topic, answered))

    def on_all(parts: list[OffsetDeleteResponse]) -> None:
        context.reply(merged(parts, answered))

    gathering = Gathering(on_all)

    def ask_all() -> Iterator[None]:
        for part in parts_of(known):
            token = gathering.token(refusal=lambda code: OffsetDeleteResponse(error_code=code))
            asked = OffsetDeleteRequest(group_id=request.group_id, topics=part)
            context.node.groups.submit(request.group_id, DeleteOffsets(token, asked))
            yield

    gradually(context.node.runtime, ask_all(), gathering.end)


def existing_partitions(
    context: RequestContext, topic: OffsetDeleteRequestTopic, refused: dict[str, dict[int, ErrorCode]]
) -> dict[int, None]:
    """Return the partitions that exist, each once; put the others into `refused`."""
    found = context.node.image.topic_by_name(topic.name)
    count = 0 if found is None else len(found.partitions)
    indexes = dict.fromkeys(partition.partition_index for partition in topic.partitions)
    unknown = {index: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for index in indexes if not 0 <= index < count}
    if unknown or found is None:
        refused.setdefault(topic.name, {}).update(unknown)
    return {index: None for index in indexes if index not in unknown}


def parts_of(known: dict[str, dict[int, None]]) -> Iterator[list[OffsetDeleteRequestTopic]]:
    """Yield at least one part, because the coordinator has to say whether the group exists."""
    topics: dict[str, OffsetDeleteRequestTopic] = {}
    size = 0
    for name, indexes in known.items():
        for index in indexes:
            if size == PARTITIONS_PER_PART_MAX:
                yield list(topics.values())
                topics, size = {}, 0
            topic = topics.setdefault(name, OffsetDeleteRequestTopic(name=name))
            topic.partitions.append(OffsetDeleteRequestPartition(partition_index=index))
            size += 1
    yield list(topics.values())


def merged(parts: list[OffsetDeleteResponse], answered: dict[str, dict[int, ErrorCode]]) -> OffsetDeleteResponse:
    """Join the responses with one entry per topic. If the group is rejected, there are no topics."""
    for part in parts:
        if part.error_code:
            return OffsetDeleteResponse(error_code=part.error_code)
        for topic in part.topics:
            codes = answered.setdefault(topic.name, {})
            codes.update({each.partition_index: ErrorCode(each.error_code) for each in topic.partitions})
    return OffsetDeleteResponse(
        topics=[
            OffsetDeleteResponseTopic(
                name=name,
                partitions=[
                    OffsetDeleteResponsePartition(partition_index=index, error_code=code)
                    for index, code in codes.items()
                ],
            )
            for name, codes in answered.items()
        ]
    )
