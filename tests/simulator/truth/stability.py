"""What the committed batches of each partition say of transactions, and what every replica must make of it.

| invariant | how it is seen |
|---|---|
| the last stable offset is right | on every replica it is what the truth below its own high watermark says |
| aborted ones are known | every replica lists all that were aborted below its last stable offset, and no other |
| no endless wait | once all faults are mended, no transaction is open for longer than its timeout and a grace |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from strandline.codec.record_batch import parse_header
from strandline.codec.transaction_marker import parse_marker
from strandline.log.segment.aborted_transactions import aborted_transactions

if TYPE_CHECKING:
    from strandline.partition.partition import Partition

GRACE_S: Final = 10.0
"""How much longer than its timeout a transaction may be open."""


class Open(NamedTuple):
    first_offset: int
    since_s: float


class Ended(NamedTuple):
    marker_offset: int
    first_offset: int
    producer_id: int
    is_commit: bool


@dataclass
class Stability:
    """The transactions of one partition, by what was ever committed there."""

    name: str
    open: dict[int, Open] = field(default_factory=dict)
    """By producer id."""
    ended: list[Ended] = field(default_factory=list)
    """In the order of their markers."""

    def last_stable_offset(self, high_watermark: int) -> int:
        """Return the last stable offset for this high watermark."""
        stable = high_watermark
        for each in self.open.values():
            stable = min(stable, each.first_offset)
        for ended in reversed(self.ended):
            if ended.marker_offset < high_watermark:
                break
            stable = min(stable, ended.first_offset)
        return stable

    def wrong_with(self, partition: Partition, due_where_cleaned: Callable[[], int] | None = None) -> str:
        """Return what the last stable offset of a replica should be and is not, in words.

        Of a transaction that is over a cleaner takes the records, and who follows from there never heard of it.
        """
        high_watermark = partition.high_watermark
        found = partition.last_stable_offset
        due = max(self.last_stable_offset(high_watermark), min(partition.log_start_offset, high_watermark))
        if found == due or (due_where_cleaned is not None and found == due_where_cleaned()):
            return ""
        return f"the last stable offset is {found}, where {due} is due with a high watermark of {high_watermark}"

    def wrong_with_aborted(self, partition: Partition, held: set[int] | None = None) -> str:
        """What readers would be told wrongly of aborted transactions, in words; `held` is what is left of the log."""
        # What is in the store alone is told from there.
        start, end = partition.log.log_start_offset, partition.last_stable_offset
        due = {
            (ended.producer_id, ended.first_offset)
            for ended in self.ended
            if not ended.is_commit
            and ended.marker_offset >= start
            and ended.first_offset < end
            and (held is None or ended.first_offset in held)
        }
        told = set(aborted_transactions(partition.log, start, end, may_block=True))
        committed = {
            (ended.producer_id, ended.first_offset)
            for ended in self.ended
            if ended.is_commit and ended.first_offset < end
        }
        if due - told:
            return f"aborted transactions {sorted(due - told)} below {end} are not known (producer id, first offset)"
        if told & committed:
            return f"transactions {sorted(told & committed)} are held for aborted, and are committed"
        return ""


class Stabilities:
    """All partitions, by topic id and index."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self.partitions: dict[tuple[bytes, int], Stability] = {}
        self.on_marker: Callable[[str, int, int, bool], object] = lambda name, producer_id, epoch, is_commit: None
        """Told of each committed marker: partition, producer id, producer epoch, and whether it commits."""
        self.calm_since: float | None = None
        """Since when nothing excuses a transaction that stays open."""
        self.timeout_s = 0.0
        """The longest that a transaction of the run may take."""

    def learn(self, key: tuple[bytes, int], name: str, batch: bytes) -> None:
        """A batch has become part of the truth."""
        header = parse_header(batch)
        if not header.is_transactional or header.producer_id < 0:
            return
        stability = self.partitions.get(key)
        if stability is None:
            stability = self.partitions[key] = Stability(name)
        offset, producer_id = header.base_offset, header.producer_id
        if not header.is_control:
            stability.open.setdefault(producer_id, Open(offset, self._now()))
            return
        marker = parse_marker(batch)
        if marker is None:
            return
        self.on_marker(name, producer_id, header.producer_epoch, marker.is_commit)
        before = stability.open.pop(producer_id, None)
        if before is not None:
            stability.ended.append(Ended(offset, before.first_offset, producer_id, marker.is_commit))

    def undecided(self) -> list[str]:
        """Transactions that are open, in words."""
        now = self._now()
        return [
            f"{stability.name}: producer {producer_id} from offset {each.first_offset}, for {now - each.since_s:.1f} s"
            for stability in self.partitions.values()
            for producer_id, each in stability.open.items()
        ]

    def stalled(self) -> str:
        """Return a transaction that is open for too long, though all is well; empty if there is none."""
        if self.calm_since is None:
            return ""
        now, longest_s = self._now(), self.timeout_s + GRACE_S
        for stability in self.partitions.values():
            for producer_id, each in stability.open.items():
                since = max(each.since_s, self.calm_since)
                if now - since > longest_s:
                    return (
                        f"LSO stall: {stability.name} cannot go on behind offset {each.first_offset}, where producer "
                        f"{producer_id} began a transaction {now - each.since_s:.1f} s ago"
                    )
        return ""
