"""How values lie in row events: a function for each physical type that reads one.

    | type | bytes |
    | integers, FLOAT, DOUBLE | little-endian, of their size |
    | DECIMAL | groups of nine digits, big-endian; the first bit is the sign, negative numbers are inverted |
    | DATE | 3, little-endian: 15 bits of year, 4 of month, 5 of day |
    | TIMESTAMP, DATETIME, TIME | 4, 5 or 3, big-endian, and 0 to 3 of the second's fraction |
    | texts, bytes, geometries | a length of 1 to 4 bytes, and so many bytes |
    | ENUM, SET | the number of the label, a bit for each label |

A date that is none (0000-00-00, or with a month or day of 0) reads as NULL, or as 1970-01-01 if the column has no NULL.
"""

from __future__ import annotations

import socket
import struct
import uuid
import zlib
from collections.abc import Callable, Sequence
from datetime import date
from decimal import Decimal
from typing import Any, Final

from strandline.cdc.mariadb.charsets import Decode
from strandline.cdc.mariadb.shapes import ReadValue
from strandline.connect.failures import ConnectFailed

EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
DAY_US: Final = 86_400_000_000
_DAYS_OF_400_YEARS: Final = 146_097
_FRACTION_US: Final = (0, 10_000, 100, 1)
"""Microseconds of one unit of a fraction with so many bytes."""
_BYTES_OF_DIGITS: Final = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
_ZLIB: Final = 8
"""The number of zlib among the methods of compressed columns."""


def number(code: str) -> ReadValue:
    """Read a number with a format of `struct`."""
    unpack = struct.Struct(f"<{code}")
    size, unpack_from = unpack.size, unpack.unpack_from
    return lambda data, at: (unpack_from(data, at)[0], at + size)


def mediumint(is_unsigned: bool) -> ReadValue:
    """Read a number of three bytes."""
    from_bytes, is_signed = int.from_bytes, not is_unsigned
    return lambda data, at: (from_bytes(data[at : at + 3], "little", signed=is_signed), at + 3)


def year(data: bytes, at: int) -> tuple[int, int]:
    """Read a year; 0000 is stored as 0."""
    return (data[at] + 1900 if data[at] else 0), at + 1


def decimal(precision: int, scale: int) -> ReadValue:
    """Read a DECIMAL."""
    whole_groups, whole_rest = divmod(precision - scale, 9)
    part_groups, part_rest = divmod(scale, 9)
    sizes = [(_BYTES_OF_DIGITS[whole_rest], whole_rest)] * bool(whole_rest) + [(4, 9)] * (whole_groups + part_groups)
    sizes += [(_BYTES_OF_DIGITS[part_rest], part_rest)] * bool(part_rest)
    size = sum(each for each, _ in sizes)
    from_bytes = int.from_bytes
    flip = (1 << 8 * size) - 1
    sign = 1 << (8 * size - 1)

    def read(data: bytes, at: int) -> tuple[Decimal, int]:
        packed = from_bytes(data[at : at + size], "big")
        is_negative = not packed & sign
        raw = ((packed ^ flip if is_negative else packed) & ~sign).to_bytes(size, "big")
        place = 0
        digits = 0
        for width, count in sizes:
            digits = digits * 10**count + from_bytes(raw[place : place + width], "big")
            place += width
        text = str(digits)
        if scale:
            text = text.rjust(scale + 1, "0")
            text = f"{text[:-scale]}.{text[-scale:]}"
        return Decimal(f"-{text}" if is_negative and digits else text), at + size

    return read


def days_of(year_: int, month: int, day: int) -> int | None:
    """Return the days since 1970 of a date; None if there is no such day."""
    try:
        if year_:
            return date(year_, month, day).toordinal() - EPOCH_DAY
        return date(400, month, day).toordinal() - EPOCH_DAY - _DAYS_OF_400_YEARS
    except ValueError:
        return None


def day(empty: int | None) -> ReadValue:
    """Read a DATE; `empty` stands for a date that is none."""

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        found = days_of(packed >> 9, packed >> 5 & 15, packed & 31)
        return (empty if found is None else found), at + 3

    return read


def timestamp(digits: int, empty: int | None) -> ReadValue:
    """Read a TIMESTAMP."""
    fraction = (digits + 1) // 2
    unit, size, from_bytes = _FRACTION_US[fraction], 4 + fraction, int.from_bytes

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        seconds = from_bytes(data[at : at + 4], "big")
        us = from_bytes(data[at + 4 : at + size], "big") * unit
        return (seconds * 1_000_000 + us if seconds or us else empty), at + size

    return read


def datetime(digits: int, empty: int | None) -> ReadValue:
    """Read a DATETIME."""
    fraction = (digits + 1) // 2
    unit, size, from_bytes = _FRACTION_US[fraction], 5 + fraction, int.from_bytes

    def read(data: bytes, at: int) -> tuple[int | None, int]:
        packed = from_bytes(data[at : at + 5], "big") - 0x8000000000
        us = from_bytes(data[at + 5 : at + size], "big") * unit
        years, month = divmod(packed >> 22, 13)
        found = days_of(years, month, packed >> 17 & 31)
        if found is None:
            return empty, at + size
        seconds = (packed >> 12 & 31) * 3600 + (packed >> 6 & 63) * 60 + (packed & 63)
        return found * DAY_US + seconds * 1_000_000 + us, at + size

    return read


def time(digits: int) -> ReadValue:
    """Read a TIME, which may be negative and longer than a day."""
    fraction = (digits + 1) // 2
    unit, size, from_bytes = _FRACTION_US[fraction], 3 + fraction, int.from_bytes
    middle, shift, mask = 0x800000 << 8 * fraction, 8 * fraction, (1 << 8 * fraction) - 1

    def read(data: bytes, at: int) -> tuple[int, int]:
        packed = from_bytes(data[at : at + size], "big") - middle
        is_negative, packed = packed < 0, abs(packed)
        whole = packed >> shift
        seconds = (whole >> 12 & 1023) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
        us = seconds * 1_000_000 + (packed & mask) * unit
        return (-us if is_negative else us), at + size

    return read


def sized(prefix: int, decode: Callable[[bytes], Any] | None = None) -> ReadValue:
    """Read bytes behind a length of `prefix` bytes."""
    from_bytes = int.from_bytes
    if prefix == 1 and decode is not None:

        def read_short(data: bytes, at: int) -> tuple[Any, int]:
            end = at + 1 + data[at]
            return decode(data[at + 1 : end]), end

        return read_short

    def read(data: bytes, at: int) -> tuple[Any, int]:
        start = at + prefix
        end = start + from_bytes(data[at:start], "little")
        return (data[start:end] if decode is None else decode(data[start:end])), end

    return read


def padded(prefix: int, length: int) -> ReadValue:
    """Read BINARY(n): the server cuts zeros off its end."""
    return sized(prefix, lambda value: value.ljust(length, b"\0"))


def fixed(size: int, decode: Callable[[bytes], Any] = bytes) -> ReadValue:
    """Read so many bytes."""
    return lambda data, at: (decode(data[at : at + size]), at + size)


def label(size: int, labels: Sequence[str]) -> ReadValue:
    """Read an ENUM; 0 is the empty text that stands for an invalid value."""
    by_number = ("", *labels)
    from_bytes = int.from_bytes
    return lambda data, at: (by_number[from_bytes(data[at : at + size], "little")], at + size)


def label_set(size: int, labels: Sequence[str]) -> ReadValue:
    """Read a SET."""
    bits = [(1 << at, each) for at, each in enumerate(labels)]

    def read(data: bytes, at: int) -> tuple[str, int]:
        chosen = int.from_bytes(data[at : at + size], "little")
        return ",".join(each for bit, each in bits if chosen & bit), at + size

    return read


def uncompressed(decode: Decode | None) -> Callable[[bytes], Any]:
    """Return a function for values of compressed columns.

    The first byte is 0 if the rest is not compressed; else its high bits name the method, its low three bits are the
    size of the length that follows.
    """

    def read(value: bytes) -> Any:
        if not value:
            plain = b""
        elif value[0] == 0:
            plain = value[1:]
        elif value[0] >> 4 == _ZLIB:
            # Bit 3 says that the stream has no header of zlib.
            plain = zlib.decompress(value[1 + (value[0] & 7) :], -zlib.MAX_WBITS if value[0] & 8 else zlib.MAX_WBITS)
        else:
            raise ConnectFailed(f"a compressed column has a method {value[0] >> 4} that is not known")
        return plain if decode is None else decode(plain)

    return read


def uuid_text(value: bytes) -> str:
    """Return the text of a UUID; the binlog lacks zeros at its end."""
    return str(uuid.UUID(bytes=value.ljust(16, b"\0")))


def inet6_text(value: bytes) -> str:
    """Return an IPv6 address as MariaDB writes it."""
    return socket.inet_ntop(socket.AF_INET6, value.ljust(16, b"\0"))


def inet4_text(value: bytes) -> str:
    """Return an IPv4 address."""
    return socket.inet_ntop(socket.AF_INET, value.ljust(4, b"\0"))
