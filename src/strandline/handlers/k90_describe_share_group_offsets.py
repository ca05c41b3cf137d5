"""DescribeShareGroupOffsets (90), versions 0-1: where share groups are in their partitions, and their lag (1).

A group that names no topics gets every partition with a state. A topic that does not exist and a partition without a
state begin at -1, which is no error. An error of the share coordinator or of a leader is told for its partition; Kafka
tells the former as -1. UNSUPPORTED_VERSION where heartbeats are too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from uuid import UUID

from strandline.codec.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from strandline.codec.messages.describe_share_group_offsets_response import (
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
    DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
)
from strandline.coordinators.groups.events import ListSharePartitions, SharePartitions
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.gathering import Gathering
from strandline.handlers.support.services import NamedSharePartition, ShareOffset
from strandline.ids import ZERO_UUID
from strandline.quorum.image.cluster_image import SHARE_VERSION
from strandline.runtime.time_slicing import gradually

API_KEY = 90
VERSIONS = (0, 1)

NO_OFFSET = ShareOffset(ErrorCode.NONE)


def handle(context: RequestContext, request: DescribeShareGroupOffsetsRequest) -> None:
    is_served = bool(context.node.image.features.get(SHARE_VERSION, 0))

    def on_all(groups: list[DescribeShareGroupOffsetsResponseGroup]) -> None:
        for group in groups:
            if group.error_code:
                context.node.count_error(API_KEY, group.error_code)
        context.reply(DescribeShareGroupOffsetsResponse(groups=groups))

    gathering = Gathering(on_all)

    def ask_all() -> Iterator[None]:
        for group in request.groups:
            token = gathering.token(refusal=partial(refusal, group.group_id))
            if is_served:
                describe(context, group, token)
            else:
                token.refuse(ErrorCode.UNSUPPORTED_VERSION)
            yield

    gradually(context.node.runtime, ask_all(), gathering.end)


def refusal(group_id: str, code: ErrorCode) -> DescribeShareGroupOffsetsResponseGroup:
    return DescribeShareGroupOffsetsResponseGroup(group_id=group_id, error_code=code)


def describe(context: RequestContext, group: DescribeShareGroupOffsetsRequestGroup, token: PendingRequest) -> None:
    if group.topics is None:
        waiting = _Listing(context, group.group_id, token)
        context.node.groups.submit(group.group_id, ListSharePartitions(waiting, group.group_id))
    else:
        read(context, group.group_id, {topic.topic_name: topic.partitions for topic in group.topics}, token)


class _Listing:
    """The wait for the partitions of a group; its refusal refuses the whole group."""

    def __init__(self, context: RequestContext, group_id: str, token: PendingRequest) -> None:
        self._context = context
        self._group_id = group_id
        self._token = token

    def answer(self, listed: SharePartitions) -> None:
        image = self._context.node.image
        topics = {topic_id: image.topic_by_id(topic_id) for topic_id in listed}
        indexes = {topic.name: listed[topic_id] for topic_id, topic in topics.items() if topic is not None}
        read(self._context, self._group_id, indexes, self._token)

    def refuse(self, code: ErrorCode) -> None:
        self._token.refuse(code)


def read(context: RequestContext, group_id: str, indexes: Mapping[str, list[int]], token: PendingRequest) -> None:
    """Answer the token with the offsets of these partitions, by topic name."""
    image = context.node.image
    topics = {name: image.topic_by_name(name) for name in indexes}
    partitions = [
        NamedSharePartition(name, topic.id, index)
        for name, topic in topics.items()
        if topic is not None
        for index in dict.fromkeys(indexes[name])
        if 0 <= index < len(topic.partitions)
    ]

    def on_offsets(offsets: dict[tuple[UUID, int], ShareOffset]) -> None:
        described = DescribeShareGroupOffsetsResponseGroup(group_id=group_id)
        for name, topic in topics.items():
            topic_id = ZERO_UUID if topic is None else topic.id
            entries = [entry(index, offsets.get((topic_id, index), NO_OFFSET)) for index in indexes[name]]
            described.topics.append(
                DescribeShareGroupOffsetsResponseTopic(topic_name=name, topic_id=topic_id, partitions=entries)
            )
        token.answer(described)

    context.node.share_offsets.read(group_id, partitions, on_offsets)


def entry(index: int, offset: ShareOffset) -> DescribeShareGroupOffsetsResponsePartition:
    return DescribeShareGroupOffsetsResponsePartition(
        partition_index=index,
        start_offset=offset.start_offset,
        leader_epoch=offset.leader_epoch,
        lag=offset.lag,
        error_code=offset.code,
    )
