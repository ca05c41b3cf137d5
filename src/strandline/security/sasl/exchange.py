"""What every mechanism returns: a challenge, a session, or work for a thread."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from strandline.errors import PeerError
from strandline.security.principal import Session


class AuthenticationFailed(PeerError):
    """A login that is rejected. The message is for the peer, so it never says whether a user exists."""


class Challenge(NamedTuple):
    """A message of the server that the client answers."""

    token: bytes


class Authenticated(NamedTuple):
    """The end of a successful login."""

    session: Session
    token: bytes = b""
    """The server's last message."""
    expires_ms: int | None = None
    """When the credential itself ends: the expiry of a token. None for passwords."""


class OffLoop(NamedTuple):
    """Work that would block the loop. `then` gets its result and returns the next step."""

    work: Callable[[], Any]
    then: Callable[[Any], Any]


ServerStep = Challenge | Authenticated | OffLoop


class ServerExchange(Protocol):
    """The server's side of one login."""

    claimed_name: str
    """The user that the client says it is; empty as long as that is not known. Nothing is proved."""

    def step(self, token: bytes) -> ServerStep:
        """Take a message of the client. Raise AuthenticationFailed if the login is over without success."""


class ClientLogin(Protocol):
    """The client's side of one login."""

    mechanism: str
    name: str
    """The user, or the id of a token; empty if a token names the user."""

    def first(self) -> bytes:
        """Return the message that begins the login."""

    def step(self, challenge: bytes) -> bytes | OffLoop | None:
        """Return the answer to a message of the server; None if the server has proved what it must.

        Raise AuthenticationFailed if the server failed to.
        """


def invalid_credentials(mechanism: str) -> AuthenticationFailed:
    """Return the failure of a wrong user or a wrong password, in the words of Kafka. Both look the same."""
    return AuthenticationFailed(
        f"Authentication failed during authentication due to invalid credentials with SASL mechanism {mechanism}"
    )


def is_same(one: bytes, other: bytes) -> bool:
    """Compare secrets in a time that does not depend on where they differ."""
    return hmac.compare_digest(one, other)
