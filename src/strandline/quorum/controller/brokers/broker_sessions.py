"""What the active controller knows of the brokers' heartbeats: soft state, lost with it and learnt again.

A new active controller gives every broker a fresh session: it cannot know when the last one got their heartbeats.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable
from typing import Final

LATE_S: Final = 1.0
"""A look at the sessions that comes so late means that this process was held up, not the brokers."""


@dataclasses.dataclass(slots=True)
class BrokerSession:
    broker_id: int
    heard_at: float
    metadata_offset: int = -1
    """The last offset of the metadata log that the broker has applied."""
    shutdown_offset: int = -1
    """Everything that moved leaders away from a broker that shuts down lies below; -1 while not all is moved."""
    offline_dirs: frozenset[uuid.UUID] = frozenset()
    is_extended: bool = False
    is_over: bool = False
    """Whether the broker is known to be dead, so that the session ends early."""


class BrokerSessions:
    """Sessions of all registered brokers, in the order of their ids."""

    def __init__(self) -> None:
        self._by_id: dict[int, BrokerSession] = {}

    def reset(self, broker_ids: Iterable[int], now: float, *, heard: tuple[int, float] | None = None) -> None:
        """Start sessions for all brokers; that of the broker in `heard` starts at the time given there."""
        self._by_id = {broker_id: BrokerSession(broker_id, now) for broker_id in sorted(broker_ids)}
        if heard is not None and heard[0] in self._by_id:
            self._by_id[heard[0]].heard_at = min(now, heard[1])

    def get(self, broker_id: int) -> BrokerSession | None:
        return self._by_id.get(broker_id)

    def begin(self, broker_id: int, now: float) -> BrokerSession:
        session = self._by_id[broker_id] = BrokerSession(broker_id, now)
        return session

    def touch(self, broker_id: int, metadata_offset: int, now: float) -> BrokerSession:
        """Note a heartbeat. Heartbeats may overtake each other, so neither time nor offset goes back."""
        session = self._by_id.get(broker_id)
        if session is None:
            session = self.begin(broker_id, now)
        session.heard_at = max(session.heard_at, now)
        session.metadata_offset = max(session.metadata_offset, metadata_offset)
        session.is_extended = session.is_over = False
        return session

    def end(self, broker_id: int) -> None:
        self._by_id.pop(broker_id, None)

    def is_valid(self, broker_id: int, timeout_s: float, now: float) -> bool:
        session = self._by_id.get(broker_id)
        return session is not None and not session.is_over and now < session.heard_at + timeout_s

    def is_over(self, broker_id: int) -> bool:
        session = self._by_id.get(broker_id)
        return session is not None and session.is_over

    def stale(self, counts: Callable[[int], bool], timeout_s: float, now: float) -> list[int]:
        """Return dead brokers, then those without a heartbeat for a session, the oldest first, if `counts` is true."""
        dead = [session.broker_id for session in self._by_id.values() if session.is_over and counts(session.broker_id)]
        ended = [
            session
            for session in self._by_id.values()
            if not session.is_over and now >= session.heard_at + timeout_s and counts(session.broker_id)
        ]
        ended.sort(key=lambda session: (session.heard_at, session.broker_id))
        if ended and now - (ended[0].heard_at + timeout_s) > LATE_S:
            # This check is late because the process was stopped, and heartbeats may wait in its sockets. Each session
            # is extended once, so that they can be read.
            for session in ended:
                if not session.is_extended:
                    session.is_extended = True
                    session.heard_at = now - timeout_s + LATE_S
            ended = [session for session in ended if now >= session.heard_at + timeout_s]
        return dead + [session.broker_id for session in ended]

    def next_end(self, counts: Callable[[int], bool], timeout_s: float) -> float | None:
        """Return when the first session ends, of brokers that `counts` is true for."""
        return min(
            (
                session.heard_at if session.is_over else session.heard_at + timeout_s
                for session in self._by_id.values()
                if counts(session.broker_id)
            ),
            default=None,
        )

    def lowest_offset(self, broker_ids: Iterable[int]) -> int | None:
        """Return the lowest metadata offset that these brokers have applied; None if there are none."""
        sessions = (self._by_id.get(broker_id) for broker_id in broker_ids)
        return min((-1 if session is None else session.metadata_offset for session in sessions), default=None)
