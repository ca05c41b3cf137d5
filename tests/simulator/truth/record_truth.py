"""What was ever committed to one compacted partition, record by record, and what a cleaner may have made of it.

| invariant | how it is seen |
|---|---|
| never renumbered | what a log holds at an offset is what was committed there: key, value, timestamp and headers |
| batches keep their place | offsets, epoch, producer and sequence of a batch that is left are those it had |
| the last one stays | a record is gone only if a later one of its key is committed, or it was aborted |
| tombstones stay a while | one is gone only after `delete.retention.ms` |
| markers stay longer | the same, and nothing that its transaction wrote is left |

A replica that was away for longer than `delete.retention.ms` is no excuse: it begins again at the start of its leader's
log, so that what a tombstone deleted does not come back with it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from strandline.codec.columns import Record, decode_batch
from strandline.codec.record_batch import COMPRESSION_MASK, HAS_DELETE_HORIZON, BatchHeader, parse_header
from strandline.codec.transaction_marker import parse_marker

CLOCKS_DIFFER_S: Final = 0.5
"""By how much the clocks of two machines do, unless a fault moves one."""


class Fact(NamedTuple):
    """A record that was committed below a high watermark."""

    record: Record
    since_s: float


class Ended(NamedTuple):
    """A marker, and the data of its transaction."""

    offsets: tuple[int, ...]
    since_s: float


class RecordTruth:
    def __init__(self, name: str, *, delete_retention_s: float) -> None:
        self.name = name
        self.delete_retention_s = delete_retention_s
        self.facts: dict[int, Fact] = {}
        """Data records by offset, whatever became of their transactions."""
        self.batches: dict[int, BatchHeader] = {}
        self.markers: dict[int, Ended] = {}
        self.history: dict[bytes, list[int]] = {}
        """Offsets of the records of a key that count, in order."""
        self.aborted: set[int] = set()
        self._open: dict[int, list[int]] = {}
        self._offsets: list[int] = []

    def learn(self, batch: bytes, now_s: float) -> None:
        """A batch has become part of the truth."""
        columns = decode_batch(batch)
        header = columns.header
        self.batches[header.base_offset] = header
        if columns.is_control:
            marker = parse_marker(batch)
            if marker is not None:
                self._end(header.base_offset, header.producer_id, now_s, is_commit=marker.is_commit)
            return
        for record in columns:
            self.facts[record.offset] = Fact(record, now_s)
            self._offsets.append(record.offset)
            if columns.is_transactional:
                self._open.setdefault(header.producer_id, []).append(record.offset)
            elif record.key is not None:
                self.history.setdefault(record.key, []).append(record.offset)

    def _end(self, offset: int, producer_id: int, now_s: float, *, is_commit: bool) -> None:
        offsets = self._open.pop(producer_id, [])
        self.markers[offset] = Ended(tuple(offsets), now_s)
        for each in offsets:
            key = self.facts[each].record.key
            if not is_commit:
                self.aborted.add(each)
            elif key is not None:
                insort(self.history.setdefault(key, []), each)

    # What a log holds

    def wrong_with_batch(self, batch: bytes) -> str:
        """Return what is wrong with a batch that is not, byte for byte, the one that was committed; in words."""
        columns = decode_batch(batch)
        found, known = columns.header, self.batches[columns.header.base_offset]
        # As in Kafka: nothing is not compressed.
        ignored = HAS_DELETE_HORIZON | (0 if found.record_count else COMPRESSION_MASK)
        if _place(found, ignored) != _place(known, ignored):
            return f"has {found} where {known} was committed"
        if columns.is_control:
            return ""
        for record in columns:
            fact = self.facts.get(record.offset)
            if fact is None:
                return f"has {record} where no record was committed"
            if fact.record != record:
                return f"has {record} where {fact.record} was committed"
        return ""

    def wrong_with_rest(self, batches: Sequence[bytes], first: int, end: int, now_s: float) -> str:
        """What is missing from `first` to `end` of a log that holds these batches there, and may not be, in words."""
        held: set[int] = set()
        bases: set[int] = set()
        for batch in batches:
            columns = decode_batch(batch)
            bases.add(columns.base_offset)
            held.update(columns.offsets)
        for offset in self._offsets[bisect_left(self._offsets, first) : bisect_left(self._offsets, end)]:
            why = "" if offset in held else self._why_kept(offset, now_s)
            if why:
                return f"lacks {self.facts[offset].record}: {why}"
        for offset, ended in self.markers.items():
            if first <= offset < end and offset not in bases:
                left = [each for each in ended.offsets if each in held]
                if left or not self.may_be_gone(ended.since_s, now_s):
                    return f"lacks the marker at {offset}, and holds {left} of its transaction"
        return ""

    def may_be_gone(self, since_s: float, now_s: float) -> bool:
        """Return whether a tombstone or marker of that time may have been removed since."""
        return now_s - since_s >= self.delete_retention_s - CLOCKS_DIFFER_S

    def _why_kept(self, offset: int, now_s: float) -> str:
        """Why a record may not be missing; empty if it may."""
        record, since_s = self.facts[offset]
        if record.key is None or offset in self.aborted:
            return ""
        history = self.history.get(record.key, [])
        if history and history[-1] > offset:
            return ""
        if not history or history[-1] < offset:
            return "its transaction is open"
        if record.value is not None:
            return "it is the last one of its key"
        return "" if self.may_be_gone(since_s, now_s) else f"a tombstone, {now_s - since_s:.1f} s old"

    def last_stable_offset(self, batches: Sequence[bytes], high_watermark: int) -> int:
        """What it is for a log that holds these batches below its high watermark, and may never have had the rest."""
        undecided = {offset for offsets in self._open.values() for offset in offsets}
        for marker, ended in self.markers.items():
            if marker >= high_watermark:
                undecided.update(ended.offsets)
        for batch in batches:
            header = parse_header(batch)
            # One that is empty holds the place of its producer, and of its transaction.
            if not undecided.isdisjoint(range(header.base_offset, header.last_offset + 1)):
                return header.base_offset
        return high_watermark

    # What a reader makes of it

    def wrong_with_fold(self, fold: Mapping[bytes, Record], position: int, *, misses_tombstones: bool) -> str:
        """Return what is wrong with the last record of each key that a reader found between the start and `position`.

        One that a cleaner took away from under the reader was superseded by one that the reader has not reached.
        """
        for key, found in fold.items():
            if found.offset not in self.history.get(key, ()):
                return f"{found} was read, which does not count"
        for key, offsets in self.history.items():
            at = bisect_right(offsets, position - 1)
            if not at or at < len(offsets):
                continue
            last = self.facts[offsets[at - 1]].record
            seen = fold.get(key)
            if last.value is None and (seen is None or seen.value is None):
                # No row either way. An older tombstone comes from a replica that is behind with its cleaning.
                continue
            if seen is not None and seen.offset == last.offset:
                continue
            if last.value is None and misses_tombstones:
                continue
            return f"the last record of {key!r} below {position} is {last}, and {seen} was read"
        return ""


def _place(header: BatchHeader, ignored_attributes: int) -> tuple[int, ...]:
    """Return what stays of a batch, however many of its records are left."""
    kept_attributes = header.attributes & ~ignored_attributes
    producer = header.producer_id, header.producer_epoch, header.base_sequence
    return (header.base_offset, header.last_offset_delta, header.leader_epoch, kept_attributes, *producer)
