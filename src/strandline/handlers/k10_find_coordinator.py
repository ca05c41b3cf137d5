"""FindCoordinator (10), versions 0-6: which broker coordinates a group. Many keys are looked up over several turns.

Honoured: groups; the first request creates `__consumer_offsets` and is answered when it is there. While too few brokers
are registered for its replicas it is not created, and clients ask again.
Not yet: transactions are answered with COORDINATOR_NOT_AVAILABLE, share groups with INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.codec.message import encode
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from strandline.coordinators.partitioning import partition_of_group
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.auto_creation import create_missing, offsets_topic
from strandline.handlers.broker_endpoints import endpoint_of
from strandline.handlers.context import Node, RequestContext
from strandline.handlers.shares import gradually, joined_response
from strandline.quorum.topic_names import CONSUMER_OFFSETS

API_KEY = 10
VERSIONS = (0, 6)

GROUP = 0
TRANSACTION = 1

Found = tuple[ErrorCode, str, tuple[int, str, int]]
"""Also where nothing is wrong there is a word, which is Kafka's; from version 4 on it is left out then."""

_NOWHERE = (-1, "", -1)
_NOT_AVAILABLE = "The coordinator is not available."


def handle(context: RequestContext, request: FindCoordinatorRequest) -> None:
    if request.key_type != GROUP:
        _answer(context, request, _refusal(request))
    elif context.node.image.topic_by_name(CONSUMER_OFFSETS) is not None:
        _answer(context, request, lambda key: _find_group(context.node, key))
    else:
        _create_offsets_topic(context, request)


def _create_offsets_topic(context: RequestContext, request: FindCoordinatorRequest) -> None:
    # Whether it was refused needs no look: then the look-up fails.
    create_missing(
        context.node,
        [CONSUMER_OFFSETS],
        lambda _: _answer(context, request, lambda key: _find_group(context.node, key)),
    )


def _find_group(node: Node, group_id: str) -> Found:
    topic = node.image.topic_by_name(CONSUMER_OFFSETS)
    if topic is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, _why_not_created(node), _NOWHERE
    partition = topic.partitions[partition_of_group(group_id, partition_count=len(topic.partitions))]
    endpoint = endpoint_of(node, partition.leader)
    if endpoint is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE, _NOWHERE
    return ErrorCode.NONE, "NONE", (partition.leader, *endpoint)


def _why_not_created(node: Node) -> str:
    try:
        offsets_topic(node)
    except RequestError as refusal:
        return str(refusal)
    return _NOT_AVAILABLE


def _refusal(request: FindCoordinatorRequest) -> Callable[[str], Found]:
    if request.key_type == TRANSACTION:
        code, message = ErrorCode.COORDINATOR_NOT_AVAILABLE, "This version has no transactions yet."
    else:
        code, message = ErrorCode.INVALID_REQUEST, f"Coordinators of type {request.key_type} are not supported."
    return lambda key: (code, message, _NOWHERE)


def _answer(context: RequestContext, request: FindCoordinatorRequest, find: Callable[[str], Found]) -> None:
    version = context.api_version
    # Since version 4 a request names many keys; before, the answer itself is about the one key.
    if version < 4:
        code, message, (node_id, host, port) = find(request.key)
        context.reply(
            FindCoordinatorResponse(error_code=code, error_message=message, node_id=node_id, host=host, port=port)
        )
        return

    def part(key: str) -> bytes:
        code, message, (node_id, host, port) = find(key)
        return encode(
            Coordinator(
                key=key, node_id=node_id, host=host, port=port, error_code=code, error_message=message if code else ""
            ),
            version,
        )

    gradually(
        context.node.runtime,
        (part(key) for key in request.coordinator_keys),
        lambda parts: context.reply(joined_response(FindCoordinatorResponse(), version, parts)),
    )
