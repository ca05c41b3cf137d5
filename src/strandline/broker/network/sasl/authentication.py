"""SASL on the wire: what a connection may send before its client is authenticated, and how it is authenticated.

    ApiVersions, once  ->  SaslHandshake 0  ->  bare tokens ...          ->  requests
                           SaslHandshake 1  ->  SaslAuthenticate ...

A connection of a SASL listener begins with a `SaslGate`, which stands before the dispatcher. Once the client is
authenticated the gate is gone, and a request costs what it costs without SASL. Only where a session ends by time
(KIP-368) the gate stays: it closes the connection of a session that is over, and lets a client authenticate again, as
the same principal and by the same mechanism.

The answer to a failed login is held back, longer each time for one host, and then the connection is closed.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping
from enum import Enum
from functools import partial
from struct import Struct
from typing import Any, Final, NamedTuple

from strandline.broker.network.connection import Connection, Exchange
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_authenticate_response import SaslAuthenticateResponse
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.codec.messages.sasl_handshake_response import SaslHandshakeResponse
from strandline.errors import ErrorCode
from strandline.handlers.k17_sasl_handshake import API_KEY as HANDSHAKE
from strandline.handlers.k18_api_versions import API_KEY as API_VERSIONS
from strandline.handlers.k18_api_versions import VERSIONS as API_VERSIONS_VERSIONS
from strandline.handlers.k36_sasl_authenticate import API_KEY as AUTHENTICATE
from strandline.handlers.support.context import RequestContext
from strandline.runtime.runtime import Runtime, TimerHandle
from strandline.security.principal import USER
from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, OffLoop, ServerExchange
from strandline.security.sasl.login_failures import LoginFailures

LOGIN_S_MAX: Final = 30.0
"""Seconds from the connection to the end of its login."""
FAILURES_HELD_MAX: Final = 1000
"""Answers to failed logins of a listener that are held back at once. Beyond that a connection is closed at once."""
CHECKS_AT_ONCE_MAX: Final = 2
CHECKS_OF_HOST_MAX: Final = 16
CHECKS_MAX: Final = 256
"""Checks of passwords: in threads at once, and of one host and of all that wait for a thread."""
REAUTHENTICATION_S_MIN: Final = 1.0
"""Seconds between two logins on one connection."""
_WITHOUT_LIMIT: Final = 1 << 31
_LENGTH: Final = Struct(">i")

log = logging.getLogger("strandline.authentication")

Outcome = Callable[[Any, BaseException | None], object]
OnLogin = Callable[[str, str, str, str], object]
"""Takes host, mechanism, principal and, of a login that failed, the reason."""


def _ignore(*login: str) -> None:
    """Do nothing with a login."""


class SaslMechanism(NamedTuple):
    """A mechanism of a listener: how a login begins, and how long a session lasts (0 for no limit)."""

    begin: Callable[[], ServerExchange]
    session_ms_max: int = 0


class SaslListener:
    """What the connections of one listener are authenticated by, and the counts of their logins."""

    def __init__(
        self,
        runtime: Runtime,
        mechanisms: Mapping[str, SaslMechanism],
        *,
        frame_size_max: int,
        failure_delay_ms: int,
    ) -> None:
        self.runtime = runtime
        self.mechanisms = dict(mechanisms)
        self.frame_size_max = frame_size_max
        self.failures = LoginFailures(failure_delay_ms)
        self.checks = PasswordChecks(runtime)
        self.held = 0
        """Failed logins whose answers are held back."""
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self.renewed: Counter[str] = Counter()
        """Logins by mechanism: successful, failed, and successful ones on a connection that was authenticated."""
        self.on_login: OnLogin = _ignore
        """Called for each login but renewals that succeed."""
        self.expired = 0
        """Connections that were closed because they sent a request after the end of their session."""

    def logins(self) -> dict[str, Counter[str]]:
        """Return the counts of logins by result and mechanism."""
        return {"success": self.succeeded, "renewal": self.renewed, "failure": self.failed}

    def gate(self, connection: Connection) -> SaslGate:
        """Return what stands before the requests of a new connection."""
        return SaslGate(self, connection)


class PasswordChecks:
    """Work of logins in threads. One host cannot take all of it, and what waits is bounded."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._waiting: deque[tuple[str, Callable[[], Any], Outcome]] = deque()
        self._of_host: Counter[str] = Counter()
        self._running = 0

    def run(self, host: str, work: Callable[[], Any], done: Outcome) -> bool:
        """Have `work` done, then call `done(result, error)`. Return False if too much waits already."""
        if self._of_host[host] >= CHECKS_OF_HOST_MAX or len(self._waiting) >= CHECKS_MAX:
            return False
        self._of_host[host] += 1
        self._waiting.append((host, work, done))
        self._start()
        return True

    def _start(self) -> None:
        while self._waiting and self._running < CHECKS_AT_ONCE_MAX:
            host, work, done = self._waiting.popleft()
            self._running += 1
            self._runtime.in_thread(work, partial(self._on_done, host, done))

    def _on_done(self, host: str, done: Outcome, result: Any, error: BaseException | None) -> None:
        self._running -= 1
        self._of_host[host] -= 1
        if not self._of_host[host]:
            del self._of_host[host]
        self._start()
        done(result, error)


class GateState(Enum):
    """How far the login of a connection is."""

    CONNECTED = "connected"
    VERSIONS_SENT = "versions sent"
    AUTHENTICATING = "authenticating"
    FAILED = "failed"
    ESTABLISHED = "established"


class SaslGate:
    """What stands before the requests of one connection."""

    __slots__ = (
        "_begun_at",
        "_connection",
        "_deadline",
        "_exchange",
        "_expires_at",
        "_is_again",
        "_is_held",
        "_listener",
        "_mechanism",
        "_pending",
        "_state",
        "_wrong_mechanism",
        "frame_size_max",
        "is_raw",
    )

    def __init__(self, listener: SaslListener, connection: Connection) -> None:
        self._listener = listener
        self._connection = connection
        self.frame_size_max = listener.frame_size_max
        self.is_raw = False
        """Whether frames are bare tokens, without a header."""
        self._state = GateState.CONNECTED
        self._mechanism = ""
        self._wrong_mechanism = ""
        """The mechanism of the handshake, where another login was by another one."""
        self._exchange: ServerExchange | None = None
        self._pending: RequestContext | Exchange | None = None
        """The token that is being worked on: a SaslAuthenticate, or a bare one."""
        self._is_again = False
        self._is_held = False
        self._begun_at = 0.0
        self._expires_at = 0.0
        self._deadline: TimerHandle | None = listener.runtime.call_later(LOGIN_S_MAX, self._on_deadline)

    # What the connection asks

    def admits(self, api_key: int, version: int) -> bool:
        """Return whether a request may be started. If it may not, the connection is closed."""
        state = self._state
        if state is GateState.ESTABLISHED:
            if self._listener.runtime.monotonic() < self._expires_at or api_key == HANDSHAKE:
                return True
            self._listener.expired += 1
            self._refuse("its session is over, and it did not authenticate again")
            return False
        if state is GateState.AUTHENTICATING:
            # A handshake is answered with an error.
            is_admitted = api_key in (AUTHENTICATE, HANDSHAKE)
        elif api_key == API_VERSIONS:
            is_admitted = state is GateState.CONNECTED
            if API_VERSIONS_VERSIONS[0] <= version <= API_VERSIONS_VERSIONS[1]:
                self._state = GateState.VERSIONS_SENT
        else:
            is_admitted = api_key == HANDSHAKE and state is not GateState.FAILED
        if not is_admitted:
            self._refuse(f"API key {api_key} before authentication ({state.value})")
        return is_admitted

    def on_closed(self) -> None:
        """Let go of the timer of a connection that is gone."""
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._is_held:
            self._is_held = False
            self._listener.held -= 1

    # Requests

    def on_handshake(self, context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse | None:
        """Choose the mechanism. On an established session this begins another login."""
        listener, now = self._listener, self._listener.runtime.monotonic()
        is_again = self._state is GateState.ESTABLISHED
        if is_again and now - self._begun_at < REAUTHENTICATION_S_MIN:
            return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
        if self._state is GateState.AUTHENTICATING or (is_again and context.api_version == 0):
            # On an established session bare tokens could not be told from requests that were sent before.
            self._fail_handshake(context, ErrorCode.ILLEGAL_SASL_STATE)
            return None
        if request.mechanism not in listener.mechanisms:
            self._fail_handshake(context, ErrorCode.UNSUPPORTED_SASL_MECHANISM)
            return None
        # As in Kafka a wrong mechanism is rejected with the first token.
        self._wrong_mechanism = request.mechanism if is_again and request.mechanism != self._mechanism else ""
        self._mechanism = self._mechanism if is_again else request.mechanism
        self._is_again = is_again
        self._begun_at = now
        self._state = GateState.AUTHENTICATING
        self._exchange = listener.mechanisms[self._mechanism].begin()
        self.is_raw = context.api_version == 0
        return SaslHandshakeResponse(mechanisms=list(listener.mechanisms))

    def on_authenticate(
        self, context: RequestContext, request: SaslAuthenticateRequest
    ) -> SaslAuthenticateResponse | None:
        """Take a token of the client."""
        if self._state is GateState.ESTABLISHED:
            return SaslAuthenticateResponse(
                error_code=ErrorCode.ILLEGAL_SASL_STATE,
                error_message="SaslAuthenticate request received after successful authentication",
            )
        self._pending = context
        self._take(request.auth_bytes)
        return None

    def on_raw(self, exchange: Exchange, token: bytes) -> None:
        """Take a bare token of the client."""
        self._pending = exchange
        self._take(token)

    # The login

    def _take(self, token: bytes) -> None:
        if self._wrong_mechanism:
            self._fail(
                AuthenticationFailed(
                    f"SASL mechanism '{self._wrong_mechanism}' requested by client is not supported for "
                    f"re-authentication of mechanism '{self._mechanism}'"
                )
            )
            return
        assert self._exchange is not None, "the handshake chose a mechanism"
        self._advance(partial(self._exchange.step, token))

    def _advance(self, step: Callable[[], Any]) -> None:
        try:
            outcome = step()
        except AuthenticationFailed as failure:
            self._fail(failure)
            return
        if isinstance(outcome, Challenge):
            self._reply(outcome.token)
        elif isinstance(outcome, Authenticated):
            self._establish(outcome)
        else:
            assert isinstance(outcome, OffLoop)
            host = self._connection.transport.peer_host
            if not self._listener.checks.run(host, outcome.work, partial(self._on_work, outcome.then)):
                self._refuse("too many logins wait for their check", kind="limit")

    def _on_work(self, then: Callable[[Any], Any], result: Any, error: BaseException | None) -> None:
        if self._connection.closed:
            return
        if error is not None:
            log.error("a login could not be checked: %s", type(error).__name__)
            self._fail(AuthenticationFailed("Authentication failed"))
        else:
            self._advance(partial(then, result))

    def _establish(self, done: Authenticated) -> None:
        listener, connection = self._listener, self._connection
        if self._is_again and done.session.principal != connection.session.principal:
            self._fail(
                AuthenticationFailed(
                    f"Cannot change principals during re-authentication from {connection.session.principal} to "
                    f"{done.session.principal}"
                )
            )
            return
        connection.session = done.session
        (listener.renewed if self._is_again else listener.succeeded)[self._mechanism] += 1
        if not self._is_again:
            host = connection.transport.peer_host
            listener.on_login(host, self._mechanism, str(done.session.principal), "")
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        self.frame_size_max = _WITHOUT_LIMIT
        self.is_raw = False
        self._exchange = None
        session_ms = self._session_ms(done.expires_ms)
        if session_ms is None:
            connection.gate = None
        else:
            self._state = GateState.ESTABLISHED
            self._expires_at = listener.runtime.monotonic() + session_ms / 1000
        self._reply(done.token, session_ms or 0)

    def _session_ms(self, expires_ms: int | None) -> int | None:
        """Return how long the session lasts: as configured, and not longer than its token. None for no end."""
        ends = []
        session_ms_max = self._listener.mechanisms[self._mechanism].session_ms_max
        if session_ms_max > 0:
            ends.append(session_ms_max)
        if expires_ms is not None:
            ends.append(max(0, expires_ms - self._listener.runtime.now_ms()))
        return min(ends, default=None)

    def _reply(self, token: bytes, session_ms: int = 0) -> None:
        pending, self._pending = self._pending, None
        if isinstance(pending, Exchange):
            self._connection.finish(pending, [_LENGTH.pack(len(token)) + token])
        elif pending is not None:
            pending.reply(
                SaslAuthenticateResponse(error_message=None, auth_bytes=token, session_lifetime_ms=session_ms)
            )

    # Failures

    def _fail_handshake(self, context: RequestContext, code: ErrorCode) -> None:
        mechanisms = list(self._listener.mechanisms) if code == ErrorCode.UNSUPPORTED_SASL_MECHANISM else []
        response = SaslHandshakeResponse(error_code=code, mechanisms=mechanisms)
        self._hold(code.name, partial(context.reply, response))

    def _fail(self, failure: AuthenticationFailed) -> None:
        pending, self._pending = self._pending, None
        if isinstance(pending, Exchange) or pending is None:
            # There is no form for errors among bare tokens.
            self._hold(str(failure), lambda: None)
        else:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(failure)
            )
            self._hold(str(failure), partial(pending.reply, response))

    def _hold(self, reason: str, answer: Callable[[], object]) -> None:
        """Answer a failed login later, and then close the connection."""
        listener, connection = self._listener, self._connection
        self._state = GateState.FAILED
        listener.failed[self._mechanism or "unknown"] += 1
        self._note_failure(reason)
        delay_s = listener.failures.note(connection.transport.peer_host, listener.runtime.monotonic())
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if listener.held >= FAILURES_HELD_MAX:
            self._refuse(reason)
        elif delay_s <= 0:
            self._end(reason, answer)
        else:
            listener.held += 1
            self._is_held = True
            self._deadline = listener.runtime.call_later(delay_s, self._end, reason, answer)

    def _note_failure(self, reason: str) -> None:
        claimed = "" if self._exchange is None else self._exchange.claimed_name
        principal = f"{USER}:{claimed}" if claimed else ""
        self._listener.on_login(self._connection.transport.peer_host, self._mechanism, principal, reason)

    def _end(self, reason: str, answer: Callable[[], object]) -> None:
        answer()
        if not self._connection.closed:
            self._refuse(f"its login failed: {reason}")

    def _on_deadline(self) -> None:
        self._refuse(f"not authenticated within {LOGIN_S_MAX:g} s", kind="deadline")

    def _refuse(self, reason: str, *, kind: str = "authentication") -> None:
        self._connection.limits.refuse(self._connection, reason, kind=kind)
