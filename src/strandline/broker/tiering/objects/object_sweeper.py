"""Deletes objects that nothing needs, and writes checkpoints, on the node that leads the commit log.

An object is dead when the commit log says that no range of it is needed. It is deleted after `file.delete.delay.ms`,
when no reader can be in it any more. A deletion that a crash interrupts is made again.

An object that no record names was written by a process that died, or gave it up, before the commit. The store lists
it. If no record names it for `strandline.object.orphan.ms`, by this process's own clock, it is condemned first: from
then on the log rejects its commit. Then it is dead like others.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

from strandline.broker.tiering.objects.commit_checkpoints import CommitCheckpoints
from strandline.broker.tiering.objects.commit_topic import PLACE, CommitTopic
from strandline.errors import StrandlineError
from strandline.tiers.store.object_store import ObjectStore
from strandline.tiers.store.waiting import LateAnswer, start
from strandline.tiers.wal.checkpoint import commits_prefix
from strandline.tiers.wal.events import ObjectId, ObjectsCondemned, ObjectsDeleted, TopicsRemoved
from strandline.tiers.wal.wal_objects import object_id_of, wal_key, wal_prefix

if TYPE_CHECKING:
    from strandline.broker.environment import Environment
    from strandline.handlers.support.context import BrokerServices
    from strandline.runtime.runtime import TimerHandle

log = logging.getLogger("strandline.tiering")

GONE_S: Final = 10.0
"""How long a topic must be missing in the metadata before its ranges are."""
DELETES_PER_STEP: Final = 500
DELETE_S_MAX: Final = 60.0
LISTS_PER_WATCH: Final = 4
"""How often the store is listed in the time for which an object without a name is watched."""


class ObjectSweeper:
    def __init__(
        self,
        environment: Environment,
        services: BrokerServices,
        commits: CommitTopic,
        checkpoints: CommitCheckpoints,
        store: Callable[[], ObjectStore | None],
    ) -> None:
        self._environment = environment
        self._services = services
        self._runtime = environment.runtime
        self._commits = commits
        self._checkpoints = checkpoints
        self._store = store
        self._dead_since: dict[ObjectId, float] = {}
        self._unnamed_since: dict[ObjectId, float] = {}
        self._missing_since: dict[UUID, float] = {}
        self.removed: set[UUID] = set()
        """Topics whose removal was seen."""
        self._listed_at = -1e9
        self._is_sweeping = self._is_closed = False
        self._complaint = ""
        self._is_warned = False
        self._timer: TimerHandle = self._runtime.call_later(self._interval_s, self._tick)
        self.deleted = self.condemned = 0

    @property
    def _interval_s(self) -> float:
        return self._environment.config().remote_log_manager_task_interval_ms / 1000

    @property
    def unnamed(self) -> int:
        """Return how many objects are watched that no record names."""
        return len(self._unnamed_since)

    def close(self) -> None:
        self._is_closed = True
        self._timer.cancel()

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._timer = self._runtime.call_later(self._interval_s, self._tick)
        store = None if self._environment.config().strandline_remote_store_read_only else self._store()
        if not self._commits.is_led_here:
            # Another node watches; this one begins again if it leads once more.
            self._dead_since, self._unnamed_since, self._missing_since, self._listed_at = {}, {}, {}, -1e9
        elif store is not None and not self._is_sweeping:
            self._is_sweeping = True
            start(self._runtime, self._sweep(store), self._on_ended)

    def _on_ended(self, _: None, error: BaseException | None) -> None:
        self._is_sweeping = False
        if error is None:
            self._complaint = ""
        elif not isinstance(error, (StrandlineError, OSError, LateAnswer)):
            log.error("the sweep of objects ended: %s", error, exc_info=error)
        elif str(error) != self._complaint:
            self._complaint = str(error)
            log.error("object topics: %s", error)

    async def _sweep(self, store: ObjectStore) -> None:
        if not await self._commits.read_to_end(PLACE) or self._commits.is_empty:
            # A log without a record may have lost them; then every object would look like an orphan.
            return
        await self._remove_topics()
        await self._watch(store)
        await self._delete_dead(store)
        await self._checkpoints.maybe_write(self._commits, store)

    async def _remove_topics(self) -> None:
        """Have the log forget topics that are gone."""
        image, now, gone = self._environment.image(), self._runtime.monotonic(), []
        missing = {each for each in self._commits.fold.topic_ids() if image.topic_by_id(each) is None}
        self._missing_since = {each: self._missing_since.get(each, now) for each in missing}
        if not self._services.may_be_replaced:
            # An image that is behind does not know new topics yet.
            gone = [
                each for each, since in self._missing_since.items() if each in self.removed or now - since >= GONE_S
            ]
        self.removed &= missing
        if gone:
            await self._commits.append(TopicsRemoved(tuple(gone)))

    async def _watch(self, store: ObjectStore) -> None:
        """Find objects that no record names, and condemn those that were watched for long enough."""
        watch_s, now = self._environment.config().strandline_object_orphan_ms / 1000, self._runtime.monotonic()
        if now - self._listed_at < watch_s / LISTS_PER_WATCH:
            return
        self._listed_at = now
        cluster_id = self._environment.cluster_id
        listed = [object_id_of(each.key) async for each in store.list(wal_prefix(cluster_id))]
        fold = self._commits.fold
        unnamed = {each for each in listed if each is not None and each not in fold.objects and each not in fold.dead}
        self._unnamed_since = {each: self._unnamed_since.get(each, now) for each in unnamed}
        due = due_orphans(self._unnamed_since, now=now, watch_s=watch_s)
        if due and await self._is_restored(store):
            await self._commits.append(ObjectsCondemned(due))
            self.condemned += len(due)
            log.info("%d objects that no commit names are deleted", len(due))

    async def _is_restored(self, store: ObjectStore) -> bool:
        """Return whether no commit log but this one, and those that were restored, has left a checkpoint."""
        topic, prefix = self._commits.topic(), commits_prefix(self._environment.cluster_id)
        known = {str(each) for each in self._commits.fold.restored_logs} | (
            {str(topic.id)} if topic is not None else set()
        )
        others = {each.key.removeprefix(f"{prefix}/").split("/")[0] async for each in store.list(prefix)} - known
        if others and not self._is_warned:
            self._is_warned = True
            log.error(
                "objects without a commit are not deleted: %s has checkpoints of another commit log, %s; run "
                "`strandline storage restore` if this cluster goes on in place of a lost one",
                store.name,
                min(others),
            )
        return not others

    async def _delete_dead(self, store: ObjectStore) -> None:
        now, dead = self._runtime.monotonic(), self._commits.fold.dead
        self._dead_since = {each: self._dead_since.get(each, now) for each in dead}
        delay_s = self._environment.config().topic_defaults.file_delete_delay_ms / 1000
        due = [each for each, since in self._dead_since.items() if now - since >= delay_s]
        for some in _parts(due):
            keys = [wal_key(self._environment.cluster_id, each) for each in some]
            await store.delete(keys, deadline_s=DELETE_S_MAX)
            self.deleted += len(some)
            await self._commits.append(ObjectsDeleted(tuple(some)))


def due_orphans(since: dict[ObjectId, float], *, now: float, watch_s: float) -> tuple[ObjectId, ...]:
    """Return the objects that were watched for long enough."""
    return tuple(sorted(each for each, began in since.items() if now - began >= watch_s))


def _parts(ids: list[ObjectId]) -> Iterable[list[ObjectId]]:
    return (ids[at : at + DELETES_PER_STEP] for at in range(0, len(ids), DELETES_PER_STEP))
