"""The check that every produced batch goes through: its header, its length, its CRC, its counts, and nothing else."""

from __future__ import annotations

import random

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.codec.columns import Compression, Record, decode_batch, encode_batch
from strandline.codec.record_batch import (
    CRC_START,
    HEADER,
    HEADER_SIZE,
    LEADER_FIELDS,
    PREFIX,
    PREFIX_SIZE,
    BatchHeader,
    check_batch,
    is_intact,
    parse_header,
    sequence_after,
)
from strandline.errors import CorruptBatch, InvalidBatch, PeerError, UnsupportedCompression

SEED = 20_241_114
BATCH = encode_batch([Record(timestamp_ms=1000 + step, key=b"k", value=b"value") for step in range(5)])


def with_fields(batch: bytes = BATCH, *, seal: bool = True, **fields: int) -> bytearray:
    """The batch with other words in its header; with `seal`, under a CRC that vouches for them."""
    changed = bytearray(HEADER.pack(*parse_header(batch)._replace(**fields)) + batch[HEADER_SIZE:])
    if seal:
        changed[17:21] = crc32c(bytes(changed[CRC_START:])).to_bytes(4, "big")
    return changed


def test_the_header_is_where_kafka_puts_it() -> None:
    header = BatchHeader(0x0102030405060708, 49, 9, 2, 0xDEADBEEF, 0x11, 4, 1000, 1004, 77, 3, 12, 5)
    data = HEADER.pack(*header)
    assert len(data) == HEADER_SIZE == 61
    assert data[:8] == bytes(range(1, 9))
    assert (data[8:12], data[12:16], data[16]) == (b"\0\0\0\x31", b"\0\0\0\x09", 2)
    assert (data[17:21], data[21:23], data[23:27]) == (b"\xde\xad\xbe\xef", b"\0\x11", b"\0\0\0\x04")
    assert int.from_bytes(data[27:35], "big") == 1000
    assert int.from_bytes(data[35:43], "big") == 1004
    assert (data[43:51], data[51:53]) == ((77).to_bytes(8, "big"), b"\0\x03")
    assert (data[53:57], data[57:61]) == (b"\0\0\0\x0c", b"\0\0\0\x05")
    assert parse_header(b"junk" + data, 4) == header
    assert (PREFIX.size, PREFIX_SIZE, LEADER_FIELDS.size) == (12, 12, 16)


def test_a_sound_batch_passes_with_its_header() -> None:
    assert BatchHeader._make(check_batch(BATCH)) == parse_header(BATCH)
    assert BatchHeader._make(check_batch(memoryview(bytearray(BATCH)))) == parse_header(BATCH)


@settings(max_examples=80, deadline=None, print_blob=True)
@given(
    st.lists(st.binary(max_size=100), min_size=1, max_size=30),
    st.sampled_from(Compression),
    st.integers(-1, 2**62),
    st.integers(0, 2**31 - 1),
)
def test_whatever_the_encoder_makes_passes(
    values: list[bytes], codec: Compression, timestamp_ms: int, sequence: int
) -> None:
    records = [Record(timestamp_ms=timestamp_ms, value=value) for value in values]
    batch = encode_batch(records, compression=codec, producer_id=5, producer_epoch=1, base_sequence=sequence)
    header = BatchHeader._make(check_batch(batch))
    assert header.size_bytes == len(batch)
    assert header.record_count == len(values)
    assert header.last_sequence == (sequence + len(values) - 1) % 2**31
    assert [record.value for record in decode_batch(batch)] == values


def test_the_leaders_fields_lie_outside_the_crc() -> None:
    batch = bytearray(BATCH)
    LEADER_FIELDS.pack_into(batch, 0, 123456, len(batch) - PREFIX_SIZE, 42)
    header = BatchHeader._make(check_batch(batch))
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (123456, 42, 123460)
    assert is_intact(batch)


def test_a_batch_cut_at_any_byte_is_refused() -> None:
    for size in range(len(BATCH)):
        with pytest.raises((CorruptBatch, InvalidBatch)):
            check_batch(BATCH[:size])


def test_any_flipped_bit_behind_the_crc_is_found() -> None:
    seed = random.Random(SEED)
    print("seed", SEED)
    for at in range(16, len(BATCH)):
        spoilt = bytearray(BATCH)
        spoilt[at] ^= 1 << seed.randrange(8)
        with pytest.raises((CorruptBatch, InvalidBatch)):
            check_batch(spoilt)
        if at >= 17:
            assert not is_intact(spoilt)


REFUSED = [
    pytest.param({"magic": 0}, InvalidBatch, id="magic 0"),
    pytest.param({"magic": 1}, InvalidBatch, id="magic 1"),
    pytest.param({"magic": 3}, CorruptBatch, id="magic 3"),
    pytest.param({"magic": -1}, CorruptBatch, id="magic -1"),
    pytest.param({"length": 48}, CorruptBatch, id="length below the header"),
    pytest.param({"length": -1}, CorruptBatch, id="negative length"),
    pytest.param({"length": len(BATCH) - PREFIX_SIZE + 1}, InvalidBatch, id="length beyond the bytes"),
    pytest.param({"length": 2**31 - 1}, InvalidBatch, id="longest length"),
    pytest.param({"length": len(BATCH) - PREFIX_SIZE - 1}, InvalidBatch, id="bytes beyond the length"),
    pytest.param({"record_count": 0, "last_offset_delta": -1}, InvalidBatch, id="no records"),
    pytest.param({"record_count": -1, "last_offset_delta": -2}, InvalidBatch, id="negative count"),
    pytest.param({"record_count": 4}, InvalidBatch, id="count below the delta"),
    pytest.param({"record_count": 6}, InvalidBatch, id="count above the delta"),
    pytest.param({"last_offset_delta": 2**31 - 1}, InvalidBatch, id="delta beyond the count"),
    pytest.param({"record_count": 10**6, "last_offset_delta": 10**6 - 1}, InvalidBatch, id="more than can be in it"),
    pytest.param({"attributes": 5}, UnsupportedCompression, id="codec 5"),
    pytest.param({"attributes": 7}, UnsupportedCompression, id="codec 7"),
]


@pytest.mark.parametrize(("fields", "error"), REFUSED)
def test_what_is_refused(fields: dict[str, int], error: type[PeerError]) -> None:
    with pytest.raises(error):
        check_batch(with_fields(**fields))


def test_a_wrong_crc_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="CRC"):
        check_batch(with_fields(seal=False, base_timestamp=7))


def test_two_batches_are_one_too_many() -> None:
    with pytest.raises(InvalidBatch, match="more than one"):
        check_batch(BATCH + BATCH)


def test_garbage_raises_only_declared_errors() -> None:
    seed = random.Random(SEED)
    print("seed", SEED)
    for _ in range(2000):
        data = bytearray(seed.randbytes(seed.choice([0, 1, 12, 60, 61, 62, 200])))
        if len(data) > 16 and seed.random() < 0.7:
            data[16] = 2
            data[8:12] = (len(data) - 12).to_bytes(4, "big")
        with pytest.raises((CorruptBatch, InvalidBatch, UnsupportedCompression)):
            check_batch(data)


def test_sequences_wrap() -> None:
    assert sequence_after(2**31 - 1, 1) == 0
    assert sequence_after(2**31 - 3, 5) == 2
    assert sequence_after(0, 0) == 0
