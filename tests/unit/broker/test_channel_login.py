"""A channel that logs in: before its requests, and again before its session ends; a login that fails."""

from __future__ import annotations

import struct
from typing import Any

from tests.unit.broker.answering import PORT, World, answer

from strandline.broker.network.channel import Channel
from strandline.broker.network.transport import Transport
from strandline.codec.message_codec import decode, encode
from strandline.codec.messages.sasl_authenticate_request import SaslAuthenticateRequest
from strandline.codec.messages.sasl_authenticate_response import SaslAuthenticateResponse
from strandline.codec.messages.sasl_handshake_response import SaslHandshakeResponse
from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, ServerExchange
from strandline.security.sasl.scram import (
    SCRAM_SHA_256,
    FoundCredential,
    ScramCredential,
    ScramLogin,
    ScramMechanism,
    ScramServer,
    credential_of,
    fake_credential,
    salted_password,
    user_session,
)

NAME, PASSWORD = "node", "secret"


class Users:
    def scram(self, mechanism: ScramMechanism, name: str) -> FoundCredential | None:
        salted = salted_password(mechanism, PASSWORD, b"salt", 4096)
        return FoundCredential(credential_of(mechanism, salted, b"salt", 4096), user_session(name))

    def token(self, mechanism: ScramMechanism, token_id: str) -> FoundCredential | None:
        return None

    def fake(self, mechanism: ScramMechanism, name: str) -> ScramCredential:
        return fake_credential(mechanism, b"", name, None)


class SaslPeer:
    """The other node: it authenticates, then echoes."""

    def __init__(self, world: World, *, session_ms: int = 0, handshake_error: int = 0) -> None:
        self.session_ms, self.handshake_error = session_ms, handshake_error
        self.keys: list[int] = []
        self.exchange: ServerExchange | None = None
        assert world.server is not None
        self.server = world.server
        self.server.on_request = self.on_request

    def on_request(self, transport: Transport, number: int, frame: bytes) -> None:
        key = struct.unpack_from(">h", frame)[0]
        self.keys.append(key)
        body: Any
        if key == 17:
            self.exchange = ScramServer(SCRAM_SHA_256, Users(), f"server{len(self.keys)}")
            body = encode(SaslHandshakeResponse(error_code=self.handshake_error, mechanisms=["PLAIN"]), 1)
        elif key == 36:
            client_id_size = struct.unpack_from(">h", frame, 8)[0]
            request, _ = decode(SaslAuthenticateRequest, 1, memoryview(frame), 10 + client_id_size)
            body = encode(self.authenticate(request.auth_bytes), 1)
        else:
            self.server.echo(transport, number, frame)
            return
        transport.send(answer(number, body, flexible=False))

    def authenticate(self, token: bytes) -> SaslAuthenticateResponse:
        assert self.exchange is not None
        try:
            step = self.exchange.step(token)
        except AuthenticationFailed as failure:
            return SaslAuthenticateResponse(error_code=58, error_message=str(failure))
        if isinstance(step, Challenge):
            return SaslAuthenticateResponse(error_message=None, auth_bytes=step.token)
        assert isinstance(step, Authenticated)
        return SaslAuthenticateResponse(error_message=None, auth_bytes=step.token, session_lifetime_ms=self.session_ms)


def with_login(world: World, password: str = PASSWORD) -> None:
    nonces = iter(range(1000))
    world.channel = Channel(
        world.client,
        world.network.of(world.client),
        "server",
        PORT,
        client_id="test",
        login=lambda: ScramLogin(SCRAM_SHA_256, NAME, password, f"n{next(nonces)}"),
    )


def test_requests_wait_for_the_login() -> None:
    world = World()
    peer = SaslPeer(world)
    with_login(world)
    for name in "abc":
        world.ask(name)
    world.run(5)
    assert peer.keys == [17, 36, 36, 1, 1, 1]
    assert world.answered == ["a", "b", "c"]
    world.ask("d")
    world.run(1)
    assert peer.keys[6:] == [1]


def test_a_session_is_renewed_before_its_end() -> None:
    world = World()
    peer = SaslPeer(world, session_ms=10_000)
    with_login(world)
    world.ask("a")
    world.run(8)
    assert peer.keys == [17, 36, 36, 1]
    world.run(2)
    assert peer.keys == [17, 36, 36, 1, 17, 36, 36]
    world.ask("b")
    world.run(5)
    assert peer.keys[7:] == [1]
    assert world.answered == ["a", "b"]
    assert len(peer.server.transports) == 1


def test_a_wrong_password_fails_requests_and_waits_before_the_next_attempt() -> None:
    world = World()
    peer = SaslPeer(world)
    with_login(world, "wrong")
    world.ask("a")
    world.run(1)
    assert world.failed == [("a", "Disconnected")]
    assert peer.keys == [17, 36, 36]
    for name in "bcd":
        world.ask(name)
        world.run(2)
    assert [name for name, _ in world.failed] == ["a", "b", "c", "d"]
    assert 1 not in peer.keys


def test_a_mechanism_that_is_not_offered() -> None:
    world = World()
    peer = SaslPeer(world, handshake_error=33)
    with_login(world)
    world.ask("a")
    world.run(1)
    assert world.failed == [("a", "Disconnected")]
    assert peer.keys == [17]


def test_a_peer_that_goes_during_the_login() -> None:
    world = World()
    peer = SaslPeer(world)
    with_login(world)
    authenticate = peer.on_request

    def leave(transport: Transport, number: int, frame: bytes) -> None:
        transport.close()
        peer.server.on_request = authenticate

    peer.server.on_request = leave
    world.ask("a")
    world.run(1)
    assert world.failed == [("a", "Disconnected")]
    world.ask("b")
    world.run(5)
    assert world.answered == ["b"]


def test_a_channel_that_is_closed_during_the_login() -> None:
    world = World()
    peer = SaslPeer(world)
    with_login(world)
    world.ask("a")
    peer.server.on_request = lambda transport, number, frame: world.channel.close()
    world.run(5)
    assert world.failed == [("a", "Disconnected")]
