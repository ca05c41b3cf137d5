"""OffsetFetch (9), versions 1-10: committed offsets of one group (1-7) or many (8+), by topic name or topic id (10).

Null topics ask for all offsets of a group (2+). An answer waits until every commit before it is below the high
watermark; with `require_stable` (7+) a partition whose offset an open transaction is about to move is answered with
UNSTABLE_OFFSET_COMMIT. Many groups are asked over several turns of the loop. A member of the consumer protocol must
name its present epoch (9+).

A broker without an answer from the controller for a session rejects with NOT_COORDINATOR. Another broker may be the
coordinator by then and have newer offsets. An exactly-once processor that starts from an old offset would write its
output twice. So while the controllers have no majority for longer than `broker.session.timeout.ms`, running consumers
continue, and starting ones wait. A broker whose full or stalled disk keeps it from new metadata rejects, too. Not
covered: a leadership that moves away from a live broker, until that broker learns of it, half a second at most.
"""

from __future__ import annotations

from collections.abc import Iterator

from strandline.codec.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from strandline.codec.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from strandline.coordinators.groups.events import FetchOffsets, Response
from strandline.coordinators.groups.pending_request import PendingRequest
from strandline.coordinators.offsets.offsets import NO_OFFSET
from strandline.errors import ErrorCode
from strandline.handlers.support.context import RequestContext
from strandline.ids import ZERO_UUID
from strandline.runtime.time_slicing import gradually

API_KEY = 9
VERSIONS = (1, 10)

GROUP_ERROR_FROM_VERSION = 2
GROUPS_FROM_VERSION = 8
TOPIC_ID_FROM_VERSION = 10


def handle(context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse | None:
    groups = request.groups if context.api_version >= GROUPS_FROM_VERSION else [single_group(request)]
    pending = PendingRequest(context.reply, refusal=lambda code: OffsetFetchResponse(error_code=code))
    gathering = OffsetFetchGathering(context, pending, groups, require_stable=request.require_stable)
    gradually(context.node.runtime, gathering.ask_all(groups), lambda _: gathering.maybe_finish())
    response: OffsetFetchResponse | None = pending.collect()
    return response


def single_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )


class OffsetFetchGathering:
    """Groups of one request may live in different shards; the answer leaves when the last of them has spoken."""

    def __init__(
        self,
        context: RequestContext,
        pending: PendingRequest,
        groups: list[OffsetFetchRequestGroup],
        *,
        require_stable: bool,
    ) -> None:
        self.context = context
        self.require_stable = require_stable
        self.pending = pending
        self.answers: list[OffsetFetchResponseGroup | None] = [None] * len(groups)
        self.missing = len(groups)
        self.is_asking = True

    def ask_all(self, groups: list[OffsetFetchRequestGroup]) -> Iterator[None]:
        for index, group in enumerate(groups):
            refused = resolve(self.context, group)
            part = GroupPart(self, index, group, refused)
            if self.context.node.may_be_replaced:
                part.refuse(ErrorCode.NOT_COORDINATOR)
            else:
                self.context.node.groups.submit(group.group_id, FetchOffsets(part, group, self.require_stable))
            yield

    def put(self, index: int, answer: OffsetFetchResponseGroup) -> None:
        self.answers[index] = answer
        self.missing -= 1
        if not self.is_asking:
            self.maybe_finish()

    def maybe_finish(self) -> None:
        self.is_asking = False
        if self.missing == 0:
            answers = [answer for answer in self.answers if answer is not None]
            if self.context.api_version >= GROUPS_FROM_VERSION:
                self.pending.answer(OffsetFetchResponse(groups=answers))
            else:
                self.pending.answer(single_response(answers[0], self.context.api_version))


class GroupPart:
    """The token of one group's fetch."""

    __slots__ = ("_gathering", "_group", "_index", "_refused")

    def __init__(
        self,
        gathering: OffsetFetchGathering,
        index: int,
        group: OffsetFetchRequestGroup,
        refused: list[OffsetFetchResponseTopics],
    ) -> None:
        self._gathering = gathering
        self._index = index
        self._group = group
        self._refused = refused

    def answer(self, response: Response) -> None:
        assert isinstance(response, OffsetFetchResponseGroup)
        if self._group.topics is None:
            response.topics = [topic for topic in response.topics if is_current(self._gathering.context, topic)]
        response.topics.extend(self._refused)
        self._gathering.put(self._index, response)

    def refuse(self, code: ErrorCode) -> None:
        # Version 1 has no place for the error of a group, so the partitions are named for it to be put there.
        topics = [without_offsets(topic, ErrorCode.NONE) for topic in self._group.topics or []]
        if self._gathering.context.api_version >= GROUP_ERROR_FROM_VERSION:
            topics = []
        self._gathering.put(
            self._index, OffsetFetchResponseGroup(group_id=self._group.group_id, error_code=code, topics=topics)
        )


def resolve(context: RequestContext, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Give the topics their name and id; topics whose id means nothing are taken out and answered by themselves."""
    if group.topics is None:
        return []
    image = context.node.image
    if context.api_version < TOPIC_ID_FROM_VERSION:
        for topic in group.topics:
            found = image.topic_by_name(topic.name)
            # Offsets of a topic that is gone may still be asked for, as in Kafka: the zero id fits any.
            topic.topic_id = ZERO_UUID if found is None else found.id
        return []
    known: list[OffsetFetchRequestTopics] = []
    refused: list[OffsetFetchResponseTopics] = []
    for topic in group.topics:
        found = image.topic_by_id(topic.topic_id)
        if found is None:
            refused.append(without_offsets(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        else:
            topic.name = found.name
            known.append(topic)
    group.topics = known
    return refused


def is_current(context: RequestContext, topic: OffsetFetchResponseTopics) -> bool:
    """Return whether an offset belongs to the present topic of that name; fill in the topic id."""
    found = context.node.image.topic_by_name(topic.name)
    if found is None:
        return context.api_version < TOPIC_ID_FROM_VERSION
    if topic.topic_id not in (ZERO_UUID, found.id):
        return False
    topic.topic_id = found.id
    return True


def without_offsets(topic: OffsetFetchRequestTopics, code: ErrorCode) -> OffsetFetchResponseTopics:
    return OffsetFetchResponseTopics(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetFetchResponsePartitions(partition_index=index, committed_offset=NO_OFFSET, error_code=code)
            for index in topic.partition_indexes
        ],
    )


def single_response(group: OffsetFetchResponseGroup, api_version: int) -> OffsetFetchResponse:
    partition_code = group.error_code if api_version < GROUP_ERROR_FROM_VERSION else ErrorCode.NONE
    return OffsetFetchResponse(
        error_code=group.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition_code or partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in group.topics
        ],
    )
