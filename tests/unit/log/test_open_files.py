"""Hundreds of segments and few descriptors: files are opened on demand and closed behind nobody's back."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest
from tests.unit.log.engine import fill, offsets_in, open_log, read_bytes
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.codec.record_batch import parse_header
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.open_files import OpenFiles

SEED = 20_241_109
FILES_MAX = 16
SEGMENTS = 200
BESIDE = 2
"""An index is opened for a moment to be read or written; it is not kept."""


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk()


def many_segments(directory: Path, disk: FaultyDisk, open_files: OpenFiles, segments: int = SEGMENTS) -> PartitionLog:
    log = open_log(directory, disk=disk, open_files=open_files, segment_bytes=200)
    while len(log.segments) < segments:
        fill(log, 1, value_bytes=60)
        log.flush_now()
    return log


def test_many_segments_keep_few_files_open(tmp_path: Path, disk: FaultyDisk) -> None:
    open_files = OpenFiles(disk, open_files_max=FILES_MAX)
    log = many_segments(tmp_path / "orders-0", disk, open_files)
    assert disk.open_most <= FILES_MAX + BESIDE
    seed = random.Random(SEED)
    print("seed", SEED)
    for offset in [seed.randrange(log.log_end_offset) for _ in range(600)]:
        assert parse_header(read_bytes(log, offset, size_bytes_max=1)).base_offset <= offset
    assert offsets_in(log) == list(range(log.log_end_offset))
    assert disk.open_most <= FILES_MAX + BESIDE
    assert len(open_files) == disk.open_now <= FILES_MAX
    log.close()
    assert (len(open_files), disk.open_now) == (0, 0)


def test_opening_many_segments_keeps_few_files_open(tmp_path: Path, disk: FaultyDisk) -> None:
    many_segments(tmp_path / "orders-0", disk, OpenFiles(disk, open_files_max=FILES_MAX)).close()
    for how in ({"clean": True}, {"recovery_point": 0}, {"recovery_point": 100}):
        disk.open_most = 0
        open_files = OpenFiles(disk, open_files_max=FILES_MAX)
        log = open_log(tmp_path / "orders-0", disk=disk, open_files=open_files, segment_bytes=200, **how)
        if "clean" in how:
            assert disk.open_most <= FILES_MAX + BESIDE
        log.flush_now()
        assert offsets_in(log) == list(range(log.log_end_offset))
        log.close()
        assert disk.open_now == 0


def test_a_held_file_is_never_closed(tmp_path: Path, disk: FaultyDisk) -> None:
    open_files = OpenFiles(disk, open_files_max=FILES_MAX)
    log = many_segments(tmp_path / "orders-0", disk, open_files, segments=60)
    offsets = range(0, 40, 2)
    before = [read_bytes(log, offset, size_bytes_max=1) for offset in offsets]
    pieces = [log.read(offset, size_bytes_max=1) for offset in offsets]
    descriptors = [piece.segment.file().fileno() for piece in pieces if piece is not None]
    for offset in range(log.log_end_offset):
        read_bytes(log, offset, size_bytes_max=1)
    # More are held than may be open: the bound gives way, not the readers.
    assert [piece.read() for piece in pieces if piece is not None] == before
    assert [piece.segment.file().fileno() for piece in pieces if piece is not None] == descriptors
    for piece in pieces:
        assert piece is not None
        piece.release()
    read_bytes(log, 59, size_bytes_max=1)
    read_bytes(log, 41, size_bytes_max=1)
    assert len(open_files) <= FILES_MAX, "what was released gives way again"
    log.close()


def test_an_unflushed_file_is_never_closed(tmp_path: Path, disk: FaultyDisk) -> None:
    """An error of writeback is told once, to a descriptor that was open when it happened."""
    open_files = OpenFiles(disk, open_files_max=FILES_MAX)
    logs = [open_log(tmp_path / f"orders-{number}", disk=disk, open_files=open_files) for number in range(30)]
    for log in logs:
        fill(log, 1)
    assert all(log.active.is_open for log in logs)
    for log in logs:
        log.flush_now()
    fill(logs[0], 1)
    open_log(tmp_path / "more-0", disk=disk, open_files=open_files).close()
    assert len(open_files) <= FILES_MAX
    assert logs[0].active.is_open
    for log in logs:
        assert len(offsets_in(log)) >= 1
        log.close()
    assert disk.open_now == 0


def test_unflushed_files_above_the_bound_ask_for_their_flush(tmp_path: Path, disk: FaultyDisk) -> None:
    open_files = OpenFiles(disk, open_files_max=FILES_MAX)
    wanted: set[PartitionLog] = set()

    def opened(name: str) -> PartitionLog:
        log = open_log(tmp_path / name, disk=disk, open_files=open_files)
        log.on_flush_wanted = lambda: wanted.add(log)
        return log

    logs = [opened(f"orders-{number}") for number in range(FILES_MAX)]
    for log in logs:
        fill(log, 1)
    assert not wanted
    # Each new file moves the hand on; who stands in its way is asked to make itself closable.
    more = [opened(f"payments-{number}") for number in range(FILES_MAX)]
    assert wanted
    assert all(log.active.is_open for log in logs)
    for log in wanted:
        log.flush_now()
    more += [opened(f"returns-{number}") for number in range(FILES_MAX)]
    assert len(open_files) <= FILES_MAX
    for log in (*logs, *more):
        log.close()
    assert disk.open_now == 0


def test_out_of_descriptors_an_unflushed_file_is_synced_before_it_is_closed(tmp_path: Path, disk: FaultyDisk) -> None:
    open_files = OpenFiles(disk, open_files_max=FILES_MAX)
    logs = [open_log(tmp_path / f"orders-{number}", disk=disk, open_files=open_files) for number in range(4)]
    for log in logs:
        fill(log, 1)
    syncs = disk.calls["datasync"]
    fault = disk.fail("open", errno.EMFILE, suffix=".log", times=1)
    open_log(tmp_path / "more-0", disk=disk, open_files=open_files).close()
    assert fault.hits == 1
    assert disk.calls["datasync"] > syncs
    assert sum(log.active.is_open for log in logs) == 3
    for log in logs:
        assert offsets_in(log) == [0]
        fill(log, 1)
        log.close()
    assert disk.open_now == 0


def test_after_a_burst_the_number_of_open_files_comes_back_under_the_bound(tmp_path: Path, disk: FaultyDisk) -> None:
    open_files = OpenFiles(disk, open_files_max=FILES_MAX)
    logs = [
        open_log(tmp_path / f"orders-{number}", disk=disk, open_files=open_files) for number in range(5 * FILES_MAX)
    ]
    for log in logs:
        fill(log, 1)  # None can be closed before its flush.
    assert len(open_files) > FILES_MAX
    open_files.trim()
    assert len(open_files) > FILES_MAX, "an unflushed file was closed"
    for log in logs:
        log.flush_now()
    for _ in range(3):  # The first round takes away the second chance of what was just touched.
        open_files.trim()
    assert len(open_files) <= FILES_MAX
    for log in logs:
        log.close()
    assert disk.open_now == 0
