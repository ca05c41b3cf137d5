"""The rights that requests about topics need, where they differ from topic to topic."""

from __future__ import annotations

from typing import Any, Final

from strandline.errors import ErrorCode
from strandline.handlers.access.checks import (
    REFUSALS,
    AccessOutcome,
    CheckedRequest,
    element_class,
    parted,
    reduced,
    refuse,
    refused,
    with_error,
)
from strandline.handlers.access.client_guard import ClientGuard
from strandline.ids import ZERO_UUID
from strandline.quorum.controller.topic_names import AUDIT_TOPIC
from strandline.quorum.image.cluster_image import RESOURCE_GROUP, RESOURCE_TOPIC
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType

TOPIC_REFUSED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
LOG_DIRS_ERROR_FROM: Final = 3
"""From this version on DescribeLogDirs has an error code of its own; older answers are empty."""
CONFIG_ERRORS_FROM: Final = 5
"""From this version on CreateTopics tells the settings of a new topic."""


def may_change(guard: ClientGuard, operation: Operation, name: str) -> bool:
    """Return whether the client may delete or configure a topic. The audit topic also needs ALTER on the cluster.

    Else a right on all topics would be one to have changes forgotten.
    """
    return guard.allows(operation, ResourceType.TOPIC, name) and (
        name != AUDIT_TOPIC or guard.allows(Operation.ALTER, ResourceType.CLUSTER)
    )


def topic_name(asked: CheckedRequest, element: Any) -> str | None:
    """Return the name of a topic that is given by name or id; None if there is neither, or no topic of the id."""
    if element.topic_id == ZERO_UUID:
        return element.name or None
    found = asked.image.topic_by_id(element.topic_id)
    return None if found is None else found.name


def create_topics(asked: CheckedRequest) -> AccessOutcome | None:
    """Check CreateTopics: CREATE on the cluster or the topic, DESCRIBE_CONFIGS for the settings in the response."""
    guard, topics = asked.guard, asked.request.topics
    kept = topics
    if not guard.shows(Operation.CREATE, ResourceType.CLUSTER):
        kept = [topic for topic in topics if guard.allows(Operation.CREATE, ResourceType.TOPIC, topic.name)]
    struct = element_class(asked.request, "topics")
    allowed = {topic.name for topic in kept}
    refusals = [
        with_error(struct(name=topic.name), TOPIC_REFUSED, asked.version)
        for topic in topics
        if topic.name not in allowed
    ]
    hidden = {name for name in allowed if not guard.shows(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, name)}
    if asked.version < CONFIG_ERRORS_FROM:
        hidden = set()
    if not refusals and not hidden:
        return None

    def amend(response: Any) -> Any:
        for topic in response.topics:
            if topic.name in hidden and not topic.error_code:
                topic.topic_config_error_code = int(TOPIC_REFUSED)
                topic.num_partitions = topic.replication_factor = -1
                topic.configs = []
        response.topics.extend(refusals)
        return response

    asked.request.topics = kept
    outcome = reduced(asked, "topics", refusals, is_empty=not kept)
    return outcome if not kept else outcome._replace(amend=amend)


def delete_topics(asked: CheckedRequest) -> AccessOutcome | None:
    """Check DeleteTopics: DELETE on the cluster or the topic. Without DESCRIBE a topic's name or id is not told."""
    guard, request = asked.guard, asked.request
    if guard.shows(Operation.DELETE, ResourceType.CLUSTER):
        return None
    struct = element_class(request, "responses")
    refusals = []
    names, topics = [], []
    for name in request.topic_names:
        if may_change(guard, Operation.DELETE, name):
            names.append(name)
        else:
            refusals.append(with_error(struct(name=name), TOPIC_REFUSED, asked.version))
    for topic in request.topics:
        found = topic_name(asked, topic)
        if found is None or may_change(guard, Operation.DELETE, found):
            topics.append(topic)
        elif topic.topic_id == ZERO_UUID:
            refusals.append(with_error(struct(name=found), TOPIC_REFUSED, asked.version))
        else:
            shown = found if guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, found) else None
            refusals.append(with_error(struct(name=shown, topic_id=topic.topic_id), TOPIC_REFUSED, asked.version))
    if not refusals:
        return None
    request.topic_names, request.topics = names, topics
    return reduced(asked, "responses", refusals, is_empty=not (names or topics))


def configs(operation: Operation, results: str) -> Any:
    """Return the check of resources with settings: topics and groups have their own right, all others the cluster's."""

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        def allows(resource: Any) -> bool:
            kind = _kind(resource)
            name = CLUSTER_NAME if kind is ResourceType.CLUSTER else resource.resource_name
            if kind is ResourceType.TOPIC and operation is Operation.ALTER_CONFIGS:
                return may_change(asked.guard, operation, name)
            return asked.guard.allows(operation, kind, name)

        kept, denied = parted(asked.request.resources, allows)
        if not denied:
            return None
        struct = element_class(asked.request, results)
        asked.request.resources = kept
        refusals = [refuse(struct, each, REFUSALS[_kind(each)], asked.version) for each in denied]
        return reduced(asked, results, refusals, is_empty=not kept)

    return check


_KINDS: Final = {RESOURCE_TOPIC: ResourceType.TOPIC, RESOURCE_GROUP: ResourceType.GROUP}


def _kind(resource: Any) -> ResourceType:
    return _KINDS.get(resource.resource_type, ResourceType.CLUSTER)


def log_dirs(asked: CheckedRequest) -> AccessOutcome | None:
    """Check DescribeLogDirs: DESCRIBE on the cluster."""
    if asked.guard.allows(Operation.DESCRIBE, ResourceType.CLUSTER):
        return None
    if asked.version < LOG_DIRS_ERROR_FROM:
        return reduced(asked, "results", [], is_empty=True)
    return refused(asked, ResourceType.CLUSTER)


def describe_cluster(asked: CheckedRequest) -> AccessOutcome | None:
    """Check DescribeCluster: nothing on a broker, ALTER on a controller; the client's operations with DESCRIBE."""
    guard = asked.guard
    if asked.is_at_controller and not guard.allows(Operation.ALTER, ResourceType.CLUSTER):
        return refused(asked, ResourceType.CLUSTER)
    if not asked.request.include_cluster_authorized_operations:
        return None
    shown = guard.shows(Operation.DESCRIBE, ResourceType.CLUSTER)
    operations = guard.operations(ResourceType.CLUSTER) if shown else 0

    def amend(response: Any) -> Any:
        response.cluster_authorized_operations = operations
        return response

    return AccessOutcome(asked.request, amend=amend)


def flat(operation: Operation) -> Any:
    """Return the check of a request by topics whose response lists partitions without their topics around them."""

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        right = operation, ResourceType.TOPIC
        kept, denied = parted(asked.request.topics, lambda topic: asked.guard.allows(*right, topic.topic))
        if not denied:
            return None
        struct = element_class(asked.request, "partitions")
        refusals = [
            with_error(struct(topic=topic.topic, partition=index), TOPIC_REFUSED, asked.version)
            for topic in denied
            for index in topic.partitions or (-1,)
        ]
        asked.request.topics = kept
        return reduced(asked, "partitions", refusals, is_empty=not kept)

    return check
