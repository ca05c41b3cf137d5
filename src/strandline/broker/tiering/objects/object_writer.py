"""Writes the batches of all object partitions that this node leads: one object an interval, then one commit.

Batches wait in the logs of their partitions, on the disk. So a store that is away costs no memory. A few objects are
uploaded at a time, and committed in their order. If one cannot be written, all that are behind it are given up, and
their batches are written again into new objects. What the log rejects was written by a leader that is none any more.

    appended ──▶ taken (a slice of the log) ──▶ uploaded ──▶ committed: acknowledged, and visible
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final, Protocol

from strandline.broker.tiering.objects.commit_topic import CommitTopic
from strandline.broker.tiering.objects.object_parcels import Parcel, Taken, describe, pack, read_pieces
from strandline.broker.tiering.objects.partition_flush import PartitionFlush
from strandline.errors import ErrorCode, RequestError, StrandlineError
from strandline.log.segment.log_slice import LogSlice
from strandline.partition.object_partition import ObjectPartition
from strandline.tiers.store.waiting import start
from strandline.tiers.wal.events import ObjectId
from strandline.tiers.wal.wal_objects import RANGES_MAX, wal_key

if TYPE_CHECKING:
    from strandline.config.node_config import BrokerConfig
    from strandline.runtime.runtime import Runtime, TimerHandle
    from strandline.tiers.store.object_store import ObjectStore

log = logging.getLogger("strandline.tiering")

UPLOADS_MAX: Final = 4
UPLOAD_S_MAX: Final = 60.0
"""Seconds for the upload of one object, with its retries. Orphans are watched for far longer."""
LINGER_S: Final = 0.005
"""What comes in so shortly after the first batch is written with it."""
RETRY_S: Final = 0.25
RETRY_S_MAX: Final = 5.0
JITTER: Final = 0.2
RANDOM_BITS: Final = 40
NUMBER_BITS: Final = 20
"""The first number of a process is random above these bits. All its numbers have at most 19 digits."""


class WriterOwner(Protocol):
    """What the writer needs of its node."""

    cluster_id: str
    runtime: Runtime
    commits: CommitTopic
    node_id: int

    @property
    def store(self) -> ObjectStore | None:
        """The store, once it is known to be this cluster's."""

    def broker_epoch(self) -> int: ...

    def config(self) -> BrokerConfig: ...

    def begin_again(self, partition: ObjectPartition, why: str) -> None:
        """Have the partition led again from where its committed records end."""


class ObjectWriter:
    def __init__(self, owner: WriterOwner) -> None:
        self._owner = owner
        self.runtime = owner.runtime
        self._dirty: dict[PartitionFlush, None] = {}
        """Partitions with batches that are in no object yet."""
        self._queue: deque[Parcel] = deque()
        """Objects in the order of their commits."""
        # Not from 1 on: a cluster whose metadata begins again under the old id, before `storage restore` has run, must
        # not write over objects of the lost one.
        self._number = owner.runtime.random.getrandbits(RANDOM_BITS) << NUMBER_BITS
        self._unpacked_bytes = 0
        self.buffered_bytes = 0
        """Bytes that are not committed yet."""
        self._timer: TimerHandle | None = None
        self._is_packing = self._is_committing = self._is_closed = False
        self._packed_at = -1e9
        self._not_before = 0.0
        self._failures = 0
        self._complaint = ""
        self.objects = self.object_bytes = self.commits = self.failures = self.rejected = 0
        """Counts since the start: objects written, their bytes, commits, uploads that failed, ranges rejected."""

    # What the partitions say

    def note(self, flush: PartitionFlush) -> None:
        """Note that a partition has more to write."""
        added = flush.partition.bytes_in - flush.seen_bytes
        flush.seen_bytes += added
        flush.buffered_bytes += added
        self.buffered_bytes += added
        self._unpacked_bytes += added
        if flush not in self._dirty:
            self._dirty[flush] = None
        if self._timer is None or self._unpacked_bytes >= self._bytes_max:
            self._arm()

    def forget(self, flush: PartitionFlush) -> None:
        self._dirty.pop(flush, None)
        self.buffered_bytes -= flush.buffered_bytes
        flush.buffered_bytes = 0
        if not self._dirty:
            self._unpacked_bytes = 0

    def why_full(self) -> RequestError | None:
        limit = self._owner.config().strandline_object_buffer_bytes
        if self.buffered_bytes < limit:
            return None
        return RequestError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.buffered_bytes} bytes wait for the object store; strandline.object.buffer.bytes is {limit}",
        )

    @property
    def is_idle(self) -> bool:
        return not self._queue and not self._dirty and not self._is_packing

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()

    # When

    @property
    def _bytes_max(self) -> int:
        return self._owner.config().strandline_object_flush_bytes

    def _arm(self) -> None:
        """Have the next object made when its time has come: an interval after the one before, or when it is full."""
        if self._is_packing or self._is_closed or len(self._queue) >= UPLOADS_MAX:
            # What ends that calls again.
            return
        now = self.runtime.monotonic()
        is_full = self._unpacked_bytes >= self._bytes_max
        interval_s = self._owner.config().strandline_object_flush_interval_ms / 1000
        due = max(now if is_full else max(now + LINGER_S, self._packed_at + interval_s), self._not_before)
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.runtime.call_later(max(0.0, due - now), self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        if not self._dirty or self._is_packing or self._is_closed:
            return
        if self._owner.store is None or self._owner.broker_epoch() < 0:
            self._not_before = self.runtime.monotonic() + RETRY_S
            self._arm()
            return
        self._is_packing = True
        self._run(self._pack())

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        start(self.runtime, coroutine, _on_ended)

    # Packing

    async def _pack(self) -> None:
        """Make the next object, and begin to upload it."""
        try:
            self._packed_at = self.runtime.monotonic()
            appended_ms = self.runtime.now_ms()
            taken, buffer = await self._take()
            if taken:
                body, placed = await pack(self.runtime, taken, buffer)
                parcel = Parcel(self.runtime, self._next_id(), placed, appended_ms)
                self._queue.append(parcel)
                self._run(self._upload(parcel, body))
                if not self._is_committing:
                    self._is_committing = True
                    self._run(self._commit_all())
        finally:
            self._is_packing = False
            if not self._dirty:
                self._unpacked_bytes = 0
            elif not self._is_closed:
                self._arm()

    def _next_id(self) -> ObjectId:
        self._number += 1
        return ObjectId(self._owner.node_id, self._owner.broker_epoch(), self._number)

    async def _take(self) -> tuple[list[Taken], bytearray]:
        """Take the next batches of the partitions that have some, up to the size of an object; and their bytes."""
        left = self._bytes_max
        picked: list[tuple[PartitionFlush, int, LogSlice]] = []
        for flush in list(self._dirty):
            partition_log = flush.partition.log
            if left <= 0 or len(picked) >= RANGES_MAX:
                break
            if partition_log.log_end_offset <= flush.taken_offset or partition_log.failure is not None:
                self._dirty.pop(flush, None)
                continue
            try:
                piece = partition_log.read(flush.taken_offset, size_bytes_max=left, at_least_one=not picked)
            except (StrandlineError, OSError) as error:
                self._dirty.pop(flush, None)
                self._owner.begin_again(flush.partition, f"its log cannot be read: {error}")
                continue
            if piece is None:
                break
            picked.append((flush, flush.term, piece))
            left -= piece.size_bytes
        try:
            buffer, places = await read_pieces(self.runtime, [piece for _, _, piece in picked])
        except (StrandlineError, OSError) as error:
            # Which of the files it was is not known. Nothing of them was acknowledged.
            for flush, term, _ in picked:
                if flush.term == term:
                    self._owner.begin_again(flush.partition, f"its log cannot be read: {error}")
            return [], bytearray()
        taken, view = [], memoryview(buffer)
        for (flush, term, _), place in zip(picked, places, strict=True):
            one = await self._take_one(flush, term, view[place], place.start)
            if one is not None:
                taken.append(one)
        return taken, buffer

    async def _take_one(self, flush: PartitionFlush, term: int, data: memoryview, at: int) -> Taken | None:
        partition = flush.partition
        if flush.term != term:
            # An object before it was given up: the batches are taken again, from there on.
            return None
        try:
            commit, size = await describe(self.runtime, partition, flush.taken_offset, data)
        except StrandlineError as error:
            if flush.term == term:
                self._owner.begin_again(partition, str(error))
            return None
        if flush.term != term or not size:
            return None
        flush.taken_offset = commit.end_offset
        self._unpacked_bytes = max(0, self._unpacked_bytes - size)
        if partition.log.log_end_offset <= flush.taken_offset:
            self._dirty.pop(flush, None)
        return Taken(flush, term, commit, at)

    # Uploading and committing

    async def _upload(self, parcel: Parcel, body: memoryview) -> None:
        store = self._owner.store
        assert store is not None
        try:
            await store.put(wal_key(self._owner.cluster_id, parcel.object_id), body, deadline_s=UPLOAD_S_MAX)
        except (StrandlineError, OSError) as error:
            self.failures += 1
            parcel.uploaded.fail(error)
        else:
            self.objects += 1
            self.object_bytes += len(body)
            parcel.uploaded.set(None)

    async def _commit_all(self) -> None:
        try:
            while self._queue and not self._is_closed:
                try:
                    await self._queue[0].uploaded
                except (StrandlineError, OSError) as error:
                    self._give_up(error)
                    break
                self._failures, self._complaint = 0, ""
                await self._commit_ready()
        finally:
            self._is_committing = False
        if self._dirty:
            self._arm()

    async def _commit_ready(self) -> None:
        """Commit the objects at the head of the queue that are in the store, with one append."""
        ready: list[Parcel] = []
        for parcel in self._queue:
            if not parcel.uploaded.done() or parcel.uploaded.exception() is not None:
                break
            ready.append(parcel)
        commits = [each.commit() for each in ready]
        outcomes = await self._owner.commits.commit([event for event, _ in commits])
        if self._is_closed:
            # What became of them, the next process reads in the log.
            return
        self.commits += 1
        for (_, taken), accepted in zip(commits, outcomes, strict=True):
            self._queue.popleft()
            for each, is_accepted in zip(taken, accepted, strict=True):
                self._on_outcome(each, is_accepted=is_accepted)
        if self._dirty:
            self._arm()

    def _on_outcome(self, taken: Taken, *, is_accepted: bool) -> None:
        if not taken.is_current:
            return
        flush, commit = taken.flush, taken.commit
        if not is_accepted:
            self.rejected += 1
            self._owner.begin_again(flush.partition, "the commit log knows a newer leader, or other records")
            return
        self.buffered_bytes -= commit.size_bytes
        flush.buffered_bytes -= commit.size_bytes
        partition_log = flush.partition.log
        partition_log.flushed_offset = commit.end_offset
        if partition_log.on_flushed is not None:
            partition_log.on_flushed()

    def _give_up(self, error: BaseException) -> None:
        """Give up all objects that are not committed, and write their batches again after a while."""
        if str(error) != self._complaint:
            self._complaint = str(error)
            log.error("object topics: %s", error)
        given_up = {each.flush: None for parcel in self._queue for each in parcel.taken if each.is_current}
        self._queue.clear()
        for flush in given_up:
            flush.take_again()
            self._dirty[flush] = None
        delay_s = min(RETRY_S * 2 ** min(self._failures, 10), RETRY_S_MAX)
        self._failures += 1
        delay_s *= 1 + JITTER * (self.runtime.random.random() * 2 - 1)
        self._not_before = self.runtime.monotonic() + delay_s


def _on_ended(_: None, error: BaseException | None) -> None:
    if error is not None:
        log.error("the writer of objects ended: %s", error, exc_info=error)
