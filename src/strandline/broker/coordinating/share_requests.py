"""Requests to the share coordinator of another broker, made of events, and the outcomes in its responses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final
from uuid import UUID

from strandline.codec.message import Message
from strandline.codec.messages import (
    delete_share_group_state_request as delete,
)
from strandline.codec.messages import (
    initialize_share_group_state_request as initialize,
)
from strandline.codec.messages import (
    read_share_group_state_request as read,
)
from strandline.codec.messages import (
    read_share_group_state_summary_request as summary,
)
from strandline.codec.messages import (
    write_share_group_state_request as write,
)
from strandline.coordinators.shares.events import (
    DeleteState,
    InitializeState,
    ReadState,
    StateAnswer,
    StateRequest,
    SummarizeState,
    WriteState,
)
from strandline.coordinators.shares.share_state import ShareState, ShareSummary, StateBatch
from strandline.errors import ErrorCode, named

VERSIONS: Final[dict[type[StateRequest], int]] = {
    InitializeState: 0,
    ReadState: 0,
    WriteState: 1,
    DeleteState: 0,
    SummarizeState: 1,
}
_MESSAGES: Final[dict[type[StateRequest], tuple[Any, Any]]] = {
    InitializeState: (initialize.InitializeShareGroupStateRequest, initialize.InitializeStateData),
    ReadState: (read.ReadShareGroupStateRequest, read.ReadStateData),
    WriteState: (write.WriteShareGroupStateRequest, write.WriteStateData),
    DeleteState: (delete.DeleteShareGroupStateRequest, delete.DeleteStateData),
    SummarizeState: (summary.ReadShareGroupStateSummaryRequest, summary.ReadStateSummaryData),
}
"""By kind of event: the request, and what it has for each topic."""

Place = tuple[UUID, int]
"""Topic id and partition."""


def state_request(group_id: str, events: Sequence[StateRequest]) -> Message:
    """Return the request for events of one kind and one group."""
    request_class, topic_class = _MESSAGES[type(events[0])]
    topics: dict[UUID, Any] = {}
    for event in events:
        topic = topics.get(event.key.topic_id)
        if topic is None:
            topic = topics[event.key.topic_id] = topic_class(topic_id=event.key.topic_id)
        topic.partitions.append(_part(event))
    request: Message = request_class(group_id=group_id, topics=list(topics.values()))
    return request


def _part(event: StateRequest) -> Any:
    index = event.key.partition
    match event:
        case WriteState():
            return write.PartitionData(
                partition=index,
                state_epoch=event.state_epoch,
                leader_epoch=event.leader_epoch,
                start_offset=event.start_offset,
                delivery_complete_count=event.delivery_complete_count,
                state_batches=[write.StateBatch(*batch) for batch in event.batches],
            )
        case InitializeState():
            return initialize.PartitionData(
                partition=index, state_epoch=event.state_epoch, start_offset=event.start_offset
            )
        case ReadState():
            return read.PartitionData(partition=index, leader_epoch=event.leader_epoch)
        case DeleteState():
            return delete.PartitionData(partition=index)
        case SummarizeState():
            return summary.PartitionData(partition=index, leader_epoch=-1)


def outcomes(kind: type[StateRequest], response: Any) -> dict[Place, StateAnswer]:
    """Return what a response to events of this kind says about each share partition."""
    return {
        (topic.topic_id, part.partition): _outcome(kind, part)
        for topic in response.results
        for part in topic.partitions
    }


def _outcome(kind: type[StateRequest], part: Any) -> StateAnswer:
    code = named(part.error_code)
    value: ShareState | ShareSummary | None = None
    if code is ErrorCode.NONE and kind is ReadState:
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in part.state_batches
        )
        value = ShareState(part.state_epoch, part.start_offset, batches)
    elif code is ErrorCode.NONE and kind is SummarizeState:
        value = ShareSummary(part.state_epoch, part.leader_epoch, part.start_offset, part.delivery_complete_count)
    return StateAnswer(code, part.error_message, value)
