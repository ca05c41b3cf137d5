"""Flushes the logs that have `flush.ms`, each after its own time."""

from __future__ import annotations

from strandline.config.settings import LONG_MAX
from strandline.log.flusher import Flusher
from strandline.partition.partition import Partition
from strandline.runtime.runtime import Runtime


class TimedFlushes:
    """The partitions with `flush.ms`, and when each was last flushed by it."""

    def __init__(self, runtime: Runtime, flusher: Flusher) -> None:
        self._runtime = runtime
        self._flusher = flusher
        self._flushed_at: dict[Partition, float] = {}

    def note(self, partition: Partition) -> None:
        """Take a partition that was opened or has other settings, or drop it if it has no `flush.ms` now."""
        if partition.config.flush_ms < LONG_MAX:
            self._flushed_at.setdefault(partition, self._runtime.monotonic())
        else:
            self.forget(partition)

    def forget(self, partition: Partition) -> None:
        """Drop a partition that is gone."""
        self._flushed_at.pop(partition, None)

    def flush_due(self, now: float) -> None:
        """Flush the logs whose time has come."""
        for partition, flushed_at in self._flushed_at.items():
            if (now - flushed_at) * 1000 >= partition.config.flush_ms:
                self._flushed_at[partition] = now
                if partition.log.unflushed:
                    self._flusher.flush(partition.log)
