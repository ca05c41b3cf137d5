"""Where a position stands: the time of its batch, and the bytes behind it, over segments."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, UnsyncedDisk, UnsyncedFile, append, batch_of, open_log

from strandline.log.segment.segment import ColdRead
from strandline.partition.position_lookup import LocatedBatch, bytes_behind, locate_batch, locate_batch_in

SIZE = len(batch_of([b"x" * 100] * 3))


class ColdFile(UnsyncedFile):
    """Nothing of it is in the page cache."""

    def read_at_nowait(self, position: int, size: int) -> bytes | None:
        return None


class ColdDisk(UnsyncedDisk):
    def open(self, path: Path, *, create: bool = False) -> UnsyncedFile:
        return ColdFile(super().open(path, create=create).fileno())


def test_the_time_is_that_of_the_batch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for number in range(5):
        append(log, batch_of([b"x" * 100] * 3, timestamps=[NOON_MS + number * 1000 + at for at in range(3)]))
    for offset in range(15):
        standing = locate_batch(log, offset)
        assert standing == LocatedBatch(0, offset // 3 * SIZE, NOON_MS + offset // 3 * 1000)
        assert bytes_behind(log, standing) == (5 - offset // 3) * SIZE
    assert locate_batch(log, 15) is None


def test_bytes_of_later_segments_lie_behind_it_too(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for _ in range(4):
        append(log, batch_of([b"x" * 100] * 3))
        log.roll(NOON_MS)
    assert len(log.segments) == 5
    standing = locate_batch(log, 4)
    assert standing is not None
    assert standing.base_offset == 3
    assert bytes_behind(log, standing) == 3 * SIZE
    append(log, batch_of([b"x" * 100] * 3))
    assert bytes_behind(log, standing) == 4 * SIZE


def test_a_position_whose_segment_is_gone_stands_nowhere(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for _ in range(3):
        append(log, batch_of([b"x" * 100] * 3))
        log.roll(NOON_MS)
    standing = locate_batch(log, 1)
    assert standing is not None
    for segment in log.cut_front(6):
        segment.delete()
    assert bytes_behind(log, standing) is None


def test_what_only_the_disk_knows_is_left_to_a_thread(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for number in range(5):
        append(log, batch_of([b"x" * 100] * 3, timestamps=[NOON_MS + number] * 3))
    log.close()
    cold = open_log(tmp_path / "orders-0", disk=ColdDisk(), clean=True, recovery_point=15)
    with pytest.raises(ColdRead):
        locate_batch(cold, 4)
    assert locate_batch_in(cold.segments[0], 4, may_block=True) == LocatedBatch(0, SIZE, NOON_MS + 1)
