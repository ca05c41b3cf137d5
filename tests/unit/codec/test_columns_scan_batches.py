"""Many batches in one scan: both twins find the same rows, and stop before what is not theirs."""

from __future__ import annotations

from array import array
from types import ModuleType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.codec.columns_cases import RECORDS, TWINS, numbered, order_feed

from strandline.codec.columns import Compression, Record, encode_batch, records_of
from strandline.codec.columns.batch import read_headers

ROWS = 600
BATCHES = 20
FIELDS = 6


class Room:
    def __init__(self) -> None:
        self.batches = array("q", bytes(8 * FIELDS * BATCHES))
        self.wide = array("q", bytes(8 * 2 * ROWS))
        self.narrow = array("i", bytes(4 * 6 * ROWS))
        self.filled = array("q", (0, 0))

    def scan(self, twin: ModuleType, source: bytes, position: int = 0, *, check_crc: bool = True) -> int:
        end: int = twin.scan_batches(source, position, self.batches, self.wide, self.narrow, self.filled, check_crc)
        return end

    def records(self, source: bytes) -> list[Record]:
        found = []
        for row in range(self.filled[1]):
            key_start, key_length, value_start, value_length, header_start, header_count = self.narrow[row::ROWS]
            found.append(
                Record(
                    self.wide[row],
                    self.wide[ROWS + row],
                    None if key_length < 0 else source[key_start : key_start + key_length],
                    None if value_length < 0 else source[value_start : value_start + value_length],
                    read_headers(source, header_start, header_count),
                )
            )
        return found


@pytest.mark.lengthy("many examples, each of them costly")
@pytest.mark.parametrize("twin", TWINS)
@settings(max_examples=30, deadline=None)
@given(parts=st.lists(RECORDS, max_size=6))
def test_the_rows_are_those_of_the_strict_way(twin: ModuleType, parts: list[list[Record]]) -> None:
    source = b""
    offset = 5
    for part in parts:
        source += encode_batch(numbered(part, offset), base_offset=offset) if part else b""
        offset += len(part)
    room = Room()
    assert room.scan(twin, source) == len(source)
    assert room.records(source) == list(records_of(source))


@pytest.mark.parametrize("twin", TWINS)
def test_what_is_known_of_each_batch(twin: ModuleType) -> None:
    plain = encode_batch(order_feed(3), base_offset=10, leader_epoch=4)
    stamped = encode_batch(
        order_feed(2), base_offset=20, append_time_ms=77, producer_id=9, producer_epoch=0, base_sequence=0
    )
    room = Room()
    assert room.scan(twin, plain + stamped) == len(plain + stamped)
    assert room.filled.tolist() == [2, 5]
    assert room.batches[:FIELDS].tolist() == [10, 12, 4, 0, -1, 3]
    assert room.batches[FIELDS : 2 * FIELDS].tolist() == [20, 21, -1, 8, 9, 2]
    assert room.wide[ROWS + 3 : ROWS + 5].tolist() == [77, 77]


@pytest.mark.parametrize("twin", TWINS)
def test_it_stops_before_what_is_not_its_own(twin: ModuleType) -> None:
    first = encode_batch(order_feed(5), base_offset=0)
    squeezed = encode_batch(order_feed(5), base_offset=5, compression=Compression.LZ4)
    damaged = bytearray(encode_batch(order_feed(5), base_offset=5))
    damaged[-1] ^= 1
    too_many = encode_batch(order_feed(ROWS), base_offset=5)
    cut = encode_batch(order_feed(5), base_offset=5)[:-1]
    for second in (squeezed, bytes(damaged), too_many, cut):
        room = Room()
        assert room.scan(twin, first + second) == len(first)
        assert room.filled.tolist() == [1, 5]


@pytest.mark.parametrize("twin", TWINS)
def test_a_wrong_crc_counts_only_when_it_is_looked_at(twin: ModuleType) -> None:
    batch = bytearray(encode_batch(order_feed(5), base_offset=0))
    batch[17] ^= 1
    room = Room()
    assert room.scan(twin, bytes(batch)) == 0
    assert room.scan(twin, bytes(batch), check_crc=False) == len(batch)


@pytest.mark.parametrize("twin", TWINS)
def test_it_goes_on_where_it_stopped(twin: ModuleType) -> None:
    parts = [encode_batch(order_feed(1, first_offset=at), base_offset=at) for at in range(BATCHES + 7)]
    source = b"".join(parts)
    room = Room()
    position = room.scan(twin, source)
    assert position == sum(map(len, parts[:BATCHES]))
    assert room.filled.tolist() == [BATCHES, BATCHES]
    room.filled[0] = room.filled[1] = 0
    assert room.scan(twin, source, position) == len(source)
    assert [each.offset for each in room.records(source)] == list(range(BATCHES, BATCHES + 7))


@pytest.mark.parametrize("twin", TWINS)
def test_headers_are_found(twin: ModuleType) -> None:
    headers = (("a", b"1"), ("b" * 300, None), ("", b""))
    source = encode_batch([Record(value=b"x"), Record(headers=headers), Record(headers=headers[:1])], base_offset=0)
    room = Room()
    assert room.scan(twin, source) == len(source)
    starts, counts = room.narrow[4 * ROWS : 4 * ROWS + 3], room.narrow[5 * ROWS : 5 * ROWS + 3]
    positions = array("i", bytes(4 * 4 * 4))
    assert twin.locate_headers(source, starts, counts, positions) == 4
    found = []
    for at in range(0, 16, 4):
        key_start, key_length, value_start, value_length = positions[at : at + 4]
        value = None if value_length < 0 else source[value_start : value_start + value_length]
        found.append((source[key_start : key_start + key_length].decode(), value))
    assert found == [*headers, headers[0]]
