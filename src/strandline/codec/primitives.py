"""The small pieces every encoder and decoder is made of: varints, UUIDs, arrays of integers.

A varint has seven bits per byte, least significant first; the high bit says that another byte follows. Lengths and
counts of flexible versions are unsigned varints that hold the length plus one, so that zero can mean null.
"""

from __future__ import annotations

import struct
from functools import cache, lru_cache
from typing import TYPE_CHECKING
from uuid import UUID

from strandline.errors import MalformedMessage
from strandline.ids import ZERO_UUID

if TYPE_CHECKING:
    from collections.abc import Callable

    Buffer = bytes | bytearray | memoryview

__all__ = [
    "ZERO_UUID",
    "integers_pack",
    "integers_unpack",
    "read_uvarint",
    "read_uvarint_tail",
    "read_varint",
    "read_varlong",
    "skip_tagged_fields",
    "uuid_of",
    "write_uvarint",
]

UVARINT_MAX = 0xFFFF_FFFF
UUIDS_CACHED_MAX = 4_096
ARRAY_FORMATS_CACHED_MAX = 33


def write_uvarint(out: bytearray, value: int) -> None:
    """Append `value` as an unsigned varint of at most five bytes."""
    if not 0 <= value <= UVARINT_MAX:
        raise ValueError(f"{value} is no unsigned 32-bit number")
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def read_uvarint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position`, and the position behind it."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return read_uvarint_tail(first, buffer, position + 1)


def read_uvarint_tail(first: int, buffer: Buffer, position: int) -> tuple[int, int]:
    """Go on with a varint whose `first` byte was read already and has its high bit set."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise MalformedMessage("an unsigned varint of more than five bytes")
    if value > UVARINT_MAX:
        raise MalformedMessage("an unsigned varint of more than 32 bits")
    return value, position


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the signed (zig-zag) varint of at most 32 bits at `position`, and the position behind it."""
    value, position = read_uvarint(buffer, position)
    return (value >> 1) ^ -(value & 1), position


def read_varlong(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the signed (zig-zag) varint of at most 64 bits at `position`, and the position behind it."""
    value = 0
    for shift in range(0, 70, 7):
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value >> 64:
                raise MalformedMessage("a varint of more than 64 bits")
            return (value >> 1) ^ -(value & 1), position
    raise MalformedMessage("a varint of more than ten bytes")


def skip_tagged_fields(buffer: Buffer, position: int, size: int, count: int) -> int:
    """Skip `count` unknown tagged fields. Return the position behind them.

    Each one takes at least two bytes of the buffer, so a lying count ends at the end of the buffer.
    """
    for _ in range(count):
        _, position = read_uvarint(buffer, position)
        length, position = read_uvarint(buffer, position)
        position += length
        if position > size:
            raise MalformedMessage(f"a tagged field of {length} bytes runs beyond the message")
    return position


@lru_cache(maxsize=UUIDS_CACHED_MAX)
def uuid_of(raw: bytes) -> UUID:
    """The UUID of 16 bytes. The same few topic ids come with every request, and building a UUID costs a microsecond."""
    return UUID(bytes=raw)


@cache
def integers_pack(code: str, *, compact: bool) -> tuple[Callable[..., bytes], ...]:
    """Writers for short arrays of integers, count included, by number of elements."""
    head = "B" if compact else "i"
    return tuple(struct.Struct(f">{head}{n}{code}").pack for n in range(ARRAY_FORMATS_CACHED_MAX))


@cache
def integers_unpack(code: str) -> tuple[Callable[..., tuple[int, ...]], ...]:
    """Readers for short arrays of integers, without their count, by number of elements."""
    return tuple(struct.Struct(f">{n}{code}").unpack_from for n in range(ARRAY_FORMATS_CACHED_MAX))
