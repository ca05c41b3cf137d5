"""InitializeShareGroupState (83), version 0: begin the state of share partitions, or begin it again elsewhere.

For brokers: the group coordinator sends it when a share group subscribes to a topic, and to alter its offsets. A state
epoch below the known one is FENCED_STATE_EPOCH. Beyond Kafka: a retry that names no offset changes nothing.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.initialize_share_group_state_request import InitializeShareGroupStateRequest
from strandline.codec.messages.initialize_share_group_state_response import (
    InitializeShareGroupStateResponse,
    InitializeStateResult,
    PartitionResult,
)
from strandline.coordinators.shares.events import InitializeState
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.share_states import PartWait, ask_each

API_KEY = 83
VERSIONS = (0, 0)


def handle(context: RequestContext, request: InitializeShareGroupStateRequest) -> None:
    def event(token: PartWait, key: SharePartitionKey, part: Any) -> InitializeState:
        return InitializeState(token, key, part.state_epoch, part.start_offset)

    def answer(topics: list[Any]) -> None:
        context.reply(
            InitializeShareGroupStateResponse(
                results=[
                    InitializeStateResult(
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
