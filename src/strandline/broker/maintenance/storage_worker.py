"""Long computations on sealed files, off the loop: in processes of their own, or, in a simulation, as a thread's work.

`run` gives a job to a worker that is idle, or starts one. The caller bounds how many jobs there are; a worker that
had nothing to do for a while is ended. A worker that dies costs the job that it had, and no more.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Protocol

from strandline.errors import ErrorCode, WorldError
from strandline.log.disk import Disk, RealDisk
from strandline.log.maintenance import worker_jobs
from strandline.runtime.runtime import LoopRuntime, Runtime, TimerHandle

IDLE_S: Final = 10.0
"""How long a worker stays that has nothing to do."""
STEP_IDLE_S: Final = 1800.0
"""How long one stays between two steps of a cleaning. A download and an upload lie in between."""
READ_BYTES: Final = 64 * 1024
NICENESS: Final = 10

log = logging.getLogger("strandline.storage")

OnReport = Callable[[dict[str, Any]], object]
OnDone = Callable[[dict[str, Any] | None, "JobFailed | None"], object]


class JobFailed(WorldError):
    """A job did not come to its end. `kind` is the name of the error in the worker; `Worker` if that died itself."""

    code = ErrorCode.KAFKA_STORAGE_ERROR

    def __init__(self, kind: str, reason: str, errno: int | None = None) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.errno = errno


class Job:
    """One under way. `stop` asks it to end soon; `on_done` is told all the same."""

    def __init__(self, number: int, kind: str, params: dict[str, Any], on_report: OnReport, on_done: OnDone) -> None:
        self.number = number
        self.kind = kind
        self.params = params
        self.on_report = on_report
        self.on_done = on_done
        self.is_stopped = False
        self.on_stop: Callable[[], object] = lambda: None

    def stop(self) -> None:
        if not self.is_stopped:
            self.is_stopped = True
            self.on_stop()


class StorageWorkers(Protocol):
    def run(self, kind: str, params: dict[str, Any], on_report: OnReport, on_done: OnDone) -> Job:
        """Begin a job. Both callbacks come on the loop, later: any number of reports, then the end, once."""

    def end_idle(self, kind: str) -> None:
        """End the workers that wait for another job of a kind: there is none."""

    def close(self) -> None:
        """End the workers now, without calling back."""


def storage_workers(runtime: Runtime, disk: Disk) -> StorageWorkers:
    """Processes for a real clock and a real disk; whatever is simulated works in threads, which its clock waits for."""
    if type(runtime) is LoopRuntime and type(disk) is RealDisk:
        return ProcessWorkers(runtime)
    return InlineWorkers(runtime, disk)


class InlineWorkers:
    """Each job is done by one trip to a thread; what it reports comes when it has ended."""

    def __init__(self, runtime: Runtime, disk: Disk) -> None:
        self._runtime = runtime
        self._disk = disk
        self._jobs = 0
        self._is_closed = False

    def run(self, kind: str, params: dict[str, Any], on_report: OnReport, on_done: OnDone) -> Job:
        self._jobs += 1
        # Not in the thread: two threads that import at once have made CPython 3.11 fail in its compiler.
        worker_jobs.load(kind)
        # As it would be on the other side of a pipe.
        job = Job(self._jobs, kind, json.loads(json.dumps(params)), on_report, on_done)
        reports: list[dict[str, Any]] = []

        def work() -> dict[str, Any]:
            return worker_jobs.run(
                kind,
                job.params,
                disk=self._disk,
                report=reports.append,
                is_stopped=lambda: job.is_stopped,
                sleep=lambda _: None,
            )

        def done(result: dict[str, Any] | None, error: BaseException | None) -> None:
            if self._is_closed:
                return
            for each in reports:
                on_report(each)
            if error is None:
                on_done(result, None)
            elif isinstance(error, Exception):
                number = error.errno if isinstance(error, OSError) else None
                on_done(None, JobFailed(type(error).__name__, str(error) or type(error).__name__, number))
            else:
                raise error

        self._runtime.in_thread(work, done)
        return job

    def end_idle(self, kind: str) -> None:
        """Do nothing: each job was a thread's, which has ended."""

    def close(self) -> None:
        self._is_closed = True


class ProcessWorkers:
    def __init__(self, runtime: LoopRuntime) -> None:
        self.runtime = runtime
        self.processes: list[WorkerProcess] = []
        self._jobs = 0

    def run(self, kind: str, params: dict[str, Any], on_report: OnReport, on_done: OnDone) -> Job:
        self._jobs += 1
        job = Job(self._jobs, kind, params, on_report, on_done)
        process = next((each for each in self.processes if each.kind == kind and each.job is None), None)
        if process is None:
            process = WorkerProcess(self, kind)
            self.processes.append(process)
        process.give(job)
        return job

    def end_idle(self, kind: str) -> None:
        for process in [each for each in self.processes if each.kind == kind and each.job is None]:
            process.end()

    def close(self) -> None:
        for process in list(self.processes):
            process.end()


class WorkerProcess:
    """One worker: started in a thread, spoken to by pipes that never block the loop."""

    def __init__(self, owner: ProcessWorkers, kind: str) -> None:
        self._owner = owner
        self._runtime = owner.runtime
        self.kind = kind
        self.job: Job | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._has_ended = False
        self._unread = b""
        self._unsent = b""
        self._idle: TimerHandle | None = None
        self._runtime.in_thread(partial(_spawn, kind), self._on_started)

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def give(self, job: Job) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self.job = job
        job.on_stop = lambda: self._send({"stop": job.number}) if self.job is job else None
        self._send({"job": job.number, "kind": job.kind, "params": job.params})

    # Starting and ending

    def _on_started(self, process: subprocess.Popen[bytes] | None, error: BaseException | None) -> None:
        if process is None:
            self._fail(f"no worker could be started: {error}")
            return
        self._process = process
        if self._has_ended:
            self._hang_up(process)
            return
        assert process.stdin is not None
        assert process.stdout is not None
        for pipe in (process.stdin, process.stdout):
            os.set_blocking(pipe.fileno(), False)
        self._runtime.loop.add_reader(process.stdout.fileno(), self._on_readable)
        self._write()

    def end(self) -> None:
        """Hang up: the worker ends by itself. What it was doing is forgotten."""
        if not self._has_ended:
            self._has_ended = True
            self._owner.processes.remove(self)
            if self._idle is not None:
                self._idle.cancel()
            if self._process is not None:
                self._hang_up(self._process)

    def _hang_up(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._runtime.loop.remove_reader(process.stdout.fileno())
        self._runtime.loop.remove_writer(process.stdin.fileno())
        process.stdin.close()
        process.stdout.close()
        # It may be in the middle of a job whose result and files are not wanted any more.
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        self._runtime.in_thread(process.wait, lambda *_: None)

    def _fail(self, reason: str) -> None:
        self.end()
        job, self.job = self.job, None
        if job is not None:
            job.on_done(None, JobFailed("Worker", reason))

    # Speaking

    def _send(self, message: dict[str, Any]) -> None:
        self._unsent += json.dumps(message).encode() + b"\n"
        if self._process is not None and not self._has_ended:
            self._write()

    def _write(self) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        fd = self._process.stdin.fileno()
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(fd, self._unsent) :]
        except BlockingIOError:
            self._runtime.loop.add_writer(fd, self._write)
            return
        except OSError as error:
            self._fail(f"the worker does not listen: {error}")
            return
        self._runtime.loop.remove_writer(fd)

    def _on_readable(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        try:
            data = os.read(self._process.stdout.fileno(), READ_BYTES)
        except BlockingIOError:
            return
        except OSError as error:
            self._fail(f"the worker cannot be heard: {error}")
            return
        if not data:
            self._fail(f"the worker process {self._process.pid} ended")
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            if not self._has_ended:
                self._hear(json.loads(line))

    def _hear(self, message: dict[str, Any]) -> None:
        job = self.job
        if job is None or message["job"] != job.number:
            return
        if "report" in message:
            job.on_report(message["report"])
            return
        self.job = None
        idle_s = STEP_IDLE_S if self.kind == worker_jobs.CLEAN_STEP else IDLE_S
        self._idle = self._runtime.call_later(idle_s, self.end)
        if "result" in message:
            job.on_done(message["result"], None)
        else:
            error = message["error"]
            job.on_done(None, JobFailed(error["kind"], error["reason"], error["errno"]))


def _spawn(kind: str) -> subprocess.Popen[bytes]:
    """In a thread: to start a process takes milliseconds, of a large one many."""
    # Clients wait for a log that is recovered, and for nothing else that a worker does.
    niceness = 0 if kind == worker_jobs.RECOVER else NICENESS
    return subprocess.Popen(
        [sys.executable, "-m", "strandline.log.maintenance.worker", str(os.getpid()), str(niceness)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
        process_group=0,
    )
