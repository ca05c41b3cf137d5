"""The tiered topics of this node: which partitions have a tier, and what is done for those that are led here.

Each `remote.log.manager.task.interval.ms` a leader copies sealed segments, deletes those that are past retention,
compacts those of compacted topics, and cleans up after attempts that failed. The leader of a partition of
`__remote_log_metadata` deletes the segments of topics that are gone, so that a deletion goes on whichever node stops.
"""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.broker.tiering.checkpoint_task import CheckpointTask
from strandline.broker.tiering.follower_beginnings import FollowerBeginnings
from strandline.broker.tiering.metadata_topic import MetadataTopic
from strandline.broker.tiering.partition_tier import PartitionTier
from strandline.broker.tiering.remote_cache import RemoteCache
from strandline.broker.tiering.segment_copy import UPLOAD_S_MAX, SegmentCopier
from strandline.broker.tiering.segment_recall import SegmentRecall
from strandline.broker.tiering.shared_transactions import end_shared_transactions
from strandline.broker.tiering.store_access import StoreAccess
from strandline.broker.tiering.store_compaction import CompactionTools
from strandline.broker.tiering.tier_compaction import TierCompactor
from strandline.errors import StrandlineError
from strandline.handlers.support.context import BrokerServices
from strandline.handlers.support.services import TierReport
from strandline.ids import TopicPartition
from strandline.partition.partition import Partition
from strandline.partition.trimming import trim
from strandline.quorum.image.cluster_image import RESOURCE_TOPIC
from strandline.tiers.copying import candidates
from strandline.tiers.expiry import expired
from strandline.tiers.metadata_fold import Key
from strandline.tiers.objects import partition_prefix
from strandline.tiers.records import PartitionDeleted, RemoteSegment, TieredPartition, total_bytes
from strandline.tiers.segment_states import PartitionDeleteState, SegmentState
from strandline.tiers.store.byte_rate import ByteLimit, ByteRate
from strandline.tiers.store.object_store import ObjectStore
from strandline.tiers.store.waiting import Signal, pause, start

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.log.segment.segment import Segment
    from strandline.runtime.runtime import TimerHandle

log = logging.getLogger("strandline.tiering")

WORK_MAX: Final = 4
"""Partitions that are worked on at a time, and so segments that are uploaded at a time."""
RETRY_S: Final = 0.5
RETRY_S_MAX: Final = 30.0
JITTER: Final = 0.2
STALE_COPY_S: Final = UPLOAD_S_MAX + 60.0
"""After this time a copy of another node, or of a former process, has ended one way or the other."""
GONE_S: Final = 10.0
"""How long a topic must be missing here before its segments are deleted, if no record said that it was removed."""
CLONE_S: Final = 600.0
"""The same for segments of which a clone has no objects of its own: they are recorded before their topic is created."""
DELETES_PER_STEP: Final = 50
DELETE_S_MAX: Final = 60.0


class ObjectMerges(Protocol):
    """What is done for object topics beside the copies of their segments."""

    async def before_copy(self, tier: PartitionTier, store: ObjectStore) -> None: ...
    async def after_copy(self, tier: PartitionTier) -> None: ...


class TieredStorage:
    def __init__(self, storage: LogStorage, services: BrokerServices) -> None:
        """Raises StoreFailed or InvalidConfig, in one sentence, if the store cannot be opened as it is configured."""
        self._storage = storage
        self._services = services
        environment = self.environment = storage.environment
        self.runtime = environment.runtime
        self.cluster_id = environment.cluster_id
        config = environment.config()
        self.access = StoreAccess(environment)
        self.checkpoints = CheckpointTask(environment, services.directory_id, lambda: self.tiers.values())
        self.metadata = MetadataTopic(environment, services)
        self.cache = RemoteCache(
            self.runtime,
            size_bytes_max=config.strandline_remote_cache_bytes,
            reads_max=lambda: environment.config().remote_log_reader_threads,
            rate=ByteRate(self.runtime, self._fetch_limit),
        )
        self._copy_rate = ByteRate(self.runtime, self._copy_limit)
        self.copier = SegmentCopier(
            self.runtime,
            self.metadata,
            node_id=environment.node_id,
            cluster_id=self.cluster_id,
            new_id=self._new_id,
        )
        self.compactor = TierCompactor(
            CompactionTools(storage, self.metadata, self.copier, self.cluster_id, self._new_id)
        )
        self.beginnings = FollowerBeginnings(self.runtime, self.metadata, self.cache, self.cluster_id)
        self.recall = SegmentRecall(self.runtime, self.metadata, self.cluster_id, self.access.complain)
        self.tiers: dict[Partition, PartitionTier] = {}
        self.is_opening = True
        """Whether the store was not tried yet: clients come again in a moment. Later, its failures are theirs."""
        self.pending = 0
        """Reads of partitions that are under way."""
        self.stale_copy_s = STALE_COPY_S
        self.deleted_segments = 0
        self._due: deque[PartitionTier] = deque()
        self._working = 0
        self._removed: set[uuid.UUID] = set()
        """Topics whose removal was seen."""
        self._missing_since: dict[Key, float] = {}
        self._deleting: set[Key] = set()
        self._timer: TimerHandle | None = None
        self._is_closed = False
        self.merges: ObjectMerges | None = None
        """What makes segments of small objects; set where there are object topics."""
        self.on_copied: Callable[[Partition], object] = lambda _: None
        """Called with a partition of which local segments may go now."""

    def _new_id(self) -> uuid.UUID:
        return uuid.UUID(int=self.runtime.random.getrandbits(128), version=4)

    # Starting and stopping

    def start(self) -> None:
        """Begin to work. The node has joined its cluster."""
        if self._timer is None and not self._is_closed:
            self._timer = self.runtime.call_soon(self._tick)  # type: ignore[assignment]
            self._run(self._open_store())
            self.compactor.start()

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self.metadata.close()
        self.access.close()

    async def _open_store(self) -> None:
        """Until the store is open nothing is read or written there."""
        while not self._is_closed and self.cache.store is None:
            self.cache.store = await self.access.try_open(self._interval_s)
            self.is_opening = False
        self._work_soon(self.tiers.values())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        start(self.runtime, coroutine, _on_ended)

    @property
    def _interval_s(self) -> float:
        return self.environment.config().remote_log_manager_task_interval_ms / 1000

    def _copy_limit(self) -> ByteLimit:
        config = self.environment.config()
        return ByteLimit(
            config.remote_log_manager_copy_max_bytes_per_second,
            config.remote_log_manager_copy_quota_window_num * config.remote_log_manager_copy_quota_window_size_seconds,
        )

    def _fetch_limit(self) -> ByteLimit:
        config = self.environment.config()
        window_s = config.remote_log_manager_fetch_quota_window_size_seconds
        return ByteLimit(
            config.remote_log_manager_fetch_max_bytes_per_second,
            config.remote_log_manager_fetch_quota_window_num * window_s,
        )

    def may_read(self) -> bool:
        return self.pending < self.environment.config().remote_log_reader_max_pending_tasks

    # For metrics

    def _lacking(self) -> list[Segment]:
        """Return the sealed segments of led partitions that the store lacks."""
        return [segment for tier in self.tiers.values() if tier.is_caught_up for segment in tier.lacking()]

    def copy_lag(self) -> tuple[int, int]:
        """Return how many sealed segments of led partitions the store lacks, and their bytes."""
        sizes = [each.size_bytes for each in self._lacking()]
        return len(sizes), sum(sizes)

    def report(self) -> TierReport:
        """Return what `doctor` tells of the store."""
        config, now_ms, checkpoints = self.environment.config(), self.runtime.now_ms(), self.checkpoints
        lacking = self._lacking()
        oldest = min((each.max_timestamp_ms for each in lacking if each.max_timestamp_ms >= 0), default=now_ms)
        return TierReport(
            is_open=self.cache.store is not None,
            is_read_only=self.access.is_read_only,
            problem=self.access.problem,
            message=self.access.message,
            lag_segments=len(lacking),
            lag_bytes=sum(each.size_bytes for each in lacking),
            lag_ms=max(0, now_ms - oldest) if lacking else 0,
            task_interval_ms=config.remote_log_manager_task_interval_ms,
            checkpoint_age_ms=checkpoints.age_ms(),
            checkpoint_interval_ms=config.strandline_remote_checkpoint_interval_ms,
            checkpoint_message=checkpoints.message,
            damages=list(self.cache.damages.values()),
        )

    def size_bytes(self) -> int:
        return sum(total_bytes(tier.segments.readable()) for tier in self.tiers.values() if tier.is_caught_up)

    # Which partitions are tiered

    def attach(self, partition: Partition) -> None:
        """Follow the settings of a partition: it may be tiered from now on, or no longer."""
        partition_log, is_tiered = partition.log, partition.config.is_tiered
        if is_tiered and partition.tier is None:
            if partition_log.tier_start_offset < 0:
                partition_log.tier_start_offset = partition_log.log_start_offset
            partition.tier = self.tiers[partition] = PartitionTier(self, partition)
            if partition.is_leader:
                self.begin_leading(partition)
        elif not is_tiered and partition.tier is not None:
            self.forget(partition)
            partition.tier = None
            # What is only in the store is deleted, as `remote.log.delete.on.disable` says.
            partition_log.tier_start_offset = -1
            partition_log.leader_epochs.truncate_start(partition_log.log_start_offset)
            self._storage.checkpoints.write_start_offsets(lambda _: None)

    def begin_leading(self, partition: Partition) -> None:
        """Read the metadata up to what former leaders wrote, then work."""
        # First, in the turn in which this node begins to lead, before any producer may go on in such a transaction.
        end_shared_transactions(partition, self.environment.node_id)
        tier = self.tiers.get(partition)
        if tier is not None and not tier.is_caught_up and not tier.is_catching_up and not self._is_closed:
            tier.is_catching_up = True
            self._run(self._catch_up(tier))

    async def _catch_up(self, tier: PartitionTier) -> None:
        partition = tier.partition
        try:
            while partition.is_leader and not tier.is_caught_up and not self._is_closed:
                epoch = partition.leader_epoch
                try:
                    await self.metadata.catch_up(tier.place)
                except Exception as error:
                    log.warning("%s: the metadata of its remote segments is not read yet: %s", tier.place, error)
                    await pause(self.runtime, RETRY_S)
                else:
                    tier.caught_up_epoch = epoch
        finally:
            tier.is_catching_up = False
        self._work_soon([tier])

    def forget(self, partition: Partition) -> None:
        """Drop a partition that has no replica here any more."""
        tier = self.tiers.pop(partition, None)
        if tier is not None:
            self.compactor.forget(tier)

    def on_topic_deleted(self, topic_id: uuid.UUID) -> None:
        if any(key[0] == topic_id for key in self.metadata.names):
            self._removed.add(topic_id)
        for partition in [each for each in self.tiers if each.topic_id == topic_id]:
            self.forget(partition)
        self.runtime.call_soon(self._sweep)

    # Working

    def _tick(self) -> None:
        if self._is_closed:
            return
        self._timer = self.runtime.call_later(self._interval_s, self._tick)
        for partition in [each for each in self.tiers if each.log.failure is not None]:
            self.forget(partition)
        for tier in self.tiers.values():
            place = self.metadata.place_of(tier.place)
            if place is not None:
                self.metadata.read(place)
            if tier.partition.is_leader:
                self.begin_leading(tier.partition)
        topic = self.metadata.topic()
        for place in range(0 if topic is None else len(topic.partitions)):
            if self.metadata.leader_of(place) == self.environment.node_id:
                self.metadata.read(place)
        self.metadata.keep_reading()
        self._work_soon(self.tiers.values())
        self._compact_soon()
        store = self.cache.store
        self.recall.look(list(self.tiers.values()), store)
        if store is not None and not self.access.is_read_only and self.checkpoints.is_due():
            self._run(self.checkpoints.write(store))
        self._sweep()

    def _compact_soon(self) -> None:
        store = None if self.access.is_read_only else self.cache.store
        found = None if store is None else self.compactor.find(self.tiers.values())
        if store is not None and found is not None:
            self._run(self.compactor.compact(*found, store))

    def _work_soon(self, tiers: Iterable[PartitionTier]) -> None:
        now = self.runtime.monotonic()
        for tier in tiers:
            if tier.is_caught_up and not tier.is_working and now >= tier.retry_at:
                tier.is_working = True
                self._due.append(tier)
        self._begin_work()

    def _begin_work(self) -> None:
        limit = min(WORK_MAX, self.environment.config().remote_log_manager_copier_thread_pool_size)
        if self.access.is_read_only:
            # Nothing is copied, expires or is deleted there: it may be another cluster's.
            for tier in self._due:
                tier.is_working = False
            self._due.clear()
        while self._due and self._working < limit and self.cache.store is not None and not self._is_closed:
            self._working += 1
            self._run(self._work(self._due.popleft(), self.cache.store))

    async def _work(self, tier: PartitionTier, store: ObjectStore) -> None:
        try:
            if tier.is_caught_up:
                await self._copy(tier, store)
                if self.merges is not None:
                    await self.merges.after_copy(tier)
                await self._expire(tier, store)
                await self._clean_up(tier, store)
                tier.failures = 0
        except (StrandlineError, OSError) as error:
            tier.failures += 1
            delay_s = min(RETRY_S * 2 ** min(tier.failures - 1, 10), RETRY_S_MAX)
            tier.retry_at = self.runtime.monotonic() + delay_s * (1 + JITTER * (self.runtime.random.random() * 2 - 1))
            if tier.partition.is_leader and not self._is_closed:
                self.access.complain(error)
        finally:
            tier.is_working = False
            self._working -= 1
            self.runtime.call_soon(self._begin_work)

    async def _copy(self, tier: PartitionTier, store: ObjectStore) -> None:
        partition = tier.partition
        if partition.config.remote_log_copy_disable or tier.place.key in self.metadata.fold.deleting:
            return
        if self.merges is not None and partition.config.storage == "object":
            await self.merges.before_copy(tier, store)
        partition_log = partition.log
        # What the disk may lose is not copied: the store would hold offsets that are given again.
        limit_offset = min(partition.last_stable_offset, partition_log.flushed_offset)
        if partition.config.cleans_locally:
            # Nor what the cleaner has not been at: most of it would be replaced soon.
            name = TopicPartition(partition.topic, partition.index)
            limit_offset = min(limit_offset, self._storage.directory.cleaner_offsets.get(name, 0))
        found = candidates(
            partition_log.base_offsets,
            last_stable_offset=limit_offset,
            copied_up_to=tier.copied_up_to(),
            log_start_offset=partition.log_start_offset,
        )
        for candidate in found:
            await self._copy_rate.wait()
            if not tier.is_caught_up or self._is_closed or partition_log.failure is not None:
                return
            if partition_log.swap is not None or candidate.base_offset not in partition_log.base_offsets:
                continue
            self._copy_rate.count(await self.copier.copy(store, tier.place, partition, candidate))
            self.access.clear()
            self.on_copied(partition)

    async def _expire(self, tier: PartitionTier, store: ObjectStore) -> None:
        partition, partition_log = tier.partition, tier.partition.log
        copied_up_to = tier.copied_up_to()
        found = expired(
            tier.segments.readable(),
            leader=partition_log.leader_epochs,
            config=partition.config,
            log_start_offset=partition.log_start_offset,
            log_end_offset=partition_log.log_end_offset,
            local_only_bytes=sum(
                each.size_bytes for each in partition_log.segments if each.base_offset >= copied_up_to
            ),
            now_ms=self.runtime.now_ms(),
        )
        if found.log_start_offset > partition.log_start_offset:
            await self._move_start(partition, min(found.log_start_offset, partition.high_watermark))
        if found.segments and tier.is_caught_up:
            await self._delete(tier.place, found.segments, store)

    async def _move_start(self, partition: Partition, offset: int) -> None:
        """Move the log start: first on disk, then for readers, and only then objects are deleted."""
        partition_log = partition.log
        signal: Signal[None] = Signal(self.runtime)
        partition_log.planned_start_offset = offset
        self._storage.checkpoints.write_start_offsets(
            lambda error: signal.set(None) if error is None else signal.fail(error)
        )
        try:
            await signal
        finally:
            partition_log.planned_start_offset = 0
        if partition_log.failure is None and partition.is_leader and offset > partition.log_start_offset:
            trim(partition, offset)

    async def _delete(self, place: TieredPartition, segments: Iterable[RemoteSegment], store: ObjectStore) -> None:
        left = list(segments)
        while left and not self._is_closed:
            some, left = left[:DELETES_PER_STEP], left[DELETES_PER_STEP:]
            await self.copier.delete(store, place, some)
            self.deleted_segments += len(some)
            for segment in some:
                self.cache.forget(segment.id)

    async def _clean_up(self, tier: PartitionTier, store: ObjectStore) -> None:
        """Delete what failed attempts, and deletions that a stop interrupted, have left."""
        now, stale = self.runtime.monotonic(), tier.segments.in_state(SegmentState.DELETE_STARTED)
        copies = [each for each in tier.segments.in_state(SegmentState.COPY_STARTED) if not self.copier.is_own(each)]
        for segment in copies:
            first_seen = tier.first_seen.setdefault(segment.id, now)
            # A copy of this node that it does not know was begun by its former process.
            if segment.broker_id == self.environment.node_id or now - first_seen > self.stale_copy_s:
                stale.append(segment)
        replaced = tier.segments.replaced()
        for segment in replaced:
            # Readers may have begun to read it before, and a restore needs it until a checkpoint names its successor.
            age_s = now - (since := tier.first_seen.setdefault(segment.id, now))
            if age_s >= tier.partition.config.file_delete_delay_ms / 1000 and self.checkpoints.has_state_of(since):
                stale.append(segment)
        seen = tier.first_seen
        tier.first_seen = {each.id: seen[each.id] for each in [*copies, *replaced] if each.id in seen}
        if stale and tier.is_caught_up:
            await self._delete(tier.place, stale, store)

    # Topics that are gone

    def _sweep(self) -> None:
        """Delete the segments of topics that are gone, where this node leads their metadata."""
        store, now = self.cache.store, self.runtime.monotonic()
        if store is None or self._is_closed or self.access.is_read_only:
            return
        for key, place in list(self.metadata.names.items()):
            # A deletion that was begun goes on, even if the topic is tiered again.
            is_begun = key in self.metadata.fold.deleting
            if not is_begun and not self._is_gone(key):
                self._missing_since.pop(key, None)
                continue
            where = self.metadata.place_of(place)
            if key in self._deleting or where is None or self.metadata.leader_of(where) != self.environment.node_id:
                continue
            since = self._missing_since.setdefault(key, now)
            known = self.metadata.states.get(key)
            limit_s = CLONE_S if known is not None and known.shares_objects else GONE_S
            # An image that is behind does not know new topics yet.
            is_certain = (
                is_begun or key[0] in self._removed or (now - since > limit_s and not self._services.may_be_replaced)
            )
            if is_certain:
                self._deleting.add(key)
                self._run(self._delete_partition(place, store))

    def _is_gone(self, key: Key) -> bool:
        """Return whether a topic was deleted, or is not tiered any more and gave its remote segments up."""
        image = self.environment.image()
        topic = image.topic_by_id(key[0])
        if topic is None:
            return True
        overrides = image.configs.get((RESOURCE_TOPIC, topic.name), {})
        config = self.environment.config().topic_config_in_force(overrides)
        return not config.is_tiered and config.remote_log_delete_on_disable

    async def _delete_partition(self, place: TieredPartition, store: ObjectStore) -> None:
        try:
            for state in (PartitionDeleteState.MARKED, PartitionDeleteState.STARTED):
                await self._note_deletion(place, state)
            known = self.metadata.states.get(place.key)
            await self._delete(place, [] if known is None else list(known.by_id.values()), store)
            left = [each.key async for each in store.list(partition_prefix(self.cluster_id, place))]
            needed = self.metadata.fold.keys_needed(left)
            left = [key for key in left if key not in needed]
            if left:
                await store.delete(left, deadline_s=DELETE_S_MAX)
            await self._note_deletion(place, PartitionDeleteState.FINISHED)
            log.info("%s: its segments in the object store are deleted", place)
        except (StrandlineError, OSError) as error:
            self.access.complain(error)
        finally:
            self._deleting.discard(place.key)
            if not any(key[0] == place.topic_id for key in self.metadata.names):
                self._removed.discard(place.topic_id)

    async def _note_deletion(self, place: TieredPartition, state: PartitionDeleteState) -> None:
        await self.metadata.append(PartitionDeleted(place, state, self.environment.node_id, self.runtime.now_ms()))


def _on_ended(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("a task of tiered topics ended: %s", error, exc_info=error)
