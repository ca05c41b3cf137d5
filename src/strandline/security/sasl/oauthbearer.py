"""OAUTHBEARER (RFC 7628): the frame around a token. A validator that is given checks the token itself.

    client  n,[a=authzid],^Aauth=Bearer token^A[key=value^A]*^A
    server  nothing, or {"status":"invalid_token"}, which the client answers with ^A before the login fails

^A is the byte 1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Final, NamedTuple

from strandline.security.sasl.exchange import Authenticated, AuthenticationFailed, Challenge, ServerStep
from strandline.security.sasl.scram import escape_name, unescape_name, user_session

OAUTHBEARER: Final = "OAUTHBEARER"
_SEPARATOR: Final = "\x01"
_BEARER: Final = re.compile(r"[Bb][Ee][Aa][Rr][Ee][Rr] +([-\w.~+/=]+)", re.ASCII)
_KEY: Final = re.compile(r"[A-Za-z]+", re.ASCII)
_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]*")


class InvalidToken(Exception):
    """A token that the validator rejects. The reason is for the log of the server, not for the peer."""


class ValidToken(NamedTuple):
    """What a validator found in a token."""

    name: str
    expires_ms: int
    scopes: frozenset[str] = frozenset()


Validate = Callable[[str], ValidToken]
"""Checks a token; InvalidToken if it is not to be trusted."""


class BearerMessage(NamedTuple):
    """The first message of a client. The token is a secret and is not shown."""

    token: str
    authorization_name: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"BearerMessage(authorization_name={self.authorization_name!r})"


def parse_bearer(message: bytes) -> BearerMessage:
    """Return the parts of a client's first message. ValueError (also for UTF-8) for another form."""
    header, separator, rest = message.decode("utf-8").partition(_SEPARATOR)
    if not separator or not rest.endswith(_SEPARATOR):
        raise ValueError("no end")
    flag, authorization, *more = header.split(",")
    if flag != "n" or more != [""] or (authorization and not authorization.startswith("a=")):
        raise ValueError("another header")
    pairs: dict[str, str] = {}
    for pair in rest.split(_SEPARATOR)[:-2]:
        key, equals, value = pair.partition("=")
        if not equals or not _KEY.fullmatch(key) or not _VALUE.fullmatch(value):
            raise ValueError("no pair")
        pairs[key] = value
    bearer = _BEARER.fullmatch(pairs.pop("auth", ""))
    if bearer is None:
        raise ValueError("no bearer token")
    return BearerMessage(bearer[1], unescape_name(authorization[2:]), pairs)


class BearerServer:
    """The server's side of one login."""

    def __init__(self, validate: Validate, on_invalid: Callable[[str], object] = lambda reason: None) -> None:
        self._validate = validate
        self._on_invalid = on_invalid
        self._failure: str | None = None
        self.claimed_name = ""

    def step(self, token: bytes) -> ServerStep:
        if self._failure is not None:
            # The client has seen why, and answers with ^A. Whatever it sends, this is the end.
            raise AuthenticationFailed(self._failure)
        try:
            message = parse_bearer(token)
        except ValueError:
            raise AuthenticationFailed("Authentication failed: invalid OAUTHBEARER client first message") from None
        try:
            valid = self._validate(message.token)
        except InvalidToken as error:
            self._on_invalid(str(error))
            self._failure = json.dumps({"status": "invalid_token"}, separators=(",", ":"))
            return Challenge(self._failure.encode())
        if message.authorization_name not in ("", valid.name):
            raise AuthenticationFailed(
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
        return Authenticated(user_session(valid.name), b"", valid.expires_ms)


class BearerLogin:
    """The client's side of one login, by a token that is given. The server rejects a name that is not the token's."""

    mechanism = OAUTHBEARER

    def __init__(self, token: str, name: str = "") -> None:
        self._token = token
        self.name = name

    def first(self) -> bytes:
        authorization = f"a={escape_name(self.name)}" if self.name else ""
        return f"n,{authorization},{_SEPARATOR}auth=Bearer {self._token}{_SEPARATOR}{_SEPARATOR}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        # A challenge says why the token is rejected. The server fails the login after this answer.
        return _SEPARATOR.encode() if challenge else None
