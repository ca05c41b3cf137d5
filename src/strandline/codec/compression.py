"""The five codecs of a record batch: none, gzip, snappy, lz4 and zstd, each with a hard limit on what comes out.

Megabytes of zeros fit into a hundred bytes, so a payload is never inflated on trust: a codec either states its size
before the work (snappy) or is read in pieces that stop at `size_bytes_max` (gzip, lz4, zstd). Packages are imported
on first use, because a broker that never opens a batch needs none of them.

Why three packages and zlib, and not cramjam for all: docs/decisions/0003-one-decoder.md.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import TypeAlias

from strandline.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression

Buffer: TypeAlias = bytes | bytearray | memoryview


class Compression(IntEnum):
    """Bits 0-2 of a batch's attributes; the names are Kafka's values of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


DECOMPRESSED_BYTES_MAX = 48 * 1024 * 1024
"""What one batch may become. Kafka has no such limit; sound batches stay far below it. With the piece that goes beyond
it and what a codec needs for itself, a bomb is refused within 64 MiB."""

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_PIECE_BYTES_MIN = 64 * 1024
_GZIP_PIECE_BYTES_MIN = 1024 * 1024
"""Larger than others, because what is left of the input is copied for every piece. A piece is put together with the
GIL held, so one for all would stall the loop of a node that inflates in a thread."""
_GZIP_WINDOW_BITS = 31
_LZ4_FAST_LEVEL = 9
_LZ4_SLOW_LEVEL_MIN = 3
_LZ4_SLOW_LEVEL_MAX = 12
_ZSTD_RLE_BLOCK = 1
_ZSTD_RESERVED_BLOCK = 3


def decompress(codec: int, payload: Buffer, *, size_bytes_max: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """Inflate the records section of a batch.

    Raises `CorruptBatch` for what the codec cannot read, `BatchTooLarge` as soon as more than `size_bytes_max` bytes
    would come out, `UnsupportedCompression` for a codec that Kafka does not know.
    """
    if codec == Compression.NONE:
        if len(payload) > size_bytes_max:
            raise _too_large("none", size_bytes_max)
        return bytes(payload)
    inflate = _INFLATE.get(codec)
    if inflate is None:
        raise UnsupportedCompression(f"compression codec {codec} is unknown; Kafka defines 0 to 4")
    return inflate(payload, size_bytes_max)


def compress(codec: int, payload: Buffer, *, level: int | None = None) -> bytes:
    """Deflate the records section of a batch, at a level as `compression.gzip.level` and its like have it.

    Without one it is the level that Kafka's own producer takes by default. Snappy and none have no levels.
    """
    if codec == Compression.NONE:
        return bytes(payload)
    deflate = _DEFLATE.get(codec)
    if deflate is None:
        raise UnsupportedCompression(f"compression codec {codec} is unknown; Kafka defines 0 to 4")
    return deflate(payload, _DEFAULT_LEVELS[codec] if level is None else level)


def _too_large(name: str, size_bytes_max: int) -> BatchTooLarge:
    return BatchTooLarge(f"{name} records section is larger than {size_bytes_max} bytes when decompressed")


def _piece_bytes(payload: Buffer) -> int:
    # Most batches shrink less than eightfold, so one piece holds all of them and nothing has to be joined.
    return max(_PIECE_BYTES_MIN, 8 * len(payload))


# --- gzip ------------------------------------------------------------------------------------------------------------


def _inflate_gzip(payload: Buffer, size_bytes_max: int) -> bytes:
    pieces: list[bytes] = []
    room = size_bytes_max
    piece_bytes = max(_GZIP_PIECE_BYTES_MIN, _piece_bytes(payload))
    rest: Buffer = payload
    # Java's GZIPInputStream reads concatenated members as one stream, so a producer may send them.
    while rest:
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        while not member.eof:
            try:
                piece = member.decompress(rest, min(piece_bytes, room + 1))
            except zlib.error as error:
                raise CorruptBatch(f"gzip: {error}") from error
            if len(piece) > room:
                raise _too_large("gzip", size_bytes_max)
            if not piece and not member.eof:
                raise CorruptBatch("gzip: the stream ends early")
            room -= len(piece)
            pieces.append(piece)
            rest = member.unconsumed_tail
        rest = member.unused_data
    if not pieces:
        raise CorruptBatch("gzip: the stream is empty")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _deflate_gzip(payload: Buffer, level: int) -> bytes:
    return zlib.compress(payload, level, _GZIP_WINDOW_BITS)


# --- snappy ----------------------------------------------------------------------------------------------------------
#
# Java's client takes the xerial library, which has a frame of its own:
#     82 'S' 'N' 'A' 'P' 'P' 'Y' 00 | version int32 | compatible version int32 | { length int32 | raw block }*
# librdkafka sends one raw block without a frame. A raw block opens with its size as a varint.


def _inflate_snappy(payload: Buffer, size_bytes_max: int) -> bytes:
    view = memoryview(payload)
    if view[:8] != _XERIAL_MAGIC:
        return _inflate_snappy_block(view, size_bytes_max, size_bytes_max)
    if len(view) < len(_XERIAL_HEADER):
        raise CorruptBatch("snappy: the frame header is cut short")
    blocks: list[bytes] = []
    room = size_bytes_max
    position = len(_XERIAL_HEADER)
    while position < len(view):
        end = position + 4 + int.from_bytes(view[position : position + 4], "big")
        if end > len(view) or position + 4 >= end:
            raise CorruptBatch(
                f"snappy: the block at {position} runs from {position + 4} to {end} of {len(view)} bytes"
            )
        block = _inflate_snappy_block(view[position + 4 : end], room, size_bytes_max)
        room -= len(block)
        blocks.append(block)
        position = end
    return blocks[0] if len(blocks) == 1 else b"".join(blocks)


def _inflate_snappy_block(block: memoryview, room: int, size_bytes_max: int) -> bytes:
    import cramjam

    try:
        if cramjam.snappy.decompress_raw_len(block) > room:
            raise _too_large("snappy", size_bytes_max)
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise CorruptBatch(f"snappy: {error}") from error


def _deflate_snappy(payload: Buffer, _level: int) -> bytes:
    import cramjam

    view = memoryview(payload)
    parts = [_XERIAL_HEADER]
    for start in range(0, len(view), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK_BYTES]))
        parts.append(len(block).to_bytes(4, "big"))
        parts.append(block)
    return b"".join(parts)


# --- lz4 -------------------------------------------------------------------------------------------------------------


def _inflate_lz4(payload: Buffer, size_bytes_max: int) -> bytes:
    import lz4.frame

    # A context and its chunks cost a third of what `LZ4FrameDecompressor` does around the same work.
    context = lz4.frame.create_decompression_context()
    pieces: list[bytes] = []
    room = size_bytes_max
    piece_bytes = _piece_bytes(payload)
    rest = memoryview(payload)
    is_whole = False
    while not is_whole:
        try:
            piece, read_bytes, is_whole = lz4.frame.decompress_chunk(context, rest, min(piece_bytes, room + 1))
        except RuntimeError as error:
            raise CorruptBatch(f"lz4: {error}") from error
        if len(piece) > room:
            raise _too_large("lz4", size_bytes_max)
        if not piece and not is_whole:
            raise CorruptBatch("lz4: the frame ends early")
        room -= len(piece)
        pieces.append(piece)
        rest = rest[read_bytes:]
    if rest:
        raise CorruptBatch(f"lz4: {len(rest)} bytes follow the frame")
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _deflate_lz4(payload: Buffer, level: int) -> bytes:
    import lz4.frame

    # Kafka's default level, 9, stands for the fast compressor, any other for the slow one; the library takes 3 to 12
    # for the slow one, where Kafka allows 1 to 17.
    level = 0 if level == _LZ4_FAST_LEVEL else min(max(level, _LZ4_SLOW_LEVEL_MIN), _LZ4_SLOW_LEVEL_MAX)
    # Java reads only independent blocks, and takes 64 KiB ones itself.
    frame: bytes = lz4.frame.compress(
        payload,
        compression_level=level,
        block_size=lz4.frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        store_size=False,
    )
    return frame


# --- zstd ------------------------------------------------------------------------------------------------------------


def _inflate_zstd(payload: Buffer, size_bytes_max: int) -> bytes:
    import zstandard

    # `ZstdDecompressor.decompress` ignores its limit when the frame states a size, hence the reader; and the reader
    # takes a frame that is cut short for a short one, hence the walk over the blocks first.
    try:
        _check_zstd_frames_are_whole(memoryview(payload))
        reader = zstandard.ZstdDecompressor().stream_reader(payload, read_across_frames=True)
        pieces: list[bytes] = []
        room = size_bytes_max
        piece_bytes = _piece_bytes(payload)
        while piece := reader.read(min(piece_bytes, room + 1)):
            if len(piece) > room:
                raise _too_large("zstd", size_bytes_max)
            room -= len(piece)
            pieces.append(piece)
    except zstandard.ZstdError as error:
        raise CorruptBatch(f"zstd: {error}") from error
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _check_zstd_frames_are_whole(payload: memoryview) -> None:
    """Walk frames and block headers: { frame header { 3-byte block header | block }* [checksum int32] }*."""
    import zstandard

    position = 0
    if not payload:
        raise CorruptBatch("zstd: the stream is empty")
    while position < len(payload):
        frame = payload[position:]
        if len(frame) >= 8 and 0x184D2A50 <= int.from_bytes(frame[:4], "little") <= 0x184D2A5F:
            position += 8 + int.from_bytes(frame[4:8], "little")  # A skippable frame: other people's metadata.
            continue
        checksum_bytes = 4 if zstandard.get_frame_parameters(frame).has_checksum else 0
        position += zstandard.frame_header_size(frame)
        last = False
        while not last:
            block_header = int.from_bytes(payload[position : position + 3], "little")
            last = bool(block_header & 1)
            kind = block_header >> 1 & 3
            position += 3 + (1 if kind == _ZSTD_RLE_BLOCK else block_header >> 3)
            if position > len(payload) or kind == _ZSTD_RESERVED_BLOCK:
                raise CorruptBatch("zstd: the frame ends early or holds a reserved block")
        position += checksum_bytes
    if position != len(payload):
        raise CorruptBatch("zstd: the frame ends early")


def _deflate_zstd(payload: Buffer, level: int) -> bytes:
    import zstandard

    return zstandard.ZstdCompressor(level=level).compress(payload)


_INFLATE: dict[int, Callable[[Buffer, int], bytes]] = {
    Compression.GZIP: _inflate_gzip,
    Compression.SNAPPY: _inflate_snappy,
    Compression.LZ4: _inflate_lz4,
    Compression.ZSTD: _inflate_zstd,
}
_DEFLATE: dict[int, Callable[[Buffer, int], bytes]] = {
    Compression.GZIP: _deflate_gzip,
    Compression.SNAPPY: _deflate_snappy,
    Compression.LZ4: _deflate_lz4,
    Compression.ZSTD: _deflate_zstd,
}
_DEFAULT_LEVELS: dict[int, int] = {
    Compression.GZIP: zlib.Z_DEFAULT_COMPRESSION,
    Compression.SNAPPY: 0,
    Compression.LZ4: _LZ4_FAST_LEVEL,
    Compression.ZSTD: 3,
}
