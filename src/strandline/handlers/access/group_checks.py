"""The rights that requests about groups and transactions need, where several resources decide."""

from __future__ import annotations

from typing import Any, Final

from strandline.coordinators.shares.share_state import NO_START_OFFSET
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
from strandline.handlers.access.topic_checks import topic_name
from strandline.handlers.support.refusals import struct_of
from strandline.security.acl.kinds import Operation, ResourceType

COORDINATORS_FROM: Final = 4
"""From this version on FindCoordinator asks for several coordinators."""
KEY_KINDS: Final = {0: ResourceType.GROUP, 1: ResourceType.TRANSACTIONAL_ID, 2: ResourceType.CLUSTER}
GROUPS_FROM: Final = 8
"""From this version on OffsetFetch asks for several groups."""
TOP_ERROR_FROM: Final = 2
VERIFIED_FROM: Final = 4
"""From this version on AddPartitionsToTxn is a request of brokers."""


def find_coordinator(asked: CheckedRequest) -> AccessOutcome | None:
    """Check FindCoordinator: DESCRIBE on each group or transactional id, CLUSTER_ACTION for share groups."""
    request = asked.request
    kind = KEY_KINDS.get(request.key_type)
    if kind is None:
        return None
    if asked.version < COORDINATORS_FROM:
        if _may_find(asked, kind, request.key):
            return None
        outcome = refused(asked, kind)
        outcome.answer.node_id = outcome.answer.port = -1
        return outcome
    struct = element_class(request, "coordinators")
    kept, denied = parted(request.coordinator_keys, lambda key: _may_find(asked, kind, key))
    code = REFUSALS[kind]
    refusals = [with_error(struct(key=key, node_id=-1, port=-1), code, asked.version) for key in denied]
    if not refusals:
        return None
    request.coordinator_keys = kept
    return reduced(asked, "coordinators", refusals, is_empty=not kept)


def _may_find(asked: CheckedRequest, kind: ResourceType, key: str) -> bool:
    if kind is ResourceType.CLUSTER:
        return asked.guard.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
    return asked.guard.allows(Operation.DESCRIBE, kind, key)


def commits(asked: CheckedRequest) -> AccessOutcome | None:
    """Check what commits offsets: READ on each topic. The checks of group and transaction come before."""
    kept, denied = parted(asked.request.topics, lambda topic: _allows_topic(asked, Operation.READ, topic))
    if not denied:
        return None
    struct = element_class(asked.request, "topics")
    asked.request.topics = kept
    refusals = [refuse(struct, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.version) for topic in denied]
    return reduced(asked, "topics", refusals, is_empty=not kept)


def _allows_topic(asked: CheckedRequest, operation: Operation, topic: Any) -> bool:
    """Return whether the client may do this with a topic. One that is unknown is for the handler to refuse."""
    name = _name(asked, topic)
    return name is None or asked.guard.allows(operation, ResourceType.TOPIC, name)


def _name(asked: CheckedRequest, topic: Any) -> str | None:
    """Return the name of a topic in a message that may or may not know ids."""
    name: str | None = topic_name(asked, topic) if hasattr(topic, "topic_id") else topic.name
    return name


def everywhere(operation: Operation, kind: ResourceType, name: str) -> Any:
    """Return the check of a request whose every partition is refused if the resource in the field `name` is."""

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        if asked.guard.allows(operation, kind, getattr(asked.request, name)):
            return None
        struct = element_class(asked.request, "topics")
        refusals = [refuse(struct, topic, REFUSALS[kind], asked.version) for topic in asked.request.topics]
        return reduced(asked, "topics", refusals, is_empty=True)

    return check


def offset_fetch(asked: CheckedRequest) -> AccessOutcome | None:
    """Check OffsetFetch: DESCRIBE on each group and topic. A group that asks for all topics gets those it may see."""
    if asked.version < GROUPS_FROM:
        return _offset_fetch_of_one(asked)
    struct = element_class(asked.request, "groups")
    topic_struct = struct_of(struct, "topics")
    kept, refusals, by_group = [], [], {}
    for group in asked.request.groups:
        if not asked.guard.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id):
            code = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
            refusals.append(struct(group_id=group.group_id, error_code=code))
            continue
        kept.append(group)
        by_group[group.group_id] = _hidden_topics(asked, group, topic_struct)
    asked.request.groups = kept

    def amend(response: Any) -> Any:
        for group in response.groups:
            if not group.error_code and group.group_id in by_group:
                _amend_topics(asked, group, by_group[group.group_id])
        response.groups.extend(refusals)
        return response

    if not kept:
        return reduced(asked, "groups", refusals, is_empty=True)
    return AccessOutcome(asked.request, amend=amend)


def _offset_fetch_of_one(asked: CheckedRequest) -> AccessOutcome | None:
    request = asked.request
    topic_struct = element_class(request, "topics")
    if not asked.guard.allows(Operation.DESCRIBE, ResourceType.GROUP, request.group_id):
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        if asked.version >= TOP_ERROR_FROM:
            return refused(asked, ResourceType.GROUP)
        refusals = [_no_offset(topic_struct, topic, code, asked.version) for topic in request.topics]
        return reduced(asked, "topics", refusals, is_empty=True)
    hidden = _hidden_topics(asked, request, topic_struct)

    def amend(response: Any) -> Any:
        if not response.error_code:
            _amend_topics(asked, response, hidden)
        return response

    return AccessOutcome(request, amend=amend)


def _hidden_topics(asked: CheckedRequest, group: Any, struct: Any) -> list[Any] | None:
    """Take the named topics that the client may not see out of the request, and return their refusals.

    None if all topics are asked for.
    """
    if group.topics is None:
        return None
    kept, denied = parted(group.topics, lambda topic: _allows_topic(asked, Operation.DESCRIBE, topic))
    group.topics = kept
    return [_no_offset(struct, topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED, asked.version) for topic in denied]


def _no_offset(struct: Any, topic: Any, code: ErrorCode, version: int) -> Any:
    made = refuse(struct, topic, code, version)
    for partition in made.partitions:
        partition.committed_offset = partition.committed_leader_epoch = -1
        partition.metadata = ""
    return made


def _amend_topics(asked: CheckedRequest, group: Any, refusals: list[Any] | None) -> None:
    if refusals is None:
        group.topics = [
            topic
            for topic in group.topics
            if asked.guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, _name(asked, topic) or "")
        ]
    else:
        group.topics.extend(refusals)


def share_offsets(asked: CheckedRequest) -> AccessOutcome | None:
    """Check DescribeShareGroupOffsets: DESCRIBE on each group and topic, as for the offsets of other groups."""
    struct = element_class(asked.request, "groups")
    topic_struct = struct_of(struct, "topics")
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    right = Operation.DESCRIBE, ResourceType.TOPIC
    kept, denied = parted(
        asked.request.groups,
        lambda group: asked.guard.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id),
    )
    refusals = [with_error(struct(group_id=group.group_id), code, asked.version) for group in denied]
    hidden: dict[str, list[Any]] = {}
    for group in kept:
        if group.topics is not None:
            group.topics, unseen = parted(group.topics, lambda topic: asked.guard.allows(*right, topic.topic_name))
            topic_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            hidden[group.group_id] = [refuse(topic_struct, topic, topic_code, asked.version) for topic in unseen]
            for partition in (each for topic in hidden[group.group_id] for each in topic.partitions):
                partition.start_offset = NO_START_OFFSET
    asked.request.groups = kept

    def amend(response: Any) -> Any:
        for group in response.groups:
            group.topics = [topic for topic in group.topics if asked.guard.shows(*right, topic.topic_name)]
            group.topics.extend(hidden.get(group.group_id, ()))
        response.groups.extend(refusals)
        return response

    if not kept:
        return reduced(asked, "groups", refusals, is_empty=True)
    return AccessOutcome(asked.request, amend=amend)


def init_producer_id(asked: CheckedRequest) -> AccessOutcome | None:
    """Check InitProducerId: WRITE on the transactional id; without one, the right to write to some topic."""
    guard, request = asked.guard, asked.request
    if request.transactional_id is None:
        if guard.shows(Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER) or guard.allows_any(
            Operation.WRITE, ResourceType.TOPIC
        ):
            return None
        return refused(asked, ResourceType.CLUSTER)
    needed = [Operation.WRITE, *([Operation.TWO_PHASE_COMMIT] if request.enable2_pc else [])]
    if all(guard.allows(each, ResourceType.TRANSACTIONAL_ID, request.transactional_id) for each in needed):
        return None
    return refused(asked, ResourceType.TRANSACTIONAL_ID)


def add_partitions(asked: CheckedRequest) -> AccessOutcome | None:
    """Check AddPartitionsToTxn: CLUSTER_ACTION for brokers (4+), else WRITE on the transactional id and every topic.

    If one topic is refused, nothing is added.
    """
    guard, request = asked.guard, asked.request
    if asked.version >= VERIFIED_FROM:
        is_allowed = guard.allows(Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return None if is_allowed else refused(asked, ResourceType.CLUSTER)
    topics = request.v3_and_below_topics
    if not guard.allows(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        codes = dict.fromkeys((topic.name for topic in topics), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    else:
        codes = {
            topic.name: ErrorCode.TOPIC_AUTHORIZATION_FAILED
            for topic in topics
            if not guard.allows(Operation.WRITE, ResourceType.TOPIC, topic.name)
        }
    if not codes:
        return None
    struct = element_class(request, "results_by_topic_v3_and_below")
    part_struct = struct_of(struct, "results_by_partition")
    refusals = [
        struct(
            name=topic.name,
            results_by_partition=[
                part_struct(
                    partition_index=index,
                    partition_error_code=int(codes.get(topic.name, ErrorCode.OPERATION_NOT_ATTEMPTED)),
                )
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]
    return reduced(asked, "results_by_topic_v3_and_below", refusals, is_empty=True)


def markers(asked: CheckedRequest) -> AccessOutcome | None:
    """Check WriteTxnMarkers: CLUSTER_ACTION, or ALTER on the cluster for tools that end a transaction."""
    guard = asked.guard
    if guard.shows(Operation.ALTER, ResourceType.CLUSTER) or guard.allows(
        Operation.CLUSTER_ACTION, ResourceType.CLUSTER
    ):
        return None
    struct = element_class(asked.request, "markers")
    topic_struct = struct_of(struct, "topics")
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    refusals = [
        struct(
            producer_id=marker.producer_id,
            topics=[refuse(topic_struct, topic, code, asked.version) for topic in marker.topics],
        )
        for marker in asked.request.markers
    ]
    return reduced(asked, "markers", refusals, is_empty=True)


def describe_transactions(asked: CheckedRequest) -> AccessOutcome | None:
    """Check DescribeTransactions: DESCRIBE on each transactional id; its topics are those that the client may see."""
    guard, request = asked.guard, asked.request
    struct = element_class(request, "transaction_states")
    code = int(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    right = Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID
    kept, denied = parted(request.transactional_ids, lambda each: guard.allows(*right, each))
    refusals = [struct(transactional_id=each, error_code=code) for each in denied]
    request.transactional_ids = kept

    def amend(response: Any) -> Any:
        for state in response.transaction_states:
            state.topics = [
                topic for topic in state.topics if guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
            ]
        response.transaction_states.extend(refusals)
        return response

    if not kept:
        return reduced(asked, "transaction_states", refusals, is_empty=True)
    return AccessOutcome(request, amend=amend)


def subscription(asked: CheckedRequest) -> AccessOutcome | None:
    """Check ConsumerGroupHeartbeat: DESCRIBE on every topic that it subscribes to by name."""
    guard = asked.guard
    for name in asked.request.subscribed_topic_names or ():
        if not guard.allows(Operation.DESCRIBE, ResourceType.TOPIC, name):
            return refused(asked, ResourceType.TOPIC)
    return None


def described_groups(items: str) -> Any:
    """Return the check of requests that describe groups: DESCRIBE on each. Operations are those of the client."""

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        guard, request = asked.guard, asked.request
        struct = element_class(request, "groups")
        kind, code = ResourceType.GROUP, ErrorCode.GROUP_AUTHORIZATION_FAILED
        kept, denied = parted(getattr(request, items), lambda each: guard.allows(Operation.DESCRIBE, kind, each))
        refusals = [with_error(struct(group_id=group_id), code, asked.version) for group_id in denied]
        setattr(request, items, kept)

        def amend(response: Any) -> Any:
            shown = [group if group.error_code else _amended_group(asked, group) for group in response.groups]
            response.groups = shown + refusals
            return response

        if not kept:
            return reduced(asked, "groups", refusals, is_empty=True)
        return AccessOutcome(request, amend=amend)

    return check


def _amended_group(asked: CheckedRequest, group: Any) -> Any:
    """Return the group with the operations of the client, or its refusal if a member reads a topic that is hidden."""
    guard = asked.guard
    if asked.request.include_authorized_operations:
        group.authorized_operations = guard.operations(ResourceType.GROUP, group.group_id)
    assigned = {
        part.topic_name
        for member in group.members
        for assignment in (getattr(member, "assignment", None), getattr(member, "target_assignment", None))
        if assignment is not None
        for part in assignment.topic_partitions
    }
    if all(guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, name) for name in assigned):
        return group
    return type(group)(
        group_id=group.group_id,
        error_code=int(ErrorCode.TOPIC_AUTHORIZATION_FAILED),
        error_message="The group has described topic(s) that the client is not authorized to describe.",
    )


def group_lag(asked: CheckedRequest) -> AccessOutcome | None:
    """Check GroupLag: groups and topics that the client may not see are left out."""
    guard, request = asked.guard, asked.request
    request.group_ids = [
        group_id for group_id in request.group_ids if guard.allows(Operation.DESCRIBE, ResourceType.GROUP, group_id)
    ]

    def amend(response: Any) -> Any:
        for group in response.groups:
            group.positions = [
                each for each in group.positions if guard.shows(Operation.DESCRIBE, ResourceType.TOPIC, each.topic)
            ]
        return response

    return AccessOutcome(request, amend=amend) if request.group_ids else reduced(asked, "groups", [], is_empty=True)


def commit_batch(asked: CheckedRequest) -> AccessOutcome | None:
    """Check CommitBatch: WRITE on the sink and on every transaction of the batch, as transactional ids."""
    request, kind = asked.request, ResourceType.TRANSACTIONAL_ID
    ids = [request.sink_id, *(each.transactional_id for each in request.transactions)]
    if all(asked.guard.allows(Operation.WRITE, kind, each) for each in ids):
        return None
    return refused(asked, kind)
