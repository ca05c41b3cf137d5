"""One outgoing connection for requests to one address: connects by need, pipelines, matches answers to requests.

Requests are sent in the order in which they were asked, and a server answers a connection in that order. So a request
that waits at the server (a long poll) holds up what is asked after it: give it a channel of its own.

`on_answer(response, error)` is called exactly once for each request, never before `ask` has returned: with the answer,
or with None and `Disconnected` (no connection, or one that was lost: the request may have been carried out, or not),
`TimedOut` (the same), or `MalformedMessage`. A timed-out request ends the connection, because whatever comes after it
would wait behind it, and a peer that was cut off is found again sooner by a new connection than by an old one.

After a failure the next attempt to connect waits, longer each time; requests wait with it, as far as their timeouts
allow. So a caller that retries at once after a failure does not spin.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.network.answer_stream import AnswerStream, Asked, OnBody
from strandline.broker.network.connection import FRAME_HEADER
from strandline.broker.network.transport import Network
from strandline.codec.answers import response_class
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.errors import Disconnected, MalformedMessage, TimedOut
from strandline.observability.log_lines import fields
from strandline.runtime.runtime import Runtime, TimerHandle

if TYPE_CHECKING:
    from strandline.broker.network.sasl.channel_login import ChannelLogin
    from strandline.security.sasl.exchange import ClientLogin

log = logging.getLogger("strandline.broker")

OnAnswer = Callable[[Any, BaseException | None], object]

FRAME_BYTES_MAX: Final = 100 * 1024 * 1024
REQUESTS_MAX: Final = 1_000
"""Requests of one channel that may wait to be sent or to be answered."""
CONNECT_TIMEOUT_S: Final = 3.0
"""A lost SYN is repeated after one second, and again after two more."""
BACKOFF_S: Final = 0.05
BACKOFF_S_MAX: Final = 1.0
REASONS_MAX: Final = 8
"""Reasons of one channel that are logged before its peer answers again."""
API_VERSIONS: Final = 18
RENEWAL_SHARE: Final = 0.85
"""The part of a session after which this node authenticates again; up to a tenth more, by chance."""
LOGIN_TIMEOUT_S: Final = 30.0
"""Seconds for each step of a login. Requests that were sent before are answered first."""
_CORRELATION_IDS: Final = 1 << 31


class Channel:
    def __init__(
        self,
        runtime: Runtime,
        network: Network,
        host: str,
        port: int,
        *,
        client_id: str,
        frame_bytes_max: int = FRAME_BYTES_MAX,
        login: Callable[[], ClientLogin] | None = None,
    ) -> None:
        """Nothing is connected before the first request. With `login` each connection is authenticated first."""
        self._runtime = runtime
        self._new_login = login
        self._login: ChannelLogin | None = None
        """The login that is under way: requests wait for its end."""
        self._renewing: TimerHandle | None = None
        self._network = network
        self._client_id = client_id.encode()
        self._frame_bytes_max = frame_bytes_max
        self.address = host, port
        self.is_closed = False
        self._waiting: deque[Asked] = deque()
        self._stream: AnswerStream | None = None
        self._correlation_id = -1
        self._failures = 0
        """Attempts and connections in a row that came to nothing."""
        self._logged: set[str] = set()
        """Why: each reason is logged once, until the peer answers."""
        self._retry_at = 0.0
        self._connecting: TimerHandle | None = None
        """The next attempt, or the end of the patience with this one."""
        self._expiring: TimerHandle | None = None
        self._expires_at = 0.0

    def ask(self, request: Message, version: int, on_answer: OnAnswer, *, timeout_s: float) -> None:
        """Send `request`, call `on_answer(response, None)` or `on_answer(None, error)`."""
        expected = response_class(type(request))

        def on_body(body: memoryview | None, error: BaseException | None) -> None:
            response = None
            if body is not None:
                try:
                    response, _ = decode(expected, version, body)
                except MalformedMessage as malformed:
                    error = malformed
            on_answer(response, error)

        self.ask_raw(
            request.API_KEY,
            version,
            [encode(request, version)],
            on_body,
            timeout_s=timeout_s,
            flexible=version >= request.FLEXIBLE_FROM,
        )

    def ask_raw(
        self,
        api_key: int,
        version: int,
        body: Sequence[bytes],
        on_answer: OnBody,
        *,
        timeout_s: float,
        flexible: bool = True,
    ) -> None:
        """The same with bodies as bytes. The view that `on_answer` gets is good until it returns.

        `flexible` says whether this version of the message has tagged fields in its headers.
        """
        in_flight = 0 if self._stream is None else len(self._stream.asked)
        if self.is_closed or in_flight + len(self._waiting) >= REQUESTS_MAX:
            reason = "closed" if self.is_closed else f"{REQUESTS_MAX} requests wait already"
            self._runtime.call_soon(on_answer, None, Disconnected(f"{self}: {reason}"))
            return
        asked = self._framed(api_key, version, body, on_answer, timeout_s, flexible=flexible)
        self._waiting.append(asked)
        self._expire_by(asked.deadline)
        if self._stream is None:
            self._connect_when_due()
        elif self._stream.is_connected and self._login is None:
            self._send_waiting()

    def _framed(
        self, api_key: int, version: int, body: Sequence[bytes], on_answer: OnBody, timeout_s: float, *, flexible: bool
    ) -> Asked:
        self._correlation_id = (self._correlation_id + 1) % _CORRELATION_IDS
        size = FRAME_HEADER.size - 4 + len(self._client_id) + flexible + sum(map(len, body))
        head = FRAME_HEADER.pack(size, api_key, version, self._correlation_id, len(self._client_id)) + self._client_id
        frame = b"".join((head, b"\0" if flexible else b"", *body))
        deadline = self._runtime.monotonic() + timeout_s
        # The one answer whose header never has tagged fields: the client does not know yet what the server speaks.
        is_flexible_answer = flexible and api_key != API_VERSIONS
        return Asked(self._correlation_id, frame, is_flexible_answer, deadline, on_answer)

    def close(self) -> None:
        """Drop the connection. Who still waits is told `Disconnected`, on a later turn; so is who asks afterwards."""
        if self.is_closed:
            return
        self.is_closed = True
        lost = self._let_go()
        for timer in (self._connecting, self._expiring):
            if timer is not None:
                timer.cancel()
        self._connecting = self._expiring = None
        if lost:
            self._runtime.call_soon(_tell, lost, Disconnected(f"{self}: closed"))

    def __str__(self) -> str:
        host, port = self.address
        return f"{host}:{port}"

    # Connecting

    def _connect_when_due(self) -> None:
        if self._connecting is None:
            delay_s = self._retry_at - self._runtime.monotonic()
            if delay_s <= 0:
                self._connect()
            else:
                self._connecting = self._runtime.call_later(delay_s, self._connect)

    def _connect(self) -> None:
        self._connecting = None
        if not self._waiting:
            # Its request timed out meanwhile.
            return
        stream = self._stream = AnswerStream(self, self._frame_bytes_max)
        stream.transport = self._network.connect(*self.address, stream)
        self._connecting = self._runtime.call_later(CONNECT_TIMEOUT_S, self._on_connect_timeout)

    def _on_connect_timeout(self) -> None:
        self._connecting = None
        self._fail("no connection in time")

    # What streams tell; one that was given up is no longer listened to.

    def on_connected(self, stream: AnswerStream) -> None:
        if stream is self._stream:
            if self._connecting is not None:
                self._connecting.cancel()
                self._connecting = None
            self._begin_login()

    # The login, if peers want one

    def _begin_login(self) -> None:
        if self._new_login is None:
            self._send_waiting()
        else:
            # Loaded here, because a node whose peers need no login starts without it.
            from strandline.broker.network.sasl.channel_login import ChannelLogin

            self._login = ChannelLogin(self._runtime, self, self._new_login())
            self._login.start()

    def send_login(self, request: Message, version: int, on_response: Callable[[Any], object]) -> None:
        """Send a request of the login, which no other request waits for. Its loss is the end of the connection."""
        expected, stream = response_class(type(request)), self._stream
        assert stream is not None, "a login is cancelled with its connection"

        def on_body(body: memoryview | None, error: BaseException | None) -> None:
            if body is not None:
                on_response(decode(expected, version, body)[0])

        flexible = version >= request.FLEXIBLE_FROM
        body = [encode(request, version)]
        asked = self._framed(request.API_KEY, version, body, on_body, LOGIN_TIMEOUT_S, flexible=flexible)
        stream.send(asked)
        self._expire_by(asked.deadline)

    def on_logged_in(self, login: ChannelLogin, session_ms: int) -> None:
        """Send what waits, and authenticate again before the session is over."""
        if login is self._login:
            self._login = None
            self._forget_failures()
            self._send_waiting()
            if session_ms > 0:
                share = RENEWAL_SHARE + 0.1 * self._runtime.random.random()
                self._renewing = self._runtime.call_later(session_ms / 1000 * share, self._begin_login)

    def on_login_failed(self, login: ChannelLogin, reason: str) -> None:
        """Close the connection. Requests get `Disconnected`, and the next attempt waits."""
        if login is self._login:
            self._fail(reason)

    def on_answered(self, stream: AnswerStream) -> None:
        if stream is self._stream and self._login is None:
            self._forget_failures()

    def _forget_failures(self) -> None:
        if self._failures:
            log.info("reached %s again", self)
            self._failures = 0
            self._logged.clear()

    def on_over(self, stream: AnswerStream, reason: str) -> None:
        if stream is self._stream:
            assert stream.transport is not None
            self._fail(reason or stream.transport.failure or "the connection was lost")

    def _send_waiting(self) -> None:
        stream = self._stream
        assert stream is not None
        while self._waiting:
            stream.send(self._waiting.popleft())

    # The end of a request

    def _let_go(self) -> list[Asked]:
        """Drop the connection; all the requests that will not be answered now."""
        stream, self._stream = self._stream, None
        if self._login is not None:
            self._login.cancel()
            self._login = None
        if self._renewing is not None:
            self._renewing.cancel()
            self._renewing = None
        lost = [*(stream.asked.values() if stream is not None else ()), *self._waiting]
        self._waiting.clear()
        if stream is not None:
            stream.end()
        return lost

    def _fail(self, reason: str) -> None:
        now = self._runtime.monotonic()
        if self._connecting is not None:
            self._connecting.cancel()
            self._connecting = None
        lost = self._let_go()
        if lost:
            # A peer that closes an idle connection has done no wrong, and may be asked again at once.
            self._failures += 1
            backoff_s = min(BACKOFF_S_MAX, BACKOFF_S * 2 ** min(self._failures - 1, 10))
            self._retry_at = now + backoff_s * (0.8 + 0.4 * self._runtime.random.random())
            if reason not in self._logged and len(self._logged) < REASONS_MAX:
                self._logged.add(reason)
                host, port = self.address
                log.warning("cannot reach %s: %s", self, reason, extra=fields(host=host, port=port, reason=reason))
        expired = [asked for asked in lost if asked.deadline <= now]
        _tell(expired, TimedOut(f"{self}: no answer in time"))
        _tell([asked for asked in lost if asked.deadline > now], Disconnected(f"{self}: {reason}"))

    def _expire_by(self, deadline: float) -> None:
        if self._expiring is not None:
            if self._expires_at <= deadline:
                return
            self._expiring.cancel()
        self._expires_at = deadline
        self._expiring = self._runtime.call_later(max(0.0, deadline - self._runtime.monotonic()), self._expire)

    def _expire(self) -> None:
        """One timer for all requests: mostly they are answered long before, and it only looks what is next."""
        self._expiring = None
        now = self._runtime.monotonic()
        asked = [] if self._stream is None else list(self._stream.asked.values())
        if any(each.deadline <= now for each in asked):
            self._fail("no answer in time")
        else:
            expired = [each for each in self._waiting if each.deadline <= now]
            self._waiting = deque(each for each in self._waiting if each.deadline > now)
            _tell(expired, TimedOut(f"{self}: no connection in time"))
        left = [*self._waiting, *(() if self._stream is None else self._stream.asked.values())]
        if left and not self.is_closed:
            self._expire_by(min(each.deadline for each in left))


def _tell(lost: Sequence[Asked], error: BaseException) -> None:
    for asked in lost:
        asked.on_answer(None, error)
