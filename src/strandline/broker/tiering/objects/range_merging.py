"""Merging: batches that lie in many small objects become segments of their partition, as tiered topics have them.

The local log of the leader has most of them, so a segment of it is sealed after a time, and copied like any other. What
a former leader committed is only in objects. Those batches are written into a log of their own, on this disk, and its
segments are copied in place of local ones. When a segment is whole in the store, the ranges that it holds are released.
Nothing is lost if the node stops in between: both hold the same bytes, and the merge begins again.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from strandline.broker.tiering.checkpoint_task import CheckpointTask
from strandline.broker.tiering.objects.commit_topic import CommitTopic
from strandline.broker.tiering.objects.range_reading import RangeReader
from strandline.broker.tiering.remote_cache import RemoteCache
from strandline.broker.tiering.segment_copy import SegmentCopier
from strandline.codec.record_batch import check_run, parse_header
from strandline.log.cache_files import CacheDisk
from strandline.log.log_loader import open_log
from strandline.log.partition_log import PartitionLog
from strandline.log.run_appends import append_fetched
from strandline.log.truncation import Former, restart_at
from strandline.partition.producers import Producers
from strandline.tiers.copying import CopyCandidate
from strandline.tiers.objects import ObjectPart, key_of
from strandline.tiers.wal.commit_fold import CommittedPartition
from strandline.tiers.wal.events import RELEASED, OffsetsMoved

if TYPE_CHECKING:
    from strandline.broker.environment import Environment
    from strandline.broker.tiering.partition_tier import PartitionTier
    from strandline.log.disk import Disk
    from strandline.log.log_directory import LogDirectory
    from strandline.partition.partition import Partition
    from strandline.tiers.store.object_store import ObjectStore

RANGES_MAX: Final = 1000
"""Ranges of a partition after which it is merged, however young they are: every broker holds them in memory."""
MERGE_DIRECTORY: Final = "strandline-merging"


class RangeMerger:
    def __init__(
        self,
        environment: Environment,
        directory: LogDirectory,
        commits: CommitTopic,
        cache: RemoteCache,
        copier: SegmentCopier,
        checkpoints: CheckpointTask,
    ) -> None:
        self._environment = environment
        self._directory = directory
        self._commits = commits
        self._cache = cache
        self._copier = copier
        self._checkpoints = checkpoints
        self._merged_since: dict[Partition, tuple[int, float]] = {}
        """Up to which offset segments were found to hold the records, and since when that is known."""
        self._since: dict[Partition, tuple[int, float]] = {}
        """Which segment is the last one, and since when it is known to have records that readers see."""
        self._led_since: dict[Partition, tuple[int, float]] = {}
        """In which leader epoch this node leads, and since when that is known."""
        self.merged_ranges = 0

    def forget(self, partition: Partition) -> None:
        self._since.pop(partition, None)
        self._led_since.pop(partition, None)
        self._merged_since.pop(partition, None)

    async def before_copy(self, tier: PartitionTier, store: ObjectStore) -> None:
        self._maybe_roll(tier.partition)
        if isinstance(tier.ranges, RangeReader):
            await self._copy_former(tier, tier.ranges, store)

    async def after_copy(self, tier: PartitionTier) -> None:
        if isinstance(tier.ranges, RangeReader):
            await self._release(tier)

    def _maybe_roll(self, partition: Partition) -> None:
        """Seal the last local segment if its records are to be merged now. Raises StrandlineError."""
        partition_log, now = partition.log, self._environment.runtime.monotonic()
        base_offset = partition_log.active.base_offset
        since = self._since.get(partition)
        has_none = not partition_log.active.size_bytes or partition.log_start_offset >= partition_log.log_end_offset
        if since is None or since[0] != base_offset or has_none:
            self._since[partition] = base_offset, now
            return
        known = self._known(partition)
        is_old = now - since[1] >= self._environment.config().strandline_object_merge_interval_ms / 1000
        if is_old or (known is not None and len(known.ranges) >= RANGES_MAX):
            partition_log.roll(self._environment.runtime.now_ms())

    def _is_former_due(self, partition: Partition, known: CommittedPartition) -> bool:
        """Return whether what former leaders committed is to be merged now.

        Not as soon as this node leads: it may lead a thousand partitions more, and their clients come first.
        """
        now, interval_ms = (
            self._environment.runtime.monotonic(),
            self._environment.config().strandline_object_merge_interval_ms,
        )
        since = self._led_since.get(partition)
        if since is None or since[0] != partition.leader_epoch:
            since = self._led_since[partition] = partition.leader_epoch, now
        # A sealed segment of the local log is copied next, and must not come before what lies below it.
        has_sealed = len(partition.log.segments) > 1
        return has_sealed or len(known.ranges) >= RANGES_MAX or (now - since[1]) * 1000 >= interval_ms

    def _known(self, partition: Partition) -> CommittedPartition | None:
        return self._commits.fold.partitions.get((partition.topic_id, partition.index))

    async def _copy_former(self, tier: PartitionTier, ranges: RangeReader, store: ObjectStore) -> None:
        """Copy what is in objects and not in the local log. Raises StrandlineError or OSError."""
        partition, known = tier.partition, self._known(tier.partition)
        if known is None or not known.ranges or not self._is_former_due(partition, known):
            return
        start_offset = self._merged_up_to(tier, known)
        # As with segments of the local log, no open transaction reaches into one that is copied.
        end_offset = min(partition.log.log_start_offset, partition.last_stable_offset)
        if start_offset >= end_offset:
            return
        path = self._directory.path / MERGE_DIRECTORY / f"{partition.topic_id.hex}-{partition.index}"
        self._discard(path)
        written = await self._write(path, tier, ranges, start_offset, end_offset)
        try:
            for base_offset, next_offset in pairwise([*written.base_offsets, written.log_end_offset]):
                if base_offset < next_offset and tier.is_caught_up:
                    await self._copier.copy(
                        store, tier.place, partition, CopyCandidate(base_offset, next_offset), written
                    )
        finally:
            for segment in written.segments:
                segment.close()
            self._discard(path)

    async def _write(
        self, path: Path, tier: PartitionTier, ranges: RangeReader, start_offset: int, end_offset: int
    ) -> PartitionLog:
        """Write the batches between two offsets into a log in a directory of its own."""
        partition, environment = tier.partition, self._environment
        size_bytes_max = partition.config.segment_bytes
        data, _ = await ranges.read(start_offset, size_bytes_max=size_bytes_max, limit_offset=end_offset)
        # The log start may lie inside a batch, and segments hold whole batches.
        start_offset = parse_header(data).base_offset
        segment = tier.segments.find(partition.log.leader_epochs.epoch_of(start_offset - 1), start_offset - 1)
        snapshot = None
        if segment is not None:
            parts = (await self._cache.indexes(key_of(environment.cluster_id, tier.place, segment), segment)).parts
            snapshot = parts.get(ObjectPart.PRODUCER_SNAPSHOT)
        environment.disk.make_directory(path)
        written = open_log(
            path,
            partition.config,
            # What a crash leaves of it is dropped by the next merge, so nothing of it is synced.
            disk=cast("Disk", CacheDisk(environment.disk)),
            open_files=self._directory.open_files,
            now_ms=environment.runtime.now_ms(),
            observer=Producers(),
        )
        former = Former(partition.log.leader_epochs, snapshot, partition.log_start_offset)
        restart_at(written, start_offset, environment.runtime.now_ms(), former)
        while True:
            headers, size = check_run(
                memoryview(data), next_offset=written.log_end_offset, leader_epoch=partition.leader_epoch
            )
            append_fetched(written, memoryview(data)[:size], headers, now_ms=environment.runtime.now_ms())
            if written.log_end_offset >= end_offset:
                break
            data, _ = await ranges.read(written.log_end_offset, size_bytes_max=size_bytes_max, limit_offset=end_offset)
        written.write_out()
        return written

    def _discard(self, path: Path) -> None:
        if self._environment.disk.exists(path):
            self._environment.disk.remove_tree(path)

    async def _release(self, tier: PartitionTier) -> None:
        """Have the commit log forget the ranges that segments hold."""
        partition, known = tier.partition, self._known(tier.partition)
        if known is None or not known.ranges or not tier.is_caught_up:
            return
        offset = self._merged_up_to(tier, known)
        count = sum(each.end_offset <= offset for each in known.ranges)
        if not count:
            return
        now = self._environment.runtime.monotonic()
        merged = self._merged_since.get(partition)
        if merged is None or merged[0] != offset:
            merged = self._merged_since[partition] = offset, now
        # A restore takes ranges of the commit log's checkpoint, and segments of this node's: none may lack both.
        if self._checkpoints.has_state_of(merged[1]):
            moved = (partition.topic_id, partition.index, partition.leader_epoch, offset)
            await self._commits.append(OffsetsMoved(RELEASED, (moved,)))
            self.merged_ranges += count

    def _merged_up_to(self, tier: PartitionTier, known: CommittedPartition) -> int:
        """Return up to where segments hold the records, without a gap, from the first range on."""
        start_offset = max(known.first_offset, tier.partition.log_start_offset)
        return tier.segments.covered_up_to(start_offset, tier.partition.log.leader_epochs)
