"""OAUTHBEARER: the frame around a token."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge
from strandline.security.sasl.oauthbearer import BearerLogin, BearerServer, InvalidToken, ValidToken, parse_bearer
from strandline.security.sasl.scram import user_session


def validate(token: str) -> ValidToken:
    if token != "good":
        raise InvalidToken("signature")
    return ValidToken("alice", 9000)


def test_a_valid_token() -> None:
    login = BearerLogin("good")
    assert login.first() == b"n,,\x01auth=Bearer good\x01\x01"
    assert BearerServer(validate).step(login.first()) == Authenticated(user_session("alice"), b"", 9000)
    assert login.step(b"") is None


def test_an_invalid_token_fails_after_the_answer() -> None:
    reasons: list[str] = []
    server, login = BearerServer(validate, reasons.append), BearerLogin("bad")
    challenge = server.step(login.first())
    assert challenge == Challenge(b'{"status":"invalid_token"}')
    assert reasons == ["signature"]
    answer = login.step(challenge.token)
    assert answer == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        server.step(answer)


def test_a_second_token_does_not_help() -> None:
    server = BearerServer(validate)
    server.step(BearerLogin("bad").first())
    with pytest.raises(AuthenticationFailed):
        server.step(BearerLogin("good").first())


def test_extensions_and_identity() -> None:
    message = parse_bearer(b"n,a=alice,\x01auth=bearer  good\x01trace=1 2\x01\x01")
    assert (message.token, message.authorization_name, message.extensions) == ("good", "alice", {"trace": "1 2"})
    assert "good" not in repr(message)


def test_another_identity_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="authorization id"):
        BearerServer(validate).step(b"n,a=admin,\x01auth=Bearer good\x01\x01")


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"\x01",
        b"n,,",
        b"n,,\x01",
        b"n,,\x01\x01",
        b"n,,\x01auth=Bearer good\x01",
        b"n,,\x01auth=Bearer good",
        b"y,,\x01auth=Bearer good\x01\x01",
        b"n,x,\x01auth=Bearer good\x01\x01",
        b"n,,,\x01auth=Bearer good\x01\x01",
        b"n\x01auth=Bearer good\x01\x01",
        b"n,,\x01auth=Basic good\x01\x01",
        b"n,,\x01auth=Bearer go od\x01\x01",
        b"n,,\x01auth=Bearer good\x011=x\x01\x01",
        b"n,,\x01auth=Bearer good\x01x=\x00\x01\x01",
        b"n,,\x01auth=Bearer g\xc3\xb6\xc3\xb6d\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
    ],
)
def test_messages_that_are_none(message: bytes) -> None:
    with pytest.raises(AuthenticationFailed):
        BearerServer(validate).step(message)


@given(st.binary(max_size=100))
def test_only_declared_errors_escape(message: bytes) -> None:
    with contextlib.suppress(ValueError):
        parse_bearer(message)
