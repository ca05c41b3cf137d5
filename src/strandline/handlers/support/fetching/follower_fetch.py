"""A Fetch of a follower: its fetch offset acknowledges all records before it.

The offset counts only if the follower has the broker epoch of its registration, is a replica of the partition, knows
the leader epoch, and its log is a prefix of the leader's, which the epoch of its last record shows. Otherwise the
response says what is wrong, or where the logs diverge, and nothing is counted.

A follower reads up to the log end. A waiting fetch is answered when there are records. A new high watermark alone is
sent at once, but only every few milliseconds: under load it travels with the next records.

OFFSET_OUT_OF_RANGE carries the log start offset, and the follower copies the log from there. The same is sent to a
follower that was away while tombstones were removed that it has not fetched (decision 0037). This response, and all
records below the tombstone horizon, carry the horizon: the follower's log will lack the same tombstones.
"""

from __future__ import annotations

from typing import Final, cast

from strandline.codec.current_leader import NO_TAGS, diverging_section, horizon_section
from strandline.codec.fetch import BEGINS_AGAIN, FetchRequest, PartitionData
from strandline.errors import ErrorCode, OffsetOutOfRange, RequestError, StrandlineError, error_code
from strandline.handlers.support.context import BrokerServices, Exchange
from strandline.handlers.support.fetching.fetch_attempt import COLD_LOOKUPS_MAX, FetchAttempt
from strandline.ids import TopicPartition
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.epochs import replica_divergence
from strandline.partition.fetch_session import FetchEntry
from strandline.partition.follower_session import FollowerEntry, FollowerSession
from strandline.partition.leading import on_follower_fetch, on_follower_lost
from strandline.partition.partition import ANY_EPOCH, Partition
from strandline.runtime.runtime import TimerHandle

HIGH_WATERMARK_INTERVAL_S: Final = 0.005
"""The least time between two responses of one session that carry only the high watermark."""


def attempt(
    node: BrokerServices,
    exchange: Exchange,
    session: FollowerSession,
    request: FetchRequest,
    version: int,
    *,
    is_full: bool,
) -> FollowerAttempt:
    session.replica_id = request.replica_id
    made = FollowerAttempt(node, exchange, session, version, is_full=is_full)
    made.size_bytes_max = request.size_bytes_max
    made.size_bytes_min = min(1, request.size_bytes_min, request.size_bytes_max)
    made.wait_ms = request.wait_ms_max
    registered = node.image.brokers.get(request.replica_id)
    made.broker_epoch = request.replica_epoch
    made.is_known = (
        registered is not None and registered.epoch == request.replica_epoch and request.replica_id != node.node_id
    )
    exchange.on_abandoned = made.abandon
    # Before any read, because an acknowledgement must not wait for the cold pages of another partition.
    for fetch in request.partitions:
        entry = session.entries.get((fetch[0], fetch[1]))
        if entry is not None:
            made.count(cast(FollowerEntry, entry))
    return made


class FollowerAttempt(FetchAttempt):
    """The Fetch of a follower."""

    is_of_follower = True

    __slots__ = ("_watermark_timer", "broker_epoch", "is_known")

    session: FollowerSession

    def __init__(
        self, node: BrokerServices, exchange: Exchange, session: FollowerSession, version: int, *, is_full: bool
    ) -> None:
        super().__init__(node, exchange, session, version, is_full=is_full)
        self.broker_epoch = -1
        self.is_known = False
        """Whether this broker is registered with this epoch."""
        self._watermark_timer: TimerHandle | None = None

    # Counting

    def count(self, entry: FollowerEntry) -> PartitionData[LogSlice] | None:
        """Count the fetch offset as an acknowledgement, or return the response that rejects it."""
        partition = entry.partition or self._find(entry)
        if isinstance(partition, int):
            return self.refuse(entry, partition)
        try:
            diverging = self._compare(partition, entry)
        except OffsetOutOfRange as error:
            if entry.fetch_offset == BEGINS_AGAIN:
                return self._copy_again(partition, entry)
            return PartitionData(
                *entry.key, error_code(error), partition.high_watermark, -1, partition.log_start_offset, None
            )
        except StrandlineError as error:
            if error_code(error) == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
                start_offset = partition.log_start_offset
                return PartitionData(*entry.key, error_code(error), partition.high_watermark, -1, start_offset, None)
            return self.refuse(entry, error_code(error))
        if diverging is not None:
            return PartitionData(
                *entry.key,
                0,
                partition.high_watermark,
                partition.high_watermark,
                partition.log_start_offset,
                None,
                diverging_section(*diverging),
            )
        if entry.fetch_offset < partition.log.tombstone_horizon or entry.fetch_offset == entry.log_start_offset:
            refusal = self._missed_tombstones(partition, entry)
            if refusal is not None:
                return refusal
        entry.is_counted = True
        on_follower_fetch(
            partition,
            self.session.replica_id,
            entry.fetch_offset,
            log_start_offset=entry.log_start_offset,
            broker_epoch=self.broker_epoch,
        )
        return None

    def _compare(self, partition: Partition, entry: FollowerEntry) -> tuple[int, int] | None:
        """Return where the follower's log diverges from ours, if it does; raise if it is not a follower of ours."""
        if not partition.is_leader:
            raise RequestError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "another leads")
        if partition.log.failure is not None:
            raise partition.log.refusal()
        in_sync = partition.in_sync
        if not self.is_known or in_sync is None or self.session.replica_id not in in_sync.followers:
            raise RequestError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"node {self.session.replica_id} has no replica of {partition!r}"
            )
        if entry.current_leader_epoch == ANY_EPOCH:
            raise RequestError(ErrorCode.FENCED_LEADER_EPOCH, "a follower must name its leader's epoch")
        partition.check_leader_epoch(entry.current_leader_epoch)
        offset, log = entry.fetch_offset, partition.log
        if offset < log.log_start_offset:
            if 0 <= log.tier_start_offset <= offset:
                raise RequestError(
                    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE, f"offset {offset} is in the object store alone"
                )
            raise OffsetOutOfRange(f"offset {offset} is below {log.log_start_offset}")
        diverging = None
        if entry.last_fetched_epoch >= 0:
            diverging = replica_divergence(partition, entry.last_fetched_epoch, offset, entry.log_start_offset)
        if diverging is None and offset > log.log_end_offset:
            raise OffsetOutOfRange(f"offset {offset} is beyond {log.log_end_offset}")
        return diverging

    def _missed_tombstones(self, partition: Partition, entry: FollowerEntry) -> PartitionData[LogSlice] | None:
        """Return the rejection of a follower that may hold values whose tombstones were removed here, else None."""
        in_sync, log = partition.in_sync, partition.log
        assert in_sync is not None
        name = TopicPartition(partition.topic, partition.index)
        if not in_sync.has_missed_tombstones(
            in_sync.followers[self.session.replica_id],
            entry.fetch_offset,
            log_start_offset=entry.log_start_offset,
            broker_epoch=self.broker_epoch,
            horizon=log.tombstone_horizon,
            cleaned_up_to=self.node.directory.cleaner_offsets.get(name, 0),
        ):
            return None
        return self._copy_again(partition, entry)

    def _copy_again(self, partition: Partition, entry: FollowerEntry) -> PartitionData[LogSlice]:
        """Make a follower copy the log from its start, once no election can depend on its present log."""
        in_sync, log = partition.in_sync, partition.log
        assert in_sync is not None
        if in_sync.may_lead(self.session.replica_id):
            on_follower_lost(partition, self.session.replica_id)
            return self.refuse(entry, ErrorCode.REPLICA_NOT_AVAILABLE)
        return PartitionData(
            *entry.key,
            ErrorCode.OFFSET_OUT_OF_RANGE,
            partition.high_watermark,
            -1,
            partition.log_start_offset,
            None,
            horizon_section(log.tombstone_horizon),
        )

    # Looking

    def _may_wait(self, results: list[PartitionData[LogSlice]]) -> bool:
        if self._have_news(results):
            wait_s = self._watermark_wait_s()
            if wait_s <= 0:
                return False
            if self._watermark_timer is None:
                self._watermark_timer = self.node.runtime.call_later(wait_s, self._look_again)
        return True

    def _have_news(self, results: list[PartitionData[LogSlice]]) -> bool:
        entries = self.session.entries
        return any(
            not data.error_code and data.tags is NO_TAGS and self._has_news(entries[data.topic, data.partition], data)
            for data in results
        )

    def _watermark_wait_s(self) -> float:
        return self.session.told_at + HIGH_WATERMARK_INTERVAL_S - self.node.runtime.monotonic()

    def _has_news(self, entry: FetchEntry, data: PartitionData[LogSlice]) -> bool:
        return data.high_watermark > entry.sent_high_watermark or data.log_start_offset > max(
            entry.sent_log_start_offset, cast(FollowerEntry, entry).log_start_offset
        )

    def _read(self, entry: FetchEntry, remaining: int, *, at_least_one: bool) -> PartitionData[LogSlice]:
        assert isinstance(entry, FollowerEntry)
        partition = entry.partition
        if partition is None or not entry.is_counted:
            refusal = self.count(entry)
            if refusal is not None:
                return refusal
            partition = entry.partition
            assert partition is not None
        log, tags = partition.log, NO_TAGS
        if entry.fetch_offset < log.tombstone_horizon:
            # Checked again, because tombstones may have been removed since it was counted.
            refusal = self._missed_tombstones(partition, entry)
            if refusal is not None:
                return refusal
            tags = horizon_section(log.tombstone_horizon)
        try:
            records = None
            if entry.fetch_offset < log.log_end_offset and (remaining > 0 or at_least_one):
                records = partition.log.read(
                    entry.fetch_offset,
                    size_bytes_max=min(entry.size_bytes_max, remaining),
                    at_least_one=at_least_one,
                    may_block=self._cold_lookups > COLD_LOOKUPS_MAX,
                )
            elif log.failure is not None:
                raise log.refusal()
        except (StrandlineError, OSError) as error:
            return self.refuse(entry, error_code(error))
        high_watermark = partition.high_watermark
        if records is None:
            tags = NO_TAGS
        return PartitionData(*entry.key, 0, high_watermark, high_watermark, partition.log_start_offset, records, tags)

    # Waiting

    def on_high_watermark(self) -> None:
        if self.session.waiter is self and self._watermark_timer is None:
            # In a later turn in any case, because the partition that calls is in the middle of an append.
            self._watermark_timer = self.node.runtime.call_later(max(0.0, self._watermark_wait_s()), self._look_again)

    def _look_again(self) -> None:
        self._cancel_watermark_timer()
        super()._look_again()

    def _cancel_watermark_timer(self) -> None:
        if self._watermark_timer is not None:
            self._watermark_timer.cancel()
            self._watermark_timer = None

    def _stop_waiting(self) -> None:
        self._cancel_watermark_timer()
        super()._stop_waiting()

    # Ending

    def _answer(self, results: list[PartitionData[LogSlice]]) -> None:
        if all(data.records is None for data in results) and self._have_news(results):
            self.session.told_at = self.node.runtime.monotonic()
        super()._answer(results)
