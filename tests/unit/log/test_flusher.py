"""Group commit: many appends wait, few syncs run, and nobody is told too early."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.unit.log.engine import fill, open_log
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.log.flusher import Flusher
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
