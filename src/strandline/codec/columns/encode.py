"""Records to batch bytes: the one encoder, for internal topics, `strandline.Log` and tests.

The hot path of the broker never comes here: a producer's batch is stored as it came.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence

from strandline.codec.checksum import crc32c
from strandline.codec.columns.batch import Header, Record
from strandline.codec.compression import Compression, compress
from strandline.codec.record_batch import CONTROL, CRC_START, LOG_APPEND_TIME, MAGIC, PREFIX_SIZE, TRANSACTIONAL

# The header in two parts: what the CRC does not cover, with the CRC itself, and what it does.
_UNCHECKED_HEADER = struct.Struct(">qiibI")
_CHECKED_HEADER = struct.Struct(">hiqqqhii")
_SMALL_VARINTS_MAX = 2048


def encode_varint(value: int) -> bytes:
    """Return a signed number as Kafka's records hold it: zigzag, then seven bits per byte, the lowest first."""
    raw = value << 1 if value >= 0 else (-value << 1) - 1
    out = bytearray()
    while raw >= 0x80:
        out.append(raw & 0x7F | 0x80)
        raw >>= 7
    out.append(raw)
    return bytes(out)


# Lengths and deltas are small, and looking one up is five times cheaper than making it.
_SMALL_VARINTS = [encode_varint(value) for value in range(_SMALL_VARINTS_MAX)]
_NULL = encode_varint(-1)
_NO_HEADERS = encode_varint(0)


def _varint(value: int) -> bytes:
    return _SMALL_VARINTS[value] if 0 <= value < _SMALL_VARINTS_MAX else encode_varint(value)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = -1,
    compression: int = Compression.NONE,
    append_time_ms: int | None = None,
    producer_id: int = -1,
    producer_epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
    control: bool = False,
    keep_offsets: bool = False,
    last_offset_delta: int | None = None,
) -> bytes:
    """Encode one batch.

    Records are numbered from `base_offset` in their order; with `keep_offsets` their own offsets count, as in a batch
    that compaction has thinned out. `append_time_ms` makes it a LogAppendTime batch. `last_offset_delta` is for batches
    whose last records are gone; without it, it is that of the last record.
    """
    if keep_offsets:
        deltas: Iterable[int] = [record.offset - base_offset for record in records]
        final_delta = records[-1].offset - base_offset if records else 0
    else:
        deltas = range(len(records))
        final_delta = len(records) - 1 if records else 0
    base_timestamp = records[0].timestamp_ms if records else -1
    max_timestamp = base_timestamp
    parts: list[bytes] = []
    for delta, (_, timestamp, key, value, headers) in zip(deltas, records, strict=True):
        if timestamp > max_timestamp:
            max_timestamp = timestamp
        body = b"".join(
            (
                b"\x00",
                _varint(timestamp - base_timestamp),
                _varint(delta),
                _NULL if key is None else _varint(len(key)) + key,
                _NULL if value is None else _varint(len(value)) + value,
                _encode_headers(headers) if headers else _NO_HEADERS,
            )
        )
        parts.append(_varint(len(body)))
        parts.append(body)
    payload = b"".join(parts)
    if compression:
        payload = compress(compression, payload)
    checked = (
        _CHECKED_HEADER.pack(
            compression
            | (LOG_APPEND_TIME if append_time_ms is not None else 0)
            | (TRANSACTIONAL if transactional else 0)
            | (CONTROL if control else 0),
            final_delta if last_offset_delta is None else last_offset_delta,
            base_timestamp,
            max_timestamp if append_time_ms is None else append_time_ms,
            producer_id,
            producer_epoch,
            base_sequence,
            len(records),
        )
        + payload
    )
    batch_length = CRC_START - PREFIX_SIZE + len(checked)
    return _UNCHECKED_HEADER.pack(base_offset, batch_length, leader_epoch, MAGIC, crc32c(checked)) + checked


def encode_record(value: bytes | None, key: bytes | None, headers: Sequence[Header], timestamp_ms: int) -> bytes:
    """A plain batch of one record, as `encode_batch` makes it, at half the cost: what a lone writer waits for."""
    body = (
        b"\x00\x00\x00"
        + (_NULL if key is None else _varint(len(key)) + key)
        + (_NULL if value is None else _varint(len(value)) + value)
        + (_encode_headers(headers) if headers else _NO_HEADERS)
    )
    length = _varint(len(body))
    checked = _CHECKED_HEADER.pack(0, 0, timestamp_ms, timestamp_ms, -1, -1, -1, 1) + length + body
    return _UNCHECKED_HEADER.pack(0, CRC_START - PREFIX_SIZE + len(checked), -1, MAGIC, crc32c(checked)) + checked


def encode_values(values: Iterable[bytes], first_delta: int) -> bytes:
    """Encode records that have a value and the timestamp of their batch and nothing else, from `first_delta` on.

    Slices of a batch that is too long to be encoded at once, for `batch_of_slices`.
    """
    parts: list[bytes] = []
    for delta, value in enumerate(values, first_delta):
        body = b"".join((b"\x00\x00", _varint(delta), _NULL, _varint(len(value)), value, _NO_HEADERS))
        parts.append(_varint(len(body)))
        parts.append(body)
    return b"".join(parts)


def batch_of_slices(slices: Iterable[bytes], count: int, timestamp_ms: int) -> bytes:
    """Return a plain batch of the `count` records that `encode_values` encoded, as `encode_batch` makes it."""
    header = _CHECKED_HEADER.pack(0, count - 1, timestamp_ms, timestamp_ms, -1, -1, -1, count)
    checked = b"".join((header, *slices))
    return _UNCHECKED_HEADER.pack(0, CRC_START - PREFIX_SIZE + len(checked), -1, MAGIC, crc32c(checked)) + checked


def _encode_headers(headers: Sequence[Header]) -> bytes:
    parts = [_varint(len(headers))]
    for key, value in headers:
        key_bytes = key.encode()
        parts.append(_varint(len(key_bytes)))
        parts.append(key_bytes)
        parts.append(_NULL if value is None else _varint(len(value)) + value)
    return b"".join(parts)
