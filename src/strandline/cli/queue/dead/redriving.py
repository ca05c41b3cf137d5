"""Redrives dead letters of a topic: the plan, and the work in transactions. It defines no command."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from strandline.cli.common.client import Cluster
from strandline.cli.common.plain_words import count
from strandline.cli.config.access import known_topics
from strandline.cli.queue.dead.handling import LetterHandling, RatePacing, RedrivenCopy
from strandline.cli.queue.dead.letters import DeadLetter, LetterFilter, rounds_of, with_redrive_headers
from strandline.cli.queue.dead.reading import DeadLetterTopic
from strandline.cli.queue.dead.sources import SourceRecordReader, is_gone
from strandline.cli.topic.topics import OffsetRange, described_all, offset_ranges

ROUNDS_DEFAULT = 3


@dataclass
class RedrivePlan:
    """What a redrive would do."""

    targets: Counter[str] = field(default_factory=Counter)
    """Dead letters by the topic that they go to."""
    uncopied: int = 0
    """Those of them whose content is read from the source."""
    worn: int = 0
    """Redriven too often already."""
    gone: int = 0
    """Without a copy, and the source has dropped the record."""
    handled: int = 0

    @property
    def total(self) -> int:
        return sum(self.targets.values())

    def lines(self, topic: str, rounds: int) -> list[str]:
        lines = [
            f"redrive {count(number, 'dead letter')} of {topic} to {target}"
            for target, number in sorted(self.targets.items())
        ]
        if self.uncopied:
            lines.append(f"{self.uncopied:,} of them have no copy: their content is read from the source")
        if self.worn:
            lines.append(f"leave {self.worn:,}: they were redriven {rounds} times already (--rounds)")
        if self.gone:
            lines.append(f"leave {self.gone:,}: they have no copy, and the source has dropped the record")
        if self.handled:
            lines.append(f"leave {self.handled:,}: they were handled before")
        return lines


class Redrive:
    """One redrive of a topic."""

    def __init__(
        self,
        cluster: Cluster,
        admin: Any,
        dead: DeadLetterTopic,
        is_wanted: LetterFilter,
        *,
        to: str | None,
        rounds: int,
        limit: int | None,
    ) -> None:
        self._cluster = cluster
        self._admin = admin
        self._dead = dead
        self._is_wanted = is_wanted
        self._to = to
        self._rounds = rounds
        self._limit = limit
        self._ranges: dict[tuple[str, int], OffsetRange] = {}
        self._partition_counts: dict[str, int] = {}
        self.missing = 0
        """Dead letters without a copy whose record was not found, or was redriven too often."""

    def plan(self) -> RedrivePlan:
        """Read the topic, and look at the topics that dead letters go to and came from."""
        self._dead.read_marks()
        found = RedrivePlan()
        uncopied: list[DeadLetter] = []

        def take(letter: DeadLetter) -> bool:
            if not self._is_wanted(letter):
                return True
            if self._dead.is_handled(letter):
                found.handled += 1
            elif letter.rounds >= self._rounds:
                found.worn += 1
            elif letter.has_copy:
                found.targets[self._target(letter)] += 1
            else:
                uncopied.append(letter)
            return self._limit is None or found.total + len(uncopied) < self._limit

        self._dead.read(take)
        self._look_up_sources(uncopied)
        for letter in uncopied:
            if is_gone(letter, self._ranges):
                found.gone += 1
            else:
                found.uncopied += 1
                found.targets[self._target(letter)] += 1
        topics = described_all(self._cluster, self._admin, found.targets)
        self._partition_counts = {name: len(topic.partitions) for name, topic in topics.items()}
        return found

    def _target(self, letter: DeadLetter) -> str:
        return self._to or letter.topic

    def _look_up_sources(self, letters: list[DeadLetter]) -> None:
        names = {letter.topic for letter in letters}
        if names:
            there = names.intersection(known_topics(self._cluster, self._admin))
            topics = described_all(self._cluster, self._admin, there)
            self._ranges = offset_ranges(self._cluster, self._admin, topics.values())

    def run(self, pacing: RatePacing, reached: Callable[[int], object]) -> int:
        """Redrive in transactions; return how many dead letters were."""
        handling = LetterHandling(self._cluster, self._dead.name, "redriven")
        sources = SourceRecordReader(self._cluster)
        handling.begin()
        # Only now no other command can mark anything.
        self._dead.settle()
        self._dead.read_marks()
        batch: list[tuple[DeadLetter, RedrivenCopy]] = []
        redriven = 0

        def flush() -> None:
            nonlocal redriven
            if batch:
                handling.handle([letter for letter, _ in batch], [copy for _, copy in batch])
                redriven += len(batch)
                reached(redriven)
                pacing.wait(len(batch))
                batch.clear()

        def take(letter: DeadLetter) -> bool:
            if self._is_wanted(letter) and not self._dead.is_handled(letter) and letter.rounds < self._rounds:
                copy = self._copy(letter, sources)
                if copy is None:
                    self.missing += 1
                else:
                    batch.append((letter, copy))
                    if len(batch) >= pacing.batch_size:
                        flush()
            return self._limit is None or redriven + len(batch) < self._limit

        try:
            self._dead.read(take)
            flush()
        finally:
            sources.close()
        return redriven

    def _copy(self, letter: DeadLetter, sources: SourceRecordReader) -> RedrivenCopy | None:
        """Return the record to write; None if there is nothing to write, or it was written too often."""
        key, value, headers, rounds = letter.record.key, letter.record.value, letter.original_headers(), letter.rounds
        if not letter.has_copy:
            found = None if is_gone(letter, self._ranges) else sources.read(letter)
            if found is None:
                return None
            key, value, headers = found
            rounds = rounds_of(headers)
            if rounds >= self._rounds:
                return None
        target = self._target(letter)
        partition = None
        if target == letter.topic and 0 <= letter.partition < self._partition_counts.get(target, 0):
            # Where the record was, so that records of one key stay together.
            partition = letter.partition
        return RedrivenCopy(target, partition, key, value, with_redrive_headers(headers, letter, rounds + 1))
