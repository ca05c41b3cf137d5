"""DeleteTopics (20), versions 1-6: by name, and since version 6 by id.

Honoured: `delete.topic.enable`, one outcome per topic, duplicates refused. Answered when the records are flushed in
the metadata log; the files go away later. A long list is worked through a share per turn of the loop; topics of one
share stand or fall together.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from strandline.codec.message import encode
from strandline.codec.messages.delete_topics_request import DeleteTopicsRequest
from strandline.codec.messages.delete_topics_response import DeletableTopicResult, DeleteTopicsResponse
from strandline.errors import ErrorCode, error_code, error_message
from strandline.handlers.support.context import RequestContext
from strandline.handlers.support.time_slicing import Outcomes, decide, joined_response
from strandline.quorum.controller.controller import DeletedTopic, TopicRef, too_many_topics

API_KEY = 20
VERSIONS = (1, 6)


def handle(context: RequestContext, request: DeleteTopicsRequest) -> DeleteTopicsResponse | None:
    version = context.api_version

    def on_done(outcomes: Outcomes[tuple[DeletedTopic, bytes]]) -> None:
        parts = [part if error is None else _part(context, outcome, error) for (outcome, part), error in outcomes]
        context.reply(joined_response(DeleteTopicsResponse(), version, parts))

    decisions = ((records, (outcome, _part(context, outcome))) for records, outcome in _decisions(context, request))
    decide(context.node, decisions, on_done)
    return None


def _decisions(context: RequestContext, request: DeleteTopicsRequest) -> Iterator[tuple[list[Any], DeletedTopic]]:
    by_name: Iterator[TopicRef] = (TopicRef(name) for name in request.topic_names)
    by_either: Iterator[TopicRef] = (TopicRef(topic.name, topic.topic_id) for topic in request.topics)
    refusal = too_many_topics(len(request.topic_names) + len(request.topics))
    refs = by_either if context.api_version >= 6 else by_name
    if refusal is not None:
        yield from (([], DeletedTopic(ref.name, ref.id, refusal)) for ref in refs)
    else:
        yield from context.node.controller.decide_deletions(list(refs))


def _part(context: RequestContext, outcome: DeletedTopic, write_error: BaseException | None = None) -> bytes:
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
