"""DescribeConfigs (32), versions 1-4: settings of topics, brokers, loggers, client metrics subscriptions and groups.

Honoured: names to choose, synonyms in the order in which they would take effect, documentation, types; a broker's
settings under its id, the cluster's defaults under the empty name. A long list is worked through a share per turn.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from strandline.codec.message_codec import encode
from strandline.codec.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from strandline.codec.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from strandline.config.entries import (
    ConfigEntry,
    broker_entries,
    client_metrics_entries,
    default_broker_entries,
    group_entries,
    logger_entries,
    topic_entries,
)
from strandline.errors import ErrorCode, PeerError, RequestError, error_code, error_message
from strandline.handlers.support.context import BrokerServices, RequestContext
from strandline.handlers.support.response_parts import joined, reply_in_parts
from strandline.quorum.controller.config_changes import broker_id_of
from strandline.quorum.controller.topic_names import check_topic_name
from strandline.quorum.image.cluster_image import (
    RESOURCE_BROKER,
    RESOURCE_BROKER_LOGGER,
    RESOURCE_CLIENT_METRICS,
    RESOURCE_GROUP,
    RESOURCE_TOPIC,
)
from strandline.runtime import loggers

API_KEY = 32
VERSIONS = (1, 4)

ANSWER_BYTES_MAX: Final = 33_554_432
"""A few bytes can ask for all settings of a broker again and again."""

RESOURCES = (RESOURCE_TOPIC, RESOURCE_BROKER, RESOURCE_BROKER_LOGGER, RESOURCE_CLIENT_METRICS, RESOURCE_GROUP)


_NAMELESS = {
    RESOURCE_BROKER_LOGGER: "Broker id must not be empty",
    RESOURCE_CLIENT_METRICS: "Client metrics subscription name must not be empty",
    RESOURCE_GROUP: "Group name must not be empty",
}


def handle(context: RequestContext, request: DescribeConfigsRequest) -> DescribeConfigsResponse | None:
    unknown = [each.resource_type for each in request.resources if each.resource_type not in RESOURCES]
    if unknown:
        # Kafka has no access rule for such a resource, and rejects the whole request.
        refusal = RequestError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {unknown[0]}")
        return DescribeConfigsResponse(results=[_refused(each, refusal) for each in request.resources])
    reply_in_parts(context, DescribeConfigsResponse(), map(_Answer(context, request).part, request.resources))
    return None


def _refused(resource: DescribeConfigsResource, refusal: PeerError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error_code(refusal),
        error_message=error_message(refusal),
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


class _Answer:
    """The parts of one answer, each encoded when its resource is looked at."""

    def __init__(self, context: RequestContext, request: DescribeConfigsRequest) -> None:
        self._node = context.node
        self._version = context.api_version
        self._with_synonyms = request.include_synonyms
        self._with_docs = request.include_documentation
        self._known: dict[object, list[tuple[str, bytes]]] = {}
        """Topics of one request mostly share their settings, and to list them costs more than all the rest."""
        self._size_bytes = 0

    def part(self, resource: DescribeConfigsResource) -> bytes:
        try:
            configs = self._configs(resource)
        except PeerError as refusal:
            return encode(_refused(resource, refusal), self._version)
        wanted = set(resource.configuration_keys or ())
        around = DescribeConfigsResult(resource_type=resource.resource_type, resource_name=resource.resource_name)
        part = joined(around, self._version, [each for name, each in configs if not wanted or name in wanted])
        self._size_bytes += len(part)
        return part

    def _configs(self, resource: DescribeConfigsResource) -> list[tuple[str, bytes]]:
        if self._size_bytes > ANSWER_BYTES_MAX:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "The answer is too long; ask for fewer resources at a time.")
        if resource.resource_type != RESOURCE_TOPIC:
            return self._kept((resource.resource_type, resource.resource_name), _entries(self._node, resource))
        check_topic_name(resource.resource_name)
        topic = self._node.image.topic_by_name(resource.resource_name)
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")
        overrides = topic.config_overrides
        return self._kept(frozenset(overrides.items()), topic_entries(self._node.config, overrides))

    def _kept(self, key: object, entries: Iterator[ConfigEntry]) -> list[tuple[str, bytes]]:
        if key not in self._known:
            self._known[key] = [(entry.name, encode(self._result(entry), self._version)) for entry in entries]
        return self._known[key]

    def _result(self, entry: ConfigEntry) -> DescribeConfigsResourceResult:
        synonyms = entry.synonyms if self._with_synonyms else ()
        return DescribeConfigsResourceResult(
            name=entry.name,
            value=entry.value,
            read_only=entry.read_only,
            config_source=entry.source,
            is_sensitive=entry.is_sensitive,
            synonyms=[
                DescribeConfigsSynonym(name=name, value=value, source=source) for name, value, source in synonyms
            ],
            config_type=entry.config_type,
            # Where there is none, as for loggers, Kafka says so with an empty text even to those who did not ask.
            documentation=entry.doc if self._with_docs or not entry.doc else None,
        )


def _entries(node: BrokerServices, resource: DescribeConfigsResource) -> Iterator[ConfigEntry]:
    name = resource.resource_name
    overrides = node.image.configs.get((resource.resource_type, name), {})
    if resource.resource_type == RESOURCE_BROKER:
        if not name:
            return default_broker_entries(node.config)
        _check_broker_id(name, node.node_id, "Unexpected broker id, expected {} or empty string, but received {}")
        return broker_entries(node.config)
    if not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, _NAMELESS[resource.resource_type])
    if resource.resource_type == RESOURCE_BROKER_LOGGER:
        _check_broker_id(name, node.node_id, "Unexpected broker id, expected {} but received {}")
        return logger_entries(loggers.levels())
    if resource.resource_type == RESOURCE_CLIENT_METRICS:
        return client_metrics_entries(node.config, overrides)
    return group_entries(node.config, overrides)


def _check_broker_id(name: str, node_id: int, message: str) -> None:
    broker_id = broker_id_of(name)
    if broker_id is None:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if broker_id != node_id:
        raise RequestError(ErrorCode.INVALID_REQUEST, message.format(node_id, name))
