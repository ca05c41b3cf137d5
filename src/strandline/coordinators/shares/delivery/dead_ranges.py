"""Records that no member gets any more, on their way to the dead-letter topic."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from strandline.coordinators.shares.delivery.offset_ranges import ARCHIVED, ARCHIVING, DeliveryRange
from strandline.coordinators.shares.share_state import StateBatch

if TYPE_CHECKING:
    from strandline.coordinators.shares.delivery.record_locks import RecordLock


class DeathCause(StrEnum):
    """Why records became dead letters, with Kafka's message."""

    REJECTED = "Offset rejected by client."
    EXHAUSTED = "Offset delivery count exceeded the threshold."


class DeadRange(NamedTuple):
    """Neighbouring records that became dead letters together."""

    first: int
    last: int
    delivery_count: int
    """How often they were delivered."""
    cause: DeathCause | None = None
    """None after a change of leaders, because it is not stored."""
    member_id: str = ""
    """The member that held them last, if it is known."""
    acquired_at: float = -1.0
    """When that member acquired them or renewed its lock, by the clock of the locks; -1 if it is not known."""
    acquired_ms: int = -1
    """The same in milliseconds since 1970."""
    ended_ms: int = -1
    """When that delivery ended."""
    is_doubtful: bool = False
    """Whether a copy may have been committed already."""
    is_bare: bool = False
    """Whether key, value and headers are left out of the copy, because the topic refused them as too large."""

    @property
    def size(self) -> int:
        return self.last - self.first + 1

    def part(self, first: int, last: int) -> DeadRange:
        return self._replace(first=first, last=last)

    def archiving(self) -> StateBatch:
        return StateBatch(self.first, self.last, ARCHIVING, self.delivery_count)

    def archived(self) -> StateBatch:
        return StateBatch(self.first, self.last, ARCHIVED, self.delivery_count)


def buried(found: DeliveryRange, lock: RecordLock | None) -> DeadRange:
    """Return records that became dead letters, with what is known of their last delivery."""
    cause = DeathCause.REJECTED if found.is_rejected else DeathCause.EXHAUSTED
    dead = DeadRange(found.first, found.last, found.count, cause)
    if lock is None:
        return dead
    return dead._replace(member_id=lock.member_id, acquired_at=lock.deadline - lock.duration_ms / 1000)
