"""The name of a client or broker, as authentication gives it and access rules use it."""

from __future__ import annotations

from typing import Final, NamedTuple

from strandline.codec.wire import read_name, skip_tags, string
from strandline.errors import ErrorCode, MalformedMessage, RequestError

USER: Final = "User"
_VERSION: Final = b"\x00\x00"


class Principal(NamedTuple):
    """A kind, which is `User` for all that Kafka authenticates, and a name."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


class Session(NamedTuple):
    """The client of a connection, as it was authenticated."""

    principal: Principal
    is_token: bool = False
    """Whether it was authenticated by a delegation token."""


ANONYMOUS: Final = Principal(USER, "ANONYMOUS")
ANONYMOUS_SESSION: Final = Session(ANONYMOUS)


def parse_principal(text: str) -> Principal:
    """Return the principal of `User:name`. Raise RequestError (INVALID_REQUEST) for text of another form."""
    kind, colon, name = text.partition(":")
    if not colon or not kind or not name:
        raise RequestError(ErrorCode.INVALID_REQUEST, f"{text!r} is no principal; expected for example User:alice")
    return Principal(kind, name)


def encode_session(session: Session) -> bytes:
    """Return Kafka's DefaultPrincipalData, version 0: type, name, whether a token was used, no tagged fields."""
    kind, name = session.principal
    return _VERSION + string(kind, True) + string(name, True) + (b"\x01" if session.is_token else b"\x00") + b"\x00"


def decode_session(content: bytes | None) -> Session:
    """Return what `encode_session` encoded. Raise RequestError (PRINCIPAL_DESERIALIZATION_FAILURE) otherwise."""
    try:
        if content is None or content[:2] != _VERSION:
            raise MalformedMessage("no principal")
        kind, at = read_name(content, 2, flexible=True)
        name, at = read_name(content, at, flexible=True)
        if kind is None or name is None or at >= len(content):
            raise MalformedMessage("half a principal")
        skip_tags(content, at + 1)
    except (IndexError, MalformedMessage) as error:
        raise RequestError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, str(error)) from error
    return Session(Principal(kind, name), content[at] != 0)
