"""The committed offsets of every group of a shard: OffsetCommit, OffsetFetch, and what a deleted topic takes along.

An offset is stored as the value of its record, so that nothing can be in memory that the log does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from strandline.codec.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from strandline.codec.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequestGroup
from strandline.codec.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from strandline.coordinators.groups.any_group import Group
from strandline.coordinators.groups.classic.classic_group import ClassicGroup, GroupState
from strandline.coordinators.groups.classic.rebalance import restart_session
from strandline.coordinators.groups.events import CommitOffsets, FetchOffsets
from strandline.coordinators.groups.group_records import offset_commit_record, offset_tombstone
from strandline.coordinators.groups.shard_terms import CoordinatorRecord
from strandline.coordinators.groups.step_context import StepContext
from strandline.coordinators.groups.topics import is_replaced
from strandline.coordinators.offsets.pending_offsets import PendingOffsets, Place
from strandline.errors import ErrorCode
from strandline.ids import ZERO_UUID

NO_OFFSET = -1
TIMESTAMP_MS_MAX = 2**63 - 1
GROUP_ID_NOT_FOUND_FROM_VERSION = 9
TOPIC_ID_FROM_VERSION = 10


class CommittedOffsets:
    """Offsets by group, topic and partition, and the pending ones of open transactions."""

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, OffsetCommitValue]]] = {}
        self.pending = PendingOffsets()

    def get(self, group_id: str, topic: str, partition: int) -> OffsetCommitValue | None:
        return self._by_group.get(group_id, {}).get(topic, {}).get(partition)

    def current(self, group_id: str, topic: str, topic_id: UUID, partition: int) -> OffsetCommitValue | None:
        """Return the offset as `get`, unless it is of an earlier topic of the name; the zero id fits every topic."""
        value = self.get(group_id, topic, partition)
        if value is not None and ZERO_UUID != value.topic_id != topic_id != ZERO_UUID:
            return None
        return value

    def has_any(self, group_id: str) -> bool:
        return group_id in self._by_group

    def has_any_or_pending(self, group_id: str) -> bool:
        return group_id in self._by_group or self.pending.has_any(group_id)

    def of_group(self, group_id: str) -> Iterator[tuple[str, dict[int, OffsetCommitValue]]]:
        yield from self._by_group.get(group_id, {}).items()

    def group_ids(self) -> Iterator[str]:
        yield from self._by_group

    def put(self, group_id: str, topic: str, partition: int, value: OffsetCommitValue) -> None:
        if self.pending:
            self.pending.supersede(group_id, topic, partition)
        try:
            self._by_group[group_id][topic][partition] = value
        except KeyError:
            self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = value

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> dict[str, None]:
        """Commit or drop the pending offsets of the producer's transaction; return their groups."""
        ended = self.pending.end(producer_id, is_commit=is_commit)
        for group_id, (topic, partition), value in ended:
            if value is not None:
                self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = value
        return dict.fromkeys(group_id for group_id, _, _ in ended)

    def count(self, group_id: str) -> int:
        return sum(map(len, self._by_group.get(group_id, {}).values()))

    def discard(self, group_id: str, topic: str, partition: int) -> bool:
        """Forget one offset, and what is pending in its place; False if there is neither."""
        was_pending = bool(self.pending) and self.pending.discard(group_id, topic, partition)
        topics = self._by_group.get(group_id, {})
        partitions = topics.get(topic, {})
        if partitions.pop(partition, None) is None:
            return was_pending
        if not partitions:
            # Empty shells would add up over the life of a broker that sees many topics and groups.
            del topics[topic]
            if not topics:
                del self._by_group[group_id]
        return True

    def discard_all(self, group_id: str) -> list[Place]:
        """Forget every offset of a group, pending ones too; each topic and partition once."""
        topics = self._by_group.pop(group_id, {})
        places = {(topic, partition): None for topic, partitions in topics.items() for partition in partitions}
        for place in list(self.pending.of_group(group_id)):
            self.pending.discard(group_id, *place)
            places[place] = None
        return list(places)

    def places_of(self, topic: str) -> list[tuple[str, int]]:
        """Return each group and partition of a topic that has a committed or pending offset."""
        places = {
            (group_id, partition): None
            for group_id, topics in self._by_group.items()
            for partition in topics.get(topic, ())
        }
        for group_id in self.pending.group_ids():
            for name, partition in self.pending.of_group(group_id):
                if name == topic:
                    places[group_id, partition] = None
        return list(places)

    def values_at(self, group_id: str, topic: str, partition: int) -> Iterator[OffsetCommitValue]:
        """Yield the committed offset of a place, and the pending ones."""
        if (value := self.get(group_id, topic, partition)) is not None:
            yield value
        yield from self.pending.values_at(group_id, topic, partition)


def commit_error(group: ClassicGroup | None, request: OffsetCommitRequest, api_version: int) -> ErrorCode:
    """Return why the commit is rejected. Members of the present generation may commit; any client may if there are no
    members."""
    generation_id = request.generation_id_or_member_epoch
    if group is None:
        if generation_id < 0:
            return ErrorCode.NONE
        if api_version >= GROUP_ID_NOT_FOUND_FROM_VERSION:
            return ErrorCode.GROUP_ID_NOT_FOUND
        return ErrorCode.ILLEGAL_GENERATION
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return ErrorCode.NONE
    if generation_id < 0 and not request.member_id and request.group_instance_id is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    code = group.member_error(request.member_id, request.group_instance_id)
    if code is not ErrorCode.NONE:
        return code
    if generation_id != group.generation_id:
        return ErrorCode.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        # It knows the generation but not its assignment, so it cannot have read anything for this generation yet.
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def commit(offsets: CommittedOffsets, group: Group, event: CommitOffsets, step: StepContext) -> None:
    """Commit what `commit_error` let pass."""
    request = event.request
    if isinstance(group, ClassicGroup) and (member := group.members.get(request.member_id)) is not None:
        # A commit is a sign of life, as good as a heartbeat; in the classic protocol only.
        restart_session(group, member, step)
    records: list[CoordinatorRecord] = []
    response = OffsetCommitResponse()
    code = (
        ErrorCode.UNKNOWN_TOPIC_ID
        if event.api_version >= TOPIC_ID_FROM_VERSION
        else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )
    for topic, partition, value in accepted(request, response, step, replaced_code=code):
        offsets.put(group.group_id, topic, partition, value)
        records.append(offset_commit_record(group.group_id, topic, partition, value))
    if records:
        step.append(*records)
    step.reply(event.token, response)


def accepted(
    request: OffsetCommitRequest,
    response: OffsetCommitResponse,
    step: StepContext,
    *,
    replaced_code: ErrorCode = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
) -> Iterator[tuple[str, int, OffsetCommitValue]]:
    """Yield topic, partition and value of each offset that can be stored, and fill the response.

    A large commit comes in parts, and one within a transaction waits for its verification. If another topic got the
    name meanwhile, the position is refused with `replaced_code`: stored, it would hide one of the new topic.
    """
    # A peer may ask for longer than time can tell.
    expire_timestamp = (
        -1 if request.retention_time_ms == -1 else min(step.now_ms + request.retention_time_ms, TIMESTAMP_MS_MAX)
    )
    for topic in request.topics:
        answered = OffsetCommitResponseTopic(name=topic.name, topic_id=topic.topic_id)
        response.topics.append(answered)
        was_replaced = is_replaced(step.topics, topic.name, topic.topic_id)
        for partition in topic.partitions:
            index = partition.partition_index
            if was_replaced or is_metadata_too_large(partition, step.config.offset_metadata_size_max):
                code = replaced_code if was_replaced else ErrorCode.OFFSET_METADATA_TOO_LARGE
                answered.partitions.append(OffsetCommitResponsePartition(partition_index=index, error_code=code))
                continue
            value = OffsetCommitValue(
                offset=partition.committed_offset,
                metadata=partition.committed_metadata or "",
                commit_timestamp=step.now_ms,
                expire_timestamp=expire_timestamp,
                # The record of an offset with an expiry has no room for it. Kept as long as this coordinator lives, it
                # tells the position from one of an earlier topic of that name.
                topic_id=topic.topic_id,
            )
            if expire_timestamp == -1:
                # There is no room for this either, and the next coordinator would not know it.
                value.leader_epoch = partition.committed_leader_epoch
            answered.partitions.append(OffsetCommitResponsePartition(partition_index=index))
            yield topic.name, index, value


def refuse_commit(request: OffsetCommitRequest, code: ErrorCode) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def is_metadata_too_large(partition: OffsetCommitRequestPartition, size_max: int) -> bool:
    metadata = partition.committed_metadata
    if metadata is None or 2 * len(metadata) <= size_max:
        return False
    # Kafka measures a Java string, which has two units for a character beyond the basic plane.
    return len(metadata.encode("utf-16-le", "surrogatepass")) // 2 > size_max


def fetch(offsets: CommittedOffsets, event: FetchOffsets, step: StepContext) -> None:
    response = fetched(offsets, event.request)
    if event.require_stable and offsets.pending.has_any(event.request.group_id):
        hide_unstable(offsets.pending, response)
    step.reply(event.token, response)


def hide_unstable(pending: PendingOffsets, response: OffsetFetchResponseGroup) -> None:
    """Replace offsets that a transaction is about to move, because a reader from there would read records twice."""
    for topic in response.topics:
        topic.partitions = [
            unstable_partition(partition.partition_index)
            if pending.has(response.group_id, topic.name, partition.partition_index)
            else partition
            for partition in topic.partitions
        ]


def unstable_partition(index: int) -> OffsetFetchResponsePartitions:
    absent = fetched_partition(index, None)
    absent.error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
    return absent


def fetched(offsets: CommittedOffsets, request: OffsetFetchRequestGroup) -> OffsetFetchResponseGroup:
    response = OffsetFetchResponseGroup(group_id=request.group_id)
    if request.topics is None:
        for name, partitions in offsets.of_group(request.group_id):
            # Offsets of an earlier topic of that name are listed apart; the handler drops those of deleted topics.
            by_id: dict[UUID, OffsetFetchResponseTopics] = {}
            for index, value in partitions.items():
                topic = by_id.setdefault(value.topic_id, OffsetFetchResponseTopics(name=name, topic_id=value.topic_id))
                topic.partitions.append(fetched_partition(index, value))
            response.topics.extend(by_id.values())
        return response
    for asked in request.topics:
        response.topics.append(
            OffsetFetchResponseTopics(
                name=asked.name,
                topic_id=asked.topic_id,
                partitions=[
                    fetched_partition(index, offsets.current(request.group_id, asked.name, asked.topic_id, index))
                    for index in asked.partition_indexes
                ],
            )
        )
    return response


def fetched_partition(index: int, value: OffsetCommitValue | None) -> OffsetFetchResponsePartitions:
    if value is None:
        return OffsetFetchResponsePartitions(
            partition_index=index, committed_offset=NO_OFFSET, committed_leader_epoch=-1, metadata=""
        )
    return OffsetFetchResponsePartitions(
        partition_index=index,
        committed_offset=value.offset,
        committed_leader_epoch=value.leader_epoch,
        metadata=value.metadata,
    )


def forget_topic(offsets: CommittedOffsets, topic: str, topic_id: UUID, step: StepContext) -> None:
    """Forget the positions of a deleted topic, and none of a later topic of the same name.

    A tombstone takes everything at its place along. So a place where the later topic has a position stays as it is: the
    topic id makes the old position void.
    """
    doomed = [
        (group_id, partition)
        for group_id, partition in offsets.places_of(topic)
        if all(value.topic_id in (ZERO_UUID, topic_id) for value in offsets.values_at(group_id, topic, partition))
    ]
    for group_id, partition in doomed:
        offsets.discard(group_id, topic, partition)
    if doomed:
        step.append(*(offset_tombstone(group_id, topic, partition) for group_id, partition in doomed))
