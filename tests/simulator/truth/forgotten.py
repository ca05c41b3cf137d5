"""What is left to judge of a topic whose records leave at its start: the history above the highest start there was."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from strandline.codec.columns import decode_batch
from strandline.testing.history import Mop, Op, Poll, Send

if TYPE_CHECKING:
    from tests.simulator.options import TopicOptions
    from tests.simulator.truth.invariants import Invariants


class Forgotten:
    def __init__(self, invariants: Invariants) -> None:
        self._invariants = invariants
        self._offsets: dict[str, int] = {}
        """Of every value that was ever committed."""

    def watch(self, topic: TopicOptions) -> None:
        assert topic.partitions == 1, "what is committed does not say to which partition"
        self._invariants.on_committed[topic.name] = self._learn

    def _learn(self, batch: bytes) -> None:
        for record in decode_batch(batch):
            self._offsets[(record.value or b"").decode()] = record.offset

    def left_of(self, ops: Iterable[Op]) -> list[Op]:
        """Return the operations without what they say of records below the start.

        An acknowledged record whose offset no client got is looked up in what was committed.
        """
        left = []
        for op in ops:
            mops = tuple(each for each in map(self._left_of, op.mops) if each is not None)
            if mops or not op.mops:
                left.append(replace(op, mops=mops))
        return left

    def _left_of(self, mop: Mop) -> Mop | None:
        if isinstance(mop, Poll):
            start = self._start(mop.partition)
            return Poll(mop.partition, tuple(record for record in mop.records if record[0] >= start))
        if isinstance(mop, Send):
            offset = self._offsets.get(mop.value, mop.offset)
            if offset is not None and offset < self._start(mop.partition):
                return None
        return mop

    def _start(self, name: str) -> int:
        topic, _, index = name.rpartition("-")
        topic_id = self._invariants.image.topics[topic].id
        return self._invariants.partitions[topic_id.bytes, int(index)].start
