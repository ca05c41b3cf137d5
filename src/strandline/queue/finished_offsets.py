"""Finished offsets above a committed one, as text for the metadata of the commit. Pure.

It is the format of Confluent's Parallel Consumer, so a group can change from one to the other:

    base64 of | magic byte | data |
    'e'  run lengths, int32 each: unfinished, finished, unfinished, ... from the committed offset on
    'n'  the same in int16
    'o'  int32 length, then one bit for each offset from the committed one on, lowest bit first, 1 for finished
    'l'  the same with an int16 length
    'p' 'J' 's' 'a'  are 'e' 'n' 'o' 'l' compressed by zstd

All are read. The shortest of 'e', 'n', 'o', 'p' and 's' is written.
"""

from __future__ import annotations

import binascii
import struct
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from typing import Final

from strandline.codec.compression import Compression, compress, decompress
from strandline.errors import StrandlineError

METADATA_BYTES_MAX: Final = 4096
"""Brokers reject metadata that is longer (`offset.metadata.max.bytes`)."""
DATA_BYTES_MAX: Final = METADATA_BYTES_MAX // 4 * 3
SPAN_MAX: Final = 8 * (DATA_BYTES_MAX - 5)
"""Offsets that fit as bits, whatever is finished of them."""
UNFINISHED_MAX: Final = (DATA_BYTES_MAX - 1) // 8
"""Unfinished offsets that fit as runs, however far apart they are."""
RANGES_READ_MAX: Final = 100_000
"""Ranges in metadata of others; more are not read, so these records are worked again."""

_DECOMPRESSED_BYTES_MAX: Final = 1024 * 1024
_COMPRESSED_FROM: Final = 200
_RUN_MAX: Final = 0x7FFFFFFF
_PLAIN: Final = {b"p": b"e", b"J": b"n", b"s": b"o", b"a": b"l"}

FinishedRanges = Sequence[tuple[int, int]]
"""First and last offset of each range, in order and apart."""


def encode_finished(base: int, finished: FinishedRanges) -> str:
    """Return the metadata for a commit of `base`. Ranges at the end are left out if there are more than fit."""
    ranges = list(finished)
    while ranges:
        data = _shortest(base, ranges)
        if len(data) <= DATA_BYTES_MAX:
            return b64encode(data).decode()
        # The records of what is left out are worked again after a restart.
        del ranges[len(ranges) * 3 // 4 :]
    return ""


def decode_finished(base: int, metadata: str) -> list[tuple[int, int]]:
    """Return the finished ranges above a committed offset. Metadata that means something else has none."""
    try:
        data = b64decode(metadata, validate=True)
        magic, data = data[:1], data[1:]
        if magic in _PLAIN:
            data = decompress(Compression.ZSTD, data, size_bytes_max=_DECOMPRESSED_BYTES_MAX)
            magic = _PLAIN[magic]
        if magic == b"e":
            runs: Iterator[tuple[int, int]] = _runs(base, "i", data)
        elif magic == b"n":
            runs = _runs(base, "h", data)
        elif magic == b"o":
            runs = _bits(base, ">i", data)
        elif magic == b"l":
            runs = _bits(base, ">h", data)
        else:
            return []
        return [found for found, _ in zip(runs, range(RANGES_READ_MAX), strict=False)]
    except (binascii.Error, ValueError, struct.error, StrandlineError):
        return []


def _shortest(base: int, finished: FinishedRanges) -> bytes:
    lengths = []
    at = base
    for first, last in finished:
        lengths += [first - at, last - first + 1]
        at = last + 1
    made = []
    if max(lengths) <= _RUN_MAX:
        made.append(b"e" + struct.pack(f">{len(lengths)}i", *lengths))
    if max(lengths) <= 0x7FFF:
        made.append(b"n" + struct.pack(f">{len(lengths)}h", *lengths))
    if at - base <= SPAN_MAX:
        bits = 0
        for first, last in finished:
            bits |= ((1 << (last - first + 1)) - 1) << (first - base)
        made.append(b"o" + struct.pack(">i", at - base) + bits.to_bytes((at - base + 7) // 8, "little"))
    if not made:
        return bytes(DATA_BYTES_MAX + 1)
    if min(map(len, made)) > _COMPRESSED_FROM:
        for plain, magic in ((b"e", b"p"), (b"o", b"s")):
            made += [magic + compress(Compression.ZSTD, each[1:]) for each in made if each[:1] == plain]
    return min(made, key=len)


def _runs(base: int, kind: str, data: bytes) -> Iterator[tuple[int, int]]:
    width = struct.calcsize(kind)
    lengths = struct.unpack(f">{len(data) // width}{kind}", data[: len(data) // width * width])
    at = base
    for number, length in enumerate(lengths):
        if length < 0:
            raise ValueError("a run of negative length")
        if number % 2 and length:
            yield at, at + length - 1
        at += length


def _bits(base: int, length_format: str, data: bytes) -> Iterator[tuple[int, int]]:
    (length,) = struct.unpack_from(length_format, data)
    bits = int.from_bytes(data[struct.calcsize(length_format) :], "little")
    text = bin(bits)[:1:-1][: max(0, length)]
    at = text.find("1")
    while at >= 0:
        end = text.find("0", at)
        end = len(text) if end < 0 else end
        yield base + at, base + end - 1
        at = text.find("1", end)
