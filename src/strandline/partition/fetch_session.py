"""Incremental fetch sessions (KIP-227): a client names its partitions once, then only what changed.

A session keeps the set of partitions with *news*: a new position, new data, an error. Idle partitions are not visited.
An entry listens to its partition for as long as the session lives, and the session notifies the waiting fetch, if any.
A fetch without a session is a session that is not kept.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from strandline.codec.fetch import FetchRequest, PartitionFetch
from strandline.errors import ErrorCode, RequestError
from strandline.partition.partition import Partition

if TYPE_CHECKING:
    from random import Random

FINAL_EPOCH: Final = -1
INITIAL_EPOCH: Final = 0
SESSION_IDLE_S: Final = 120.0
"""A session may be evicted for another when it was not used for this long (Kafka's figure)."""
SESSION_PARTITIONS_MAX: Final = 500_000
"""Partitions that all sessions together may remember, some 300 bytes each; further clients fetch without one."""
WAITING_PARTITIONS_MAX: Final = 1_000_000
"""Partitions of all fetches without a session that wait for records. Many clients never ask for a session."""

EntryKey = tuple[str | bytes, int]
FindPartition = Callable[[str | bytes, int], "Partition | int"]
"""The partition of a topic (by name or id bytes), or the error code why there is none."""


class Waiter(Protocol):
    def on_data(self, size_bytes: int) -> None: ...


class FetchEntry:
    """One partition in a session."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "partition",
        "sent_high_watermark",
        "sent_log_start_offset",
        "session",
        "size_bytes_max",
    )

    def __init__(self, session: FetchSession, key: EntryKey) -> None:
        self.session = session
        self.key = key
        self.partition: Partition | None = None
        self.fetch_offset = 0
        self.size_bytes_max = 0
        self.current_leader_epoch = -1
        self.last_fetched_epoch = -1
        """Epoch of the record before `fetch_offset`, as the reader knows it; detects truncation."""
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1

    def update(self, fetch: PartitionFetch) -> None:
        self.fetch_offset = fetch.fetch_offset
        self.size_bytes_max = fetch.size_bytes_max
        self.current_leader_epoch = fetch.current_leader_epoch
        self.last_fetched_epoch = fetch.last_fetched_epoch
        self.session.news[self.key] = self

    def on_advance(self, size_bytes: int) -> None:
        session = self.session
        session.news[self.key] = self
        if session.waiter is not None:
            session.waiter.on_data(size_bytes)

    def on_gone(self) -> None:
        self.leave()
        self.session.news[self.key] = self
        if self.session.waiter is not None:
            self.session.waiter.on_data(1 << 62)

    def follow(self, partition: Partition) -> None:
        self.partition = partition
        partition.advance_listeners[self] = None

    def leave(self) -> None:
        if self.partition is not None:
            self.partition.advance_listeners.pop(self, None)
            self.partition = None


class FetchSession:
    __slots__ = ("entries", "epoch", "id", "news", "used_at", "uses_topic_ids", "waiter", "waits")

    entry_type: type[FetchEntry] = FetchEntry
    is_privileged = False
    """Whether it may evict others when there is no room."""

    def __init__(self, session_id: int, *, uses_topic_ids: bool) -> None:
        self.id = session_id
        self.epoch = 1
        self.uses_topic_ids = uses_topic_ids
        self.entries: dict[EntryKey, FetchEntry] = {}
        self.news: dict[EntryKey, FetchEntry] = {}
        self.waiter: Waiter | None = None
        self.used_at = 0.0
        self.waits = 0
        """How many partitions of a waiting fetch without a session count towards the limit."""

    def update(self, request: FetchRequest) -> None:
        for fetch in request.partitions:
            key = (fetch[0], fetch[1])
            entry = self.entries.get(key)
            if entry is None:
                entry = self.entries[key] = self.entry_type(self, key)
            entry.update(fetch)
        for key in request.forgotten:
            entry = self.entries.pop(key, None)
            if entry is not None:
                entry.leave()
                self.news.pop(key, None)

    def close(self) -> None:
        for entry in self.entries.values():
            entry.leave()
        self.entries.clear()
        self.news.clear()


class FetchSessions:
    """The sessions of a node, at most `sessions_max`; the least recently used is evicted."""

    def __init__(self, random: Random, *, sessions_max: int, partitions_max: int = SESSION_PARTITIONS_MAX) -> None:
        self.random = random
        self.sessions_max = sessions_max
        self.partitions_max = partitions_max
        self.partitions = 0
        self.waiting_max = WAITING_PARTITIONS_MAX
        self.waiting = 0
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def may_wait(self, session: FetchSession) -> bool:
        """Count a fetch that is about to wait, or return False because too many wait; a session is counted already."""
        if session.id or session.waits:
            return True
        if self.waiting + len(session.entries) > self.waiting_max:
            return False
        session.waits = len(session.entries)
        self.waiting += session.waits
        return True

    def on_waited(self, session: FetchSession) -> None:
        """Stop counting a fetch that was answered, or whose client disconnected."""
        self.waiting -= session.waits
        session.waits = 0

    def session_for(
        self,
        request: FetchRequest,
        *,
        uses_topic_ids: bool,
        now: float,
        session_type: type[FetchSession] = FetchSession,
    ) -> tuple[FetchSession, bool]:
        """Return the session of a request, and whether the answer is a full one.

        Raises RequestError where the client must begin a new session.
        """
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._drop(request.session_id)
            session = session_type(0, uses_topic_ids=uses_topic_ids)
            count = len(request.partitions)
            if request.session_epoch == INITIAL_EPOCH and count and self._make_room(session, count, now):
                session.id = self._new_id()
                self._sessions[session.id] = session
            session.used_at = now
            session.update(request)
            if session.id:
                self.partitions += len(session.entries)
            return session, True
        known = self._sessions.get(request.session_id)
        if type(known) is not session_type:
            # Unknown, or of another kind: a consumer must not read or acknowledge in the session of a follower.
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, f"no fetch session {request.session_id}")
        if known.epoch != request.session_epoch:
            raise RequestError(
                ErrorCode.INVALID_FETCH_SESSION_EPOCH,
                f"fetch session epoch {request.session_epoch}; {known.epoch} is next",
            )
        if known.uses_topic_ids != uses_topic_ids:
            raise RequestError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, "the session names its topics another way")
        known.epoch = known.epoch % 0x7FFFFFFF + 1
        known.used_at = now
        self._sessions.move_to_end(known.id)
        count = len(known.entries)
        known.update(request)
        self.partitions += len(known.entries) - count
        if self.partitions > self.partitions_max and len(known.entries) > count:
            self._drop(known.id)
            raise RequestError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "there is no room for a session that grows")
        if not known.entries:
            # Nothing is left to follow: the session ends, and an id of 0 in the answer says so, as Kafka does.
            self._drop(known.id)
            known.id = 0
            return known, True
        return known, False

    def drop(self, session: FetchSession) -> None:
        """End a session; its id becomes 0, as that of a fetch without one."""
        self._drop(session.id)
        session.id = 0

    def _make_room(self, session: FetchSession, count: int, now: float) -> bool:
        """Evict idle sessions, or any for a follower, until `count` partitions have room. Return whether they do."""
        while len(self._sessions) >= self.sessions_max or self.partitions + count > self.partitions_max:
            if not self._sessions:
                return False
            oldest = next(iter(self._sessions.values()))
            if now - oldest.used_at < SESSION_IDLE_S:
                if not session.is_privileged:
                    return False
                ordinary = next((each for each in self._sessions.values() if not each.is_privileged), None)
                if ordinary is None:
                    return False
                oldest = ordinary
            self._drop(oldest.id)
        return True

    def _new_id(self) -> int:
        while True:
            session_id = self.random.randrange(1, 1 << 31)
            if session_id not in self._sessions:
                return session_id

    def _drop(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.partitions -= len(session.entries)
            session.close()
