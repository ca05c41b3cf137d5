"""How a record names its schema. The form is Confluent's, and all serializers have it.

    0x00  id of 4 bytes    in front of the payload
    0x01  GUID of 16 bytes in front of the payload, or in the header `__value_schema_id` or `__key_schema_id`

A Protobuf payload begins with the place of its message in the file: a count and so many numbers, as zigzag varints.
`0x00` is short for the first message. In a header they are behind the GUID, so they come first in both cases.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from strandline.schemas.payloads.failures import PayloadFailed

HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
INDEXES_MAX: Final = 100
"""Messages inside messages that a payload may name; Protobuf itself allows no deeper ones."""

SchemaName = int | str
"""An id, or a GUID."""

_PREFIX: Final = struct.Struct(">BI")
_GUID_BYTES: Final = 16


def split_payload(content: bytes, header: bytes | None = None) -> tuple[SchemaName, bytes] | None:
    """Return the schema that a record names, and its payload; None if it names none."""
    named = _split(header) if header is not None else None
    return _split(content) if named is None else (named[0], named[1] + content)


def _split(content: bytes) -> tuple[SchemaName, bytes] | None:
    if content[:1] == b"\0" and len(content) >= _PREFIX.size:
        return _PREFIX.unpack_from(content)[1], content[_PREFIX.size :]
    if content[:1] == b"\1" and len(content) > _GUID_BYTES:
        return str(UUID(bytes=content[1 : 1 + _GUID_BYTES])), content[1 + _GUID_BYTES :]
    return None


def with_prefix(schema_id: int, payload: bytes) -> bytes:
    """Return a payload behind the id of its schema."""
    return _PREFIX.pack(0, schema_id) + payload


def read_long(data: bytes, at: int) -> tuple[int, int]:
    """Return a zigzag varint and where it ends. IndexError if the data ends before."""
    byte = data[at]
    at += 1
    found = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > 63:
            raise PayloadFailed("a number has more than ten bytes")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << shift
        shift += 7
    if found >> 64:
        raise PayloadFailed("a number has more than 64 bits")
    return (found >> 1) ^ -(found & 1), at


def write_long(number: int, out: bytearray) -> None:
    """Append a zigzag varint of a number with at most 64 bits."""
    left = (number << 1) ^ (number >> 63)
    while left > 0x7F:
        out.append((left & 0x7F) | 0x80)
        left >>= 7
    out.append(left)


def read_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return the place of a Protobuf message in its file, and where the message begins."""
    try:
        count, at = read_long(payload, 0)
        if not 0 <= count <= INDEXES_MAX:
            raise PayloadFailed(f"the payload names its message by {count} numbers")
        found = []
        for _ in range(count):
            index, at = read_long(payload, at)
            found.append(index)
    except IndexError:
        raise PayloadFailed("the payload ends before its message begins") from None
    return tuple(found) or (0,), at


def write_indexes(indexes: tuple[int, ...]) -> bytes:
    out = bytearray()
    if indexes == (0,):
        return b"\0"
    write_long(len(indexes), out)
    for each in indexes:
        write_long(each, out)
    return bytes(out)
