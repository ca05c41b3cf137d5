"""The requests that wait at a partition: produces to be committed, fetches for records."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Protocol

from strandline.errors import ErrorCode, RequestError

OnCommitted = Callable[[Exception | None], None]


class CommitListener(Protocol):
    """A Produce that was appended and waits for the high watermark to pass it."""

    def on_commit(self, error_code: int) -> None:
        """Learn that the records are committed (0), or that this node will not commit them."""


class AdvanceListener(Protocol):
    """A fetch, or a fetch session, that follows a partition."""

    def on_advance(self, size_bytes: int) -> None:
        """Learn that `size_bytes` more are visible."""

    def on_gone(self) -> None:
        """Learn that the partition was deleted here, or its log failed."""


class AppendListener(Protocol):
    """A follower's fetch: what it waits for need not be committed."""

    def on_append(self, size_bytes: int) -> None:
        """Learn that the log is `size_bytes` longer."""

    def on_start_moved(self) -> None:
        """Learn that the log starts later, so that the follower's log does, too."""

    def on_gone(self) -> None:
        """Learn that the partition was deleted here, is led by another node, or its log failed."""


class InternalCommit:
    """An append of the node itself that waits for the high watermark to pass it."""

    __slots__ = ("_on_committed",)

    def __init__(self, on_committed: OnCommitted) -> None:
        self._on_committed = on_committed

    def on_commit(self, error_code: int) -> None:
        self._on_committed(RequestError(ErrorCode(error_code), "the append was not committed") if error_code else None)


class CommitCallback:
    """A function that is called with the error code."""

    __slots__ = ("_on_commit",)

    def __init__(self, on_commit: Callable[[int], object]) -> None:
        self._on_commit = on_commit

    def on_commit(self, error_code: int) -> None:
        self._on_commit(error_code)


class DelayedOperations:
    """The requests that wait at a partition, each with the offset that completes it."""

    __slots__ = ("flushes", "produces", "trims")

    def __init__(self) -> None:
        self.produces: deque[tuple[int, CommitListener]] = deque()
        """Waiting for the high watermark."""
        self.flushes: deque[tuple[int, CommitListener]] = deque()
        """Waiting for the flushed offset."""
        self.trims: list[tuple[int, CommitListener]] = []
        """Waiting for the low watermark."""

    def on_flushed(self, offset: int) -> None:
        waiting = self.flushes
        while waiting and waiting[0][0] <= offset:
            waiting.popleft()[1].on_commit(0)

    def on_trimmed(self, low_watermark: int) -> None:
        waiting, self.trims = self.trims, []
        for offset, listener in waiting:
            if offset <= low_watermark:
                listener.on_commit(0)
            else:
                self.trims.append((offset, listener))

    def refuse_produces(self, error_code: int) -> None:
        """Fail the waiting produces, so that their clients try again. Appends of coordinators go on waiting, because
        coordinators answer for what is in the log."""
        waiting = list(self.produces)
        self.produces.clear()
        for commits_at, listener in waiting:
            if isinstance(listener, InternalCommit):
                self.produces.append((commits_at, listener))
            else:
                listener.on_commit(error_code)

    def refuse_flushes(self, error_code: int) -> None:
        while self.flushes:
            self.flushes.popleft()[1].on_commit(error_code)

    def abandon(self, error_code: int) -> None:
        """Fail everything that waits."""
        trims, self.trims = self.trims, []
        for _, listener in trims:
            listener.on_commit(error_code)
        while self.produces:
            self.produces.popleft()[1].on_commit(error_code)
        self.refuse_flushes(error_code)
