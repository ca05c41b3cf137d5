"""DeleteTopics (20), versions 1-6: by name, and since version 6 by id.

Honoured: `delete.topic.enable`, one outcome per topic, duplicates refused. Answered when the records are flushed in
the metadata log; the files go away later.
"""

from __future__ import annotations

from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest
from strandline.codec.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from strandline.errors import ErrorCode, error_code
from strandline.handlers.context import RequestContext
from strandline.quorum.controller import DeletedTopic, TopicRef

API_KEY = 20
VERSIONS = (1, 6)


def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | None:
    if context.api_version >= 6:
        refs = [TopicRef(topic.name, topic.topic_id) for topic in request.topics]
    else:
        refs = [TopicRef(name) for name in request.topic_names]
    records, outcomes = context.node.controller.delete_topics(refs)

    def on_done(error: BaseException | None) -> None:
        context.reply(
            DeleteTopicsResponse(responses=[_result(outcome, context.api_version, error) for outcome in outcomes])
        )

    context.node.controller_write(records, on_done)
    return None


def _result(outcome: DeletedTopic, api_version: int, write_error: BaseException | None) -> DeletableTopicResult:
    code, message = ErrorCode.NONE.value, None
    if outcome.error is not None:
        code, message = int(outcome.error.code), str(outcome.error)
        if code == ErrorCode.TOPIC_DELETION_DISABLED and api_version < 3:
            # Clients of that age do not know the code.
            code = ErrorCode.INVALID_REQUEST
    elif write_error is not None:
        code = error_code(write_error)
    # Before version 6 a name cannot be null, and every reference there has one.
    return DeletableTopicResult(name=outcome.name, topic_id=outcome.id, error_code=code, error_message=message)
