"""Ranges are cut without gap or overlap, limits are shared, filters only ever leave out what cannot match."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from strandline.client.fetcher import OffsetRange
from strandline.ids import ZERO_UUID, TopicPartition
from strandline.spark.source.filters import Bounds, bounds_of
from strandline.spark.source.offset_json import TOPIC_IDS, as_json, from_json, topic_ids_of
from strandline.spark.source.splitting import limited, split

RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 500)), max_size=6).map(
    lambda pairs: [OffsetRange("t", index, start, start + size) for index, (start, size) in enumerate(pairs)]
)


@given(RANGES, st.none() | st.integers(1, 60), st.none() | st.integers(1, 100))
def test_parts_cover_the_ranges_and_are_as_many_as_asked(
    ranges: list[OffsetRange], least: int | None, most: int | None
) -> None:
    parts = split(ranges, partitions_min=least, records_per_partition_max=most)
    wanted = [(each.partition, offset) for each in ranges for offset in range(each.start, each.end)]
    assert [(each.partition, offset) for each in parts for offset in range(each.start, each.end)] == wanted
    assert all(each.size > 0 for each in parts)
    assert most is None or all(each.size <= most for each in parts)
    assert least is None or len(parts) >= min(least, len(wanted))


def test_without_a_wish_a_partition_is_a_task() -> None:
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 5), OffsetRange("t", 2, 5, 9)]
    assert split(ranges, partitions_min=2, records_per_partition_max=None) == [ranges[0], ranges[2]]


def test_what_is_large_is_cut_first() -> None:
    parts = split(
        [OffsetRange("t", 0, 0, 900), OffsetRange("t", 1, 0, 100)], partitions_min=4, records_per_partition_max=None
    )
    assert [(each.partition, each.size) for each in parts] == [(0, 300), (0, 300), (0, 300), (1, 100)]


POSITIONS = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 3)),
    st.tuples(st.integers(0, 10**6), st.integers(0, 10**6)),
    max_size=6,
)


@given(POSITIONS, st.integers(1, 10**6), st.booleans())
def test_a_limit_is_kept_and_everybody_moves(
    positions: dict[TopicPartition, tuple[int, int]], limit: int, is_costly: bool
) -> None:
    start = {each: first for each, (first, _) in positions.items()}
    end = {each: first + size for each, (first, size) in positions.items()}
    cost = dict.fromkeys(positions, 7.5) if is_costly else None
    found = limited(start, end, limit, cost=cost)
    assert set(found) == set(end)
    for each in end:
        assert start[each] <= found[each] <= end[each]
        assert found[each] > start[each] or end[each] == start[each]
    moved = sum(found[each] - start[each] for each in end) * (7.5 if is_costly else 1)
    # One offset each is the least.
    assert moved <= limit + len(end) * (7.5 if is_costly else 1)


def test_partitions_share_a_limit_as_they_share_what_is_there() -> None:
    a, b, c = (TopicPartition("t", each) for each in range(3))
    start = {a: 0, b: 100, c: 7}
    assert limited(start, {a: 900, b: 200, c: 7}, 100) == {a: 90, b: 110, c: 7}
    assert limited(start, {a: 900, b: 200, c: 7}, 2000) == {a: 900, b: 200, c: 7}
    # 900 x 10 + 100 x 10 bytes, and 1000 of them are allowed.
    assert limited(start, {a: 900, b: 200, c: 7}, 1000, cost={a: 10.0, b: 10.0}) == {a: 90, b: 110, c: 7}


def test_offsets_have_the_form_of_sparks_own_source() -> None:
    positions = {TopicPartition("b", 10): 5, TopicPartition("b", 9): 4, TopicPartition("a", 0): 3}
    assert list(as_json(positions, {}).items()) == [("a", {"0": 3}), ("b", {"9": 4, "10": 5})]
    assert list(as_json(positions, {})["b"]) == ["9", "10"]
    assert from_json(as_json(positions, {})) == positions
    # An older broker has no ids to tell.
    told = as_json(positions, {"a": UUID(int=7), "b": ZERO_UUID, "c": UUID(int=8)})
    assert told == {**as_json(positions, {}), TOPIC_IDS: {"a": str(UUID(int=7))}}
    assert (from_json(told), topic_ids_of(told)) == (positions, {"a": UUID(int=7)})


AT = datetime(2026, 1, 1, 12, 0, 0, 123_456, tzinfo=UTC)
AT_MS = int(AT.timestamp() * 1000)


@pytest.mark.parametrize(
    ("filters", "bounds"),
    [
        ([], Bounds()),
        ([EqualTo(("partition",), 3)], Bounds(partitions=frozenset((3,)))),
        ([In(("partition",), (1, 2)), In(("partition",), (2, 3))], Bounds(partitions=frozenset((2,)))),
        ([EqualTo(("topic",), "a")], Bounds(topics=frozenset(("a",)))),
        ([GreaterThanOrEqual(("offset",), 10), LessThan(("offset",), 20)], Bounds(offset_min=10, offset_end=21)),
        ([EqualTo(("offset",), 7)], Bounds(offset_min=7, offset_end=8)),
        ([LessThanOrEqual(("offset",), -5)], Bounds(offset_end=0)),
        ([GreaterThan(("timestamp",), AT)], Bounds(timestamp_ms_min=AT_MS)),
        ([LessThan(("timestamp",), AT)], Bounds()),
        ([EqualTo(("timestamp",), AT)], Bounds(timestamp_ms_min=AT_MS)),
        # What is not understood bounds nothing.
        ([Not(EqualTo(("partition",), 3)), IsNotNull(("value",)), EqualTo(("value",), b"x")], Bounds()),
        ([EqualTo(("a", "offset"), 3)], Bounds()),
        ([GreaterThan(("timestamp",), AT.replace(tzinfo=None))], Bounds()),
        ([EqualTo(("partition",), None)], Bounds()),
        ([GreaterThan(("partition",), 2)], Bounds()),
    ],
)
def test_filters_become_bounds(filters: list[Filter], bounds: Bounds) -> None:
    assert bounds_of(filters) == bounds


def test_bounds_choose_partitions() -> None:
    bounds = Bounds(topics=frozenset(("a",)), partitions=frozenset((1,)))
    assert [bounds.takes(topic, partition) for topic, partition in (("a", 1), ("a", 0), ("b", 1))] == [
        True,
        False,
        False,
    ]
