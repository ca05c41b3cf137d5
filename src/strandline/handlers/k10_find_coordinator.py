"""FindCoordinator (10), versions 0-6: which broker coordinates a group, a transactional id or a share partition.

Honoured: the first request creates `__consumer_offsets`, `__transaction_state` or `__share_group_state` and is answered
when it is there. While too few brokers are registered for its replicas it is not created, and clients ask
again. Many keys are looked up over several turns. A broker that names itself, and has only begun to coordinate, answers
when it can serve, or after a second: who comes at once would be sent away, and not every client tries again.
The transactional ids of a sink, and the sink itself by what they begin with (`__strandline.sink.<sink>#`), all lead to
one broker.
Share partitions (`group:topic id:partition`) are for brokers, from version 6 on; while share groups are off, and for a
key of another form, the answer is INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Callable

from strandline.codec.message_codec import encode
from strandline.codec.messages.find_coordinator_request import FindCoordinatorRequest
from strandline.codec.messages.find_coordinator_response import Coordinator, FindCoordinatorResponse
from strandline.coordinators.partitioning import partition_of_group, partition_of_transactional_id
from strandline.coordinators.shares.coordinator_key import coordinator_key, parse_coordinator_key, partition_of_share
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.support.auto_creation import coordinators_topic, create_missing
from strandline.handlers.support.broker_endpoints import endpoint_of
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.handlers.support.response_parts import reply_in_parts
from strandline.quorum.controller.topic_names import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE

API_KEY = 10
VERSIONS = (0, 6)

GROUP = 0
TRANSACTION = 1
SHARE = 2
SHARE_FROM_VERSION = 6
_TOPICS = {GROUP: CONSUMER_OFFSETS, TRANSACTION: TRANSACTION_STATE, SHARE: SHARE_GROUP_STATE}

LOOK_S = 0.01
LOOKS_MAX = 100
KEYS_LOOKED_AT_MAX = 50

Found = tuple[ErrorCode, str, tuple[int, str, int]]
"""Also where nothing is wrong there is a word, which is Kafka's; from version 4 on it is left out then."""

_NOWHERE = (-1, "", -1)
_NOT_AVAILABLE = "The coordinator is not available."


def handle(context: RequestContext, request: FindCoordinatorRequest) -> None:
    name = _TOPICS.get(request.key_type)
    if name is None or (name == SHARE_GROUP_STATE and context.api_version < SHARE_FROM_VERSION):
        _answer(context, request, _refusal(request))
    elif context.node.image.topic_by_name(name) is not None or not any(_is_key(name, key) for key in _keys(request)):
        _answer_begun(context, request, name)
    else:
        # Whether it was refused needs no look: then the look-up fails.
        create_missing(context.node, [name], lambda _: _answer_begun(context, request, name))


def _answer_begun(context: RequestContext, request: FindCoordinatorRequest, name: str, looks: int = LOOKS_MAX) -> None:
    if looks and any(_is_beginning(context.node, name, key) for key in _keys(request)[:KEYS_LOOKED_AT_MAX]):
        context.node.runtime.call_later(LOOK_S, _answer_begun, context, request, name, looks - 1)
    else:
        _answer(context, request, lambda key: _find(context, name, key))


def _is_beginning(node: BrokerServices, name: str, key: str) -> bool:
    topic = node.image.topic_by_name(name)
    if topic is None or name == SHARE_GROUP_STATE:
        return False
    coordinator = node.groups if name == CONSUMER_OFFSETS else node.transactions
    return coordinator.is_beginning(_index_of(node, name, key, len(topic.partitions)))


def _keys(request: FindCoordinatorRequest) -> list[str]:
    return request.coordinator_keys or [request.key]


def _is_key(name: str, key: str) -> bool:
    """Return whether a key may have a coordinator: the topic is not made for one that cannot."""
    if name == SHARE_GROUP_STATE:
        try:
            parse_coordinator_key(key)
        except RequestError:
            return False
    return True


def _find(context: RequestContext, name: str, key: str) -> Found:
    node = context.node
    if name == SHARE_GROUP_STATE:
        try:
            key = coordinator_key(parse_coordinator_key(key))
        except RequestError as refusal:
            return ErrorCode.INVALID_REQUEST, str(refusal), _NOWHERE
    topic = node.image.topic_by_name(name)
    if topic is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, _why_not_created(node, name), _NOWHERE
    partition = topic.partitions[_index_of(node, name, key, len(topic.partitions))]
    endpoint = endpoint_of(node, partition.leader, context.listener_name)
    if endpoint is None:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE, _NOT_AVAILABLE, _NOWHERE
    return ErrorCode.NONE, "NONE", (partition.leader, *endpoint)


def _index_of(node: BrokerServices, name: str, key: str, partition_count: int) -> int:
    if name == SHARE_GROUP_STATE:
        return partition_of_share(key, partition_count=partition_count)
    partition_of = partition_of_group if name == CONSUMER_OFFSETS else partition_of_transactional_id
    return partition_of(key, partition_count=partition_count, hash_level=node.image.coordinator_hash)


def _why_not_created(node: BrokerServices, name: str) -> str:
    try:
        coordinators_topic(node, name)
    except RequestError as refusal:
        return str(refusal)
    return _NOT_AVAILABLE


def _refusal(request: FindCoordinatorRequest) -> Callable[[str], Found]:
    message = f"Coordinators of type {request.key_type} are not supported."
    return lambda key: (ErrorCode.INVALID_REQUEST, message, _NOWHERE)


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

    reply_in_parts(context, FindCoordinatorResponse(), map(part, request.coordinator_keys))
