"""Group commit: the next flush covers everything appended while one ran, for one log and across logs.

A log has at most one flush under way; appends that come meanwhile ask for another. So a thousand waiting producers cost
as many syncs as there are logs. The loop never waits.

Where the runtime can sync files without the interpreter, each log is flushed by itself, many at a time. A log with more
to sync than its segments (a new one, one that rolled) is flushed in a Python thread, and so are all logs elsewhere. Few
such trips run at a time, and each takes its share of the logs that wait: a hundred logs cost as many trips to a thread
as may run.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.runtime.runtime import SYNCS_MAX, Runtime

if TYPE_CHECKING:
    from pathlib import Path

    from strandline.log.partition_log import PartitionLog
    from strandline.log.segment.log_slice import FlushJob

    Jobs = list[tuple[PartitionLog, FlushJob]]

FLUSHES_MAX: Final = 4
"""Trips to a Python thread under way. Each takes the interpreter twice per file; more of them slow the loop down."""


class Flusher:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.flushes_max = FLUSHES_MAX
        self.flushes_started = 0
        """Flushes of single logs; one trip to a thread may flush many."""
        self.trips = 0
        self.trips_s = 0.0
        self.trip_longest_s = 0.0
        self._sync_files = runtime.sync_files
        self._wanted: dict[PartitionLog, None] = {}
        """Logs for trips, in the order in which they asked: the same seed must flush in the same order."""
        self._wanted_alone: dict[PartitionLog, None] = {}
        """Logs that need no trip. Some that asked twice are in both."""
        self._flushing: set[PartitionLog] = set()
        self._trips_under_way = 0
        self._alone_under_way = 0
        self._is_start_due = False

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush at the end of this turn of the loop, so that one sync covers all that the turn appends."""
        self._want(log)
        if not self._is_start_due:
            self._is_start_due = True
            self.runtime.call_soon(self._start_turn)

    def _start_turn(self) -> None:
        self._is_start_due = False
        self._start()

    def flush(self, log: PartitionLog) -> None:
        """Flush everything appended so far; the log calls `on_flushed` when that is done."""
        self._want(log)
        self._start()

    def _want(self, log: PartitionLog) -> None:
        if self._sync_files is not None and log.unsynced.is_plain:
            self._wanted_alone[log] = None
        else:
            self._wanted[log] = None

    def _start(self) -> None:
        """Begin as many flushes of the logs that wait as may run."""
        if self._wanted_alone and self._alone_under_way < SYNCS_MAX:
            self._start_alone()
        if self._wanted and self._trips_under_way < self.flushes_max:
            self._start_trips()

    def _start_alone(self) -> None:
        # Not a list of as many as may run: those with nothing to flush leave their places to others.
        while self._alone_under_way < SYNCS_MAX:
            log = next((log for log in self._wanted_alone if log not in self._flushing), None)
            if log is None:
                return
            del self._wanted_alone[log]
            job = log.begin_flush()
            if job is not None:
                self._sync_alone(log, job)

    def _sync_alone(self, log: PartitionLog, job: FlushJob) -> None:
        assert self._sync_files is not None
        fds = job.plain_files()
        if fds is None:
            # It rolled since it asked, or its disk is not the real one.
            self._begin_trip([(log, job)])
            return
        self._flushing.add(log)
        self._alone_under_way += 1
        self.flushes_started += 1
        self._sync_files(fds, partial(self._done_alone, log, job, self.runtime.monotonic()))

    def _start_trips(self) -> None:
        ready = [log for log in self._wanted if log not in self._flushing]
        while ready and self._trips_under_way < self.flushes_max:
            share = -(-len(ready) // (self.flushes_max - self._trips_under_way))
            jobs: Jobs = []
            for log in ready[:share]:
                del self._wanted[log]
                job = log.begin_flush()
                if job is not None:
                    jobs.append((log, job))
            del ready[:share]
            if jobs:
                self._begin_trip(jobs)

    def _begin_trip(self, jobs: Jobs) -> None:
        self._flushing.update(log for log, _ in jobs)
        self._trips_under_way += 1
        self.flushes_started += len(jobs)
        self.runtime.in_thread(partial(_run, jobs), partial(self._done, jobs, self.runtime.monotonic()))

    def _done_alone(self, log: PartitionLog, job: FlushJob, began_at: float, _: None, error: OSError | None) -> None:
        self._note_trip(began_at)
        self._alone_under_way -= 1
        self._flushing.discard(log)
        log.end_flush(job, error)
        if self._wanted_alone or self._wanted:
            self._start()

    def _done(
        self, jobs: Jobs, began_at: float, errors: list[BaseException | None] | None, error: BaseException | None
    ) -> None:
        assert errors is not None, f"a flush cannot fail as a whole: {error}"
        self._note_trip(began_at)
        self._trips_under_way -= 1
        self._flushing.difference_update(log for log, _ in jobs)
        for (log, job), each in zip(jobs, errors, strict=True):
            log.end_flush(job, each)
        if self._wanted_alone or self._wanted:
            self._start()

    def _note_trip(self, began_at: float) -> None:
        took_s = self.runtime.monotonic() - began_at
        self.trips += 1
        self.trips_s += took_s
        if took_s > self.trip_longest_s:
            self.trip_longest_s = took_s

    @property
    def under_way(self) -> int:
        return self._trips_under_way + self._alone_under_way

    @property
    def waiting(self) -> int:
        """Logs that wait for a flush."""
        return len(self._wanted) + len(self._wanted_alone)

    @property
    def is_idle(self) -> bool:
        return not self._flushing and not self._wanted and not self._wanted_alone


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
