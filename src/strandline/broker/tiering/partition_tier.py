"""The tier of one partition: what requests ask it for, and what its leader knows of the store."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, cast

from strandline.broker.tiering.remote_reading import RemoteLog, UnmergedRanges, find_time, read_records, too_late
from strandline.errors import DiskFailed, NotLeader, StrandlineError
from strandline.log.maintenance.retention import LocalPolicy
from strandline.log.segment.segment import Segment
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.partition import Partition
from strandline.partition.tier import FollowedState, HighestRemote, OnRecords, OnTime, RemoteRecords
from strandline.tiers.copying import local_policy
from strandline.tiers.records import TieredPartition
from strandline.tiers.remote_segments import RemoteSegments
from strandline.tiers.store.failures import ObjectMissing
from strandline.tiers.store.waiting import LateAnswer, Started, within

if TYPE_CHECKING:
    from uuid import UUID

    from strandline.broker.environment import Environment
    from strandline.broker.tiering.metadata_topic import MetadataTopic
    from strandline.broker.tiering.objects.followed_partition import FollowedPartition
    from strandline.broker.tiering.remote_cache import RemoteCache
    from strandline.runtime.runtime import Runtime

T = TypeVar("T")
log = logging.getLogger("strandline.tiering")

CATCH_UP_S_MAX: Final = 5.0
"""Seconds in which a follower reads the metadata of segments; else its client goes to the leader."""


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
        ranges = None if self.ranges is None else self.ranges.frozen()
        return RemoteLog(self.place, self.partition, self.segments, self._storage.cluster_id, ranges)

    # Of a follower of an object topic

    @property
    def follows_index(self) -> bool:
        return self.ranges is not None

    def followed(self) -> FollowedState:
        return self._followed_partition().state

    def _followed_partition(self) -> FollowedPartition:
        if self._storage.is_opening or self.ranges is None:
            raise NotLeader(f"{self.place}: the object store is being opened")
        return self.ranges.followed()

    def _followed_log(self) -> RemoteLog:
        """Return what the store has, as far as this node has read the commit log. Raises NotLeader."""
        followed, ranges = cast("Partition", self._followed_partition()), self.ranges
        frozen = None if ranges is None else ranges.frozen()
        return RemoteLog(self.place, followed, self.segments, self._storage.cluster_id, frozen)

    async def _read_followed(self, offset: int, *, size_bytes_max: int, committed_only: bool) -> RemoteRecords:
        """Read for a consumer of a follower. What is not there may be unknown here: its leader is asked then."""
        storage, cache = self._storage, self._storage.cache
        for is_last in (False, True):
            try:
                return await read_records(
                    self._followed_log(), cache, offset, size_bytes_max=size_bytes_max, committed_only=committed_only
                )
            except (DiskFailed, ObjectMissing) as error:
                # A range may be released before the record of its segment comes here, or deleted before the release.
                if is_last:
                    raise NotLeader(f"{self.place}: not known here yet at offset {offset}: {error}") from error
                try:
                    await within(storage.runtime, CATCH_UP_S_MAX, Started(storage.runtime, self._catch_up()).outcome)
                except LateAnswer:
                    raise NotLeader(f"{self.place}: the metadata of its segments is not read yet") from error
        raise AssertionError("unreachable")

    async def _catch_up(self) -> None:
        await self._storage.metadata.catch_up(self.place)

    def copied_up_to(self) -> int:
        """Return the first offset that the store lacks, as far as is known here."""
        log = self.partition.log
        return max(self.segments.highest(log.leader_epochs, log.log_end_offset)[0] + 1, 0)

    def lacking(self) -> list[Segment]:
        """Return the sealed segments that the store lacks.

        Those below the log start are not copied any more, however long they stay on the disk.
        """
        copied_up_to, log_start_offset = self.copied_up_to(), self.partition.log_start_offset
        return [
            segment
            for segment, following in pairwise(self.partition.log.segments)
            if segment.base_offset >= copied_up_to and following.base_offset > log_start_offset
        ]

    # For requests

    def highest(self) -> HighestRemote:
        log = self.partition.log
        return HighestRemote(*self.remote_log().segments.highest(log.leader_epochs, log.log_end_offset))

    def read(self, offset: int, *, size_bytes_max: int, committed_only: bool, then: OnRecords) -> None:
        storage = self._storage
        if not storage.may_read():
            then(RemoteRecords(()), None)
            return
        reading: Coroutine[Any, Any, RemoteRecords]
        if self.follows_index and not self.partition.is_leader:
            reading = self._read_followed(offset, size_bytes_max=size_bytes_max, committed_only=committed_only)
        else:
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
