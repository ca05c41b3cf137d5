"""What a decoded batch is made of: its header, its columns, and a record for those who want one at a time.

Columns are typed views of two arrays (64-bit offsets and timestamps, 32-bit positions), so they need neither NumPy nor
Arrow, and both wrap them without a copy: `numpy.asarray(columns.offsets)`, `pyarrow.py_buffer(columns.offsets)`.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from strandline.codec.compression import Buffer, Compression
from strandline.codec.record_batch import COMPRESSION_MASK, BatchHeader

NO_TIMESTAMP = -1

Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record. A header's key is text; what is no UTF-8 in it appears as U+FFFD, as Kafka's consumer shows it."""

    offset: int = -1
    timestamp_ms: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[Header, ...] = ()


class Columns:
    """One batch as columns, a row per record. A length of -1 stands for null; positions count from `payload[0]`.

    `payload` is a view into the caller's batch when that is not compressed, and lives as long as the caller's buffer
    stays untouched; of a compressed batch it is a copy of its own.
    """

    __slots__ = (
        "header",
        "header_count",
        "header_start",
        "key_length",
        "key_start",
        "offsets",
        "payload",
        "timestamps",
        "value_length",
        "value_start",
    )

    def __init__(
        self,
        header: BatchHeader,
        payload: Buffer,
        wide: array[int],
        narrow: array[int],
    ) -> None:
        count = header.record_count
        self.header = header
        self.payload = payload
        wide_view: memoryview[int] = memoryview(wide)
        self.offsets = wide_view[:count]
        self.timestamps = wide_view[count:]
        narrow_view: memoryview[int] = memoryview(narrow)
        self.key_start = narrow_view[:count]
        self.key_length = narrow_view[count : 2 * count]
        self.value_start = narrow_view[2 * count : 3 * count]
        self.value_length = narrow_view[3 * count : 4 * count]
        self.header_start = narrow_view[4 * count : 5 * count]
        self.header_count = narrow_view[5 * count :]

    def __len__(self) -> int:
        return self.header.record_count

    def __repr__(self) -> str:
        header = self.header
        return f"<Columns of {header.record_count} records, offsets {header.base_offset} to {header.last_offset}>"

    @property
    def count(self) -> int:
        return self.header.record_count

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def last_offset(self) -> int:
        return self.header.last_offset

    @property
    def leader_epoch(self) -> int:
        return self.header.leader_epoch

    @property
    def compression(self) -> Compression:
        return Compression(self.header.attributes & COMPRESSION_MASK)

    @property
    def is_control(self) -> bool:
        return self.header.is_control

    @property
    def is_transactional(self) -> bool:
        return self.header.is_transactional

    @property
    def producer_id(self) -> int:
        return self.header.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.header.producer_epoch

    @property
    def base_sequence(self) -> int:
        return self.header.base_sequence

    def key(self, row: int) -> bytes | None:
        return _cut(self.payload, self.key_start[row], self.key_length[row])

    def value(self, row: int) -> bytes | None:
        return _cut(self.payload, self.value_start[row], self.value_length[row])

    def headers(self, row: int) -> tuple[Header, ...]:
        count = self.header_count[row]
        return read_headers(self.payload, self.header_start[row], count) if count else ()

    def record(self, row: int) -> Record:
        return Record(self.offsets[row], self.timestamps[row], self.key(row), self.value(row), self.headers(row))

    def records(self) -> Iterator[Record]:
        """Each row as a `Record`; for those who print or test, not for the hot path."""
        # One copy of the whole payload is cheaper than a view per field.
        payload = bytes(self.payload)
        for offset, timestamp, key_start, key_length, value_start, value_length, header_start, header_count in zip(
            self.offsets,
            self.timestamps,
            self.key_start,
            self.key_length,
            self.value_start,
            self.value_length,
            self.header_start,
            self.header_count,
            strict=True,
        ):
            yield Record(
                offset,
                timestamp,
                None if key_length < 0 else payload[key_start : key_start + key_length],
                None if value_length < 0 else payload[value_start : value_start + value_length],
                read_headers(payload, header_start, header_count) if header_count else (),
            )

    def __iter__(self) -> Iterator[Record]:
        return self.records()


def _cut(payload: Buffer, start: int, length: int) -> bytes | None:
    return None if length < 0 else bytes(payload[start : start + length])


def read_headers(payload: Buffer, position: int, count: int) -> tuple[Header, ...]:
    """Headers that the scan has already walked and found sound."""
    headers: list[Header] = []
    for _ in range(count):
        length, position = read_varint(payload, position)
        key = str(payload[position : position + length], "utf-8", "replace")
        position += length
        length, position = read_varint(payload, position)
        headers.append((key, _cut(payload, position, length)))
        position += max(length, 0)
    return tuple(headers)


def read_varint(payload: Buffer, position: int) -> tuple[int, int]:
    """Return a zigzag varint that was found sound before, and the position after it."""
    value = shift = 0
    while True:
        byte = payload[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
        shift += 7
