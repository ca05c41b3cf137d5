"""ResignLeadership: a leader that cannot serve some of its records makes way for another in-sync replica.

The in-sync set stays: all of its members hold everything that was acknowledged, and the old leader fetches what it
lacks from the next one. Where there is no other member it continues to lead.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from strandline.codec.messages.resign_leadership_request import ResignedPartition, ResignLeadershipRequest
from strandline.codec.messages.resign_leadership_response import ResignedPartitionResult
from strandline.errors import ErrorCode, RequestError
from strandline.quorum.controller.partition_changes import Election
from strandline.quorum.controller.state import ControllerState, Decision
from strandline.quorum.image.cluster_image import NO_LEADER, NO_LEADER_CHANGE


def decide(
    state: ControllerState, request: ResignLeadershipRequest
) -> Iterator[Decision[tuple[uuid.UUID, ResignedPartitionResult]]]:
    """Yield for each partition its records and its part of the response."""
    for topic in request.topics:
        for asked in topic.partitions:
            try:
                # Asked again with every partition: between two of them the broker may have been fenced off.
                state.broker(request.broker_id, request.broker_epoch)
                records, result = _resigned(state, request.broker_id, topic.topic_id, asked)
            except RequestError as refusal:
                yield [], (topic.topic_id, ResignedPartitionResult(asked.partition_index, error_code=refusal.code))
            else:
                yield records, (topic.topic_id, result)


def _resigned(
    state: ControllerState, leader_id: int, topic_id: uuid.UUID, asked: ResignedPartition
) -> Decision[ResignedPartitionResult]:
    topic = state.image.topic_by_id(topic_id)
    if topic is None:
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, "This topic id does not exist.")
    index = asked.partition_index
    if not 0 <= index < len(topic.partitions):
        raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "This partition does not exist.")
    partition = topic.partitions[index]
    if partition.leader_epoch != asked.leader_epoch:
        # Asked in an epoch that is over: what it asked for has happened, or something else has.
        code = ErrorCode.FENCED_LEADER_EPOCH
        if asked.leader_epoch > partition.leader_epoch:
            code = ErrorCode.NOT_CONTROLLER
        raise RequestError(code, f"leader epoch {asked.leader_epoch}; {partition.leader_epoch} is current")
    if partition.leader != leader_id:
        raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {leader_id} does not lead this partition")
    change = state.change(topic, index)
    change.election = Election.ANOTHER
    record = change.record()
    if record is None or record.leader in (leader_id, NO_LEADER, NO_LEADER_CHANGE):
        raise RequestError(ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no other in-sync replica can lead")
    records = state.decided([record])
    partition = topic.partitions[index]
    return records, ResignedPartitionResult(index, leader_id=partition.leader, leader_epoch=partition.leader_epoch)
