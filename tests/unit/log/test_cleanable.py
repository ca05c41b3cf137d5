"""How much of a log may be cleaned, and whether it is worth it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS, append, batch_of, open_log

from strandline.log.maintenance.cleanable import (
    ACTIVE,
    HIGH_WATERMARK,
    LAG,
    RECOVERY_POINT,
    TRANSACTION,
    Cleanable,
    cleanable,
)
from strandline.log.partition_log import PartitionLog
from strandline.log.trimming import trim_now

HOUR_MS = 3_600_000


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Four segments of three records each, an hour apart; the last is active."""
    return filled(tmp_path)


def filled(directory: Path, **config: Any) -> PartitionLog:
    log = open_log(directory, cleanup_policy=("compact",), segment_ms=2**60, **config)
    for number in range(12):
        time_ms = NOON_MS + number // 3 * HOUR_MS
        if number and number % 3 == 0:
            log.roll(now_ms=time_ms)
        append(log, batch_of([b"value"], timestamps=[time_ms]), now_ms=time_ms)
    log.flush_now()
    return log


def judged(log: PartitionLog, noted: int | None = None, **known: int) -> Cleanable:
    facts = {"high_watermark": 12, "stable_offset": 12, "now_ms": NOON_MS + 4 * HOUR_MS} | known
    return cleanable(log, noted, **facts)


def test_everything_but_the_active_segment_may_be_cleaned(log: PartitionLog) -> None:
    what = judged(log)
    assert (what.first_dirty, what.first_uncleanable, what.segments, what.because) == (0, 9, 3, ACTIVE)
    assert what.dirty_ratio == 1.0
    assert what.is_due(0.99)
    assert not what.is_due(1.0), "more than the ratio, as in Kafka"


def test_what_was_cleaned_counts_as_clean(log: PartitionLog) -> None:
    what = judged(log, 6)
    assert (what.first_dirty, what.first_uncleanable, what.segments) == (6, 9, 3)
    assert what.dirty_ratio == pytest.approx(1 / 3)
    assert not judged(log, 9).is_due(0.0), "nothing is left"
    assert judged(log, 7).cleanable_bytes == what.cleanable_bytes, "a segment that is half clean is dirty"


@pytest.mark.parametrize(
    ("known", "end", "because"),
    [
        ({"stable_offset": 8}, 6, TRANSACTION),
        ({"stable_offset": 6}, 6, TRANSACTION),
        ({"high_watermark": 7, "stable_offset": 7}, 6, HIGH_WATERMARK),
        ({"stable_offset": 2}, 0, TRANSACTION),
    ],
)
def test_only_whole_segments_below_what_is_decided(
    log: PartitionLog, known: dict[str, int], end: int, because: str
) -> None:
    what = judged(log, **known)
    assert (what.first_uncleanable, what.because) == (end, because)
    assert what.segments == end // 3
    assert what.is_due(0.0) == (end > 0)


def test_what_is_not_flushed_is_not_cleaned(log: PartitionLog) -> None:
    log.flushed_offset = 7
    what = judged(log)
    assert (what.first_uncleanable, what.because) == (6, RECOVERY_POINT)


@pytest.mark.parametrize("noted", [20, -1])
def test_a_note_that_cannot_be_is_forgotten(log: PartitionLog, noted: int) -> None:
    what = judged(log, noted)
    assert what.is_reset
    assert what.first_dirty == 0


def test_a_note_below_the_log_start_is_forgotten(log: PartitionLog) -> None:
    trim_now(log, 4)
    what = judged(log, 3)
    assert what.is_reset
    assert (what.first_dirty, what.segments) == (4, 2)
    assert what.first_uncleanable == 9


def test_young_records_are_left_alone(tmp_path: Path) -> None:
    log = filled(tmp_path, min_compaction_lag_ms=2 * HOUR_MS)
    what = judged(log, now_ms=NOON_MS + 3 * HOUR_MS)
    assert (what.first_uncleanable, what.because) == (6, LAG), "the one of an hour ago is too young"
    assert what.until_ms == NOON_MS + 4 * HOUR_MS
    assert judged(log, now_ms=what.until_ms - 1).first_uncleanable == 6
    assert judged(log, now_ms=what.until_ms).first_uncleanable == 9
    assert judged(log, now_ms=NOON_MS - 9 * HOUR_MS).first_uncleanable == 0, "a clock that went back cleans nothing"


def test_old_records_are_overdue_and_the_active_segment_must_roll(tmp_path: Path) -> None:
    log = filled(tmp_path, max_compaction_lag_ms=2 * HOUR_MS, min_cleanable_dirty_ratio=1.0)
    what = judged(log, now_ms=NOON_MS + 2 * HOUR_MS)
    assert what.due_ms == NOON_MS + 2 * HOUR_MS
    assert not what.is_overdue
    what = judged(log, now_ms=NOON_MS + 2 * HOUR_MS + 1)
    assert what.is_due(1.0)
    assert not what.must_roll
    assert judged(log, 3, now_ms=NOON_MS + 2 * HOUR_MS + 1).is_overdue is False, "those are clean"
    assert judged(log, 9, now_ms=NOON_MS + 6 * HOUR_MS).must_roll
    assert judged(log, 9, now_ms=NOON_MS + 6 * HOUR_MS).is_overdue is False, "nothing may be cleaned before that"


def test_old_records_that_came_just_now_have_not_been_waiting(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy=("compact",), max_compaction_lag_ms=HOUR_MS, segment_ms=2**60)
    append(log, batch_of([b"value"], timestamps=[NOON_MS - 9 * HOUR_MS]))
    log.flush_now()
    known = {"high_watermark": 1, "stable_offset": 1}
    assert not judged(log, now_ms=NOON_MS + HOUR_MS, **known).must_roll
    assert judged(log, now_ms=NOON_MS + HOUR_MS + 1, **known).must_roll


def test_records_of_the_future_are_waiting_since_they_came(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy=("compact",), max_compaction_lag_ms=HOUR_MS, segment_ms=2**60)
    append(log, batch_of([b"value"], timestamps=[NOON_MS + 900 * HOUR_MS]))
    log.flush_now()
    assert judged(log, now_ms=NOON_MS + 2 * HOUR_MS, high_watermark=1, stable_offset=1).must_roll


def test_times_that_only_the_disk_knows_are_asked_for(tmp_path: Path) -> None:
    filled(tmp_path).close()
    log = open_log(
        tmp_path,
        clean=True,
        recovery_point=12,
        cleanup_policy=("compact",),
        min_compaction_lag_ms=1,
        max_compaction_lag_ms=HOUR_MS,
    )
    what = judged(log)
    assert set(what.unknown) == set(log.segments[:3])
    assert what.first_uncleanable == 0, "nothing is cleaned by a guess"
