"""The rights of one client, and what becomes of a denial: it is logged, and in report mode it is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType

if TYPE_CHECKING:
    from strandline.security.acl.authorizer import Authorizer, ClientRights
    from strandline.security.principal import Principal


class ClientGuard:
    """Decides for one request of a client."""

    __slots__ = ("_authorizer", "api", "host", "principal", "rights")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str, api: str) -> None:
        self._authorizer = authorizer
        self.principal = principal
        self.host = host
        self.api = api
        self.rights: ClientRights = authorizer.rights_of(principal, host)

    def allows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the client may do this. A denial is logged."""
        return self.rights.allows(operation, kind, name) or self.excuses(operation, kind, name)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Return whether the client may do this with some resource of the type."""
        return self.rights.allows_any(operation, kind) or self.excuses(operation, kind, "*")

    def shows(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return the same where it only decides what a list holds, or is one of several rights that would do.

        Such denials are not logged.
        """
        return self.rights.allows(operation, kind, name) or self._authorizer.reports_only

    def excuses(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Log a denial; return whether it is only reported."""
        authorizer = self._authorizer
        authorizer.on_denied(self.principal, self.host, operation, kind, name, self.api)
        return authorizer.reports_only

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the operations that the client may do, as the bits of AuthorizedOperations."""
        return self.rights.operations(kind, name)
