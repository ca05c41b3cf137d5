"""The cleaner's hot loops: the hash by its published vectors, and records that are none, in both twins."""

from __future__ import annotations

import random
from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.cleaning_cases import COMPILED, PLAIN, TWINS

from strandline.codec.columns import Record, encode_batch
from strandline.codec.record_batch import HEADER_SIZE, BatchHeader, parse_header
from strandline.errors import PeerError

# SipHash-2-4 with 128 bits, key 00 01 .. 0f, input the first n of the bytes 00 01 .. (vectors_sip128 of its authors).
VECTORS = {0: "a3817f04ba25a8e66df67214c7550293", 1: "da87c1d86b99af44347659119b22fc45"}
RECORDS = st.lists(
    st.builds(
        Record,
        timestamp_ms=st.integers(min_value=-1, max_value=2**62),
        key=st.none() | st.binary(max_size=20),
        value=st.none() | st.binary(max_size=150),
    ),
    max_size=70,
)
Outcome = tuple[object, ...]


@pytest.mark.parametrize("twin", TWINS)
def test_siphash_is_the_published_one(twin: ModuleType) -> None:
    sieve = twin.RecordSieve(16, 8, bytes(range(16)))
    for size, expected in VECTORS.items():
        low, high = sieve.siphash(bytes(range(size)), 0, size)
        assert (low.to_bytes(8, "little") + high.to_bytes(8, "little")).hex() == expected


@pytest.mark.skipif(COMPILED is None, reason="not compiled here: no C compiler at installation")
@given(key=st.binary(max_size=70), secret=st.binary(min_size=16, max_size=16), before=st.binary(max_size=9))
def test_siphash_of_both_twins_is_one(key: bytes, secret: bytes, before: bytes) -> None:
    assert COMPILED is not None
    hashes = [
        twin.RecordSieve(16, 8, secret).siphash(before + key + b"x", len(before), len(key))
        for twin in (PLAIN, COMPILED)
    ]
    assert hashes[0] == hashes[1]


def sifted(twin: ModuleType, header: BatchHeader, payload: bytes) -> Outcome:
    """What a twin makes of records: what it says of them, or that they are none."""
    sieve = twin.RecordSieve(64, 40, bytes(16))
    count, deltas = header.record_count, (header.base_offset, header.last_offset_delta)
    runs = array("q", (0,)) * (2 * max(1, count))
    try:
        has_room = sieve.learn(payload, 0, len(payload), count, *deltas, 0)
        latest = sieve.learned_offset
        sieve.sift(payload, 0, len(payload), count, *deltas, header.base_timestamp, latest, False, runs)
    except (PeerError, IndexError):
        return ("no records",)
    found = sieve.kept, sieve.run_count, sieve.max_timestamp, sieve.kept_tombstones, sieve.records_without_key
    return (has_room, sieve.entries, latest, *found, list(runs[: 2 * sieve.run_count]))


@pytest.mark.lengthy("many examples, each of them costly")
@pytest.mark.skipif(COMPILED is None, reason="not compiled here: no C compiler at installation")
@settings(deadline=None, max_examples=60)
@given(records=RECORDS, data=st.data())
def test_bytes_that_changed_are_the_same_to_both_twins(records: list[Record], data: st.DataObject) -> None:
    """A producer may write anything behind a right CRC: it must be refused or read, and never past the end."""
    assert COMPILED is not None
    batch = encode_batch(records, base_offset=1_000)
    header = parse_header(batch)
    payload = bytearray(batch[HEADER_SIZE:])
    assert sifted(PLAIN, header, bytes(payload)) == sifted(COMPILED, header, bytes(payload)) != ("no records",)
    for _ in range(data.draw(st.integers(min_value=1, max_value=3)) if payload else 0):
        payload[data.draw(st.integers(min_value=0, max_value=len(payload) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(min_value=0, max_value=len(payload)))
    for content in (bytes(payload), bytes(payload[:cut])):
        assert sifted(PLAIN, header, content) == sifted(COMPILED, header, content)


@pytest.mark.parametrize("twin", TWINS)
def test_a_map_that_is_nearly_full_still_finds_every_key(twin: ModuleType) -> None:
    keys = [b"%d" % number for number in range(500)]
    random.Random(3).shuffle(keys)
    records = [Record(key=key, value=b"v") for key in keys + keys[:250]]
    batch = encode_batch(records)
    header, payload = parse_header(batch), batch[HEADER_SIZE:]
    sieve = twin.RecordSieve(501, 1_000, b"k" * 16)
    assert sieve.learn(payload, 0, len(payload), len(records), 0, header.last_offset_delta, 0)
    assert sieve.entries == 500
    runs = array("q", (0,)) * (2 * len(records))
    kept = sieve.sift(payload, 0, len(payload), len(records), 0, header.last_offset_delta, 0, 10_000, True, runs)
    assert kept == 500
    assert sieve.run_count == 1, "the last 250 of the first round and all of the second lie side by side"
