"""What a broker asks of one leader whose partitions it follows: an incremental fetch session, one fetch at a time.

The driver names the partitions to follow and their positions, sends `next_request`, and passes the answer to
`on_answer`, which returns the partitions for which it counts. The driver appends or truncates, sets the new positions
by `move`, and takes the next request. If no answer comes, `on_failure` starts a new session.

The leader takes the fetch offset as an acknowledgement, and the follower appends what it sends. So an answer counts
only for a partition that has the same leader epoch and offset as when the request was sent. One that was truncated,
moved to another leader or removed in between is skipped: a stale answer has once truncated a log below its high
watermark.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

from strandline.codec.fetch import FetchAnswer, FetchedPartition, PartitionFetch
from strandline.errors import ErrorCode

PARTITIONS_PER_REQUEST_MAX: Final = 5_000
"""Partitions that one request names; the others come with the next."""
SESSION_ERRORS: Final = frozenset(
    (
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
    )
)

Key = tuple[bytes, int]
"""Topic id and partition: a topic that was deleted and made again under its name is another one."""


class Position(NamedTuple):
    """The position of a follower's log, in the terms of a Fetch."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """Epoch of the last record here, -1 in an empty log; detects divergence."""
    log_start_offset: int
    high_watermark: int


@dataclasses.dataclass(slots=True)
class _Followed:
    position: Position
    size_bytes_max: int
    asked: Position | None = None
    """The position in the leader's session; None if it does not hold the partition."""
    is_held: bool = False


class FollowerRequest(NamedTuple):
    """One Fetch to be sent."""

    session_id: int
    session_epoch: int
    partitions: list[PartitionFetch]
    forgotten: list[Key]


class FollowerFetches:
    def __init__(self) -> None:
        self._followed: dict[Key, _Followed] = {}
        self._news: dict[Key, None] = {}
        """Partitions whose position the leader does not know yet, in the order in which they moved."""
        self._forgotten: dict[Key, None] = {}
        """Partitions that the leader's session holds and should not."""
        self._session_id = 0
        self._session_epoch = 0
        self._in_flight: FollowerRequest | None = None

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, key: Key) -> bool:
        return key in self._followed

    @property
    def is_waiting(self) -> bool:
        """Return whether a request is in flight."""
        return self._in_flight is not None

    def is_as_asked(self, key: Key) -> bool:
        """Return whether a partition still has the position of the request."""
        followed = self._followed.get(key)
        return followed is not None and not followed.is_held and _is_as_asked(followed)

    # What to follow

    def follow(self, key: Key, position: Position, *, size_bytes_max: int) -> None:
        """Fetch a partition from here on; also when its leader begins a new epoch."""
        known = self._followed.get(key)
        if known is None:
            self._followed[key] = _Followed(position, size_bytes_max)
            self._news[key] = None
        else:
            known.size_bytes_max = size_bytes_max
            self.move(key, position)

    def move(self, key: Key, position: Position) -> None:
        """Set the position of a partition after an append or a truncation. A paused one is fetched again."""
        followed = self._followed[key]
        followed.position = position
        followed.is_held = False
        if not _is_as_asked(followed):
            self._news[key] = None

    def hold(self, key: Key) -> None:
        """Stop fetching a partition until `move`: something failed, or its log is being truncated."""
        followed = self._followed[key]
        followed.is_held = True
        self._leave_session(key, followed)

    def unfollow(self, key: Key) -> None:
        followed = self._followed.pop(key, None)
        if followed is not None:
            self._leave_session(key, followed)

    def _leave_session(self, key: Key, followed: _Followed) -> None:
        self._news.pop(key, None)
        if followed.asked is not None:
            followed.asked = None
            self._forgotten[key] = None

    # Asking

    def next_request(self) -> FollowerRequest | None:
        """Return the next Fetch to send; None while one is in flight or there is nothing to fetch."""
        if self._in_flight is not None:
            return None
        if self._session_epoch == 0:
            self._forgotten.clear()
            self._news = {key: None for key, each in self._followed.items() if not each.is_held}
        if not self._news and not self._has_any():
            return None
        partitions: list[PartitionFetch] = []
        for key in list(self._news)[:PARTITIONS_PER_REQUEST_MAX] if len(self._news) > 1 else self._news:
            followed = self._followed[key]
            followed.asked = position = followed.position
            partitions.append(
                PartitionFetch(
                    key[0],
                    key[1],
                    position.leader_epoch,
                    position.fetch_offset,
                    position.last_fetched_epoch,
                    position.log_start_offset,
                    followed.size_bytes_max,
                    position.high_watermark,
                )
            )
        # A partition that is fetched again need not be removed first: a new position replaces the old one.
        forgotten = [key for key in self._forgotten if key not in self._news]
        self._forgotten.clear()
        if len(partitions) == len(self._news):
            self._news.clear()
        else:
            for fetch in partitions:
                assert isinstance(fetch.topic, bytes)
                del self._news[fetch.topic, fetch.partition]
        self._in_flight = FollowerRequest(self._session_id, self._session_epoch, partitions, forgotten)
        return self._in_flight

    def _has_any(self) -> bool:
        """Return whether the session holds a partition. Called only when nothing changed."""
        return any(each.asked is not None for each in self._followed.values())

    # Being answered

    def on_answer(self, answer: FetchAnswer) -> list[tuple[Key, FetchedPartition]]:
        """Return the answer for the partitions that still have the position of the request."""
        asked_of_all = self._in_flight is not None and self._session_epoch == 0
        self._in_flight = None
        if answer.error_code:
            self._begin_anew()
            return []
        if answer.session_id == 0:
            # The leader has no room for a session: every request names everything.
            self._session_id = self._session_epoch = 0
        else:
            self._session_id = answer.session_id
            self._session_epoch = 1 if asked_of_all else self._session_epoch % 0x7FFFFFFF + 1
        valid: list[tuple[Key, FetchedPartition]] = []
        for fetched in answer.partitions:
            key = (fetched.topic, fetched.partition)
            followed = self._followed.get(key)
            if followed is not None and _is_as_asked(followed):
                valid.append((key, fetched))
        return valid

    def on_failure(self) -> None:
        """Start a new session, because no answer will come and the state of the leader's session is unknown."""
        self._in_flight = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        # With the old id and epoch 0, so that the leader drops the old session.
        self._session_epoch = 0
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.asked = None


def _is_as_asked(followed: _Followed) -> bool:
    """Return whether the leader was asked for the current position. A high watermark does not change it."""
    return followed.asked is not None and followed.asked[:4] == followed.position[:4]
