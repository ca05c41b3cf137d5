"""Credentials in the header `Authorization`: a name with a password, or a token. Nothing is proven here."""

from __future__ import annotations

import base64
import binascii
import json
from typing import Final, NamedTuple

BASIC: Final = "basic"
BEARER: Final = "bearer"


class Credentials(NamedTuple):
    """A name with the secret that proves it. The secret is not shown."""

    scheme: str
    name: str
    secret: str
    expires_s: float | None = None
    """When a token ends, in seconds since 1970."""

    def __repr__(self) -> str:
        return f"Credentials(scheme={self.scheme!r}, name={self.name!r})"


def parse_basic(text: str) -> Credentials:
    """Return the credentials of `Basic`. Raise ValueError for another form."""
    try:
        name, colon, password = base64.b64decode(text, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError) as error:
        raise ValueError("not base64 of UTF-8") from error
    if not colon or not name or not password or has_control(name + password):
        # PLAIN separates name and password by a zero byte, so that none may be in them.
        raise ValueError("no name and password")
    return Credentials(BASIC, name, password)


def parse_bearer(token: str, name_claim: str) -> Credentials:
    """Return the credentials of a token (JWT). Its signature is left to the broker. Raise ValueError for no token."""
    _, content, _ = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(content + "=" * (-len(content) % 4)))
    if not isinstance(claims, dict):
        raise ValueError("no claims")
    name, expires_s = claims.get(name_claim), claims.get("exp")
    if not isinstance(name, str) or not name or has_control(name) or not isinstance(expires_s, int | float):
        raise ValueError("no name, or no end")
    if not token.isascii() or not token.replace(".", "").replace("-", "").replace("_", "").isalnum():
        raise ValueError("another character")
    return Credentials(BEARER, name, token, float(expires_s))


def has_control(text: str) -> bool:
    return any(character < " " or character == "\x7f" for character in text)
