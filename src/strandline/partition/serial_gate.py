"""A gate that admits one user at a time, in the order in which they came."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class SerialGate:
    """A guard of what may be in memory only once: an opened batch. Each user that entered must leave."""

    __slots__ = ("_is_taken", "_waiting")

    def __init__(self) -> None:
        self._is_taken = False
        self._waiting: deque[Callable[[], object]] = deque()

    def enter(self, begin: Callable[[], object]) -> None:
        """Call `begin` when no other user is in: now, or when those before have left."""
        if self._is_taken:
            self._waiting.append(begin)
        else:
            self._is_taken = True
            begin()

    def leave(self) -> None:
        assert self._is_taken
        if self._waiting:
            self._waiting.popleft()()
        else:
            self._is_taken = False
