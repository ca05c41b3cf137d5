"""Share sessions: the partitions that a member reads at one broker, named once and then only when they change."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

from strandline.errors import ErrorCode, RequestError

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_EPOCH_MAX: Final = 0x7FFFFFFF

C = TypeVar("C")
PartitionName = tuple[bytes, int]
"""Topic id and index of a partition."""


class ShareSession(Generic[C]):
    """What one member of a share group reads at this broker."""

    __slots__ = ("connection", "epoch", "group_id", "is_ended", "member_id", "partitions")

    def __init__(self, group_id: str, member_id: str, connection: C) -> None:
        self.group_id = group_id
        self.member_id = member_id
        self.connection = connection
        """The connection that it was opened by; it ends with it."""
        self.epoch = 1
        """The epoch of the next request."""
        self.partitions: dict[PartitionName, None] = {}
        self.is_ended = False

    def update(self, added: Iterable[PartitionName], forgotten: Iterable[PartitionName]) -> None:
        for name in added:
            self.partitions[name] = None
        for name in forgotten:
            self.partitions.pop(name, None)

    def rotated(self) -> list[PartitionName]:
        """Return the partitions, beginning with another one each time, so that none starves."""
        names = list(self.partitions)
        if len(names) < 2:
            return names
        begin = self.epoch % len(names)
        return names[begin:] + names[:begin]


class ShareSessions(Generic[C]):
    """The share sessions of a broker."""

    def __init__(self, sessions_max: Callable[[], int]) -> None:
        self._sessions_max = sessions_max
        self._sessions: dict[tuple[str, str], ShareSession[C]] = {}
        self._of_connection: dict[C, list[ShareSession[C]]] = {}
        self._of_group: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, group_id: str, member_id: str) -> ShareSession[C] | None:
        return self._sessions.get((group_id, member_id))

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of a group has a session."""
        return group_id in self._of_group

    def open(self, group_id: str, member_id: str, connection: C) -> ShareSession[C]:
        """Begin a session; the caller has ended a former one of the member."""
        if len(self._sessions) >= self._sessions_max():
            raise RequestError(
                ErrorCode.SHARE_SESSION_LIMIT_REACHED, f"the broker has {len(self._sessions)} share sessions"
            )
        session = ShareSession(group_id, member_id, connection)
        self._sessions[group_id, member_id] = session
        self._of_connection.setdefault(connection, []).append(session)
        self._of_group[group_id] = self._of_group.get(group_id, 0) + 1
        return session

    def resume(self, group_id: str, member_id: str, epoch: int) -> ShareSession[C]:
        """Return the session of a request, and count the request. The final epoch ends no session by itself."""
        session = self._sessions.get((group_id, member_id))
        if session is None:
            raise RequestError(ErrorCode.SHARE_SESSION_NOT_FOUND, f"no share session of member {member_id!r}")
        if epoch != FINAL_EPOCH:
            if epoch != session.epoch:
                raise RequestError(
                    ErrorCode.INVALID_SHARE_SESSION_EPOCH, f"share session epoch {epoch}; {session.epoch} is next"
                )
            session.epoch = 1 if epoch == _EPOCH_MAX else epoch + 1
        return session

    def end(self, session: ShareSession[C]) -> bool:
        """Remove a session. Return False if it was removed before."""
        key = session.group_id, session.member_id
        if self._sessions.get(key) is not session:
            return False
        session.is_ended = True
        del self._sessions[key]
        of_connection = self._of_connection[session.connection]
        of_connection.remove(session)
        if not of_connection:
            del self._of_connection[session.connection]
        left = self._of_group[session.group_id] - 1
        if left:
            self._of_group[session.group_id] = left
        else:
            del self._of_group[session.group_id]
        return True

    def of_connection(self, connection: C) -> list[ShareSession[C]]:
        return list(self._of_connection.get(connection, ()))
