"""A log that goes on elsewhere: a follower takes a snapshot in place of batches that its leader no longer has."""

from __future__ import annotations

import errno
from contextlib import suppress
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, UnsyncedDisk, abandon, crash, fill, offsets_in, open_log
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.config.topic_config import TopicConfig
from strandline.errors import DiskFailed
from strandline.ids import TopicPartition
from strandline.log import checkpoints
from strandline.log.leader_epochs import LeaderEpochs
from strandline.log.log_directory import LogDirectory
from strandline.log.truncation import Former, begin_truncation, restart_at, truncate_to

NAME = TopicPartition("orders", 0)


def test_a_restarted_log_is_empty_and_takes_appends(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=500)
    fill(log, 30, leader_epoch=3)
    assert len(log.segments) > 2
    restart_at(log, 100, NOON_MS)
    assert (log.log_start_offset, log.log_end_offset, log.flushed_offset) == (100, 100, 100)
    assert (log.leader_epochs.latest, offsets_in(log)) == (-1, [])
    fill(log, 5, leader_epoch=7)
    log.flush_now()
    again = open_log(crash(log, tmp_path / "after"), segment_bytes=500)
    assert offsets_in(again) == [100, 101, 102, 103, 104]
    assert (again.leader_epochs.epochs, again.leader_epochs.start_offsets) == ([7], [100])
    for each in (log, again):
        abandon(each)


def test_a_reader_of_the_old_records_goes_on_reading(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    piece = log.read(0, size_bytes_max=1 << 20)
    assert piece is not None
    before = piece.read()
    restart_at(log, 50, NOON_MS)
    assert piece.read() == before
    piece.release()
    abandon(log)


def test_a_disk_that_refuses_takes_the_log_offline(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 3)
    disk.fail("sync_directory", 5, times=0)
    with pytest.raises(DiskFailed):
        restart_at(log, 50, NOON_MS)
    assert log.failure is not None
    abandon(log)


@pytest.mark.parametrize(
    ("operation", "suffix"),
    [("open", ".log.tmp"), ("open", ".timeindex.tmp"), ("write_whole", "leader-epoch-checkpoint")],
)
@pytest.mark.parametrize("offset", [100, 0], ids=["elsewhere", "where it began"])
def test_a_full_disk_leaves_the_log_as_it_was(tmp_path: Path, offset: int, operation: str, suffix: str) -> None:
    """A replica that has nothing to lose does not need a restart when there is room again."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=500)
    fill(log, 30, leader_epoch=3)
    log.flush_now()
    fault = disk.fail(operation, errno.ENOSPC, suffix=suffix)
    begin_truncation(log, 0)
    with pytest.raises(DiskFailed):
        restart_at(log, offset, NOON_MS)
    assert fault.hits, "the disk was never asked"
    fault.repaired = True
    assert (log.failure, log.cut_offset is not None, log.leader_epochs.latest) == (None, False, 3)
    assert offsets_in(log) == list(range(30))
    assert not [path for path in log.directory.iterdir() if path.name.endswith(".tmp")]
    fill(log, 2, leader_epoch=3)
    log.flush_now()
    assert log.flushed_offset == 32, "what is there counts as flushed again"
    begin_truncation(log, 0)
    restart_at(log, offset, NOON_MS)
    fill(log, 3, leader_epoch=5)
    assert offsets_in(log) == [offset, offset + 1, offset + 2]
    log.flush_now()
    again = open_log(crash(log, tmp_path / "after"), segment_bytes=500)
    assert offsets_in(again) == [offset, offset + 1, offset + 2]
    for each in (log, again):
        abandon(each)


def test_a_crash_before_the_old_records_go_leaves_them(tmp_path: Path) -> None:
    """The files of the segment to come are made first, and count for nothing until they are the only ones."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=500)
    fill(log, 30, leader_epoch=3)
    log.flush_now()
    disk.fail("rename", errno.EIO)
    begin_truncation(log, 0)
    with pytest.raises(DiskFailed):
        restart_at(log, 100, NOON_MS)
    assert log.failure is not None
    again = open_log(crash(log, tmp_path / "after"), segment_bytes=500)
    assert offsets_in(again) == list(range(30))
    assert again.leader_epochs.latest == 3, "learnt from the batches"
    for each in (log, again):
        abandon(each)


def test_a_log_that_begins_behind_a_store_knows_what_lies_before_it(tmp_path: Path) -> None:
    """Whichever step a crash comes before: else its records in the store could not be found by their epochs."""
    steps = 0
    while _crashed_before(steps, tmp_path / str(steps)):
        steps += 1
    assert steps > 10


def _crashed_before(step: int, home: Path) -> bool:
    """Begin a log at 100 on a disk that fails from a step on, and check what a restart finds. Return whether it did."""
    disk = FaultyDisk()
    log = open_log(home / "orders-0", disk=disk, segment_bytes=1000, remote_storage_enable=True)
    fill(log, 20, leader_epoch=3)
    log.flush_now()
    fault = disk.fail("*", errno.EIO, after=step)
    begin_truncation(log, 0)
    former = Former(LeaderEpochs.parse("0\n3\n1 0\n4 40\n6 90\n"), None, tier_start_offset=0)
    with suppress(DiskFailed):
        restart_at(log, 100, NOON_MS, former)
    has_failed, fault.repaired = fault.hits > 0, True
    again = open_log(crash(log, home / "after"), segment_bytes=1000, remote_storage_enable=True)
    known = list(zip(again.leader_epochs.epochs, again.leader_epochs.start_offsets, strict=True))
    if again.log_end_offset == 100:
        assert known == [(1, 0), (4, 40), (6, 90)], f"crashed before step {step}"
        assert again.tier_start_offset == 0
    else:
        assert has_failed
        assert again.log_end_offset <= 20
        assert known == ([(3, 0)] if again.log_end_offset else [])
    for each in (log, again):
        abandon(each)
    return has_failed


def test_a_flush_that_was_under_way_vouches_for_nothing_new(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 9)
    job = log.begin_flush()
    assert job is not None
    restart_at(log, 5, NOON_MS)
    fill(log, 3)
    job.run()
    log.end_flush(job, None)
    assert log.flushed_offset == 5
    abandon(log)


def test_after_a_cut_and_a_kill_the_log_may_end_where_it_was_cut(tmp_path: Path) -> None:
    """The recovery point comes down first: a log that ends below it is taken for damaged."""
    directory = LogDirectory(tmp_path / "data", disk=UnsyncedDisk(), open_files_max=10)
    log = directory.open_log(NAME, TopicConfig(), now_ms=NOON_MS)
    fill(log, 10)
    log.flush_now()
    directory.write_checkpoints({NAME: (log, 10)})
    directory.lower_recovery_point(NAME, 4)
    truncate_to(log, 4)
    copy = tmp_path / "killed"
    crash(log, copy / str(NAME))
    (copy / checkpoints.RECOVERY_POINTS).write_bytes((directory.path / checkpoints.RECOVERY_POINTS).read_bytes())
    after = LogDirectory(copy, disk=UnsyncedDisk(), open_files_max=10)
    again = after.open_log(NAME, TopicConfig(), now_ms=NOON_MS)
    assert offsets_in(again) == [0, 1, 2, 3]
    for each in (log, again):
        abandon(each)


def test_a_recovery_point_below_stays(tmp_path: Path) -> None:
    directory = LogDirectory(tmp_path / "data", disk=UnsyncedDisk(), open_files_max=10)
    log = directory.open_log(NAME, TopicConfig(), now_ms=NOON_MS)
    fill(log, 10)
    log.flush_now()
    directory.write_checkpoints({NAME: (log, 10)})
    directory.lower_recovery_point(NAME, 11)
    assert directory.recovery_points == {NAME: 10}
    abandon(log)
