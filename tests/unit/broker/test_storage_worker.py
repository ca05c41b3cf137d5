"""Long computations in processes of their own: reports, ends, stops, and workers that die."""

from __future__ import annotations

import asyncio
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.cleaning_cases import SegmentedLog

from strandline.broker.maintenance import storage_worker
from strandline.broker.maintenance.storage_worker import InlineWorkers, JobFailed, ProcessWorkers, storage_workers
from strandline.codec.columns import Record
from strandline.log.cleaning.job import CleaningJob, SourceSegment
from strandline.log.disk import RealDisk
from strandline.runtime.runtime import LoopRuntime

WAIT_S = 60.0


def job(directory: Path, *, io_bytes_per_s: float = 0.0) -> CleaningJob:
    """A log of two sealed segments and an active one; each key is there twice."""
    log = SegmentedLog(directory)
    for _ in range(2):
        log.put([Record(key=b"key %d" % number, value=bytes(1000), timestamp_ms=1) for number in range(20)])
        log.roll()
    log.put([Record(key=b"later", value=b"", timestamp_ms=1)])
    segments = tuple(
        SourceSegment(base, log.size[base], end, False) for base, end in zip(log.bases, log.bases[1:], strict=False)
    )
    return CleaningJob(
        directory=directory,
        segments=segments,
        log_start_offset=0,
        first_dirty_offset=0,
        end_offset=log.bases[-1],
        now_ms=2,
        delete_retention_ms=1,
        segment_bytes=1 << 20,
        segment_index_bytes=1 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=1 << 20,
        load_factor=0.9,
        io_buffer_bytes=4096,
        io_bytes_per_s=io_bytes_per_s,
        aborted_later=(),
        active_producers=(),
    )


def turn(loop: asyncio.AbstractEventLoop, is_so: Callable[[], object]) -> None:
    """Let the loop turn until something is so."""
    deadline = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < deadline
        loop.run_until_complete(asyncio.sleep(0.005))


class World:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.runtime = LoopRuntime(loop)
        self.workers = ProcessWorkers(self.runtime)
        self.reports: list[dict[str, Any]] = []
        self.ends: list[tuple[dict[str, Any] | None, JobFailed | None]] = []

    def run(self, kind: str, params: dict[str, Any]) -> storage_worker.Job:
        return self.workers.run(
            kind, params, self.reports.append, lambda result, error: self.ends.append((result, error))
        )

    def until(self, is_so: Callable[[], object]) -> None:
        turn(self.loop, is_so)


@pytest.fixture
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    loop: asyncio.AbstractEventLoop
    if getattr(request, "param", "uvloop") == "uvloop":
        loop = pytest.importorskip("uvloop").new_event_loop()
    else:
        loop = asyncio.new_event_loop()
    world = World(loop)
    yield world
    world.workers.close()
    world.runtime.close()
    loop.close()


@pytest.mark.parametrize("world", ["asyncio", "uvloop"], indirect=True)
def test_a_job_is_done_in_another_process_and_the_next_one_by_the_same(world: World, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    for name in ("a", "b"):
        world.run("clean", job(tmp_path / name).to_dict())
        world.until(lambda: world.ends)
        ((result, error),) = world.ends
        assert error is None
        assert result is not None
        assert result["records_kept"] == 20
        assert [report["replaced"] for report in world.reports] == [[0, 20]]
        assert (tmp_path / name / "00000000000000000000.log.cleaned").exists()
        world.ends.clear()
        world.reports.clear()
        assert len(world.workers.processes) == 1
    assert world.workers.processes[0].pid != os.getpid()


def test_an_error_says_what_it_was(world: World, tmp_path: Path) -> None:
    world.run("clean", job(tmp_path).to_dict() | {"directory": str(tmp_path / "nowhere")})
    world.until(lambda: world.ends)
    ((result, error),) = world.ends
    assert result is None
    assert error is not None
    assert error.kind == "FileNotFoundError"
    assert error.errno == 2
    assert "nowhere" in error.reason


def test_what_no_worker_can_do_is_an_error_of_that_job_only(world: World, tmp_path: Path) -> None:
    world.run("dream", {})
    world.until(lambda: world.ends)
    assert world.ends[0][1] is not None
    world.run("clean", job(tmp_path).to_dict())
    world.until(lambda: len(world.ends) == 2)
    assert world.ends[1][1] is None


def test_a_stopped_job_ends_soon_and_leaves_nothing(world: World, tmp_path: Path) -> None:
    """At a byte a second it would take a day."""
    handle = world.run("clean", job(tmp_path, io_bytes_per_s=1.0).to_dict())
    world.until(lambda: world.workers.processes[0].pid)
    handle.stop()
    handle.stop()
    world.until(lambda: world.ends)
    ((_, error),) = world.ends
    assert error is not None
    assert error.kind == "CleaningStopped"
    assert not list(tmp_path.glob("*.cleaned"))


def test_a_worker_that_dies_costs_its_job_and_no_more(world: World, tmp_path: Path) -> None:
    world.run("clean", job(tmp_path, io_bytes_per_s=1.0).to_dict())
    world.until(lambda: world.workers.processes[0].pid)
    pid = world.workers.processes[0].pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    world.until(lambda: world.ends)
    assert world.ends[0][1] is not None
    assert world.ends[0][1].kind == "Worker"
    assert world.workers.processes == []
    world.run("clean", job(tmp_path).to_dict())
    world.until(lambda: len(world.ends) == 2)
    assert world.ends[1][1] is None


def test_a_worker_without_work_is_ended(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_worker, "IDLE_S", 0.01)
    world.run("clean", job(tmp_path).to_dict())
    world.until(lambda: world.ends and not world.workers.processes)


def test_jobs_of_two_are_done_side_by_side(world: World, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    slow = world.run("clean", job(tmp_path / "a", io_bytes_per_s=1.0).to_dict())
    world.run("clean", job(tmp_path / "b").to_dict())
    world.until(lambda: world.ends)
    assert world.ends[0][1] is None
    assert len(world.workers.processes) == 2
    slow.stop()
    world.until(lambda: len(world.ends) == 2)


def test_more_than_a_pipe_holds_is_sent(world: World, tmp_path: Path) -> None:
    params = job(tmp_path).to_dict()
    params["active_producers"] = [[number, 0, -1] for number in range(30_000)]
    world.run("clean", params)
    world.until(lambda: world.ends)
    assert world.ends[0][1] is None


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_dies_with_its_parent(tmp_path: Path, sign: int) -> None:
    """In the middle of a job that would take a day."""
    script = (
        "import asyncio, json, sys\n"
        "from strandline.broker.maintenance.storage_worker import ProcessWorkers\n"
        "from strandline.runtime.runtime import LoopRuntime\n"
        "async def main():\n"
        "    workers = ProcessWorkers(LoopRuntime(asyncio.get_running_loop()))\n"
        "    workers.run('clean', json.loads(sys.argv[1]), print, print)\n"
        "    while workers.processes[0].pid is None:\n"
        "        await asyncio.sleep(0.01)\n"
        "    print(workers.processes[0].pid, flush=True)\n"
        "    await asyncio.sleep(1000)\n"
        "asyncio.run(main())\n"
    )
    params = json.dumps(job(tmp_path, io_bytes_per_s=1.0).to_dict())
    with subprocess.Popen([sys.executable, "-c", script, params], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        # Readable when the process ends, whoever its parent is by then.
        descriptor = os.pidfd_open(pid)
        parent.send_signal(sign)
        parent.wait(WAIT_S)
    readable, _, _ = select.select([descriptor], [], [], WAIT_S)
    os.close(descriptor)
    assert readable, f"worker {pid} outlived its parent"


def test_what_is_simulated_has_no_processes(tmp_path: Path) -> None:
    loop = asyncio.new_event_loop()
    runtime = LoopRuntime(loop)

    class OtherDisk(RealDisk):
        """Not where another process would look."""

    assert isinstance(storage_workers(runtime, RealDisk()), ProcessWorkers)
    inline = storage_workers(runtime, OtherDisk())
    assert isinstance(inline, InlineWorkers)
    told: list[Any] = []
    inline.run("clean", job(tmp_path).to_dict(), told.append, lambda *end: told.append(end))

    turn(loop, lambda: len(told) == 2)
    assert told[0]["replaced"] == [0, 20]
    assert told[1][0]["records_kept"] == 20
    runtime.close()
    loop.close()
