"""Split a `.proto` text into tokens."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from strandline.schemas.types import InvalidSchema

_TOKEN: Final = re.compile(
    r"""
    (?P<space>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
  | (?P<string>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
  | (?P<symbol>[{}()\[\]<>=;,.:+\-/])
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(
    rb"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_LETTERS: Final = {
    b"a": b"\a",
    b"b": b"\b",
    b"f": b"\f",
    b"n": b"\n",
    b"r": b"\r",
    b"t": b"\t",
    b"v": b"\v",
    b"\\": b"\\",
    b"'": b"'",
    b'"': b'"',
    b"?": b"?",
}


@dataclass(frozen=True, slots=True)
class ProtoToken:
    """A name, number, string or symbol, and the line it is in. The end of the text is an empty symbol."""

    kind: str
    text: str
    line: int

    @property
    def shown(self) -> str:
        return repr(self.text[:40]) if self.text else "the end"


def tokens(text: str) -> list[ProtoToken]:
    """Return the tokens of `text`, with one for its end."""
    found = []
    line = 1
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise InvalidSchema(f"Line {line} has {text[position]!r}, which does not belong there.")
        kind = match.lastgroup
        assert kind is not None
        if kind != "space":
            found.append(ProtoToken(kind, match.group(), line))
        line += match.group().count("\n")
        position = match.end()
    found.append(ProtoToken("symbol", "", line))
    return found


def unquoted(token: ProtoToken) -> bytes:
    """Return the bytes of a string with its escapes resolved."""

    def replaced(match: re.Match[bytes]) -> bytes:
        octal, hexadecimal, short, long, letter = match.groups()
        if octal:
            return bytes([int(octal, 8) & 0xFF])
        if hexadecimal:
            return bytes([int(hexadecimal, 16)])
        if short or long:
            return chr(int(short or long, 16)).encode()
        if letter not in _LETTERS:
            raise ValueError
        return _LETTERS[letter]

    try:
        return _ESCAPE.sub(replaced, token.text[1:-1].encode())
    except ValueError:
        raise InvalidSchema(f"Line {token.line} has a string with an escape that Protobuf does not know.") from None
