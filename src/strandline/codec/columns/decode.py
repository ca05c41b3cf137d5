"""Batch bytes to columns: check the header before a byte of it is trusted, inflate, scan.

Every count and length is bounded before memory is taken for it: a batch must be exactly as long as its header says, its
count of records must fit into its payload at seven bytes each, and what a codec may inflate has a limit.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from strandline.codec.checksum import crc32c
from strandline.codec.columns import _scan
from strandline.codec.columns.batch import Columns, Record
from strandline.codec.compression import DECOMPRESSED_BYTES_MAX, Buffer, decompress
from strandline.codec.record_batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LENGTH_POSITION,
    LOG_APPEND_TIME,
    MAGIC,
    MAGIC_POSITION,
    PREFIX_SIZE,
    RECORD_SIZE_MIN,
    BatchHeader,
)
from strandline.errors import CorruptBatch

PAYLOAD_BYTES_MAX = 2**31 - 1
"""Positions are 32-bit."""

_INT64_MAX = 2**63 - 1
_COMPILED = _scan.is_compiled()
_RECORDS_AHEAD_MAX = 1024
"""How many records `records_of` makes before it hands the first of them out, to the end of a batch."""
_ZERO_WIDE = array("q", (0,))
_ZERO_NARROW = array("i", (0,))


def decoder_name() -> str:
    """Return which twin scans, for `strandline --version`: the plain one is slow."""
    return "cython" if _COMPILED else "python"


def decode_batch(batch: Buffer, *, check_crc: bool = True, size_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> Columns:
    """Decode one batch, header included, that fills `batch` exactly.

    Raises `CorruptBatch` for any damage, `UnsupportedCompression` for an unknown codec, `BatchTooLarge` when the
    records section would be larger than `size_bytes_max` once decompressed.
    """
    return _scan_payload(*payload_of(batch, check_crc=check_crc, size_bytes_max=size_bytes_max))


def payload_of(
    batch: Buffer, *, check_crc: bool = True, size_bytes_max: int = DECOMPRESSED_BYTES_MAX
) -> tuple[BatchHeader, Buffer]:
    """The header and the records section, inflated, of the one batch in `batch`; raises as `decode_batch` does."""
    header = read_header(batch)
    view = memoryview(batch)
    if len(view) != PREFIX_SIZE + header.length:
        raise CorruptBatch(
            f"the batch at offset {header.base_offset} is {len(view)} bytes long, "
            f"its header says {PREFIX_SIZE + header.length}"
        )
    if check_crc and crc32c(view[CRC_START:]) != header.crc:
        raise CorruptBatch(f"the batch at offset {header.base_offset} fails its CRC-32C")
    payload: Buffer = view[HEADER_SIZE:]
    codec = header.attributes & COMPRESSION_MASK
    if codec:
        payload = decompress(codec, payload, size_bytes_max=min(size_bytes_max, PAYLOAD_BYTES_MAX))
    return header, payload


def read_header(batch: Buffer) -> BatchHeader:
    """Unpack the header and check what it says about itself; the length is not compared with the buffer's."""
    if len(batch) < HEADER_SIZE:
        raise CorruptBatch(f"a batch has {HEADER_SIZE} bytes of header, here are {len(batch)} bytes")
    # An old message set has its magic at the same place, and nothing else in common.
    if batch[MAGIC_POSITION] != MAGIC:
        raise CorruptBatch(f"magic is {batch[MAGIC_POSITION]}; only record batches of magic {MAGIC} can be read")
    header = BatchHeader._make(HEADER.unpack_from(batch))
    if header.length < HEADER_SIZE - PREFIX_SIZE:
        raise CorruptBatch(f"the batch length {header.length} is smaller than a header")
    if header.base_offset < 0 or header.last_offset_delta < 0 or header.last_offset > _INT64_MAX:
        raise CorruptBatch(
            f"base offset {header.base_offset} and last offset delta {header.last_offset_delta} make no range"
        )
    # Compaction takes records out and keeps the last delta, so the count may be smaller, never larger.
    if not 0 <= header.record_count <= header.last_offset_delta + 1:
        raise CorruptBatch(
            f"{header.record_count} records cannot lie within a last offset delta of {header.last_offset_delta}"
        )
    return header


def columns_of(batches: Buffer) -> Iterator[Columns]:
    """Decode batch after batch. A last batch that is cut short ends the iteration quietly.

    A fetch answer may end anywhere in a batch, because the broker cuts at a number of bytes.
    """
    view = memoryview(batches)
    position = 0
    while (end := _batch_end(view, position)) is not None:
        yield decode_batch(view[position:end])
        position = end


def records_of(batches: Buffer, *, check_crc: bool = True) -> Iterator[Record]:
    """Every record of every whole batch, control records included; the quickest way to records one by one."""
    source = bytes(batches)
    view = memoryview(source)
    position = 0
    while True:
        records: list[Record] = []
        position = _scan.read_plain_batches(source, position, records, check_crc, _RECORDS_AHEAD_MAX)
        if records:
            yield from records
            continue
        end = _batch_end(view, position)
        if end is None:
            return
        yield from decode_batch(view[position:end], check_crc=check_crc).records()
        position = end


def _batch_end(view: memoryview, position: int) -> int | None:
    """Return where the batch at `position` ends, or none if the buffer ends first."""
    if len(view) - position < PREFIX_SIZE:
        return None
    start = position + LENGTH_POSITION
    length = int.from_bytes(view[start : start + 4], "big", signed=True)
    if length < HEADER_SIZE - PREFIX_SIZE:
        raise CorruptBatch(f"the batch length {length} at position {position} is smaller than a header")
    end = position + PREFIX_SIZE + length
    return end if end <= len(view) else None


def _scan_payload(header: BatchHeader, payload: Buffer) -> Columns:
    count = header.record_count
    if count * RECORD_SIZE_MIN > len(payload) or len(payload) > PAYLOAD_BYTES_MAX:
        raise CorruptBatch(f"{count} records cannot lie in {len(payload)} bytes")
    # With LogAppendTime every record carries the broker's time, whatever its own delta says.
    append_time = header.attributes & LOG_APPEND_TIME
    base_timestamp = 0 if append_time else header.base_timestamp
    wide = _ZERO_WIDE * (2 * count)
    narrow = _ZERO_NARROW * (6 * count)
    try:
        end = _scan.scan_records(
            # Plain Python indexes bytes faster than a view.
            payload if _COMPILED else bytes(payload),
            0,
            len(payload),
            count,
            header.base_offset,
            header.last_offset_delta,
            base_timestamp,
            wide,
            narrow,
        )
    except IndexError as error:
        raise CorruptBatch(f"the batch at offset {header.base_offset} ends within a record") from error
    if end != len(payload):
        raise CorruptBatch(f"{len(payload) - end} bytes follow the {count} records that the header counts")
    if append_time:
        wide[count:] = array("q", (header.max_timestamp,)) * count
    return Columns(header, payload, wide, narrow)
