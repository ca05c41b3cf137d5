"""Group commit: the next flush covers everything appended while one ran, for one log and across logs.

A log has at most one flush under way; appends that come meanwhile ask for another. Few flushes run at a time, and each
takes its share of all the logs that wait: so a thousand waiting producers cost as many syncs as there are logs, and a
hundred logs cost as many trips to a thread as there are flushes. The loop never waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.runtime.runtime import Runtime

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.log.partition_log import PartitionLog
    from strandline.log.segment.log_slice import FlushJob

    Jobs = list[tuple[PartitionLog, FlushJob]]

FLUSHES_MAX: Final = 4
"""Flushes under way. Each is a thread that takes the interpreter twice per file; more of them slow the loop down."""


class Flusher:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.flushes_max = FLUSHES_MAX
        self.flushes_started = 0
        """Flushes of single logs; one trip to a thread may flush many."""
        self.trips = 0
        self.trips_s = 0.0
        self.trip_longest_s = 0.0
        self._wanted: dict[PartitionLog, None] = {}
        """In the order in which they asked: the same seed must flush in the same order."""
        self._flushing: set[PartitionLog] = set()
        self._flushes = 0
        self._is_start_due = False

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush at the end of this turn of the loop, so that one sync covers all that the turn appends."""
        self._wanted[log] = None
        if not self._is_start_due:
            self._is_start_due = True
            self.runtime.call_soon(self._start_turn)

    def _start_turn(self) -> None:
        self._is_start_due = False
        self._start()

    def flush(self, log: PartitionLog) -> None:
        """Flush everything appended so far; the log calls `on_flushed` when that is done."""
        self._wanted[log] = None
        self._start()

    def _start(self) -> None:
        """Hand the logs that wait to as many flushes as may run."""
        if self._flushes >= self.flushes_max:
            return
        ready = [log for log in self._wanted if log not in self._flushing]
        while ready and self._flushes < self.flushes_max:
            share = -(-len(ready) // (self.flushes_max - self._flushes))
            jobs: Jobs = []
            for log in ready[:share]:
                del self._wanted[log]
                job = log.begin_flush()
                if job is not None:
                    jobs.append((log, job))
            del ready[:share]
            if jobs:
                self._flushing.update(log for log, _ in jobs)
                self._flushes += 1
                self.flushes_started += len(jobs)
                self.runtime.in_thread(partial(_run, jobs), partial(self._done, jobs, self.runtime.monotonic()))

    def _done(
        self, jobs: Jobs, began_at: float, errors: list[BaseException | None] | None, error: BaseException | None
    ) -> None:
        assert errors is not None, f"a flush cannot fail as a whole: {error}"
        took_s = self.runtime.monotonic() - began_at
        self.trips += 1
        self.trips_s += took_s
        if took_s > self.trip_longest_s:
            self.trip_longest_s = took_s
        self._flushes -= 1
        self._flushing.difference_update(log for log, _ in jobs)
        for (log, job), each in zip(jobs, errors, strict=True):
            log.end_flush(job, each)
        if self._wanted:
            self._start()

    @property
    def under_way(self) -> int:
        return self._flushes

    @property
    def waiting(self) -> int:
        """Logs that wait for a flush."""
        return len(self._wanted)

    @property
    def is_idle(self) -> bool:
        return not self._flushing and not self._wanted


def _run(jobs: Jobs) -> list[BaseException | None]:
    """In a thread: sync one log after the other; one that fails costs the others nothing."""
    errors: list[BaseException | None] = []
    synced: set[Path] = set()
    for _, job in jobs:
        try:
            job.run(synced)
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors
