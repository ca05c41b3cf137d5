"""A process that does the long computations of a broker: `python -m strandline.log.maintenance.worker PARENT NICENESS`.

One line of JSON each way. In:   {"job": 1, "kind": "clean", "params": {...}}   {"stop": 1}
                           out:  {"job": 1, "report": {...}}, any number of them, then one of
                                 {"job": 1, "result": {...}}   {"job": 1, "error": {"kind", "reason", "errno"}}

Jobs are done one after the other, at the priority that the broker gives. When the broker is gone, however it went, so
is the worker, and at once: the next broker may be at work on the same files already, so nothing is tidied up.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import queue
import signal
import sys
import threading
from typing import Any, BinaryIO, Final

from strandline.log.disk import RealDisk
from strandline.log.maintenance.worker_jobs import run

_PR_SET_PDEATHSIG: Final = 1


class Worker:
    def __init__(self, answers: BinaryIO) -> None:
        self._answers = answers
        self._jobs: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._stopped: dict[int, threading.Event] = {}

    def listen(self, requests: BinaryIO) -> None:
        """In a thread of its own, to the end of the process."""
        for line in requests:
            message = json.loads(line)
            if "stop" in message:
                self._stopped.setdefault(message["stop"], threading.Event()).set()
            else:
                self._stopped.setdefault(message["job"], threading.Event())
                self._jobs.put(message)
        # The broker is gone, or has no more use for us.
        os._exit(0)

    def work(self) -> None:
        while True:
            self._do(self._jobs.get())

    def _do(self, message: dict[str, Any]) -> None:
        job = message["job"]
        stopped = self._stopped[job]
        try:
            result = run(
                message["kind"],
                message["params"],
                disk=RealDisk(),
                report=lambda facts: self._tell(job, "report", facts),
                is_stopped=stopped.is_set,
                sleep=lambda seconds: _wait(stopped, seconds),
            )
        except Exception as error:
            # Whatever it is: the broker decides what it means for the log.
            self._tell(job, "error", describe(error))
        else:
            self._tell(job, "result", result)
        del self._stopped[job]

    def _tell(self, job: int, what: str, facts: dict[str, Any]) -> None:
        self._answers.write(json.dumps({"job": job, what: facts}).encode() + b"\n")
        self._answers.flush()


def describe(error: Exception) -> dict[str, Any]:
    """Return an error as JSON: what kind, why, and the number if the disk gave one."""
    number = error.errno if isinstance(error, OSError) else None
    reason = str(error) if str(error) else type(error).__name__
    return {"kind": type(error).__name__, "reason": reason, "errno": number}


def _wait(stopped: threading.Event, seconds: float) -> None:
    if seconds > 0:
        stopped.wait(seconds)


def _die_with(parent: int) -> None:
    """Have the kernel end us when our parent ends. Where it cannot, the end of our input does."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


def main() -> None:
    _die_with(int(sys.argv[1]))
    # Ctrl-C on the broker's terminal is the broker's to answer.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(int(sys.argv[2]))
    answers = os.fdopen(os.dup(1), "wb")
    # Whatever prints must not be taken for an answer.
    os.dup2(2, 1)
    worker = Worker(answers)
    threading.Thread(target=worker.listen, args=(sys.stdin.buffer,), name="listen", daemon=True).start()
    worker.work()


if __name__ == "__main__":
    main()
