"""`preallocate`: a segment's file has its full size while it grows, and only what was written when it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS, append, batch_of, crash, fill, offsets_in, open_log

from strandline.log.partition_log import PartitionLog

SIZE = 64 * 1024


def open_preallocated(path: Path, **more: Any) -> PartitionLog:
    return open_log(path, preallocate=True, segment_bytes=SIZE, **more)


def sizes(log: PartitionLog) -> list[int]:
    return [segment.path.stat().st_size for segment in log.segments]


def test_full_size_at_once_and_no_more_than_that(tmp_path: Path) -> None:
    log = open_preallocated(tmp_path / "orders-0")
    assert sizes(log) == [SIZE]
    assert log.size_bytes() == 0
    fill(log, 10)
    assert sizes(log) == [SIZE]
    assert offsets_in(log) == list(range(10))
    log.close()
    assert sizes(log) == [log.size_bytes()]


def test_without_it_files_grow(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=SIZE)
    fill(log, 10)
    assert sizes(log) == [log.size_bytes()]
    log.close()


def test_a_segment_that_ends_gives_the_rest_back(tmp_path: Path) -> None:
    log = open_preallocated(tmp_path / "orders-0")
    fill(log, 10)
    log.flush_now()
    log.roll(NOON_MS)
    assert sizes(log) == [log.segments[0].size_bytes, SIZE]
    assert log.segments[0] in log.unsynced.segments, "its size is flushed before anything behind it counts"
    fill(log, 10)
    assert offsets_in(log) == list(range(20))
    log.close()


def test_a_clean_restart_goes_on_behind_the_last_batch(tmp_path: Path) -> None:
    log = open_preallocated(tmp_path / "orders-0")
    fill(log, 10)
    log.close()
    log = open_preallocated(tmp_path / "orders-0", clean=True, recovery_point=10)
    assert log.log_end_offset == 10
    fill(log, 5)
    assert offsets_in(log) == list(range(15))
    log.close()


@pytest.mark.parametrize("batches", [0, 1, 10])
def test_after_a_crash_zeros_are_a_torn_tail(tmp_path: Path, batches: int) -> None:
    log = open_preallocated(tmp_path / "orders-0")
    fill(log, batches)
    left = crash(log, tmp_path / "crashed-0")
    log.close()
    found = open_preallocated(left, recovery_point=batches)
    assert found.log_end_offset == batches
    fill(found, 3)
    assert offsets_in(found) == list(range(batches + 3))
    found.close()


def test_a_torn_tail_before_a_segment_of_zeros_is_cut(tmp_path: Path) -> None:
    log = open_preallocated(tmp_path / "orders-0")
    fill(log, 10)
    log.roll(NOON_MS)
    left = crash(log, tmp_path / "crashed-0")
    log.close()
    # The power went: the last bytes of the segment never reached the disk, the new file did, at its full size.
    torn = left / "00000000000000000000.log"
    torn.write_bytes(torn.read_bytes()[:-5])
    found = open_preallocated(left, recovery_point=5)
    assert offsets_in(found) == list(range(9))
    found.close()


def test_a_torn_tail_before_a_segment_with_batches_ends_the_log(tmp_path: Path) -> None:
    log = open_preallocated(tmp_path / "orders-0")
    fill(log, 10)
    log.roll(NOON_MS)
    append(log, batch_of([b"behind"]))
    left = crash(log, tmp_path / "crashed-0")
    log.close()
    # A flush syncs the older file first, so whatever lies behind was never flushed either.
    torn = left / "00000000000000000000.log"
    torn.write_bytes(torn.read_bytes()[:-5])
    found = open_preallocated(left, recovery_point=5)
    assert offsets_in(found) == list(range(9))
    found.close()
