"""Reads a segment in the store and compares it with its checksums."""

from __future__ import annotations

from typing import Final

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog
from strandline.tiers.objects import BLOCK_BYTES, ObjectPart, checksums_of, unpack_parts
from strandline.tiers.records import RemoteSegment
from strandline.tiers.store.failures import ObjectDamaged, ObjectMissing
from strandline.tiers.store.interface import ObjectStore

READ_S: Final = 120.0


async def damage_of(store: ObjectStore, base: str, segment: RemoteSegment) -> str:
    """Return what is damaged of the two objects of a segment, in words; empty if they are sound."""
    try:
        parts = unpack_parts(await store.read_whole(f"{base}.idx", deadline_s=READ_S))
        checksums = checksums_of(parts.get(ObjectPart.BLOCK_CHECKSUMS, b""))
        blocks = -(-segment.size_bytes // BLOCK_BYTES)
        if len(checksums) != blocks:
            return f"{base}.idx has {len(checksums)} checksums for {blocks} blocks"
        for number, expected in enumerate(checksums):
            start = number * BLOCK_BYTES
            length = min(BLOCK_BYTES, segment.size_bytes - start)
            if crc32c(await store.read(f"{base}.log", start, length, deadline_s=READ_S)) != expected:
                return f"{base}.log holds other bytes than were written, between {start:,} and {start + length - 1:,}"
    except (CorruptLog, ObjectDamaged, ObjectMissing) as error:
        return str(error) if base in str(error) else f"{base}.idx: {error}"
    return ""
