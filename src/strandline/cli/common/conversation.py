"""Requests with our own codec: to one broker, and to the coordinator of a group or of a transactional id.

Commands use them for APIs that librdkafka has no call for, or whose broker it does not find again when it was lost.
They work against any cluster, also with TLS and a login by PLAIN or SCRAM; other logins are librdkafka's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from types import TracebackType
from typing import Any, Final, TypeVar

from strandline.cli.common.client import Cluster, host_and_port
from strandline.cli.common.failures import SECURITY_HINT, CommandFailed, Unreachable, cannot_reach
from strandline.client.cluster_client import ClientSettings, ClusterClient
from strandline.client.connection import BrokerConnection, NotKafka, Offered
from strandline.client.coordinators import GROUP, MOVING, CoordinatorMoving, at_coordinator
from strandline.client.failures import ClusterFailed, DeadlinePassed
from strandline.client.security import PLAINTEXT, ClientSecurity, NotAdmitted
from strandline.codec.message import Message
from strandline.errors import Disconnected, ErrorCode, TimedOut, UnsupportedVersion

LOOK_AGAIN_S: Final = 0.1

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")


class BrokerApis:
    """The APIs of one broker over an open connection. The answer of one that it does not offer is None."""

    def __init__(self, connection: BrokerConnection) -> None:
        self._connection = connection

    @property
    def offered(self) -> Offered:
        return self._connection.offered

    def ask(self, request: Message, response_class: type[ResponseT]) -> ResponseT | None:
        """Return the answer in the newest version that both sides know, None if the broker does not offer the API."""
        try:
            return self._connection.ask(request, response_class)
        except UnsupportedVersion:
            return None


class Conversation(BrokerApis):
    """One connection of a command: its failures are those of the command."""

    def __init__(self, host: str, port: int, timeout_s: float, security: ClientSecurity = PLAINTEXT) -> None:
        self._address = f"{host}:{port}"
        try:
            super().__init__(
                BrokerConnection(host, port, client_id="strandline-cli", timeout_s=timeout_s, security=security)
            )
        except (Disconnected, TimedOut) as error:
            raise self._failure(error) from None

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    def ask(self, request: Message, response_class: type[ResponseT]) -> ResponseT | None:
        try:
            return super().ask(request, response_class)
        except (Disconnected, TimedOut) as error:
            raise self._failure(error) from None

    def _failure(self, error: Disconnected | TimedOut) -> CommandFailed:
        if isinstance(error, NotAdmitted):
            return CommandFailed(str(error), hint=SECURITY_HINT)
        cause = error.__cause__
        if isinstance(cause, OSError):
            return cannot_reach(self._address, (cause.strerror or str(cause) or "timed out").lower())
        return CommandFailed(str(error), hint=SECURITY_HINT)


def error_name(code: int) -> str:
    """Return Kafka's name of an error code; a number that we do not know stays one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def is_spoken(cluster: Cluster) -> bool:
    """Return whether our own connections can log in; with OAUTHBEARER and GSSAPI only librdkafka can."""
    return cluster.security.is_spoken


def not_spoken(doing: str) -> CommandFailed:
    return CommandFailed(f"{doing} with this sasl.mechanism", hint="log in with SCRAM-SHA-512, SCRAM-SHA-256 or PLAIN")


def converse(cluster: Cluster, broker: Any = None) -> Conversation | None:
    """Connect to `broker` (librdkafka's description of one), or to the first bootstrap server that answers.

    None when its login is not one of ours.
    """
    if not is_spoken(cluster):
        return None
    if broker is not None:
        return Conversation(broker.host, broker.port, cluster.timeout_s, cluster.security)
    failure: CommandFailed | None = None
    for server in cluster.bootstrap.split(","):
        try:
            return Conversation(*host_and_port(server.strip()), cluster.timeout_s, cluster.security)
        except CommandFailed as error:
            failure = error
    assert failure is not None, "there is at least one bootstrap server"
    raise failure


# ---- coordinators


def ask_coordinator(
    cluster: Cluster, key: str, ask: Callable[[BrokerApis, int], T], *, doing: str, key_type: int = GROUP
) -> T:
    """Return what `ask` gets from the coordinator of a group or transactional id.

    It is called again while the coordinator moves, or is lost, until the time of the command is over.
    """

    def attempt(connection: BrokerConnection, node_id: int) -> tuple[T]:
        # In a tuple, because None would be tried again.
        return (ask(BrokerApis(connection), node_id),)

    with own_client(cluster, doing) as client:
        (answer,) = at_coordinator(client, doing.removeprefix("cannot "), key, attempt, key_type=key_type)
    return answer


@contextmanager
def own_client(cluster: Cluster, doing: str) -> Iterator[ClusterClient]:
    """Open our own client; its failures become those of the command."""
    settings = ClientSettings.within(cluster.bootstrap, "strandline-cli", cluster.timeout_s, cluster.security)
    try:
        with closing(ClusterClient(settings)) as client:
            yield client
    except DeadlinePassed as error:
        raise _no_coordinator(doing, cluster.timeout_s, error.last_failure) from None
    except ClusterFailed as error:
        raise CommandFailed(
            str(error), hint=SECURITY_HINT if isinstance(error.__cause__, NotKafka | NotAdmitted) else ""
        ) from None


def ask_until_settled(ask: Callable[[], T], timeout_s: float, doing: str) -> T:
    """Return what one broker says of all that it coordinates, asked again while a part of that moves there."""
    until = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except CoordinatorMoving as moving:
            if time.monotonic() > until:
                raise _no_coordinator(doing, timeout_s, str(moving)) from None
        time.sleep(LOOK_AGAIN_S)


def check(code: int, doing: str) -> None:
    """Raise what an error code means: CoordinatorMoving if the request shall be tried again."""
    if code in MOVING:
        raise CoordinatorMoving(error_name(code))
    if code:
        raise CommandFailed(f"{doing}: {error_name(code)}")


def _no_coordinator(doing: str, timeout_s: float, reason: str) -> Unreachable:
    return Unreachable(f"{doing}: no coordinator within {timeout_s:g} s ({reason})", hint="`strandline cluster health`")
