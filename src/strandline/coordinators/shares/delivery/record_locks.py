"""Locks on acquired records: who holds them, and until when."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

K = TypeVar("K", int, str)


class RecordLock:
    """What one request of a member acquired. All of it times out together, except what was renewed since."""

    __slots__ = ("deadline", "duration_ms", "held", "is_expired", "member_id", "more", "span")

    def __init__(self, member_id: str, deadline: float, duration_ms: int) -> None:
        self.member_id = member_id
        self.deadline = deadline
        self.duration_ms = duration_ms
        self.held = 0
        """Records that are still acquired under it."""
        self.span: tuple[int, int] | None = None
        self.more: list[tuple[int, int]] | None = None
        """First and last offsets of what it was taken for. Most locks have one span, so there is no list for it."""
        self.is_expired = False

    def add(self, span: tuple[int, int]) -> None:
        """Count records from a first to a last offset as held."""
        self.held += span[1] - span[0] + 1
        if self.span is None:
            self.span = span
        elif self.more is None:
            self.more = [span]
        else:
            self.more.append(span)

    def spans(self) -> Iterator[tuple[int, int]]:
        """Yield where its records are; other records may be between them."""
        if self.span is not None:
            yield self.span
        yield from self.more or ()


class RecordLocks:
    """The locks of a share partition, by time and by member."""

    __slots__ = ("_by_duration", "_by_member")

    def __init__(self) -> None:
        # Locks of one duration end in the order in which they were taken, so each of these is sorted by itself.
        self._by_duration: dict[int, dict[RecordLock, None]] = {}
        self._by_member: dict[str, dict[RecordLock, None]] = {}

    def add(self, lock: RecordLock) -> None:
        self._by_duration.setdefault(lock.duration_ms, {})[lock] = None
        self._by_member.setdefault(lock.member_id, {})[lock] = None

    def let_go(self, lock: RecordLock, records: int) -> None:
        """Count records that are no longer held. A lock on nothing ends."""
        lock.held -= records
        if not lock.held:
            self.remove(lock)

    def remove(self, lock: RecordLock) -> None:
        _remove(self._by_duration, lock.duration_ms, lock)
        _remove(self._by_member, lock.member_id, lock)

    def of_member(self, member_id: str) -> list[RecordLock]:
        return list(self._by_member.get(member_id, ()))

    @property
    def next_deadline(self) -> float | None:
        """Return when the next lock ends; None if there is none."""
        return min((next(iter(locks)).deadline for locks in self._by_duration.values()), default=None)

    def expire(self, now: float) -> Iterator[RecordLock]:
        """Remove the locks whose time is over, and return them."""
        for locks in list(self._by_duration.values()):
            while locks and (lock := next(iter(locks))).deadline <= now:
                lock.is_expired = True
                self.remove(lock)
                yield lock


def _remove(groups: dict[K, dict[RecordLock, None]], key: K, lock: RecordLock) -> None:
    group = groups.get(key)
    if group is not None:
        group.pop(lock, None)
        if not group:
            del groups[key]
