"""The objects of a segment: their keys, and the one that holds its indexes and checksums.

    <cluster id>/seg/<topic id>/<partition>/<start offset>-<segment id>.log    the segment, as it was on disk
    <cluster id>/seg/<topic id>/<partition>/<start offset>-<segment id>.idx    all else, so that one request reads it:

        magic "SLTI" | version uint16 = 1 | parts uint16 | CRC-32C of the table uint32
        then for each part:  kind uint16 | CRC-32C uint32 | length uint32       (the table)
        then the parts, in this order

The parts have Kafka's numbers of index types. The last one is ours: the CRC-32C of each 4 MiB of the segment, so that a
block is checked as a whole, also those header fields that the checksum of a batch leaves out.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import Final
from uuid import UUID

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog
from strandline.tiers.records import RemoteSegment, TieredPartition

BLOCK_BYTES: Final = 4 << 20
MAGIC: Final = b"SLTI"
VERSION: Final = 1
_HEAD: Final = struct.Struct(">4sHHI")
_ROW: Final = struct.Struct(">HII")
_PARTS_MAX: Final = 16


class ObjectPart(IntEnum):
    OFFSET_INDEX = 0
    TIME_INDEX = 1
    PRODUCER_SNAPSHOT = 2
    TRANSACTION_INDEX = 3
    LEADER_EPOCHS = 4
    BLOCK_CHECKSUMS = 5


_KNOWN: Final = frozenset(int(part) for part in ObjectPart)


def segment_key(cluster_id: str, partition: TieredPartition, start_offset: int, segment_id: UUID) -> str:
    """Return the key of a segment without its ending. Nothing is named by the topic's name."""
    return f"{cluster_id}/seg/{partition.topic_id}/{partition.partition}/{start_offset:020}-{segment_id}"


def key_of(cluster_id: str, partition: TieredPartition, segment: RemoteSegment) -> str:
    """Return the key of a segment of a partition, which may share the objects of another."""
    source = segment.source
    if source is not None:
        cluster_id, partition = source.cluster_id, TieredPartition(source.topic_id, source.partition)
    return segment_key(cluster_id, partition, segment.start_offset, segment.id)


def partition_prefix(cluster_id: str, partition: TieredPartition) -> str:
    return f"{cluster_id}/seg/{partition.topic_id}/{partition.partition}"


def pack_parts(parts: Mapping[ObjectPart, bytes]) -> bytes:
    rows = b"".join(_ROW.pack(kind, crc32c(data), len(data)) for kind, data in parts.items())
    return _HEAD.pack(MAGIC, VERSION, len(parts), crc32c(rows)) + rows + b"".join(parts.values())


def unpack_parts(data: bytes) -> dict[ObjectPart, bytes]:
    """Return the parts of an index object. Raises CorruptLog if it is not what was written."""
    if len(data) < _HEAD.size:
        raise CorruptLog(f"an index object of {len(data)} bytes")
    magic, version, count, checksum = _HEAD.unpack_from(data)
    end = _HEAD.size + count * _ROW.size
    if magic != MAGIC or version != VERSION or count > _PARTS_MAX or crc32c(data[_HEAD.size : end]) != checksum:
        raise CorruptLog(f"an index object with magic {magic!r}, version {version} and {count} parts is damaged")
    parts: dict[ObjectPart, bytes] = {}
    for kind, expected, length in _ROW.iter_unpack(data[_HEAD.size : end]):
        part = data[end : end + length]
        end += length
        if len(part) != length or crc32c(part) != expected:
            raise CorruptLog(f"part {kind} of an index object is damaged")
        if kind in _KNOWN:
            parts[ObjectPart(kind)] = part
    return parts


def pack_checksums(checksums: list[int]) -> bytes:
    return struct.pack(f">{len(checksums)}I", *checksums)


def checksums_of(part: bytes) -> tuple[int, ...]:
    return struct.unpack(f">{len(part) // 4}I", part)
