"""What a route needs. Each route declares it; one that declares nothing is refused.

Route("/topics/{topic}", needs(Operation.READ, ResourceType.TOPIC, path="topic")(show_topic))
Route("/topics", every_caller(list_topics))     # asks `caller.allows` for each topic that it lists
Route("/health", public(health))                # also for clients that are not authenticated
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType

F = TypeVar("F", bound=Callable[..., Any])

_RIGHT: Final = "right"
"""The attribute of an endpoint that holds its right."""


@dataclass(frozen=True)
class DeclaredRight:
    """The operation that a caller of a route must be allowed; none for a route that decides itself."""

    is_public: bool = False
    operation: Operation | None = None
    resource_type: ResourceType = ResourceType.CLUSTER
    name: str = CLUSTER_NAME
    path: str = ""
    """The parameter of the path that has the name of the resource."""


def needs(operation: Operation, resource_type: ResourceType, *, name: str = "", path: str = "") -> Callable[[F], F]:
    """Declare the right on a resource that a route needs.

    The resource is one of this name, or the one that a parameter of the path names. That of the cluster has no name.
    """
    if resource_type == ResourceType.CLUSTER:
        name = CLUSTER_NAME
    if bool(name) == bool(path):
        raise ValueError("a right is on the resource of a name or of a parameter of the path: say one of them")
    return _declare(DeclaredRight(False, operation, resource_type, name, path))


def every_caller(endpoint: F) -> F:
    """Declare that every authenticated caller is served; the route asks `caller.allows` about what it shows."""
    return _declare(DeclaredRight())(endpoint)


def public(endpoint: F) -> F:
    """Declare that every client is served, authenticated or not."""
    return _declare(DeclaredRight(is_public=True))(endpoint)


def right_of(endpoint: object) -> DeclaredRight | None:
    """Return what a route declares; None if it declares nothing."""
    right = getattr(endpoint, _RIGHT, None)
    return right if isinstance(right, DeclaredRight) else None


def _declare(right: DeclaredRight) -> Callable[[F], F]:
    def mark(endpoint: F) -> F:
        if right_of(endpoint) not in (None, right):
            # A second route would change what the first one needs.
            raise ValueError(f"{endpoint!r} has declared another right: write an endpoint for each route")
        setattr(endpoint, _RIGHT, right)
        return endpoint

    return mark
