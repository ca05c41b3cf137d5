"""What share partitions of this broker deliver, counted for metrics and noted for `strandline queue trace`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from strandline.coordinators.shares.delivery.acknowledgements import RELEASE, RENEW, AcknowledgedBatch
from strandline.coordinators.shares.delivery.acquisition import AcquiredRange
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.delivery.delivery_history import SESSION_ENDED, TIMED_OUT, DeliveryHistory
from strandline.coordinators.shares.delivery.offset_ranges import ACKNOWLEDGED, AVAILABLE
from strandline.coordinators.shares.delivery.share_partition import SharePartition, StateChange
from strandline.coordinators.shares.share_state import StateBatch


class ShareCounts:
    """What all share partitions of a broker count together, since its start."""

    __slots__ = ("acknowledged", "archived", "lock_timeouts", "redelivered")

    def __init__(self) -> None:
        self.acknowledged = [0] * (RENEW + 1)
        """Records by the type of their acknowledgement."""
        self.lock_timeouts = 0
        """Records whose lock has timed out."""
        self.redelivered = 0
        """Records that were delivered for another time."""
        self.archived = 0
        """Records that were delivered as often as they may be, and not accepted."""

    def add(self, batches: Iterable[AcknowledgedBatch]) -> None:
        for first, last, types in batches:
            if len(types) == 1:
                self.acknowledged[types[0]] += last - first + 1
            else:
                for kind in set(types):
                    self.acknowledged[kind] += types.count(kind)


class DeliveryWatch:
    """Watches one share partition."""

    __slots__ = ("_counts", "_now_ms", "history")

    def __init__(self, counts: ShareCounts, history: DeliveryHistory, now_ms: Callable[[], int]) -> None:
        self._counts = counts
        self._now_ms = now_ms
        self.history = history

    def on_acquired(self, member_id: str, taken: Sequence[AcquiredRange], start_offset: int) -> None:
        self._counts.redelivered += self.history.on_acquired(member_id, taken, start_offset, self._now_ms())

    def exhausted(
        self, change: StateChange | None, batches: Sequence[AcknowledgedBatch], delivery_count_limit: int
    ) -> list[StateBatch]:
        """Return records that their member released, and that have no delivery left. Called before it is stored."""
        if change is None or not any(RELEASE in types for _, _, types in batches):
            return []
        return [
            batch
            for batch in _batches(change)
            if batch.delivery_count >= delivery_count_limit and batch.state not in (AVAILABLE, ACKNOWLEDGED)
        ]

    def on_acknowledged(
        self, member_id: str, batches: Sequence[AcknowledgedBatch], exhausted: Sequence[StateBatch]
    ) -> None:
        self._counts.add(batches)
        self.history.on_acknowledged(member_id, batches, self._now_ms())
        if exhausted:
            self._counts.archived += self.history.on_archived(exhausted, self._now_ms())

    def on_released(self, member_id: str, change: StateChange) -> None:
        """Learn that the session of a member has ended. Called before it is stored."""
        self._counts.archived += self.history.on_released(SESSION_ENDED, member_id, _batches(change), self._now_ms())

    def on_expired(self, share: SharePartition) -> None:
        """Learn what the share partition has just expired."""
        for member_id, batch in share.expired:
            self._counts.lock_timeouts += batch.last_offset - batch.first_offset + 1
            self._counts.archived += self.history.on_released(TIMED_OUT, member_id, [batch], self._now_ms())

    def on_copied(self, letters: Sequence[DeadRange]) -> None:
        """Learn that records are in the dead-letter topic."""
        self.history.on_copied(letters, self._now_ms())

    def on_stored(self, share: SharePartition) -> None:
        """Learn that the start offset may have moved."""
        self.history.on_start(share.start_offset, self._now_ms())


def _batches(change: StateChange) -> list[StateBatch]:
    return [StateBatch(each.first, each.last, each.state, each.count) for each in change.ranges]
