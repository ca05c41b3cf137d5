"""Bringing back to local disks what only the object store has, for topics with `strandline.remote.recall`.

Each replica does it for itself, leader or follower, from the newest segment to the oldest. So its log stays without a
gap after each of them, and goes on there after a kill. Local retention deletes nothing meanwhile.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final

from strandline.broker.tiering.partition_tier import PartitionTier
from strandline.broker.tiering.remote_cache import RemoteCache
from strandline.broker.tiering.remote_reading import RemoteLog, RemoteSegmentReader
from strandline.errors import DiskFailed, StrandlineError
from strandline.log.maintenance.segment_return import ReturningSegment
from strandline.log.segment.transaction_index import TransactionIndex
from strandline.tiers.objects import BLOCK_BYTES
from strandline.tiers.store.object_store import ObjectStore
from strandline.tiers.store.waiting import in_thread, pause, start

if TYPE_CHECKING:
    from strandline.broker.tiering.metadata_topic import MetadataTopic
    from strandline.runtime.runtime import Runtime

log = logging.getLogger("strandline.tiering")

PARTITIONS_MAX: Final = 2
"""Partitions at a time: each reads and writes whole segments."""
WRITE_BYTES: Final = 1 << 20
BATCHES_PER_TURN: Final = 200


class SegmentRecall:
    """What a node brings back. It has blocks of its own, so that readers of cold records keep theirs."""

    def __init__(
        self, runtime: Runtime, metadata: MetadataTopic, cluster_id: str, complain: Callable[[BaseException], object]
    ) -> None:
        self._runtime = runtime
        self._metadata = metadata
        self._cluster_id = cluster_id
        self._complain = complain
        self._cache = RemoteCache(runtime, size_bytes_max=4 * BLOCK_BYTES, reads_max=lambda: PARTITIONS_MAX)
        self._under_way: set[PartitionTier] = set()
        self.segments = self.bytes = 0

    def look(self, tiers: Iterable[PartitionTier], store: ObjectStore | None) -> None:
        """Begin with partitions that want segments back. Called from time to time."""
        self._cache.store = store
        for tier in tiers:
            if len(self._under_way) >= PARTITIONS_MAX or store is None:
                return
            if tier not in self._under_way and _wants(tier):
                self._under_way.add(tier)
                start(self._runtime, self._recall(tier), partial(self._on_ended, tier))

    def _on_ended(self, tier: PartitionTier, _: object, error: BaseException | None) -> None:
        self._under_way.discard(tier)
        if isinstance(error, (StrandlineError, OSError)):
            # The next look tries again.
            self._complain(error)
        elif error is not None:
            log.error("%s: bringing back its segments failed: %s", tier.place, error, exc_info=error)

    async def _recall(self, tier: PartitionTier) -> None:
        # A follower, too, needs all records of the metadata: the newest say which segments are still there.
        await self._metadata.catch_up(tier.place)
        while _wants(tier):
            size_bytes = await self._recall_one(tier)
            self.segments += 1
            self.bytes += size_bytes

    async def _recall_one(self, tier: PartitionTier) -> int:
        """Put a segment before the first local one. Return its size."""
        partition_log = tier.partition.log
        edge = partition_log.base_offsets[0]
        remote = RemoteLog(tier.place, tier.partition, tier.segments, self._cluster_id)
        segment = remote.expect(edge - 1)
        key = remote.key_of(segment)
        indexes = await self._cache.indexes(key, segment)
        reader = RemoteSegmentReader(self._cache, key, segment, indexes)
        making = ReturningSegment(partition_log, segment.start_offset)
        written = end = count = 0
        try:
            async for header, position in reader.batches(0):
                if header.base_offset >= edge:
                    # This replica rolled elsewhere than the one that copied the segment.
                    break
                count += 1
                if count % BATCHES_PER_TURN == 0:
                    await pause(self._runtime, 0.0)
                if not remote.has(header):
                    # Below the log start, or taken back by an election and replaced by those of another segment.
                    making.discard()
                    making = ReturningSegment(partition_log, header.last_offset + 1)
                    written = end = position + header.size_bytes
                    continue
                making.note(header)
                end = position + header.size_bytes
                if end - written >= WRITE_BYTES:
                    data = await reader.span(written, end - written)
                    await in_thread(self._runtime, partial(making.write, data))
                    written = end
            if not making.size_bytes:
                raise DiskFailed(f"{tier.place}: {key} in the object store has no batch below offset {edge}")
            data = await reader.span(written, end - written)
            await in_thread(self._runtime, partial(making.write, data))
            aborted = TransactionIndex()
            for each in indexes.transactions.entries():
                if making.base_offset <= each.last_offset < edge:
                    aborted.append(each)
            await in_thread(self._runtime, partial(making.finish, aborted))
            if not making.is_wanted or not _wants(tier):
                raise DiskFailed(f"{tier.place}: the log or its settings have changed; the next look tries again")
            making.rename()
            await in_thread(self._runtime, making.sync_names)
            making.take_place()
        except BaseException:
            making.discard()
            raise
        return making.size_bytes


def _wants(tier: PartitionTier) -> bool:
    partition = tier.partition
    partition_log = partition.log
    return (
        partition.tier is tier
        and partition.config.strandline_remote_recall
        and partition_log.failure is None
        and bool(partition_log.base_offsets)
        and partition_log.base_offsets[0] > partition_log.tier_start_offset
    )
