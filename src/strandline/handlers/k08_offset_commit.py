"""OffsetCommit (8), versions 2-10: a group's positions, by topic name (2-9) or topic id (10).

Honoured: generation and member checks, leader epochs (6), static members (7), retention times of versions 2-4 as an
expiry of the offset. Thousands of partitions are committed in parts, over several turns of the loop; each part is
checked and written by itself. Members of the consumer protocol commit by their epoch (9+), also by an
older one what they have owned since then (KIP-1251).

A commit of one partition that was seen before takes the short path of `plain_commits`; `handle` is for all others.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from uuid import UUID

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestTopic
from strandline.codec.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.coordinators.groups.events import CommitOffsets
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.offsets.offsets import TOPIC_ID_FROM_VERSION, refuse_commit
from strandline.errors import ErrorCode
from strandline.handlers.support import plain_commits
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.runtime.time_slicing import gradually

API_KEY = 8
VERSIONS = (2, 10)

start_plain = plain_commits.start

PARTITIONS_PER_PART_MAX = 500
"""Partitions that are committed in one turn of the loop; each costs it some ten microseconds."""


def handle(context: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse | None:
    refused: list[OffsetCommitResponseTopic] = []
    known = [known_part for topic in request.topics if (known_part := resolve(context, topic, refused)) is not None]
    if not known:
        return OffsetCommitResponse(topics=refused)
    request.topics = known
    pending = PendingRequest(
        context.reply,
        refusal=partial(refusal, request, refused),
        shape=partial(merge, refused) if refused else None,
    )
    if len(known) == 1 == len(known[0].partitions):
        # Only here an audit sees a commit by a client that is no member, so such a one keeps to this path.
        if not refused and (request.generation_id_or_member_epoch >= 0 or context.node.events is None):
            plain_commits.learn(context.node, request, context.api_version)
        context.node.groups.submit(request.group_id, CommitOffsets(pending, request, context.api_version))
    elif is_small(known):
        context.node.groups.submit(request.group_id, CommitOffsets(pending, request, context.api_version))
    else:
        commit_in_parts(context, request, pending)
    response: OffsetCommitResponse | None = pending.collect()
    return response


def refusal(
    request: OffsetCommitRequest, refused: list[OffsetCommitResponseTopic], code: ErrorCode
) -> OffsetCommitResponse:
    return merge(refused, refuse_commit(request, code))


def is_small(topics: list[OffsetCommitRequestTopic]) -> bool:
    return sum(len(topic.partitions) for topic in topics) <= PARTITIONS_PER_PART_MAX


def commit_in_parts(context: RequestContext, request: OffsetCommitRequest, pending: PendingRequest) -> None:
    gathering = Gathering(lambda answers: pending.answer(one_answer(answers)))

    def submit(part: OffsetCommitRequest) -> None:
        token = gathering.token(refusal=partial(refuse_commit, part))
        context.node.groups.submit(part.group_id, CommitOffsets(token, part, context.api_version))

    gradually(context.node.runtime, map(submit, parts_of(request)), gathering.end)


def parts_of(request: OffsetCommitRequest) -> Iterator[OffsetCommitRequest]:
    """Yield the same commit in parts of `PARTITIONS_PER_PART_MAX` partitions."""

    def part(topics: list[OffsetCommitRequestTopic]) -> OffsetCommitRequest:
        return OffsetCommitRequest(
            group_id=request.group_id,
            generation_id_or_member_epoch=request.generation_id_or_member_epoch,
            member_id=request.member_id,
            group_instance_id=request.group_instance_id,
            retention_time_ms=request.retention_time_ms,
            topics=topics,
        )

    topics: list[OffsetCommitRequestTopic] = []
    room = PARTITIONS_PER_PART_MAX
    for topic in request.topics:
        at = 0
        while at < len(topic.partitions):
            taken = topic.partitions[at : at + room]
            topics.append(OffsetCommitRequestTopic(name=topic.name, topic_id=topic.topic_id, partitions=taken))
            at += len(taken)
            room -= len(taken)
            if not room:
                yield part(topics)
                topics, room = [], PARTITIONS_PER_PART_MAX
    if topics:
        yield part(topics)


def one_answer(answers: list[OffsetCommitResponse]) -> OffsetCommitResponse:
    """Join the responses to all parts, in their order, with one entry per topic."""
    topics: dict[tuple[str, UUID], OffsetCommitResponseTopic] = {}
    for answer in answers:
        for topic in answer.topics:
            same = topics.setdefault((topic.name, topic.topic_id), topic)
            if same is not topic:
                same.partitions += topic.partitions
    return OffsetCommitResponse(topics=list(topics.values()))


def resolve(
    context: RequestContext, topic: OffsetCommitRequestTopic, refused: list[OffsetCommitResponseTopic]
) -> OffsetCommitRequestTopic | None:
    """Return the part of `topic` that exists, with name and id filled in; put the rest into `refused`."""
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
    topic: OffsetCommitRequestTopic, partitions: list[int], code: ErrorCode, refused: list[OffsetCommitResponseTopic]
) -> None:
    refused.append(
        OffsetCommitResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            partitions=[OffsetCommitResponsePartition(partition_index=index, error_code=code) for index in partitions],
        )
    )


def merge(refused: list[OffsetCommitResponseTopic], response: OffsetCommitResponse) -> OffsetCommitResponse:
    """Join the outcomes of the known partitions and the refused ones, with one entry per topic."""
    answered = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused:
        same = answered.get((topic.name, topic.topic_id))
        if same is None:
            response.topics.append(topic)
        else:
            same.partitions.extend(topic.partitions)
    return response
