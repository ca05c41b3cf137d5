"""Metadata (3), versions 0-13: brokers, and topics by name or (12+) by id.

Honoured: all topics, some, none; `auto.create.topics.enable` and the request's flag; invalid names; authorized
operations; access rules, by which topics are refused, or left out of the list of all. A topic that is created on the
way is in the answer: it leaves when the topic is there, where Kafka sends the client round once more.

Every client asks again and again, so a topic is encoded once for each version of the API and kept with the topic until
it changes; an answer is these bytes, joined.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from strandline.codec.message_codec import encode
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from strandline.errors import ErrorCode
from strandline.handlers.support.auto_creation import create_missing
from strandline.handlers.support.broker_endpoints import endpoint_of
from strandline.handlers.support.context import EncodedResponse, RequestContext
from strandline.handlers.support.mutation_quota import paid_for
from strandline.handlers.support.response_parts import joined
from strandline.ids import ZERO_UUID
from strandline.quorum.controller.topic_names import CLUSTER_METADATA, is_internal, why_invalid
from strandline.quorum.image.cluster_image import ClusterImage, PartitionImage, Topic
from strandline.runtime.time_slicing import gradually
from strandline.security.acl.kinds import Operation, ResourceType

API_KEY = 3
VERSIONS = (0, 13)

# Bits by operation number: read, write, create, delete, alter, describe, describe and alter configs ...
TOPIC_OPERATIONS = sum(1 << operation for operation in (3, 4, 5, 6, 7, 8, 10, 11))
# ... and create, alter, describe, cluster action, describe and alter configs, idempotent write.
CLUSTER_OPERATIONS = sum(1 << operation for operation in (5, 7, 8, 9, 10, 11, 12))
OPERATIONS_NOT_ASKED = -(2**31)
LISTENER_NOT_FOUND_FROM = 6


def handle(context: RequestContext, request: MetadataRequest) -> EncodedResponse | None:
    answer = _Answer(context, request)
    topics, image = request.topics, context.node.image
    if topics is None or (context.api_version == 0 and not topics):
        return answer.of(map(answer.topic, filter(answer.shows, image.topics.values())))
    if context.api_version < 12 and any(topic.name is None or topic.topic_id != ZERO_UUID for topic in topics):
        # Versions 10 and 11 have room for an id, but a topic is asked for by name only.
        return answer.of(answer.error(ErrorCode.INVALID_REQUEST, topic.name or "", topic.topic_id) for topic in topics)
    ids = dict.fromkeys(topic.topic_id for topic in topics if topic.topic_id != ZERO_UUID)
    if ids:
        return answer.of(map(answer.by_id, ids))
    names = list(dict.fromkeys(topic.name for topic in topics if topic.name is not None))
    if request.allow_auto_topic_creation and context.node.config.auto_create_topics_enable:
        missing = [name for name in names if name not in image.topics and name != CLUSTER_METADATA]
        creatable = [name for name in missing if why_invalid(name) is None and answer.may_create(name)]
        if creatable:
            _create(context, answer, names, creatable)
            return None
    return answer.of(map(answer.by_name, names))


def _create(context: RequestContext, answer: _Answer, names: list[str], creatable: list[str]) -> None:
    """Have what is missing created, and answer when it is there."""

    def on_done(refused: dict[str, int]) -> None:
        answer.refused = refused
        events = context.node.events
        if events is not None:
            for name in (name for name in creatable if name not in refused and name in context.node.image.topics):
                events.on_topic_created(context, name)
        gradually(context.node.runtime, map(answer.by_name, names), lambda parts: context.reply(answer.of(parts)))

    create_missing(context.node, paid_for(context, creatable), on_done)


class _Answer:
    """One answer in the making."""

    def __init__(self, context: RequestContext, request: MetadataRequest) -> None:
        self._node = context.node
        self._image = context.node.image
        self._guard = context.guard
        self._version = context.api_version
        self._with_cluster_operations = request.include_cluster_authorized_operations
        self._with_topic_operations = request.include_topic_authorized_operations
        self._listener_name = context.listener_name
        self._look_at_brokers()
        self.refused: dict[str, int] = {}
        """Codes of topics that could not be created."""

    def _look_at_brokers(self) -> None:
        """Note which brokers lack the listener of this request; repeated when brokers changed meanwhile."""
        self._brokers_version = self._image.brokers_version
        self._unreachable = brokers_without(self._image, self._listener_name)
        # Encoded topics are the same for all listeners that every broker has, and are kept once for all of them.
        listener_name = self._listener_name if self._unreachable else ""
        self._key = ("metadata", self._version, listener_name)

    def shows(self, topic: Topic) -> bool:
        """Return whether the topic is in a list of all of them."""
        return self._guard is None or self._guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.name)

    def may_create(self, name: str) -> bool:
        """Return whether the client may have a topic created by asking for it."""
        guard = self._guard
        if guard is None:
            return True
        if not guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return False
        if guard.shows(Operation.CREATE, ResourceType.CLUSTER) or guard.allows(
            Operation.CREATE, ResourceType.TOPIC, name
        ):
            return True
        self.refused[name] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return False

    def _may_describe(self, name: str) -> bool:
        return self._guard is None or self._guard.allows(Operation.DESCRIBE, ResourceType.TOPIC, name)

    def by_name(self, name: str) -> bytes:
        if not self._may_describe(name):
            # Whether there is such a topic is not told.
            return self._error(MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name))
        topic = self._image.topics.get(name)
        if topic is not None:
            return self.topic(topic)
        if why_invalid(name) is not None:
            return self.error(ErrorCode.INVALID_TOPIC_EXCEPTION, name)
        code = self.refused.get(name)
        if code is not None:
            return self.error(code, name)
        return self.error(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name, operations=self._operations(name))

    def by_id(self, topic_id: uuid.UUID) -> bytes:
        topic = self._image.topic_by_id(topic_id)
        if topic is None:
            return self.error(ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id)
        if not self._may_describe(topic.name):
            return self.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None, topic_id)
        return self.topic(topic)

    def error(
        self, code: int, name: str | None, topic_id: uuid.UUID = ZERO_UUID, operations: int = OPERATIONS_NOT_ASKED
    ) -> bytes:
        message = MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)
        message.is_internal = name is not None and is_internal(name)
        message.topic_authorized_operations = operations
        return self._error(message)

    def _operations(self, name: str) -> int:
        if not self._with_topic_operations:
            return OPERATIONS_NOT_ASKED
        return TOPIC_OPERATIONS if self._guard is None else self._guard.operations(ResourceType.TOPIC, name)

    def _error(self, message: MetadataResponseTopic) -> bytes:
        self._node.count_error(API_KEY, message.error_code)
        return encode(message, self._version)

    def topic(self, topic: Topic) -> bytes:
        """Return the encoded topic, from its cache if neither it nor the brokers changed."""
        if self._brokers_version != self._image.brokers_version:
            self._look_at_brokers()
        operations = self._operations(topic.name)
        key = (*self._key, operations)
        kept = topic.answers.get(key)
        if kept is not None and kept[0] == self._image.brokers_version:
            encoded: bytes = kept[1]
            return encoded
        message = MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.id,
            is_internal=is_internal(topic.name),
            partitions=[self._partition(index, each) for index, each in enumerate(topic.partitions)],
            topic_authorized_operations=operations,
        )
        encoded = encode(message, self._version)
        topic.answers[key] = (self._image.brokers_version, encoded)
        return encoded

    def _partition(self, index: int, partition: PartitionImage) -> MetadataResponsePartition:
        leader, offline = partition_state(self._image, partition, self._unreachable)
        code = ErrorCode.NONE
        if leader < 0:
            lacks_listener = partition.leader in self._unreachable and self._version >= LISTENER_NOT_FOUND_FROM
            code = ErrorCode.LISTENER_NOT_FOUND if lacks_listener else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=code,
            partition_index=index,
            leader_id=leader,
            leader_epoch=partition.leader_epoch,
            replica_nodes=partition.replicas,
            isr_nodes=partition.isr,
            offline_replicas=offline,
        )

    def of(self, topics: Iterable[bytes]) -> EncodedResponse:
        """Return the response with these encoded topics; what is around them is small and encoded each time."""
        # Only fields of fixed size follow the topics: authorized operations in 8-10, an error code from 13 on.
        tail_size = 4 * (8 <= self._version <= 10) + 2 * (self._version >= 13)
        return EncodedResponse(joined(self._around(), self._version, topics, tail_size=tail_size))

    def _around(self) -> MetadataResponse:
        brokers = []
        for broker in self._image.brokers.values():
            endpoint = endpoint_of(self._node, broker.id, self._listener_name)
            if endpoint is not None:
                host, port = endpoint
                brokers.append(MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack))
        return MetadataResponse(
            brokers=brokers,
            cluster_id=self._node.cluster_id,
            controller_id=self._node.node_id,
            cluster_authorized_operations=self._cluster_operations(),
        )

    def _cluster_operations(self) -> int:
        if not self._with_cluster_operations:
            return OPERATIONS_NOT_ASKED
        if self._guard is None:
            return CLUSTER_OPERATIONS
        if not self._guard.shows(Operation.DESCRIBE, ResourceType.CLUSTER):
            return 0
        return self._guard.operations(ResourceType.CLUSTER)


def brokers_without(image: ClusterImage, listener_name: str) -> frozenset[int]:
    """Return the brokers that are alive and have no listener of this name: its clients cannot reach them."""
    return frozenset(
        broker.id
        for broker in image.brokers.values()
        if not broker.registration.fenced and broker.endpoint(listener_name) is None
    )


def partition_state(
    image: ClusterImage, partition: PartitionImage, unreachable: frozenset[int]
) -> tuple[int, list[int]]:
    """Return the leader, or -1 if it is offline, and the offline replicas. `unreachable` brokers are offline, too."""
    offline = [
        broker_id for broker_id in partition.replicas if broker_id in unreachable or not _is_alive(image, broker_id)
    ]
    leader_is_there = partition.leader >= 0 and partition.leader not in offline
    return partition.leader if leader_is_there else -1, offline


def _is_alive(image: ClusterImage, broker_id: int) -> bool:
    broker = image.brokers.get(broker_id)
    return broker is not None and not broker.registration.fenced
