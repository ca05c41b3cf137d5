"""Transaction markers: the control batches that end a transaction on a partition, as Kafka writes them.

a batch header (61 bytes) with the attributes TRANSACTIONAL and CONTROL, no sequence, and one record:
length varint = 16, attributes int8, timestamp delta varint = 0, offset delta varint = 0,
key    length varint = 4, version int16 = 0, type int16 (0: abort, 1: commit)
value  length varint = 6, version int16 = 0, coordinator epoch int32
header count varint = 0
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from strandline.codec.checksum import crc32c
from strandline.codec.columns import decode_batch
from strandline.codec.record_batch import (
    CONTROL,
    CRC_POSITION,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    MAGIC,
    PREFIX_SIZE,
    TRANSACTIONAL,
    Buffer,
)
from strandline.errors import PeerError

ABORT: Final = 0
COMMIT: Final = 1
NO_SEQUENCE: Final = -1

_RECORD: Final = Struct(">BBBBBhhBhiB")
_RECORD_LENGTH: Final = (_RECORD.size - 1) << 1
_KEY_LENGTH: Final = 4 << 1
_VALUE_LENGTH: Final = 6 << 1
"""Varints are zigzag: twice the number."""
MARKER_SIZE: Final = HEADER_SIZE + _RECORD.size


class TransactionMarker(NamedTuple):
    is_commit: bool
    coordinator_epoch: int


def encode_marker(
    producer_id: int, producer_epoch: int, *, is_commit: bool, coordinator_epoch: int, timestamp_ms: int
) -> bytearray:
    """A batch that ends the producer's transaction; its offset and leader epoch are for the log to write."""
    batch = bytearray(MARKER_SIZE)
    HEADER.pack_into(
        batch,
        0,
        0,
        MARKER_SIZE - PREFIX_SIZE,
        -1,
        MAGIC,
        0,
        TRANSACTIONAL | CONTROL,
        0,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        1,
    )
    kind = COMMIT if is_commit else ABORT
    _RECORD.pack_into(
        batch, HEADER_SIZE, _RECORD_LENGTH, 0, 0, 0, _KEY_LENGTH, 0, kind, _VALUE_LENGTH, 0, coordinator_epoch, 0
    )
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return batch


def parse_marker(batch: Buffer) -> TransactionMarker | None:
    """Return the marker in a control batch of a producer; None if it ends no transaction.

    A record of another kind, or of none, is no marker, so that no producer can make the broker fail by it. Where the
    cleaner removed the record from a batch, the transaction is long over.
    """
    if len(batch) == MARKER_SIZE:
        length, _, _, _, key, _, kind, value, _, coordinator_epoch, _ = _RECORD.unpack_from(batch, HEADER_SIZE)
        if length == _RECORD_LENGTH and key == _KEY_LENGTH and value == _VALUE_LENGTH:
            return TransactionMarker(kind == COMMIT, coordinator_epoch) if kind in (ABORT, COMMIT) else None
    return _parse_any(batch)


def _parse_any(batch: Buffer) -> TransactionMarker | None:
    """Of another size: a version of the future may say more, or its times lie further apart."""
    try:
        records = decode_batch(bytes(batch))
    except PeerError:
        return None
    for record in records:
        if record.key is not None and len(record.key) >= 4 and record.value is not None and len(record.value) >= 6:
            kind = int.from_bytes(record.key[2:4], "big", signed=True)
            if kind in (ABORT, COMMIT):
                return TransactionMarker(kind == COMMIT, int.from_bytes(record.value[2:6], "big", signed=True))
    return None
