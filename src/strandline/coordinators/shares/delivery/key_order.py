"""Records of one key, one after the other: which record of a key is the first that is not done, and which follow it.

Keys are known by a hash. Two keys that have the same one wait for each other, which is slower and never wrong.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

KEY_WAITING_MAX: Final = 100_000
"""Records of a partition that wait for others of their keys: at most some 300 bytes each."""


class KeyOrder:
    """The records with a key that are not done. Work is per record, memory per record and key."""

    __slots__ = ("_following", "_heads", "_tails", "scanned")

    def __init__(self, start_offset: int) -> None:
        self.scanned = start_offset
        """The keys of all records below are known."""
        self._heads: dict[int, int] = {}
        """The first record of each key, by offset, with the hash of its key."""
        self._tails: dict[int, int] = {}
        """The last record of each key, by hash."""
        self._following: dict[int, int] = {}
        """The next record of the same key, by offset."""

    def add(self, offset: int, key: int) -> bool:
        """Put a record behind those of its key. Return whether it is the first one."""
        tail = self._tails.get(key)
        self._tails[key] = offset
        if tail is None:
            self._heads[offset] = key
            return True
        self._following[tail] = offset
        return False

    def remove(self, first: int, last: int) -> Iterator[int]:
        """Forget first records between two offsets, which are done. Yield those that are first now."""
        heads = self._heads
        if last - first < len(heads):
            done = [offset for offset in range(first, last + 1) if offset in heads]
        else:
            done = [offset for offset in heads if first <= offset <= last]
        for offset in done:
            following: int | None = offset
            while following is not None and following <= last:
                following = self._remove(following)
            if following is not None:
                yield following

    def _remove(self, offset: int) -> int | None:
        """Forget the first record of a key. Return the one that is first now; None if there is none."""
        key = self._heads.pop(offset)
        following = self._following.pop(offset, None)
        if following is None:
            del self._tails[key]
        else:
            self._heads[following] = key
        return following
