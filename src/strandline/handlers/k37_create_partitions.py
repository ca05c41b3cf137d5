"""CreatePartitions (37), versions 0-3: more partitions for topics that exist.

Honoured: counts, explicit assignments, validate-only, one outcome per topic. Answered when the records are flushed in
the metadata log and the new logs are there, so that a producer may write to them at once. The number of partitions of
an internal topic is fixed: where a group's offsets lie follows from it.
The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.message import encode
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest
from strandline.codec.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.time_slicing import Outcomes, answered, decide, joined_response
from strandline.quorum.controller.controller import too_many_topics
from strandline.quorum.controller.new_partitions import MorePartitions
from strandline.quorum.controller.state import Decisions

API_KEY = 37
VERSIONS = (0, 3)


def handle(context: RequestContext, request: CreatePartitionsRequest) -> CreatePartitionsResponse | None:
    def on_done(outcomes: Outcomes[bytes]) -> None:
        parts = [
            part if error is None else _part(context, topic.name, error)
            for topic, (part, error) in zip(request.topics, outcomes, strict=True)
        ]
        context.reply(joined_response(CreatePartitionsResponse(), context.api_version, parts))

    decisions = _decisions(context, request)
    parts = answered(request.topics, decisions, lambda topic, error: _part(context, topic.name, error))
    decide(context.node, parts, on_done)
    return None


def _decisions(context: RequestContext, request: CreatePartitionsRequest) -> Decisions[RequestError | None]:
    refusal = too_many_topics(len(request.topics))
    if refusal is not None:
        yield from (([], refusal) for _ in request.topics)
        return
    asked = [
        MorePartitions(
            name=topic.name,
            count=topic.count,
            assignments=None if topic.assignments is None else [each.broker_ids for each in topic.assignments],
        )
        for topic in request.topics
    ]
    yield from context.node.controller.decide_partitions(asked, validate_only=request.validate_only)


def _part(context: RequestContext, name: str, error: BaseException | None) -> bytes:
    result = CreatePartitionsTopicResult(name=name)
    if error is not None:
        result.error_code = error_code(error)
        context.node.count_error(API_KEY, result.error_code)
        result.error_message = error_message(error) if isinstance(error, RequestError) else None
    return encode(result, context.api_version)
