"""CreatePartitions (37), versions 0-3: more partitions for topics that exist.

Honoured: counts, explicit assignments, validate-only, one outcome per topic. Answered when the records are flushed in
the metadata log and the new logs are there, so that a producer may write to them at once. The number of partitions of
an internal topic is fixed: where a group's offsets lie follows from it.
The timeout is `broker/network/forwarding`'s.
"""

from __future__ import annotations

from strandline.codec.message_codec import encode
from strandline.codec.messages.create_partitions_request import CreatePartitionsRequest
from strandline.codec.messages.create_partitions_response import CreatePartitionsResponse, CreatePartitionsTopicResult
from strandline.errors import RequestError, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.mutation_quota import mutation_quota
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.new_partitions import MorePartitions
from strandline.quorum.controller.submission import Outcomes

API_KEY = 37
VERSIONS = (0, 3)

STRICT_FROM = 3
"""From this version on clients know THROTTLING_QUOTA_EXCEEDED."""


def handle(context: RequestContext, request: CreatePartitionsRequest) -> None:
    controller = context.node.controller
    quota = mutation_quota(context, strict_from=STRICT_FROM)

    def on_done(outcomes: Outcomes[RequestError | None]) -> None:
        parts = (
            _part(context, topic.name, write_error or refusal)
            for topic, (refusal, write_error) in zip(request.topics, outcomes, strict=True)
        )
        reply_in_parts(context, CreatePartitionsResponse(throttle_time_ms=quota.throttle_ms()), parts)

    asked = [
        MorePartitions(
            name=topic.name,
            count=topic.count,
            assignments=None if topic.assignments is None else [each.broker_ids for each in topic.assignments],
        )
        for topic in request.topics
    ]
    decisions = controller.decide_partitions(asked, validate_only=request.validate_only, pay=quota.pay)
    controller.submit_all(decisions, on_done)


def _part(context: RequestContext, name: str, error: BaseException | None) -> bytes:
    result = CreatePartitionsTopicResult(name=name)
    if error is not None:
        result.error_code = error_code(error)
        context.node.count_error(API_KEY, result.error_code)
        result.error_message = error_message(error) if isinstance(error, RequestError) else None
    return encode(result, context.api_version)
