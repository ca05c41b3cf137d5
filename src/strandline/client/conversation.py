"""Requests over a plain socket with our own codec, for the few APIs that librdkafka has no call for.

That is: which APIs and features a broker has (ApiVersions), how large its logs are (DescribeLogDirs), and the settings
of all brokers together (the nameless broker of the config APIs). It speaks the Kafka protocol and nothing else, so it
works against any cluster; only a listener that wants TLS or a password is out of reach, and then `None` is answered.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from strandline._version import __version__
from strandline.cli.common.client import Cluster, host_and_port
from strandline.cli.common.failures import CommandFailed, cannot_reach
from strandline.client.request_frame import read_answer, request_frame
from strandline.codec.message import Message
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.errors import ErrorCode, MalformedMessage

# A broker that claims more is broken or no broker at all; its claim must not fill the memory of a person's machine.
ANSWER_BYTES_MAX = 256 * 1024 * 1024

_CLIENT_ID = "strandline-cli"
_UNSUPPORTED_VERSION = 35

ResponseT = TypeVar("ResponseT", bound=Message)


@dataclass(frozen=True)
class Offered:
    """What a broker says of itself: versions by API key, and features by name (level in force, least, greatest)."""

    versions: dict[int, tuple[int, int]]
    features: dict[str, tuple[int | None, int, int]]


class Conversation:
    """One connection; a request is written and its answer read, one after the other."""

    def __init__(self, host: str, port: int, timeout_s: float) -> None:
        self._address = f"{host}:{port}"
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise cannot_reach(self._address, (error.strerror or str(error)).lower()) from None
        self._correlation_id = 0
        try:
            self.offered = self._ask_what_is_offered()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._socket.close()

    def ask(self, request: Message, response_class: type[ResponseT]) -> ResponseT | None:
        """The answer in the newest version that both sides know; None when the broker does not offer the API."""
        low, high = self.offered.versions.get(request.API_KEY, (1, 0))
        version = min(high, request.VERSION_MAX)
        if version < max(low, request.VERSION_MIN):
            return None
        return self._exchange(request, version, response_class)

    def _ask_what_is_offered(self) -> Offered:
        answer: ApiVersionsResponse | None = None
        for version in (4, 3, 0):
            named = ApiVersionsRequest(client_software_name="strandline-cli", client_software_version=__version__)
            answer = self._exchange(named, version, ApiVersionsResponse)
            if answer.error_code != _UNSUPPORTED_VERSION:
                break
        assert answer is not None, "at least one version was asked"
        in_force = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return Offered(
            {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
            {
                feature.name: (in_force.get(feature.name), feature.min_version, feature.max_version)
                for feature in answer.supported_features
            },
        )

    def _exchange(self, request: Message, version: int, response_class: type[ResponseT]) -> ResponseT:
        self._correlation_id += 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id=_CLIENT_ID.encode())
        try:
            self._socket.sendall(frame)
            answer = self._read_exactly(self._answer_size())
        except OSError as error:
            raise cannot_reach(self._address, (error.strerror or str(error)).lower()) from None
        try:
            return read_answer(answer, request, version, response_class)
        except MalformedMessage as error:
            raise CommandFailed(f"{self._address} sent an answer that is none: {error}") from None

    def _answer_size(self) -> int:
        size: int = struct.unpack(">i", self._read_exactly(4))[0]
        if not 4 <= size <= ANSWER_BYTES_MAX:
            raise CommandFailed(
                f"{self._address} does not speak the Kafka protocol without TLS",
                hint="is this the port of another service? for TLS say -X security.protocol=ssl",
            )
        return size

    def _read_exactly(self, size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            piece = self._socket.recv(min(size - len(pieces), 1 << 20))
            if not piece:
                raise ConnectionResetError(0, "the connection was closed by the broker")
            pieces += piece
        return bytes(pieces)


def error_name(code: int) -> str:
    """Kafka's name of an error code; a number that we do not know stays one."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"


def is_plain(cluster: Cluster) -> bool:
    return cluster.properties.get("security.protocol", "plaintext").lower() == "plaintext"


def converse(cluster: Cluster, broker: Any = None) -> Conversation | None:
    """A conversation with `broker` (librdkafka's description of one), or with the first bootstrap server that answers.

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
