"""Files of segments that were cut off a log: renamed when the start is written down, removed later, never another's."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, append, batch_of, open_log, records_in
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.maintenance.removals import SEGMENTS_PER_JOB, Removals, SegmentRemovals
from strandline.errors import DiskFailed
from strandline.log.maintenance.segment_deletion import TrimmedSegments
from strandline.log.partition_log import PartitionLog
from strandline.log.trimming import remove_segments
from strandline.log.truncation import restart_at

Written = Callable[[BaseException | None], object]


class World:
    """A log of many small segments, whose start offset is written down when the test says so."""

    def __init__(self, path: Path, *, count: int = 40, delay_ms: int = 60_000) -> None:
        self.runtime = ManualRuntime()
        self.disk = FaultyDisk()
        self.removals = Removals(self.runtime, self.disk)
        self.segments = SegmentRemovals(self.runtime, self.disk, self._write)
        self.writes: list[Written] = []
        self.log = open_log(
            path / "orders-0", disk=self.disk, segment_bytes=300, file_delete_delay_ms=delay_ms, index_interval_bytes=0
        )
        for _ in range(count):
            append(self.log, batch_of([b"value"]))
        self.log.flush_now()
        self.log.on_trimmed = self.segments.take
        self.log.remove_files = lambda unlink: self.removals.remove_files_of(self.log, unlink)

    def _write(self, on_done: Written) -> None:
        self.writes.append(on_done)

    def cut(self, offset: int) -> None:
        remove_segments(self.log, self.log.cut_front(offset))
        self.runtime.turn()

    def names(self, suffix: str) -> list[str]:
        return sorted(path.name for path in self.log.directory.iterdir() if path.name.endswith(suffix))

    def pass_time(self, delay_s: float) -> None:
        self.runtime.now += delay_s
        due = [timer for timer in self.runtime.timers if timer.due <= self.runtime.now]
        self.runtime.timers = [timer for timer in self.runtime.timers if timer not in due]
        for timer in due:
            timer.callback()
        self.runtime.settle()


def of(log: PartitionLog) -> list[str]:
    return [f"{base:020d}.log" for base in log.base_offsets]


def test_files_go_when_the_start_is_written_down_and_the_delay_is_over(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.names(".log")
    world.cut(40)
    world.runtime.settle()
    assert world.names(".log") == before, "a power cut now must find what the start offset on disk speaks of"
    world.writes.pop()(None)
    world.runtime.settle()
    assert world.names(".log") == of(world.log)
    assert len(world.names(".log.deleted")) == len(before) - 1
    world.pass_time(59)
    assert len(world.names(".log.deleted")) == len(before) - 1
    world.pass_time(2)
    assert not world.names(".deleted")
    assert (
        len(world.names("")) == len([name for name in world.names("") if name[:20] in {of(world.log)[0][:20]}]) + 1
    ), "the last segment and the epochs are left"


def test_what_is_cut_meanwhile_goes_with_the_next_write(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.cut(10)
    world.cut(20)
    world.cut(30)
    assert len(world.writes) == 1, "one at a time"
    world.writes.pop()(None)
    world.runtime.settle()
    assert len(world.writes) == 1
    world.writes.pop()(None)
    world.runtime.settle()
    assert world.names(".log") == of(world.log)
    world.cut(30)
    world.log.written_start_offset = 40
    world.cut(40)
    world.runtime.settle()
    assert not world.writes, "what is known to be on disk is not written again"
    assert world.names(".log") == of(world.log)


def test_a_disk_too_full_for_the_start_offset_gets_its_room_all_the_same(tmp_path: Path) -> None:
    world = World(tmp_path, delay_ms=0)
    world.cut(40)
    synced = world.disk.calls["sync_directory"]
    world.writes.pop()(OSError(errno.ENOSPC, "full"))
    world.runtime.settle()
    assert world.names(".log") == of(world.log)
    assert not world.names(".deleted")
    assert world.disk.calls["sync_directory"] > synced, "the names are all there is to tell what is gone"


def test_files_are_renamed_oldest_first_over_many_trips(tmp_path: Path) -> None:
    world = World(tmp_path, count=5 * SEGMENTS_PER_JOB)
    before = world.names(".log")
    world.cut(world.log.log_end_offset)
    world.writes.pop()(None)
    trips = 0
    while world.runtime.jobs:
        left = world.names(".log")
        assert left == before[len(before) - len(left) :], "a crash here must not leave a hole"
        world.runtime.finish_job()
        trips += 1
    assert trips > 1
    assert world.names(".log") == of(world.log)


def test_a_file_that_cannot_be_renamed_stays_and_those_behind_it_too(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    before = world.names(".log")
    fault = world.disk.fail("rename", errno.EIO, suffix="00000000000000000000.log", times=1)
    world.cut(30)
    world.writes.pop()(None)
    world.runtime.settle()
    assert fault.hits == 1
    assert world.names(".log") == before, "no hole"
    assert "stay for now" in caplog.text
    world.cut(40)
    world.writes.pop()(None)
    world.runtime.settle()
    assert world.names(".log") == of(world.log), "the next ones take it along"


def test_a_log_of_the_same_name_keeps_its_files(tmp_path: Path) -> None:
    """Deleted and made anew while the files of the old one were still on their way out."""
    world = World(tmp_path)
    directory, bases = world.log.directory, list(world.log.base_offsets)
    world.cut(40)
    world.writes.pop()(None)
    world.runtime.turn()
    assert world.runtime.jobs, "a thread is about to rename them"
    world.log.delete(directory.with_name("orders-0.0123-delete"))
    directory.mkdir()
    new = {directory / f"{base:020d}{suffix}" for base in bases for suffix in (".log", ".index", ".timeindex")}
    for path in new:
        path.write_bytes(b"new")
    world.runtime.settle()
    world.pass_time(100)
    assert set(directory.iterdir()) == new


def test_a_log_that_begins_anew_keeps_its_files(tmp_path: Path) -> None:
    """A follower whose leader's log begins elsewhere, perhaps where a segment of the old log began."""
    world = World(tmp_path)
    base = world.log.base_offsets[3]
    world.cut(40)
    restart_at(world.log, base, NOON_MS)
    append(world.log, batch_of([b"new"]))
    world.log.flush_now()
    world.writes.pop()(None)
    world.runtime.settle()
    world.pass_time(100)
    assert world.names(".log") == of(world.log) == [f"{base:020d}.log"]
    reopened = open_log(world.log.directory, recovery_point=base + 1, log_start_offset=base)
    assert [record.value for record in records_in(reopened)] == [b"new"]


def test_a_reader_keeps_what_it_holds(tmp_path: Path) -> None:
    world = World(tmp_path, delay_ms=0)
    piece = world.log.read(0, size_bytes_max=100)
    assert piece is not None
    before = piece.read()
    world.cut(40)
    world.writes.pop()(None)
    world.runtime.settle()
    assert "00000000000000000000.log.deleted" in world.names(".deleted")
    assert piece.read() == before
    piece.release()
    world.runtime.settle()
    assert not world.names(".deleted")


def test_a_log_that_failed_keeps_its_files_for_the_next_start(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = world.names(".log")
    world.cut(40)
    world.log.fail(DiskFailed("the platter is gone"))
    world.writes.pop()(None)
    world.runtime.settle()
    assert world.names(".log") == before
    reopened = open_log(world.log.directory, recovery_point=40, log_start_offset=40)
    assert reopened.log_start_offset == 40
    assert len(reopened.segments) == 1
    assert not world.names(".deleted")


def test_nothing_is_left_to_do_for_a_thread_that_comes_late(tmp_path: Path) -> None:
    world = World(tmp_path)
    leaving = TrimmedSegments()
    gone = world.log.cut_front(40)
    for segment in gone:
        segment.begin_delete(None)
    leaving.add(gone)
    leaving.rename_rest()
    assert leaving.rename_next() is None
    assert not len(leaving)


def test_a_deleted_topic_goes_after_its_delay(tmp_path: Path) -> None:
    world = World(tmp_path)
    gone = tmp_path / "orders-1.0123-delete"
    gone.mkdir()
    world.removals.remove(gone, delay_ms=1_000)
    world.runtime.settle()
    assert gone.exists()
    world.pass_time(2)
    assert not gone.exists()
