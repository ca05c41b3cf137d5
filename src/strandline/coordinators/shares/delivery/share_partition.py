"""One partition as one share group reads it: the state machine beside the leader of the data partition.

Between the start offset and the end offset every offset is available, acquired by a member, or done. The start offset
moves over what is done. A change by a member (`StateChange`) counts when it is stored: the driver writes it, and then
calls `commit` or `revert`. A lock that times out changes the state at once, and is written afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from strandline.coordinators.shares.delivery.acknowledgements import (
    REJECT,
    RENEW,
    TARGETS,
    AcknowledgedBatch,
    check,
    runs,
)
from strandline.coordinators.shares.delivery.acquisition import (
    AcquiredRange,
    Acquisition,
    LogBatches,
    is_among,
    without,
)
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange, buried
from strandline.coordinators.shares.delivery.held_back import BEHIND_KEY, HeldBack
from strandline.coordinators.shares.delivery.key_order import KeyOrder
from strandline.coordinators.shares.delivery.offset_ranges import (
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
from strandline.coordinators.shares.state_batches import joined


class StateWrite(NamedTuple):
    """What the share coordinator is to store."""

    start_offset: int
    """`NO_START_OFFSET` leaves the stored one as it is."""
    complete_count: int
    batches: tuple[StateBatch, ...]


class StateChange:
    """Changes of one request, until they are stored or taken back."""

    __slots__ = ("ranges", "released", "write")

    def __init__(self) -> None:
        self.ranges: list[DeliveryRange] = []
        self.released: tuple[float, ShareSettings] | None = None
        """When a member released records, and the settings by which they are backed off."""
        self.write = StateWrite(NO_START_OFFSET, 0, ())


class SharePartition:
    """The delivery state of one share partition."""

    __slots__ = (
        "_available",
        "_is_start_stored",
        "_queued",
        "_sent_start",
        "_stored_start",
        "_unsaid",
        "dead",
        "done_count",
        "end_offset",
        "expired",
        "held",
        "is_delayed",
        "locks",
        "ranges",
        "start_offset",
        "state_epoch",
    )

    def __init__(self, state: ShareState, start_offset: int, *, is_key_ordered: bool = False) -> None:
        """Begin with a stored state. `start_offset` is that of the state, or the one found for a state without one."""
        self.state_epoch = state.state_epoch
        self.start_offset = self.end_offset = start_offset
        self.ranges = OffsetRanges()
        self.held = HeldBack(self.ranges, self.offer, KeyOrder(start_offset) if is_key_ordered else None)
        self.is_delayed = False
        """Whether records are due at the time that they carry, and not before."""
        self.locks = RecordLocks()
        self.done_count = 0
        """Offsets from the start offset on whose delivery is complete."""
        self.expired: list[tuple[str, StateBatch]] = []
        """What the last call of `expire` released, and the members that held it."""
        self._available: list[int] = []
        """A heap of offsets where available ranges begin, or began: what is stale is dropped when it comes up."""
        self._queued: set[int] = set()
        """The members of the heap."""
        self._is_start_stored = state.start_offset != NO_START_OFFSET
        self._sent_start = self._stored_start = start_offset
        self._unsaid: list[tuple[StateWrite, int]] = []
        """What is not known to be stored of records that were given up, with the end of those: they may come again."""
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
        if state == AVAILABLE and self.held.keys is not None:
            # Its keys are not known yet.
            self.held.hold(new, BEHIND_KEY)
        elif state == AVAILABLE:
            self.offer(new)

    @property
    def is_key_ordered(self) -> bool:
        return self.held.keys is not None

    @property
    def in_flight(self) -> int:
        return self.end_offset - self.start_offset

    @property
    def next_offset(self) -> int:
        """Return the first offset that may be acquired: an available one, or the first that was not looked at."""
        available = self._available
        while available:
            found = self.ranges.find(available[0])
            if found is not None and found.state == AVAILABLE and found.change is None and not found.held:
                return found.first
            self._queued.discard(heappop(available))
        return self.unseen_offset

    @property
    def unseen_offset(self) -> int:
        """Return the end offset, or before it the first one whose key must be looked at before it is delivered."""
        keys = self.held.keys
        return self.end_offset if keys is None else max(keys.scanned, self.start_offset)

    def has_room(self, settings: ShareSettings) -> bool:
        """Return whether anything may be acquired: a released record, or a new one."""
        return self.room(settings) > 0 or self.next_offset < self.end_offset

    def room(self, settings: ShareSettings) -> int:
        """Return how many new records may be acquired."""
        if self._holds_back(settings):
            return self.held.room(self.in_flight - self.done_count, settings)
        return settings.record_locks_max - self.in_flight

    def _holds_back(self, settings: ShareSettings) -> bool:
        """Return whether records may be held back."""
        return self.is_delayed or self.is_key_ordered or settings.backoff_ms > 0

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
        now_ms: int = 0,
    ) -> list[AcquiredRange]:
        """Give a member records out of `batches`, which were read from `next_offset` on.

        `now_ms` is the clock of the records, by which they are due.
        """
        if records_max <= 0:
            return []
        if self.is_key_ordered and self.unseen_offset < batches.first_offset:
            # The log does not have them, so they have no keys.
            self.held.scan(batches.first_offset - 1, ())
        self._archive_missing(batches.first_offset)
        offset = self.next_offset
        lock = RecordLock(member_id, now + settings.lock_duration_ms / 1000, settings.lock_duration_ms)
        acquisition = Acquisition(self, lock, batches, settings, records_max=records_max, is_strict=is_strict)
        if self.is_delayed or self.is_key_ordered:
            acquisition.take_by_turns(now_ms if self.is_delayed else None)
        elif acquisition.take_released(offset):
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
                if found.state == ACQUIRED and found.change is None and is_among(left, found):
                    assert found.lock is not None
                    self.locks.let_go(found.lock, len(found))
                    self._end(found, ARCHIVED)
            left = [piece for each in left for piece in without(each, first, last)]
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
        self.held.on_done(found.first, found.last)
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
        unsaid = range(self._stored_start, min(self.start_offset, max((end for _, end in self._unsaid), default=0)))
        for batch in batches:
            check(self.ranges, range(self.start_offset, self.end_offset), unsaid, member_id, batch, settings)
        change = StateChange()
        change.released = now, settings
        renewed: RecordLock | None = None
        for first, last, types in batches:
            for begin, end, kind in runs(first, last, types):
                for found in self.ranges.carve(max(begin, self.start_offset), end):
                    if found.state == GAP:
                        continue
                    if kind != RENEW:
                        found.is_rejected = kind == REJECT
                        target = settings.undelivered_state if found.is_rejected else TARGETS[kind]
                        self._begin(change, found, target, settings)
                        continue
                    if renewed is None:
                        duration_ms = settings.lock_duration_ms
                        renewed = RecordLock(member_id, now + duration_ms / 1000, duration_ms)
                    self._renew(found, renewed)
        if renewed is not None:
            self.locks.add(renewed)
        return self._sealed(change, settings)

    def release(self, member_id: str, settings: ShareSettings) -> StateChange | None:
        """Make everything available that a member holds. Return None if it holds nothing."""
        change = StateChange()
        for lock in self.locks.of_member(member_id):
            for found in self._held(lock):
                self._begin(change, found, AVAILABLE, settings)
        return self._sealed(change, settings)

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

    def _sealed(self, change: StateChange, settings: ShareSettings) -> StateChange | None:
        if not change.ranges:
            return None
        change.write = self._write([self._batch(found, settings) for found in change.ranges], change)
        return change

    def _batch(self, found: DeliveryRange, settings: ShareSettings) -> StateBatch:
        """Return a range as it is stored."""
        count = found.count
        if found.state in DONE and self._holds_back(settings):
            # Many may be done behind a record that waits. With one count for all, they are stored as one batch.
            count = max(count, settings.delivery_count_limit)
        return StateBatch(found.first, found.last, found.state, count)

    def _write(self, batches: Sequence[StateBatch], change: StateChange | None) -> StateWrite:
        """Return what to store. The start offset comes along where this write alone moves it.

        Writes may be stored in another order, or some of them not at all. So each start offset that is sent is above
        all that were sent before, and holds even if no other write is stored.
        """
        start_offset, passed = self.start_offset, 0
        if self._is_start_stored:
            for found in self.ranges.ranges:
                if found.state not in DONE or (found.change is not None and found.change is not change):
                    break
                start_offset = found.last + 1
            if start_offset > self._sent_start:
                self._sent_start = start_offset
            else:
                start_offset = NO_START_OFFSET
            # Those below a start offset that was sent before are not counted either, because it may be stored first.
            passed = self.ranges.done_below(self._sent_start)
        return StateWrite(start_offset, self.done_count - passed, joined(batches, start_offset))

    def on_stored(self, write: StateWrite) -> None:
        """Learn that a write was stored."""
        if write.start_offset != NO_START_OFFSET:
            self._is_start_stored = True
            self._stored_start = max(self._stored_start, write.start_offset)
        self._unsaid = [each for each in self._unsaid if each[0] is not write and each[1] > self._stored_start]

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
                self._offer_again(found, change.released)
            else:
                self.held.on_done(found.first, found.last)
            self.ranges.join(found)
        self._advance()

    def _offer_again(self, found: DeliveryRange, released: tuple[float, ShareSettings] | None) -> None:
        """Offer records whose delivery failed, at once or after a while."""
        backoff_ms = 0 if released is None else released[1].backoff_after_ms(found.count)
        if released is None or not backoff_ms:
            self.offer(found)
        else:
            # Rounded up: not before its time.
            self.held.back_off(found, int(released[0] * 1000) + 1 + backoff_ms)

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
        self.expired = []
        for lock in self.locks.expire(now):
            held = self._held(lock)
            self.ranges.suspect_first(held, settings.delivery_count_limit)
            for found in held:
                self._time_out(found, settings)
                batch = self._batch(found, settings)
                self.expired.append((lock.member_id, batch))
                self.ranges.join(found)
        if not self.expired:
            return None
        batches = sorted(batch for _, batch in self.expired)
        write = self._write(batches, None)
        if given_up := [batch.last_offset + 1 for batch in batches if batch.state in DONE]:
            self._unsaid.append((write, given_up[-1]))
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
            self.held.on_done(found.first, found.last)
        else:
            found.state = AVAILABLE
            self._offer_again(found, None if lock is None else (lock.deadline, settings))

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
        ranges, whole, former = self.ranges, 0, self.start_offset
        for found in ranges.ranges:
            if found.first >= log_start_offset:
                break
            gone = min(len(found), log_start_offset - found.first)
            if found.state in DONE:
                self.done_count -= gone
            if found.lock is not None and not found.lock.is_expired:
                self.locks.let_go(found.lock, gone)
            if found.held:
                self.held.count -= gone
            if found.last < log_start_offset:
                whole += 1
                continue
            found.first = ranges.firsts[whole] = log_start_offset
            if found.state == AVAILABLE and found.change is None and not found.held:
                self.offer(found)
        ranges.drop_front(whole)
        self.start_offset = self._stored_start = log_start_offset
        self.end_offset = max(self.end_offset, log_start_offset)
        self.held.on_done(former, log_start_offset - 1)
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
