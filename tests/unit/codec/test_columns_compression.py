"""The five codecs: what other people's libraries write, cut streams, and bombs."""

from __future__ import annotations

import contextlib
import gzip
import tracemalloc
import zlib

import cramjam
import lz4.frame
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.codec.columns import decode_batch, encode_batch
from strandline.codec.compression import Compression, compress, decompress
from strandline.codec.record_batch import HEADER, HEADER_SIZE, BatchHeader
from strandline.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression

TEXT = b"".join(b"order %d was paid; " % number for number in range(20_000))
REAL_CODECS = [codec for codec in Compression if codec is not Compression.NONE]


def xerial(*blocks: bytes) -> bytes:
    framed = b"".join(len(block).to_bytes(4, "big") + block for block in blocks)
    return b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2 + framed


def zstd_without_size(payload: bytes) -> bytes:
    return zstandard.ZstdCompressor(write_content_size=False).compress(payload)


def snappy_raw(payload: bytes) -> bytes:
    return bytes(cramjam.snappy.compress_raw(payload))


FOREIGN = {
    "gzip fast": (Compression.GZIP, gzip.compress(TEXT, 1)),
    "gzip of two members": (Compression.GZIP, gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:])),
    "snappy raw": (Compression.SNAPPY, snappy_raw(TEXT)),
    "snappy in one block": (Compression.SNAPPY, xerial(snappy_raw(TEXT))),
    "snappy in uneven blocks": (Compression.SNAPPY, xerial(snappy_raw(TEXT[:5]), snappy_raw(TEXT[5:]))),
    "lz4 linked, checksums, size": (
        Compression.LZ4,
        lz4.frame.compress(TEXT, block_linked=True, content_checksum=True, block_checksum=True, store_size=True),
    ),
    "lz4 of large blocks": (Compression.LZ4, lz4.frame.compress(TEXT, block_size=lz4.frame.BLOCKSIZE_MAX4MB)),
    "lz4 by cramjam": (Compression.LZ4, bytes(cramjam.lz4.compress(TEXT))),
    "zstd that states its size": (Compression.ZSTD, zstandard.ZstdCompressor(level=19).compress(TEXT)),
    "zstd that does not": (Compression.ZSTD, zstd_without_size(TEXT)),
    "zstd with a checksum": (Compression.ZSTD, zstandard.ZstdCompressor(write_checksum=True).compress(TEXT)),
    "zstd of two frames": (Compression.ZSTD, zstd_without_size(TEXT[:9]) + zstandard.compress(TEXT[9:])),
    "zstd after a skippable frame": (
        Compression.ZSTD,
        b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + zstandard.compress(TEXT),
    ),
    "zstd by cramjam": (Compression.ZSTD, bytes(cramjam.zstd.compress(TEXT))),
}


@pytest.mark.parametrize(("codec", "payload"), FOREIGN.values(), ids=FOREIGN)
def test_what_other_libraries_write_is_read(codec: Compression, payload: bytes) -> None:
    assert decompress(codec, payload, size_bytes_max=len(TEXT)) == TEXT
    assert decompress(codec, memoryview(payload), size_bytes_max=len(TEXT)) == TEXT
    with pytest.raises(BatchTooLarge):
        decompress(codec, payload, size_bytes_max=len(TEXT) - 1)


OTHER_READERS = {
    Compression.GZIP: gzip.decompress,
    Compression.LZ4: lz4.frame.decompress,
    Compression.ZSTD: zstandard.decompress,
}


@pytest.mark.parametrize("codec", OTHER_READERS)
def test_other_libraries_read_what_is_written(codec: Compression) -> None:
    assert OTHER_READERS[codec](compress(codec, TEXT)) == TEXT


@pytest.mark.parametrize("codec", Compression)
@settings(max_examples=50, deadline=None, print_blob=True)
@given(payload=st.binary(max_size=200_000) | st.binary(max_size=50).map(lambda piece: piece * 5000))
def test_round_trip(codec: Compression, payload: bytes) -> None:
    assert decompress(codec, compress(codec, payload), size_bytes_max=len(payload)) == payload


@pytest.mark.parametrize(("codec", "payload"), FOREIGN.values(), ids=FOREIGN)
def test_a_stream_that_is_cut_short_is_corrupt(codec: Compression, payload: bytes) -> None:
    # Between two frames or blocks a cut leaves a sound, shorter stream; the count of records then tells.
    complete = 0
    for size in [*range(min(200, len(payload))), *range(len(payload) - 200, len(payload))]:
        try:
            assert TEXT.startswith(decompress(codec, payload[:size]))
            complete += 1
        except CorruptBatch:
            pass
    assert complete <= 2


@pytest.mark.parametrize("codec", REAL_CODECS)
def test_bytes_after_the_stream_are_corrupt(codec: Compression) -> None:
    for rest in (b"\x00", b"\x00\x00\x00\x00\x00", b"garbage"):
        with pytest.raises(CorruptBatch):
            decompress(codec, compress(codec, TEXT) + rest)


@pytest.mark.parametrize("codec", REAL_CODECS)
@settings(max_examples=200, deadline=None, print_blob=True)
@given(payload=st.binary(max_size=200))
def test_garbage_raises_nothing_undeclared(codec: Compression, payload: bytes) -> None:
    for candidate in (payload, compress(codec, payload)[: len(payload) // 2] + payload):
        with contextlib.suppress(CorruptBatch, BatchTooLarge):
            assert len(decompress(codec, candidate, size_bytes_max=100_000)) <= 100_000


ZEROS = bytes(1 << 20)
BOMB_BYTES = 256 << 20


def zstd_bomb(*, states_size: bool) -> bytes:
    compressor = zstandard.ZstdCompressor().compressobj(size=BOMB_BYTES if states_size else -1)
    return b"".join(compressor.compress(ZEROS) for _ in range(BOMB_BYTES >> 20)) + compressor.flush()


def gzip_bomb() -> bytes:
    compressor = zlib.compressobj(level=9, wbits=31)
    return b"".join(compressor.compress(ZEROS) for _ in range(BOMB_BYTES >> 20)) + compressor.flush()


def lz4_bomb() -> bytes:
    compressor = lz4.frame.LZ4FrameCompressor(block_linked=False)
    pieces = [compressor.begin()] + [compressor.compress(ZEROS) for _ in range(BOMB_BYTES >> 20)]
    return b"".join(pieces) + compressor.flush()


# A raw snappy block may claim up to 4 GiB in five bytes; a framed one adds block to block.
BOMBS = {
    "gzip": (Compression.GZIP, gzip_bomb),
    "snappy raw": (Compression.SNAPPY, lambda: b"\xff\xff\xff\xff\x0f" + b"\x00" * 100),
    "snappy framed": (Compression.SNAPPY, lambda: xerial(*[snappy_raw(ZEROS)] * 256)),
    "lz4": (Compression.LZ4, lz4_bomb),
    "zstd that states its size": (Compression.ZSTD, lambda: zstd_bomb(states_size=True)),
    "zstd that does not": (Compression.ZSTD, lambda: zstd_bomb(states_size=False)),
}


@pytest.mark.lengthy("large inputs")
@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_it_is_inflated(name: str) -> None:
    codec, build = BOMBS[name]
    bomb = build()
    with pytest.raises(BatchTooLarge):
        decompress(codec, bomb, size_bytes_max=1 << 20)  # Once before, so that the library's own import is not counted.
    tracemalloc.start()
    try:
        with pytest.raises(BatchTooLarge):
            decompress(codec, bomb, size_bytes_max=4 << 20)
        assert tracemalloc.get_traced_memory()[1] < (32 << 20)
    finally:
        tracemalloc.stop()


def test_a_bomb_in_a_batch_is_refused() -> None:
    bomb = zstd_bomb(states_size=True)
    header = BatchHeader._make(HEADER.unpack_from(encode_batch([])))
    header = header._replace(attributes=Compression.ZSTD, length=HEADER_SIZE - 12 + len(bomb))
    with pytest.raises(BatchTooLarge):
        decode_batch(HEADER.pack(*header) + bomb, check_crc=False)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_unknown_codec_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedCompression):
        decompress(codec, b"")
    with pytest.raises(UnsupportedCompression):
        compress(codec, b"")
