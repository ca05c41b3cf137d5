"""Group commit: whatever was appended while one fdatasync ran is covered by the next.

A log has at most one flush under way. Appends that come meanwhile ask for another; when the first returns, one more
fdatasync covers them all. So a thousand waiting producers cost as many syncs as one, and the loop never waits.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from strandline.runtime import Runtime

if TYPE_CHECKING:
    from strandline.log.log_slice import FlushJob
    from strandline.log.partition_log import PartitionLog


class Flusher:
    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.flushes_started = 0
        self._running: set[PartitionLog] = set()
        self._again: set[PartitionLog] = set()
        self._soon: dict[PartitionLog, None] = {}
        """In the order in which they asked: the same seed must flush in the same order."""

    def flush_soon(self, log: PartitionLog) -> None:
        """Flush at the end of this turn of the loop, so that one sync covers all that the turn appends."""
        if not self._soon:
            self.runtime.call_soon(self._flush_turn)
        self._soon[log] = None

    def _flush_turn(self) -> None:
        logs = list(self._soon)
        self._soon.clear()
        for log in logs:
            self.flush(log)

    def flush(self, log: PartitionLog) -> None:
        """See to it that everything appended so far reaches the disk; the log tells its owner when it has."""
        if log in self._running:
            self._again.add(log)
            return
        job = log.begin_flush()
        if job is None:
            return
        self._running.add(log)
        self.flushes_started += 1
        self.runtime.in_thread(job.run, partial(self._done, log, job))

    def _done(self, log: PartitionLog, job: FlushJob, _: None, error: BaseException | None) -> None:
        self._running.discard(log)
        again = log in self._again
        self._again.discard(log)
        log.end_flush(job, error)
        if again and error is None:
            self.flush(log)

    @property
    def is_idle(self) -> bool:
        return not self._running and not self._soon
