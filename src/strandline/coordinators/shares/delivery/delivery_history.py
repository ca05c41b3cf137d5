"""What happened lately to the records of a share partition, for `strandline queue trace`. Pure, bounded, in memory.

What went wrong is kept apart from what went well, because a busy partition sees far more of the latter.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from strandline.coordinators.shares.delivery.acknowledgements import ACCEPT, GAP_TYPE, RENEW, AcknowledgedBatch
from strandline.coordinators.shares.delivery.acquisition import AcquiredRange
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.delivery.offset_ranges import AVAILABLE
from strandline.coordinators.shares.share_state import StateBatch

EVENTS_MAX: Final = 256
"""Deliveries and acceptances that a share partition remembers."""
TROUBLES_MAX: Final = 256
"""Releases, rejections, time-outs and redeliveries that it remembers."""

ACQUIRED_EVENT: Final = 5
TIMED_OUT: Final = 6
SESSION_ENDED: Final = 7
ARCHIVED_EVENT: Final = 8
COPIED_EVENT: Final = 9
EVENT_NAMES: Final = (
    "gap",
    "accepted",
    "released",
    "rejected",
    "renewed",
    "acquired",
    "timed out",
    "session ended",
    "archived",
    "copied to the dead letters",
)
"""The words for events. Those of acknowledgements have the numbers of their types."""


class DeliveryEvent(NamedTuple):
    """One event that records from `first` to `last` have in common."""

    at_ms: int
    kind: int
    first: int
    last: int
    delivery_count: int
    """How often they had been delivered; 0 if the event does not say."""
    member_id: str


class DeliveryHistory:
    """The last events of one share partition."""

    __slots__ = ("_events", "_start_offset", "_troubles", "moved_ms", "redeliveries", "since_ms")

    def __init__(self, now_ms: int) -> None:
        self.since_ms = self.moved_ms = now_ms
        """When the history begins, and when the record that is the first unfinished one became that."""
        self.redeliveries = 0
        """Records that were delivered for another time."""
        self._start_offset = -1
        self._events: deque[DeliveryEvent] = deque(maxlen=EVENTS_MAX)
        self._troubles: deque[DeliveryEvent] = deque(maxlen=TROUBLES_MAX)

    def on_start(self, start_offset: int, now_ms: int) -> None:
        """Learn where the first unfinished record is."""
        if start_offset != self._start_offset:
            self._start_offset, self.moved_ms = start_offset, now_ms

    def on_acquired(self, member_id: str, taken: Iterable[AcquiredRange], start_offset: int, now_ms: int) -> int:
        """Note a delivery. Return how many records were delivered for another time."""
        again = 0
        for first, last, count in taken:
            event = DeliveryEvent(now_ms, ACQUIRED_EVENT, first, last, count, member_id)
            if count > 1:
                again += last - first + 1
                self._troubles.append(event)
            else:
                self._events.append(event)
                if first == start_offset:
                    # It came after all others were done, however long ago that was.
                    self._start_offset, self.moved_ms = start_offset, now_ms
        self.redeliveries += again
        return again

    def on_acknowledged(self, member_id: str, batches: Iterable[AcknowledgedBatch], now_ms: int) -> None:
        for first, last, types in batches:
            begin = 0
            for at in range(1, len(types) + 1):
                if at < len(types) and types[at] == types[begin]:
                    continue
                kind, upto = types[begin], last if len(types) == 1 else first + at - 1
                if kind not in (GAP_TYPE, RENEW):
                    event = DeliveryEvent(now_ms, kind, first + begin, upto, 0, member_id)
                    (self._events if kind == ACCEPT else self._troubles).append(event)
                begin = at

    def on_released(self, kind: int, member_id: str, batches: Iterable[StateBatch], now_ms: int) -> int:
        """Note that locks have ended, or a session. Return how many records had no delivery left."""
        archived = 0
        for batch in batches:
            first, last, state, count = batch
            self._troubles.append(DeliveryEvent(now_ms, kind, first, last, count, member_id))
            if state != AVAILABLE:
                archived += self.on_archived([batch], now_ms)
        return archived

    def on_archived(self, batches: Iterable[StateBatch], now_ms: int) -> int:
        """Note that records were delivered as often as they may be. Return how many."""
        archived = 0
        for first, last, _, count in batches:
            archived += last - first + 1
            self._troubles.append(DeliveryEvent(now_ms, ARCHIVED_EVENT, first, last, count, ""))
        return archived

    def on_copied(self, letters: Iterable[DeadRange], now_ms: int) -> None:
        """Note that copies of records are in the dead-letter topic."""
        for each in letters:
            self._troubles.append(DeliveryEvent(now_ms, COPIED_EVENT, each.first, each.last, 0, ""))

    def events(self, first: int, last: int) -> Iterator[DeliveryEvent]:
        """Yield what is known of records between two offsets, the oldest first."""
        known = [event for events in (self._events, self._troubles) for event in events]
        # By time, and within one moment in the order in which it was noted.
        for event in sorted(known, key=lambda event: event.at_ms):
            if event.first <= last and event.last >= first:
                yield event
