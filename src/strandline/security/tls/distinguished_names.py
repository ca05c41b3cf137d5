"""The name in a certificate as RFC 2253 text, exactly as Java's `X500Principal.getName()` prints it.

Access rules of Kafka name principals by this text, so each escape counts. The last part of the name comes first. A kind
that RFC 2253 has no word for is its number, and its value is the DER in hexadecimal digits.
"""

from __future__ import annotations

from typing import Final

from strandline.security.tls import der

_WORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_TEXTS: Final = frozenset(
    (
        der.UTF8_STRING,
        der.PRINTABLE_STRING,
        der.T61_STRING,
        der.IA5_STRING,
        der.GENERAL_STRING,
        der.BMP_STRING,
    )
)
_ESCAPED: Final = frozenset(',=+<>#;"\\')
_BLANK: Final = " \r"


def name_text(name: der.Element) -> str:
    """Return the text of a Name, which is a sequence of sets of (kind, value)."""
    return ",".join(
        "+".join(_part_text(*der.children(part, der.SEQUENCE)[:2]) for part in der.children(each, der.SET))
        for each in reversed(der.children(name, der.SEQUENCE))
    )


def _part_text(kind: der.Element, value: der.Element) -> str:
    number = der.dotted(kind.content)
    word = _WORDS.get(number)
    if word is None or value.tag not in _TEXTS:
        return f"{word or number}=#{value.whole.hex()}"
    return f"{word}={_escaped(_decoded(value))}"


def _decoded(value: der.Element) -> str:
    # Java reads all kinds of text as UTF-8 here, also those of two bytes a character.
    return value.content.decode("utf-8", "replace")


def _escaped(text: str) -> str:
    begin, end = len(text) - len(text.lstrip(_BLANK)), len(text.rstrip(_BLANK))
    escaped = []
    for place, character in enumerate(text):
        if character == "\0":
            escaped.append("\\00")
        elif character in _ESCAPED or not begin <= place < end:
            escaped.append("\\" + character)
        else:
            escaped.append(character)
    return "".join(escaped)
