"""The answer that refuses a whole request: one error code, in every place where one belongs. And codes by version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.errors import ErrorCode

JOIN_GROUP: Final = 11
PROTOCOL_NAME_NULLABLE_FROM: Final = 7


def refusal(request: Message, version: int, code: int, message: str | None = None) -> Any:
    """An answer of the kind that `request` expects. Where its topics or resources have an outcome each, all have this.

    None where an answer has no room for an error: then the connection must be closed.
    """
    answer_class = response_class(type(request))
    answer: Any = answer_class(**_FACTS.get(request.API_KEY, {}))
    if request.API_KEY == JOIN_GROUP and version >= PROTOCOL_NAME_NULLABLE_FROM:
        answer.protocol_name = None
    has_parts = request.API_KEY in _PARTS
    if has_parts:
        array, parts = _PARTS[request.API_KEY]
        part_class = struct_of(answer_class, array)
        setattr(answer, array, [part_class(**facts) for facts in parts(request)])
    return answer if _set_error(answer, version, code, message) or has_parts else None


def _set_error(answer: Any, version: int, code: int, message: str | None) -> bool:
    names = {field.name for field in answer.FIELDS if field.present(version)}
    if "error_message" in names:
        answer.error_message = message
    if "error_code" in names:
        answer.error_code = int(code)
    for field in answer.FIELDS:
        if field.struct is not None and field.name in names:
            for element in getattr(answer, field.name) or ():
                _set_error(element, version, code, message)
    return "error_code" in names


def struct_of(message_class: type[Message], array: str) -> Any:
    """Return the class of the elements of an array."""
    return next(field.struct for field in message_class.FIELDS if field.name == array)


def _topics(request: Any) -> list[dict[str, Any]]:
    return [{"name": topic.name} for topic in request.topics]


def _deletions(request: Any) -> list[dict[str, Any]]:
    return [
        *({"name": topic.name, "topic_id": topic.topic_id} for topic in request.topics),
        *({"name": name} for name in request.topic_names),
    ]


def _resources(request: Any) -> list[dict[str, Any]]:
    return [{"resource_type": each.resource_type, "resource_name": each.resource_name} for each in request.resources]


def _creations(request: Any) -> list[dict[str, Any]]:
    return [{} for _ in request.creations]


def _filters(request: Any) -> list[dict[str, Any]]:
    return [{} for _ in request.filters]


def _unnamed_users(request: Any) -> list[dict[str, Any]]:
    return [{} for _ in request.users or ()]


def _reassignments(request: Any) -> list[dict[str, Any]]:
    from strandline.codec.messages.alter_partition_reassignments_response import ReassignablePartitionResponse

    return [
        {
            "name": topic.name,
            "partitions": [
                ReassignablePartitionResponse(partition_index=each.partition_index) for each in topic.partitions
            ],
        }
        for topic in request.topics
    ]


def _asked_reassignments(request: Any) -> list[dict[str, Any]]:
    from strandline.codec.messages.list_partition_reassignments_response import OngoingPartitionReassignment

    return [
        {
            "name": topic.name,
            "partitions": [OngoingPartitionReassignment(partition_index=index) for index in topic.partition_indexes],
        }
        for topic in request.topics or ()
    ]


def _elections(request: Any) -> list[dict[str, Any]]:
    from strandline.codec.messages.elect_leaders_response import PartitionResult

    return [
        {"topic": each.topic, "partition_result": [PartitionResult(partition_id=index) for index in each.partitions]}
        for each in request.topic_partitions or ()
    ]


def _quotas(request: Any) -> list[dict[str, Any]]:
    from strandline.codec.messages.alter_client_quotas_response import EntityData

    return [
        {"entity": [EntityData(entity_type=part.entity_type, entity_name=part.entity_name) for part in entry.entity]}
        for entry in request.entries
    ]


def _users(request: Any) -> list[dict[str, Any]]:
    return [{"user": name} for name in dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))]


def _share_states(request: Any) -> list[dict[str, Any]]:
    part_class = struct_of(struct_of(response_class(type(request)), "results"), "partitions")
    return [
        {"topic_id": topic.topic_id, "partitions": [part_class(partition=each.partition) for each in topic.partitions]}
        for topic in request.topics
    ]


_PARTS: Final[dict[int, tuple[str, Callable[[Any], list[dict[str, Any]]]]]] = {
    19: ("topics", _topics),
    20: ("responses", _deletions),
    30: ("results", _creations),
    31: ("filter_results", _filters),
    33: ("responses", _resources),
    37: ("results", _topics),
    43: ("replica_election_results", _elections),
    44: ("responses", _resources),
    45: ("responses", _reassignments),
    46: ("topics", _asked_reassignments),
    49: ("entries", _quotas),
    50: ("results", _unnamed_users),
    51: ("results", _users),
    **dict.fromkeys(range(83, 88), ("results", _share_states)),
}
"""By API key: the array of outcomes, and what names each of them."""
_FACTS: Final[dict[int, dict[str, Any]]] = {
    22: {"producer_id": -1, "producer_epoch": -1},
    48: {"entries": None},
}
"""By API key: fields of a refusal that are not at their defaults."""


PRODUCER_FENCED_FROM: Final = {22: 4, 24: 2, 25: 2, 26: 2}
"""By API key: the first version whose clients know PRODUCER_FENCED."""


def fenced_code(code: int, *, api_key: int, version: int) -> int:
    """Return the code for a fenced producer that clients of a version know."""
    if code == ErrorCode.PRODUCER_FENCED and version < PRODUCER_FENCED_FROM[api_key]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
