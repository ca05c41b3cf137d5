"""Requests with our own codec, for the few APIs that librdkafka has no call for.

That is: which APIs and features a broker has (ApiVersions), how large its logs are (DescribeLogDirs), and the settings
of all brokers together (the nameless broker of the config APIs). It speaks the Kafka protocol and nothing else, so it
works against any cluster; only a listener that wants TLS or a password is out of reach, and then `None` is answered.
"""

from __future__ import annotations

from types import TracebackType
from typing import Any, TypeVar

from strandline.cli.common.client import Cluster, host_and_port
from strandline.cli.common.failures import CommandFailed, cannot_reach
from strandline.client.connection import BrokerConnection, Offered
from strandline.codec.message import Message
from strandline.errors import Disconnected, ErrorCode, TimedOut, UnsupportedVersion

ResponseT = TypeVar("ResponseT", bound=Message)


class Conversation:
    """One connection of a command: its failures are those of the command."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._address = f"{host}:{port}"
        try:
            self._connection = BrokerConnection(host, port, client_id="strandline-cli", timeout_s=timeout_s)
        except (Disconnected, TimedOut) as error:
            raise self._failure(error) from None

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._connection.close()

    @property
    def offered(self) -> Offered:
        return self._connection.offered

    def ask(self, request: Message, response_class: type[ResponseT]) -> ResponseT | None:
        """Return the answer in the newest version that both sides know, None if the broker does not offer the API."""
        try:
            return self._connection.ask(request, response_class)
        except UnsupportedVersion:
            return None
        except (Disconnected, TimedOut) as error:
            raise self._failure(error) from None

    def _failure(self, error: Disconnected | TimedOut) -> CommandFailed:
        cause = error.__cause__
        if isinstance(cause, OSError):
            return cannot_reach(self._address, (cause.strerror or str(cause) or "timed out").lower())
        return CommandFailed(str(error), hint="for a listener with TLS say -X security.protocol=ssl")


def error_name(code: int) -> str:
    """Return Kafka's name of an error code; a number that we do not know stays one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def is_plain(cluster: Cluster) -> bool:
    return cluster.properties.get("security.protocol", "plaintext").lower() == "plaintext"


def converse(cluster: Cluster, broker: Any = None) -> Conversation | None:
    """Connect to `broker` (librdkafka's description of one), or to the first bootstrap server that answers.

    None when the listener is not a plain one.
    """
    if not is_plain(cluster):
        return None
    if broker is not None:
        return Conversation(broker.host, broker.port, cluster.timeout_s)
    failure: CommandFailed | None = None
    for server in cluster.bootstrap.split(","):
        try:
            return Conversation(*host_and_port(server.strip()), cluster.timeout_s)
        except CommandFailed as error:
            failure = error
    assert failure is not None, "there is at least one bootstrap server"
    raise failure
