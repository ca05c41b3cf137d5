"""Work that waits for its turn: in the order of a key one at a time, while other keys go on. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

W = TypeVar("W")


class KeyQueues(Generic[W]):
    """Queues by key. Work without a key waits for nothing."""

    def __init__(self) -> None:
        self._ready: deque[tuple[Hashable | None, W]] = deque()
        """Work whose turn it is, with its key."""
        self._behind: dict[Hashable, deque[W]] = {}
        """Work behind another one of its key. A key is there while its first work is ready or under way."""
        self.count = 0
        """Work that was not begun."""

    def add(self, key: Hashable | None, work: W) -> None:
        self.count += 1
        if key is None:
            self._ready.append((None, work))
        elif key in self._behind:
            self._behind[key].append(work)
        else:
            self._behind[key] = deque()
            self._ready.append((key, work))

    def begin(self) -> W | None:
        """Return work whose turn it is, or None if there is none."""
        if not self._ready:
            return None
        self.count -= 1
        return self._ready.popleft()[1]

    def end(self, key: Hashable | None) -> None:
        """Note that work which was begun has ended: it is the turn of the next one of its key."""
        if key is None:
            return
        if self._behind[key]:
            self._ready.append((key, self._behind[key].popleft()))
        else:
            del self._behind[key]

    def drop(self, is_dropped: Callable[[W], bool]) -> None:
        """Drop work that was not begun. What is under way still comes before the rest of its key."""
        for behind in self._behind.values():
            kept = [work for work in behind if not is_dropped(work)]
            self.count -= len(behind) - len(kept)
            behind.clear()
            behind.extend(kept)
        ready, self._ready = self._ready, deque()
        for key, work in ready:
            if is_dropped(work):
                self.count -= 1
                self.end(key)
            else:
                self._ready.append((key, work))
