"""Checkpoints of the commit log in the object store. The leader of the log writes them, and cuts the log there.

The log begins at the offset of a checkpoint, or at 0. So a broker that finds that its next record is gone reads the
checkpoint of the offset at which the log begins now.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from strandline.errors import StrandlineError
from strandline.partition.trimming import trim
from strandline.runtime.runtime import Runtime
from strandline.tiers.store.object_store import ObjectStore
from strandline.tiers.store.waiting import LateAnswer, Signal, pause
from strandline.tiers.wal.checkpoint import checkpoint_key, checkpoint_prefix, decode_checkpoint, encode_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import COMMIT_TOPIC
from strandline.tiers.wal.wal_objects import wal_prefix

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage

log = logging.getLogger("strandline.tiering")

T = TypeVar("T")
WRITE_S_MAX: Final = 60.0
READ_S_MAX: Final = 60.0
TURN_S: Final = 0.005
KEPT: Final = 2
"""Checkpoints that stay in the store: the newest may be one that a broker has not come to yet."""


class CommitReader(Protocol):
    """What this node has read of the log."""

    fold: CommitFold
    positions: dict[int, int]
    hold: Signal[None] | None


class CommitCheckpoints:
    def __init__(self, storage: LogStorage, store: Callable[[], ObjectStore | None]) -> None:
        self._storage = storage
        self._environment = storage.environment
        self._store = store
        self._written_at = storage.environment.runtime.monotonic()
        self.written = 0

    async def load(self, offset: int) -> CommitFold | None:
        """Return what the log said below its start; None if that cannot be read now."""
        store, topic = self._store(), self._environment.image().topic_by_name(COMMIT_TOPIC)
        if store is None or topic is None:
            return None
        key = checkpoint_key(self._environment.cluster_id, topic.id, offset)
        try:
            data = await store.read_whole(key, deadline_s=READ_S_MAX)
            return await _in_turns(self._environment.runtime, decode_checkpoint(data, offset))
        except (StrandlineError, OSError, LateAnswer) as error:
            log.error("%s begins at offset %d, and its checkpoint cannot be read: %s", COMMIT_TOPIC, offset, error)
            return None

    async def has_objects(self) -> bool | None:
        """Return whether the store has objects of this cluster; None if it cannot tell now."""
        store = self._store()
        if store is None:
            return None
        try:
            async for _ in store.list(wal_prefix(self._environment.cluster_id)):
                return True
        except (StrandlineError, OSError, LateAnswer) as error:
            log.error("object topics begin when %s tells which objects it has: %s", store.name, error)
            return None
        return False

    async def maybe_write(self, commits: CommitReader, store: ObjectStore) -> None:
        """Write a checkpoint if that is due, and cut the log there. Raises StrandlineError, OSError or LateAnswer."""
        environment = self._environment
        now, interval_ms = (
            environment.runtime.monotonic(),
            environment.config().strandline_object_checkpoint_interval_ms,
        )
        partition = self._storage.replicas.partition(COMMIT_TOPIC, 0)
        offset = commits.positions.get(0, 0)
        is_due = (now - self._written_at) * 1000 >= interval_ms
        if partition is None or not partition.is_leader or not is_due or offset <= partition.log_start_offset:
            return
        self._written_at = now
        data = await self._encode(commits, offset)
        await store.put(
            checkpoint_key(environment.cluster_id, partition.topic_id, offset), data, deadline_s=WRITE_S_MAX
        )
        self.written += 1
        written: Signal[None] = Signal(environment.runtime)
        partition.log.planned_start_offset = offset
        self._storage.checkpoints.write_start_offsets(
            lambda error: written.set(None) if error is None else written.fail(error)
        )
        try:
            await written
        finally:
            partition.log.planned_start_offset = 0
        if partition.is_leader and partition.log.failure is None and offset > partition.log_start_offset:
            trim(partition, offset)
            await self._delete_older(store, checkpoint_prefix(environment.cluster_id, partition.topic_id))

    async def _encode(self, commits: CommitReader, offset: int) -> bytes:
        # The fold must not change meanwhile.
        hold: Signal[None] = Signal(self._environment.runtime)
        commits.hold = hold
        try:
            return await _in_turns(self._environment.runtime, encode_checkpoint(commits.fold, offset))
        finally:
            commits.hold = None
            hold.set(None)

    async def _delete_older(self, store: ObjectStore, prefix: str) -> None:
        keys = sorted([each.key async for each in store.list(prefix)])
        if len(keys) > KEPT:
            await store.delete(keys[:-KEPT], deadline_s=WRITE_S_MAX)


async def _in_turns(runtime: Runtime, steps: Generator[None, None, T]) -> T:
    """Return the result of a generator, a share of it in each turn of the loop."""
    until = runtime.monotonic() + TURN_S
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
        if runtime.monotonic() > until:
            await pause(runtime, 0.0)
            until = runtime.monotonic() + TURN_S
