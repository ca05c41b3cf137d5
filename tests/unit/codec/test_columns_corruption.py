"""Bytes that strangers sent: only declared errors escape, the twins agree, and memory stays bounded."""

from __future__ import annotations

import random
import tracemalloc
from types import ModuleType

import pytest
from crc32c import crc32c
from tests.unit.codec.columns_cases import BAD_PAYLOADS, COMPILED, PLAIN, RECORD, TWINS, order_feed, using

from strandline.codec.columns import Columns, Compression, Record, columns_of, decode_batch, encode_batch, records_of
from strandline.codec.record_batch import CRC_POSITION, CRC_START, HEADER, HEADER_SIZE, BatchHeader
from strandline.errors import BatchTooLarge, CorruptBatch, UnsupportedCompression

SEED = 20240607


def with_header(batch: bytes, **changes: int) -> bytes:
    """The batch with other words in its header, and a CRC that vouches for them."""
    header = BatchHeader._make(HEADER.unpack_from(batch))._replace(**changes)
    return sealed(HEADER.pack(*header) + batch[HEADER_SIZE:])


def sealed(batch: bytes) -> bytes:
    return batch[:CRC_POSITION] + crc32c(batch[CRC_START:]).to_bytes(4, "big") + batch[CRC_START:]


def with_payload(payload: bytes, *, count: int = 1, **changes: int) -> bytes:
    """A batch of these very bytes, with an honest length and CRC."""
    empty = encode_batch([], last_offset_delta=count - 1)
    return with_header(empty + payload, length=len(empty + payload) - 12, record_count=count, **changes)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("codec", Compression)
@pytest.mark.parametrize("check_crc", [True, False])
def test_a_batch_cut_at_any_byte_is_corrupt(twin: ModuleType, codec: Compression, check_crc: bool) -> None:
    batch = encode_batch(order_feed(6), compression=codec)
    with using(twin):
        for size in range(len(batch)):
            with pytest.raises(CorruptBatch):
                decode_batch(batch[:size], check_crc=check_crc)
            if size >= HEADER_SIZE:
                # The length is honest here, so that the cut is found by the codec or the scan.
                shortened = with_header(batch[:size], length=size - 12)
                with pytest.raises(CorruptBatch):
                    decode_batch(shortened, check_crc=check_crc)
        with pytest.raises(CorruptBatch):
            decode_batch(batch + b"\x00", check_crc=check_crc)


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("codec", Compression)
def test_a_flipped_bit_fails_the_crc(twin: ModuleType, codec: Compression) -> None:
    batch = encode_batch(order_feed(3), compression=codec)
    with using(twin):
        for position in range(CRC_POSITION, len(batch)):
            damaged = bytearray(batch)
            damaged[position] ^= 1 << position % 8
            with pytest.raises(CorruptBatch):
                decode_batch(damaged)
            with pytest.raises(CorruptBatch):
                list(records_of(damaged))


def outcome(twin: ModuleType, batch: bytes, check_crc: bool) -> object:
    """What a twin makes of a batch: its columns, or the kind of error."""
    with using(twin):
        try:
            columns = decode_batch(batch, check_crc=check_crc, size_bytes_max=1 << 20)
            records = list(columns)
            assert list(records_of(batch, check_crc=check_crc)) == records
        except (CorruptBatch, BatchTooLarge, UnsupportedCompression) as error:
            return type(error)
        return records, [bytes(getattr(columns, name)) for name in Columns.__slots__ if name != "header"]


@pytest.mark.slow
@pytest.mark.parametrize("codec", Compression)
def test_random_damage_is_found_or_harmless_and_the_twins_agree(codec: Compression) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED + codec)
    batch = encode_batch(order_feed(12), compression=codec)
    outcomes = set()
    for _ in range(1500):
        damaged = bytearray(batch)
        for _ in range(rng.choice((1, 1, 2, 5))):
            # The records section is where the scan works; the header gets its share.
            position = rng.randrange(HEADER_SIZE, len(damaged)) if rng.random() < 0.8 else rng.randrange(len(damaged))
            damaged[position] = rng.choice((rng.randrange(256), 0x00, 0x01, 0x7F, 0x80, 0xFF))
        plain = outcome(PLAIN, bytes(damaged), False)
        outcomes.add(plain if isinstance(plain, type) else "read")
        if COMPILED is not None:
            assert outcome(COMPILED, bytes(damaged), False) == plain
    assert CorruptBatch in outcomes


@pytest.mark.parametrize("twin", TWINS)
def test_random_bytes_in_a_sound_frame_only_raise_corrupt_batch(twin: ModuleType) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    with using(twin):
        for _ in range(1500):
            count = rng.randrange(1, 5)
            payload = bytes(rng.choice((rng.randrange(256), rng.randrange(32))) for _ in range(rng.randrange(60)))
            batch = with_payload(payload, count=count)
            try:
                decoded = list(decode_batch(batch))
            except CorruptBatch:
                continue
            assert len(decoded) == count


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("payload", BAD_PAYLOADS.values(), ids=BAD_PAYLOADS)
def test_a_record_that_lies_is_corrupt(twin: ModuleType, payload: bytes) -> None:
    with using(twin):
        assert list(decode_batch(with_payload(RECORD))) == [Record(0, -1, b"k", b"v", ())]
        good = with_payload(RECORD)
        with pytest.raises(CorruptBatch):
            decode_batch(with_payload(payload))
        # What came before the bad batch is still handed out.
        read = records_of(good + with_payload(payload, base_offset=1))
        assert next(read).offset == 0
        with pytest.raises(CorruptBatch):
            next(read)


@pytest.mark.parametrize("twin", TWINS)
def test_offsets_that_do_not_grow_are_corrupt(twin: ModuleType) -> None:
    with using(twin):
        with pytest.raises(CorruptBatch, match="offset delta"):
            decode_batch(with_payload(RECORD * 2, count=2))
        second = RECORD[:3] + b"\x02" + RECORD[4:]
        assert [record.offset for record in decode_batch(with_payload(RECORD + second, count=2))] == [0, 1]


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (2**62, 2**62), (-(2**63), -1), (-(2**62), -(2**62) - 1)])
def test_a_timestamp_beyond_64_bits_is_corrupt(twin: ModuleType, base: int, delta: int) -> None:
    batch = encode_batch([Record(timestamp_ms=0), Record(timestamp_ms=delta)])
    with using(twin):
        assert list(decode_batch(with_header(batch, base_timestamp=0)))[1].timestamp_ms == delta
        with pytest.raises(CorruptBatch, match="timestamp"):
            decode_batch(with_header(batch, base_timestamp=base))


@pytest.mark.parametrize("twin", TWINS)
def test_a_varint_may_be_padded_to_its_largest_size(twin: ModuleType) -> None:
    # Kafka reads such padding; the cases above go one byte further.
    key = bytes((24, 0, 0, 0)) + b"\x82\x80\x80\x80\x00" + RECORD[5:]
    timestamp = bytes((34, 0)) + b"\x80" * 9 + b"\x00" + RECORD[3:]
    with using(twin):
        for payload in (key, timestamp):
            assert list(decode_batch(with_payload(payload))) == [Record(0, -1, b"k", b"v", ())]


@pytest.mark.parametrize("twin", TWINS)
def test_with_log_append_time_the_producers_own_times_do_not_matter(twin: ModuleType) -> None:
    batch = encode_batch([Record(timestamp_ms=0), Record(timestamp_ms=9)], append_time_ms=77)
    batch = with_header(batch, base_timestamp=2**63 - 1)
    with using(twin):
        assert [record.timestamp_ms for record in decode_batch(batch)] == [77, 77]
        records: list[Record] = []
        assert twin.read_plain_batches(batch, 0, records, True, 10) == len(batch)
        assert [record.timestamp_ms for record in records] == [77, 77]


BAD_HEADERS: dict[str, dict[str, int]] = {
    "magic 1": {"magic": 1},
    "magic 3": {"magic": 3},
    "length of nothing": {"length": 0},
    "length below a header": {"length": 48},
    "negative length": {"length": -1},
    "largest length": {"length": 2**31 - 1},
    "negative base offset": {"base_offset": -1},
    "offsets beyond 64 bits": {"base_offset": 2**63 - 2},
    "negative last offset delta": {"last_offset_delta": -1},
    "fewer offsets than records": {"last_offset_delta": 1},
    "negative count": {"record_count": -1},
    "one record too few": {"record_count": 2},
    "one record too many": {"record_count": 4, "last_offset_delta": 3},
    "two billion records": {"record_count": 2**31 - 1, "last_offset_delta": 2**31 - 1},
}


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("changes", BAD_HEADERS.values(), ids=BAD_HEADERS)
def test_a_header_that_lies_is_corrupt(twin: ModuleType, changes: dict[str, int]) -> None:
    batch = encode_batch(order_feed(3))
    with using(twin), pytest.raises(CorruptBatch):
        decode_batch(with_header(batch, **changes))


def test_a_length_below_a_header_does_not_stop_the_walk_for_ever() -> None:
    with pytest.raises(CorruptBatch, match="smaller than a header"):
        list(columns_of(with_header(encode_batch(order_feed(3)), length=0)))


def test_an_unknown_codec_has_its_own_error() -> None:
    with pytest.raises(UnsupportedCompression):
        decode_batch(with_header(encode_batch(order_feed(3)), attributes=5))


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("codec", Compression)
def test_a_lying_count_takes_no_memory(twin: ModuleType, codec: Compression) -> None:
    batch = encode_batch(order_feed(50), compression=codec)
    lie = with_header(batch, record_count=2**31 - 1, last_offset_delta=2**31 - 1)
    with using(twin):
        decode_batch(batch)
        tracemalloc.start()
        try:
            with pytest.raises(CorruptBatch):
                decode_batch(lie)
            assert twin.read_plain_batches(lie, 0, [], False, 1) == 0
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
