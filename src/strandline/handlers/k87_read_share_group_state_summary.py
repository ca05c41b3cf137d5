"""ReadShareGroupStateSummary (87), versions 0-1: where share groups are in partitions, without their batches.

For brokers: the group coordinator describes offsets by it. A share partition without a state has the offset -1. The
leader epoch of the request is not checked, as in Kafka.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.read_share_group_state_summary_request import ReadShareGroupStateSummaryRequest
from strandline.codec.messages.read_share_group_state_summary_response import (
    PartitionResult,
    ReadShareGroupStateSummaryResponse,
    ReadStateSummaryResult,
)
from strandline.coordinators.shares.events import StateAnswer, SummarizeState
from strandline.coordinators.shares.share_state import SharePartitionKey, ShareSummary
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.share_states import PartWait, ask_each

API_KEY = 87
VERSIONS = (0, 1)


def handle(context: RequestContext, request: ReadShareGroupStateSummaryRequest) -> None:
    def event(token: PartWait, key: SharePartitionKey, part: Any) -> SummarizeState:
        return SummarizeState(token, key)

    def answer(topics: list[Any]) -> None:
        context.reply(
            ReadShareGroupStateSummaryResponse(
                results=[
                    ReadStateSummaryResult(
                        topic_id=topic_id, partitions=[_result(index, outcome) for index, outcome in parts]
                    )
                    for topic_id, parts in topics
                ]
            )
        )

    ask_each(context, request, event, answer)


def _result(index: int, outcome: StateAnswer) -> PartitionResult:
    summary = outcome.value
    if not isinstance(summary, ShareSummary):
        return PartitionResult(partition=index, error_code=outcome.code, error_message=outcome.message)
    return PartitionResult(
        partition=index,
        state_epoch=summary.state_epoch,
        leader_epoch=summary.leader_epoch,
        start_offset=summary.start_offset,
        delivery_complete_count=summary.delivery_complete_count,
    )
