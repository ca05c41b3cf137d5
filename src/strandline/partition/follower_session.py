"""The fetch session of a follower: it is notified of appends, of the high watermark, and of the log start offset.

A follower needs the high watermark soon, because it may be the next leader, and counts nothing above it as committed.
So a waiting fetch is also answered when the high watermark has moved (KIP-1166), with or without records.
"""

from __future__ import annotations

from typing import Protocol, cast

from strandline.codec.fetch import KNOWS_ALL, PartitionFetch
from strandline.partition.fetch_session import EntryKey, FetchEntry, FetchSession
from strandline.partition.partition import Partition


class FollowerWaiter(Protocol):
    def on_data(self, size_bytes: int) -> None: ...

    def on_high_watermark(self) -> None: ...


class FollowerEntry(FetchEntry):
    """One partition that a follower follows. `sent_high_watermark` is what it knows of it."""

    __slots__ = ("is_counted", "log_start_offset")

    def __init__(self, session: FetchSession, key: EntryKey) -> None:
        super().__init__(session, key)
        self.log_start_offset = -1
        self.is_counted = False
        """Whether the offset was compared with the leader's log, and acknowledged what is below it."""

    def update(self, fetch: PartitionFetch) -> None:
        super().update(fetch)
        self.log_start_offset = fetch.log_start_offset
        self.is_counted = False
        if fetch.high_watermark != KNOWS_ALL:
            self.sent_high_watermark = fetch.high_watermark

    def on_append(self, size_bytes: int) -> None:
        session = self.session
        session.news[self.key] = self
        if session.waiter is not None:
            session.waiter.on_data(size_bytes)

    def on_start_moved(self) -> None:
        self.on_advance(0)

    def on_advance(self, size_bytes: int) -> None:
        session = self.session
        session.news[self.key] = self
        if session.waiter is not None:
            cast(FollowerWaiter, session.waiter).on_high_watermark()

    def follow(self, partition: Partition) -> None:
        super().follow(partition)
        partition.append_listeners[self] = None

    def leave(self) -> None:
        self.is_counted = False
        if self.partition is not None:
            self.partition.append_listeners.pop(self, None)
        super().leave()


class FollowerSession(FetchSession):
    __slots__ = ("replica_id", "told_at")

    entry_type = FollowerEntry
    is_privileged = True

    def __init__(self, session_id: int, *, uses_topic_ids: bool) -> None:
        super().__init__(session_id, uses_topic_ids=uses_topic_ids)
        self.replica_id = -1
        self.told_at = float("-inf")
        """When a high watermark was last sent without records."""
