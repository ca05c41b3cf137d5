"""PLAIN (RFC 4616): `authorization name NUL name NUL password`, in one message."""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, OffLoop, ServerStep
from strandline.security.sasl.scram import user_session

PLAIN: Final = "PLAIN"
_WRONG: Final = "Authentication failed: Invalid username or password"


class PlainMessage(NamedTuple):
    """A name and a password. The password is not shown."""

    name: str
    password: str

    def __repr__(self) -> str:
        return f"PlainMessage(name={self.name!r})"


class PlainUsers(Protocol):
    """The check of passwords that a server is given."""

    def check(self, name: str, password: str) -> bool | OffLoop:
        """Return whether this is the user's password, or the work that finds out.

        An unknown user must cost what a known one costs.
        """


def parse_plain(message: bytes) -> PlainMessage:
    """Return name and password. Raise AuthenticationFailed, in the words of Kafka, for another form."""
    try:
        fields = message.decode("utf-8").split("\0")
    except UnicodeDecodeError:
        raise AuthenticationFailed("Invalid SASL/PLAIN response: expected UTF-8") from None
    if len(fields) != 3:
        raise AuthenticationFailed(f"Invalid SASL/PLAIN response: expected 3 tokens, got {min(len(fields), 4)}")
    authorization_name, name, password = fields
    if not name:
        raise AuthenticationFailed("Authentication failed: username not specified")
    if not password:
        raise AuthenticationFailed("Authentication failed: password not specified")
    if authorization_name not in ("", name):
        raise AuthenticationFailed(
            "Authentication failed: Client requested an authorization id that is different from username"
        )
    return PlainMessage(name, password)


class PlainServer:
    """The server's side of one login."""

    def __init__(self, users: PlainUsers) -> None:
        self._users = users
        self.claimed_name = ""

    def step(self, token: bytes) -> ServerStep:
        name, password = parse_plain(token)
        self.claimed_name = name
        verdict = self._users.check(name, password)
        if isinstance(verdict, OffLoop):
            return OffLoop(verdict.work, lambda result: _decide(name, verdict.then(result)))
        return _decide(name, verdict)


def _decide(name: str, is_right: bool) -> Authenticated:
    if not is_right:
        raise AuthenticationFailed(_WRONG)
    return Authenticated(user_session(name))


class PlainLogin:
    """The client's side of one login."""

    mechanism = PLAIN

    def __init__(self, name: str, password: str) -> None:
        self.name = name
        self._password = password

    def first(self) -> bytes:
        return f"\0{self.name}\0{self._password}".encode()

    def step(self, challenge: bytes) -> None:
        if challenge:
            raise AuthenticationFailed("the server answers PLAIN with a challenge")
