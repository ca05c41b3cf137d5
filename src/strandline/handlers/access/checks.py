"""The forms that a row of the rights table takes.

A check gets the guard of the client, the request and its version. It returns None where the client may do all that it
asks for, else an `AccessOutcome`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.errors import ErrorCode
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.support.refusals import refusal, struct_of
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType

REFUSALS = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error code of a refusal, by the resource that it is about."""
MESSAGES = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "Transactional Id authorization failed.",
}
"""The messages that Apache Kafka sends with them."""


class CheckedRequest(NamedTuple):
    """A request that is checked."""

    guard: ClientGuard
    request: Any
    version: int
    image: ClusterImage
    is_at_controller: bool


class AccessOutcome(NamedTuple):
    """What is left of a request, and what its response is changed by."""

    request: Any = None
    """The request without what is refused; None if nothing is left."""
    answer: Any = None
    """The response if nothing is left; None if it has no place for an error, and the connection must be closed."""
    amend: Callable[[Any], Any] | None = None
    """Puts the refusals into the handler's response, or takes out what the client may not see."""


Check = Callable[[CheckedRequest], AccessOutcome | None]

_IDENTITY = (
    "name",
    "topic",
    "topic_id",
    "topic_name",
    "partition",
    "partition_index",
    "resource_type",
    "resource_name",
    "partitions",
)
"""Fields of an element that its refusal repeats."""


def no_right(asked: CheckedRequest) -> None:
    """Allow the request: it needs no right, or its handler checks each part."""


def whole(operation: Operation, kind: ResourceType, name: str = "") -> Check:
    """Return the check of a request that needs one right, on the cluster or the resource in the field `name`."""

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        resource = getattr(asked.request, name) if name else CLUSTER_NAME
        return None if asked.guard.allows(operation, kind, resource) else refused(asked, kind)

    return check


def in_turn(*checks: Check) -> Check:
    """Return the check that makes these checks in turn; only the last may leave a part of the request."""

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        return next((found for each in checks if (found := each(asked)) is not None), None)

    return check


def each(
    items: str,
    name: str,
    operation: Operation,
    kind: ResourceType,
    results: str,
    *,
    or_cluster: Operation | None = None,
) -> Check:
    """Return the check of a request whose elements each need a right; `or_cluster` is one that does for all.

    `items` and `results` are the arrays of request and response. `name` is the field of an element that names the
    resource. Where the elements are names, it is the field of the response that repeats them.
    """

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        if or_cluster is not None and asked.guard.shows(or_cluster, ResourceType.CLUSTER):
            return None

        def allows(element: Any) -> bool:
            resource = element if isinstance(element, str) else getattr(element, name)
            return asked.guard.allows(operation, kind, resource)

        kept, denied = parted(getattr(asked.request, items) or [], allows)
        if not denied:
            return None
        setattr(asked.request, items, kept)
        struct = element_class(asked.request, results)
        refusals = [refuse(struct, element, REFUSALS[kind], asked.version, name=name) for element in denied]
        return reduced(asked, results, refusals, is_empty=not kept)

    return check


def hide(results: str, name: str, operation: Operation, kind: ResourceType, *, or_cluster: bool = False) -> Check:
    """Return the check that takes out of a list in the response what the client may not see.

    With `or_cluster` a client with the same right on the cluster sees everything.
    """

    def check(asked: CheckedRequest) -> AccessOutcome | None:
        guard = asked.guard
        if or_cluster and guard.shows(operation, ResourceType.CLUSTER):
            return None

        def amend(response: Any) -> Any:
            shown = [
                found for found in getattr(response, results) if guard.shows(operation, kind, getattr(found, name))
            ]
            setattr(response, results, shown)
            return response

        return AccessOutcome(asked.request, amend=amend)

    return check


def parted(elements: list[Any], allows: Callable[[Any], bool]) -> tuple[list[Any], list[Any]]:
    """Return what the client may ask for, and the rest."""
    kept: list[Any] = []
    denied: list[Any] = []
    for element in elements:
        (kept if allows(element) else denied).append(element)
    return kept, denied


def refused(asked: CheckedRequest, kind: ResourceType) -> AccessOutcome:
    """Return the refusal of the whole request."""
    code = REFUSALS[kind]
    return AccessOutcome(answer=refusal(asked.request, asked.version, code, MESSAGES[code]))


def reduced(asked: CheckedRequest, results: str, refusals: list[Any], *, is_empty: bool) -> AccessOutcome:
    """Return what is left of a request, with refusals that stand in the array `results` of its response."""

    def amend(response: Any) -> Any:
        getattr(response, results).extend(refusals)
        return response

    if is_empty:
        return AccessOutcome(answer=amend(_empty_answer(asked.request)))
    return AccessOutcome(asked.request, amend=amend)


def element_class(request: Message, results: str) -> Any:
    """Return the class of the elements of an array in the response to `request`."""
    return struct_of(response_class(type(request)), results)


def refuse(struct: Any, element: Any, code: ErrorCode, version: int, *, name: str = "") -> Any:
    """Return the element of a response that refuses an element of the request, with all that it is made of."""
    if isinstance(element, str):
        made = struct(**{name: element})
    else:
        made = struct()
        for field in struct.FIELDS:
            # Some requests name a topic that their response also gives the id of.
            if field.name in _IDENTITY and (field.struct is not None or hasattr(element, field.name)):
                setattr(made, field.name, _repeated(field, element, code, version))
    return with_error(made, code, version)


def with_error(made: Any, code: ErrorCode, version: int) -> Any:
    """Set error code and message of an element of a response, where it has them in this version."""
    names = {field.name for field in made.FIELDS if field.present(version)}
    if "error_code" in names:
        made.error_code = int(code)
    if "error_message" in names:
        made.error_message = MESSAGES[code]
    if "low_watermark" in names:
        made.low_watermark = -1
    return made


def _repeated(field: Any, element: Any, code: ErrorCode, version: int) -> Any:
    if field.struct is None:
        return getattr(element, field.name)
    parts = getattr(element, field.name, None)
    if parts is not None and not all(isinstance(each, int) for each in parts):
        return [refuse(field.struct, part, code, version) for part in parts]
    indexes = getattr(element, "partition_indexes", parts or ())
    return [with_error(field.struct(partition_index=index), code, version) for index in indexes]


def _empty_answer(request: Message) -> Any:
    return response_class(type(request))()
