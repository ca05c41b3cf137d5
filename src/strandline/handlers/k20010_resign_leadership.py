"""ResignLeadership (20010), version 0: a leader asks the controller that another in-sync replica leads in its place.

It is Strandline's own, between brokers and the controller. Honoured: the broker epoch, and the leader epoch of each
partition. Each partition has its outcome when it is committed: the new leader, ELIGIBLE_LEADERS_NOT_AVAILABLE if no
other replica can lead, FENCED_LEADER_EPOCH if that leadership is over already. As with AlterPartition, a controller
that lost its lead answers NOT_CONTROLLER for the whole request.
"""

from __future__ import annotations

from uuid import UUID

from strandline.codec.messages.resign_leadership_request import ResignLeadershipRequest
from strandline.codec.messages.resign_leadership_response import (
    ResignedPartitionResult,
    ResignedTopicResult,
    ResignLeadershipResponse,
)
from strandline.errors import ErrorCode, RequestError, error_code
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.submission import Outcomes

API_KEY = 20_010
VERSIONS = (0, 0)


def handle(context: RequestContext, request: ResignLeadershipRequest) -> ResignLeadershipResponse | None:
    node = context.node
    try:
        decisions = node.controller.decide_resignations(request)
    except RequestError as refusal:
        return ResignLeadershipResponse(error_code=error_code(refusal))

    def on_done(outcomes: Outcomes[tuple[UUID, ResignedPartitionResult]]) -> None:
        topics: dict[UUID, ResignedTopicResult] = {}
        for (topic_id, outcome), error in outcomes:
            if error is not None and error_code(error) == ErrorCode.NOT_CONTROLLER:
                context.reply(ResignLeadershipResponse(error_code=ErrorCode.NOT_CONTROLLER))
                return
            if error is not None:
                outcome = ResignedPartitionResult(outcome.partition_index, error_code=error_code(error))
            topics.setdefault(topic_id, ResignedTopicResult(topic_id)).partitions.append(outcome)
        context.reply(ResignLeadershipResponse(topics=list(topics.values())))

    node.controller.submit_all(decisions, on_done)
    return None
