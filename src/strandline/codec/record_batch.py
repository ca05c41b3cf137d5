"""The header of a record batch (magic 2): all that a broker looks at once the leader has checked the records.

byte  0  base offset            int64    written by the leader; outside the CRC
      8  length                 int32    of what follows this field
     12  leader epoch           int32    written by the leader; outside the CRC
     16  magic                  int8     2
     17  crc                    uint32   CRC-32C of everything from byte 21 on
     21  attributes             int16    0-2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon
     23  last offset delta      int32
     27  base timestamp         int64
     35  max timestamp          int64
     43  producer id            int64
     51  producer epoch         int16
     53  base sequence          int32
     57  record count           int32
     61  records, compressed as one block
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from strandline.codec.checksum import crc32c
from strandline.errors import CorruptBatch, InvalidBatch, UnsupportedCompression

Buffer = bytes | bytearray | memoryview

HEADER: Final = Struct(">qiibIhiqqqhii")
HEADER_SIZE: Final = 61
PREFIX: Final = Struct(">qi")
"""Base offset and length: enough to walk from batch to batch."""
PREFIX_SIZE: Final = 12
LEADER_FIELDS: Final = Struct(">qii")
"""Base offset, length and leader epoch: what the leader writes in place."""
LENGTH_POSITION: Final = 8
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
CRC_START: Final = 21
"""With the attributes."""
MAX_TIMESTAMP_POSITION: Final = 35
MAGIC: Final = 2

COMPRESSION_MASK: Final = 0x07
LOG_APPEND_TIME: Final = 0x08
TRANSACTIONAL: Final = 0x10
CONTROL: Final = 0x20
HAS_DELETE_HORIZON: Final = 0x40
CODEC_MAX: Final = 4
NO_PRODUCER_ID: Final = -1
RECORD_SIZE_MIN: Final = 7
"""Length, attributes, two deltas, two lengths and a header count, a byte each."""
COMPRESSED_RECORDS_MAX: Final = 16 * 1024 * 1024
"""Records that a compressed batch may claim: more would not fit into what any reader is willing to decompress."""


class BatchHeader(NamedTuple):
    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        return self.length + PREFIX_SIZE

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def last_sequence(self) -> int:
        return sequence_after(self.base_sequence, self.last_offset_delta)

    @property
    def delete_horizon_ms(self) -> int | None:
        """Return when the cleaner may drop the tombstones of this batch. It is kept in place of the base timestamp."""
        return self.base_timestamp if self.attributes & HAS_DELETE_HORIZON else None

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)


HeaderFields = tuple[int, int, int, int, int, int, int, int, int, int, int, int, int]
"""The fields of `BatchHeader` as a plain tuple, for hot paths: a named tuple takes longer to make."""

# Where each field is found in `HeaderFields`.
BASE_OFFSET: Final = 0
BATCH_LENGTH: Final = 1
LEADER_EPOCH: Final = 2
MAGIC_BYTE: Final = 3
CRC: Final = 4
ATTRIBUTES: Final = 5
LAST_OFFSET_DELTA: Final = 6
BASE_TIMESTAMP: Final = 7
MAX_TIMESTAMP: Final = 8
PRODUCER_ID: Final = 9
PRODUCER_EPOCH: Final = 10
BASE_SEQUENCE: Final = 11
RECORD_COUNT: Final = 12


def is_marker(header: HeaderFields | BatchHeader) -> bool:
    """Return whether it is a control batch of a producer: it ends a transaction."""
    return header[ATTRIBUTES] & CONTROL != 0 and header[PRODUCER_ID] >= 0


def sequence_after(sequence: int, delta: int) -> int:
    """Return the sequence `delta` further on. Sequences wrap from 2^31-1 to 0."""
    return (sequence + delta) & 0x7FFFFFFF


def check_batch(batch: Buffer) -> HeaderFields:
    """Return the header of the one batch in `batch` if length, magic, CRC and counts agree.

    Else raises CorruptBatch, after which clients retry, or InvalidBatch, as Kafka does. This is the hot path of
    Produce, so the header is a plain tuple. Records are checked later.
    """
    if len(batch) < HEADER_SIZE:
        raise InvalidBatch(f"{len(batch)} bytes are no record batch")
    header = HEADER.unpack_from(batch)
    _, length, _, magic, crc, attributes, last_offset_delta, _, _, _, _, _, record_count = header
    if magic != MAGIC:
        if magic in (0, 1):
            raise InvalidBatch(f"record batch with magic {magic}; brokers since 4.0 accept only magic 2")
        raise CorruptBatch(f"record batch with magic {magic}; only magic 2 is accepted")
    if length != len(batch) - PREFIX_SIZE:
        if length < HEADER_SIZE - PREFIX_SIZE:
            raise CorruptBatch(f"batch length {length} is shorter than the header")
        if length > len(batch) - PREFIX_SIZE:
            raise InvalidBatch(f"batch length {length} does not fit the {len(batch)} bytes sent")
        raise InvalidBatch("more than one record batch for a partition in one Produce request")
    if crc32c(batch[CRC_START:]) != crc:
        raise CorruptBatch("record batch with a wrong CRC")
    if record_count < 1 or last_offset_delta != record_count - 1:
        # A producer numbers its records without gaps. Only the cleaner makes gaps, and it does not come by here.
        raise InvalidBatch(f"record count {record_count} disagrees with last offset delta {last_offset_delta}")
    if record_count * RECORD_SIZE_MIN > len(batch) - HEADER_SIZE and (
        not attributes & COMPRESSION_MASK or record_count > COMPRESSED_RECORDS_MAX
    ):
        # A count is a claim on offsets: two billion in sixty bytes would make every batch begin a new segment.
        raise InvalidBatch(f"{record_count} records do not fit into a batch of {len(batch)} bytes")
    if attributes & COMPRESSION_MASK > CODEC_MAX:
        raise UnsupportedCompression(f"unknown compression codec {attributes & COMPRESSION_MASK}")
    return header


def stamp_append_time(batch: memoryview | bytearray, header: HeaderFields, now_ms: int) -> HeaderFields:
    """Set LogAppendTime and the broker's time in the header, and with them the CRC. Return the new header."""
    attributes = header[ATTRIBUTES] | LOG_APPEND_TIME
    batch[CRC_START : CRC_START + 2] = attributes.to_bytes(2, "big")
    batch[MAX_TIMESTAMP_POSITION : MAX_TIMESTAMP_POSITION + 8] = now_ms.to_bytes(8, "big")
    batch[CRC_POSITION : CRC_POSITION + 4] = crc32c(memoryview(batch)[CRC_START:]).to_bytes(4, "big")
    return HEADER.unpack_from(batch)


def check_run(run: memoryview, *, next_offset: int, leader_epoch: int) -> tuple[list[HeaderFields], int]:
    """Return the headers of the whole batches in `run`, fetched from a leader in `leader_epoch`, and their size.

    A batch that is cut at the end is left out. Raises CorruptBatch if a leader would not send one of them to a log that
    ends at `next_offset`: then none may be written. The leader has checked the records.
    """
    headers: list[HeaderFields] = []
    at = 0
    left = len(run)
    while left >= HEADER_SIZE:
        header = HEADER.unpack_from(run, at)
        base_offset, length, epoch, magic, crc, _, last_offset_delta, _, _, _, _, _, _ = header
        size = length + PREFIX_SIZE
        if magic != MAGIC or size < HEADER_SIZE or last_offset_delta < 0:
            raise CorruptBatch(f"no batch header where offset {next_offset} is expected")
        if size > left:
            break
        if crc32c(run[at + CRC_START : at + size]) != crc:
            raise CorruptBatch(f"batch {base_offset} was fetched with a wrong CRC")
        if base_offset < next_offset:
            raise CorruptBatch(f"batch {base_offset} was fetched where offset {next_offset} is expected")
        if epoch > leader_epoch:
            raise CorruptBatch(f"batch {base_offset} is of epoch {epoch}, fetched from the leader of {leader_epoch}")
        headers.append(header)
        next_offset = base_offset + last_offset_delta + 1
        at += size
        left -= size
    return headers, at


def parse_header(buffer: Buffer, position: int = 0) -> BatchHeader:
    return BatchHeader._make(HEADER.unpack_from(buffer, position))


def is_intact(batch: Buffer) -> bool:
    """Return whether the CRC of `batch` (one whole batch) is right."""
    return bool(crc32c(memoryview(batch)[CRC_START:]) == HEADER.unpack_from(batch)[CRC])
