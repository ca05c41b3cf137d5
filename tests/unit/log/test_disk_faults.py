"""A disk that is full or broken: a failed append leaves the log as it was, a failed sync ends it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.log.engine import (
    NOON_MS,
    abandon,
    append,
    batch_of,
    fill,
    index_entries,
    offsets_in,
    open_log,
    read_bytes,
    time_entries,
)
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.record_batch import parse_header
from strandline.errors import DiskFailed, ErrorCode, StrandlineError, error_code
from strandline.log.flusher import Flusher
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.time_lookup import find_time
from strandline.log.trimming import trim_now
from strandline.log.truncation import truncate_to


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def state(log: PartitionLog) -> tuple[object, ...]:
    return (
        log.log_start_offset,
        log.log_end_offset,
        log.flushed_offset,
        list(log.base_offsets),
        [segment.size_bytes for segment in log.segments],
        [segment.path.read_bytes() for segment in log.segments],
        list(log.leader_epochs.epochs),
        len(log.active.index),
    )


@pytest.mark.parametrize("partial_bytes", [0, 1, 11, 61, 80])
@pytest.mark.parametrize("error_number", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
def test_a_failed_append_leaves_the_log_as_it_was(
    tmp_path: Path, disk: FaultyDisk, partial_bytes: int, error_number: int
) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk, index_interval_bytes=100)
    fill(log, 5)
    before = state(log)
    fault = disk.fail("write_at", error_number, suffix=".log", partial_bytes=partial_bytes)
    for _ in range(3):
        with pytest.raises(DiskFailed, match="cannot append") as caught:
            append(log, batch_of([b"v" * 100]))
        assert error_code(caught.value) == ErrorCode.KAFKA_STORAGE_ERROR
        assert state(log) == before
    assert log.failure is None, "a full disk may be emptied; the log goes on then"
    assert offsets_in(log) == list(range(5))
    fault.repaired = True
    fill(log, 3)
    assert offsets_in(log) == list(range(8))
    log.close()
    again = open_log(log.directory)
    assert offsets_in(again) == list(range(8))
    again.close()


def test_what_a_failed_append_left_and_cannot_be_cut_takes_the_log_offline(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 5)
    failures: list[StrandlineError] = []
    log.on_failed = failures.append
    disk.fail("write_at", errno.EIO, suffix=".log", partial_bytes=40)
    disk.fail("truncate", errno.EIO, suffix=".log")
    with pytest.raises(DiskFailed):
        append(log, batch_of([b"v"]))
    assert len(failures) == 1
    with pytest.raises(DiskFailed):
        log.read(0, size_bytes_max=10)
    log.close()
    again = open_log(log.directory)
    assert offsets_in(again) == list(range(5)), "the next start finds a torn tail and cuts it"
    again.close()


ROLL_FAULTS = [
    pytest.param("open", ".log", 0, id="new log file"),
    pytest.param("open", ".index", 0, id="old index"),
    pytest.param("open", ".index", 1, id="new index"),
    pytest.param("open", ".timeindex", 0, id="old time index"),
    pytest.param("open", ".timeindex", 1, id="new time index"),
    pytest.param("write_at", ".index", 0, id="writing the index"),
    pytest.param("write_at", ".timeindex", 0, id="writing the time index"),
]


@pytest.mark.parametrize(("operation", "suffix", "after"), ROLL_FAULTS)
def test_a_failed_roll_leaves_the_old_segment_growing(
    tmp_path: Path, disk: FaultyDisk, operation: str, suffix: str, after: int
) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=1000, index_interval_bytes=100)
    for offset in range(6):
        append(log, batch_of([b"v" * 60], timestamps=[NOON_MS + offset]))
    assert log.base_offsets == [0]
    disk.fail(operation, errno.ENOSPC, suffix=suffix, after=after)
    for _ in range(2):
        with pytest.raises(DiskFailed, match="cannot roll"):
            append(log, batch_of([b"v" * 500], timestamps=[NOON_MS + 6]))
        assert (log.base_offsets, log.log_end_offset) == ([0], 6)
    # A smaller batch needs no roll. It must not stand behind a segment that was only begun.
    assert append(log, batch_of([b"v"], timestamps=[NOON_MS + 6])) == 6
    assert {path.name for path in log.directory.glob("*.log")} == {"00000000000000000000.log"}
    assert disk.open_now == 1
    abandon(log)
    again = open_log(log.directory, segment_bytes=1000, index_interval_bytes=100)
    assert offsets_in(again) == list(range(7))
    assert parse_header(read_bytes(again, 6)).base_offset == 6
    again.close()


@pytest.mark.parametrize(("operation", "suffix", "after"), ROLL_FAULTS)
def test_once_there_is_room_the_roll_is_made_up_for(
    tmp_path: Path, disk: FaultyDisk, operation: str, suffix: str, after: int
) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=1000, index_interval_bytes=100)
    for offset in range(6):
        append(log, batch_of([b"v" * 60], timestamps=[NOON_MS + offset]))
    disk.fail(operation, errno.ENOSPC, suffix=suffix, after=after, times=1)
    with pytest.raises(DiskFailed, match="cannot roll"):
        append(log, batch_of([b"v" * 500], timestamps=[NOON_MS + 6]))
    assert append(log, batch_of([b"v" * 500], timestamps=[NOON_MS + 6])) == 6
    assert log.base_offsets == [0, 6]
    sealed = log.segments[0]
    # Nothing that memory knew may be missing from the files, above all not the last time.
    assert index_entries(sealed.path.with_suffix(".index")) == [
        (last, position) for last, position in zip(sealed.index.relative_offsets, sealed.index.positions, strict=True)
    ]
    assert time_entries(sealed.path.with_suffix(".timeindex"))[-1] == (NOON_MS + 5, 5)
    log.close()
    again = open_log(log.directory, clean=True, segment_bytes=1000, index_interval_bytes=100)
    found = find_time(again.segments, NOON_MS + 5, start_offset=0, limit_offset=7)
    assert found is not None
    assert found.offset == 5
    again.close()


def test_an_epoch_that_cannot_be_remembered_is_not_begun(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 3, leader_epoch=1)
    before = state(log)
    fault = disk.fail("write_whole", errno.ENOSPC, suffix="leader-epoch-checkpoint")
    with pytest.raises(DiskFailed):
        append(log, batch_of([b"v"]), leader_epoch=2)
    assert state(log) == before
    fault.repaired = True
    append(log, batch_of([b"v"]), leader_epoch=2)
    assert (log.directory / "leader-epoch-checkpoint").read_text() == "0\n2\n1 0\n2 3\n"
    log.close()


@pytest.mark.parametrize("suffix", [".log", ".index"], ids=["append", "roll"])
def test_an_epoch_whose_first_batch_is_not_written_is_not_begun(tmp_path: Path, disk: FaultyDisk, suffix: str) -> None:
    """It would be named as the last one to the next leader, who finds that it diverges, and there is nothing to cut."""
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=1000)
    fill(log, 3, leader_epoch=1)
    before = state(log)
    fault = disk.fail("write_at" if suffix == ".log" else "open", errno.ENOSPC, suffix=suffix)
    batch = batch_of([b"v" * (10 if suffix == ".log" else 900)])
    with pytest.raises(DiskFailed):
        append(log, batch, leader_epoch=2)
    assert state(log) == before
    fault.repaired = True
    append(log, batch, leader_epoch=3)
    assert log.leader_epochs.epochs == [1, 3]
    log.close()


def test_a_failed_sync_ends_the_log_and_is_never_retried(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    runtime = ManualRuntime()
    flusher = Flusher(runtime)
    failures: list[StrandlineError] = []
    log.on_failed = failures.append
    fill(log, 4)
    flusher.flush(log)
    runtime.settle()
    assert log.flushed_offset == 4
    fill(log, 4)
    fault = disk.fail("datasync", errno.EIO, suffix=".log", times=1)
    flusher.flush(log)
    flusher.flush(log)
    runtime.settle()
    assert (fault.hits, len(failures)) == (1, 1)
    assert log.flushed_offset == 4
    # The disk would say yes now; after a no the kernel may have dropped the pages, so nobody asks again.
    syncs = disk.calls["datasync"]
    flusher.flush(log)
    runtime.settle()
    assert log.begin_flush() is None
    assert disk.calls["datasync"] == syncs
    assert log.flushed_offset == 4
    for refused in (lambda: log.read(0, size_bytes_max=10), lambda: append(log, batch_of([b"v"]))):
        with pytest.raises(DiskFailed, match="flush failed"):
            refused()
    log.close()
    assert disk.calls["datasync"] == syncs, "not even closing syncs what could not be synced"


def test_a_failed_sync_while_closing_is_told(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 4)
    disk.fail("datasync", errno.EIO, suffix=".log")
    with pytest.raises(DiskFailed):
        log.close()
    assert log.flushed_offset == 0
    assert disk.open_now == 0, "and the files are closed all the same"


def test_a_file_that_cannot_be_opened_for_its_flush_ends_the_log(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 4)
    log.open_files.forget(log.active)
    disk.fail("open", errno.EIO, suffix=".log")
    with pytest.raises(DiskFailed, match="cannot flush"):
        log.flush_now()
    assert log.begin_flush() is None
    assert isinstance(log.failure, DiskFailed)
    assert log.flushed_offset == 0, "what was never synced is never called flushed"
    assert log.active.references == 0


def test_an_index_that_is_trimmed_away_during_the_flush_is_no_failure(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=300)
    fill(log, 10)
    job = log.begin_flush()
    assert job is not None
    trim_now(log, 5)
    job.run()
    log.end_flush(job, None)
    assert (log.failure, log.flushed_offset) == (None, 10)
    fill(log, 10)
    # The thread has just looked, and the file goes before it is opened.
    disk.fail("open", errno.ENOENT, suffix=".index", times=1)
    log.flush_now()
    assert (log.failure, log.flushed_offset) == (None, 20)
    log.close()


def test_a_sync_that_fails_out_of_descriptors_fails_the_flush_to_come(tmp_path: Path, disk: FaultyDisk) -> None:
    """The kernel tells of a lost page once. Whoever hears of it must pass it on, or the next flush would succeed."""
    open_files = OpenFiles(disk)
    log = open_log(tmp_path / "orders-0", disk=disk, open_files=open_files)
    fill(log, 4)
    disk.fail("datasync", errno.EIO, suffix=".log", times=1)
    disk.fail("open", errno.EMFILE, suffix=".log", times=1)
    with pytest.raises(OSError, match="Too many open files"):
        open_log(tmp_path / "payments-0", disk=disk, open_files=open_files)
    assert log.active.is_open
    with pytest.raises(DiskFailed, match="flush failed"):
        log.flush_now()
    assert log.flushed_offset == 0
    log.close()


def test_a_failed_directory_sync_ends_the_log(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 4)
    disk.fail("sync_directory", errno.EIO)
    with pytest.raises(DiskFailed):
        log.flush_now()
    assert log.flushed_offset == 0
    log.close()


def test_a_new_file_is_flushed_together_with_its_name(tmp_path: Path, disk: FaultyDisk) -> None:
    """A synced file whose directory entry was not synced is lost by a power cut all the same."""
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=400)
    fill(log, 1)
    log.flush_now()
    assert disk.calls["sync_directory"] == 2, "the log's own directory and the one that holds it"
    fill(log, 1)
    log.flush_now()
    assert disk.calls["sync_directory"] == 2
    while len(log.segments) == 1:
        fill(log, 1)
    log.flush_now()
    assert disk.calls["sync_directory"] == 3
    log.close()


def test_a_read_error_is_told_and_harms_nothing(tmp_path: Path, disk: FaultyDisk) -> None:
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 4)
    log.close()
    log = open_log(tmp_path / "orders-0", disk=disk, clean=True)
    fault = disk.fail("read_at", errno.EIO, suffix=".log")
    with pytest.raises(DiskFailed, match="cannot read"):
        log.read(2, size_bytes_max=10)
    fault.repaired = True
    assert offsets_in(log) == list(range(4))
    assert all(segment.references == 0 for segment in log.segments)
    log.close()


@pytest.mark.parametrize("has_restarted", [False, True])
def test_a_full_disk_does_not_stop_a_truncation(tmp_path: Path, disk: FaultyDisk, has_restarted: bool) -> None:
    """It needs no room: what the files of the indexes lack is written later."""
    config = {"segment_bytes": 1000, "index_interval_bytes": 100}
    log = open_log(tmp_path / "orders-0", disk=disk, **config)
    fill(log, 40)
    assert len(log.segments) > 2
    if has_restarted:
        log.close()
        log = open_log(log.directory, disk=disk, clean=True, **config)
    fault = disk.fail("write_at", errno.ENOSPC)
    truncate_to(log, log.base_offsets[1] - 1)
    assert (log.failure, fault.hits) == (None, 0)
    written = index_entries(log.active.path.with_suffix(".index"))
    assert all(position < log.active.size_bytes for _, position in written), "what was cut is in the file no more"
    fault.repaired = True
    fill(log, 40 - log.log_end_offset)
    log.close()
    again = open_log(log.directory, clean=True, **config)
    assert offsets_in(again) == list(range(40))
    for segment in again.segments:
        entries = list(zip(segment.index.relative_offsets, segment.index.positions, strict=True))
        assert index_entries(segment.path.with_suffix(".index")) == entries
        assert len(entries) > 1
    again.close()
