"""The tier of one partition: what requests ask it for, and what its leader knows of the store."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from strandline.broker.tiering.remote_reading import RemoteLog, UnmergedRanges, find_time, read_records, too_late
from strandline.errors import NotLeader, StrandlineError
from strandline.log.maintenance.retention import LocalPolicy
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.partition import Partition
from strandline.partition.tier import HighestRemote, OnRecords, OnTime, RemoteRecords
from strandline.tiers.copying import local_policy
from strandline.tiers.records import TieredPartition
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.store.waiting import LateAnswer, Started, within

if TYPE_CHECKING:
    from uuid import UUID

    from strandline.broker.environment import Environment
    from strandline.broker.tiering.metadata_topic import MetadataTopic
    from strandline.broker.tiering.remote_cache import RemoteCache
    from strandline.runtime.runtime import Runtime

T = TypeVar("T")
log = logging.getLogger("strandline.tiering")


class TierOwner(Protocol):
    """What the tiers of a node share."""

    environment: Environment
    runtime: Runtime
    cluster_id: str
    metadata: MetadataTopic
    cache: RemoteCache
    pending: int
    is_opening: bool

    def may_read(self) -> bool: ...


class PartitionTier:
    """The tier of a partition that is led or followed here."""

    def __init__(self, storage: TierOwner, partition: Partition) -> None:
        self._storage = storage
        self.partition = partition
        self.place = TieredPartition(partition.topic_id, partition.index, partition.topic)
        self.ranges: UnmergedRanges | None = None
        """What the store has behind the segments, if it is a partition of an object topic."""
        self.caught_up_epoch = -1
        """The leader epoch in which all metadata was read that was there when the epoch began."""
        self.is_working = self.is_catching_up = False
        self.failures = 0
        self.retry_at = 0.0
        self.first_seen: dict[UUID, float] = {}
        """When copies of others that are under way, and segments that were replaced, were seen first."""

    @property
    def segments(self) -> RemoteSegments:
        known = self._storage.metadata.states.get(self.place.key)
        return RemoteSegments() if known is None else known

    @property
    def is_caught_up(self) -> bool:
        return self.caught_up_epoch == self.partition.leader_epoch and self.partition.is_leader

    def remote_log(self) -> RemoteLog:
        """Return what the store has of this partition. Raises NotLeader while that is not known."""
        if self._storage.is_opening:
            raise NotLeader(f"{self.place}: the object store is being opened")
        if not self.is_caught_up:
            raise NotLeader(f"{self.place}: the metadata of its segments in the object store is not read yet")
        return RemoteLog(self.place, self.partition, self.segments, self._storage.cluster_id, self.ranges)

    def copied_up_to(self) -> int:
        """Return the first offset that the store lacks, as far as is known here."""
        log = self.partition.log
        return max(self.segments.highest(log.leader_epochs, log.log_end_offset)[0] + 1, 0)

    # For requests

    def highest(self) -> HighestRemote:
        log = self.partition.log
        return HighestRemote(*self.remote_log().segments.highest(log.leader_epochs, log.log_end_offset))

    def read(self, offset: int, *, size_bytes_max: int, committed_only: bool, then: OnRecords) -> None:
        storage = self._storage
        if not storage.may_read():
            then(RemoteRecords(b"", ()), None)
            return
        try:
            remote = self.remote_log()
        except NotLeader as error:
            then(None, error)
            return
        reading = read_records(
            remote, storage.cache, offset, size_bytes_max=size_bytes_max, committed_only=committed_only
        )
        started = Started(storage.runtime, reading)
        if started.outcome.done():
            _report(started, then)
            return
        storage.pending += 1

        def on_done(_: object) -> None:
            storage.pending -= 1
            _report(started, then)

        started.outcome.add_done_callback(on_done)

    def find_time(self, timestamp_ms: int, then: OnTime) -> None:
        storage = self._storage
        started = Started(storage.runtime, self._find_time(timestamp_ms))
        started.outcome.add_done_callback(lambda _: _report(started, then))

    async def _find_time(self, timestamp_ms: int) -> FoundTime | None:
        storage = self._storage
        limit_s = storage.environment.config().remote_list_offsets_request_timeout_ms / 1000
        searching = Started(storage.runtime, find_time(self.remote_log(), storage.cache, timestamp_ms))
        try:
            return await within(storage.runtime, limit_s, searching.outcome)
        except LateAnswer:
            searching.cancel()
            raise too_late() from None

    def local_policy(self) -> LocalPolicy:
        partition = self.partition
        return local_policy(partition.config, copied_up_to=self.copied_up_to(), high_watermark=partition.high_watermark)


def _report(started: Started[T], then: Callable[[T | None, BaseException | None], object]) -> None:
    try:
        result = started.outcome.result()
    except BaseException as error:
        if not isinstance(error, (StrandlineError, OSError)):
            log.exception("a read of the object store failed")
        elif not isinstance(error, NotLeader):
            log.error("%s", error)
        then(None, error)
    else:
        then(result, None)
