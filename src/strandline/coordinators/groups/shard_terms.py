"""What names a record, a timer and a waiting request of a shard of groups.

Events and effects are made of these. They have a module of their own, because a node that only remembers plain commits
needs neither the events nor the messages of all groups to start.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

Token = object
"""Names one waiting request. Only the driver knows what is behind it."""


class CoordinatorRecord(NamedTuple):
    """One record of `__consumer_offsets`; a value of None is a tombstone."""

    key: bytes
    value: bytes | None

    @property
    def size_bytes(self) -> int:
        return len(self.key) + len(self.value or b"")


class TimerKind(StrEnum):
    SESSION = "session"
    """A member sent no heartbeat for its session timeout."""
    JOIN = "join"
    """The time to join the next generation is over."""
    SYNC = "sync"
    """The time to ask for the assignment of this generation is over."""
    REBALANCE = "rebalance"
    """A member of a consumer group has not released its revoked partitions in time."""
    EXPIRY = "expiry"
    """Unused offsets and groups are to be removed: one timer for the shard, its group id is empty."""


class TimerKey(NamedTuple):
    kind: TimerKind
    group_id: str
    member_id: str = ""
