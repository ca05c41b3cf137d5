"""Writes the checkpoints of a node: each now and then, at its own interval, and when an answer waits for it.

They are synced, so a thread writes them. One write is under way at a time; a caller that asks meanwhile waits for the
next, which serves all that wait: so many DeleteRecords cost as many writes as the disk manages, and never a thread
each.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Protocol

from strandline.broker.environment import Environment
from strandline.broker.kraft import metadata_quorum
from strandline.errors import StrandlineError
from strandline.ids import TopicPartition
from strandline.log.checkpoints import ALL, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS

if TYPE_CHECKING:
    from strandline.log.log_directory import Files, LogDirectory
    from strandline.log.partition_log import PartitionLog
    from strandline.partition.partition import Partition

log = logging.getLogger("strandline.node")

Done = Callable[[BaseException | None], object]


class CheckpointedLogs(Protocol):
    """The logs whose offsets are written down."""

    offline: dict[TopicPartition, StrandlineError]

    def all(self) -> Iterator[Partition]: ...

    def logs(self) -> dict[TopicPartition, tuple[PartitionLog, int]]: ...


class CheckpointWriter:
    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        metadata: metadata_quorum.MetadataQuorum,
        replicas: CheckpointedLogs,
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._metadata = metadata
        self._replicas = replicas
        self._is_writing = False
        self._wanted: set[str] = set()
        self._waiting: list[Done] = []
        self._written_at = dict.fromkeys(ALL, environment.runtime.monotonic())
        self.write_elsewhere: Callable[[Done], object] | None = None
        """Writes the log starts of partitions whose truth is not on this disk; set where there are some."""

    @property
    def is_idle(self) -> bool:
        return not self._is_writing

    def write_all(self) -> None:
        """Write every checkpoint that has changed, soon."""
        self._wanted |= ALL
        self._start()

    def write_due(self, now: float) -> None:
        """Write those whose time has come and that have changed."""
        config = self._environment.config()
        for name, interval_ms in (
            (RECOVERY_POINTS, config.log_flush_offset_checkpoint_interval_ms),
            (HIGH_WATERMARKS, config.replica_high_watermark_checkpoint_interval_ms),
            (LOG_START_OFFSETS, config.log_flush_start_offset_checkpoint_interval_ms),
        ):
            if (now - self._written_at[name]) * 1000 >= interval_ms:
                self._written_at[name] = now
                self._wanted.add(name)
        self._start()

    def write_start_offsets(self, on_done: Done) -> None:
        """Write the log start offsets as they are now; `on_done(error)` when the disk holds them."""
        if self.write_elsewhere is not None:
            self.write_elsewhere(partial(self._write_start_offsets, on_done))
        else:
            self._write_start_offsets(on_done, None)

    def _write_start_offsets(self, on_done: Done, error: BaseException | None) -> None:
        if error is not None:
            on_done(error)
            return
        self._waiting.append(on_done)
        self._start()

    def write_recovery_points(self, on_done: Done) -> None:
        """Write the recovery points as they are now, perhaps lower than before; `on_done(error)` likewise."""
        self._wanted.add(RECOVERY_POINTS)
        self._waiting.append(on_done)
        self._start()

    def _start(self) -> None:
        if self._is_writing or not (self._waiting or self._wanted):
            return
        files = self._changed()
        waiting, self._waiting = self._waiting, []
        if not files:
            # Nothing is under way and nothing has changed: the disk holds it already.
            for on_done in waiting:
                on_done(None)
            return
        self._is_writing = True
        self._environment.runtime.in_thread(partial(self._directory.save, files), partial(self._on_written, waiting))

    def _changed(self) -> Files:
        replicas, directory = self._replicas, self._directory
        wanted, self._wanted = self._wanted, set()
        if not wanted <= {LOG_START_OFFSETS}:
            if self._waiting:
                wanted.add(LOG_START_OFFSETS)
            return directory.changed_checkpoints(replicas.logs(), replicas.offline, wanted)
        logs = {
            TopicPartition(each.topic, each.index): each.log
            for each in replicas.all()
            if each.log.log_start_offset or each.log.planned_start_offset
        }
        logs[metadata_quorum.NAME] = self._metadata.log
        return directory.changed_start_offsets(logs, replicas.offline)

    def _on_written(self, waiting: list[Done], _: None, error: BaseException | None) -> None:
        self._is_writing = False
        if error is not None:
            # They save time at the next start; a full disk must not stop the node for want of them. But an answer that
            # waits for one is told.
            log.warning("checkpoints could not be written: %s", error)
            self._directory.forget_checkpoints()
        for on_done in waiting:
            on_done(error)
        self._start()
