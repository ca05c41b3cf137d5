"""Recovers logs after a crash, in worker processes, while the node serves the partitions that are ready.

Few and small logs are recovered on the loop, which is quicker than a process. All others wait here: logs that a client
asked for come first, then those of internal topics. A partition is opened when its log has been recovered. Until then
the broker answers NOT_LEADER_OR_FOLLOWER, which clients retry after they have asked for the metadata again.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from strandline.broker.environment import Environment
from strandline.broker.replicas.replica_logs import offline_reason
from strandline.errors import CorruptLog, DiskFull, StrandlineError
from strandline.ids import TopicPartition
from strandline.log.checkpoints import EndNotes
from strandline.log.maintenance import worker_jobs
from strandline.observability.log_lines import fields
from strandline.quorum.image.cluster_image import Topic

if TYPE_CHECKING:
    from strandline.broker.lazy import Lazy
    from strandline.broker.maintenance.storage_worker import JobFailed, StorageWorkers
    from strandline.log.log_directory import LogDirectory

log = logging.getLogger("strandline.node")

LOOP_LOGS_MAX: Final = 200
LOOP_BYTES_MAX: Final = 16 * 1024 * 1024
LOOP_LOG_BYTES_MAX: Final = 1024 * 1024
"""What is recovered on the loop at most: so many logs, bytes in all of them, and bytes in one."""
OBSERVER: Final = "strandline.partition.producers:at_most"


class LogRecovery:
    def __init__(self, environment: Environment, directory: LogDirectory, workers: Lazy[StorageWorkers]) -> None:
        self._environment = environment
        self._directory = directory
        self._workers = workers
        self.on_recovered: Callable[[TopicPartition], object] = lambda name: None
        """Called when a log can be opened, or was deleted after its topic."""
        self.on_failed: Callable[[TopicPartition, StrandlineError], object] = lambda name, error: None
        """Called with the reason when a log cannot be recovered."""
        self.loop_logs_max = LOOP_LOGS_MAX
        self.loop_bytes_max = LOOP_BYTES_MAX
        self._waiting: OrderedDict[TopicPartition, tuple[Topic, int]] = OrderedDict()
        """In the order in which they are recovered, each with its topic and its bytes."""
        self._running: dict[TopicPartition, Callable[[], object] | None] = {}
        """With what is done instead of opening the log, if its topic was deleted meanwhile."""
        self._on_loop: set[TopicPartition] = set()
        self._then: Callable[[], object] | None = None
        self._is_closed = False
        self.logs = self.logs_done = self.bytes = self.bytes_done = 0

    @property
    def is_pending(self) -> bool:
        return bool(self._waiting or self._running)

    @property
    def progress(self) -> str:
        """How far the recovery is, in words."""
        return (
            f"recovering: {self.logs_done} of {self.logs} partitions, "
            f"{self.bytes_done / 1e6:.0f} of {self.bytes / 1e6:.0f} MB"
        )

    def is_under_way(self, name: TopicPartition) -> bool:
        return name in self._waiting or name in self._running

    def takes(self, topic: Topic, index: int) -> bool:
        """Whether the log of a partition must be recovered before it can be opened; begins that if need be."""
        name, directory = TopicPartition(topic.name, index), self._directory
        if self.is_under_way(name):
            return True
        if name in self._on_loop or not directory.needs_recovery(name):
            return False
        size = directory.bytes_to_recover(name)
        if self.loop_logs_max > 0 and size <= min(self.loop_bytes_max, LOOP_LOG_BYTES_MAX):
            self.loop_logs_max -= 1
            self.loop_bytes_max -= size
            return False
        self.logs += 1
        self.bytes += size
        self._waiting[name] = topic, size
        # In a later turn: the node is still being put together, and what is small is opened first.
        self._environment.runtime.call_soon(self._start)
        return True

    def hurry(self, name: TopicPartition) -> None:
        """Recover a log next, if it waits for that, because a client asks for it."""
        if name in self._waiting:
            self._waiting.move_to_end(name, last=False)

    def cancel(self, name: TopicPartition, delete: Callable[[], object]) -> None:
        """The partition is gone: call `delete` as soon as no worker has its files open."""
        waiting = self._waiting.pop(name, None)
        if waiting is not None:
            self.logs -= 1
            self.bytes -= waiting[1]
            delete()
            self._maybe_finish()
        elif name in self._running:
            self._running[name] = delete

    def when_done(self, then: Callable[[], object]) -> None:
        self._then = then
        self._maybe_finish()

    def close(self) -> None:
        self._is_closed = True

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._environment.config().num_recovery_threads_per_data_dir:
            if self._is_closed:
                return
            name, (topic, size) = self._waiting.popitem(last=False)
            self._running[name] = None
            self._workers.get().run(
                worker_jobs.RECOVER, self._params(name, topic), lambda _: None, partial(self._on_done, name, size)
            )

    def _params(self, name: TopicPartition, topic: Topic) -> dict[str, Any]:
        from strandline.log.maintenance.recovery_job import CONFIG

        environment = self._environment
        config = environment.config().topic_config_in_force(topic.config_overrides)
        return self._directory.recovery_params(name) | {
            "config": {key: getattr(config, key) for key in CONFIG},
            "now_ms": environment.runtime.now_ms(),
            "observer": OBSERVER,
            "producers_max": environment.config().producer_id_count_max,
        }

    def _on_done(self, name: TopicPartition, size: int, result: dict[str, Any] | None, error: JobFailed | None) -> None:
        if self._is_closed:
            return
        delete = self._running.pop(name)
        failure: StrandlineError | None = None
        self.logs_done += 1
        self.bytes_done += size
        if delete is not None:
            delete()
        elif result is not None:
            self._directory.note_recovered(name, result["end_offset"], EndNotes(*result["noted"]))
        elif error is not None and error.kind == "Worker":
            # Nothing is known against the log itself.
            log.warning("%s is recovered on the loop: %s", name, error)
            self._on_loop.add(name)
        elif error is not None:
            log.error("%s is offline: %s", name, error, extra=fields(topic=name.topic, partition=name.partition))
            is_damaged = error.kind == CorruptLog.__name__
            failure = CorruptLog(error.reason) if is_damaged else offline_reason(error.errno, error.reason)
            self.on_failed(name, failure)
        if not isinstance(failure, DiskFull):
            # A log that found no room would be tried again at once; that waits until the disk has room.
            self.on_recovered(name)
        self._start()
        self._maybe_finish()

    def _maybe_finish(self) -> None:
        if self._then is not None and not self.is_pending:
            then, self._then = self._then, None
            then()
