"""AlterPartition (56), versions 2-3: the leader of a partition asks for another in-sync set.

Honoured: partition and leader epochs, the broker epoch of the leader and, from version 3 on, of every member; leader
recovery state. Each partition has its outcome, sent when it is committed. A controller that lost its lead says so for
the whole request: whether it was carried out, the next one knows.
"""

from __future__ import annotations

from uuid import UUID

from strandline.codec.messages.alter_partition_request import AlterPartitionRequest
from strandline.codec.messages.alter_partition_response import AlterPartitionResponse, PartitionData, TopicData
from strandline.errors import ErrorCode, RequestError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.submission import Outcomes

API_KEY = 56
VERSIONS = (2, 3)


def handle(context: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse | None:
    node = context.node
    try:
        decisions = node.controller.decide_in_sync_changes(request, version=context.api_version)
    except RequestError as refusal:
        return AlterPartitionResponse(error_code=error_code(refusal))

    def on_done(outcomes: Outcomes[tuple[UUID, PartitionData]]) -> None:
        topics: dict[UUID, TopicData] = {}
        for (topic_id, outcome), error in outcomes:
            if error is not None and error_code(error) == ErrorCode.NOT_CONTROLLER:
                context.reply(AlterPartitionResponse(error_code=ErrorCode.NOT_CONTROLLER))
                return
            if error is not None:
                outcome = PartitionData(outcome.partition_index, error_code=error_code(error))
            topics.setdefault(topic_id, TopicData(topic_id)).partitions.append(outcome)
        context.reply(AlterPartitionResponse(topics=list(topics.values())))

    node.controller.submit_all(decisions, on_done)
    return None
