"""Rights on connectors as ACLs of the cluster.

A worker reads and writes topics by its own user, whatever the caller of the API may do. So changing a connector is as
much as administering the cluster: seeing is DESCRIBE of the cluster, changing ALTER, loggers are ALTER_CONFIGS.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from strandline.connect.http.rights import ConnectRight, ConnectRights
from strandline.security.acl.kinds import CLUSTER_NAME, Operation, ResourceType
from strandline.services.http.caller import CALLER, WhyDenied

_OPERATIONS: Final = {
    ConnectRight.SEE: Operation.DESCRIBE,
    ConnectRight.CHANGE: Operation.ALTER,
    ConnectRight.ADMIN: Operation.ALTER_CONFIGS,
}


class ClusterConnectRights:
    """The rights of a caller, by the rules of the cluster at this moment."""

    def __init__(self, why_denied: WhyDenied) -> None:
        self._why_denied = why_denied

    def why_denied(self, right: ConnectRight, connector: str | None) -> str | None:
        return self._why_denied(_OPERATIONS[right], ResourceType.CLUSTER, CLUSTER_NAME)


async def rights_of(scope: Scope) -> ConnectRights:
    """Return the rights of the caller of a request. Raise RequestRefused while the cluster's rules are unknown."""
    return ClusterConnectRights(await scope[CALLER].decider())
