"""DeleteShareGroupState (86), version 0: forget the state of share partitions.

For brokers: the group coordinator sends it when a share group, or its offsets of a topic, are deleted. A share
partition without a state is no error; a topic or partition that does not exist is UNKNOWN_TOPIC_OR_PARTITION.
"""

from __future__ import annotations

from typing import Any

from strandline.codec.messages.delete_share_group_state_request import DeleteShareGroupStateRequest
from strandline.codec.messages.delete_share_group_state_response import (
    DeleteShareGroupStateResponse,
    DeleteStateResult,
    PartitionResult,
)
from strandline.coordinators.shares.events import DeleteState
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.share_states import PartWait, ask_each

API_KEY = 86
VERSIONS = (0, 0)


def handle(context: RequestContext, request: DeleteShareGroupStateRequest) -> None:
    def event(token: PartWait, key: SharePartitionKey, part: Any) -> DeleteState:
        return DeleteState(token, key)

    def answer(topics: list[Any]) -> None:
        context.reply(
            DeleteShareGroupStateResponse(
                results=[
                    DeleteStateResult(
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
