"""What the commit log remembers of producers, so that a new leader reads no object before it takes batches.

`notes_of` takes it from the batches of a range, and `KnownProducers` puts it together. A partition knows the last ten
batches of a producer (`partition/producers`); so does this.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable
from typing import Final

from strandline.codec.producer_snapshot import SnapshotEntry, encode_snapshot
from strandline.codec.record_batch import CONTROL, BatchHeader
from strandline.codec.record_batch import TRANSACTIONAL as TRANSACTIONAL_BIT
from strandline.codec.transaction_marker import TransactionMarker
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.tiers.wal.events import ABORTED, BATCH, COMMITTED, TRANSACTIONAL, ProducerNote

BATCHES_KEPT: Final = 10
SEQUENCE_MASK: Final = 0x7FFFFFFF
NO_SEQUENCE: Final = -1
FORGOTTEN_MS: Final = 2 * 24 * 3_600_000
"""A producer that was silent for so long is forgotten. Partitions forget it after `producer.id.expiration.ms`."""
PRODUCERS_MAX: Final = 100_000
"""Producers of one partition that are remembered."""


class RangeNotes:
    """The notes of one range, batch by batch, without those that later ones make useless."""

    def __init__(self) -> None:
        self._notes: dict[int, ProducerNote] = {}
        """In their order. The key is a number that grows."""
        self._recent: dict[int, deque[int]] = {}
        """By producer: its last plain batches."""
        self._open: set[int] = set()
        """Producers of which a batch of the present transaction is noted for good."""
        self._next = 0

    def add(self, header: BatchHeader, marker: TransactionMarker | None) -> None:
        """Note a batch. `marker` is what is in it, if it is a control batch."""
        producer_id = header.producer_id
        if producer_id < 0:
            return
        is_transactional = bool(header.attributes & TRANSACTIONAL_BIT)
        if header.attributes & CONTROL:
            if marker is not None:
                kind = COMMITTED if marker.is_commit else ABORTED
                self._keep(self._note(kind, header, marker.coordinator_epoch))
                self._open.discard(producer_id)
            return
        if header.base_sequence < 0 and not is_transactional:
            return
        number = self._keep(self._note(TRANSACTIONAL if is_transactional else BATCH, header, header.base_sequence))
        if is_transactional and producer_id not in self._open:
            # It may begin the transaction, so it stays.
            self._open.add(producer_id)
            return
        recent = self._recent.setdefault(producer_id, deque())
        recent.append(number)
        if len(recent) > BATCHES_KEPT:
            del self._notes[recent.popleft()]

    def _note(self, kind: int, header: BatchHeader, sequence: int) -> ProducerNote:
        return ProducerNote(
            kind,
            header.producer_id,
            header.producer_epoch,
            sequence,
            header.last_offset,
            header.last_offset_delta,
            header.max_timestamp,
        )

    def _keep(self, note: ProducerNote) -> int:
        self._next += 1
        self._notes[self._next] = note
        return self._next

    def all(self) -> tuple[ProducerNote, ...]:
        return tuple(self._notes.values())


class KnownProducer:
    __slots__ = ("appended_ms", "coordinator_epoch", "epoch", "recent", "timestamp_ms")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.recent: list[tuple[int, int, int]] = []
        """(last sequence, last offset, offset delta), oldest first."""
        self.timestamp_ms = -1
        self.appended_ms = -1
        self.coordinator_epoch = -1


class KnownProducers:
    """The producers of one partition, and their open transactions."""

    __slots__ = ("entries", "open_transactions")

    def __init__(self) -> None:
        self.entries: OrderedDict[int, KnownProducer] = OrderedDict()
        """The one that appended least recently comes first."""
        self.open_transactions: dict[int, int] = {}
        """By producer: the first offset, in the order of these."""

    def apply(self, notes: Iterable[ProducerNote], appended_ms: int) -> list[AbortedTransaction]:
        """Learn from the notes of a range. Return the transactions that it aborted."""
        aborted: list[AbortedTransaction] = []
        for note in notes:
            entry = self._entry(note)
            entry.timestamp_ms, entry.appended_ms = note.timestamp_ms, appended_ms
            if note.kind in (ABORTED, COMMITTED):
                entry.coordinator_epoch = note.sequence
                first_offset = self.open_transactions.pop(note.producer_id, None)
                if first_offset is not None and note.kind == ABORTED:
                    stable_offset = next(iter(self.open_transactions.values()), note.last_offset + 1)
                    aborted.append(AbortedTransaction(note.producer_id, first_offset, note.last_offset, stable_offset))
                continue
            last = (note.sequence + note.offset_delta) & SEQUENCE_MASK if note.sequence >= 0 else NO_SEQUENCE
            entry.recent.append((last, note.last_offset, note.offset_delta))
            del entry.recent[:-BATCHES_KEPT]
            if note.kind == TRANSACTIONAL:
                self.open_transactions.setdefault(note.producer_id, note.last_offset - note.offset_delta)
        self._forget(appended_ms)
        return aborted

    def _entry(self, note: ProducerNote) -> KnownProducer:
        entry = self.entries.get(note.producer_id)
        if entry is None:
            entry = self.entries[note.producer_id] = KnownProducer(note.epoch)
        else:
            self.entries.move_to_end(note.producer_id)
            if entry.epoch != note.epoch:
                entry.epoch = note.epoch
                entry.recent.clear()
        return entry

    def _forget(self, now_ms: int) -> None:
        while self.entries:
            producer_id, oldest = next(iter(self.entries.items()))
            is_old = oldest.appended_ms < now_ms - FORGOTTEN_MS or len(self.entries) > PRODUCERS_MAX
            if not is_old or producer_id in self.open_transactions:
                return
            del self.entries[producer_id]

    def snapshot_entries(self) -> list[SnapshotEntry]:
        opened = self.open_transactions
        return [
            (
                producer_id,
                entry.epoch,
                entry.recent,
                entry.timestamp_ms,
                entry.coordinator_epoch,
                opened.get(producer_id, -1),
                entry.appended_ms,
            )
            for producer_id, entry in self.entries.items()
        ]

    def snapshot(self) -> bytes:
        """Return them as the snapshot file of a log."""
        return encode_snapshot(self.snapshot_entries())

    @staticmethod
    def of_entries(entries: Iterable[SnapshotEntry]) -> KnownProducers:
        """Return what `snapshot_entries` was made of."""
        known = KnownProducers()
        opened: list[tuple[int, int]] = []
        for producer_id, epoch, recent, timestamp_ms, coordinator_epoch, first_offset, appended_ms in entries:
            entry = known.entries[producer_id] = KnownProducer(epoch)
            entry.recent, entry.timestamp_ms, entry.appended_ms = recent, timestamp_ms, appended_ms
            entry.coordinator_epoch = coordinator_epoch
            if first_offset >= 0:
                opened.append((first_offset, producer_id))
        known.open_transactions.update((producer_id, first) for first, producer_id in sorted(opened))
        return known
