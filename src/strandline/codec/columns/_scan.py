"""The hot loop of the one decoder: the bytes of a records section to positions, one row per record.

This file is both twins. Uncompiled it is plain Python; Cython compiles the very same text with the C types of
`_scan.pxd` beside it, and the extension then shadows this file on import. Keep to ints, indexing and fixed-size output,
so that both stay fast and equal. Two rules follow from C: no expression may leave 64 bits, and every index is checked
(`boundscheck` stays on), so a read past the end is an IndexError in both.

A record, all numbers zigzag varints:
    length | attributes int8 | timestampDelta | offsetDelta | keyLength key | valueLength value | headerCount header*
    header = keyLength key | valueLength value                                       a length of -1 stands for null
"""

from __future__ import annotations

from collections.abc import MutableSequence, Sequence

from strandline.errors import CorruptBatch


def is_compiled() -> bool:
    """True in the extension, false in the plain twin."""
    return not __file__.endswith(".py")


def varint_raw(payload: Sequence[int], position: int, bytes_max: int) -> tuple[int, int]:
    """An unsigned varint of more than one byte: (value, position after it). 5 bytes carry 32 bits, 10 carry 64."""
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


def skip_headers(payload: Sequence[int], position: int, count: int, record_end: int) -> int:
    """Walk `count` headers and return the position after them; none may leave its record."""
    for _ in range(count):
        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        if length & 1:
            raise CorruptBatch(f"a header key at {position} has a negative length")
        length >>= 1
        if length > record_end - position:
            raise CorruptBatch(f"a header key at {position} leaves its record")
        position += length

        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        if length & 1:
            if length != 1:
                raise CorruptBatch(f"a header value at {position} has a negative length")
        else:
            length >>= 1
            if length > record_end - position:
                raise CorruptBatch(f"a header value at {position} leaves its record")
            position += length
    return position


def scan_records(
    payload: Sequence[int],
    count: int,
    base_offset: int,
    last_offset_delta: int,
    base_timestamp: int,
    timestamp_delta_min: int,
    timestamp_delta_max: int,
    offsets: MutableSequence[int],
    timestamps: MutableSequence[int],
    key_start: MutableSequence[int],
    key_length: MutableSequence[int],
    value_start: MutableSequence[int],
    value_length: MutableSequence[int],
    header_start: MutableSequence[int],
    header_count: MutableSequence[int],
) -> int:
    """Fill `count` rows of the columns and return the position after the last record.

    The columns must have `count` rows already, and the limits for the timestamp delta must keep the sum within 64 bits.
    """
    end = len(payload)
    position = 0
    offset_delta_min = 0
    for row in range(count):
        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        if length & 1 or length >> 1 > end - position:
            raise CorruptBatch(f"record {row} at {position} has a length beyond the batch")
        record_end = position + (length >> 1)

        # The attributes byte of a record is unused: Kafka neither sets nor reads it.
        delta = payload[position + 1]
        position += 2
        if delta >= 0x80:
            delta, position = varint_raw(payload, position - 1, 10)
        timestamp_delta = (delta >> 1) ^ -(delta & 1)
        if timestamp_delta < timestamp_delta_min or timestamp_delta > timestamp_delta_max:
            raise CorruptBatch(f"record {row} has a timestamp that overflows")
        timestamps[row] = base_timestamp + timestamp_delta

        delta = payload[position]
        position += 1
        if delta >= 0x80:
            delta, position = varint_raw(payload, position - 1, 5)
        # Compaction leaves gaps, but offsets only ever grow, and the header's last delta bounds them all.
        offset_delta = delta >> 1
        if delta & 1 or offset_delta < offset_delta_min or offset_delta > last_offset_delta:
            raise CorruptBatch(f"record {row} has an offset delta out of order or beyond {last_offset_delta}")
        offset_delta_min = offset_delta + 1
        offsets[row] = base_offset + offset_delta

        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        key_start[row] = position
        if length & 1:
            if length != 1:
                raise CorruptBatch(f"record {row} has a negative key length")
            key_length[row] = -1
        else:
            length >>= 1
            if length > record_end - position:
                raise CorruptBatch(f"the key of record {row} leaves its record")
            key_length[row] = length
            position += length

        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        value_start[row] = position
        if length & 1:
            if length != 1:
                raise CorruptBatch(f"record {row} has a negative value length")
            value_length[row] = -1
        else:
            length >>= 1
            if length > record_end - position:
                raise CorruptBatch(f"the value of record {row} leaves its record")
            value_length[row] = length
            position += length

        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = varint_raw(payload, position - 1, 5)
        header_start[row] = position
        if length:
            # A header takes two bytes at least, so a lying count ends here and not after a long walk.
            if length & 1 or length > record_end - position:
                raise CorruptBatch(f"record {row} has an impossible number of headers")
            length >>= 1
            header_count[row] = length
            position = skip_headers(payload, position, length, record_end)
        if position != record_end:
            raise CorruptBatch(f"record {row} ends at {position}, its length says {record_end}")
    return position
