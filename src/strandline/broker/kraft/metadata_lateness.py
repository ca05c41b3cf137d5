"""Whether the disk of this node keeps its image from following the metadata quorum.

Heartbeats need no disk. So a broker whose disk is full, or stalls, stays alive in the eyes of the controller and does
not hear that others lead in its place. What it can know is that there is metadata which it has not got into its image.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from strandline.log.partition_log import PartitionLog
from strandline.runtime.runtime import Runtime

LATE_S: Final = 0.5
"""A sound disk takes a batch in a small part of it, and a leadership that moves is seldom asked for again sooner."""


class _Due(NamedTuple):
    end_offset: int
    """What is to be flushed: the next fetch leaves only then, and nothing is heard before."""
    committed_offset: int
    """What is to be folded."""
    since: float


class MetadataLateness:
    def __init__(self, runtime: Runtime, log: PartitionLog, folded_offset: Callable[[], int]) -> None:
        self._runtime = runtime
        self._log = log
        self._folded_offset = folded_offset
        self._committed_offset = 0
        self._due: _Due | None = None

    def on_told(self, committed_offset: int) -> None:
        """A quorum leader told its high watermark. A later leader's is never lower."""
        self._committed_offset = max(self._committed_offset, committed_offset)
        self.look()

    def look(self) -> None:
        """Begin to count where something is missing; each thing that comes counts from then on."""
        log, due, folded_offset = self._log, self._due, self._folded_offset()
        if due is not None and (
            # What was cut is not waited for.
            log.flushed_offset < min(due.end_offset, log.log_end_offset) or folded_offset < due.committed_offset
        ):
            return
        is_missing = log.flushed_offset < log.log_end_offset or folded_offset < self._committed_offset
        self._due = _Due(log.log_end_offset, self._committed_offset, self._runtime.monotonic()) if is_missing else None

    @property
    def is_late(self) -> bool:
        """Whether something has been missing for longer than a sound disk takes."""
        self.look()
        return self._due is not None and self._runtime.monotonic() - self._due.since >= LATE_S
