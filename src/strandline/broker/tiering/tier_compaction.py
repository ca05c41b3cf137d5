"""Which partition in the object store is compacted next: the dirtiest one that is due, one at a time."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from functools import partial
from typing import Final

from strandline.broker.maintenance.cleaner_task import CleanerShare
from strandline.broker.tiering.partition_tier import PartitionTier
from strandline.broker.tiering.segment_copy import SegmentReplaced
from strandline.broker.tiering.store_compaction import CompactionTools, StoreCompaction, clear
from strandline.errors import NotLeader, StrandlineError
from strandline.tiers.compaction import Chain, chain, is_due
from strandline.tiers.store.object_store import ObjectStore

log = logging.getLogger("strandline.tiering")

RETRY_S: Final = 5.0
RETRY_S_MAX: Final = 600.0


class TierCompactor:
    """Compacts one partition at a time."""

    def __init__(self, tools: CompactionTools) -> None:
        self._tools = tools
        self._environment = tools.storage.environment
        self._runtime = tools.storage.environment.runtime
        self._retry_at: dict[PartitionTier, tuple[int, float]] = {}
        self._clean: dict[PartitionTier, tuple[int, int]] = {}
        """Partitions in which nothing was dirty, after how many records of their metadata."""
        self._is_running = False
        self.compactions = self.failures = self.source_bytes = self.read_bytes = self.written_bytes = 0
        self.replaced_segments = 0

    def start(self) -> None:
        """Remove what a former process left on the disk."""
        self._runtime.in_thread(partial(clear, self._tools.disk, self._tools.scratch), lambda *_: None)

    def find(self, tiers: Iterable[PartitionTier]) -> tuple[PartitionTier, Chain] | None:
        """Return the dirtiest partition that is due; None if there is none, or one is being compacted."""
        if self._is_running or not self._environment.config().log_cleaner_enable:
            return None
        due = []
        for tier in tiers:
            partition = tier.partition
            _, retry_at = self._retry_at.get(tier, (0, 0.0))
            is_wanted = partition.config.compact and not partition.config.remote_log_copy_disable
            if not is_wanted or not tier.is_caught_up or self._runtime.monotonic() < retry_at:
                continue
            seen = tier.segments.events, partition.leader_epoch
            if self._clean.get(tier) == seen:
                continue
            found = chain_of(tier)
            if is_due(found, partition.config, self._runtime.now_ms()):
                due.append((found.dirty_bytes / found.total_bytes, tier, found))
            elif not found.dirty_bytes:
                self._clean[tier] = seen
        if not due:
            return None
        _, tier, found = max(due, key=lambda each: each[0])
        return tier, found

    async def compact(self, tier: PartitionTier, found: Chain, store: ObjectStore) -> None:
        """Compact a partition, or note that it failed and is tried again later."""
        self._is_running = True
        work = StoreCompaction(self._tools, tier, found, store, CleanerShare.of(self._environment.config()))
        try:
            await work.run()
        except (NotLeader, SegmentReplaced) as error:
            log.info("%s: the compaction of its remote segments is given up: %s", tier.place, error)
            self._set_aside(tier)
        except (StrandlineError, OSError) as error:
            self.failures += 1
            log.error("%s: its remote segments cannot be compacted now: %s", tier.place, error)
            self._set_aside(tier)
        else:
            self.compactions += 1
            self._retry_at.pop(tier, None)
        finally:
            self._is_running = False
            self.source_bytes += work.source_bytes
            self.read_bytes += work.read_bytes
            self.written_bytes += work.written_bytes
            self.replaced_segments += work.replaced_segments

    def _set_aside(self, tier: PartitionTier) -> None:
        failures, _ = self._retry_at.get(tier, (0, 0.0))
        delay_s = min(RETRY_S * 2 ** min(failures, 10), RETRY_S_MAX)
        self._retry_at[tier] = failures + 1, self._runtime.monotonic() + delay_s

    def forget(self, tier: PartitionTier) -> None:
        self._retry_at.pop(tier, None)
        self._clean.pop(tier, None)


def chain_of(tier: PartitionTier) -> Chain:
    partition = tier.partition
    return chain(
        tier.segments,
        partition.log.leader_epochs,
        log_start_offset=partition.log_start_offset,
        log_end_offset=partition.log.log_end_offset,
    )
