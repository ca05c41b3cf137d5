"""The objects that leaders write: batches of many partitions, those of one partition side by side.

    <cluster id>/wal/<hash>/<broker id>-<broker epoch>-<number>

        magic "SLWO" | version uint16 = 1 | ranges uint16 | length of the head uint32 | CRC-32C of the head uint32
        then for each range:  topic id 16 bytes | partition int32 | leader epoch int32 | base offset int64
                              | end offset int64 | position uint64 | size uint64 | CRC-32C uint32       (the head)
        then the batches, as the leader's log has them

The hash spreads the keys, because stores limit the requests on keys that begin alike. The head repeats what the commit
says. Readers use the commit; the head is for a cluster that lost it.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from typing import Final
from uuid import UUID

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog
from strandline.tiers.wal.events import ObjectId, RangeCommit

MAGIC: Final = b"SLWO"
VERSION: Final = 1
RANGES_MAX: Final = 0xFFFF
_HEAD: Final = struct.Struct(">4sHHII")
_RANGE: Final = struct.Struct(">16siiqqQQI")
_NAME: Final = re.compile(r"(\d{1,10})-(\d{1,19})-(\d{1,19})")


def wal_prefix(cluster_id: str) -> str:
    return f"{cluster_id}/wal"


def wal_key(cluster_id: str, object_id: ObjectId) -> str:
    name = str(object_id)
    return f"{wal_prefix(cluster_id)}/{crc32c(name.encode()) & 0xFF:02x}/{name}"


def object_id_of(key: str) -> ObjectId | None:
    """Return the object that a key names; None if it is no such key."""
    found = _NAME.fullmatch(key.rsplit("/", 1)[-1])
    return None if found is None else ObjectId(*(int(each) for each in found.groups()))


def head_size(ranges: int) -> int:
    """Return where the batches begin in an object of so many ranges."""
    return _HEAD.size + ranges * _RANGE.size


HEAD_BYTES_MIN: Final = _HEAD.size


def head_length(data: bytes) -> int:
    """Return how long the head of an object is that begins with these `HEAD_BYTES_MIN` bytes, if it has one."""
    return head_size(0) + int(_HEAD.unpack_from(data)[3])


def pack_head(ranges: Sequence[RangeCommit]) -> bytes:
    rows = b"".join(
        _RANGE.pack(
            each.topic_id.bytes,
            each.partition,
            each.leader_epoch,
            each.base_offset,
            each.end_offset,
            each.position,
            each.size_bytes,
            each.crc,
        )
        for each in ranges
    )
    return _HEAD.pack(MAGIC, VERSION, len(ranges), len(rows), crc32c(rows)) + rows


def unpack_head(data: bytes) -> list[RangeCommit]:
    """Return the ranges of an object that begins with these bytes. Raises CorruptLog."""
    if len(data) < _HEAD.size:
        raise CorruptLog(f"an object of {len(data)} bytes")
    magic, version, count, length, crc = _HEAD.unpack_from(data)
    rows = data[_HEAD.size : _HEAD.size + length]
    if magic != MAGIC or version != VERSION or length != count * _RANGE.size or crc32c(rows) != crc:
        raise CorruptLog("the head of an object is not what was written")
    return [RangeCommit._make((UUID(bytes=each[0]), *each[1:], -1, ())) for each in _RANGE.iter_unpack(rows)]
