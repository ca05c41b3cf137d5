"""What a broker asks of one leader whose partitions it follows: an incremental fetch session, one fetch at a time.

The driver tells which partitions to follow and where each of them stands, takes `next_request`, sends it, and gives
the answer to `on_answer`, which says for which partitions it counts. The driver appends or truncates, tells the new
positions by `move`, and asks for the next request. Where no answer comes, `on_failure` begins the session anew.

The leader takes the offset asked for as an acknowledgement, and what it sends is appended unseen. So an answer counts
only for a partition that still stands where it stood when the question was sent: same leader epoch, same offset. One
that was truncated, moved to another leader or removed in between is passed over; a stale answer has once truncated a
log below its high watermark.
"""

from __future__ import annotations

import dataclasses
from typing import Final, NamedTuple

from strandline.codec.fetch import FetchAnswer, FetchedPartition, PartitionFetch
from strandline.errors import ErrorCode

PARTITIONS_PER_REQUEST_MAX: Final = 5_000
"""Partitions that one request tells the leader about; the others come with the next."""
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
    """Where a follower's log stands, in the words of a Fetch."""

    leader_epoch: int
    fetch_offset: int
    last_fetched_epoch: int
    """The epoch of the last record here, by which the leader sees whether the logs have parted; -1 in an empty log."""
    log_start_offset: int
    high_watermark: int


@dataclasses.dataclass(slots=True)
class _Followed:
    position: Position
    size_bytes_max: int
    asked: Position | None = None
    """What the leader's session holds; None if it does not know the partition."""
    is_held: bool = False


class FollowerRequest(NamedTuple):
    """One Fetch to be sent."""

    session_id: int
    session_epoch: int
    partitions: list[PartitionFetch]
    forgotten: list[Key]


class Follower:
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
        """Whether a request is out."""
        return self._in_flight is not None

    def is_as_asked(self, key: Key) -> bool:
        """Whether a partition still stands where the leader was asked about it."""
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
        """A partition stands elsewhere now: records were appended or cut. It is asked for again if it was held."""
        followed = self._followed[key]
        followed.position = position
        followed.is_held = False
        if not _is_as_asked(followed):
            self._news[key] = None

    def hold(self, key: Key) -> None:
        """Do not ask for a partition until it is moved: something failed, or its log is being cut."""
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
        """The next Fetch to send; None while one is out or nothing is to be asked for."""
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
        # What is asked for again after it was held needs no farewell: a new position replaces the old one.
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
        """Whether the session holds a partition. Only asked when there is no news, and mostly the first one tells."""
        return any(each.asked is not None for each in self._followed.values())

    # Being answered

    def on_answer(self, answer: FetchAnswer) -> list[tuple[Key, FetchedPartition]]:
        """What the leader said of partitions that still stand where they stood when it was asked."""
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
        """No answer will come. What the leader made of the request nobody knows: the session begins anew."""
        self._in_flight = None
        self._begin_anew()

    def _begin_anew(self) -> None:
        # With the old id and epoch 0: the leader need not keep what nobody will ask for.
        self._session_epoch = 0
        self._forgotten.clear()
        for followed in self._followed.values():
            followed.asked = None


def _is_as_asked(followed: _Followed) -> bool:
    """Whether the leader was asked for the place where the log stands. A high watermark moves nothing."""
    return followed.asked is not None and followed.asked[:4] == followed.position[:4]
