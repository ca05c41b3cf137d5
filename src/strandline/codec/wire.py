"""Reading primitives of the Kafka protocol from a view, for the hand-written hot paths.

Every function takes the buffer and a position and returns the value and the position behind it. A fault of any kind is
MalformedMessage; counts are held against the bytes that are left before anything is made of them.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from strandline.codec.primitives import read_uvarint
from strandline.errors import MalformedMessage

Buffer = bytes | bytearray | memoryview

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")

ELEMENTS_MAX: Final = 20_000
"""Topics or partitions that one request may name: each costs the loop a microsecond or two to read, an object and as
much again to answer, and three bytes of request are enough to ask for one."""
STRING_BYTES_MAX: Final = 0x7FFF
"""The compact form could say more; Kafka refuses it."""
TAGGED_FIELDS_MAX: Final = 32
"""Tagged fields in one section; Kafka's own messages have a handful."""


def skip_tags(view: Buffer, at: int) -> int:
    """Pass over a section of tagged fields without keeping any."""
    count = view[at]
    if count == 0:
        return at + 1
    count, at = read_uvarint(view, at)
    if count > TAGGED_FIELDS_MAX:
        raise MalformedMessage(f"{count} tagged fields; {TAGGED_FIELDS_MAX} are allowed")
    for _ in range(count):
        _, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        at += size
    if at > len(view):
        raise MalformedMessage("a tagged field goes beyond the message")
    return at


def read_name(view: Buffer, at: int, flexible: bool) -> tuple[str | None, int]:
    """Return a nullable string."""
    if flexible:
        size = view[at]
        if size < 0x80:
            at += 1
        else:
            size, at = read_uvarint(view, at)
        size -= 1
    else:
        size = INT16.unpack_from(view, at)[0]
        at += 2
    if size < 0:
        if size < -1:
            raise MalformedMessage(f"a string of {size} bytes")
        return None, at
    end = at + size
    if end > len(view) or size > STRING_BYTES_MAX:
        raise MalformedMessage(f"a string of {size} bytes with {len(view) - at} left; {STRING_BYTES_MAX} are allowed")
    try:
        return str(view[at:end], "utf-8"), end
    except UnicodeDecodeError as error:
        raise MalformedMessage("a string that is not UTF-8") from error


def read_count(view: Buffer, at: int, flexible: bool, element_size_min: int) -> tuple[int, int]:
    """Return the length of an array that is not nullable and whose elements take at least `element_size_min` bytes."""
    if flexible:
        count = view[at]
        if count < 0x80:
            at += 1
        else:
            count, at = read_uvarint(view, at)
        count -= 1
    else:
        count = INT32.unpack_from(view, at)[0]
        at += 4
    if count * element_size_min > len(view) - at or not 0 <= count <= ELEMENTS_MAX:
        raise MalformedMessage(f"an array of {count} elements in {len(view) - at} bytes; {ELEMENTS_MAX} are allowed")
    return count, at


def uvarint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def string(value: str, flexible: bool) -> bytes:
    data = value.encode()
    return uvarint(len(data) + 1) + data if flexible else INT16.pack(len(data)) + data
