"""Services beside a cluster that are asked over HTTP: its schema registry and its Connect workers, as the visitor.

Where the cluster has a login the visitor's own goes along, over TLS or to this machine alone. A name in the address
of the service is a user that all visitors share, so that they may only look.
"""

from __future__ import annotations

import base64
import ipaddress
from collections.abc import Callable
from typing import Final, TypeVar
from urllib.parse import urlsplit

from strandline.cli.common.failures import CommandFailed
from strandline.cli.connect.worker_api import ConnectApi, WorkerDenied
from strandline.cli.schema.registry_api import RegistryRefused, SchemaApi
from strandline.client.security import BearerSecurity
from strandline.console.context import PageContext
from strandline.console.failures import PageFailed
from strandline.console.reading.user_cluster import TIMEOUT_S, ClusterUser

T = TypeVar("T")

_DENIED: Final = (401, 403)


def shown_url(url: str) -> str:
    """Return the address without a name and password."""
    split = urlsplit(url)
    return split._replace(netloc=split.netloc.rpartition("@")[2]).geturl()


def authorization_for(user: ClusterUser, url: str) -> str:
    """Return the header Authorization that logs the visitor in to a service; empty if its login must not go there."""
    split = urlsplit(url)
    if "@" in split.netloc or not (split.scheme == "https" or _is_here(split.hostname or "")):
        return ""
    security = user.security
    if isinstance(security, BearerSecurity):
        return f"Bearer {security.token}" if security.token else ""
    given = security.kafka()
    name, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    return f"Basic {base64.b64encode(f'{name}:{password}'.encode()).decode()}" if name and password else ""


def registry_of(context: PageContext) -> SchemaApi:
    """Return the schema registry, as the visitor. Raise PageFailed if the console knows none."""
    url = context.cluster.registry
    if not url:
        raise PageFailed(501, "This console knows no schema registry", "start it with --registry URL")
    return SchemaApi(url, TIMEOUT_S, authorization=_authorization(context, url))


def workers_of(context: PageContext) -> ConnectApi:
    """Return the Connect workers, as the visitor. Raise PageFailed if the console knows none."""
    url = context.cluster.connect
    if not url:
        raise PageFailed(501, "This console knows no Connect workers", "start it with --connect URL")
    return ConnectApi(url, TIMEOUT_S, authorization=_authorization(context, url))


def require_own_login(context: PageContext, url: str, what: str) -> None:
    """Raise PageFailed where a change would be made by a user whom all visitors share."""
    if context.cluster.has_login and "@" in urlsplit(url).netloc:
        raise PageFailed(
            403,
            f"Nothing can be changed: the address of {what} has a name in it, and your own rights do not count there",
            "leave the name out of the address, and visitors log in as themselves",
        )


async def asked(context: PageContext, what: str, work: Callable[[], T]) -> T:
    """Return what `work` reads of a service, in a thread. Raise PageFailed if its answers are of another kind."""

    def guarded() -> T:
        try:
            return work()
        except WorkerDenied as error:
            raise PageFailed(403, f"You may not do this: {error.message}", error.hint) from None
        except RegistryRefused as error:
            if error.error_code in _DENIED or error.error_code // 100 in _DENIED:
                raise PageFailed(403, f"You may not do this: {error.message}", "ask for a right to it") from None
            raise
        except CommandFailed:
            raise
        except (AttributeError, IndexError, KeyError, TypeError, ValueError):
            raise PageFailed(
                502, f"{what} answers what this console does not understand", "is the address right?"
            ) from None

    return await context.reading.shared.in_thread(guarded)


def _is_here(host: str) -> bool:
    """Return whether a host is this machine for sure, whatever a name server says."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _authorization(context: PageContext, url: str) -> str:
    return authorization_for(context.reading.shared.user, url) if context.cluster.has_login else ""
