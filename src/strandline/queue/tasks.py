"""A task as a handler gets it, and what a handler raises to say what becomes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple


class Reject(Exception):
    """Raised by a handler for a task that no attempt can do: it is not delivered again.

    It goes to the dead letters of the group, if the group has a topic for them.
    """


class Retry(Exception):
    """Raised by a handler for a task that another attempt may do, without a traceback in the log."""


class QueueTask(NamedTuple):
    """One record of a topic, delivered to this worker alone until its lock ends."""

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp_ms: int
    attempt: int
    """How often it was delivered, this time included. 1 the first time."""

    @property
    def name(self) -> str:
        """Return topic, partition and offset, as `strandline queue trace` takes them."""
        return f"{self.topic}-{self.partition}@{self.offset}"


Handler = Callable[[QueueTask], object] | Callable[[QueueTask], Awaitable[object]]
