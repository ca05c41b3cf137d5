"""ReadShareGroupState (84), version 0: what the leader of a partition must know of a share group that reads it.

For brokers. A leader epoch below the known one is FENCED_LEADER_EPOCH; a higher one is committed before the answer, so
that the leader before cannot write any more. What was never initialized is INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.read_share_group_state_request import ReadShareGroupStateRequest
from strandline.codec.messages.read_share_group_state_response import (
    PartitionResult,
    ReadShareGroupStateResponse,
    ReadStateResult,
    StateBatch,
)
from strandline.coordinators.shares.events import ReadState, StateAnswer
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareState
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.share_states import PartWait, ask_each

API_KEY = 84
VERSIONS = (0, 0)


def handle(context: RequestContext, request: ReadShareGroupStateRequest) -> None:
    def event(token: PartWait, key: SharePartitionKey, part: Any) -> ReadState:
        return ReadState(token, key, part.leader_epoch)

    def answer(topics: list[Any]) -> None:
        context.reply(
            ReadShareGroupStateResponse(
                results=[
                    ReadStateResult(topic_id=topic_id, partitions=[_result(index, outcome) for index, outcome in parts])
                    for topic_id, parts in topics
                ]
            )
        )

    ask_each(context, request, event, answer)


def _result(index: int, outcome: StateAnswer) -> PartitionResult:
    state = outcome.value
    if not isinstance(state, ShareState):
        return PartitionResult(partition=index, error_code=outcome.code, error_message=outcome.message)
    return PartitionResult(
        partition=index,
        state_epoch=state.state_epoch,
        start_offset=state.start_offset,
        state_batches=[StateBatch(*batch) for batch in state.batches],
    )
