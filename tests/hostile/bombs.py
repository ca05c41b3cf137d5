"""A gigabyte in a few kilobytes, in every codec and in every form that states its size, or does not.

Each is written without ever having the gigabyte: the same compressed piece again and again, as the formats allow.
"""

from __future__ import annotations

import gzip
import struct
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import zstandard

from strandline.codec.compression import Compression

MIB = 1 << 20
GIB = 1 << 30
ZEROS = bytes(MIB)
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024


def gzip_members() -> bytes:
    """Nine hundred members of a mebibyte."""
    return gzip.compress(ZEROS) * 900


def gzip_one_member() -> bytes:
    deflate = zlib.compressobj(1, zlib.DEFLATED, 31)
    return b"".join(deflate.compress(ZEROS) for _ in range(200)) + deflate.flush()


def zstd_without_size() -> bytes:
    """One frame of run-length blocks: four bytes for 128 KiB, which is 32,768 to 1."""
    header = _ZSTD_MAGIC + bytes((0x00, (17 - 10) << 3))
    return header + _zstd_blocks(GIB)


def zstd_with_size() -> bytes:
    """The same in a frame that says how much it will be, in eight bytes, and has no window of its own."""
    header = _ZSTD_MAGIC + bytes((0xC0, (17 - 10) << 3)) + struct.pack("<Q", GIB)
    return header + _zstd_blocks(GIB)


def zstd_that_lies() -> bytes:
    """It states a mebibyte and holds a gigabyte."""
    header = _ZSTD_MAGIC + bytes((0xC0, (17 - 10) << 3)) + struct.pack("<Q", MIB)
    return header + _zstd_blocks(GIB)


def zstd_frames() -> bytes:
    return zstandard.ZstdCompressor().compress(bytes(8 * MIB)) * 128


def _zstd_blocks(size: int) -> bytes:
    count = size // _ZSTD_BLOCK_BYTES_MAX
    run = 1  # the kind of block that is one byte, repeated

    def block(is_last: int) -> bytes:
        return (is_last | run << 1 | _ZSTD_BLOCK_BYTES_MAX << 3).to_bytes(3, "little") + b"\0"

    return block(0) * (count - 1) + block(1)


def lz4_one_frame() -> bytes:
    return bytes(lz4.frame.compress(bytes(200 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=False))


def lz4_with_size() -> bytes:
    return bytes(lz4.frame.compress(bytes(200 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB, store_size=True))


def lz4_frames() -> bytes:
    return bytes(lz4.frame.compress(bytes(16 * MIB), block_size=lz4.frame.BLOCKSIZE_MAX4MB)) * 12


def snappy_that_claims() -> bytes:
    """A raw block that says four gigabytes and is ten bytes long."""
    return b"\xff\xff\xff\xff\x0f" + bytes(10)


def snappy_framed() -> bytes:
    """Blocks of 512 KiB in xerial's frame, each harmless; snappy makes 21 bytes of one at the most, so it is long."""
    block = bytes(cramjam.snappy.compress_raw(bytes(MIB // 2)))
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 120


def snappy_framed_that_claims() -> bytes:
    block = b"\xff\xff\xff\xff\x0f" + bytes(10)
    return b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1) + (struct.pack(">i", len(block)) + block) * 1000


BOMBS: dict[str, tuple[Compression, Callable[[], bytes]]] = {
    "gzip of many members": (Compression.GZIP, gzip_members),
    "gzip": (Compression.GZIP, gzip_one_member),
    "zstd without its size": (Compression.ZSTD, zstd_without_size),
    "zstd with its size": (Compression.ZSTD, zstd_with_size),
    "zstd that lies about its size": (Compression.ZSTD, zstd_that_lies),
    "zstd of many frames": (Compression.ZSTD, zstd_frames),
    "lz4": (Compression.LZ4, lz4_one_frame),
    "lz4 with its size": (Compression.LZ4, lz4_with_size),
    "lz4 of many frames": (Compression.LZ4, lz4_frames),
    "snappy that claims": (Compression.SNAPPY, snappy_that_claims),
    "snappy, framed": (Compression.SNAPPY, snappy_framed),
    "snappy, framed, that claims": (Compression.SNAPPY, snappy_framed_that_claims),
}
