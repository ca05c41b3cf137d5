"""Group commit: many appends wait, few syncs run, and nobody is told too early."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.unit.log.engine import fill, open_log
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime
from tests.unit.log.sync_ways import SYNC_WAYS, break_sync, choose_sync_way

from strandline.errors import DiskFailed
from strandline.log.disk import RealDisk
from strandline.log.flusher import Flusher
from strandline.log.partition_log import PartitionLog
from strandline.runtime.runtime import LoopRuntime


def test_one_sync_covers_all_that_a_turn_appends(tmp_path: Path) -> None:
    disk, runtime = FaultyDisk(), ManualRuntime()
    flusher = Flusher(runtime)
    log = open_log(tmp_path / "orders-0", disk=disk)
    for _ in range(100):
        fill(log, 1)
        flusher.flush_soon(log)
    assert disk.calls["datasync"] == 0, "not before the turn ends"
    runtime.settle()
    assert disk.calls["datasync"] == 2, "the log, and beside it the file of leader epochs, which is new"
    assert log.flushed_offset == 100
    assert flusher.is_idle
    log.close()


def test_what_comes_while_a_sync_runs_is_covered_by_the_next(tmp_path: Path) -> None:
    disk, runtime = FaultyDisk(), ManualRuntime()
    flusher = Flusher(runtime)
    log = open_log(tmp_path / "orders-0", disk=disk)
    told: list[int] = []
    log.on_flushed = lambda: told.append(log.flushed_offset)
    fill(log, 1)
    flusher.flush_soon(log)
    runtime.turn()
    assert len(runtime.jobs) == 1
    for _ in range(50):
        fill(log, 1)
        flusher.flush_soon(log)
        runtime.turn()
        assert len(runtime.jobs) == 1, "one flush of a log at a time"
    assert log.flushed_offset == 0
    runtime.finish_job()
    assert log.flushed_offset == 1, "the first sync vouches only for what was there when it began"
    assert len(runtime.jobs) == 1
    runtime.finish_job()
    assert log.flushed_offset == 51
    assert told == [1, 51]
    assert (flusher.flushes_started, disk.calls["datasync"]) == (2, 3), "leader epochs are synced once"
    assert flusher.is_idle
    log.close()


def test_logs_do_not_wait_for_each_other(tmp_path: Path) -> None:
    disk, runtime = FaultyDisk(), ManualRuntime()
    flusher = Flusher(runtime)
    logs = [open_log(tmp_path / f"orders-{number}", disk=disk) for number in range(3)]
    for log in logs:
        fill(log, 1)
        flusher.flush_soon(log)
    runtime.turn()
    assert len(runtime.jobs) == 3
    runtime.finish_job()
    assert [log.flushed_offset for log in logs] == [1, 0, 0]
    runtime.settle()
    assert [log.flushed_offset for log in logs] == [1, 1, 1]
    for log in logs:
        log.close()


def test_nothing_to_flush_costs_nothing(tmp_path: Path) -> None:
    disk, runtime = FaultyDisk(), ManualRuntime()
    flusher = Flusher(runtime)
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 1)
    flusher.flush(log)
    runtime.settle()
    before = disk.calls["datasync"]
    flusher.flush(log)
    flusher.flush_soon(log)
    runtime.settle()
    assert disk.calls["datasync"] == before
    assert flusher.flushes_started == 1
    log.close()


def test_a_roll_is_flushed_with_both_segments_and_the_old_indexes(tmp_path: Path) -> None:
    disk, runtime = FaultyDisk(), ManualRuntime()
    flusher = Flusher(runtime)
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=500, index_interval_bytes=100)
    while len(log.segments) < 2:
        fill(log, 1)
    flusher.flush(log)
    runtime.settle()
    assert disk.calls["datasync"] == 2 + 2 + 1, "two segments, the two indexes of the sealed one, the leader epochs"
    assert log.flushed_offset == log.log_end_offset
    log.close()


async def test_on_a_real_loop_a_thousand_appends_share_few_syncs(tmp_path: Path) -> None:
    disk = FaultyDisk()
    runtime = LoopRuntime(asyncio.get_running_loop())
    flusher = Flusher(runtime)
    log = open_log(tmp_path / "orders-0", disk=disk)
    done = asyncio.Event()
    log.on_flushed = lambda: done.set() if log.flushed_offset == 1000 else None

    async def append_one() -> None:
        fill(log, 1, value_bytes=1)
        flusher.flush_soon(log)

    for _ in range(100):
        await asyncio.gather(*(append_one() for _ in range(10)))
    await done.wait()
    assert disk.calls["datasync"] <= 102, "at most one sync for each turn of ten appends, and one of the leader epochs"
    assert flusher.flushes_started == disk.calls["datasync"] - 1
    log.close()
    runtime.close()


@pytest.fixture(params=SYNC_WAYS)
async def real(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Flusher]:
    """A flusher on a real loop, each way."""
    choose_sync_way(monkeypatch, request.param)
    runtime = LoopRuntime(asyncio.get_running_loop())
    yield Flusher(runtime)
    runtime.close()


def open_flushed(tmp_path: Path, count: int) -> list[PartitionLog]:
    """Logs whose next flush syncs a segment and nothing else."""
    logs = [open_log(tmp_path / f"orders-{number}", disk=RealDisk()) for number in range(count)]
    for log in logs:
        fill(log, 1)
        log.flush_now()
    return logs


async def until_idle(flusher: Flusher) -> None:
    while not flusher.is_idle:  # noqa: ASYNC110  # no event tells that the last flush ended
        await asyncio.sleep(0.001)


async def test_more_logs_than_threads_are_all_flushed(tmp_path: Path, real: Flusher) -> None:
    logs = open_flushed(tmp_path, 50)
    for _ in range(5):
        for log in logs:
            fill(log, 1)
            real.flush_soon(log)
        await asyncio.sleep(0)
    await until_idle(real)
    assert [log.flushed_offset for log in logs] == [6] * len(logs)
    assert (real.under_way, real.waiting) == (0, 0)
    for log in logs:
        log.close()


async def test_logs_with_nothing_to_flush_hold_up_no_others(tmp_path: Path, real: Flusher) -> None:
    logs = open_flushed(tmp_path, 50)
    fill(logs[-1], 1)
    for log in logs:
        real.flush_soon(log)
    await asyncio.sleep(0)
    await until_idle(real)
    assert logs[-1].flushed_offset == 2
    assert real.flushes_started == 1
    for log in logs:
        log.close()


async def test_the_log_that_fails_costs_the_others_nothing(tmp_path: Path, real: Flusher) -> None:
    logs = open_flushed(tmp_path, 20)
    break_sync(logs[7])
    for log in logs:
        fill(log, 1)
        real.flush_soon(log)
    await asyncio.sleep(0)
    await until_idle(real)
    assert [log.flushed_offset for log in logs] == [1 if number == 7 else 2 for number in range(20)]
    assert isinstance(logs[7].failure, DiskFailed)
    assert "flush failed: [Errno 22] Invalid argument" in str(logs[7].failure)
    for log in logs:
        log.close()


async def test_a_roll_waits_for_the_flush_under_way(tmp_path: Path, real: Flusher) -> None:
    log = open_log(tmp_path / "orders-0", disk=RealDisk(), segment_bytes=500)
    fill(log, 1)
    log.flush_now()
    flushed: list[int] = []
    log.on_flushed = lambda: flushed.append(log.flushed_offset)
    fill(log, 1)
    real.flush(log)
    while len(log.segments) < 3:
        fill(log, 1)
        real.flush(log)
    assert flushed == []
    assert real.under_way == 1
    await until_idle(real)
    assert flushed == [2, log.log_end_offset]
    log.close()


async def test_the_runtime_waits_for_flushes_when_it_closes(tmp_path: Path, real: Flusher) -> None:
    logs = open_flushed(tmp_path, 20)
    for log in logs:
        fill(log, 1)
        real.flush(log)
    assert isinstance(real.runtime, LoopRuntime)
    real.runtime.close()
    await asyncio.sleep(0.01)
    assert [log.flushed_offset for log in logs] == [1] * len(logs), "the loop was closed to their results"
    for log in logs:
        log.close()
