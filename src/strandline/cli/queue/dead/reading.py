"""Dead letters of a topic, read from its beginning to its end as it was at the start, with what was handled of them."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from strandline.cli.common.client import Cluster, admin_api
from strandline.cli.common.failures import CommandFailed
from strandline.cli.common.positions import Earliest, Latest
from strandline.cli.queue.dead.letters import DeadLetter, dead_letter_of
from strandline.cli.queue.dead.marks import HandledOffsets, marked_spans
from strandline.cli.records.reading import Ranges, Reading, look_up_ranges
from strandline.cli.records.record import ReadRecord
from strandline.cli.topic.topics import chosen_partitions, described, look_up_offsets

SETTLE_S = 90.0
"""How long an open transaction is waited for: longer than the broker lets one of its own be open."""
LOOK_AGAIN_S = 0.2


class DeadLetterTopic:
    """One dead-letter topic, up to its end as it was when it was opened."""

    def __init__(self, cluster: Cluster, admin: Any, name: str, partitions: list[int] | None = None) -> None:
        self._cluster = cluster
        self._admin = admin
        self.name = name
        self.partitions = chosen_partitions(described(cluster, admin, name), partitions)
        self.ranges = self._ranges()
        self.handled: dict[int, HandledOffsets] = defaultdict(HandledOffsets)
        """By partition."""
        self.others = 0
        """Records that are neither dead letters nor marks."""
        self.first_others: dict[int, int] = {}
        """By partition: the offset of the first of them."""
        self._marks_end: dict[int, int] = {}
        """By partition: up to where marks were read."""

    def _ranges(self) -> Ranges:
        return look_up_ranges(self._cluster, self._admin, self.name, self.partitions, Earliest(), Latest())

    def read_marks(self) -> None:
        """Learn what was handled, up to the end as it is now."""
        now = self._ranges()
        ranges = {
            partition: (start, max(start, self._marks_end.get(partition, start)), end)
            for partition, (start, _, end) in now.items()
        }
        Reading(self._cluster, self.name, ranges).run(_Marks(self.handled), follow=False)
        self._marks_end = {partition: end for partition, (_, _, end) in now.items()}

    def settle(self) -> None:
        """Wait until no open transaction hides a mark. The caller has seen to it that no other command writes one."""
        spec = admin_api().OffsetSpec.latest()
        places = [(self.name, partition) for partition in self.partitions]
        written = look_up_offsets(self._cluster, self._admin, places, spec)
        deadline = time.monotonic() + max(SETTLE_S, self._cluster.timeout_s)
        while hidden := [p for p, (_, _, end) in self._ranges().items() if end < (written[self.name, p] or 0)]:
            if time.monotonic() > deadline:
                raise CommandFailed(
                    f"an open transaction hides the end of {self.name}-{hidden[0]}, so what was handled is not known",
                    hint=f"see `strandline txn why {self.name}`; nothing was changed",
                )
            time.sleep(LOOK_AGAIN_S)

    def is_handled(self, letter: DeadLetter) -> bool:
        return letter.record.offset in self.handled[letter.record.partition]

    def read(self, take: Callable[[DeadLetter], bool]) -> None:
        """Call `take` with every dead letter, in the order of each partition, until it returns False."""
        self.others, self.first_others = 0, {}
        Reading(self._cluster, self.name, self.ranges).run(_Letters(self, take), follow=False)


class _Marks:
    """Keeps the marks of what is read."""

    done = False

    def __init__(self, handled: dict[int, HandledOffsets]) -> None:
        self._handled = handled

    def take(self, records: list[ReadRecord]) -> int:
        for record in records:
            for first, last in marked_spans(record) or ():
                self._handled[record.partition].add(first, last)
        return len(records)


class _Letters:
    """Passes dead letters on."""

    def __init__(self, topic: DeadLetterTopic, take: Callable[[DeadLetter], bool]) -> None:
        self._topic = topic
        self._take = take
        self.done = False

    def take(self, records: list[ReadRecord]) -> int:
        for at, record in enumerate(records):
            if marked_spans(record) is not None:
                continue
            letter = dead_letter_of(record)
            if letter is None:
                self._topic.others += 1
                self._topic.first_others.setdefault(record.partition, record.offset)
            elif not self._take(letter):
                self.done = True
                return at
        return len(records)
