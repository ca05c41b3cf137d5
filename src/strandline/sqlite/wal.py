"""SQLite's WAL file and the header of its WAL-index, as bytes (https://www.sqlite.org/walformat.html).

    WAL header, 32 bytes    magic, version, page size, checkpoint number, salt 1, salt 2, checksum of these (2 words)
    frame header, 24 bytes  page number, pages of the database if it commits (else 0), salts, checksum (2 words)
    index header, 48 bytes  version, unused, change counter, flags, page size, last committed frame, pages of the
                            database, checksum of that frame, salts, checksum of these; stored twice

A frame is its header and one page. The checksum of a frame continues that of the frame before it. The WAL is
big-endian except for its checksums; the index has the byte order of the machine.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

from strandline.sqlite.failures import ShippingFailed
from strandline.sqlite.wal_sums import FrameSums, WalSum, word_sums

WAL_HEADER_BYTES: Final = 32
FRAME_HEADER_BYTES: Final = 24
INDEX_BYTES: Final = 96
PAGE_BYTES_MIN: Final = 512
PAGE_BYTES_MAX: Final = 65_536
_MAGIC: Final = 0x377F0682
_WAL_VERSION: Final = 3_007_000
_WAL_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_INDEX_HEADER: Final = struct.Struct("=3IBBHIIII4s4sII")
_COPY_BYTES: Final = 48
_SUMMED_BYTES: Final = 40


class Salts(NamedTuple):
    """The two salts of a WAL. SQLite adds 1 to the first when it begins the WAL again."""

    first: int
    second: int


class WalHeader(NamedTuple):
    """The header of a WAL file."""

    page_bytes: int
    salts: Salts
    sum: WalSum
    is_big_endian: bool


class IndexHeader(NamedTuple):
    """What the WAL-index says of committed frames."""

    frames: int
    pages: int
    salts: Salts
    sum: WalSum


class Frame(NamedTuple):
    """A frame whose checksum is right."""

    page_number: int
    pages_if_commit: int
    sum: WalSum
    page: memoryview


class DamagedWal(ShippingFailed):
    """Frames below the committed end that are not what SQLite wrote."""


def parse_wal_header(content: bytes) -> WalHeader | None:
    """Return the header of a WAL, None if it is not whole."""
    if len(content) < WAL_HEADER_BYTES:
        return None
    magic, version, page_bytes, _, salt_1, salt_2, *stored = _WAL_HEADER.unpack_from(content)
    is_big_endian = bool(magic & 1)
    if magic & ~1 != _MAGIC or version != _WAL_VERSION:
        return None
    found = word_sums(content[: WAL_HEADER_BYTES - 8], (0, 0), is_big_endian=is_big_endian)
    if found != tuple(stored):
        return None
    return WalHeader(page_bytes, Salts(salt_1, salt_2), found, is_big_endian)


def parse_index_header(content: bytes) -> IndexHeader | None:
    """Return the header of a WAL-index, None while a writer changes it."""
    first, second = content[:_COPY_BYTES], content[_COPY_BYTES:INDEX_BYTES]
    if len(second) < _COPY_BYTES or first != second:
        return None
    *_, frames, pages, sum_1, sum_2, salt_1, salt_2, own_1, own_2 = _INDEX_HEADER.unpack(first)
    is_big_endian = sys.byteorder == "big"
    if word_sums(first[:_SUMMED_BYTES], (0, 0), is_big_endian=is_big_endian) != (own_1, own_2):
        return None
    salts = Salts(int.from_bytes(salt_1, "big"), int.from_bytes(salt_2, "big"))
    return IndexHeader(frames, pages, salts, (sum_1, sum_2))


def frame_offset(frame: int, page_bytes: int) -> int:
    """Return where frame number `frame` begins in the file; the first is 0."""
    return WAL_HEADER_BYTES + frame * (FRAME_HEADER_BYTES + page_bytes)


def stored_frame(content: bytes | memoryview) -> tuple[int, int, Salts, WalSum]:
    """Return page number, pages if it commits, salts and checksum of a frame header."""
    number, pages, salt_1, salt_2, sum_1, sum_2 = _FRAME_HEADER.unpack_from(content)
    return number, pages, Salts(salt_1, salt_2), (sum_1, sum_2)


def checked_frames(content: memoryview, header: WalHeader, before: WalSum) -> Iterator[Frame]:
    """Yield frames that follow one with the checksum `before`. Raise DamagedWal at one that does not."""
    size = FRAME_HEADER_BYTES + header.page_bytes
    running = FrameSums(content, header.page_bytes, is_big_endian=header.is_big_endian)
    sums = before
    for at in range(0, len(content), size):
        number, pages, salts, stored = stored_frame(content[at : at + FRAME_HEADER_BYTES])
        sums = running.after(at // size, sums)
        if salts != header.salts or sums != stored or not number:
            raise DamagedWal("a committed frame of the WAL has another salt or checksum than its place demands")
        yield Frame(number, pages, sums, content[at + FRAME_HEADER_BYTES : at + size])
