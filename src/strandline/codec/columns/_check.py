"""The hot loop over records that come in: is each of them one that the decoder will read?

Like `_scan` this file is both twins: plain Python as it stands, an extension where Cython compiled the same text with
the C types of `_check.pxd`. It makes no object per record and copies nothing. Its rules are those of `_scan`, and the
offset deltas of a producer's batch have no gaps on top of that; a fuzz target holds both against each other. No
expression may leave 64 bits, and every index is checked, so a read past the end is an IndexError in both.
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.errors import CorruptBatch, InvalidRecords

KEYLESS_MAX = 1000
"""Records without a key that the error names one by one; for the rest there is the error of the batch."""


def is_compiled() -> bool:
    """Return true in the extension, false in the plain twin."""
    return not __file__.endswith(".py")


def long_varint(payload: Sequence[int], position: int, bytes_max: int) -> tuple[int, int]:
    """Return an unsigned varint of more than one byte and the position after it. 5 bytes carry 32 bits, 10 carry 64."""
    value = payload[position] & 0x7F
    shift = 7
    index = 1
    while True:
        byte = payload[position + index]
        index += 1
        if index == bytes_max and byte > (0x0F if bytes_max == 5 else 0x01):
            raise CorruptBatch(f"a varint is longer than {bytes_max} bytes or overflows")
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
            length, position = long_varint(payload, position - 1, 5)
        if length & 1 or length >> 1 > record_end - position:
            raise CorruptBatch("a header key is null or leaves the record")
        position += length >> 1

        length = payload[position]
        position += 1
        if length >= 0x80:
            length, position = long_varint(payload, position - 1, 5)
        if length != 1:
            if length & 1 or length >> 1 > record_end - position:
                raise CorruptBatch("a header value leaves the record")
            position += length >> 1
    return position


def check_records(
    payload: Sequence[int],
    position: int,
    end: int,
    row: int,
    row_end: int,
    base_timestamp: int,
    keyless: list[int] | None,
) -> int:
    """Check records `row` up to `row_end`, which begin at `position`; return the position after the last of them.

    `keyless` gets the rows whose key is null, `KEYLESS_MAX` at most; it is None where keys may be null. Raises
    InvalidRecords, which names the row, and nothing else. The caller compares the last position with the end.
    """
    # Base and delta must add up within 64 bits.
    timestamp_delta_min = -0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp < 0 else 0)
    timestamp_delta_max = 0x7FFFFFFFFFFFFFFF - (base_timestamp if base_timestamp > 0 else 0)
    keyless_max = KEYLESS_MAX
    try:
        # Two bytes of a varint are read in place: in C, a call with a typed view copies all 208 bytes of it.
        while row < row_end:
            length = payload[position]
            position += 1
            if length >= 0x80:
                byte = payload[position]
                position += 1
                length = length & 0x7F | byte << 7
                if byte >= 0x80:
                    length, position = long_varint(payload, position - 2, 5)
            if length & 1 or length >> 1 > end - position:
                raise CorruptBatch("its length is negative or beyond the batch")
            record_end = position + (length >> 1)

            # The attributes byte of a record has no meaning yet, so its value is not checked.
            delta = payload[position + 1]
            position += 2
            if delta >= 0x80:
                byte = payload[position]
                position += 1
                delta = delta & 0x7F | byte << 7
                if byte >= 0x80:
                    delta, position = long_varint(payload, position - 2, 10)
            timestamp_delta = (delta >> 1) ^ -(delta & 1)
            if timestamp_delta < timestamp_delta_min or timestamp_delta > timestamp_delta_max:
                raise CorruptBatch("its timestamp overflows")

            delta = payload[position]
            position += 1
            if delta >= 0x80:
                byte = payload[position]
                position += 1
                delta = delta & 0x7F | byte << 7
                if byte >= 0x80:
                    delta, position = long_varint(payload, position - 2, 5)
            # A producer numbers without gaps, and every reader adds the delta to the batch's base offset.
            if delta != row << 1:
                raise CorruptBatch("its offset delta is not its place in the batch")

            length = payload[position]
            position += 1
            if length >= 0x80:
                byte = payload[position]
                position += 1
                length = length & 0x7F | byte << 7
                if byte >= 0x80:
                    length, position = long_varint(payload, position - 2, 5)
            if length == 1:
                if keyless is not None and len(keyless) < keyless_max:
                    keyless.append(row)
            else:
                if length & 1 or length >> 1 > record_end - position:
                    raise CorruptBatch("its key leaves the record")
                position += length >> 1

            length = payload[position]
            position += 1
            if length >= 0x80:
                byte = payload[position]
                position += 1
                length = length & 0x7F | byte << 7
                if byte >= 0x80:
                    length, position = long_varint(payload, position - 2, 5)
            if length != 1:
                if length & 1 or length >> 1 > record_end - position:
                    raise CorruptBatch("its value leaves the record")
                position += length >> 1

            length = payload[position]
            position += 1
            if length >= 0x80:
                byte = payload[position]
                position += 1
                length = length & 0x7F | byte << 7
                if byte >= 0x80:
                    length, position = long_varint(payload, position - 2, 5)
            if length:
                # A header takes two bytes at least, so a lying count ends here and not after a long walk.
                if length & 1 or length > record_end - position:
                    raise CorruptBatch("its number of headers is impossible")
                position = skip_headers(payload, position, length >> 1, record_end)
            if position != record_end:
                raise CorruptBatch("its fields do not fill the length it states")
            row += 1
    except IndexError:
        raise InvalidRecords.at(row, "the batch ends within it") from None
    except CorruptBatch as fault:
        raise InvalidRecords.at(row, str(fault)) from None
    return position
