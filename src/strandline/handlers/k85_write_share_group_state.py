"""WriteShareGroupState (85), versions 0-1: what share consumers made of records, written by the leader of a partition.

For brokers. Answered when it is committed; after `share.coordinator.write.timeout.ms` with COORDINATOR_NOT_AVAILABLE.
Leaders and states of an old epoch are fenced; what was never initialized is INVALID_REQUEST. A write may be repeated.
Beyond Kafka: ranges that end before they begin and unknown states are INVALID_REQUEST, and a start offset that is below
the known one moves nothing back.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.write_share_group_state_request import WriteShareGroupStateRequest
from strandline.codec.messages.write_share_group_state_response import (
    PartitionResult,
    WriteShareGroupStateResponse,
    WriteStateResult,
)
from strandline.coordinators.shares.events import WriteState
from strandline.coordinators.shares.share_state import SharePartitionKey, StateBatch
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.share_states import PartWait, ask_each

API_KEY = 85
VERSIONS = (0, 1)


def handle(context: RequestContext, request: WriteShareGroupStateRequest) -> None:
    def event(token: PartWait, key: SharePartitionKey, part: Any) -> WriteState:
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in part.state_batches
        )
        return WriteState(
            token,
            key,
            part.state_epoch,
            part.leader_epoch,
            part.start_offset,
            part.delivery_complete_count,
            batches,
        )

    def answer(topics: list[Any]) -> None:
        context.reply(
            WriteShareGroupStateResponse(
                results=[
                    WriteStateResult(
                        topic_id=topic_id,
                        partitions=[
                            PartitionResult(partition=index, error_code=code, error_message=message)
                            for index, (code, message, _) in parts
                        ],
                    )
                    for topic_id, parts in topics
                ]
            )
        )

    ask_each(context, request, event, answer)
