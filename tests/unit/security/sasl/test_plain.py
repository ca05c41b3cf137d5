"""PLAIN: what a message must look like, and that no password shows."""

from __future__ import annotations

import pytest

from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, OffLoop
from strandline.security.sasl.plain import PlainLogin, PlainServer, parse_plain
from strandline.security.sasl.scram import user_session


class Users:
    def __init__(self, *, is_later: bool = False) -> None:
        self.is_later = is_later

    def check(self, name: str, password: str) -> bool | OffLoop:
        is_right = (name, password) == ("alice", "secret")
        return OffLoop(lambda: is_right, lambda result: result) if self.is_later else is_right


def test_a_right_password() -> None:
    login = PlainLogin("alice", "secret")
    assert login.first() == b"\0alice\0secret"
    assert PlainServer(Users()).step(login.first()) == Authenticated(user_session("alice"))
    login.step(b"")


def test_a_check_in_a_thread() -> None:
    for password, is_right in (("secret", True), ("wrong", False)):
        step = PlainServer(Users(is_later=True)).step(PlainLogin("alice", password).first())
        assert isinstance(step, OffLoop)
        if is_right:
            assert step.then(step.work()) == Authenticated(user_session("alice"))
        else:
            with pytest.raises(AuthenticationFailed):
                step.then(step.work())


@pytest.mark.parametrize(
    ("message", "says"),
    [
        (b"\0alice\0wrong", "Invalid username or password"),
        (b"\0mallory\0secret", "Invalid username or password"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"", "expected 3 tokens, got 1"),
        (b"alice\0secret", "expected 3 tokens, got 2"),
        (b"\0alice\0secret\0more", "expected 3 tokens, got 4"),
        (b"admin\0alice\0secret", "authorization id"),
        (b"\0alice\0\xff", "UTF-8"),
    ],
)
def test_refused(message: bytes, says: str) -> None:
    with pytest.raises(AuthenticationFailed, match=says) as failed:
        PlainServer(Users()).step(message)
    assert "secret" not in str(failed.value)


def test_the_own_name_as_identity() -> None:
    assert parse_plain(b"alice\0alice\0secret").name == "alice"


def test_no_password_shows() -> None:
    assert "secret" not in repr(parse_plain(b"\0alice\0secret"))


def test_a_challenge_is_no_answer() -> None:
    with pytest.raises(AuthenticationFailed):
        PlainLogin("alice", "secret").step(b"?")
