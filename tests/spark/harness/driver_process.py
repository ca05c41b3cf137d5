"""The harness's end of a driver: what it said, and the signals that end it or a part of it."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.measure import process_family

ROOT = Path(__file__).resolve().parents[3]
READY_TIMEOUT_S = 600.0
STOP_TIMEOUT_S = 300.0


class DriverFailed(Exception):
    """It did not do in time what it was told, for no reason that the harness gave it."""


class DriverProcess:
    """One Spark session. What it says is taken in by a thread; `ended` and `error` tell the latest."""

    def __init__(
        self, log: Path, *, master: str, settings: Mapping[str, str], environ: Mapping[str, str], module: str = "driver"
    ) -> None:
        options = json.dumps({"master": master, "settings": dict(settings)})
        paths = [str(ROOT), str(ROOT / "src"), environ.get("PYTHONPATH", ""), os.environ.get("PYTHONPATH", "")]
        self._log = log
        with log.open("ab") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, "-m", f"tests.spark.harness.{module}", options],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
                cwd=ROOT,
                env={**os.environ, **environ, "PYTHONPATH": os.pathsep.join(paths)},
                start_new_session=True,
            )
        self.java_pid = 0
        self._is_gone = False
        self.batches: list[int] = []
        """Ids of the batches that this session has finished."""
        self._run_id: str | None = ""
        """Of the query that was started last; None while it is not told."""
        self._ended: dict[str, str | None] = {"": None}
        """By run, why it ended. Spark tells it when it comes to it, maybe after the next run has begun."""
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._family: set[int] = {self.process.pid}
        threading.Thread(target=self._listen, name="driver-says", daemon=True).start()
        self.java_pid = int(self._answer("ready", READY_TIMEOUT_S)["java_pid"])

    def _listen(self) -> None:
        assert self.process.stdout is not None
        with contextlib.suppress(ValueError):  # Closed while we read, which is how the harness ends it.
            for line in self.process.stdout:
                try:
                    said = json.loads(line)
                except json.JSONDecodeError:
                    continue  # Spark's workers share this end and print what they like.
                if said["said"] == "batch":
                    self.batches.append(said["id"])
                elif said["said"] == "ended":
                    self._ended[said["run_id"]] = said["error"]
                else:
                    self._answers.put(said)
        self._is_gone = True
        self._answers.put({"said": "gone"})

    def _answer(self, what: str, timeout_s: float) -> dict[str, Any]:
        try:
            answer = self._answers.get(timeout=timeout_s)
        except queue.Empty:
            raise DriverFailed(f"the driver did not say {what!r} within {timeout_s:g} s: {self.last_words()}") from None
        if answer["said"] != what:
            raise DriverFailed(f"the driver said {answer} instead of {what!r}: {self.last_words()}")
        return answer

    def _tell(self, **task: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(task) + "\n")
        self.process.stdin.flush()

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    @property
    def ended(self) -> bool:
        """Whether no query runs."""
        return self._is_gone or self._run_id in self._ended

    @property
    def error(self) -> str | None:
        """Why the last query ended."""
        return self._ended.get(self._run_id or "")

    def start_query(self, **task: Any) -> str:
        """Start the query; its id is the sink's."""
        self._run_id = None
        self._tell(do="start", **task)
        started = self._answer("started", READY_TIMEOUT_S)
        self._run_id = str(started["run_id"])
        return str(started["query_id"])

    def stop_query(self) -> None:
        self._tell(do="stop")
        self._answer("stopped", STOP_TIMEOUT_S)

    def workers(self) -> list[int]:
        """The Python processes of the session: those that run tasks and those that plan and commit."""
        return [pid for pid in process_family(self.process.pid) if pid not in (self.process.pid, self.java_pid)]

    def kill_java(self, *, leave_workers: bool = False) -> None:
        """End Spark itself as a crash does. Workers may be left alone, to find out by themselves that it is gone."""
        self._family |= set(process_family(self.process.pid))
        workers = [] if leave_workers else self.workers()
        for pid in (self.java_pid, self.process.pid, *workers):
            _signal(pid, signal.SIGKILL)
        self.process.wait()

    def stand_still(self) -> None:
        """All of its processes, as on a machine that hangs."""
        self._family |= set(process_family(self.process.pid))
        for pid in self._family:
            _signal(pid, signal.SIGSTOP)

    def wake(self) -> None:
        for pid in self._family:
            _signal(pid, signal.SIGCONT)

    def close(self) -> None:
        """End whatever is left of it."""
        if self.is_alive:
            self._family |= set(process_family(self.process.pid))
        for pid in self._family:
            _signal(pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            with contextlib.suppress(OSError, ValueError):
                pipe.close()

    def last_words(self) -> str:
        return self._log.read_text(errors="replace")[-1500:] if self._log.exists() else ""


def _signal(pid: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def wait_until(what: str, condition: Any, timeout_s: float, *, every_s: float = 0.01) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise DriverFailed(f"{what} did not happen within {timeout_s:g} s")
        time.sleep(every_s)
