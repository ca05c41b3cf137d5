"""The object partitions of this node: which it leads, and from where on.

A broker leads an object partition when the commit log says so, too: it writes a claim, and reads its own claim. Then it
knows all that former leaders committed, and what they write later is rejected. It begins an empty log there. Followers
hold nothing, so every replica that is alive counts as in sync, and any may be elected.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.tiering.objects.commit_checkpoints import CommitCheckpoints
from strandline.broker.tiering.objects.commit_topic import PLACE, CommitTopic
from strandline.broker.tiering.objects.object_sweeper import ObjectSweeper
from strandline.broker.tiering.objects.object_writer import ObjectWriter
from strandline.broker.tiering.objects.partition_flush import PartitionFlush
from strandline.broker.tiering.objects.range_merging import RangeMerger
from strandline.broker.tiering.objects.range_reading import RangeReader
from strandline.errors import ErrorCode, NotLeader, RequestError, StrandlineError
from strandline.handlers.support.context import BrokerServices
from strandline.log.truncation import Former, restart_at
from strandline.partition.following import make_follower, on_truncated
from strandline.partition.leading import make_leader
from strandline.partition.object_partition import ObjectPartition
from strandline.quorum.image.cluster_image import PartitionImage
from strandline.replication.in_sync import Proposal
from strandline.tiers.store.object_store import ObjectStore
from strandline.tiers.store.waiting import pause, start
from strandline.tiers.wal.commit_fold import CommittedPartition
from strandline.tiers.wal.events import STARTS, CommitEvent, Key, LeadersClaimed, ObjectCommitted, OffsetsMoved

if TYPE_CHECKING:
    from strandline.broker.maintenance.storage import LogStorage
    from strandline.broker.tiering.tiered_storage import TieredStorage
    from strandline.config.node_config import BrokerConfig
    from strandline.partition.partition import Partition
    from strandline.runtime.runtime import TimerHandle

log = logging.getLogger("strandline.tiering")

Done = Callable[[BaseException | None], object]
RETRY_S: Final = 0.1
LOOK_S: Final = 1.0
BEGIN_S_MAX: Final = 0.005
"""What beginning to lead may take of one turn of the loop."""
NO_EPOCH: Final = -1
START_S_MAX: Final = 5.0
"""Seconds in which the commit log must take where logs start; else DeleteRecords fails, and retention tries again."""
CLOSE_S_MAX: Final = 8.0


class ObjectTopics:
    def __init__(
        self, storage: LogStorage, services: BrokerServices, tiering: TieredStorage, broker_epoch: Callable[[], int]
    ) -> None:
        self._storage = storage
        self._tiering = tiering
        self._broker_epoch = broker_epoch
        environment = self._environment = storage.environment
        self.runtime = environment.runtime
        self.node_id, self.cluster_id = environment.node_id, environment.cluster_id
        self.checkpoints = CommitCheckpoints(storage, lambda: self.store)
        self.commits = CommitTopic(environment, services, self.checkpoints)
        self.writer = ObjectWriter(self)
        self.merger = RangeMerger(
            environment, storage.directory, self.commits, tiering.cache, tiering.copier, tiering.checkpoints
        )
        self.sweeper = ObjectSweeper(environment, services, self.commits, self.checkpoints, lambda: self.store)
        tiering.merges = self.merger
        self.flushes: dict[Partition, PartitionFlush] = {}
        self._by_key: dict[Key, ObjectPartition] = {}
        self.commits.on_event = self._on_event
        self._claiming: dict[ObjectPartition, int] = {}
        """Partitions that are about to be led here, and in which leader epoch."""
        self._spoilt: set[ObjectPartition] = set()
        """Partitions whose local log does not count any more."""
        self._process_epoch = NO_EPOCH
        self._is_claiming = self._is_closed = self._is_warned = False
        self._timer: TimerHandle = self.runtime.call_later(LOOK_S, self._look)
        storage.checkpoints.write_elsewhere = self.write_starts

    # For the writer

    @property
    def store(self) -> ObjectStore | None:
        return self._tiering.cache.store

    def config(self) -> BrokerConfig:
        return self._environment.config()

    def broker_epoch(self) -> int:
        """Return the epoch of this process: the first in which it was registered. Its claims and objects bear it."""
        if self._process_epoch == NO_EPOCH:
            self._process_epoch = self._broker_epoch()
        if self._process_epoch < 0:
            return NO_EPOCH
        # A restored cluster counts from 0 again. Its objects must not have the names of those of the lost one.
        return self._process_epoch + self.commits.fold.broker_epoch_base

    def begin_again(self, partition: ObjectPartition, why: str) -> None:
        if not partition.is_leader or self._is_closed:
            return
        log.warning("%r begins again where its committed records end: %s", partition, why)
        self._spoilt.add(partition)
        epoch, partition_epoch = partition.leader_epoch, partition.partition_epoch
        make_follower(partition, self.node_id, leader_epoch=epoch, partition_epoch=partition_epoch)
        self._stop_leading(partition)
        self._claim_soon(partition)

    def _why_not_written(self) -> RequestError | None:
        if self.config().strandline_remote_store_read_only:
            return RequestError(
                ErrorCode.POLICY_VIOLATION,
                "object topics take no records here, because strandline.remote.store.read.only is set",
            )
        return self.writer.why_full()

    # Partitions and their roles

    def attach(self, partition: Partition) -> None:
        """Take a partition of an object topic that was opened."""
        if partition in self.flushes or not isinstance(partition, ObjectPartition):
            return
        flush = self.flushes[partition] = PartitionFlush(self.writer, partition)
        self._by_key[partition.topic_id, partition.index] = partition
        # Followers serve readers, and lead at once when they are elected: so they read it all the time.
        self.commits.read(PLACE)
        partition.flusher = flush  # type: ignore[assignment]
        partition.log.on_flush_wanted = partial(flush.flush_soon, partition.log)
        partition.why_full = self._why_not_written
        tier = self._tiering.tiers[partition]
        tier.ranges = RangeReader(self._tiering.cache, lambda: self.commits.fold, self.cluster_id, partition)

    def forget(self, partition: Partition) -> None:
        """Drop a partition that has no replica here any more."""
        self.merger.forget(partition)
        flush = self.flushes.pop(partition, None)
        if flush is not None:
            flush.end()
            self._by_key.pop((partition.topic_id, partition.index), None)
            self._claiming.pop(flush.partition, None)
            self._spoilt.discard(flush.partition)

    def on_topic_deleted(self, topic_id: uuid.UUID) -> None:
        for partition in [each for each in self.flushes if each.topic_id == topic_id]:
            self.forget(partition)
        self.sweeper.removed.add(topic_id)

    def take_role(self, partition: Partition, image: PartitionImage) -> None:
        """Have a partition be led or followed, as the metadata log says."""
        assert isinstance(partition, ObjectPartition)
        is_older = image.leader_epoch < partition.leader_epoch or image.partition_epoch < partition.partition_epoch
        if is_older or partition not in self.flushes:
            return
        is_ours, was_led = image.leader == self.node_id, partition.is_leader
        if is_ours and was_led and partition.leader_epoch == image.leader_epoch:
            partition.partition_epoch = image.partition_epoch
            return
        make_follower(partition, image.leader, leader_epoch=image.leader_epoch, partition_epoch=image.partition_epoch)
        if was_led:
            self._stop_leading(partition)
        if is_ours:
            self._claim_soon(partition)
        else:
            self._claiming.pop(partition, None)

    def _stop_leading(self, partition: ObjectPartition) -> None:
        self.flushes[partition].end()
        self._storage.replicas.on_unled(partition)

    # Following

    def _on_event(self, event: CommitEvent) -> None:
        if isinstance(event, ObjectCommitted):
            for each in event.ranges:
                partition = self._by_key.get(each.key)
                if partition is not None and not partition.is_leader:
                    partition.unseen_bytes += each.size_bytes
                    self._follow(partition)

    def _follow(self, partition: ObjectPartition) -> None:
        """Have readers of a follower see what is committed."""
        known = self.commits.fold.partitions.get((partition.topic_id, partition.index))
        if known is not None:
            partition.advance(known.end_offset)

    # Beginning to lead

    def _claim_soon(self, partition: ObjectPartition) -> None:
        self._claiming[partition] = partition.leader_epoch
        if not self._is_claiming:
            self._is_claiming = True
            # In a later turn, so that one claim is for all that the metadata log brought at once.
            self.runtime.call_soon(self._start_claims)

    def _start_claims(self) -> None:
        start(self.runtime, self._claim_all(), _on_ended)

    async def _claim_all(self) -> None:
        try:
            while self._claiming and not self._is_closed:
                if self.broker_epoch() < 0 or await self._must_wait():
                    await pause(self.runtime, RETRY_S)
                    continue
                wanted = dict(self._claiming)
                claims = tuple([(each.topic_id, each.index, epoch) for each, epoch in wanted.items()])
                claim = LeadersClaimed(self.node_id, self.broker_epoch(), claims)
                accepted = await self.commits.claim(claim)
                if claim.broker_epoch != self.broker_epoch():
                    # The log that was read for it says that this cluster was restored.
                    continue
                until = self.runtime.monotonic() + BEGIN_S_MAX
                for (each, epoch), is_accepted in zip(wanted.items(), accepted, strict=True):
                    self._on_claimed(each, epoch, is_accepted=is_accepted)
                    if self.runtime.monotonic() > until:
                        await pause(self.runtime, 0.0)
                        until = self.runtime.monotonic() + BEGIN_S_MAX
        finally:
            self._is_claiming = False

    async def _must_wait(self) -> bool:
        """Return whether object topics cannot be led now, and log why."""
        try:
            is_lost = await self.commits.is_lost()
        except RequestError as error:
            log.warning("object topics are not led yet: %s", error)
            return True
        if is_lost and not self._is_warned:
            self._is_warned = True
            log.error(
                "object topics are not led: %s is empty, but %s has objects of this cluster. Disks were lost: "
                "bring them back, or build a new cluster with `strandline storage restore`. Nothing is deleted",
                self.commits.name,
                "the object store" if self.store is None else self.store.name,
            )
        return is_lost is not False

    def _on_claimed(self, partition: ObjectPartition, epoch: int, *, is_accepted: bool) -> None:
        if self._claiming.get(partition) != epoch or self._is_closed:
            return
        del self._claiming[partition]
        if not is_accepted:
            # The metadata log is about to say who leads.
            log.warning("%r: the commit log knows a newer leader", partition)
            return
        image = self._environment.image().topic_by_id(partition.topic_id)
        known = self.commits.fold.partitions.get((partition.topic_id, partition.index))
        if image is None or known is None or partition.log.failure is not None:
            return
        now = image.partitions[partition.index]
        if now.leader != self.node_id or now.leader_epoch != epoch:
            return
        try:
            self._begin_log(partition, known)
        except (StrandlineError, OSError) as error:
            log.error("%r cannot be led yet: %s", partition, error)
            self._spoilt.add(partition)
            self.runtime.call_later(LOOK_S, self._claim_if_wanted, partition, epoch)
            return
        make_leader(
            partition,
            self.node_id,
            leader_epoch=epoch,
            partition_epoch=now.partition_epoch,
            # Of the others none is waited for, because none holds anything.
            replicas=(self.node_id,),
            isr=(self.node_id,),
            lag_max_s=self._storage.replicas.in_sync.lag_max_s,
            is_eligible=lambda *_: True,
        )
        self.flushes[partition].begin()
        self._storage.replicas.on_led(partition)

    def _claim_if_wanted(self, partition: ObjectPartition, epoch: int) -> None:
        is_wanted = partition in self.flushes and partition.leader_epoch == epoch and not partition.is_leader
        if is_wanted and partition.leader_id == self.node_id and not self._is_closed:
            self._claim_soon(partition)

    def _begin_log(self, partition: ObjectPartition, known: CommittedPartition) -> None:
        """Have the log end where the committed records end. Raises StrandlineError or OSError."""
        partition_log = partition.log
        end_offset = known.end_offset
        is_as_committed = (
            partition_log.flushed_offset == partition_log.log_end_offset == end_offset
            # Another leader may have deleted records since, which must not come back.
            and known.start_offset <= partition_log.log_start_offset
        )
        if partition in self._spoilt or not is_as_committed:
            old_end_offset = partition_log.log_end_offset
            former = Former(known.epochs, known.producers.snapshot(), known.start_offset)
            restart_at(partition_log, end_offset, self.runtime.now_ms(), former)
            on_truncated(partition, old_end_offset)
            self._spoilt.discard(partition)
        partition_log.tier_start_offset = known.start_offset
        partition.high_watermark = end_offset
        partition.learn_undecided()

    # From time to time

    def _look(self) -> None:
        if self._is_closed:
            return
        self._timer = self.runtime.call_later(LOOK_S, self._look)
        if self.commits.is_known:
            self.commits.keep_reading()
        for partition in list(self.flushes):
            if partition.log.failure is not None:
                self.forget(partition)
            elif partition.is_leader:
                self._maybe_expand(partition)
            elif isinstance(partition, ObjectPartition):
                self._follow(partition)

    def _maybe_expand(self, partition: Partition) -> None:
        """Propose that all replicas that are alive are in sync."""
        topic, brokers = self._environment.image().topic_by_id(partition.topic_id), self._environment.image().brokers
        if topic is None or partition.index >= len(topic.partitions):
            return
        image = topic.partitions[partition.index]
        alive = [each for each in image.replicas if (broker := brokers.get(each)) is not None and broker.is_active]
        isr = (*image.isr, *[each for each in alive if each not in image.isr])
        if len(isr) == len(image.isr) or image.leader_epoch != partition.leader_epoch:
            return
        epochs = tuple([brokers[each].epoch if each in brokers else NO_EPOCH for each in isr])
        proposal = Proposal(partition.leader_epoch, image.partition_epoch, isr, epochs)
        self._storage.replicas.in_sync.propose(partition, proposal)

    def write_starts(self, on_done: Done) -> None:
        """Write to the commit log where logs start, or are about to; then call `on_done(error)`."""
        moved = []
        for partition in self.flushes:
            known = self.commits.fold.partitions.get((partition.topic_id, partition.index))
            start_offset = max(partition.log_start_offset, partition.log.planned_start_offset)
            if partition.is_leader and known is not None and start_offset > known.start_offset:
                moved.append((partition.topic_id, partition.index, partition.leader_epoch, start_offset))
        if not moved:
            on_done(None)
            return
        start(self.runtime, self._write_starts(OffsetsMoved(STARTS, tuple(moved))), lambda _, error: on_done(error))

    async def _write_starts(self, event: OffsetsMoved) -> None:
        # Not for as long as it takes: starts of other topics wait for the same answer.
        await self.commits.append_within(START_S_MAX, event)
        for topic_id, index, _, offset in event.partitions:
            known = self.commits.fold.partitions.get((topic_id, index))
            if known is not None and known.start_offset < offset:
                raise NotLeader("another broker leads since, and the log start was not moved")

    # Stopping

    def close(self) -> None:
        """Write what is on its way, for a short time: clients wait for it. Then stop."""
        self._timer.cancel()
        self.sweeper.close()
        start(self.runtime, self._close(), _on_ended)

    async def _close(self) -> None:
        deadline = self.runtime.monotonic() + CLOSE_S_MAX
        while not self.writer.is_idle and self.runtime.monotonic() < deadline:
            await pause(self.runtime, 0.01)
        self._is_closed = True
        self.writer.close()
        self.commits.close()
        self._tiering.close()


def _on_ended(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("a task of object topics ended: %s", error, exc_info=error)
