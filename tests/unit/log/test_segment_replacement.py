"""Segments give way to a cleaned one: readers see one or the other, and so does a restart, wherever the kill came."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.simulator.world.disk import SimDisk
from tests.unit.log.engine import NOON_MS, UnsyncedDisk, append, batch_of, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.record_batch import parse_header
from strandline.errors import DiskFailed
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup
from strandline.log.disk import Disk
from strandline.log.maintenance.segment_replacement import ReplacementRefused, replace_segments
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.file_names import file_stem
from strandline.log.segment.index import OffsetIndex, TimeIndex
from strandline.log.segment.read_verification import locate
from strandline.log.segment.time_lookup import run_to_end, search_latest_time, search_time
from strandline.log.segment.transaction_index import AbortedTransaction, TransactionIndex
from strandline.log.trimming import trim_now
from strandline.log.truncation import begin_truncation, cancel_truncation, restart_at, truncate_to

BATCHES = 12
PER_SEGMENT = 3
GROUP = (0, 3, 6)
"""The first three of four segments; the last is active."""
END = 9


class Killed(BaseException):
    """The process is no more."""


class DyingDisk:
    """A disk under a process that is killed before the `last`th change of a name."""

    def __init__(self, disk: Any, last: int) -> None:
        self._disk = disk
        self.left = last

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def _count(self) -> None:
        if self.left == 0:
            raise Killed
        self.left -= 1

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        self._disk.rename(source, target)

    def remove(self, path: Path) -> None:
        self._count()
        self._disk.remove(path)

    def sync_directory(self, path: Path) -> None:
        self._count()
        self._disk.sync_directory(path)


def filled(directory: Path, disk: Disk, **config: Any) -> PartitionLog:
    """Twelve batches of one record each, three to a segment, all flushed."""
    log = open_log(directory, disk=disk, cleanup_policy=("compact",), **config)
    fill(log)
    return log


def fill(log: PartitionLog) -> None:
    for number in range(BATCHES):
        if number and number % PER_SEGMENT == 0:
            log.roll(now_ms=0)
        append(log, batch_of([b"value %02d" % number]))
    log.flush_now()


def clean(log: PartitionLog, kept: Iterable[int], *, bases: tuple[int, ...] = GROUP) -> CleanedGroup:
    """What a cleaner leaves that keeps the batches at these offsets."""
    wanted, batches = set(kept), []
    for base in bases:
        segment = next(each for each in log.segments if each.base_offset == base)
        for header, position in segment.headers(0, may_block=True):
            if header.base_offset in wanted:
                batches.append(segment.file().read_at(position, header.size_bytes))
    at = log.base_offsets.index(bases[-1])
    size = sum(map(len, batches))
    group = CleanedGroup(
        base_offset=bases[0],
        replaced=bases,
        size_bytes=size,
        has_transaction_index=True,
        records=len(batches),
        end_offset=log.base_offsets[at + 1],
        max_timestamp_ms=-1,
        offset_of_max_timestamp=bases[0],
        suffixes=(".log", ".index", ".timeindex", ".txnindex"),
        size_bytes_before=0,
    )
    aborted = TransactionIndex()
    aborted.append(AbortedTransaction(7, bases[0], bases[0], bases[0]))
    for suffix, data in (
        (".log", b"".join(batches)),
        (".index", OffsetIndex().to_bytes()),
        (".timeindex", TimeIndex().to_bytes()),
        (".txnindex", aborted.to_bytes()),
    ):
        path = log.directory / (file_stem(group.base_offset) + suffix + CLEANED_SUFFIX)
        file = log.disk.open(path, create=True)
        file.truncate(len(data))
        file.write_at(0, data)
        file.datasync()
        file.close()
    log.disk.sync_directory(log.directory)
    return group


def offsets(log: PartitionLog) -> list[int]:
    return [parse_header(batch).base_offset for batch in log.batches()]


def swap(log: PartitionLog, runtime: ManualRuntime, group: CleanedGroup, **more: Any) -> list[BaseException | None]:
    told: list[BaseException | None] = []
    replace_segments(log, group, runtime=runtime, on_done=told.append, **more)
    return told


def plain_names(disk: Disk, directory: Path) -> list[str]:
    return [name for name in disk.names(directory) if name[0].isdigit() and not name.endswith(".snapshot")]


KEPT = (2, 4, 8)
NEW = [2, 4, 8, 9, 10, 11]
OLD = list(range(BATCHES))


def test_the_cleaned_segment_takes_the_place_of_its_sources(tmp_path: Path) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    told = swap(log, runtime, clean(log, KEPT))
    assert offsets(log) == OLD, "nothing changes before the names are safe"
    runtime.settle()
    assert told == [None]
    assert log.swap is None
    assert log.base_offsets == [0, 9]
    assert offsets(log) == NEW
    names = {f"{file_stem(base)}{suffix}" for base in (0, 9) for suffix in (".log", ".index", ".timeindex")}
    names.add(f"{file_stem(0)}.txnindex")
    assert set(plain_names(log.disk, tmp_path)) == names
    log.close()
    for clean_stop in (True, False):
        again = open_log(tmp_path, clean=clean_stop, recovery_point=BATCHES)
        assert offsets(again) == NEW
        assert again.log_end_offset == BATCHES
        again.close()


@pytest.mark.parametrize("jobs", [0, 1, 2])
def test_it_is_read_whatever_its_files_are_called(tmp_path: Path, jobs: int) -> None:
    """From one step to the next, by old readers and new ones."""
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    held = log.read(0, size_bytes_max=1 << 20)
    assert held is not None
    before = held.read()
    swap(log, runtime, clean(log, KEPT))
    for _ in range(jobs):
        runtime.finish_job()
    assert offsets(log) == (OLD if jobs == 0 else NEW)
    assert held.read() == before
    held.segment.load_indexes(may_block=True)
    assert locate(held.segment, 2, may_block=True) is not None, "an old reader finds its way without an index"
    runtime.settle()
    assert held.read() == before
    assert offsets(log) == NEW
    assert any(name.endswith(".deleted") for name in log.disk.names(tmp_path))
    held.release()
    assert not any(name.endswith(".deleted") for name in log.disk.names(tmp_path)), "the last reader took them away"


def test_old_files_are_left_to_who_removes_them(tmp_path: Path) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    removals: list[Callable[[], None]] = []
    swap(log, runtime, clean(log, KEPT), remove=removals.append)
    runtime.settle()
    assert len(removals) == len(GROUP)
    assert sum(name.endswith(".log.deleted") for name in log.disk.names(tmp_path)) == len(GROUP)
    for remove in removals:
        remove()
    assert not any(name.endswith(".deleted") for name in log.disk.names(tmp_path))


def test_nothing_of_the_group_may_stay(tmp_path: Path) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    assert swap(log, runtime, clean(log, ())) == []
    runtime.settle()
    assert offsets(log) == [9, 10, 11]
    log.close()
    again = open_log(tmp_path, recovery_point=BATCHES)
    assert offsets(again) == [9, 10, 11]
    assert again.log_start_offset == 0


@pytest.mark.lengthy("a case for each place where it may fail")
@pytest.mark.parametrize("by_power", [False, True])
def test_a_kill_before_any_change_of_a_name_leaves_one_or_the_other(by_power: bool) -> None:
    """The same changes are counted over and over, and the process dies before each, and so does what opens it next."""
    seen = set()
    for seed in range(12 if by_power else 1):
        last, is_over = 0, False
        while not is_over:
            disk = SimDisk(random.Random(seed * 1000 + last))
            directory = Path("data/t-0")
            log = filled(directory, disk)
            group = clean(log, KEPT)
            disk.sync_all()
            dying = DyingDisk(disk, last)
            log.disk = dying
            for segment in log.segments:
                segment.disk = dying
            runtime = ManualRuntime()
            try:
                told = swap(log, runtime, group)
                runtime.settle()
                is_over = dying.left > 0
                assert told == [None]
            except Killed:
                pass
            lives = 0
            while True:
                if by_power:
                    disk.power_cut()
                try:
                    opening = DyingDisk(disk, lives) if lives < 30 else disk
                    again = open_log(directory, disk=opening, cleanup_policy=("compact",), recovery_point=BATCHES)
                    break
                except Killed:
                    lives += 1
            found = offsets(again)
            assert found in (OLD, NEW), f"killed before change {last}, seed {seed}: {found}"
            if is_over:
                assert found == NEW
            assert again.log_end_offset == BATCHES
            # Who loses this takes records of an aborted transaction for good.
            assert again.segments[0].has_transaction_index == (found == NEW)
            assert not any(name.endswith((".cleaned", ".swap", ".deleted")) for name in disk.names(directory))
            seen.add(tuple(found))
            last += 1
        assert last > 10
    assert len(seen) == 2


def test_a_half_named_set_of_kafkas_is_taken_back(tmp_path: Path) -> None:
    """Kafka gives the log its name first."""
    log = filled(tmp_path, UnsyncedDisk())
    clean(log, KEPT)
    log.close()
    stem = file_stem(0)
    (tmp_path / f"{stem}.log.cleaned").rename(tmp_path / f"{stem}.log.swap")
    again = open_log(tmp_path, recovery_point=BATCHES)
    assert offsets(again) == OLD
    assert not any(name.endswith((".cleaned", ".swap")) for name in again.disk.names(tmp_path))


def test_half_of_a_split_is_taken_back(tmp_path: Path) -> None:
    """Kafka splits a segment into two, and names the later one first: that one has no original."""
    log = filled(tmp_path, UnsyncedDisk())
    clean(log, (3,), bases=(3,))
    log.close()
    for suffix in (".log", ".index", ".timeindex"):
        (tmp_path / f"{file_stem(3)}{suffix}.cleaned").rename(tmp_path / f"{file_stem(4)}{suffix}.swap")
        (tmp_path / f"{file_stem(3)}{suffix}.cleaned").write_bytes(b"")
    again = open_log(tmp_path, recovery_point=BATCHES)
    assert offsets(again) == OLD


def test_a_gap_above_the_recovery_point_is_the_cleaners_where_it_had_come(tmp_path: Path) -> None:
    """Kafka writes no recovery point before it swaps: what it was doing tells where it was."""
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    swap(log, runtime, clean(log, (2,), bases=(0, 3)))
    runtime.settle()
    clean(log, (6,), bases=(6,))
    log.close()
    again = open_log(tmp_path, cleanup_policy=("compact",), recovery_point=0)
    assert offsets(again) == [2, 6, 7, 8, 9, 10, 11]
    again.close()
    again = open_log(tmp_path, cleanup_policy=("compact",), recovery_point=0)
    assert offsets(again) == [2], "without a sign of the cleaner it is what a power cut leaves"


class Sources:
    """What happens to a log while it is cleaned."""

    @staticmethod
    def trimmed(log: PartitionLog) -> None:
        trim_now(log, 4)

    @staticmethod
    def cut(log: PartitionLog) -> None:
        truncate_to(log, 7)

    @staticmethod
    def cut_behind(log: PartitionLog) -> None:
        truncate_to(log, 9)

    @staticmethod
    def begun_anew(log: PartitionLog) -> None:
        restart_at(log, 100, now_ms=0)

    @staticmethod
    def about_to_be_cut(log: PartitionLog) -> None:
        begin_truncation(log, 5)


@pytest.mark.parametrize("jobs", [0, 1])
@pytest.mark.parametrize("change", ["trimmed", "cut", "begun_anew", "about_to_be_cut"])
def test_what_changed_meanwhile_wins(tmp_path: Path, change: str, jobs: int) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    group = clean(log, KEPT)
    sources, cuts = log.segments[:3], log.cuts
    if jobs == 0:
        getattr(Sources, change)(log)
        told = swap(log, runtime, group, sources=sources, cuts=cuts)
    else:
        told = swap(log, runtime, group, sources=sources, cuts=cuts)
        runtime.jobs.popleft()()
        getattr(Sources, change)(log)
    expected = offsets(log)
    if change != "about_to_be_cut":
        # What a kill would leave, right here.
        copy = tmp_path.with_name(tmp_path.name + "-copy")
        shutil.copytree(tmp_path, copy)
        killed = open_log(copy, recovery_point=0, log_start_offset=log.log_start_offset)
        # What is trimmed may still be completed: below the start it counts for nothing, and above it is as good.
        completed = [offset for offset in NEW if offset >= log.log_start_offset] if change == "trimmed" else expected
        assert offsets(killed) in (expected, completed)
        killed.close()
    runtime.settle()
    assert isinstance(told[0], ReplacementRefused)
    assert log.swap is None
    assert offsets(log) == expected
    assert not any(name.endswith((".cleaned", ".swap")) for name in log.disk.names(tmp_path))
    end = log.log_end_offset
    cancel_truncation(log)
    log.close()
    again = open_log(tmp_path, recovery_point=0, log_start_offset=log.log_start_offset)
    assert offsets(again) == expected
    assert again.log_end_offset == end


def test_segments_of_the_same_names_are_not_those_it_was_made_of(tmp_path: Path) -> None:
    """The log began anew, and was filled as before, while it was cleaned."""
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    group = clean(log, KEPT)
    sources, cuts = log.segments[:3], log.cuts
    restart_at(log, 0, now_ms=0)
    fill(log)
    told = swap(log, runtime, group, sources=sources, cuts=cuts)
    runtime.settle()
    assert isinstance(told[0], ReplacementRefused)
    assert offsets(log) == OLD


@pytest.mark.parametrize("change", ["trimmed", "cut", "cut_behind", "begun_anew"])
def test_a_change_after_it_took_its_place_finds_the_files_named(tmp_path: Path, change: str) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    told = swap(log, runtime, clean(log, KEPT))
    runtime.finish_job()
    assert log.base_offsets == [0, 9]
    getattr(Sources, change)(log)
    expected, end = offsets(log), log.log_end_offset
    runtime.settle()
    assert told == [None]
    assert offsets(log) == expected
    log.close()
    again = open_log(tmp_path, recovery_point=log.flushed_offset, log_start_offset=log.log_start_offset)
    assert offsets(again) == expected
    assert again.log_end_offset == end


def test_a_cut_where_the_cleaner_left_nothing_is_found_again(tmp_path: Path) -> None:
    """The segment before the cut ends before it: a restart must not find that the log ends there."""
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    swap(log, runtime, clean(log, (2, 4)))
    runtime.settle()
    assert begin_truncation(log, 9)
    lowered = log.flushed_offset
    unclean = open_log(tmp_path, recovery_point=lowered, cleanup_policy=("compact",))
    unclean.close()
    assert lowered == 0, "a kill before the cut must not find an end below the recovery point"
    truncate_to(log, 9)
    assert log.log_end_offset == 9
    append(log, batch_of([b"after the cut"]))
    assert offsets(log) == [2, 4, 9]
    log.flush_now()
    assert log.flushed_offset == 10
    log.close()
    for clean_stop in (True, False):
        again = open_log(tmp_path, clean=clean_stop, recovery_point=10, cleanup_policy=("compact",))
        assert offsets(again) == [2, 4, 9]
        again.close()


def test_a_deleted_log_is_not_touched_again(tmp_path: Path) -> None:
    """Another log has the directory's name by the time the thread has its turn."""
    for jobs in (0, 1):
        directory = tmp_path / f"t-{jobs}"
        log, runtime = filled(directory, UnsyncedDisk()), ManualRuntime()
        told = swap(log, runtime, clean(log, KEPT))
        for _ in range(jobs):
            runtime.finish_job()
        log.delete(tmp_path / f"t-{jobs}-delete")
        other = filled(directory, UnsyncedDisk())
        names = other.disk.names(directory)
        runtime.settle()
        assert len(told) == 1
        assert other.disk.names(directory) == names
        assert offsets(other) == OLD


def test_a_disk_that_refuses_half_way_takes_the_log_offline_and_a_start_mends_it(tmp_path: Path) -> None:
    class FullDisk(DyingDisk):
        def _count(self) -> None:
            if self.left == 0:
                raise OSError(5, "Input/output error")
            self.left -= 1

    seen = set()
    for last in range(30):
        directory = tmp_path / str(last)
        log, runtime = filled(directory, UnsyncedDisk()), ManualRuntime()
        group = clean(log, KEPT)
        log.disk = FullDisk(log.disk, last)
        told = swap(log, runtime, group)
        runtime.settle()
        assert len(told) == 1
        seen.add(type(log.failure))
        if log.failure is None:
            assert offsets(log) == (OLD if told[0] is not None else NEW)
        again = open_log(directory, recovery_point=BATCHES)
        assert offsets(again) in (OLD, NEW)
    assert seen == {DiskFailed, type(None)}


def test_only_one_at_a_time(tmp_path: Path) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    first = swap(log, runtime, clean(log, (2,), bases=(0, 3)))
    second = swap(log, runtime, clean(log, (6,), bases=(6,)))
    runtime.settle()
    assert first == [None]
    assert isinstance(second[0], ReplacementRefused)
    assert offsets(log) == [2, 6, 7, 8, 9, 10, 11]


def test_one_that_comes_too_late_takes_nothing_from_the_other(tmp_path: Path) -> None:
    """Both are of the same names, as two cleaners by mistake would make them."""
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    group = clean(log, (2,), bases=(0, 3))
    first = swap(log, runtime, group)
    runtime.jobs.popleft()()
    second = swap(log, runtime, group)
    runtime.settle()
    assert first == [None]
    assert isinstance(second[0], ReplacementRefused)
    log.close()
    assert offsets(open_log(tmp_path, recovery_point=BATCHES)) == [2, 6, 7, 8, 9, 10, 11]


def test_the_active_segment_stays(tmp_path: Path) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    group = clean(log, (6,), bases=(6,))._replace(replaced=(6, 9))
    told = swap(log, runtime, group)
    runtime.settle()
    assert isinstance(told[0], ReplacementRefused)
    assert offsets(log) == OLD


def test_a_search_by_time_goes_on_in_what_took_the_place(tmp_path: Path) -> None:
    log, runtime = filled(tmp_path, UnsyncedDisk()), ManualRuntime()
    found = search_time(list(log.segments), NOON_MS, start_offset=1, limit_offset=BATCHES)
    latest = search_latest_time(list(log.segments), start_offset=0, limit_offset=BATCHES)
    swap(log, runtime, clean(log, KEPT))
    runtime.settle()
    for search in (found, latest):
        first = run_to_end(search)
        assert first is not None
        assert first.offset == KEPT[0]
