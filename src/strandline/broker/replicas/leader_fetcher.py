"""Fetches everything that this broker follows of one leader, over one connection.

`replication.follower` decides what is asked and which answers count; here they are sent, appended and cut. A follower
that flushes before it acknowledges (`flush.mode=ack`) asks on when its disk has what it fetched. A log is cut in two
steps: first the recovery point on disk is lowered, by a thread and for all that are to be cut at once; a crash between
the two must not find a log that ends before its recovery point.

What fails is tried again later: a partition by itself, after a time that grows, and all of a leader's if it cannot be
reached.

Known gap: a follower that must begin again learns where from the answer OFFSET_OUT_OF_RANGE, as our leaders give it; a
leader that does not tell is asked again and again.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, Protocol

from strandline.broker.network.channel import Channel
from strandline.codec.fetch import BEGINS_AGAIN, FetchedPartition, encode_follower_fetch, parse_fetch_answer
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode, MalformedMessage, StrandlineError, TimedOut
from strandline.log.truncation import begin_truncation, cancel_truncation
from strandline.observability.log_lines import fields
from strandline.partition.delayed_operations import CommitCallback
from strandline.partition.following import (
    append_fetched,
    learn_high_watermark,
    must_restart,
    position_of,
    restart_at,
    truncate_to,
    where_to_cut,
)
from strandline.partition.partition import Partition
from strandline.partition.tier import OnBeginning, TierBeginning
from strandline.partition.trimming import follow_start
from strandline.replication.follower import SESSION_ERRORS, FollowerFetches, Key
from strandline.runtime.runtime import Runtime

FETCH_API_KEY: Final = 1
FETCH_VERSION: Final = 18
WORK_S_MAX: Final = 0.008
"""What appending and cutting may take of one turn of the loop, save that one partition is done as a whole."""
SIZE_BYTES_LEAST: Final = 16 * 1024
"""What is asked for at least. After an answer that did not come in time a small part of what was asked before is asked
for, and twice as much after each one that did: over a slow link a whole answer would never come."""
SIZE_SHARE: Final = 16
BACKOFF_S: Final = 0.02
"""After the first failure of a partition: mostly its leader does not know yet that it leads."""

log = logging.getLogger("strandline.replication")

Connect = Callable[[str, int], Channel]
AddressOf = Callable[[int], "tuple[str, int] | None"]
Done = Callable[[BaseException | None], object]


class FetcherOwner(Protocol):
    """What the fetchers of a broker share."""

    runtime: Runtime
    config: BrokerConfig
    node_id: int
    broker_epoch: Callable[[], int]
    address_of: AddressOf
    connect: Connect
    write_recovery_points: Callable[[Done], object]
    write_start_offsets: Callable[[Done], object]
    may_leave: Callable[[Partition], bool]
    begin_in_tier: Callable[[Partition, OnBeginning], object]
    giving_up: set[Partition]
    bytes_in: int


class _Cut(NamedTuple):
    leader_epoch: int
    """In which it was decided."""
    offset: int
    begins_anew: bool
    """Whether nothing of the log stays, and it goes on at the offset."""
    tombstone_horizon: int
    """The leader's, which the log takes over; 0 if that does not matter."""
    beginning: TierBeginning | None = None
    """What the log must know of records before it that are in the object store."""


class LeaderFetcher:
    """Everything that is fetched from one leader."""

    def __init__(self, owner: FetcherOwner, leader_id: int) -> None:
        self._owner = owner
        self._runtime = owner.runtime
        self._leader_id = leader_id
        self.partitions: dict[Key, Partition] = {}
        self._follower = FollowerFetches()
        self._channel: Channel | None = None
        self._failures: dict[Key, int] = {}
        self._left: deque[tuple[Key, FetchedPartition]] = deque()
        self._cuts: dict[Key, _Cut] = {}
        """Logs that are to be cut."""
        self._starts: dict[Key, tuple[Partition, int]] = {}
        """Logs that are to start at a later offset, as their leader's do."""
        self._unflushed = 0
        self._ends: dict[Key, int] = {}
        """The leader's high watermark as it last told it."""
        self._size_bytes_max = owner.config.replica_fetch_response_max_bytes
        self._is_sending_due = False
        self._is_backing_off = False
        self._is_closed = False

    # What to fetch

    def follow(self, partition: Partition) -> None:
        key = (partition.topic_id.bytes, partition.index)
        self.partitions[key] = partition
        self._failures.pop(key, None)
        self._forget_cut(key)
        self._fetch_from_end(key, partition)

    def _fetch_from_end(self, key: Key, partition: Partition) -> None:
        """Ask for what comes next, as soon as all before it is held as `flush.mode` understands that.

        The leader takes the offset for an acknowledgement. So each way to go on ends here: a new epoch, a retry, a cut.
        """
        size_bytes_max = self._owner.config.replica_fetch_max_bytes
        if partition in self._owner.giving_up and not self._owner.may_leave(partition):
            # Others are missed meanwhile, and its log counts again: nothing of it was discarded.
            self._owner.giving_up.discard(partition)
        if partition in self._owner.giving_up:
            position = position_of(partition)._replace(fetch_offset=BEGINS_AGAIN, last_fetched_epoch=-1)
            self._follower.follow(key, position, size_bytes_max=size_bytes_max)
            self._send_soon()
            return
        if partition.acknowledged_offset < partition.log_end_offset:
            if key in self._follower:
                self._follower.hold(key)
            partition.flusher.flush_soon(partition.log)
            on_flushed = partial(self._on_held_flushed, key, partition.leader_epoch)
            partition.when_flushed(partition.log_end_offset, CommitCallback(on_flushed))
            return
        self._follower.follow(key, position_of(partition), size_bytes_max=size_bytes_max)
        self._send_soon()

    def _on_held_flushed(self, key: Key, leader_epoch: int, error_code: int) -> None:
        # After an error there is nothing to ask for, or a cut or a new epoch asks: the log is not what it was.
        partition = self.partitions.get(key)
        if partition is None or error_code or partition.leader_epoch != leader_epoch or key in self._cuts:
            return
        self._fetch_from_end(key, partition)

    def unfollow(self, partition: Partition) -> None:
        key = (partition.topic_id.bytes, partition.index)
        if self.partitions.pop(key, None) is not None:
            self._follower.unfollow(key)
            self._failures.pop(key, None)
            self._ends.pop(key, None)
            self._forget_cut(key, partition)

    def _forget_cut(self, key: Key, partition: Partition | None = None) -> None:
        partition = partition or self.partitions.get(key)
        if self._cuts.pop(key, None) is not None and partition is not None:
            cancel_truncation(partition.log)

    def lag_of(self, partition: Partition) -> int:
        end_offset = self._ends.get((partition.topic_id.bytes, partition.index), 0)
        return max(0, end_offset - partition.log_end_offset)

    # Asking

    def _send_soon(self) -> None:
        """At the end of this turn, when all that the metadata log says of this leader's partitions is known."""
        if not self._is_sending_due:
            self._is_sending_due = True
            self._runtime.call_soon(self._send_due)

    def _send_due(self) -> None:
        self._is_sending_due = False
        self._send()

    def _send(self) -> None:
        if self._is_closed or self._is_backing_off or self._left or self._unflushed or self._follower.is_waiting:
            return
        channel = self._reach()
        if channel is None:
            self._back_off()
            return
        request = self._follower.next_request()
        if request is None:
            return
        owner, config = self._owner, self._owner.config
        body = encode_follower_fetch(
            FETCH_VERSION,
            replica_id=owner.node_id,
            replica_epoch=owner.broker_epoch(),
            wait_ms_max=config.replica_fetch_wait_max_ms,
            size_bytes_max=self._size_bytes_max,
            session_id=request.session_id,
            session_epoch=request.session_epoch,
            partitions=request.partitions,
            forgotten=request.forgotten,
        )
        timeout_s = (config.replica_socket_timeout_ms + config.replica_fetch_wait_max_ms) / 1000
        channel.ask_raw(FETCH_API_KEY, FETCH_VERSION, [body], partial(self._on_body, channel), timeout_s=timeout_s)

    def _reach(self) -> Channel | None:
        """The connection to the leader, wherever it is by now."""
        address = self._owner.address_of(self._leader_id)
        if self._channel is not None and self._channel.address != address:
            self._channel.close()
            self._channel = None
            self._follower.on_failure()
        if self._channel is None and address is not None:
            self._channel = self._owner.connect(*address)
        return self._channel

    def _back_off(self) -> None:
        """The leader cannot be asked, or not now."""
        if not self._is_backing_off and not self._is_closed:
            self._is_backing_off = True
            delay_s = self._owner.config.replica_fetch_backoff_ms / 1000
            self._runtime.call_later(delay_s, self._end_back_off)

    def _end_back_off(self) -> None:
        self._is_backing_off = False
        self._send()

    # Being answered

    def _on_body(self, channel: Channel, body: memoryview | None, error: BaseException | None) -> None:
        if self._is_closed or channel is not self._channel:
            return
        if body is None:
            self._follower.on_failure()
            if isinstance(error, TimedOut):
                self._size_bytes_max = max(SIZE_BYTES_LEAST, self._size_bytes_max // SIZE_SHARE)
            log.debug("node %d does not answer a fetch: %s", self._leader_id, error)
            self._back_off()
            return
        try:
            answer = parse_fetch_answer(body, 0, FETCH_VERSION)
        except MalformedMessage as fault:
            log.error("node %d sent a malformed Fetch response: %s", self._leader_id, fault)
            self._follower.on_failure()
            self._back_off()
            return
        self._size_bytes_max = min(self._size_bytes_max * 2, self._owner.config.replica_fetch_response_max_bytes)
        self._left.extend(self._follower.on_answer(answer))
        if answer.error_code and answer.error_code not in SESSION_ERRORS:
            log.warning("node %d refused a fetch: error %d", self._leader_id, answer.error_code)
            self._back_off()
            return
        self._work_off()

    def _work_off(self) -> None:
        """Take what was fetched, a share in each turn of the loop, then ask for more."""
        until = self._runtime.monotonic() + WORK_S_MAX
        failed: list[Key] = []
        left = self._left
        while left:
            key, fetched = left.popleft()
            partition = self.partitions.get(key)
            if partition is not None and key not in self._cuts:
                self._take(key, partition, fetched, failed)
            if left and self._runtime.monotonic() > until:
                # The buffer that the records lie in is others' as soon as we return.
                owned = [(each, data._replace(records=memoryview(bytes(data.records)))) for each, data in left]
                left.clear()
                left.extend(owned)
                self._runtime.call_soon(self._go_on)
                break
        if failed:
            self._retry_later(failed)
        if not left:
            if self._cuts:
                self._cut()
            if self._starts:
                self._write_starts()
            self._send()

    def _go_on(self) -> None:
        if not self._is_closed:
            # What was unfollowed, moved to another epoch or cut meanwhile is not what was asked about any more.
            still = [each for each in self._left if self._follower.is_as_asked(each[0])]
            self._left.clear()
            self._left.extend(still)
            self._work_off()

    def _take(self, key: Key, partition: Partition, fetched: FetchedPartition, failed: list[Key]) -> None:
        if fetched.error_code:
            self._on_error(key, partition, fetched, failed)
            return
        if fetched.diverging is not None:
            offset, start_offset = where_to_cut(partition, *fetched.diverging), fetched.log_start_offset
            restarts = must_restart(partition, offset, start_offset)
            self._begin_cut(key, partition, start_offset if restarts else offset, begins_anew=restarts)
            return
        if fetched.tombstone_horizon > partition.log.tombstone_horizon:
            # It is written down before records are appended from among which tombstones were removed.
            horizon = fetched.tombstone_horizon
            self._begin_cut(key, partition, partition.log_end_offset, tombstone_horizon=horizon)
            return
        try:
            if len(fetched.records):
                append_fetched(partition, fetched.records)
                self._owner.bytes_in += len(fetched.records)
            learn_high_watermark(partition, fetched.high_watermark)
        except (StrandlineError, OSError) as error:
            log.error("%r: what node %d sent was not taken: %s", partition, self._leader_id, error)
            failed.append(key)
            return
        self._ends[key] = fetched.high_watermark
        if self._failures:
            self._failures.pop(key, None)
        if partition.flush_before_ack and partition.acknowledged_offset < partition.log_end_offset:
            self._unflushed += 1
            partition.when_flushed(partition.log_end_offset, CommitCallback(self._on_flushed))
        if partition.log_start_offset < fetched.log_start_offset <= partition.high_watermark:
            self._follower.hold(key)
            partition.log.planned_start_offset = fetched.log_start_offset
            self._starts[key] = partition, fetched.log_start_offset
        else:
            self._follower.move(key, position_of(partition))

    def _on_flushed(self, _: int) -> None:
        self._unflushed -= 1
        if not self._unflushed:
            self._send_soon()

    def _on_error(self, key: Key, partition: Partition, fetched: FetchedPartition, failed: list[Key]) -> None:
        start_offset = fetched.log_start_offset
        if fetched.error_code == ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE:
            self._follower.hold(key)
            self._owner.begin_in_tier(partition, partial(self._on_beginning, key, partition.leader_epoch))
            return
        if fetched.error_code == ErrorCode.OFFSET_OUT_OF_RANGE and start_offset >= 0:
            if fetched.tombstone_horizon >= 0:
                if partition not in self._owner.giving_up:
                    log.warning(
                        "%r: the leader removed tombstones below %d that are not here; copying its log again from %d",
                        partition,
                        fetched.tombstone_horizon,
                        start_offset,
                    )
                horizon = fetched.tombstone_horizon
                self._begin_cut(key, partition, start_offset, begins_anew=True, tombstone_horizon=horizon)
                return
            if start_offset > partition.log_end_offset or partition.log_start_offset == partition.log_end_offset:
                log.warning("%r: the leader's log begins at %d; beginning there", partition, start_offset)
                self._begin_cut(key, partition, start_offset, begins_anew=True)
                return
            log.error("%r: the leader has no such offset, and no epoch tells why", partition)
        failed.append(key)

    def _on_beginning(
        self, key: Key, leader_epoch: int, beginning: TierBeginning | None, error: BaseException | None
    ) -> None:
        partition = self.partitions.get(key)
        if self._is_closed or partition is None or partition.leader_epoch != leader_epoch or key in self._cuts:
            return
        if beginning is None:
            log.warning("%r cannot begin behind what is in the object store yet: %s", partition, error)
            self._retry_later([key])
            return
        self._begin_cut(key, partition, beginning.offset, begins_anew=True, beginning=beginning)
        self._cut()

    def _retry_later(self, keys: list[Key]) -> None:
        """Ask for these partitions again after a while that grows with each failure; all of them with one timer."""
        attempts = 0
        for key in keys:
            attempts = max(attempts, self._failures.get(key, 0))
            self._failures[key] = self._failures.get(key, 0) + 1
            if key in self._follower:
                self._follower.hold(key)
        delay_s = min(BACKOFF_S * 2 ** min(attempts, 10), self._owner.config.replica_fetch_backoff_ms / 1000)
        epochs = {key: self.partitions[key].leader_epoch for key in keys if key in self.partitions}
        self._runtime.call_later(delay_s, self._retry, epochs)

    def _retry(self, epochs: dict[Key, int]) -> None:
        if self._is_closed:
            return
        for key, leader_epoch in epochs.items():
            partition = self.partitions.get(key)
            if partition is None or partition.leader_epoch != leader_epoch or key in self._cuts:
                continue
            if partition.log.failure is None and key in self._follower:
                self._fetch_from_end(key, partition)
        self._send()

    # Following the leader's start

    def _write_starts(self) -> None:
        """Where logs are to start goes to the disk before any of them does, and before the leader is told so: it may
        promise then that what was deleted is gone for good."""
        starts, self._starts = self._starts, {}
        epochs = {key: partition.leader_epoch for key, (partition, _) in starts.items()}
        self._owner.write_start_offsets(lambda error: self._on_starts_written(starts, epochs, error))

    def _on_starts_written(
        self, starts: dict[Key, tuple[Partition, int]], epochs: dict[Key, int], error: BaseException | None
    ) -> None:
        for key, (partition, start_offset) in starts.items():
            # A truncation or a restart of the log meanwhile has cleared the plan.
            if partition.log.planned_start_offset == start_offset:
                partition.log.planned_start_offset = 0
                is_followed = key in self.partitions and not self._is_closed and partition.log.failure is None
                if is_followed and error is None:
                    partition.log.written_start_offset = start_offset
                    follow_start(partition, start_offset)
        if error is None:
            self._retry(epochs)
        elif not self._is_closed:
            log.error("logs cannot follow their leader's start while it cannot be written: %s", error)
            self._retry_later([key for key in starts if key in self.partitions])

    # Cutting

    def _begin_cut(
        self,
        key: Key,
        partition: Partition,
        offset: int,
        *,
        begins_anew: bool = False,
        tombstone_horizon: int = 0,
        beginning: TierBeginning | None = None,
    ) -> None:
        begins_anew = begins_anew or offset < partition.log.base_offsets[0]
        self._follower.hold(key)
        self._cuts[key] = _Cut(partition.leader_epoch, offset, begins_anew, tombstone_horizon, beginning)
        begin_truncation(partition.log, 0 if begins_anew else offset, tombstone_horizon=tombstone_horizon)

    def _cut(self) -> None:
        cuts = dict(self._cuts)
        # Nothing is written, and this calls back at once, where no recovery point was above.
        self._owner.write_recovery_points(lambda error: self._on_lowered(cuts, error))

    def _on_lowered(self, cuts: dict[Key, _Cut], error: BaseException | None) -> None:
        if self._is_closed:
            return
        if error is not None:
            log.error("logs cannot be cut while no recovery point can be written: %s", error)
            for key, cut in cuts.items():
                if self._cuts.get(key) == cut:
                    self._forget_cut(key)
            self._retry_later([key for key in cuts if key in self.partitions])
            return
        self._cut_some(deque(cuts.items()))

    def _cut_some(self, cuts: deque[tuple[Key, _Cut]]) -> None:
        until = self._runtime.monotonic() + WORK_S_MAX
        failed: list[Key] = []
        while cuts and not self._is_closed:
            key, cut = cuts.popleft()
            # A later epoch began meanwhile, or the partition is not followed here any more: it was forgotten then.
            if self._cuts.get(key) == cut:
                del self._cuts[key]
                self._cut_one(key, self.partitions[key], cut, failed)
            if cuts and self._runtime.monotonic() > until:
                self._runtime.call_soon(self._cut_some, cuts)
                break
        if failed:
            self._retry_later(failed)
        self._send()

    def _cut_one(self, key: Key, partition: Partition, cut: _Cut, failed: list[Key]) -> None:
        if partition.is_leader:
            cancel_truncation(partition.log)
            return
        offset, end_offset = cut.offset, partition.log_end_offset
        facts = fields(topic=partition.topic, partition=partition.index, offset=offset)
        if offset < partition.high_watermark and not cut.begins_anew:
            log.warning("%r is cut below its high watermark, at %d", partition, offset, extra=facts)
        try:
            if cut.begins_anew:
                restart_at(partition, offset, cut.beginning)
                self._owner.giving_up.discard(partition)
            else:
                truncate_to(partition, offset)
            if offset != end_offset:
                log.info("%r was cut from %d to %d", partition, end_offset, offset, extra=facts)
        except (StrandlineError, OSError) as error:
            log.error("%r cannot be cut: %s", partition, error, extra=facts)
            failed.append(key)
            return
        self._fetch_from_end(key, partition)

    def close(self) -> None:
        self._is_closed = True
        for key in list(self._cuts):
            self._forget_cut(key)
        if self._channel is not None:
            self._channel.close()
