"""The metadata of a commit: Confluent's format both ways, bounded, and whatever others have written there."""

from __future__ import annotations

import struct
from base64 import b64decode, b64encode
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.codec.compression import Compression, compress
from strandline.queue.finished_offsets import (
    METADATA_BYTES_MAX,
    SPAN_MAX,
    UNFINISHED_MAX,
    decode_finished,
    encode_finished,
)

BASE = 100


def ranges_of(lengths: list[int], base: int = BASE) -> list[tuple[int, int]]:
    """Return the finished ranges of run lengths: unfinished, finished, unfinished, ..."""
    found, at = [], base
    for unfinished, finished in zip(lengths[::2], lengths[1::2], strict=False):
        at += unfinished
        found.append((at, at + finished - 1))
        at += finished
    return found


def text(magic: bytes, data: bytes) -> str:
    return b64encode(magic + data).decode()


RUNS = struct.pack(">4i", 1, 2, 3, 4)
SHORT_RUNS = struct.pack(">4h", 1, 2, 3, 4)
# Offsets 1, 2 and 6 to 9 from the base on, as java.util.BitSet lays them out; a byte more is allowed.
BITS = bytes([0b11000110, 0b00000011])
FINISHED = [(101, 102), (106, 109)]


@pytest.mark.parametrize(
    "metadata",
    [
        text(b"e", RUNS),
        text(b"n", SHORT_RUNS),
        text(b"o", struct.pack(">i", 10) + BITS + b"\0"),
        text(b"l", struct.pack(">h", 10) + BITS + b"\0"),
        text(b"p", compress(Compression.ZSTD, RUNS)),
        text(b"J", compress(Compression.ZSTD, SHORT_RUNS)),
        text(b"s", compress(Compression.ZSTD, struct.pack(">i", 10) + BITS)),
        text(b"a", compress(Compression.ZSTD, struct.pack(">h", 10) + BITS)),
    ],
)
def test_every_form_of_confluents_parallel_consumer_is_read(metadata: str) -> None:
    assert decode_finished(BASE, metadata) == FINISHED


def test_what_is_written_is_a_form_that_others_read() -> None:
    data = b64decode(encode_finished(BASE, FINISHED))
    assert data[:1] in (b"e", b"n", b"o", b"p", b"s")
    assert data == b"o" + struct.pack(">i", 10) + BITS


@given(st.lists(st.integers(1, 60_000), min_size=2, max_size=300).filter(lambda lengths: len(lengths) % 2 == 0))
def test_what_is_written_is_read_again(lengths: list[int]) -> None:
    finished = ranges_of(lengths)
    assert decode_finished(BASE, encode_finished(BASE, finished)) == finished


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("is_wide", [False, True])
def test_what_is_within_the_limits_fits_whole(seed: int, is_wide: bool) -> None:
    random = Random(seed)
    if is_wide:
        # Far apart, and in no pattern that compresses.
        lengths = [random.randrange(1, 1 << 30) for _ in range(2 * UNFINISHED_MAX)]
        finished = ranges_of(lengths)
    else:
        unfinished = {BASE, *random.sample(range(BASE, BASE + SPAN_MAX - 1), SPAN_MAX // 3)}
        finished = [(each, each) for each in range(BASE, BASE + SPAN_MAX) if each not in unfinished]
        finished = joined(finished)
    metadata = encode_finished(BASE, finished)
    assert len(metadata) <= METADATA_BYTES_MAX
    assert decode_finished(BASE, metadata) == finished


def joined(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for first, last in ranges:
        if found and found[-1][1] + 1 == first:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(1, 1 << 40), min_size=2, max_size=3000))
def test_what_does_not_fit_is_left_out_at_the_end(lengths: list[int]) -> None:
    finished = ranges_of(lengths)
    metadata = encode_finished(BASE, finished)
    assert len(metadata) <= METADATA_BYTES_MAX
    found = decode_finished(BASE, metadata)
    assert found == finished[: len(found)]


@given(st.text(max_size=200) | st.binary(max_size=200).map(lambda data: b64encode(data).decode()))
def test_metadata_of_others_is_ignored(metadata: str) -> None:
    """Any text may be there: Kafka Streams has its own, and people write words."""
    for first, last in decode_finished(BASE, metadata):
        assert BASE <= first <= last


@pytest.mark.parametrize(
    "metadata", ["", "checkpoint of job 7", text(b"e", struct.pack(">2i", -1, 5)), text(b"p", b"")]
)
def test_metadata_without_a_meaning_has_no_ranges(metadata: str) -> None:
    assert decode_finished(BASE, metadata) == []
