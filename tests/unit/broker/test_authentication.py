"""SASL on a connection without a socket: states, limits, failures, bare tokens, sessions that end."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.peer import FakeTransport

from strandline.broker.network.connection import Connection
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.routes import routes
from strandline.broker.network.sasl.authentication import (
    CHECKS_OF_HOST_MAX,
    FAILURES_HELD_MAX,
    LOGIN_S_MAX,
    SaslListener,
    SaslMechanism,
)
from strandline.codec.message import Message
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.api_versions_request import ApiVersionsRequest
from strandline.codec.messages.api_versions_response import ApiVersionsResponse
from strandline.codec.messages.metadata_request import MetadataRequest
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_authenticate_response import SaslAuthenticateResponse
from strandline.codec.messages.sasl_handshake_request import SaslHandshakeRequest
from strandline.codec.messages.sasl_handshake_response import SaslHandshakeResponse
from strandline.errors import ErrorCode
from strandline.security.principal import ANONYMOUS_SESSION
from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, OffLoop
from strandline.security.sasl.plain import PlainLogin, PlainServer
from strandline.security.sasl.scram import user_session

NAME, PASSWORD = "alice", "secret"


class Timer:
    def __init__(self, at: float, callback: Callable[..., object], args: tuple[Any, ...]) -> None:
        self.at, self.callback, self.args = at, callback, args
        self.is_cancelled = False

    def cancel(self) -> None:
        self.is_cancelled = True


class Turns:
    """A runtime whose clock a test moves, and whose threads a test runs."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.random = random.Random(1)
        self.timers: list[Timer] = []
        self.soon: list[Callable[[], object]] = []
        self.work: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], object]]] = []

    def monotonic(self) -> float:
        return self.now

    def now_ms(self) -> int:
        return int(self.now * 1000)

    def call_soon(self, callback: Callable[[], object]) -> None:
        self.soon.append(callback)

    def call_later(self, delay_s: float, callback: Callable[..., object], *args: Any) -> Timer:
        self.timers.append(Timer(self.now + delay_s, callback, args))
        return self.timers[-1]

    def in_thread(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], object]) -> None:
        self.work.append((work, done))

    def run_threads(self) -> None:
        while self.work:
            work, done = self.work.pop(0)
            try:
                result = work()
            except Exception as error:
                done(None, error)
            else:
                done(result, None)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for timer in [each for each in self.timers if each.at <= self.now and not each.is_cancelled]:
            timer.is_cancelled = True
            timer.callback(*timer.args)


class Passwords:
    def __init__(self, *, is_later: bool = False) -> None:
        self.is_later = is_later

    def check(self, name: str, password: str) -> bool | OffLoop:
        if self.is_later:
            return OffLoop(lambda: password == PASSWORD, lambda result: result)
        return password == PASSWORD


class Echo:
    """A mechanism that asks `n` times before it accepts, and whose token ends at a given time."""

    claimed_name = ""

    def __init__(self, steps: int = 2, expires_ms: int | None = None) -> None:
        self.left, self.expires_ms = steps, expires_ms

    def step(self, token: bytes) -> Any:
        if token == b"bad":
            raise AuthenticationFailed("no")
        self.left -= 1
        return Challenge(token + b"?") if self.left else Authenticated(user_session(NAME), b"end", self.expires_ms)


class Stage:
    def __init__(self, mechanisms: dict[str, SaslMechanism] | None = None, *, delay_ms: int = 100) -> None:
        self.runtime: Any = Turns()
        self.sasl = SaslListener(
            self.runtime,
            mechanisms
            or {
                "PLAIN": SaslMechanism(lambda: PlainServer(Passwords())),
                "LATER": SaslMechanism(lambda: PlainServer(Passwords(is_later=True))),
                "ECHO": SaslMechanism(Echo),
            },
            frame_size_max=1000,
            failure_delay_ms=delay_ms,
        )
        image = SimpleNamespace(applied_offset=0, features={})
        node: Any = SimpleNamespace(runtime=self.runtime, image=image, authorizer=None)
        served = {key: route for key, route in routes().items() if key in (3, 17, 18, 36)}
        served[3]._handler = None
        self.dispatcher = Dispatcher(node, served, frame_size_max=10_000, inbox_bytes_max=1 << 20)
        self.dispatcher.sasl = self.sasl
        self.seen: list[Connection] = []
        # Any other request: what it does is not the question here.
        served[3].hot = lambda node, connection, view, at, version, correlation_id: self.seen.append(connection)
        self.transport = FakeTransport()
        self.connection = Connection(self.dispatcher, self.transport)
        self.dispatcher.limits.welcome(self.connection)
        self.correlation_id = 0

    def send(self, message: Message, version: int) -> None:
        self.feed(self.frame(message, version))

    def frame(self, message: Message, version: int) -> bytes:
        self.correlation_id += 1
        tags = b"\0" if version >= message.FLEXIBLE_FROM else b""
        head = struct.pack(">hhih", message.API_KEY, version, self.correlation_id, -1)
        body = head + tags + encode(message, version)
        return struct.pack(">i", len(body)) + body

    def feed(self, data: bytes) -> None:
        with memoryview(bytearray(data)) as view:
            self.connection.receive(view)

    def raw(self, token: bytes) -> None:
        self.feed(struct.pack(">i", len(token)) + token)

    @property
    def last(self) -> bytes:
        sent = self.transport.sent.pop()
        assert isinstance(sent, bytes)
        return sent

    def answer(self, answer_class: type[Any], version: int) -> Any:
        is_flexible = version >= answer_class.FLEXIBLE_FROM and answer_class is not ApiVersionsResponse
        return decode(answer_class, version, memoryview(self.last)[9 if is_flexible else 8 :], 0)[0]

    def shake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        self.send(SaslHandshakeRequest(mechanism=mechanism), version)
        return self.answer(SaslHandshakeResponse, version)

    def authenticate(self, token: bytes, version: int = 2) -> None:
        self.send(SaslAuthenticateRequest(auth_bytes=token), version)

    def log_in(self, password: str = PASSWORD, version: int = 2) -> Any:
        self.authenticate(PlainLogin(NAME, password).first(), version)
        return self.answer(SaslAuthenticateResponse, version)


def test_a_login() -> None:
    stage = Stage()
    stage.send(ApiVersionsRequest("me", "1"), 4)
    assert {each.api_key for each in stage.answer(ApiVersionsResponse, 4).api_keys} == {3, 17, 18, 36}
    assert stage.connection.session is ANONYMOUS_SESSION
    shaken = stage.shake()
    assert (shaken.error_code, shaken.mechanisms) == (0, ["PLAIN", "LATER", "ECHO"])
    done = stage.log_in()
    assert (done.error_code, done.auth_bytes, done.session_lifetime_ms) == (0, b"", 0)
    assert stage.connection.session == user_session(NAME)
    assert stage.connection.gate is None
    stage.send(MetadataRequest(), 1)
    assert stage.seen == [stage.connection]
    assert stage.sasl.succeeded == {"PLAIN": 1}
    assert all(timer.is_cancelled for timer in stage.runtime.timers)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_versions_of_sasl_authenticate(version: int) -> None:
    stage = Stage()
    stage.shake()
    assert stage.log_in(version=version).error_code == 0


def test_all_in_one_read() -> None:
    stage = Stage()
    stage.feed(
        stage.frame(ApiVersionsRequest("me", "1"), 4)
        + stage.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        + stage.frame(SaslAuthenticateRequest(auth_bytes=PlainLogin(NAME, PASSWORD).first()), 1)
        + stage.frame(MetadataRequest(), 1)
    )
    assert stage.seen == [stage.connection]


def test_byte_by_byte() -> None:
    stage = Stage()
    for byte in stage.frame(SaslHandshakeRequest(mechanism="PLAIN"), 1):
        stage.feed(bytes([byte]))
    for byte in stage.frame(SaslAuthenticateRequest(auth_bytes=PlainLogin(NAME, PASSWORD).first()), 1):
        stage.feed(bytes([byte]))
    assert stage.connection.gate is None


@pytest.mark.parametrize("before", [0, 1, 2])
def test_other_requests_before_the_end_close(before: int) -> None:
    stage = Stage()
    if before > 0:
        stage.send(ApiVersionsRequest("me", "1"), 4)
    if before > 1:
        stage.shake()
    stage.send(MetadataRequest(), 1)
    assert stage.connection.closed
    assert stage.seen == []
    assert stage.dispatcher.limits.refusals["authentication"] == 1


def test_a_token_before_the_handshake_closes() -> None:
    stage = Stage()
    stage.authenticate(PlainLogin(NAME, PASSWORD).first())
    assert stage.connection.closed


def test_api_versions_comes_once() -> None:
    stage = Stage()
    stage.send(ApiVersionsRequest("me", "1"), 4)
    stage.send(ApiVersionsRequest("me", "1"), 4)
    assert stage.connection.closed


def test_an_unknown_version_of_api_versions_may_be_asked_again() -> None:
    stage = Stage()
    stage.feed(struct.pack(">ihhih", 10, 18, 99, 1, -1))
    stage.send(ApiVersionsRequest("me", "1"), 4)
    assert not stage.connection.closed


def test_frames_are_small_before_the_end() -> None:
    stage = Stage()
    stage.feed(struct.pack(">i", 1001))
    assert stage.connection.closed
    stage = Stage()
    stage.shake()
    stage.log_in()
    stage.feed(struct.pack(">i", 1001))
    assert not stage.connection.closed


def test_a_silent_client_is_closed() -> None:
    stage = Stage()
    stage.send(ApiVersionsRequest("me", "1"), 4)
    stage.runtime.advance(LOGIN_S_MAX)
    assert stage.connection.closed
    assert stage.dispatcher.limits.refusals["deadline"] == 1


# Failures


def test_an_unknown_mechanism_is_told_the_others() -> None:
    stage = Stage()
    stage.send(SaslHandshakeRequest(mechanism="GSSAPI"), 1)
    assert stage.transport.sent == []
    stage.runtime.advance(0.1)
    answer = stage.answer(SaslHandshakeResponse, 1)
    assert (answer.error_code, answer.mechanisms) == (
        ErrorCode.UNSUPPORTED_SASL_MECHANISM,
        ["PLAIN", "LATER", "ECHO"],
    )
    assert stage.connection.closed


def test_a_failure_is_answered_late_and_closes() -> None:
    stage = Stage()
    stage.shake()
    stage.authenticate(PlainLogin(NAME, "wrong").first())
    assert stage.transport.sent == []
    stage.runtime.advance(0.09)
    assert not stage.connection.closed
    stage.runtime.advance(0.02)
    answer = stage.answer(SaslAuthenticateResponse, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.error_message == "Authentication failed: Invalid username or password"
    assert stage.connection.closed
    assert stage.connection.session is ANONYMOUS_SESSION
    assert (stage.sasl.failed, stage.sasl.held) == ({"PLAIN": 1}, 0)


def test_nothing_is_served_while_the_failure_waits() -> None:
    stage = Stage()
    stage.shake()
    stage.authenticate(PlainLogin(NAME, "wrong").first())
    stage.feed(stage.frame(SaslAuthenticateRequest(auth_bytes=PlainLogin(NAME, PASSWORD).first()), 1))
    stage.feed(stage.frame(MetadataRequest(), 1))
    stage.runtime.advance(1)
    assert stage.connection.closed
    assert stage.seen == []
    assert stage.connection.session is ANONYMOUS_SESSION


def test_a_host_that_fails_again_waits_longer() -> None:
    stage = Stage()
    delays = [stage.sasl.failures.note("h", stage.runtime.now) for _ in range(8)]
    assert delays == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 3.2, 3.2])
    assert stage.sasl.failures.note("other", stage.runtime.now) == pytest.approx(0.1)
    assert stage.sasl.failures.note("h", stage.runtime.now + 61) == pytest.approx(0.1)


def test_failures_that_are_held_are_bounded() -> None:
    stage = Stage()
    stage.sasl.held = FAILURES_HELD_MAX
    stage.shake()
    stage.authenticate(PlainLogin(NAME, "wrong").first())
    assert stage.connection.closed
    assert stage.transport.sent == []


def test_a_client_that_leaves_while_it_waits_is_forgotten() -> None:
    stage = Stage()
    stage.shake()
    stage.authenticate(PlainLogin(NAME, "wrong").first())
    assert stage.sasl.held == 1
    stage.connection.on_closed()
    assert stage.sasl.held == 0
    stage.runtime.advance(10)
    assert stage.transport.sent == []


def test_a_second_handshake_within_a_login() -> None:
    stage = Stage()
    stage.shake("ECHO")
    stage.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    stage.runtime.advance(0.1)
    assert stage.answer(SaslHandshakeResponse, 1).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert stage.connection.closed


def test_sasl_after_the_end() -> None:
    stage = Stage()
    stage.shake()
    stage.log_in()
    assert stage.shake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert stage.log_in().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert not stage.connection.closed


def test_sasl_on_a_listener_without_it() -> None:
    stage = Stage()
    stage.dispatcher.sasl = None
    stage.connection = Connection(stage.dispatcher, stage.transport)
    assert stage.shake().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert stage.log_in().error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert not stage.connection.closed


# Work in threads


def test_a_check_in_a_thread() -> None:
    stage = Stage()
    stage.shake("LATER")
    stage.authenticate(PlainLogin(NAME, PASSWORD).first())
    stage.feed(stage.frame(MetadataRequest(), 1))
    assert (stage.transport.sent, stage.seen) == ([], [])
    stage.runtime.run_threads()
    assert stage.connection.session == user_session(NAME)
    assert stage.seen == [stage.connection]


def test_a_check_that_breaks_fails_the_login() -> None:
    class Broken:
        def check(self, name: str, password: str) -> OffLoop:
            return OffLoop(lambda: 1 // 0, lambda result: True)

    stage = Stage({"LATER": SaslMechanism(lambda: PlainServer(Broken()))})
    stage.shake("LATER")
    stage.authenticate(PlainLogin(NAME, PASSWORD).first())
    stage.runtime.run_threads()
    stage.runtime.advance(0.1)
    assert stage.answer(SaslAuthenticateResponse, 2).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert stage.connection.closed


def test_one_host_cannot_take_all_checks() -> None:
    stage = Stage()
    for _ in range(CHECKS_OF_HOST_MAX):
        assert stage.sasl.checks.run("h", lambda: None, lambda result, error: None)
    assert not stage.sasl.checks.run("h", lambda: None, lambda result, error: None)
    assert stage.sasl.checks.run("other", lambda: None, lambda result, error: None)
    assert len(stage.runtime.work) == 2
    stage.runtime.run_threads()
    assert stage.sasl.checks.run("h", lambda: None, lambda result, error: None)


def test_a_client_that_leaves_during_its_check() -> None:
    stage = Stage()
    stage.shake("LATER")
    stage.authenticate(PlainLogin(NAME, PASSWORD).first())
    stage.connection.on_closed()
    stage.runtime.run_threads()
    assert stage.transport.sent == []


# Bare tokens


def test_bare_tokens() -> None:
    stage = Stage()
    stage.shake("ECHO", 0)
    stage.raw(b"one")
    assert stage.last == b"\0\0\0\4one?"
    stage.raw(b"two")
    assert stage.last == b"\0\0\0\3end"
    assert stage.connection.session == user_session(NAME)
    stage.send(MetadataRequest(), 1)
    assert stage.seen == [stage.connection]


def test_bare_tokens_in_one_read_and_byte_by_byte() -> None:
    plain = PlainLogin(NAME, PASSWORD).first()
    for step in (1, 3, 10_000):
        stage = Stage()
        shake = stage.frame(SaslHandshakeRequest(mechanism="PLAIN"), 0)
        data = shake + struct.pack(">i", len(plain)) + plain + stage.frame(MetadataRequest(), 1)
        for at in range(0, len(data), step):
            stage.feed(data[at : at + step])
        assert stage.seen == [stage.connection], step
        assert stage.last == b"\0\0\0\0"


@pytest.mark.parametrize("size", [-1, 1001, 2**31 - 1])
def test_bare_tokens_have_a_limit(size: int) -> None:
    stage = Stage()
    stage.shake("PLAIN", 0)
    stage.feed(struct.pack(">i", size))
    assert stage.connection.closed


def test_a_bare_token_that_fails_closes_without_an_answer() -> None:
    stage = Stage()
    stage.shake("PLAIN", 0)
    stage.raw(b"")
    stage.feed(b"\0\0\0\0")
    stage.runtime.advance(0.1)
    assert stage.connection.closed
    assert stage.transport.sent == []


def test_a_bare_token_that_waits_for_a_thread() -> None:
    stage = Stage()
    stage.shake("LATER", 0)
    stage.raw(PlainLogin(NAME, PASSWORD).first())
    stage.feed(stage.frame(MetadataRequest(), 1))
    stage.runtime.run_threads()
    assert stage.seen == [stage.connection]


# Sessions that end


def again(expires_ms: int | None = None, session_ms_max: int = 10_000) -> Stage:
    users = iter(("alice", "alice", "bob"))

    class One:
        claimed_name = ""

        def __init__(self) -> None:
            self.name = next(users)

        def step(self, token: bytes) -> Authenticated:
            return Authenticated(user_session(self.name), b"", expires_ms)

    mechanisms = {"ONE": SaslMechanism(One, session_ms_max), "PLAIN": SaslMechanism(lambda: PlainServer(Passwords()))}
    stage = Stage(mechanisms)
    stage.shake("ONE")
    return stage


def test_a_session_ends_on_the_next_request() -> None:
    stage = again()
    assert stage.log_in().session_lifetime_ms == 10_000
    stage.runtime.advance(9.9)
    stage.send(MetadataRequest(), 1)
    assert len(stage.seen) == 1
    stage.runtime.advance(0.2)
    assert not stage.connection.closed
    stage.send(MetadataRequest(), 1)
    assert stage.connection.closed
    assert (len(stage.seen), stage.sasl.expired) == (1, 1)


@pytest.mark.parametrize(
    ("expires_ms", "session_ms_max", "told"),
    [(1_004_000, 0, 4000), (1_004_000, 3000, 3000), (1_002_000, 3000, 2000), (999_000, 0, 0), (None, 0, 0)],
)
def test_a_session_does_not_outlive_its_token(expires_ms: int | None, session_ms_max: int, told: int) -> None:
    stage = again(expires_ms, session_ms_max)
    assert stage.log_in().session_lifetime_ms == told
    assert (stage.connection.gate is None) == (expires_ms is None)


def test_a_client_authenticates_again() -> None:
    stage = again()
    stage.log_in()
    stage.runtime.advance(9)
    assert stage.shake("ONE").error_code == 0
    stage.authenticate(b"")
    assert stage.answer(SaslAuthenticateResponse, 2).session_lifetime_ms == 10_000
    stage.runtime.advance(9)
    stage.send(MetadataRequest(), 1)
    assert (stage.connection.closed, len(stage.seen)) == (False, 1)
    assert (stage.sasl.renewed, stage.sasl.succeeded) == ({"ONE": 1}, {"ONE": 1})


def test_after_the_end_a_handshake_is_still_taken() -> None:
    stage = again()
    stage.log_in()
    stage.runtime.advance(11)
    assert stage.shake("ONE").error_code == 0
    stage.authenticate(b"")
    assert stage.answer(SaslAuthenticateResponse, 2).error_code == 0


def test_twice_within_a_second_is_refused() -> None:
    stage = again()
    stage.log_in()
    assert stage.shake("ONE").error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert not stage.connection.closed
    stage.runtime.advance(1)
    assert stage.shake("ONE").error_code == 0


def test_another_principal_is_refused() -> None:
    stage = again()
    stage.log_in()
    for _ in range(2):
        stage.runtime.advance(2)
        stage.shake("ONE")
        stage.authenticate(b"")
    stage.runtime.advance(1)
    answer = stage.answer(SaslAuthenticateResponse, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "Cannot change principals" in answer.error_message
    assert stage.connection.closed
    assert stage.connection.session == user_session("alice")


def test_another_mechanism_is_refused() -> None:
    stage = again()
    stage.log_in()
    stage.runtime.advance(2)
    assert stage.shake("PLAIN").error_code == 0
    stage.authenticate(PlainLogin(NAME, PASSWORD).first())
    stage.runtime.advance(1)
    answer = stage.answer(SaslAuthenticateResponse, 2)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    assert "re-authentication of mechanism 'ONE'" in answer.error_message
    assert stage.connection.closed


def test_bare_tokens_are_not_for_a_second_login() -> None:
    stage = again()
    stage.log_in()
    stage.runtime.advance(2)
    stage.send(SaslHandshakeRequest(mechanism="ONE"), 0)
    stage.runtime.advance(1)
    assert stage.answer(SaslHandshakeResponse, 0).error_code == ErrorCode.ILLEGAL_SASL_STATE
    assert stage.connection.closed


def test_other_requests_within_a_second_login_close() -> None:
    stage = again()
    stage.log_in()
    stage.runtime.advance(2)
    stage.shake("ONE")
    stage.send(MetadataRequest(), 1)
    assert stage.connection.closed
    assert stage.seen == []
