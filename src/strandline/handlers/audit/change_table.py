"""What every API that changes something does, in terms of the audit topic: one row for each.

A row gets the request as the client sent it and the response as the client gets it. It yields a `ResourceChange` for
each resource. Secrets are in no row: no password, salt or key, no value of a setting that is secret or unknown.
`tests/unit/handlers/test_change_table.py` compares the rows with the table of routes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NamedTuple

from strandline.config.node_settings import NODE_SETTINGS, setting_of_listener
from strandline.config.topic_config import TOPIC_SETTINGS
from strandline.ids import ZERO_UUID
from strandline.security.acl.access_rule import Acl, name_of
from strandline.security.acl.kinds import Operation, PatternType, Permission, ResourceType
from strandline.security.sasl.scram import SCRAM_BY_NUMBER

CLUSTER, GROUP, TOPIC, USER = "CLUSTER", "GROUP", "TOPIC", "USER"
BROKER, QUOTA, FEATURE, TOKEN, TRANSACTIONAL_ID = "BROKER", "QUOTA", "FEATURE", "DELEGATION_TOKEN", "TRANSACTIONAL_ID"
HIDDEN: Final = "(hidden)"
_CONFIG_RESOURCES: Final = {2: TOPIC, 4: BROKER, 8: "BROKER_LOGGER", 16: "CLIENT_METRICS", 32: GROUP}
_CONFIG_OPERATIONS: Final = {0: "set", 1: "delete", 2: "append", 3: "subtract"}


class ResourceChange(NamedTuple):
    """What became of one resource of a request."""

    resource_type: str
    resource: str
    code: int
    details: dict[str, Any]


Row = Callable[[Any, Any], Iterable[ResourceChange]]


def _flag(request: Any) -> dict[str, Any]:
    return {"validate_only": True} if request.validate_only else {}


def _create_topics(request: Any, response: Any) -> Iterator[ResourceChange]:
    asked = {topic.name: topic for topic in request.topics}
    for answer in response.topics:
        topic, facts = asked.get(answer.name), _flag(request)
        if topic is not None:
            facts |= {"partitions": topic.num_partitions, "replication_factor": topic.replication_factor}
            if topic.assignments:
                facts["assignment"] = [f"{each.partition_index}: {each.broker_ids}" for each in topic.assignments]
            facts |= {each.name: _shown_value(TOPIC, each.name, each.value) for each in topic.configs}
        yield ResourceChange(TOPIC, answer.name, answer.error_code, facts)


def _delete_topics(request: Any, response: Any) -> Iterator[ResourceChange]:
    for answer in response.responses:
        facts = {} if answer.topic_id == ZERO_UUID else {"topic_id": str(answer.topic_id)}
        yield ResourceChange(TOPIC, answer.name or "", answer.error_code, facts)


def _delete_records(request: Any, response: Any) -> Iterator[ResourceChange]:
    offsets = {(topic.name, each.partition_index): each.offset for topic in request.topics for each in topic.partitions}
    for topic in response.topics:
        for code, indexes in _by_code(topic.partitions, "partition_index"):
            yield ResourceChange(
                TOPIC, topic.name, code, {f"partition {each}": offsets.get((topic.name, each)) for each in indexes}
            )


def _create_acls(request: Any, response: Any) -> Iterator[ResourceChange]:
    for asked, answer in zip(request.creations, response.results, strict=False):
        acl = Acl(
            asked.resource_type,
            asked.resource_pattern_type,
            asked.resource_name,
            asked.principal,
            asked.host,
            asked.operation,
            asked.permission_type,
        )
        yield _acl_change(acl, answer.error_code)


def _delete_acls(request: Any, response: Any) -> Iterator[ResourceChange]:
    for asked, answer in zip(request.filters, response.filter_results, strict=False):
        if answer.error_code or not answer.matching_acls:
            kind = name_of(ResourceType, asked.resource_type_filter)
            facts = {
                "pattern_type": name_of(PatternType, asked.pattern_type_filter),
                "principal": asked.principal_filter,
                "host": asked.host_filter,
                "operation": name_of(Operation, asked.operation),
                "permission": name_of(Permission, asked.permission_type),
                "matches": 0,
            }
            yield ResourceChange(kind, asked.resource_name_filter or "*", answer.error_code, facts)
        for each in answer.matching_acls:
            acl = Acl(
                each.resource_type,
                each.pattern_type,
                each.resource_name,
                each.principal,
                each.host,
                each.operation,
                each.permission_type,
            )
            yield _acl_change(acl, each.error_code)


def _acl_change(acl: Acl, code: int) -> ResourceChange:
    return ResourceChange(name_of(ResourceType, acl.resource_type), acl.name, code, {"acl": str(acl)})


def _alter_configs(request: Any, response: Any) -> Iterator[ResourceChange]:
    asked = {(each.resource_type, each.resource_name): each for each in request.resources}
    for answer in response.responses:
        kind = _CONFIG_RESOURCES.get(answer.resource_type, str(answer.resource_type))
        resource, facts = asked.get((answer.resource_type, answer.resource_name)), _flag(request)
        for each in () if resource is None else resource.configs:
            operation = _CONFIG_OPERATIONS.get(getattr(each, "config_operation", 0), "?")
            value = _shown_value(kind, each.name, each.value)
            facts[each.name] = value if operation == "set" else operation if value is None else f"{operation} {value}"
        yield ResourceChange(kind, answer.resource_name, answer.error_code, facts)


def _shown_value(kind: str, name: str, value: str | None) -> str | None:
    """Return the value of a setting if it is no secret. What is unknown may be one."""
    if value is None:
        return None
    if kind == BROKER:
        setting = NODE_SETTINGS.get(name) or setting_of_listener(name)
        return HIDDEN if setting is None or setting.setting.is_sensitive else value
    return value if kind != TOPIC or name in TOPIC_SETTINGS else HIDDEN


def _create_partitions(request: Any, response: Any) -> Iterator[ResourceChange]:
    asked = {topic.name: topic for topic in request.topics}
    for answer in response.results:
        topic = asked.get(answer.name)
        facts = _flag(request) | ({} if topic is None else {"partitions": topic.count})
        yield ResourceChange(TOPIC, answer.name, answer.error_code, facts)


def _create_token(request: Any, response: Any) -> Iterator[ResourceChange]:
    facts = {"renewers": [f"{each.principal_type}:{each.principal_name}" for each in request.renewers]}
    if not response.error_code:
        facts |= {"token_id": response.token_id, "expires_ms": response.expiry_timestamp_ms}
    owner = f"{response.principal_type}:{response.principal_name}" if response.principal_name else ""
    yield ResourceChange(TOKEN, owner, response.error_code, facts)


def _change_token(request: Any, response: Any) -> Iterator[ResourceChange]:
    yield ResourceChange(TOKEN, "", response.error_code, {"expires_ms": response.expiry_timestamp_ms})


def _delete_groups(request: Any, response: Any) -> Iterator[ResourceChange]:
    for answer in response.results:
        yield ResourceChange(GROUP, answer.group_id, answer.error_code, {})


def _elect_leaders(request: Any, response: Any) -> Iterator[ResourceChange]:
    facts = {"election": "unclean" if request.election_type else "preferred"}
    if response.error_code or not response.replica_election_results:
        names = "*" if request.topic_partitions is None else ",".join(each.topic for each in request.topic_partitions)
        yield ResourceChange(TOPIC, names, response.error_code, facts)
    for topic in () if response.error_code else response.replica_election_results:
        for code, indexes in _by_code(topic.partition_result, "partition_id"):
            yield ResourceChange(TOPIC, topic.topic, code, facts | {"partitions": indexes})


def _reassign(request: Any, response: Any) -> Iterator[ResourceChange]:
    replicas = {
        (topic.name, each.partition_index): each.replicas for topic in request.topics for each in topic.partitions
    }
    if response.error_code:
        yield from (ResourceChange(TOPIC, topic.name, response.error_code, {}) for topic in request.topics)
        return
    for topic in response.responses:
        for code, indexes in _by_code(topic.partitions, "partition_index"):
            moves = {f"partition {each}": replicas.get((topic.name, each)) or "cancel" for each in indexes}
            yield ResourceChange(TOPIC, topic.name, code, moves)


def _offset_delete(request: Any, response: Any) -> Iterator[ResourceChange]:
    if response.error_code or not response.topics:
        yield ResourceChange(
            GROUP, request.group_id, response.error_code, {"topics": [each.name for each in request.topics]}
        )
        return
    for topic in response.topics:
        for code, indexes in _by_code(topic.partitions, "partition_index"):
            yield ResourceChange(GROUP, request.group_id, code, {"topic": topic.name, "partitions": indexes})


def _alter_share_offsets(request: Any, response: Any) -> Iterator[ResourceChange]:
    offsets = {
        (topic.topic_name, each.partition_index): each.start_offset
        for topic in request.topics
        for each in topic.partitions
    }
    if response.error_code or not response.responses:
        yield _share_group_as_a_whole(request, response)
        return
    for topic in response.responses:
        name = topic.topic_name
        for code, indexes in _by_code(topic.partitions, "partition_index"):
            moves = {f"partition {each}": offsets.get((name, each)) for each in indexes}
            yield ResourceChange(GROUP, request.group_id, code, {"topic": name, **moves})


def _delete_share_offsets(request: Any, response: Any) -> Iterator[ResourceChange]:
    if response.error_code or not response.responses:
        yield _share_group_as_a_whole(request, response)
        return
    for topic in response.responses:
        yield ResourceChange(GROUP, request.group_id, topic.error_code, {"topic": topic.topic_name})


def _share_group_as_a_whole(request: Any, response: Any) -> ResourceChange:
    names = [each.topic_name for each in request.topics]
    return ResourceChange(GROUP, request.group_id, response.error_code, {"topics": names})


def _offset_commit(request: Any, response: Any) -> Iterator[ResourceChange]:
    """Tell of a commit by a client that is no member: an administrator moves a group, or a consumer has no group."""
    for topic in response.topics:
        for code, indexes in _by_code(topic.partitions, "partition_index"):
            name = topic.name or str(topic.topic_id)
            yield ResourceChange(GROUP, request.group_id, code, {"topic": name, "partitions": indexes})


def _write_markers(request: Any, response: Any) -> Iterator[ResourceChange]:
    is_commit = {marker.producer_id: marker.transaction_result for marker in request.markers}
    for marker in response.markers:
        facts = {"producer_id": marker.producer_id, "commit": is_commit.get(marker.producer_id)}
        for topic in marker.topics:
            for code, indexes in _by_code(topic.partitions, "partition_index"):
                yield ResourceChange(TOPIC, topic.name, code, facts | {"partitions": indexes})


def _alter_quotas(request: Any, response: Any) -> Iterator[ResourceChange]:
    for asked, answer in zip(request.entries, response.entries, strict=False):
        entity = ",".join(f"{each.entity_type}={each.entity_name or '<default>'}" for each in asked.entity)
        facts = _flag(request) | {each.key: None if each.remove else each.value for each in asked.ops}
        yield ResourceChange(QUOTA, entity, answer.error_code, facts)


def _alter_users(request: Any, response: Any) -> Iterator[ResourceChange]:
    facts: dict[str, dict[str, Any]] = {}
    for each in request.deletions:
        facts.setdefault(each.name, {})[_mechanism(each.mechanism)] = "deleted"
    for each in request.upsertions:
        facts.setdefault(each.name, {})[_mechanism(each.mechanism)] = f"set, {each.iterations} iterations"
    for answer in response.results:
        yield ResourceChange(USER, answer.user, answer.error_code, facts.get(answer.user, {}))


def _mechanism(number: int) -> str:
    found = SCRAM_BY_NUMBER.get(number)
    return str(number) if found is None else found.name


def _update_features(request: Any, response: Any) -> Iterator[ResourceChange]:
    codes = {each.feature: each.error_code for each in response.results}
    for each in request.feature_updates:
        code = response.error_code or codes.get(each.feature, 0)
        yield ResourceChange(FEATURE, each.feature, code, _flag(request) | {"level": each.max_version_level})


def _unregister(request: Any, response: Any) -> Iterator[ResourceChange]:
    yield ResourceChange(BROKER, str(request.broker_id), response.error_code, {})


def _delete_sink(request: Any, response: Any) -> Iterator[ResourceChange]:
    yield ResourceChange(TRANSACTIONAL_ID, request.sink_id, response.error_code, {})


def _compact(request: Any, response: Any) -> Iterator[ResourceChange]:
    of_topic: dict[str, list[Any]] = {}
    for each in response.partitions:
        of_topic.setdefault(each.topic, []).append(each)
    for name, partitions in of_topic.items():
        for code, indexes in _by_code(partitions, "partition"):
            yield ResourceChange(TOPIC, name, code, {"partitions": indexes})


def _by_code(partitions: Iterable[Any], index: str) -> list[tuple[int, list[int]]]:
    found: dict[int, list[int]] = {}
    for each in partitions:
        found.setdefault(each.error_code, []).append(getattr(each, index))
    return list(found.items())


OFFSET_COMMIT: Final = 8
WRITE_TXN_MARKERS: Final = 27

CHANGES: Final[dict[int, Row]] = {
    OFFSET_COMMIT: _offset_commit,
    19: _create_topics,
    20: _delete_topics,
    21: _delete_records,
    WRITE_TXN_MARKERS: _write_markers,
    30: _create_acls,
    31: _delete_acls,
    33: _alter_configs,
    37: _create_partitions,
    38: _create_token,
    39: _change_token,
    40: _change_token,
    42: _delete_groups,
    43: _elect_leaders,
    44: _alter_configs,
    45: _reassign,
    47: _offset_delete,
    49: _alter_quotas,
    51: _alter_users,
    57: _update_features,
    64: _unregister,
    91: _alter_share_offsets,
    92: _delete_share_offsets,
    20_005: _delete_sink,
    20_008: _compact,
}

NO_CHANGES: Final = frozenset(
    (
        *(0, 1, 2, 3, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 22, 23, 24, 25, 26, 28, 29, 32, 35, 36, 41, 46, 48, 50),
        *(52, 53, 54, 55, 56, 58, 59, 60, 61, 62, 63, 65, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75),
        *(76, 77, 78, 79, 83, 84, 85, 86, 87, 90),
        *(20_000, 20_001, 20_002, 20_003, 20_004, 20_006, 20_007, 20_009, 20_010, 20_011, 20_012, 20_013, 20_014),
    )
)
"""APIs that read, move data, belong to a group or a producer, or are between nodes."""
