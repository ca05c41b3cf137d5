"""The ids of requests that were written lately. They are part of the position, so they outlive the task.

They lie in a ring of slots, and each slot is a partition of the source. A batch stores only the slots that it changed,
a kilobyte or so, and not every id with every batch.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from strandline.connect.records import SourceOffsets, SourcePosition

SLOTS: Final = 16
_DIGEST_BYTES: Final = 12


class RecentIds:
    """The last ids, at least `ids_max` of them, and the number of the batch that each was written with.

    Ids are kept as digests, because a sender chooses their length.
    """

    def __init__(self, source: Mapping[str, Any], ids_max: int, offsets: SourceOffsets) -> None:
        self._source = source
        self._slot_max = -(-ids_max // (SLOTS - 1))
        self._numbers: dict[str, int] = {}
        self._slots: list[list[str]] = [[] for _ in range(SLOTS)]
        self._turn = 0
        """The slot that is filled now; it grows for ever, and modulo SLOTS is its place."""
        self._changed: set[int] = set()
        self.sequence = 0
        """The number of the last batch."""
        for slot in range(SLOTS):
            stored = offsets.get(self._partition(slot)) or {}
            self._slots[slot] = [str(each) for each in stored.get("ids", ())]
            self._turn = max(self._turn, int(stored.get("turn", 0)))
            self.sequence = max(self.sequence, int(stored.get("sequence", 0)))
        for ids in self._slots:
            self._numbers.update(dict.fromkeys(ids, self.sequence))

    def number_of(self, id: str) -> int | None:
        """Return the number of the batch that an id was written with; None if it is not among the recent ones."""
        return self._numbers.get(_digest(id))

    def add(self, id: str, number: int) -> None:
        """Remember an id that is about to be written."""
        if len(self._slots[self._turn % SLOTS]) >= self._slot_max:
            self._turn += 1
            for each in self._slots[self._turn % SLOTS]:
                self._numbers.pop(each, None)
            self._slots[self._turn % SLOTS] = []
        self._slots[self._turn % SLOTS].append(_digest(id))
        self._numbers[_digest(id)] = number
        self._changed.add(self._turn)

    def positions(self, number: int) -> list[SourcePosition]:
        """Return the positions behind the batch of a number: the slots that changed."""
        self.sequence = number
        changed = {turn % SLOTS: turn for turn in sorted(self._changed)} or {self._turn % SLOTS: self._turn}
        self._changed.clear()
        return [
            (self._partition(slot), {"sequence": number, "turn": turn, "ids": list(self._slots[slot])})
            for slot, turn in changed.items()
        ]

    def _partition(self, slot: int) -> dict[str, Any]:
        return {**self._source, "slot": slot}


def _digest(id: str) -> str:
    found = hashlib.sha256(id.encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]
    return base64.urlsafe_b64encode(found).decode("ascii")
