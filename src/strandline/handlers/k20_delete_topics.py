"""DeleteTopics (20), versions 1-6: by name, and since version 6 by id.

Honoured: `delete.topic.enable`, one outcome per topic, duplicates refused. Answered when the records are flushed in
the metadata log; the files go away later. A long list is worked through a share per turn of the loop; topics of one
share stand or fall together.
"""

from __future__ import annotations

from strandline.codec.message_codec import encode
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest
from strandline.codec.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from strandline.errors import ErrorCode, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.mutation_quota import mutation_quota
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.controller import DeletedTopic, TopicRef
from strandline.quorum.controller.submission import Outcomes

API_KEY = 20
VERSIONS = (1, 6)

STRICT_FROM = 5
"""From this version on clients know THROTTLING_QUOTA_EXCEEDED."""


def handle(context: RequestContext, request: DeleteTopicsRequest) -> None:
    controller = context.node.controller
    quota = mutation_quota(context, strict_from=STRICT_FROM)

    def on_done(outcomes: Outcomes[DeletedTopic]) -> None:
        parts = (_part(context, outcome, error) for outcome, error in outcomes)
        reply_in_parts(context, DeleteTopicsResponse(throttle_time_ms=quota.throttle_ms()), parts)

    if context.api_version >= 6:
        refs = [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
    else:
        refs = [TopicRef(name) for name in request.topic_names]
    controller.submit_all(controller.decide_deletions(refs, pay=quota.pay), on_done)


def _part(context: RequestContext, outcome: DeletedTopic, write_error: BaseException | None) -> bytes:
    code, message = ErrorCode.NONE.value, None
    if outcome.error is not None:
        code, message = int(outcome.error.code), error_message(outcome.error)
        if code == ErrorCode.TOPIC_DELETION_DISABLED and context.api_version < 3:
            # Clients of that age do not know the code.
            code = ErrorCode.INVALID_REQUEST
    elif write_error is not None:
        code = error_code(write_error)
    if code:
        context.node.count_error(API_KEY, code)
    # Before version 6 a name cannot be null, and every reference there has one.
    result = DeletableTopicResult(name=outcome.name, topic_id=outcome.id, error_code=code, error_message=message)
    return encode(result, context.api_version)
