"""What a share consumer sends and gets: ranges of acknowledgements, and the records among what was acquired."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from strandline.client.shares.shared_records import ACCEPT, RELEASE, acknowledged_ranges, acquired_records
from strandline.codec.columns import Record, encode_batch


@given(st.dictionaries(st.integers(0, 60), st.integers(0, 4), max_size=40))
def test_ranges_have_each_offset_once_with_its_type(types: dict[int, int]) -> None:
    ranges = list(acknowledged_ranges(types))
    found = {}
    for first, last, kinds in ranges:
        assert len(kinds) in (1, last - first + 1)
        for offset in range(first, last + 1):
            found[offset] = kinds[0] if len(kinds) == 1 else kinds[offset - first]
    assert found == types
    assert all(before.last + 1 < after.first for before, after in itertools.pairwise(ranges))


def test_one_type_is_sent_once() -> None:
    assert list(acknowledged_ranges({7: ACCEPT, 8: ACCEPT, 10: RELEASE})) == [(7, 8, [ACCEPT]), (10, 10, [RELEASE])]


def batch(base_offset: int, offsets: list[int]) -> bytes:
    records = [Record(offset=offset, timestamp_ms=1, value=b"%d" % offset) for offset in offsets]
    return bytes(encode_batch(records, base_offset=base_offset))


def test_offsets_without_a_record_are_gaps() -> None:
    found = list(acquired_records(batch(10, [10, 11, 12, 13]) + batch(16, [16, 17]), [(11, 12, 1), (13, 16, 3)]))
    assert [(offset, None if record is None else record.value, count) for offset, record, count in found] == [
        (11, b"11", 1),
        (12, b"12", 1),
        (13, b"13", 3),
        (14, None, 3),
        (15, None, 3),
        (16, b"16", 3),
    ]


def test_nothing_is_acquired_without_records() -> None:
    assert list(acquired_records(None, [])) == []
    assert list(acquired_records(None, [(3, 4, 1)])) == [(3, None, 1), (4, None, 1)]


def test_markers_of_transactions_are_gaps() -> None:
    marker = encode_batch([Record(offset=2, timestamp_ms=1)], base_offset=2, transactional=True, control=True)
    found = list(acquired_records(batch(0, [0, 1]) + bytes(marker), [(0, 2, 1)]))
    assert [(offset, record is None) for offset, record, _ in found] == [(0, False), (1, False), (2, True)]
