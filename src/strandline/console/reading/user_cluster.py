"""The user as whom the console talks to a cluster, and the cluster as the readers of the command line take it."""

from __future__ import annotations

import dataclasses
import hashlib
import time
from dataclasses import dataclass, field
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.client.security import PLAINTEXT, BearerSecurity, ClientSecurity

TIMEOUT_S = 8.0


@dataclass(frozen=True)
class ClusterUser:
    """A user of one cluster, proven by a login; without a name where the cluster has no login."""

    name: str = ""
    security: ClientSecurity = field(default=PLAINTEXT, repr=False)
    expires_s: float | None = None
    """When its token ends, in seconds since 1970."""

    @property
    def key(self) -> bytes:
        """Equal for sessions that may share what was read: the same user with the same secret."""
        settings = repr(sorted(self.security.kafka().items()))
        token = self.security.token if isinstance(self.security, BearerSecurity) else ""
        return hashlib.sha256(f"{self.name}\0{settings}\0{token}".encode()).digest()


@dataclass(frozen=True)
class UserCluster(Cluster):
    """A cluster as a user sees it."""

    user: ClusterUser = field(default_factory=ClusterUser, repr=False)

    @property
    def security(self) -> ClientSecurity:
        return self.user.security

    def settings(self, **defaults: Any) -> dict[str, Any]:
        found = super().settings(**{"client.id": "strandline-console", **defaults})
        if isinstance(self.security, BearerSecurity):
            token, ends_s = self.security.token, self.user.expires_s or time.time() + 3600
            found["oauth_cb"] = lambda _: (token, ends_s, self.user.name, {})
        return found


def cluster_of(bootstrap: str, user: ClusterUser, timeout_s: float = TIMEOUT_S) -> UserCluster:
    """Return the cluster for readers of the command line."""
    properties = {} if user.security.is_plain else user.security.kafka()
    return UserCluster(bootstrap, properties, timeout_s, user)


def within(cluster: UserCluster, timeout_s: float) -> UserCluster:
    return dataclasses.replace(cluster, timeout_s=timeout_s)
