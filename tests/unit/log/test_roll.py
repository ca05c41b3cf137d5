"""When a segment ends and what is in its files then: by size, by time, by a full index, by the reach of an offset."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import (
    NOON_MS,
    append,
    batch_of,
    crash,
    expected_indexes,
    fill,
    offsets_in,
    open_log,
    read_bytes,
    split,
    time_entries,
)

from strandline.codec.columns import Record, encode_batch
from strandline.codec.record_batch import parse_header
from strandline.log.partition_log import PartitionLog
from strandline.log.rolling import RELATIVE_OFFSET_MAX

MINUTE_MS = 60_000


def bases(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]


def test_a_segment_never_grows_beyond_segment_bytes(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=1000)
    size = len(batch_of([b"0" * 100]))
    for _ in range(30):
        append(log, batch_of([b"0" * 100]))
    per_segment = 1000 // size
    assert bases(log) == list(range(0, 30, per_segment))
    assert all(segment.size_bytes <= 1000 for segment in log.segments)
    assert {path.name for path in log.directory.glob("*.log")} == {f"{base:020d}.log" for base in bases(log)}
    log.close()


def test_a_batch_that_fills_the_segment_exactly_still_goes_into_it(tmp_path: Path) -> None:
    size = len(batch_of([b"0" * 100]))
    log = open_log(tmp_path / "orders-0", segment_bytes=3 * size)
    for _ in range(4):
        append(log, batch_of([b"0" * 100]))
    assert bases(log) == [0, 3]
    log.close()


def test_a_batch_larger_than_a_segment_gets_one_of_its_own(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=500)
    for _ in range(3):
        append(log, batch_of([b"0" * 2000]))
    assert bases(log) == [0, 1, 2]
    assert offsets_in(log) == [0, 1, 2]
    log.close()


def test_time_is_that_of_the_records(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_ms=MINUTE_MS)
    for time_ms in (0, 30_000, MINUTE_MS, MINUTE_MS + 1, MINUTE_MS + 2):
        # The clock stands still: only the records' own time may count.
        append(log, batch_of([b"v"], timestamps=[NOON_MS + time_ms]), now_ms=NOON_MS)
    assert bases(log) == [0, 3], "the first record more than segment.ms after the segment's first begins a new one"
    log.close()


def test_time_is_that_of_the_first_batch_also_after_a_restart(tmp_path: Path) -> None:
    for clean in (True, False):
        directory = tmp_path / f"orders-{clean:d}"
        log = open_log(directory, segment_ms=MINUTE_MS)
        append(log, batch_of([b"v"], timestamps=[NOON_MS]))
        append(log, batch_of([b"v"], timestamps=[NOON_MS + 30_000]))
        log.close()
        log = open_log(directory, clean=clean, segment_ms=MINUTE_MS)
        append(log, batch_of([b"v"], timestamps=[NOON_MS + MINUTE_MS]))
        assert bases(log) == [0]
        append(log, batch_of([b"v"], timestamps=[NOON_MS + MINUTE_MS + 1]))
        assert bases(log) == [0, 3]
        log.close()


def test_records_without_a_time_roll_by_the_age_of_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_ms=MINUTE_MS)
    for age_ms in (0, MINUTE_MS, MINUTE_MS + 1):
        append(log, batch_of([b"v"], timestamps=[-1]), now_ms=NOON_MS + age_ms)
    assert bases(log) == [0, 2]
    log.close()


def test_a_full_index_ends_the_segment(tmp_path: Path) -> None:
    """Of both files: a time index entry is larger than an offset index entry, so its file fills first, and one place in
    it is kept for the entry that completes the segment."""
    log = open_log(tmp_path / "orders-0", index_interval_bytes=1, segment_index_bytes=120)
    fill(log, 40)
    assert len(log.segments) > 2
    for segment in log.segments[:-1]:
        assert segment.path.with_suffix(".timeindex").stat().st_size <= 120
        assert segment.path.with_suffix(".index").stat().st_size <= 120
    # The first batch of a segment has no entry; 120 // 12 - 1 entries are full.
    assert bases(log)[:3] == [0, 10, 20]
    log.close()


def test_times_that_stand_still_fill_only_the_offset_index(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", index_interval_bytes=1, segment_index_bytes=120)
    for _ in range(40):
        append(log, batch_of([b"v"], timestamps=[NOON_MS]))
    assert bases(log)[:3] == [0, 16, 32]
    log.close()


def test_an_offset_out_of_reach_of_four_bytes_begins_a_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for base_offset in (0, RELATIVE_OFFSET_MAX, RELATIVE_OFFSET_MAX + 1):
        batch = encode_batch([Record(timestamp_ms=NOON_MS, value=b"v")], base_offset=base_offset, leader_epoch=0)
        log.append_as_is(batch, parse_header(batch), now_ms=NOON_MS)
    assert bases(log) == [0, RELATIVE_OFFSET_MAX + 1]
    log.close()


@pytest.mark.parametrize("interval_bytes", [0, 1, 100, 150, 300, 1000, 4096])
def test_index_entries_stand_where_kafka_puts_them(tmp_path: Path, interval_bytes: int) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=5000, index_interval_bytes=interval_bytes)
    for number in range(80):
        # Times go up and down: an entry holds the largest so far and the offset of the batch that brought it.
        times = [NOON_MS + (number * 37) % 100 + number * 5 + step for step in range(1 + number % 3)]
        append(log, batch_of([b"v" * (number * 13 % 120)] * (1 + number % 3), timestamps=times))
    log.close()
    for segment in log.segments:
        data = segment.path.read_bytes()
        sealed = segment is not log.active
        index, time_index = expected_indexes(
            split(data), base_offset=segment.base_offset, interval_bytes=interval_bytes, sealed=sealed
        )
        assert segment.path.with_suffix(".index").read_bytes() == index
        assert segment.path.with_suffix(".timeindex").read_bytes() == time_index


def test_a_sealed_segment_knows_its_largest_time_even_without_index_entries(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=300)
    append(log, batch_of([b"v" * 50], timestamps=[NOON_MS + 9]))
    append(log, batch_of([b"v" * 50], timestamps=[NOON_MS + 4]))
    append(log, batch_of([b"v" * 150], timestamps=[NOON_MS + 5]))
    assert bases(log) == [0, 2]
    assert time_entries(log.segments[0].path.with_suffix(".timeindex")) == [(NOON_MS + 9, 0)]
    log.close()


def test_a_roll_leaves_an_empty_segment_that_a_restart_takes_up(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    log.roll(NOON_MS)
    assert bases(log) == [0, 3]
    for clean, copy in ((False, "a"), (True, "b")):
        again = open_log(crash(log, tmp_path / copy), clean=clean)
        assert bases(again) == [0, 3]
        assert again.log_end_offset == 3
        fill(again, 1)
        assert offsets_in(again) == [0, 1, 2, 3]
        assert parse_header(read_bytes(again, 3)).base_offset == 3
        again.close()
    log.close()


def test_jitter_rolls_earlier_and_each_partition_at_its_own_time(tmp_path: Path) -> None:
    """`segment.jitter.ms` is taken off `segment.ms`, another part of it for each segment."""
    rolled_at = {}
    for partition in range(8):
        log = open_log(tmp_path / f"orders-{partition}", segment_ms=100 * MINUTE_MS, segment_jitter_ms=50 * MINUTE_MS)
        for minute in range(102):
            append(log, batch_of([b"v"], timestamps=[NOON_MS + minute * MINUTE_MS]))
            if len(log.segments) > 1:
                rolled_at[partition] = minute
                break
        log.close()
    assert all(50 < minute <= 101 for minute in rolled_at.values()), rolled_at
    assert len(rolled_at) == 8
    assert len(set(rolled_at.values())) > 4, rolled_at


def test_jitter_as_long_as_the_time_itself(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_ms=MINUTE_MS, segment_jitter_ms=1000 * MINUTE_MS)
    append(log, batch_of([b"v"]))
    append(log, batch_of([b"v"]))
    assert bases(log) == [0], "never less than no time at all"
    log.close()
