"""AlterPartitionReassignments (45), versions 0-1: other replicas for partitions, or the end of such a change.

Honoured: new lists, cancelling (null), a fixed replication factor (version 1). Answered when the change has begun, or
is done where nothing has to be copied. The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.messages.alter_partition_reassignments_request import AlterPartitionReassignmentsRequest
from strandline.codec.messages.alter_partition_reassignments_response import (
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.quorum.controller.submission import Outcomes

API_KEY = 45
VERSIONS = (0, 1)


def handle(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse | None:
    if not request.topics:
        return AlterPartitionReassignmentsResponse()
    asked = [
        (topic.name, partition.partition_index, partition.replicas)
        for topic in request.topics
        for partition in topic.partitions
    ]

    def on_done(outcomes: Outcomes[RequestError | None]) -> None:
        response = AlterPartitionReassignmentsResponse(
            allow_replication_factor_change=request.allow_replication_factor_change, error_message=None
        )
        left = iter(outcomes)
        for topic in request.topics:
            part = ReassignableTopicResponse(name=topic.name)
            response.responses.append(part)
            for partition in topic.partitions:
                refusal, failure = next(left)
                error = failure or refusal
                part.partitions.append(
                    ReassignablePartitionResponse(
                        partition_index=partition.partition_index,
                        error_code=0 if error is None else error_code(error),
                        error_message=None if error is None else error_message(error),
                    )
                )
        context.reply(response)

    decisions = context.node.controller.reassignment.decide(
        asked, may_change_factor=request.allow_replication_factor_change
    )
    context.node.controller.submit_all(decisions, on_done)
    return None
