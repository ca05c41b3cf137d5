"""One Fetch in progress: collect the records of its partitions, and wait until there are enough.

`FetchAttempt` looks at the partitions with news. If there is too little to answer, it waits until the partitions have
gained enough bytes or the client's wait time ends, and looks again. A thread looks up what the page cache does not
hold, and then the attempt starts again. `follower_fetch` has what is different for followers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from strandline.codec.current_leader import FETCH_LEADER_TAG, NO_TAGS, diverging_section, leader_section
from strandline.codec.fetch import ENDPOINTS_FROM, FLEXIBLE_FROM, PartitionData, encode_fetch_response
from strandline.errors import DamagedRecords, ErrorCode, OffsetOutOfRange, StrandlineError, error_code
from strandline.handlers.access.client_guard import ClientGuard
from strandline.handlers.access.data_access import may_read
from strandline.handlers.support.absent_partitions import ASK_ANOTHER, current_leader, leaders_section, why_absent
from strandline.handlers.support.context import BrokerServices, Exchange
from strandline.handlers.support.fetching.replica_selection import preferred_replica
from strandline.log.cold_reads import ColdReads
from strandline.log.segment.aborted_transactions import aborted_in
from strandline.log.segment.log_slice import LogSlice
from strandline.log.segment.segment import ColdRead
from strandline.partition.epochs import divergence
from strandline.partition.fetch_session import FetchEntry, FetchSession
from strandline.partition.partition import Partition
from strandline.runtime.runtime import TimerHandle

if TYPE_CHECKING:
    from strandline.handlers.support.fetching.tiered_fetch import TieredReads

API_KEY: Final = 1
READ_COMMITTED: Final = 1
COLD_LOOKUPS_MAX: Final = 8
"""Look-ups in a thread before an attempt stops fearing to block; memory may be so short that pages go at once."""
FOLLOWERS_SERVE_FROM: Final = 11
"""From this version on consumers know that a follower may answer (KIP-392); older ones are sent to the leader."""


class FetchAttempt:
    """The Fetch of a consumer."""

    is_of_follower: ClassVar = False

    __slots__ = (
        "_available",
        "_cold_lookups",
        "_leader_ids",
        "_timer",
        "exchange",
        "guard",
        "is_full",
        "isolation_level",
        "node",
        "rack_id",
        "session",
        "size_bytes_max",
        "size_bytes_min",
        "tiered",
        "version",
        "wait_ms",
    )

    def __init__(
        self, node: BrokerServices, exchange: Exchange, session: FetchSession, version: int, *, is_full: bool
    ) -> None:
        self.node = node
        self.exchange = exchange
        self.session = session
        self.version = version
        self.is_full = is_full
        self.guard: ClientGuard | None = None
        self.size_bytes_min = 0
        self.size_bytes_max = 0
        self.isolation_level = 0
        self.rack_id = ""
        """Where the consumer is, if replicas are chosen for it."""
        self.wait_ms = 0
        self._available = 0
        self._cold_lookups = 0
        self._leader_ids: list[int] = []
        self._timer: TimerHandle | None = None
        self.tiered: TieredReads | None = None
        """What is read from the object store, if anything is."""

    def maybe_look(self) -> None:
        """Look in a later turn, unless the client has closed its connection."""
        if self.exchange.on_abandoned is not None:
            self.look()

    def look(self) -> None:
        """Answer if there is enough, else wait."""
        results: list[PartitionData[LogSlice]] = []
        try:
            size, is_urgent = self._collect(results)
        except ColdRead:
            release(results)
            self._look_up_in_thread()
            return
        if size >= self.size_bytes_min or is_urgent or self.wait_ms <= 0 or not self._may_wait(results):
            self._answer(results)
            return
        release(results)
        self._available = size
        self.session.waiter = self
        if self._timer is None:
            for entry in self.session.entries.values() if self.is_full else self.session.news.values():
                if entry.partition is not None:
                    entry.follow(entry.partition)
            self._timer = self.node.runtime.call_later(self.wait_ms / 1000, self._on_timeout)

    def _may_wait(self, results: list[PartitionData[LogSlice]]) -> bool:
        return self.node.sessions.may_wait(self.session)

    def _collect(self, results: list[PartitionData[LogSlice]]) -> tuple[int, bool]:
        """Fill `results`; return the size of the records, and whether something else must be sent at once."""
        session = self.session
        remaining = self.size_bytes_max
        size = 0
        is_urgent = False
        idle: list[FetchEntry] = []
        visited = session.entries.values() if self.is_full else session.news.values()
        for entry in visited:
            data = self._read(entry, remaining, at_least_one=size == 0)
            is_elsewhere = data.preferred_replica >= 0
            if data.error_code or is_elsewhere or (data.tags is not NO_TAGS and data.records is None):
                is_urgent = True
                results.append(data)
                continue
            length = 0 if data.records is None else data.records.size_bytes
            size += length
            remaining -= length
            if self.is_full or length or self._has_news(entry, data):
                results.append(data)
            elif (partition := entry.partition) is not None and entry.fetch_offset >= (
                partition.log_end_offset if self.is_of_follower else partition.high_watermark
            ):
                idle.append(entry)
        for entry in idle:
            session.news.pop(entry.key, None)
        return size, is_urgent

    def _has_news(self, entry: FetchEntry, data: PartitionData[LogSlice]) -> bool:
        """Return whether the high watermark or the log start offset differs from the last one sent."""
        return data.high_watermark != entry.sent_high_watermark or data.log_start_offset != entry.sent_log_start_offset

    def _read(self, entry: FetchEntry, remaining: int, *, at_least_one: bool) -> PartitionData[LogSlice]:
        topic, index = entry.key
        if self.guard is not None and not may_read(self.guard, self.node, topic):
            return self.refuse(entry, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = entry.partition or self._find(entry)
        if isinstance(partition, int):
            return self.refuse(entry, partition)
        high_watermark = partition.high_watermark
        try:
            if entry.current_leader_epoch >= 0:
                partition.check_leader_epoch(entry.current_leader_epoch)
            if not partition.is_leader and partition.tier is not None and partition.tier.follows_index:
                # Its local log is that of a former leader, and what was not committed there may be other records now.
                return self._read_tiered(partition, entry, remaining, at_least_one=at_least_one)
            if self.rack_id and partition.is_leader:
                preferred = preferred_replica(self.node, partition, self.rack_id, entry.fetch_offset)
                if preferred >= 0:
                    stable_offset, start_offset = partition.last_stable_offset, partition.log_start_offset
                    return PartitionData(
                        topic, index, 0, high_watermark, stable_offset, start_offset, None, NO_TAGS, (), preferred
                    )
            if entry.last_fetched_epoch >= 0:
                diverging = self._divergence(partition, entry)
                if diverging is not None:
                    return diverging
            records = None
            aborted: Sequence[tuple[int, int]] = ()
            if entry.fetch_offset != high_watermark and (remaining > 0 or at_least_one):
                records = partition.read(
                    entry.fetch_offset,
                    size_bytes_max=min(entry.size_bytes_max, remaining),
                    committed_only=self.isolation_level == READ_COMMITTED,
                    at_least_one=at_least_one,
                    may_block=self._cold_lookups > COLD_LOOKUPS_MAX,
                )
                if records is not None and partition.log.has_aborted and self.isolation_level == READ_COMMITTED:
                    aborted = self._aborted_in(partition, records, entry.fetch_offset)
            elif partition.log.failure is not None:
                raise partition.log.refusal()
        except OffsetOutOfRange as error:
            if partition.tier is None:
                return self.refuse(entry, error_code(error))
            return self._read_tiered(partition, entry, remaining, at_least_one=at_least_one)
        except DamagedRecords as error:
            # One of the other replicas will lead soon, if there are any, and the client asks for the new leader. The
            # reader of an only copy must know that a retry is no use.
            is_alone = partition.is_leader and (partition.in_sync is None or not partition.in_sync.followers)
            return self.refuse(entry, ErrorCode.CORRUPT_MESSAGE if is_alone else error_code(error))
        except (StrandlineError, OSError) as error:
            return self.refuse(entry, error_code(error))
        return PartitionData(
            topic,
            index,
            0,
            high_watermark,
            partition.last_stable_offset,
            partition.log_start_offset,
            records,
            NO_TAGS,
            aborted,
        )

    def _aborted_in(self, partition: Partition, records: LogSlice, offset: int) -> list[tuple[int, int]]:
        """Return the aborted transactions among `records`."""
        try:
            return aborted_in(partition.log, records, offset, may_block=self._cold_lookups > COLD_LOOKUPS_MAX)
        except BaseException:
            records.release()
            raise

    def _divergence(self, partition: Partition, entry: FetchEntry) -> PartitionData[LogSlice] | None:
        """Return what a reader gets whose last record is not in this log, because it was truncated."""
        log = partition.log
        if entry.last_fetched_epoch == log.leader_epochs.latest and entry.fetch_offset <= log.log_end_offset:
            return None
        diverging = divergence(partition, entry.last_fetched_epoch, entry.fetch_offset)
        if diverging is None:
            return None
        stable_offset, start_offset = partition.last_stable_offset, partition.log_start_offset
        return PartitionData(
            *entry.key, 0, partition.high_watermark, stable_offset, start_offset, None, diverging_section(*diverging)
        )

    def _read_tiered(
        self, partition: Partition, entry: FetchEntry, remaining: int, *, at_least_one: bool
    ) -> PartitionData[LogSlice]:
        """Return what is at hand of records that may be in the object store."""
        if self.tiered is None:
            # Loaded here, because a plain node has no tiered topic.
            from strandline.handlers.support.fetching.tiered_fetch import TieredReads

            self.tiered = TieredReads(self)
        return self.tiered.read(partition, entry, remaining, at_least_one=at_least_one)

    def refuse(self, entry: FetchEntry, code: int) -> PartitionData[LogSlice]:
        """Return an error for one partition, with its leader if that is another broker."""
        topic, index = entry.key
        tags = NO_TAGS
        if code in ASK_ANOTHER and self.version >= FLEXIBLE_FROM:
            leader = current_leader(self.node, topic, index)
            if leader is not None:
                tags = leader_section(FETCH_LEADER_TAG, *leader)
                self._leader_ids.append(leader[0])
        return PartitionData(topic, index, code, -1, -1, -1, None, tags)

    def _find(self, entry: FetchEntry) -> Partition | int:
        topic, index = entry.key
        partitions = self.node.topics.get(topic)
        partition = partitions[index] if partitions is not None and 0 <= index < len(partitions) else None
        if partition is None:
            return why_absent(self.node, topic, index)
        if not partition.is_leader:
            # A follower of an object topic holds nothing. A reader would take its empty log for a truncation.
            is_empty = partition.config.commits_in_store and (
                partition.tier is None or not partition.tier.follows_index
            )
            if is_empty or self.version < FOLLOWERS_SERVE_FROM:
                return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.session.id:
            entry.follow(partition)
        else:
            entry.partition = partition
        return partition

    # Waiting

    def on_data(self, size_bytes: int) -> None:
        self._available += size_bytes
        if self._available >= self.size_bytes_min and self.session.waiter is self:
            # On a turn of its own: the partition that calls is in the middle of an append.
            self.session.waiter = None
            self.node.runtime.call_soon(self._look_again)

    def on_tiered(self) -> None:
        """Look again, because records came from the object store."""
        if self._timer is not None and self.session.waiter is self:
            self.session.waiter = None
            self.look()

    def _look_again(self) -> None:
        if self._timer is not None:
            self.look()

    def _on_timeout(self) -> None:
        self.wait_ms = 0
        self.session.waiter = None
        self.look()

    def _look_up_in_thread(self) -> None:
        """Have a thread read the cold part of an index or log into the page cache, and check what was not read since it
        was opened; then look again."""
        self._cold_lookups += 1
        cold = ColdReads()
        for entry in list(self.session.entries.values() if self.is_full else self.session.news.values()):
            partition = entry.partition
            if partition is not None and partition.log.failure is None:
                cold.add(partition.log, entry.fetch_offset, with_aborted=self.isolation_level == READ_COMMITTED)
        cold.begin(self.node.runtime, self.size_bytes_max, self._on_read)

    def _on_read(self, error: BaseException | None) -> None:
        if error is not None:
            # The next look meets the same fault on the loop and answers with its code.
            self._cold_lookups = COLD_LOOKUPS_MAX + 1
        self.maybe_look()

    # Ending

    def _answer(self, results: list[PartitionData[LogSlice]]) -> None:
        self._stop_waiting()
        session = self.session
        throttle_ms = 0
        quota = self.exchange.connection.quota
        if quota is not None and not self.is_of_follower:
            size = sum([data.records.size_bytes for data in results if data.records is not None])
            throttle_ms, may_send = quota.charge_fetch(self.exchange.connection, size)
            if not may_send:
                release(results)
                results = []
                if self.is_full:
                    # Its client takes an empty full answer for no session, and begins again.
                    self.node.sessions.drop(session)
        for data in results:
            entry = session.entries[(data.topic, data.partition)]
            if data.error_code:
                self.node.count_error(API_KEY, data.error_code)
            if not self.is_of_follower or (not data.error_code and (data.tags is NO_TAGS or data.records is not None)):
                entry.sent_high_watermark = data.high_watermark
                entry.sent_log_start_offset = data.log_start_offset
            if data.records is not None:
                if entry.partition is not None and not self.is_of_follower:
                    entry.partition.bytes_out += data.records.size_bytes
                # To the end of the line, so that a limit on bytes starves no partition.
                session.news.pop(entry.key, None)
                session.news[entry.key] = entry
        session_id = session.id
        if session_id == 0:
            session.close()
        endpoints = NO_TAGS
        if self._leader_ids and self.version >= ENDPOINTS_FROM:
            endpoints = leaders_section(self.node, self._leader_ids, self.exchange.connection.listener_name)
        pieces, size = encode_fetch_response(
            results,
            self.version,
            session_id=session_id,
            isolation_level=self.isolation_level,
            endpoints=endpoints,
            throttle_ms=throttle_ms,
        )
        if self.tiered is not None:
            pieces = self.tiered.without_records(pieces)
        self.exchange.on_abandoned = None
        self.exchange.reply_pieces(pieces, size)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.session.waiter is self:
            self.session.waiter = None
        if self.session.waits:
            self.node.sessions.on_waited(self.session)

    def abandon(self) -> None:
        """Stop, because the client has closed its connection."""
        self._stop_waiting()
        self.exchange.on_abandoned = None
        if self.session.id == 0:
            self.session.close()


def release(results: list[PartitionData[LogSlice]]) -> None:
    for data in results:
        if data.records is not None:
            data.records.release()
