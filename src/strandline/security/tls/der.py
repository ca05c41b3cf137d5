"""A reader of DER, the encoding of certificates: one element at a time, nothing copied, nothing believed.

element    tag (1 byte) | length (1 byte, or 0x80 + n and n bytes) | content

Only what certificates use: tags below 31, lengths that are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.errors import MalformedMessage

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
UTF8_STRING: Final = 0x0C
PRINTABLE_STRING: Final = 0x13
T61_STRING: Final = 0x14
IA5_STRING: Final = 0x16
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
GENERAL_STRING: Final = 0x1B
BMP_STRING: Final = 0x1E
SEQUENCE: Final = 0x30
SET: Final = 0x31

_LENGTH_BYTES_MAX: Final = 4


class Element(NamedTuple):
    """One element: its tag, its content, and all of its bytes."""

    tag: int
    content: bytes
    whole: bytes


def read_element(data: bytes, at: int = 0) -> tuple[Element, int]:
    """Return the element at `at`, and where it ends. Raise MalformedMessage for bytes that are none."""
    begin = at
    try:
        tag, size = data[at], data[at + 1]
        at += 2
        if tag & 0x1F == 0x1F or size == 0x80 or size > 0x80 + _LENGTH_BYTES_MAX:
            raise MalformedMessage(f"DER that no certificate has, at {begin}")
        if size > 0x80:
            count = size - 0x80
            if at + count > len(data):
                raise IndexError
            size = int.from_bytes(data[at : at + count], "big")
            at += count
    except IndexError:
        raise MalformedMessage(f"DER ends within an element, at {begin}") from None
    end = at + size
    if end > len(data):
        raise MalformedMessage(f"an element of {size} bytes at {begin}, and DER ends before it")
    return Element(tag, data[at:end], data[begin:end]), end


def elements(content: bytes) -> Iterator[Element]:
    """Yield the elements that follow each other in `content`."""
    at = 0
    while at < len(content):
        element, at = read_element(content, at)
        yield element


def children(element: Element, tag: int) -> list[Element]:
    """Return the elements inside one of this tag. Raise MalformedMessage if it has another."""
    if element.tag != tag:
        raise MalformedMessage(f"DER has tag {element.tag:#x} in place of {tag:#x}")
    return list(elements(element.content))


def dotted(content: bytes) -> str:
    """Return the content of an object identifier as text, such as `2.5.4.3`."""
    if not content or content[-1] & 0x80:
        raise MalformedMessage("an object identifier without an end")
    arcs, arc = [], 0
    for byte in content:
        arc = arc << 7 | byte & 0x7F
        if not byte & 0x80:
            arcs.append(arc)
            arc = 0
    first = min(arcs[0] // 40, 2)
    return ".".join(map(str, (first, arcs[0] - 40 * first, *arcs[1:])))
