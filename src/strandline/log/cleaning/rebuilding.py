"""Rebuilding a batch from the records that stay: same offsets, codec, producer and sequence.

The last offset delta stays as it was, even where its record went: a producer's last sequence is counted from it. The
base timestamp stays too, unlike Kafka's, which moves it to the first record that is left: so the bytes of records are
copied as they are. Only a delete horizon takes its place, and then every record's delta is rewritten.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from strandline.codec.checksum import crc32c
from strandline.codec.columns.batch import read_varint
from strandline.codec.columns.encode import encode_varint
from strandline.codec.compression import compress
from strandline.codec.record_batch import (
    COMPRESSION_MASK,
    CONTROL,
    CRC_POSITION,
    CRC_START,
    HAS_DELETE_HORIZON,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    PREFIX_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    Buffer,
)

NO_TIMESTAMP: Final = -1


def rebuild_batch(
    header: BatchHeader,
    payload: Buffer,
    runs: Sequence[int],
    run_count: int,
    *,
    records: int,
    max_timestamp_ms: int,
    delete_horizon_ms: int | None,
) -> tuple[bytearray, int]:
    """Return the batch with the records at `runs` of `payload`, and its largest timestamp.

    A `delete_horizon_ms` is written into it; without one, the horizon that it has stays.
    """
    view = memoryview(payload)
    pieces = [view[runs[2 * at] : runs[2 * at + 1]] for at in range(run_count)]
    append_time = header.attributes & LOG_APPEND_TIME
    if append_time:
        max_timestamp_ms = header.max_timestamp
    if delete_horizon_ms is None:
        body = b"".join(pieces)
    else:
        body = b"".join(
            _retimed(
                pieces,
                base_timestamp=0 if append_time else header.base_timestamp,
                fixed_timestamp=header.max_timestamp if append_time else None,
                new_base_timestamp=delete_horizon_ms,
            )
        )
        header = header._replace(attributes=header.attributes | HAS_DELETE_HORIZON, base_timestamp=delete_horizon_ms)
    codec = header.attributes & COMPRESSION_MASK
    header = header._replace(max_timestamp=max_timestamp_ms, record_count=records)
    return _seal(header, compress(codec, body) if codec else body), max_timestamp_ms


def empty_batch(header: BatchHeader) -> bytearray:
    """Return the batch without any record: it keeps a producer's last sequence, or the last offset."""
    kept = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    header = header._replace(attributes=header.attributes & kept, base_timestamp=NO_TIMESTAMP, record_count=0)
    return _seal(header, b"")


def _seal(header: BatchHeader, body: bytes) -> bytearray:
    batch = bytearray(HEADER_SIZE + len(body))
    HEADER.pack_into(batch, 0, *header._replace(length=len(batch) - PREFIX_SIZE, crc=0))
    batch[HEADER_SIZE:] = body
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return batch


def _retimed(
    pieces: list[memoryview], *, base_timestamp: int, fixed_timestamp: int | None, new_base_timestamp: int
) -> Iterator[Buffer]:
    """Yield the records of `pieces` with their timestamps counted from another base."""
    for piece in pieces:
        position = 0
        while position < len(piece):
            length, start = read_varint(piece, position)
            position = start + length
            # Behind the length stands a byte of attributes, and then the delta.
            delta, rest = read_varint(piece, start + 1)
            timestamp = base_timestamp + delta if fixed_timestamp is None else fixed_timestamp
            new_delta = encode_varint(timestamp - new_base_timestamp)
            yield encode_varint(1 + len(new_delta) + position - rest)
            yield piece[start : start + 1]
            yield new_delta
            yield piece[rest:position]
