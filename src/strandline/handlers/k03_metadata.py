"""Metadata (3), versions 0-13: brokers, and topics by name or (12+) by id.

Honoured: all topics, some, none; `auto.create.topics.enable` and the request's flag; invalid names; authorized
operations, which are all of them while there are no access rules. A topic that is created on the way is in the answer:
it leaves when the topic is there, where Kafka sends the client round once more.

Every client asks again and again, so a topic is encoded once for each version of the API and kept with the topic until
it changes; an answer is these bytes, joined.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from strandline.codec.message import encode
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.codec.primitives import write_uvarint
from strandline.errors import ErrorCode, RequestError
from strandline.handlers.broker_endpoints import endpoint_of
from strandline.handlers.context import EncodedResponse, Node, RequestContext
from strandline.ids import ZERO_UUID
from strandline.quorum.cluster_image import ClusterImage, PartitionImage, Topic
from strandline.quorum.new_topics import NewTopic
from strandline.quorum.topic_names import INTERNAL_TOPICS, is_internal, why_invalid

API_KEY = 3
VERSIONS = (0, 13)

FLEXIBLE_FROM = MetadataResponse.FLEXIBLE_FROM

# Bits by operation number: read, write, create, delete, alter, describe, describe and alter configs ...
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
# ... and create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_ASKED = -(2**31)


def handle(context: RequestContext, request: MetadataRequest) -> EncodedResponse | None:
    node, version = context.node, context.api_version
    topics = request.topics
    if topics is None or (version == 0 and not topics):
        return _answer(context, request, (_topic_bytes(node, topic, context, request) for topic in _all(node.image)))
    if version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics):
        return _refusal(context, request)
    ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
    if ids:
        return _answer(context, request, (_by_id(topic_id, context, request) for topic_id in ids))
    names = list(dict.fromkeys(topic.name for topic in topics if topic.name is not None))
    missing = [name for name in names if name not in node.image.topics]
    if missing and request.allow_auto_topic_creation and node.config.auto_create_topics_enable:
        creatable = [name for name in missing if why_invalid(name) is None]
        if creatable:
            _create(context, request, names, creatable)
            return None
    return _answer(context, request, (_by_name(name, {}, context, request) for name in names))


def _create(context: RequestContext, request: MetadataRequest, names: list[str], creatable: list[str]) -> None:
    """Create what is missing, and answer when it is there."""
    controller = context.node.controller
    asked = [NewTopic(name) for name in creatable if name not in INTERNAL_TOPICS]
    records, outcomes = controller.create_topics(asked)
    refused = {
        topic.name: int(outcome.code)
        for topic, outcome in zip(asked, outcomes, strict=True)
        # That a topic is being created by another request is no error: it is there when our turn comes.
        if isinstance(outcome, RequestError) and outcome.code != ErrorCode.TOPIC_ALREADY_EXISTS
    }
    for name in sorted(INTERNAL_TOPICS.intersection(creatable)):
        records += controller.create_internal_topic(name)[0]

    def on_done(error: BaseException | None) -> None:
        context.reply(_answer(context, request, (_by_name(name, refused, context, request) for name in names)))

    context.node.controller_write(records, on_done)


def _all(image: ClusterImage) -> Iterable[Topic]:
    return image.topics.values()


def _by_name(name: str, refused: dict[str, int], context: RequestContext, request: MetadataRequest) -> bytes:
    topic = context.node.image.topic_by_name(name)
    if topic is not None:
        return _topic_bytes(context.node, topic, context, request)
    if why_invalid(name) is not None:
        code = int(ErrorCode.INVALID_TOPIC_EXCEPTION)
    else:
        code = refused.get(name, int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
    return encode(MetadataResponseTopic(error_code=code, name=name, is_internal=is_internal(name)), context.api_version)


def _by_id(topic_id: uuid.UUID, context: RequestContext, request: MetadataRequest) -> bytes:
    topic = context.node.image.topic_by_id(topic_id)
    if topic is not None:
        return _topic_bytes(context.node, topic, context, request)
    unknown = MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    return encode(unknown, context.api_version)


def _topic_bytes(node: Node, topic: Topic, context: RequestContext, request: MetadataRequest) -> bytes:
    """The topic's part of an answer, from its cache if neither it nor the brokers changed."""
    key = ("metadata", context.api_version, request.include_topic_authorized_operations)
    kept = topic.answers.get(key)
    if kept is not None and kept[0] == node.image.brokers_version:
        encoded: bytes = kept[1]
        return encoded
    message = MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=[_partition(node.image, index, partition) for index, partition in enumerate(topic.partitions)],
        topic_authorized_operations=_operations(request.include_topic_authorized_operations, TOPIC_OPERATIONS, context),
    )
    encoded = encode(message, context.api_version)
    topic.answers[key] = (node.image.brokers_version, encoded)
    return encoded


def _partition(image: ClusterImage, index: int, partition: PartitionImage) -> MetadataResponsePartition:
    alive = {broker_id for broker_id in partition.replicas if _is_alive(image, broker_id)}
    leader_is_there = partition.leader in alive
    return MetadataResponsePartition(
        error_code=ErrorCode.NONE if leader_is_there else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=partition.leader if leader_is_there else -1,
        leader_epoch=partition.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=[broker_id for broker_id in partition.replicas if broker_id not in alive],
    )


def _is_alive(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.registration.fenced


def _operations(included: bool, operations: int, context: RequestContext) -> int:
    return operations if included and context.api_version >= 8 else OPERATIONS_NOT_ASKED


def _answer(context: RequestContext, request: MetadataRequest, topics: Iterable[bytes]) -> EncodedResponse:
    """The whole answer: everything around the topics is small and encoded anew, the topics are put in between."""
    version = context.api_version
    around = encode(_around(context, request), version)
    # Behind the topics stand only fields of fixed size: authorized operations in 8-10, an error code from 13 on, and
    # the end of the tagged fields in flexible versions.
    flexible = version >= FLEXIBLE_FROM
    tail_size = (4 if 8 <= version <= 10 else 0) + (2 if version >= 13 else 0) + (1 if flexible else 0)
    count_at = len(around) - tail_size - (1 if flexible else 4)
    parts = list(topics)
    count = bytearray()
    if flexible:
        write_uvarint(count, len(parts) + 1)
    else:
        count += len(parts).to_bytes(4, "big")
    return EncodedResponse(b"".join((around[:count_at], count, *parts, around[len(around) - tail_size :])))


def _around(context: RequestContext, request: MetadataRequest) -> MetadataResponse:
    node = context.node
    brokers = []
    for broker in node.image.brokers.values():
        endpoint = endpoint_of(node, broker.id)
        if endpoint is not None:
            host, port = endpoint
            brokers.append(MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack))
    asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=brokers,
        cluster_id=node.cluster_id,
        controller_id=node.node_id,
        cluster_authorized_operations=_operations(asked, CLUSTER_OPERATIONS, context),
    )


def _refusal(context: RequestContext, request: MetadataRequest) -> EncodedResponse:
    """Before version 12 a topic is asked for by name only, although versions 10 and 11 have room for an id."""
    assert request.topics is not None
    topics = (
        MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "", topic_id=topic.topic_id)
        for topic in request.topics
    )
    return _answer(context, request, (encode(topic, context.api_version) for topic in topics))
