"""One connection to any broker that speaks the Kafka protocol: a request out, its answer in, nothing between.

An answer is read into one buffer that is kept for the next, so a reader of megabytes asks for no memory each time; what
`receive` returns is a view of it and holds until the next call. A request may be sent before the last answer was used
(`send`, then `receive`), so that the broker works while we decode. Every wait has a deadline. After an error the
connection is of no use: what an answer belongs to could no longer be told. `client/security` says whether it is of TLS
and who logs in; a session that ends is renewed before the request that would find it over.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from strandline._version import __version__
from strandline.client.request_frame import answer_body_at, correlation_id_of, read_answer, request_frame
from strandline.client.security import PLAINTEXT, ClientSecurity, LoginRefused, NotAdmitted, alert_words
from strandline.codec.fetched_records import FetchedRecords, read_fetched_records
from strandline.codec.message import Message
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_authenticate_response import SaslAuthenticateResponse
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.codec.messages.sasl_handshake_response import SaslHandshakeResponse
from strandline.errors import Disconnected, ErrorCode, MalformedMessage, TimedOut, UnsupportedVersion, named
from strandline.security.sasl.exchange import AuthenticationFailed, ClientLogin, OffLoop

ANSWER_BYTES_MAX: Final = 512 * 1024 * 1024
"""A broker that claims more is broken, or no broker at all."""

BUFFER_BYTES_KEPT_MAX: Final = 16 * 1024 * 1024
"""A buffer that one giant batch made larger than this is not kept."""

SOFTWARE_NAME: Final = "strandline"
"""What brokers count clients by. Unlike a client.id it may have letters, digits, dots and hyphens only."""
_BUFFER_BYTES: Final = 64 * 1024
_SESSION_USED: Final = 0.85
"""The part of a session after which a connection logs in again."""
_TLS_ALERT: Final = b"\x15\x03"
"""What a listener with TLS answers to a plain request. As a size it would be 352 MB."""

_Selector: Final = getattr(selectors, "PollSelector", selectors.SelectSelector)
"""Not select(), which knows no descriptor above 1,023: a program may have thousands of files."""

ResponseT = TypeVar("ResponseT", bound=Message)
T = TypeVar("T")


@dataclass(frozen=True)
class Offered:
    """What a broker offers: versions by API key, and features by name (level in force, least, greatest)."""

    versions: dict[int, tuple[int, int]]
    features: dict[str, tuple[int | None, int, int]]


class NotKafka(Disconnected):
    """The answer of a port behind which something else listens, or TLS."""


def readable(descriptors: Iterable[int], timeout_s: float) -> list[int]:
    """Return which of these have something to read, or have ended, and wait for that."""
    with _Selector() as selector:
        for each in descriptors:
            selector.register(each, selectors.EVENT_READ)
        return [key.fd for key, _ in selector.select(timeout_s)]


class BrokerConnection:
    def __init__(
        self, host: str, port: int, *, client_id: str, timeout_s: float, security: ClientSecurity = PLAINTEXT
    ) -> None:
        self.address = f"{host}:{port}"
        self.timeout_s = timeout_s
        self._client_id = client_id.encode()
        self._correlation_id = 0
        self._waiting: tuple[Message, int] | None = None
        self._buffer = bytearray(_BUFFER_BYTES)
        self._security = security
        self._is_known = False
        self._is_served = False
        """Whether a request was answered that the broker serves only to clients that it has admitted."""
        self._login_again_s: float | None = None
        try:
            self._socket = socket.create_connection((host, port), timeout_s)
        except OSError as error:
            raise Disconnected(f"{self.address} cannot be reached: {_reason(error)}") from error
        try:
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = security.secured(self._socket, host, self.address)
            self.offered = self._ask_what_is_offered()
            self._is_known = True
            self._log_in()
        except TimeoutError as error:
            self.close()
            raise self._lost(error) from error
        except BaseException:
            self.close()
            raise

    @property
    def is_waiting(self) -> bool:
        """Whether a request was sent whose answer was not read."""
        return self._waiting is not None

    @property
    def has_answer(self) -> bool:
        """Whether `receive` would not wait: an answer has begun to come, or the end of the connection."""
        if isinstance(self._socket, ssl.SSLSocket) and self._socket.pending():
            return True
        return bool(readable([self._socket.fileno()], 0.0))

    def fileno(self) -> int:
        """Return the descriptor of the socket, so that answers of several brokers can be waited for."""
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()

    def version_for(self, request_class: type[Message], *, version_max: int | None = None) -> int:
        """The newest version that both sides know; UnsupportedVersion if there is none."""
        low, high = self.offered.versions.get(request_class.API_KEY, (1, 0))
        version = min(high, request_class.VERSION_MAX if version_max is None else version_max)
        if version < max(low, request_class.VERSION_MIN):
            name = request_class.__name__.removesuffix("Request")
            raise UnsupportedVersion(f"{self.address} has no version of {name} that we speak")
        return version

    def ask(self, request: Message, response_class: type[ResponseT], *, version_max: int | None = None) -> ResponseT:
        version = self.version_for(type(request), version_max=version_max)
        self.send(request, version)
        return self.receive_message(response_class)

    def ask_read(self, request: Message, read: Callable[[memoryview, int, int], T]) -> T:
        """Return what `read` makes of the answer, as `receive_read`: for one that is too large to decode at once."""
        self.send(request, self.version_for(type(request)))
        return self.receive_read(read)

    def send(self, request: Message, version: int) -> None:
        assert self._waiting is None, "one request at a time"
        if self._login_again_s is not None and time.monotonic() > self._login_again_s:
            self._log_in()
        self._correlation_id += 1
        frame = request_frame(request, version, correlation_id=self._correlation_id, client_id=self._client_id)
        self._waiting = (request, version)
        try:
            self._socket.settimeout(self.timeout_s)
            self._socket.sendall(frame)
        except OSError as error:
            raise self._lost(error) from error

    def receive_message(self, response_class: type[ResponseT], *, wait_s: float = 0.0) -> ResponseT:
        """The answer to what was sent; `wait_s` more than the usual time for a broker that was told to wait."""
        answer, request, version = self._answer(self.timeout_s + wait_s)
        try:
            return read_answer(answer, request, version, response_class)
        except MalformedMessage as error:
            raise self._is_none(error) from error

    def receive_read(self, read: Callable[[memoryview, int, int], T]) -> T:
        """Return what `read` makes of the answer: a view that holds until the next call, where its body begins, and
        the version."""
        answer, request, version = self._answer(self.timeout_s)
        try:
            return read(answer, answer_body_at(answer, request, version), version)
        except MalformedMessage as error:
            raise self._is_none(error) from error

    def receive_fetched(self, *, wait_s: float) -> FetchedRecords:
        """The answer to a Fetch of one partition; its records are a view that holds until the next call."""
        answer, request, version = self._answer(self.timeout_s + wait_s)
        try:
            return read_fetched_records(answer, answer_body_at(answer, request, version), version)
        except MalformedMessage as error:
            raise self._is_none(error) from error

    def _answer(self, timeout_s: float) -> tuple[memoryview, Message, int]:
        assert self._waiting is not None, "nothing was asked"
        request, version = self._waiting
        answer = self._receive(timeout_s)
        self._waiting = None
        if not isinstance(request, ApiVersionsRequest):
            self._is_served = True
        try:
            if correlation_id_of(answer) != self._correlation_id:
                raise MalformedMessage("the answer to another request")
        except MalformedMessage as error:
            raise self._is_none(error) from error
        return answer, request, version

    def _is_none(self, error: MalformedMessage) -> Disconnected:
        return Disconnected(f"{self.address} sent an answer that is none: {error}")

    def _receive(self, timeout_s: float) -> memoryview:
        deadline = time.monotonic() + timeout_s
        head = bytes(self._read(4, deadline))
        (size_bytes,) = struct.unpack(">i", head)
        if not 4 <= size_bytes <= ANSWER_BYTES_MAX or head.startswith(_TLS_ALERT):
            raise NotKafka(
                f"{self.address} does not speak the Kafka protocol without TLS: is this the port of another service?"
            )
        return self._read(size_bytes, deadline)

    def _read(self, size_bytes: int, deadline: float) -> memoryview:
        if size_bytes > len(self._buffer) or len(self._buffer) > BUFFER_BYTES_KEPT_MAX:
            self._buffer = bytearray(max(size_bytes, _BUFFER_BYTES))
        view = memoryview(self._buffer)[:size_bytes]
        at = 0
        try:
            while at < size_bytes:
                left_s = deadline - time.monotonic()
                if left_s <= 0:
                    raise TimeoutError
                self._socket.settimeout(left_s)
                received = self._socket.recv_into(view[at:])
                if not received:
                    raise ConnectionResetError(0, "the connection was closed")
                at += received
        except OSError as error:
            raise self._lost(error) from error
        return view

    def _lost(self, error: OSError) -> Disconnected | TimedOut:
        if isinstance(error, TimeoutError):
            return TimedOut(f"{self.address} did not answer within {self.timeout_s:g} s")
        if words := alert_words(self.address, error):
            return NotAdmitted(words)
        if not self._is_served:
            words = self._security.loss_words(self.address, error, is_known=self._is_known)
        if words:
            return Disconnected(words)
        return Disconnected(f"{self.address} was lost: {_reason(error)}")

    def _log_in(self) -> None:
        """Log in, if the protocol has a login. Raise NotAdmitted, in a sentence, if the broker rejects it."""
        login = self._security.login()
        if login is None:
            return
        # While it lasts, its own requests do not begin another one.
        self._login_again_s = None
        answer = self.ask(SaslHandshakeRequest(mechanism=login.mechanism), SaslHandshakeResponse)
        if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
            raise NotAdmitted(f"{self.address} has no login: say security.protocol=PLAINTEXT or SSL, or another port")
        if answer.error_code:
            offered = ", ".join(answer.mechanisms)
            raise NotAdmitted(f"{self.address} does not offer sasl.mechanism={login.mechanism}, but {offered}")
        try:
            session_s = self._exchange(login) / 1000
        except AuthenticationFailed as error:
            raise LoginRefused(f"{self.address} refused the login of {self._security.user!r}: {error}") from None
        if session_s > 0:
            self._login_again_s = time.monotonic() + _SESSION_USED * session_s

    def _exchange(self, login: ClientLogin) -> int:
        """Return how many milliseconds the session has, 0 for no end."""
        token: bytes | None = login.first()
        session_ms = 0
        while token is not None:
            answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            if answer.error_code:
                raise AuthenticationFailed(answer.error_message or named(answer.error_code).name)
            session_ms = answer.session_lifetime_ms
            step = login.step(answer.auth_bytes)
            token = step.then(step.work()) if isinstance(step, OffLoop) else step
        return session_ms

    def _ask_what_is_offered(self) -> Offered:
        answer: ApiVersionsResponse | None = None
        for version in (4, 3, 0):
            self.send(ApiVersionsRequest(SOFTWARE_NAME, __version__), version)
            answer = self.receive_message(ApiVersionsResponse)
            if answer.error_code != ErrorCode.UNSUPPORTED_VERSION:
                break
        assert answer is not None, "at least one version was asked"
        if answer.error_code:
            raise Disconnected(f"{self.address} does not say what it speaks: {named(answer.error_code).name}")
        in_force = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        return Offered(
            {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys},
            {
                feature.name: (in_force.get(feature.name), feature.min_version, feature.max_version)
                for feature in answer.supported_features
            },
        )


def _reason(error: OSError) -> str:
    return "it did not answer in time" if isinstance(error, TimeoutError) else (error.strerror or str(error)).lower()
