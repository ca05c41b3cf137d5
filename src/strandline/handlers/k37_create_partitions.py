"""CreatePartitions (37), versions 0-3: more partitions for topics that exist.

Honoured: counts, explicit assignments, validate-only, one outcome per topic. Answered when the records are flushed in
the metadata log and the new logs are there, so that a producer may write to them at once. The number of partitions of
an internal topic is fixed: where a group's offsets lie follows from it.
The timeout is not used: a write to our own disk either happens or fails.
"""

from __future__ import annotations

from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest
from strandline.codec.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.context import RequestContext
from strandline.handlers.shares import Outcomes, decide
from strandline.quorum.new_partitions import MorePartitions

API_KEY = 37
VERSIONS = (0, 3)


def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse | None:
    asked = [
        MorePartitions(
            name=topic.name,
            count=topic.count,
            assignments=None if topic.assignments is None else [each.broker_ids for each in topic.assignments],
        )
        for topic in request.topics
    ]

    def on_done(outcomes: Outcomes[RequestError | None]) -> None:
        results = [
            _result(topic.name, outcome or error) for topic, (outcome, error) in zip(asked, outcomes, strict=True)
        ]
        context.reply(CreatePartitionsResponse(results=results))

    decisions = context.node.controller.decide_partitions(asked, validate_only=request.validate_only)
    decide(context.node, decisions, on_done)
    return None


def _result(name: str, error: BaseException | None) -> CreatePartitionsTopicResult:
    if error is None:
        return CreatePartitionsTopicResult(name=name)
    message = error_message(error) if isinstance(error, RequestError) else None
    return CreatePartitionsTopicResult(name=name, error_code=error_code(error), error_message=message)
