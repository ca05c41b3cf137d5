"""OffsetCommit (8), versions 2-10: a group's positions, by topic name (2-9) or topic id (10).

Honoured: generation and member checks, leader epochs (6), static members (7), retention times of versions 2-4 as an
expiry of the offset. Member epochs of the newer consumer protocol come with that protocol.
"""

from __future__ import annotations

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from strandline.codec.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.coordinators.call import Call
from strandline.coordinators.events import CommitOffsets
from strandline.coordinators.offsets import refuse_commit
from strandline.errors import ErrorCode
from strandline.handlers.context import RequestContext

API_KEY = 8
VERSIONS = (2, 10)

TOPIC_ID_FROM_VERSION = 10


def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    refused = OffsetCommitResponse()
    known = [known_part for topic in request.topics if (known_part := resolve(context, topic, refused)) is not None]
    if not known:
        return refused
    request.topics = known

    def shape(response: OffsetCommitResponse) -> OffsetCommitResponse:
        return merge(response, refused)

    call = Call(context.reply, refusal=lambda code: merge(refuse_commit(request, code), refused), shape=shape)
    context.node.groups.submit(request.group_id, CommitOffsets(call, request, context.api_version))
    response: OffsetCommitResponse | None = call.collect()
    return response


def resolve(
    context: RequestContext, topic: OffsetCommitRequestTopic, refused: OffsetCommitResponse
) -> OffsetCommitRequestTopic | None:
    """The part of `topic` that exists, with name and id filled in; the rest is put into `refused`."""
    by_id = context.api_version >= TOPIC_ID_FROM_VERSION
    image = context.node.image
    found = image.topic_by_id(topic.topic_id) if by_id else image.topic_by_name(topic.name)
    if found is None:
        code = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        refuse(topic, [partition.partition_index for partition in topic.partitions], code, refused)
        return None
    topic.name, topic.topic_id = found.name, found.id
    count = len(found.partitions)
    unknown = [p.partition_index for p in topic.partitions if not 0 <= p.partition_index < count]
    if unknown:
        refuse(topic, unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, refused)
        topic.partitions = [p for p in topic.partitions if 0 <= p.partition_index < count]
    return topic if topic.partitions else None


def refuse(
    topic: OffsetCommitRequestTopic, partitions: list[int], code: ErrorCode, refused: OffsetCommitResponse
) -> None:
    refused.topics.append(
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[OffsetCommitResponsePartition(partition_index=index, error_code=code) for index in partitions],
        )
    )


def merge(response: OffsetCommitResponse, refused: OffsetCommitResponse) -> OffsetCommitResponse:
    """One entry per topic: what the coordinator said of the known partitions, and the refusal of the others."""
    answered = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused.topics:
        same = answered.get((topic.name, topic.topic_id))
        if same is None:
            response.topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
    return response
