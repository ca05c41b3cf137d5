"""Records to a batch and back, through both twins."""

from __future__ import annotations

from types import ModuleType

import numpy
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codec.columns_cases import PLAIN, RECORDS, TWINS, numbered, order_feed, using

from strandline.codec.columns import (
    Columns,
    Compression,
    Record,
    columns_of,
    decode_batch,
    decoder_name,
    encode_batch,
    encode_record,
    records_of,
)


@pytest.mark.slow
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=150, deadline=None, print_blob=True)
@given(records=RECORDS, codec=st.sampled_from(Compression), base_offset=st.integers(0, 2**62))
def test_records_survive_the_way_there_and_back(
    twin: ModuleType, records: list[Record], codec: Compression, base_offset: int
) -> None:
    batch = encode_batch(records, base_offset=base_offset, compression=codec)
    with using(twin):
        columns = decode_batch(batch)
        assert list(columns) == numbered(records, base_offset)
        assert [columns.record(row) for row in range(len(columns))] == list(columns)
        assert list(records_of(batch)) == list(columns)
    assert columns.compression == codec
    assert columns.header.max_timestamp == max((record.timestamp_ms for record in records), default=-1)


@settings(max_examples=100, deadline=None, print_blob=True)
@given(records=RECORDS, codec=st.sampled_from(Compression))
def test_both_twins_fill_the_same_columns(records: list[Record], codec: Compression) -> None:
    batch = encode_batch(records, compression=codec)
    chosen = decode_batch(batch)
    with using(PLAIN):
        plain = decode_batch(batch)
    for name in Columns.__slots__:
        assert getattr(chosen, name) == getattr(plain, name), name


@pytest.mark.parametrize("twin", TWINS)
def test_every_field_of_the_header_arrives(twin: ModuleType) -> None:
    batch = encode_batch(
        order_feed(3),
        base_offset=7,
        leader_epoch=5,
        producer_id=4001,
        producer_epoch=3,
        base_sequence=99,
        transactional=True,
        control=True,
    )
    with using(twin):
        columns = decode_batch(batch)
    assert (columns.base_offset, columns.last_offset, columns.count) == (7, 9, 3)
    assert (columns.leader_epoch, columns.producer_id, columns.producer_epoch, columns.base_sequence) == (
        5,
        4001,
        3,
        99,
    )
    assert columns.is_transactional
    assert columns.is_control
    assert columns.header.delete_horizon_ms is None
    assert "offsets 7 to 9" in repr(columns)


@pytest.mark.parametrize("twin", TWINS)
def test_a_batch_without_records_keeps_its_range(twin: ModuleType) -> None:
    # Compaction leaves such a batch behind, for the sake of the producer's sequence.
    batch = encode_batch([], base_offset=40, last_offset_delta=9, producer_id=1, producer_epoch=0, base_sequence=0)
    with using(twin):
        columns = decode_batch(batch)
        assert (len(columns), columns.last_offset, list(columns)) == (0, 49, [])
        assert next(iter(records_of(batch + encode_batch(order_feed(2), base_offset=50)))).offset == 50


@pytest.mark.parametrize("twin", TWINS)
def test_offsets_of_a_compacted_batch_keep_their_gaps(twin: ModuleType) -> None:
    kept = [record for record in order_feed(30, first_offset=100) if record.offset % 4 == 1]
    batch = encode_batch(kept, base_offset=100, keep_offsets=True, last_offset_delta=29)
    with using(twin):
        assert list(decode_batch(batch)) == kept
        assert list(records_of(batch)) == kept
        assert decode_batch(batch).last_offset == 129


@pytest.mark.parametrize("twin", TWINS)
@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_log_append_time_stands_for_every_record(twin: ModuleType, codec: Compression) -> None:
    batch = encode_batch(order_feed(4), append_time_ms=1_800_000_000_000, compression=codec)
    with using(twin):
        assert [record.timestamp_ms for record in decode_batch(batch)] == [1_800_000_000_000] * 4
        assert [record.timestamp_ms for record in records_of(batch)] == [1_800_000_000_000] * 4


@pytest.mark.parametrize("twin", TWINS)
def test_many_batches_end_quietly_in_one_that_is_cut_short(twin: ModuleType) -> None:
    feed = order_feed(40)
    batches = [
        encode_batch(feed[start : start + 8], base_offset=start, compression=codec)
        for start, codec in zip(range(0, 40, 8), Compression, strict=True)
    ]
    fetched = b"".join(batches)
    whole = [sum(map(len, batches[:number])) for number in range(len(batches) + 1)]
    with using(twin):
        for size in range(len(fetched) + 1):
            count = 8 * max(number for number in range(len(whole)) if whole[number] <= size)
            assert list(records_of(fetched[:size])) == feed[:count]
        assert [columns.base_offset for columns in columns_of(fetched[:-1])] == [0, 8, 16, 24]


@pytest.mark.parametrize("twin", TWINS)
def test_records_of_crosses_its_own_read_ahead(twin: ModuleType) -> None:
    feed = order_feed(3000)
    batches = b"".join(encode_batch([record], base_offset=record.offset) for record in feed)
    with using(twin):
        assert list(records_of(batches)) == feed


def test_numpy_wraps_the_columns_without_a_copy() -> None:
    columns = decode_batch(encode_batch(order_feed(20), base_offset=5))
    offsets = numpy.asarray(columns.offsets)
    lengths = numpy.asarray(columns.value_length)
    assert (offsets.dtype, lengths.dtype) == (numpy.int64, numpy.int32)
    assert offsets.tolist() == list(range(5, 25))
    columns.offsets[0] = 77
    assert offsets[0] == 77


def test_an_uncompressed_payload_is_a_view_and_a_compressed_one_its_own() -> None:
    batch = bytearray(encode_batch([Record(value=b"before")]))
    columns = decode_batch(memoryview(batch))
    batch[-7:-1] = b"after!"
    assert columns.value(0) == b"after!"
    assert isinstance(decode_batch(encode_batch([Record()], compression=Compression.ZSTD)).payload, bytes)


def test_a_header_key_that_is_no_utf8_is_shown_as_kafka_shows_it() -> None:
    batch = encode_batch([Record(headers=(("é", b"1"),))])
    broken = batch.replace("é".encode(), b"\xff\xfe")
    assert decode_batch(broken, check_crc=False).headers(0) == (("��", b"1"),)


def test_decoder_name_names_a_twin() -> None:
    assert decoder_name() in ("cython", "python")
    with using(PLAIN):
        assert decoder_name() == "python"


@pytest.mark.parametrize("value", [None, b"", b"x" * 3_000])
@pytest.mark.parametrize("key", [None, b"k" * 100])
@pytest.mark.parametrize("headers", [(), (("a", None), ("b", b"c"))])
def test_one_record_alone_is_the_same_batch(
    value: bytes | None, key: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    alone = encode_record(value, key, headers, 1_700_000_000_123)
    assert alone == encode_batch([Record(-1, 1_700_000_000_123, key, value, headers)])
