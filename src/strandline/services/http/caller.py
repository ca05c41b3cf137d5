"""What a route learns of the client that called it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from strandline.security.acl.kinds import Operation, ResourceType
from strandline.security.principal import Principal
from strandline.services.http.cluster_rights import ClusterRights
from strandline.services.http.request_refused import RequestRefused

CALLER: Final = "strandline.caller"
"""The key of the caller in the scope of a request: `request.scope[CALLER]`."""

WhyDenied = Callable[[Operation, ResourceType, str], str | None]
"""Returns a sentence if the caller may not do something with a resource, None if it may."""


class Caller:
    """An authenticated client, and the rights that the cluster gives it."""

    def __init__(self, principal: Principal, host: str, rights: ClusterRights) -> None:
        self.principal = principal
        self.host = host
        """The IP address of the peer, which ACLs may name."""
        self._rights = rights

    async def allows(self, operation: Operation, resource_type: ResourceType, name: str) -> bool:
        """Return whether the caller may do this with the resource; False while the cluster's rules are unknown."""
        authorizer = await self._rights.current()
        if isinstance(authorizer, str):
            return False
        return self._why_denied(operation, resource_type, name) is None

    async def require(self, operation: Operation, resource_type: ResourceType, name: str) -> None:
        """Raise RequestRefused unless the caller may do this with the resource."""
        why_denied = await self.decider()
        if why := why_denied(operation, resource_type, name):
            raise RequestRefused(403, why)

    async def decider(self) -> WhyDenied:
        """Return what decides about many resources by the rules of now. Raise RequestRefused while they are unknown."""
        authorizer = await self._rights.current()
        if isinstance(authorizer, str):
            raise RequestRefused(503, authorizer, {"Retry-After": "5"})
        return self._why_denied

    def _why_denied(self, operation: Operation, resource_type: ResourceType, name: str) -> str | None:
        if self._rights.allows(self.principal, self.host, operation, resource_type, name):
            return None
        return f"{self.principal} may not {operation.name} {resource_type.name} {name}"
