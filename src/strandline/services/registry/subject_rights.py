"""Rights on subjects as ACLs of the cluster (decision 0052).

A subject has the rights of the topic whose records its schemas describe:

    orders-value, orders-key, orders    topic orders
    :.sales:orders-value                topic :.sales:orders, because a context is a namespace of its own
    the registry as a whole             the cluster

Seeing is DESCRIBE, which READ and WRITE allow as well, because producers and consumers need the schemas. Registering is
WRITE, deleting DELETE, and settings are ALTER_CONFIGS.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from strandline.schemas.http.rights import CallerRights, Right
from strandline.schemas.subjects import split
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType
from strandline.services.http.caller import CALLER, WhyDenied

_OPERATIONS: Final = {
    Right.SEE: Operation.DESCRIBE,
    Right.REGISTER: Operation.WRITE,
    Right.DELETE: Operation.DELETE,
    Right.CONFIGURE: Operation.ALTER_CONFIGS,
}
_SUFFIXES: Final = ("-key", "-value")
"""What serializers append to the name of a topic."""


def topic_of(subject: str) -> str:
    """Return the name of the topic whose ACLs hold for a subject."""
    for suffix in _SUFFIXES:
        if subject.endswith(suffix):
            return subject.removesuffix(suffix)
    return subject


class SubjectRights:
    """The rights of a caller, by the rules of the cluster at this moment."""

    def __init__(self, why_denied: WhyDenied) -> None:
        self._why_denied = why_denied

    def why_denied(self, right: Right, subject: str | None) -> str | None:
        if subject is not None and split(subject).subject:
            return self._why_denied(_OPERATIONS[right], ResourceType.TOPIC, topic_of(subject))
        if right is Right.SEE:
            # Levels that hold where a subject has none say nothing of a subject.
            return None
        return self._why_denied(_OPERATIONS[right], ResourceType.CLUSTER, CLUSTER_NAME)


async def rights_of(scope: Scope) -> CallerRights:
    """Return the rights of the caller of a request. Raise RequestRefused while the cluster's rules are unknown."""
    return SubjectRights(await scope[CALLER].decider())
