"""Cleans single logs that a client asks for: now, whatever the dirty ratio, and answered when it is done.

The active segment is rolled, so that its records count; they are waited for, if they are not committed or flushed yet.
What may not be cleaned, because of an open transaction or `min.compaction.lag.ms`, is left. A log with more keys than
the buffer holds takes several goes, which are one answer.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Final, Protocol

from strandline.broker.maintenance.cleaner_task import GivenUp
from strandline.errors import ErrorCode, RequestError, StrandlineError
from strandline.log.maintenance.cleanable import HIGH_WATERMARK, RECOVERY_POINT, Cleanable, Cleaned
from strandline.partition.partition import Partition
from strandline.runtime.runtime import Runtime

LOOK_S: Final = 0.02
WAIT_S_MAX: Final = 30.0
"""How long a cleaning waits for what was just written to be committed and flushed, or for a log that changes."""

OnCompacted = Callable[[Cleaned | None, StrandlineError | None], object]


class CompactingCleaner(Protocol):
    """The cleaner, as far as single cleanings use it."""

    @property
    def is_enabled(self) -> bool: ...

    @property
    def running(self) -> Container[Partition]: ...

    def judge(self, partition: Partition) -> Cleanable: ...
    def begin_now(self, partition: Partition, what: Cleanable) -> bool: ...


class _Wanted:
    def __init__(self, target: int, deadline: float, on_done: OnCompacted) -> None:
        self.target = target
        """Up to here, if it may be."""
        self.deadline = deadline
        self.on_done = on_done
        self.cleaned: Cleaned | None = None


class ManualCompactions:
    """The cleanings of single logs that clients asked for."""

    def __init__(self, cleaner: CompactingCleaner, runtime: Runtime) -> None:
        self._cleaner = cleaner
        self._runtime = runtime
        self._wanted: dict[Partition, list[_Wanted]] = {}
        self._is_closed = False

    def close(self) -> None:
        self._is_closed = True

    def ask(self, partition: Partition, on_done: OnCompacted) -> None:
        """Clean a log now; `on_done(what came of it, or None if all was clean, error)`. Raises if it may not be."""
        cleaner, partition_log = self._cleaner, partition.log
        if not cleaner.is_enabled:
            raise RequestError(ErrorCode.POLICY_VIOLATION, "the cleaner is off: log.cleaner.enable=false")
        if not partition.config.compact:
            policy = ",".join(partition.config.cleanup_policy)
            raise RequestError(ErrorCode.POLICY_VIOLATION, f"cleanup.policy of {partition.topic} is {policy}")
        if not partition.config.cleans_locally:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"{partition.topic} is compacted in the object store, when min.cleanable.dirty.ratio or "
                "max.compaction.lag.ms says so",
            )
        if partition_log.failure is not None:
            raise partition_log.refusal()
        if partition_log.active.size_bytes:
            partition_log.roll(self._runtime.now_ms())
        deadline = self._runtime.monotonic() + WAIT_S_MAX
        wanted = _Wanted(partition_log.active.base_offset, deadline, on_done)
        self._wanted.setdefault(partition, []).append(wanted)
        self._try(partition, wanted)

    def _try(self, partition: Partition, wanted: _Wanted) -> None:
        """Begin as soon as all may be cleaned that is wanted, and a cleaner is free."""
        if self._is_closed or wanted not in self._wanted.get(partition, ()):
            return
        if partition.log.failure is not None:
            self._finish(partition, wanted, partition.log.refusal())
            return
        if not partition.config.compact:
            self._finish(partition, wanted, GivenUp(f"{partition.topic} is not compacted any more"))
            return
        if partition in self._cleaner.running:
            # When that ends we are told.
            return
        what = self._cleaner.judge(partition)
        is_behind = what.first_uncleanable < wanted.target
        waits = is_behind and what.because in (HIGH_WATERMARK, RECOVERY_POINT)
        if waits and what.because == RECOVERY_POINT:
            partition.log.want_flush()
        if not waits or self._runtime.monotonic() >= wanted.deadline:
            if not what.cleanable_bytes:
                self._finish(partition, wanted, None)
                return
            if self._cleaner.begin_now(partition, what):
                return
        self._runtime.call_later(LOOK_S, self._try, partition, wanted)

    def on_end(self, partition: Partition, cleaned: Cleaned | None, error: StrandlineError | None) -> None:
        """A cleaning of this log has ended: was it what was wanted?"""
        for wanted in list(self._wanted.get(partition, ())):
            if cleaned is not None:
                wanted.cleaned = _together(wanted.cleaned, cleaned)
                is_over = cleaned.result.clean_up_to >= wanted.target
            else:
                is_over = not isinstance(error, GivenUp) or self._runtime.monotonic() >= wanted.deadline
            if is_over:
                self._finish(partition, wanted, error)
            else:
                self._runtime.call_soon(self._try, partition, wanted)

    def _finish(self, partition: Partition, wanted: _Wanted, error: StrandlineError | None) -> None:
        waiting = self._wanted[partition]
        waiting.remove(wanted)
        if not waiting:
            del self._wanted[partition]
        wanted.on_done(None if error is not None else wanted.cleaned, error)


def _together(first: Cleaned | None, cleaned: Cleaned) -> Cleaned:
    """Several goes at one log, as one."""
    if first is None:
        return cleaned
    gone_records = first.result.records_read - first.result.records_kept
    gone_bytes = first.size_bytes_before - first.size_bytes_after
    result = cleaned.result._replace(
        records_read=cleaned.result.records_read + gone_records,
        records_without_key=cleaned.result.records_without_key + first.result.records_without_key,
    )
    return cleaned._replace(result=result, size_bytes_before=cleaned.size_bytes_before + gone_bytes)
