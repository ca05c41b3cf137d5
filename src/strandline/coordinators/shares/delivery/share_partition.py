"""One partition as one share group reads it: the state machine beside the leader of the data partition.

Between the start offset and the end offset every offset is available, acquired by a member, or done. The start offset
moves over what is done. A change by a member (`StateChange`) counts when it is stored: the driver writes it, and then
calls `commit` or `revert`. A lock that times out changes the state at once, and is written afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from strandline.coordinators.shares.delivery.acquisition import AcquiredRange, Acquisition, LogBatches
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange, buried
from strandline.coordinators.shares.delivery.offset_ranges import (
    ACKNOWLEDGED,
    ACQUIRED,
    ARCHIVED,
    ARCHIVING,
    AVAILABLE,
    DONE,
    GAP,
    DeliveryRange,
    OffsetRanges,
)
from strandline.coordinators.shares.delivery.record_locks import RecordLock, RecordLocks
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import NO_START_OFFSET, ShareState, StateBatch
from strandline.errors import ErrorCode, RequestError

GAP_TYPE: Final = 0
ACCEPT: Final = 1
RELEASE: Final = 2
REJECT: Final = 3
RENEW: Final = 4
_TARGETS: Final = (ARCHIVED, ACKNOWLEDGED, AVAILABLE, ARCHIVED, ACQUIRED)
"""The state that each type of acknowledgement leads to."""


class AcknowledgedBatch(NamedTuple):
    """Offsets that a member acknowledges, both ends included."""

    first: int
    last: int
    types: bytes
    """One type for all offsets, or one for each."""


class StateWrite(NamedTuple):
    """What the share coordinator is to store."""

    start_offset: int
    """`NO_START_OFFSET` leaves the stored one as it is."""
    complete_count: int
    batches: tuple[StateBatch, ...]


class StateChange:
    """Changes of one request, until they are stored or taken back."""

    __slots__ = ("ranges", "write")

    def __init__(self) -> None:
        self.ranges: list[DeliveryRange] = []
        self.write = StateWrite(NO_START_OFFSET, 0, ())


class SharePartition:
    """The delivery state of one share partition."""

    __slots__ = (
        "_available",
        "_is_start_stored",
        "_queued",
        "_sent_start",
        "dead",
        "done_count",
        "end_offset",
        "locks",
        "ranges",
        "start_offset",
        "state_epoch",
        "timeouts",
    )

    def __init__(self, state: ShareState, start_offset: int) -> None:
        """Begin with a stored state. `start_offset` is that of the state, or the one found for a state without one."""
        self.state_epoch = state.state_epoch
        self.start_offset = self.end_offset = start_offset
        self.ranges = OffsetRanges()
        self.locks = RecordLocks()
        self.done_count = 0
        """Offsets from the start offset on whose delivery is complete."""
        self.timeouts = 0
        """Records whose lock has timed out."""
        self._available: list[int] = []
        """A heap of offsets where available ranges begin, or began: what is stale is dropped when it comes up."""
        self._queued: set[int] = set()
        """The members of the heap."""
        self._is_start_stored = state.start_offset != NO_START_OFFSET
        self._sent_start = start_offset
        self.dead: list[DeadRange] = []
        """Records that became dead letters and that the driver has not taken yet."""
        for first, last, stored, count in state.batches if self._is_start_stored else ():
            if last < self.end_offset:
                continue
            first = max(first, self.end_offset)
            if first > self.end_offset:
                self._append_loaded(self.end_offset, first - 1, AVAILABLE, 0)
            # Nothing is acquired after a change of leaders.
            self._append_loaded(first, last, AVAILABLE if stored == ACQUIRED else stored, count)
            if stored == ARCHIVING:
                # The leader before may have committed copies of them.
                self.dead.append(DeadRange(first, last, count, is_doubtful=True))
        self._advance()

    def _append_loaded(self, first: int, last: int, state: int, count: int) -> None:
        new = DeliveryRange(first, last, state, count, (first, last))
        self.append(new)
        if state == AVAILABLE:
            self.offer(new)

    @property
    def in_flight(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def next_offset(self) -> int:
        """Return the first offset that may be acquired: an available one, or the end offset."""
        available = self._available
        while available:
            found = self.ranges.find(available[0])
            if found is not None and found.state == AVAILABLE and found.change is None:
                return found.first
            self._queued.discard(heappop(available))
        return self.end_offset

    def has_room(self, record_locks_max: int) -> bool:
        """Return whether anything may be acquired: a released record, or a new one."""
        return self.in_flight < record_locks_max or self.next_offset < self.end_offset

    # Acquiring

    def acquire(
        self,
        member_id: str,
        batches: LogBatches,
        now: float,
        settings: ShareSettings,
        *,
        records_max: int,
        batch_size: int,
        is_strict: bool = False,
    ) -> list[AcquiredRange]:
        """Give a member records out of `batches`, which were read from `next_offset` on."""
        if records_max <= 0:
            return []
        self._archive_missing(batches.first_offset)
        offset = self.next_offset
        lock = RecordLock(member_id, now + settings.lock_duration_ms / 1000, settings.lock_duration_ms)
        acquisition = Acquisition(self, lock, batches, settings, records_max=records_max, is_strict=is_strict)
        if acquisition.take_released(offset):
            acquisition.take_new(max(1, batch_size))
        if lock.held:
            self.locks.add(lock)
            self._advance()
        return acquisition.taken

    def discard(self, taken: Iterable[AcquiredRange], aborted: Iterable[tuple[int, int]]) -> list[AcquiredRange]:
        """Archive records of aborted transactions among those just acquired. Return the others.

        `aborted` are first and last offsets, both in growing order.
        """
        left = list(taken)
        for first, last in aborted:
            first, last = max(first, self.start_offset), min(last, self.end_offset - 1)
            for found in self.ranges.carve(first, last) if first <= last else ():
                if found.state == ACQUIRED and found.change is None and _is_among(left, found):
                    assert found.lock is not None
                    self.locks.let_go(found.lock, len(found))
                    self._end(found, ARCHIVED)
            left = [piece for each in left for piece in _without(each, first, last)]
        self._advance()
        return left

    def _archive_missing(self, base_offset: int) -> None:
        """Archive available records below the first batch that was read: retention or compaction removed them."""
        while (offset := self.next_offset) < min(base_offset, self.end_offset):
            found = self.ranges.find(offset)
            assert found is not None
            if found.last >= base_offset:
                self.offer(self.ranges.split(self.ranges.index(offset), base_offset))
            self._end(found, ARCHIVED)
        self._advance()

    def _end(self, found: DeliveryRange, state: int) -> None:
        """Move records to a final state without a change that could be taken back."""
        found.state, found.lock = state, None
        self.done_count += len(found)
        self.ranges.join(found)

    def append(self, new: DeliveryRange) -> None:
        """Put a range behind the end offset."""
        self.ranges.append(new)
        self.end_offset = new.last + 1
        if new.state in DONE:
            self.done_count += len(new)

    def offer(self, available: DeliveryRange) -> None:
        """Remember where an available range begins."""
        if available.first not in self._queued:
            self._queued.add(available.first)
            heappush(self._available, available.first)

    # Acknowledging

    def acknowledge(
        self, member_id: str, batches: Sequence[AcknowledgedBatch], now: float, settings: ShareSettings
    ) -> StateChange | None:
        """Apply all of a request, or raise RequestError with nothing changed. Return None if nothing needs storing."""
        for batch in batches:
            self._check(member_id, batch, settings)
        change = StateChange()
        renewed: RecordLock | None = None
        for first, last, types in batches:
            for begin, end, kind in _runs(first, last, types):
                for found in self.ranges.carve(max(begin, self.start_offset), end):
                    if found.state == GAP:
                        continue
                    if kind != RENEW:
                        found.is_rejected = kind == REJECT
                        target = settings.undelivered_state if found.is_rejected else _TARGETS[kind]
                        self._begin(change, found, target, settings)
                        continue
                    if renewed is None:
                        duration_ms = settings.lock_duration_ms
                        renewed = RecordLock(member_id, now + duration_ms / 1000, duration_ms)
                    self._renew(found, renewed)
        if renewed is not None:
            self.locks.add(renewed)
        return self._sealed(change)

    def release(self, member_id: str, settings: ShareSettings) -> StateChange | None:
        """Make everything available that a member holds. Return None if it holds nothing."""
        change = StateChange()
        for lock in self.locks.of_member(member_id):
            for found in self._held(lock):
                self._begin(change, found, AVAILABLE, settings)
        return self._sealed(change)

    def _check(self, member_id: str, batch: AcknowledgedBatch, settings: ShareSettings) -> None:
        first, last, types = batch
        if last < self.start_offset:
            return
        if not self.in_flight:
            raise RequestError(ErrorCode.INVALID_RECORD_STATE, "nothing is acquired")
        if last >= self.end_offset:
            raise RequestError(ErrorCode.INVALID_REQUEST, f"offsets up to {last}: the last acquired is below")
        if not settings.renews_locks and RENEW in types:
            raise RequestError(ErrorCode.INVALID_RECORD_STATE, "the group does not allow locks to be renewed")
        first = max(first, self.start_offset)
        ranges = self.ranges.ranges
        at = self.ranges.index(first)
        while at < len(ranges) and (found := ranges[at]).first <= last:
            if found.state != GAP:
                if found.state != ACQUIRED or found.change is not None or found.lock is None:
                    raise RequestError(ErrorCode.INVALID_RECORD_STATE, f"offset {found.first} is not acquired")
                if found.lock.member_id != member_id:
                    raise RequestError(ErrorCode.INVALID_RECORD_STATE, f"another member holds offset {found.first}")
            at += 1

    def _begin(self, change: StateChange, found: DeliveryRange, state: int, settings: ShareSettings) -> None:
        """Move acquired records to another state, as long as the change is not taken back."""
        if state == AVAILABLE and found.count >= settings.delivery_count_limit:
            state = settings.undelivered_state
        if state in DONE:
            self.done_count += len(found)
        found.state, found.change = state, change
        change.ranges.append(found)

    def _renew(self, found: DeliveryRange, renewed: RecordLock) -> None:
        assert found.lock is not None
        self.locks.let_go(found.lock, len(found))
        found.lock = renewed
        renewed.add((found.first, found.last))

    def _sealed(self, change: StateChange) -> StateChange | None:
        if not change.ranges:
            return None
        batches = [StateBatch(found.first, found.last, found.state, found.count) for found in change.ranges]
        change.write = self._write(batches, change)
        return change

    def _write(self, batches: Sequence[StateBatch], change: StateChange | None) -> StateWrite:
        """Return what to store. The start offset comes along where this write alone moves it.

        Writes may be stored in another order, or some of them not at all. So each start offset that is sent is above
        all that were sent before, and holds even if no other write is stored.
        """
        start_offset, moved = self.start_offset, 0
        if self._is_start_stored:
            for found in self.ranges.ranges:
                if found.state not in DONE or (found.change is not None and found.change is not change):
                    break
                start_offset = found.last + 1
            if start_offset > self._sent_start:
                self._sent_start = start_offset
            else:
                start_offset = NO_START_OFFSET
            moved = max(0, start_offset - self.start_offset)
        return StateWrite(start_offset, self.done_count - moved, _joined(batches, start_offset))

    def on_stored(self, write: StateWrite) -> None:
        """Learn that a write was stored."""
        if write.start_offset != NO_START_OFFSET:
            self._is_start_stored = True

    def commit(self, change: StateChange) -> None:
        """Make a change final: it is stored."""
        self.on_stored(change.write)
        for found in change.ranges:
            found.change = None
            lock, found.lock = found.lock, None
            if found.state == ARCHIVING:
                self.dead.append(buried(found, lock))
            if found.last < self.start_offset:
                continue
            if lock is not None and not lock.is_expired:
                self.locks.let_go(lock, len(found))
            if found.state == AVAILABLE:
                self.offer(found)
            self.ranges.join(found)
        self._advance()

    def revert(self, change: StateChange, settings: ShareSettings) -> None:
        """Take a change back: it was not stored. Records whose lock has timed out meanwhile are released."""
        for found in change.ranges:
            found.change = None
            if found.last < self.start_offset:
                continue
            if found.state in DONE:
                self.done_count -= len(found)
            found.state, found.is_rejected = ACQUIRED, False
            lock = found.lock
            if lock is None or lock.is_expired:
                self._time_out(found, settings)
            self.ranges.join(found)
        self._advance()

    # Time

    def expire(self, now: float, settings: ShareSettings) -> StateWrite | None:
        """Release records whose lock has timed out. Return what to store; the release stands even if that fails."""
        batches: list[StateBatch] = []
        for lock in self.locks.expire(now):
            for found in self._held(lock):
                self.timeouts += len(found)
                self._time_out(found, settings)
                batches.append(StateBatch(found.first, found.last, found.state, found.count))
                self.ranges.join(found)
        if not batches:
            return None
        batches.sort()
        write = self._write(batches, None)
        self._advance()
        return write

    def _time_out(self, found: DeliveryRange, settings: ShareSettings) -> None:
        lock, found.lock = found.lock, None
        if found.count >= settings.delivery_count_limit:
            found.state = settings.undelivered_state
            if found.state == ARCHIVING:
                self.dead.append(buried(found, lock))
            else:
                self.done_count += len(found)
        else:
            found.state = AVAILABLE
            self.offer(found)

    def _held(self, lock: RecordLock) -> list[DeliveryRange]:
        """Return the ranges that are acquired under a lock."""
        held = []
        ranges = self.ranges.ranges
        for first, last in lock.spans():
            at = self.ranges.index(first)
            while at < len(ranges) and (found := ranges[at]).first <= last:
                if found.lock is lock and found.state == ACQUIRED and found.change is None:
                    held.append(found)
                at += 1
        return held

    # Dead letters

    def rewrite(self, batches: Sequence[StateBatch]) -> StateWrite:
        """Return what stores these, whatever was stored before."""
        return self._write(batches, None)

    def archive(self, dead: Sequence[StateBatch]) -> StateWrite:
        """End dead letters. Return what to store, also if it is called again because that failed."""
        for first, last, _, _ in dead:
            first = max(first, self.start_offset)
            for found in self.ranges.carve(first, last) if first <= last else ():
                if found.state == ARCHIVING:
                    self._end(found, ARCHIVED)
                else:
                    self.ranges.join(found)
        write = self._write(dead, None)
        self._advance()
        return write

    # The start offset

    def move_start(self, log_start_offset: int) -> None:
        """Drop what the log no longer has."""
        if log_start_offset <= self.start_offset:
            return
        ranges, whole = self.ranges, 0
        for found in ranges.ranges:
            if found.first >= log_start_offset:
                break
            gone = min(len(found), log_start_offset - found.first)
            if found.state in DONE:
                self.done_count -= gone
            if found.lock is not None and not found.lock.is_expired:
                self.locks.let_go(found.lock, gone)
            if found.last < log_start_offset:
                whole += 1
                continue
            found.first = ranges.firsts[whole] = log_start_offset
            if found.state == AVAILABLE and found.change is None:
                self.offer(found)
        ranges.drop_front(whole)
        self.start_offset = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self._advance()

    def _advance(self) -> None:
        """Move the start offset over what is done."""
        count = 0
        for found in self.ranges.ranges:
            if found.state not in DONE or found.change is not None:
                break
            self.done_count -= len(found)
            self.start_offset = found.last + 1
            count += 1
        if count:
            self.ranges.drop_front(count)


def _runs(first: int, last: int, types: bytes) -> Iterable[tuple[int, int, int]]:
    """Yield first and last offset and type of neighbours that are acknowledged alike."""
    if len(types) == 1:
        yield first, last, types[0]
        return
    begin = 0
    for at in range(1, len(types) + 1):
        if at == len(types) or types[at] != types[begin]:
            yield first + begin, first + at - 1, types[begin]
            begin = at


def _joined(batches: Sequence[StateBatch], start_offset: int) -> tuple[StateBatch, ...]:
    """Return batches in order, without what is below the start offset, and neighbours that are alike as one."""
    joined: list[StateBatch] = []
    for first, last, state, count in sorted(batches):
        if last < start_offset:
            continue
        if joined and joined[-1][1] + 1 == first and joined[-1][2:] == (state, count):
            joined[-1] = StateBatch(joined[-1].first_offset, last, state, count)
        else:
            joined.append(StateBatch(max(first, start_offset), last, state, count))
    return tuple(joined)


def _is_among(taken: Iterable[AcquiredRange], found: DeliveryRange) -> bool:
    return any(each.first <= found.first and found.last <= each.last for each in taken)


def _without(taken: AcquiredRange, first: int, last: int) -> list[AcquiredRange]:
    """Return what is left of acquired records outside of an aborted range."""
    if last < taken.first or taken.last < first:
        return [taken]
    pieces = []
    if taken.first < first:
        pieces.append(AcquiredRange(taken.first, first - 1, taken.delivery_count))
    if last < taken.last:
        pieces.append(AcquiredRange(last + 1, taken.last, taken.delivery_count))
    return pieces
