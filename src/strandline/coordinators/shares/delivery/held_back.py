"""Available records that no member gets yet: they are not due, backed off, or behind another record of their key."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import heappop, heappush
from typing import Final

from strandline.coordinators.shares.delivery.due_times import DueTimes
from strandline.coordinators.shares.delivery.key_order import KEY_WAITING_MAX, KeyOrder
from strandline.coordinators.shares.delivery.offset_ranges import ARCHIVING, DONE, DeliveryRange, OffsetRanges
from strandline.coordinators.shares.delivery.share_settings import ShareSettings

UNTIL_TIME: Final = 1
BEHIND_KEY: Final = 2
"""Why a range is held back; 0 if it is not."""
RANGES_MAX: Final = 20_000
"""Ranges of a share partition from which on only the first records may leave a range in pieces.

The share coordinator stores a range between two that wait as one batch, and has a limit for them.
"""
RIPE_MAX: Final = 1_000
"""Ranges that are looked at in one turn when their time has come."""


class HeldBack:
    """The records of a share partition that are held back."""

    __slots__ = ("_offer", "_overdue", "_ranges", "backoffs", "count", "delays", "keys")

    def __init__(
        self, ranges: OffsetRanges, offer: Callable[[DeliveryRange], object], keys: KeyOrder | None = None
    ) -> None:
        self._ranges = ranges
        self._offer = offer
        self.keys = keys
        """None if records of one key may be delivered in any order."""
        self.count = 0
        """Records that are held back."""
        self.delays = DueTimes()
        """By the clock of the producers."""
        self.backoffs = DueTimes()
        """By a clock that never jumps."""
        self._overdue: list[tuple[int, int, int]] = []
        """A heap of what may be offered as soon as there are not too many ranges: first, last, and why it was held."""

    @property
    def is_timed(self) -> bool:
        """Return whether `ripen` may have something to do, now or later."""
        return bool(self._overdue or self.delays or self.backoffs)

    def room(self, undone: int, settings: ShareSettings) -> int:
        """Return how many new records may be acquired, where `undone` are not done.

        Records that wait, and those behind them that are done, do not stop the others. They have limits of their own.
        """
        waiting_max = settings.waiting_records_max
        if self.keys is not None:
            waiting_max = min(waiting_max, KEY_WAITING_MAX)
        if self.count >= waiting_max or len(self._ranges) >= RANGES_MAX:
            return 0
        return settings.record_locks_max - (undone - self.count)

    def hold(self, found: DeliveryRange, why: int) -> None:
        """Hold back available records."""
        found.held = why
        self.count += len(found)

    def delay(self, found: DeliveryRange, due_ms: int) -> None:
        self.hold(found, UNTIL_TIME)
        self.delays.add(due_ms, found.first, found.last)

    def back_off(self, found: DeliveryRange, until_ms: int) -> None:
        self.hold(found, UNTIL_TIME)
        self.backoffs.add(until_ms, found.first, found.last)

    # Time

    def wait_ms(self, now_ms: int, uptime_ms: int) -> int | None:
        """Return how long it is until the next records may be delivered; None if no time is waited for."""
        delay, backoff = self.delays.next_ms, self.backoffs.next_ms
        if delay is None:
            return None if backoff is None else backoff - uptime_ms
        return delay - now_ms if backoff is None else min(delay - now_ms, backoff - uptime_ms)

    def ripen(self, now_ms: int, uptime_ms: int) -> bool:
        """Offer records whose time has come, some at a time. Return whether there were any."""
        for first, last in (*self.delays.pop(now_ms, RIPE_MAX), *self.backoffs.pop(uptime_ms, RIPE_MAX)):
            heappush(self._overdue, (first, last, UNTIL_TIME))
        return self._offer_overdue()

    def _offer_overdue(self) -> bool:
        overdue, is_any = self._overdue, False
        while overdue:
            # The first records may always go on: when they are done, the start offset moves, and ranges end.
            if len(self._ranges) >= RANGES_MAX and overdue[0][0] > self._ranges.ranges[0].last:
                break
            self._open(*heappop(overdue))
            is_any = True
        return is_any

    def _open(self, first: int, last: int, why: int) -> None:
        """Offer records between two offsets that are held back for one reason."""
        ranges = self._ranges
        at = ranges.index(first)
        while at < len(ranges) and (found := ranges.ranges[at]).first <= last:
            if found.held == why and found.first >= first:
                if found.last > last:
                    ranges.split(at, last + 1)
                found.held, end = 0, found.last
                self.count -= len(found)
                self._offer(found)
                ranges.join(found)
                at = ranges.index(end + 1)
                continue
            if found.held == why:
                ranges.split(at, first)
            at += 1

    # Keys

    def scan(self, last: int, keyed: Iterable[tuple[int, int]]) -> None:
        """Learn the keys, as hashes, of all records up to `last` that have one. The first of each is offered."""
        keys = self.keys
        assert keys is not None
        begin = keys.scanned
        for offset, key in keyed:
            found = self._ranges.find(offset)
            # A dead letter that has no copy yet comes to no member again, so it holds up none of its key.
            if found is None or found.state in DONE or found.state == ARCHIVING or keys.add(offset, key):
                continue
            if begin < offset:
                self._open(begin, offset - 1, BEHIND_KEY)
            begin = offset + 1
        if begin <= last:
            self._open(begin, last, BEHIND_KEY)
        keys.scanned = last + 1
        # After a change of leaders there may be many records that are done between the others.
        while (found := self._ranges.find(keys.scanned)) is not None and found.state in DONE and found.change is None:
            keys.scanned = found.last + 1

    def on_done(self, first: int, last: int) -> None:
        """Offer the records that follow those of the same key that are done, for good."""
        if self.keys is not None:
            for offset in self.keys.remove(first, last):
                heappush(self._overdue, (offset, offset, BEHIND_KEY))
            self._offer_overdue()
