"""The hot loops of the one decoder: the bytes of records to positions, and whole plain batches to records.

This file is both twins. Uncompiled it is plain Python; Cython compiles the very same text with the C types of
`_scan.pxd` beside it, and the extension then shadows this file on import. Keep to ints, indexing and fixed-size output,
so that both stay fast and equal. Two rules follow from C: no expression may leave 64 bits, and every index is checked
(`boundscheck` stays on), so a read past the end is an IndexError in both.

A record, all numbers zigzag varints:
    length | attributes int8 | timestampDelta | offsetDelta | keyLength key | valueLength value | headerCount header*
    header = keyLength key | valueLength value                                       a length of -1 stands for null
"""

from __future__ import annotations

from array import array
from collections.abc import MutableSequence, Sequence

from strandline.codec.checksum import crc32c
from strandline.codec.columns.batch import Record, read_headers
from strandline.codec.record_batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    PREFIX,
    PREFIX_SIZE,
    RECORD_SIZE_MIN,
)
from strandline.errors import CorruptBatch

unpack_header = HEADER.unpack_from
unpack_prefix = PREFIX.unpack_from
LONG = array("q", (0,))
INT = array("i", (0,))
new_tuple = tuple.__new__


def is_compiled() -> bool:
    """Return true in the extension, false in the plain twin."""
    return not __file__.endswith(".py")


def varint_raw(payload: Sequence[int], position: int, bytes_max: int) -> tuple[int, int]:
    """Return an unsigned varint of more than one byte and the position after it. 5 bytes carry 32 bits, 10 carry 64."""
    value = payload[position] & 0x7F
    shift = 7
    index = 1
    while True:
        byte = payload[position + index]
        index += 1
        if index == bytes_max and byte > (0x0F if bytes_max == 5 else 0x01):
            raise CorruptBatch(f"a varint at {position} is longer than {bytes_max} bytes or overflows")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position + index
        shift += 7


def scan_headers(payload: Sequence[int], position: int, count: int, record_end: int) -> int:
    """Walk `count` headers and return the position after them; none may leave its record."""
    for _ in range(count):
        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        if length & 1 or length >> 1 > record_end - position:
            raise CorruptBatch(f"a header key at {position} is null or leaves its record")
        position += length >> 1

        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        if length != 1:
            if length & 1 or length >> 1 > record_end - position:
                raise CorruptBatch(f"a header value at {position} leaves its record")
            position += length >> 1
    return position


def scan_records(
    payload: Sequence[int],
    position: int,
    end: int,
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    wide: MutableSequence[int],
    narrow: MutableSequence[int],
) -> int:
    """Fill `count` rows of every column from `payload[position:end]` and return the position after the last record.

    `wide` holds offsets and timestamps, `narrow` key start, key length, value start, value length, header start and
    header count, column after column, `count` rows each: two buffers to open per batch are cheaper than eight.
    """
    # Base and delta must add up within 64 bits.
    timestamp_delta_min = -0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp < 0 else 0)
    timestamp_delta_max = 0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp > 0 else 0)
    # Two bytes of a varint are read in place: in C, a call with a typed view copies all 208 bytes of it.
    offset_delta_min = 0
    for row in range(count):
        length = payload[position]
        position += 1
        if length >= 0x80:
            byte = payload[position]
            position += 1
            length = length & 0x7F | byte << 7
            if byte >= 0x80:
                length, position = varint_raw(payload, position - 2, 5)
        if length & 1 or length >> 1 > end - position:
            raise CorruptBatch(f"record {row} at {position} has a length beyond the batch")
        record_end = position + (length >> 1)

        # The attributes byte of a record means nothing yet, so it is skipped, whatever it says.
        delta = payload[position + 1]
        position += 2
        if delta >= 0x80:
            byte = payload[position]
            position += 1
            delta = delta & 0x7F | byte << 7
            if byte >= 0x80:
                delta, position = varint_raw(payload, position - 2, 10)
        timestamp_delta = (delta >> 1) ^ -(delta & 1)
        if timestamp_delta < timestamp_delta_min or timestamp_delta > timestamp_delta_max:
            raise CorruptBatch(f"record {row} has a timestamp that overflows")
        wide[count + row] = base_timestamp + timestamp_delta

        delta = payload[position]
        position += 1
        if delta >= 0x80:
            byte = payload[position]
            position += 1
            delta = delta & 0x7F | byte << 7
            if byte >= 0x80:
                delta, position = varint_raw(payload, position - 2, 5)
        # Compaction leaves gaps, but offsets only ever grow, and the header's last delta bounds them all.
        offset_delta = delta >> 1
        if delta & 1 or offset_delta < offset_delta_min or offset_delta > last_offset_delta:
            raise CorruptBatch(f"record {row} has an offset delta out of order or beyond {last_offset_delta}")
        offset_delta_min = offset_delta + 1
        wide[row] = base_offset + offset_delta

        length = payload[position]
        position += 1
        if length >= 0x80:
            byte = payload[position]
            position += 1
            length = length & 0x7F | byte << 7
            if byte >= 0x80:
                length, position = varint_raw(payload, position - 2, 5)
        narrow[row] = position
        if length == 1:
            narrow[count + row] = -1
        else:
            if length & 1 or length >> 1 > record_end - position:
                raise CorruptBatch(f"the key of record {row} leaves its record")
            narrow[count + row] = length >> 1
            position += length >> 1

        length = payload[position]
        position += 1
        if length >= 0x80:
            byte = payload[position]
            position += 1
            length = length & 0x7F | byte << 7
            if byte >= 0x80:
                length, position = varint_raw(payload, position - 2, 5)
        narrow[2 * count + row] = position
        if length == 1:
            narrow[3 * count + row] = -1
        else:
            if length & 1 or length >> 1 > record_end - position:
                raise CorruptBatch(f"the value of record {row} leaves its record")
            narrow[3 * count + row] = length >> 1
            position += length >> 1

        length = payload[position]
        position += 1
        if length >= 0x80:
            byte = payload[position]
            position += 1
            length = length & 0x7F | byte << 7
            if byte >= 0x80:
                length, position = varint_raw(payload, position - 2, 5)
        narrow[4 * count + row] = position
        narrow[5 * count + row] = length >> 1
        if length:
            # A header takes two bytes at least, so a lying count ends here and not after a long walk.
            if length & 1 or length > record_end - position:
                raise CorruptBatch(f"record {row} has an impossible number of headers")
            position = scan_headers(payload, position, length >> 1, record_end)
        if position != record_end:
            raise CorruptBatch(f"record {row} ends at {position}, its length says {record_end}")
    return position


def read_plain_batches(source: bytes, position: int, records: list[Record], check_crc: bool, records_max: int) -> int:
    """Append the records of whole, sound, uncompressed batches to `records`; return the position of the next batch.

    This is the short way for logs of small batches, where columns would cost more than what they hold. It stops, and
    says nothing, before the first batch that is compressed, damaged or cut short: `decode_batch` knows what to do then.
    """
    payload = source
    size = min(len(source), 0x7FFFFFFF)  # Positions are 32-bit; what lies further goes the long way.
    # As locals these are C integers; as globals they would be Python objects, looked up and compared for every batch.
    header_bytes, overhead_bytes, crc_start = HEADER_SIZE, PREFIX_SIZE, CRC_START
    record_bytes_min, batch_magic, codec_mask = RECORD_SIZE_MIN, MAGIC, COMPRESSION_MASK
    append_time_bit, offset_max = LOG_APPEND_TIME, 0x7FFFFFFFFFFFFFFF
    rows = 16
    wide = LONG * (2 * rows)
    narrow = INT * (6 * rows)
    while size - position >= header_bytes and len(records) < records_max:
        (
            base_offset,
            batch_length,
            _,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            _,
            _,
            _,
            count,
        ) = unpack_header(source, position)
        start = position + header_bytes
        end = position + overhead_bytes + batch_length
        if magic != batch_magic or attributes & codec_mask or end < start or end > size:
            break
        if base_offset < 0 or last_offset_delta < 0 or base_offset > offset_max - last_offset_delta:
            break
        if count < 0 or count > last_offset_delta + 1 or count > (end - start) // record_bytes_min:
            break
        if check_crc and crc32c(source[position + crc_start : end]) != crc:
            break
        if count > rows:
            rows = count
            wide = LONG * (2 * rows)
            narrow = INT * (6 * rows)
        append_time = attributes & append_time_bit
        if append_time:
            base_timestamp = 0
        try:
            if (
                scan_records(payload, start, end, count, base_offset, last_offset_delta, base_timestamp, wide, narrow)
                != end
            ):
                break
        except (CorruptBatch, IndexError):
            # The strict way will say what is wrong with this batch; the records before it are good.
            break
        for row in range(count):
            key_start = narrow[row]
            key_length = narrow[count + row]
            value_start = narrow[2 * count + row]
            value_length = narrow[3 * count + row]
            header_count = narrow[5 * count + row]
            records.append(
                new_tuple(
                    Record,
                    (
                        wide[row],
                        max_timestamp if append_time else wide[count + row],
                        None if key_length < 0 else source[key_start : key_start + key_length],
                        None if value_length < 0 else source[value_start : value_start + value_length],
                        read_headers(source, narrow[4 * count + row], header_count) if header_count else (),
                    ),
                )
            )
        position = end
    return position


def read_record(source: bytes, offset: int) -> Record | None:
    """Return the record at `offset`, if a whole, sound, uncompressed batch of `source` has it.

    `source` begins with a batch. None says only that this way does not find the record.
    """
    size, overhead_bytes = len(source), PREFIX_SIZE
    position = following = 0
    while size - following >= overhead_bytes:
        base_offset, batch_length = unpack_prefix(source, following)
        if base_offset > offset or batch_length < 0:
            break
        position = following
        following += overhead_bytes + batch_length
    records: list[Record] = []
    read_plain_batches(source, position, records, True, 1)
    for record in records:
        if record[0] == offset:
            return record
    return None


def scan_batches(
    source: bytes | memoryview,
    position: int,
    batches: MutableSequence[int],
    wide: MutableSequence[int],
    narrow: MutableSequence[int],
    filled: MutableSequence[int],
    check_crc: bool,
) -> int:
    """Add the rows of whole, sound, uncompressed batches to columns; return the position of the next batch.

    `filled` counts the batches and rows that are there, before and after. `wide` and `narrow` are as `scan_records`
    fills them, with as many rows as they have room for; positions count from `source[0]`. `batches` gets six numbers of
    each batch: base offset, last offset, leader epoch, attributes, producer id, rows. It stops, and says nothing, at
    the first batch that is compressed, damaged, cut short, or that there is no room for.
    """
    payload = source
    view = memoryview(source)
    size = min(len(source), 0x7FFFFFFF)  # Positions are 32-bit; what lies further goes the long way.
    header_bytes, overhead_bytes, crc_start = HEADER_SIZE, PREFIX_SIZE, CRC_START
    record_bytes_min, batch_magic, codec_mask = RECORD_SIZE_MIN, MAGIC, COMPRESSION_MASK
    append_time_bit, offset_max = LOG_APPEND_TIME, 0x7FFFFFFFFFFFFFFF
    rows_max = len(wide) // 2
    batches_max = len(batches) // 6
    batch_count = filled[0]
    rows_before = filled[1]
    rows = 16
    batch_wide = array("q", (0,)) * (2 * rows)
    batch_narrow = array("i", (0,)) * (6 * rows)
    while size - position >= header_bytes and batch_count < batches_max:
        (
            base_offset,
            batch_length,
            leader_epoch,
            magic,
            crc,
            attributes,
            last_offset_delta,
            base_timestamp,
            max_timestamp,
            producer_id,
            _,
            _,
            count,
        ) = unpack_header(source, position)
        start = position + header_bytes
        end = position + overhead_bytes + batch_length
        if magic != batch_magic or attributes & codec_mask or end < start or end > size:
            break
        if base_offset < 0 or last_offset_delta < 0 or base_offset > offset_max - last_offset_delta:
            break
        if count < 0 or count > last_offset_delta + 1 or count > (end - start) // record_bytes_min:
            break
        if count > rows_max - rows_before:
            break
        if check_crc and crc32c(view[position + crc_start : end]) != crc:
            break
        if count > rows:
            rows = count
            batch_wide = array("q", (0,)) * (2 * rows)
            batch_narrow = array("i", (0,)) * (6 * rows)
        append_time = attributes & append_time_bit
        if append_time:
            base_timestamp = 0
        try:
            if (
                scan_records(
                    payload, start, end, count, base_offset, last_offset_delta, base_timestamp, batch_wide, batch_narrow
                )
                != end
            ):
                break
        except (CorruptBatch, IndexError):
            # The strict way will say what is wrong with this batch; the rows before it are good.
            break
        for row in range(count):
            at = rows_before + row
            wide[at] = batch_wide[row]
            wide[rows_max + at] = max_timestamp if append_time else batch_wide[count + row]
            narrow[at] = batch_narrow[row]
            narrow[rows_max + at] = batch_narrow[count + row]
            narrow[2 * rows_max + at] = batch_narrow[2 * count + row]
            narrow[3 * rows_max + at] = batch_narrow[3 * count + row]
            narrow[4 * rows_max + at] = batch_narrow[4 * count + row]
            narrow[5 * rows_max + at] = batch_narrow[5 * count + row]
        at = 6 * batch_count
        batches[at] = base_offset
        batches[at + 1] = base_offset + last_offset_delta
        batches[at + 2] = leader_epoch
        batches[at + 3] = attributes
        batches[at + 4] = producer_id
        batches[at + 5] = count
        batch_count += 1
        rows_before += count
        position = end
    filled[0] = batch_count
    filled[1] = rows_before
    return position


def locate_headers(
    payload: Sequence[int], starts: Sequence[int], counts: Sequence[int], positions: MutableSequence[int]
) -> int:
    """Find the headers of rows that a scan has found sound. Return how many there are.

    `positions` gets key start, key length, value start and value length of each, four numbers a header.
    """
    found = 0
    for row in range(len(starts)):
        position = starts[row]
        for _ in range(counts[row]):
            at = 4 * found
            for field in range(2):
                length = payload[position]
                position += 1
                if length >= 0x80:
                    length, position = varint_raw(payload, position - 1, 5)
                positions[at + 2 * field] = position
                if length & 1:
                    positions[at + 2 * field + 1] = -1
                else:
                    positions[at + 2 * field + 1] = length >> 1
                    position += length >> 1
            found += 1
    return found
