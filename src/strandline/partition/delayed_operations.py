"""Who waits at a partition: produces for their records to be committed, fetches for records to come."""

from __future__ import annotations

from typing import Protocol


class CommitListener(Protocol):
    """A Produce that was appended and waits for the high watermark to pass it."""

    def on_commit(self, error_code: int) -> None:
        """The records are committed (0), or never will be by this node."""


class AdvanceListener(Protocol):
    """A fetch, or a fetch session, that follows a partition."""

    def on_advance(self, size_bytes: int) -> None:
        """Readers may see `size_bytes` more."""

    def on_gone(self) -> None:
        """The partition was deleted here, or its log failed."""


class AppendListener(Protocol):
    """A follower's fetch: what it waits for need not be committed."""

    def on_append(self, size_bytes: int) -> None:
        """The log is `size_bytes` longer."""

    def on_start_moved(self) -> None:
        """The log starts later: the follower's is to, and it might hear of nothing else for long."""

    def on_gone(self) -> None:
        """The partition was deleted here, is led by another, or its log failed."""
