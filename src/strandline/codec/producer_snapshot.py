"""The `.snapshot` file: what a partition knew of its producers as of an offset.

    version int16 = 1, crc uint32 (CRC-32C of all that follows), entry count int32, then per producer:
        producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
        timestamp int64, coordinator epoch int32, current transaction's first offset int64 (-1: none)
    then Strandline's own part: magic int32 "SLP1", then per producer, in the same order:
        append time int64, number of older batches int8, then each, oldest first:
            last sequence int32, last offset int64, offset delta int32

Kafka writes the first part only, and stops reading behind it. The CRC covers both. Without the second part only the
newest batch of a producer is known, and not when it was appended.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptLog

VERSION: Final = 1
MAGIC: Final = 0x534C5031
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")
ENTRY_SIZE: Final = _ENTRY.size
_APPENDED = struct.Struct(">qb")
_BATCH = struct.Struct(">iqi")
_NO_BATCH: Final = (-1, -1, 0)
NOT_SAID: Final = -1

Batch = tuple[int, int, int]
"""Last sequence, last offset, offset delta."""


SnapshotEntry = tuple[int, int, list[Batch], int, int, int, int]
"""Producer id, epoch, batches (oldest first), timestamp, coordinator epoch, the open transaction's first offset or -1,
append time or `NOT_SAID`. No class: a node may have 200,000 of them, and packs them while its loop waits."""


def encode_snapshot(entries: Iterable[SnapshotEntry]) -> bytes:
    """Encode both parts."""
    kafkas = bytearray(_COUNT.size)
    own = bytearray(_COUNT.pack(MAGIC))
    count = 0
    for producer_id, epoch, recent, timestamp_ms, coordinator_epoch, first_offset, appended_ms in entries:
        last, offset, delta = recent[-1] if recent else _NO_BATCH
        kafkas += _ENTRY.pack(producer_id, epoch, last, offset, delta, timestamp_ms, coordinator_epoch, first_offset)
        older = len(recent) - 1 if recent else 0
        own += _APPENDED.pack(appended_ms, older)
        for batch in recent[:older]:
            own += _BATCH.pack(*batch)
        count += 1
    _COUNT.pack_into(kafkas, 0, count)
    body = kafkas + own if count else kafkas
    return _PREFIX.pack(VERSION, crc32c(body)) + body


def decode_snapshot(data: bytes) -> list[SnapshotEntry]:
    """Decode a snapshot of Strandline or Kafka; CorruptLog if it is not one."""
    if len(data) < _PREFIX.size + _COUNT.size:
        raise CorruptLog(f"producer snapshot of {len(data)} bytes")
    version, crc = _PREFIX.unpack_from(data)
    body = memoryview(data)[_PREFIX.size :]
    if version != VERSION or crc32c(body) != crc:
        raise CorruptLog("producer snapshot with a wrong version or CRC")
    (count,) = _COUNT.unpack_from(body)
    end = _COUNT.size + count * ENTRY_SIZE
    if count < 0 or len(body) < end:
        raise CorruptLog(f"producer snapshot claims {count} entries in {len(body)} bytes")
    try:
        return _entries(body[_COUNT.size : end], body[end:])
    except struct.error as error:
        raise CorruptLog(f"producer snapshot ends early: {error}") from error


def _entries(kafkas: memoryview, own: memoryview) -> list[SnapshotEntry]:
    if len(own) and _COUNT.unpack_from(own) != (MAGIC,):
        raise CorruptLog("producer snapshot with a second part that is not Strandline's")
    entries: list[SnapshotEntry] = []
    at = min(len(own), _COUNT.size)
    for producer_id, epoch, last, offset, delta, timestamp_ms, coordinator, first in _ENTRY.iter_unpack(kafkas):
        recent: list[Batch] = []
        appended_ms = NOT_SAID
        if at:
            appended_ms, older = _APPENDED.unpack_from(own, at)
            at += _APPENDED.size
            if older:
                if older < 0:
                    raise CorruptLog(f"producer snapshot claims {older} batches of producer {producer_id}")
                recent += [_BATCH.unpack_from(own, at + number * _BATCH.size) for number in range(older)]
                at += older * _BATCH.size
        if offset >= 0:
            recent.append((last, offset, delta))
        entries.append((producer_id, epoch, recent, timestamp_ms, coordinator, first, appended_ms))
    if at != len(own):
        raise CorruptLog(f"producer snapshot with {len(own) - at} bytes behind its end")
    return entries
