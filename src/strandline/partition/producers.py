"""What a partition remembers of each producer: its sequences, so that a retry is told its old offset and stored once,
and its transaction, so that no reader who wants committed records sees the others.

Of every producer id the epoch and the last ten batches are kept. A client has at most five requests in flight, and
Kafka keeps five. But Kafka begins a request when the one before is answered; here those of a connection wait side by
side. So the first may time out while the four after it are acknowledged, and when it is sent again, with more behind
it, and those answers are lost, it lies further back than five.

A transaction is open from its first batch until its marker, and counts as undecided until that marker is committed:
`first_unstable_offset` is where the first of these begins. Moves of the high watermark are told by `on_high_watermark`.

All of it follows from the log; a `.snapshot` file at each roll saves reading the log from its start.

    .snapshot   version int16 = 1, crc uint32 (CRC-32C of what follows), entry count int32, then per producer:
                producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
                timestamp int64, coordinator epoch int32, current transaction's first offset int64 (-1: none)
"""

from __future__ import annotations

import struct
from collections import deque
from typing import Final

from crc32c import crc32c

from strandline.codec.record_batch import TRANSACTIONAL, Buffer, HeaderFields
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import CorruptLog, DuplicateSequence, InvalidProducerEpoch, OutOfOrderSequence
from strandline.log.transaction_index import AbortedTransaction
from strandline.partition.verification import Verifications

BATCHES_KEPT: Final = 10
SEQUENCE_MASK: Final = 0x7FFFFFFF
_HALF: Final = 1 << 30
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
ALL_STABLE: Final = 1 << 63
"""Where the first undecided transaction begins if there is none: behind every offset."""
SNAPSHOT_VERSION: Final = 1
REFUSED_MAX: Final = 1000
"""Producers of which it is remembered what they were refused; the oldest are forgotten."""
REFUSAL_COUNTS_MS: Final = 30_000
"""A gap is put down to a refusal for so long. Whoever has given the refused batch up is to hear of its gap in time."""
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class ProducerEntry:
    """One producer. Ten thousand of them may be known to one partition: nothing is kept that follows from the rest."""

    __slots__ = ("coordinator_epoch", "epoch", "last_sequence", "last_timestamp_ms", "recent", "restored")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.restored = False
        self.recent: list[tuple[int, int, int]] = []
        """Batches, oldest first: (last sequence, last offset, offset delta)."""
        self.last_sequence = NO_SEQUENCE
        """Of the newest batch."""
        self.last_timestamp_ms = -1
        self.coordinator_epoch = -1

    @property
    def batches(self) -> list[tuple[int, int, int, int]]:
        """Oldest first: (first sequence, last sequence, last offset, offset delta)."""
        return [(_first_sequence(last, delta), last, offset, delta) for last, offset, delta in self.recent]

    def find(self, base_sequence: int, last_sequence: int) -> int | None:
        """The base offset of the batch with just these sequences, if it is known."""
        for last, last_offset, delta in self.recent:
            if last == last_sequence and _first_sequence(last, delta) == base_sequence:
                return last_offset - delta
        return None

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.restored = False
        self.recent.clear()
        self.last_sequence = NO_SEQUENCE


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    return (last_sequence - offset_delta) & SEQUENCE_MASK if last_sequence >= 0 else NO_SEQUENCE


class Producers:
    __slots__ = ("completed", "entries", "first_unstable_offset", "open_transactions", "refused", "verifications")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.refused: dict[int, tuple[int, int, int]] = {}
        """Since a producer's newest batch: epoch and first sequence of the first one that was refused for now, when."""
        self.open_transactions: dict[int, int] = {}
        """Of producers whose transaction has no marker yet: the first offset of it; the earliest first."""
        self.completed: deque[tuple[int, int]] = deque()
        """Transactions whose marker is not known to be committed: (its offset, the first offset), both growing.

        One that began later than another, whose marker is behind its own, is left out: it never is the one that counts.
        """
        self.first_unstable_offset = ALL_STABLE
        self.verifications = Verifications()
        """Who is being asked about, before a transaction begins here."""

    # Sequences

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int) -> int | None:
        """Whether the batch may be appended: None, or the base offset that its first sending was given.

        Raises InvalidProducerEpoch for a fenced producer and OutOfOrderSequence for a gap.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            # State may have been lost to retention while the producer lives on: its next sequence is taken as given,
            # as Kafka does; what matters is that the batches after it are in order.
            if epoch < NO_EPOCH:
                raise InvalidProducerEpoch(f"producer {producer_id} sent epoch {epoch}")
            refused = self.refused.get(producer_id)
            if refused is not None and refused[0] == epoch and base_sequence != refused[1]:
                # The batch before was turned away a moment ago, and comes again. Taken now, this one would pass for the
                # producer's first, and the other could never be stored.
                raise OutOfOrderSequence(
                    f"producer {producer_id} sent sequence {base_sequence}; {refused[1]} was refused and comes first"
                )
            return None
        if epoch != entry.epoch:
            if epoch < entry.epoch:
                raise InvalidProducerEpoch(f"producer {producer_id} sent epoch {epoch}; {entry.epoch} is current")
            if base_sequence != 0:
                raise OutOfOrderSequence(
                    f"producer {producer_id} began epoch {epoch} with sequence {base_sequence}, not 0"
                )
            return None
        newest = entry.last_sequence
        if base_sequence == (newest + 1) & SEQUENCE_MASK:
            return None
        known = entry.find(base_sequence, last_sequence)
        if known is not None:
            return known
        if entry.restored and 0 < len(entry.recent) < BATCHES_KEPT and (newest - last_sequence) & SEQUENCE_MASK < _HALF:
            # Every sequence up to the newest is in the log, but a snapshot keeps only the newest batch, so the offset
            # of this older one is not known any more. Clients take this code as a success without an offset.
            raise DuplicateSequence(f"producer {producer_id} sent sequence {base_sequence} again after a restart")
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence} after {newest} in epoch {epoch}"
        )

    def note(
        self, producer_id: int, epoch: int, base_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int
    ) -> None:
        """Remember a batch that is in the log. A coordinator's has no sequence."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
        elif entry.epoch != epoch:
            entry.begin_epoch(epoch)
        if self.refused:
            self.refused.pop(producer_id, None)
        last_sequence = (base_sequence + offset_delta) & SEQUENCE_MASK if base_sequence >= 0 else NO_SEQUENCE
        recent = entry.recent
        recent.append((last_sequence, last_offset, offset_delta))
        if len(recent) > BATCHES_KEPT:
            del recent[0]
        entry.last_sequence = last_sequence
        entry.last_timestamp_ms = timestamp_ms

    def note_refused(self, producer_id: int, epoch: int, base_sequence: int, now_ms: int = 0) -> None:
        """A batch was turned away for now: too few replicas are in sync, the disk is full, another leads."""
        refused = self.refused.get(producer_id)
        if refused is not None and (refused[0] > epoch or (refused[0] == epoch and refused[1] != base_sequence)):
            return
        self.refused[producer_id] = (epoch, base_sequence, now_ms)
        if len(self.refused) > REFUSED_MAX:
            del self.refused[next(iter(self.refused))]

    def is_behind_refused(self, producer_id: int, epoch: int, base_sequence: int, now_ms: int) -> bool:
        """Whether a batch is out of order only because the one before it was turned away a moment ago."""
        refused = self.refused.get(producer_id)
        if refused is None or refused[0] != epoch or now_ms - refused[2] >= REFUSAL_COUNTS_MS:
            return False
        entry = self.entries.get(producer_id)
        if entry is not None and entry.epoch == epoch and refused[1] != (entry.last_sequence + 1) & SEQUENCE_MASK:
            return False
        return 0 < (base_sequence - refused[1]) & SEQUENCE_MASK < _HALF

    # Transactions

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has a transaction open here, in this epoch."""
        return producer_id in self.open_transactions and self.entries[producer_id].epoch == epoch

    def note_transactional(self, producer_id: int, base_offset: int) -> None:
        """A transactional batch of the producer is in the log, and was noted: it goes on with a transaction, or begins
        one."""
        self.verifications.end(producer_id)
        if producer_id not in self.open_transactions:
            self.open_transactions[producer_id] = base_offset
            if base_offset < self.first_unstable_offset:
                self.first_unstable_offset = base_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Markers below it are committed, and what they decided is decided for good."""
        completed = self.completed
        while completed and completed[0][0] < high_watermark:
            completed.popleft()
        self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self.open_transactions.values()), ALL_STABLE)
        if self.completed and self.completed[0][1] < first:
            first = self.completed[0][1]
        self.first_unstable_offset = first

    # Learning from the log

    def note_header(self, header: HeaderFields) -> None:
        """Learn from a batch of records in the log, while recovering or following."""
        producer_id = header[9]
        if producer_id < 0:
            return
        is_transactional = header[5] & TRANSACTIONAL
        if header[11] >= 0 or is_transactional:
            self.note(producer_id, header[10], header[11], header[0] + header[6], header[6], header[8])
        if is_transactional:
            self.note_transactional(producer_id, header[0])

    def note_marker(self, header: HeaderFields, batch: Buffer) -> AbortedTransaction | None:
        """Learn from a control batch of a producer in the log: the transaction that it aborted, if it did.

        It carries no sequence. Its epoch is the producer's from here on: whoever sends in an older one is fenced.
        """
        marker = parse_marker(batch)
        if marker is None:
            return None
        producer_id, epoch, offset = header[9], header[10], header[0]
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
            self.refused.pop(producer_id, None)
        elif entry.epoch != epoch:
            entry.begin_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = header[8]
        self.verifications.end(producer_id)
        first_offset = self.open_transactions.pop(producer_id, None)
        if first_offset is None:
            return None
        completed = self.completed
        while completed and completed[-1][1] > first_offset:
            completed.pop()
        completed.append((offset, first_offset))
        self._find_first_unstable()
        if marker.is_commit:
            return None
        stable_offset = next(iter(self.open_transactions.values()), offset + 1)
        return AbortedTransaction(producer_id, first_offset, offset, stable_offset)

    def expire(self, *, before_ms: int) -> None:
        """Forget producers that wrote nothing since `before_ms` and hold no transaction open."""
        gone = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.last_timestamp_ms < before_ms and producer_id not in self.open_transactions
        ]
        for producer_id in gone:
            del self.entries[producer_id]
        self.verifications.expire(before_ms=before_ms)

    # Snapshots

    def snapshot(self) -> bytes:
        parts = [_COUNT.pack(len(self.entries))]
        for producer_id, entry in self.entries.items():
            last, last_offset, delta = entry.recent[-1] if entry.recent else (NO_SEQUENCE, -1, 0)
            parts.append(
                _ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    last,
                    last_offset,
                    delta,
                    entry.last_timestamp_ms,
                    entry.coordinator_epoch,
                    self.open_transactions.get(producer_id, -1),
                )
            )
        body = b"".join(parts)
        return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    def restore(self, data: bytes) -> None:
        """Take the state of a snapshot; CorruptLog if it is not one.

        What it does not know is which markers lay above the high watermark: whoever restores learns these from the log.
        """
        if len(data) < _PREFIX.size + _COUNT.size:
            raise CorruptLog(f"producer snapshot of {len(data)} bytes")
        version, crc = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if version != SNAPSHOT_VERSION or crc32c(body) != crc:
            raise CorruptLog("producer snapshot with a wrong version or CRC")
        (count,) = _COUNT.unpack_from(body)
        if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
            raise CorruptLog(f"producer snapshot claims {count} entries in {len(body)} bytes")
        self.clear()
        opened: list[tuple[int, int]] = []
        for at in range(_COUNT.size, len(body), _ENTRY.size):
            producer_id, epoch, last, offset, delta, timestamp, coordinator, first = _ENTRY.unpack_from(body, at)
            entry = self.entries[producer_id] = ProducerEntry(epoch)
            entry.restored = True
            entry.last_timestamp_ms = timestamp
            entry.coordinator_epoch = coordinator
            if first >= 0:
                opened.append((first, producer_id))
            if offset >= 0:
                entry.recent.append((last, offset, delta))
                entry.last_sequence = last
        self.open_transactions.update((producer_id, first) for first, producer_id in sorted(opened))
        self._find_first_unstable()

    def clear(self) -> None:
        """Know nothing. Whoever is being asked about asks again: markers may have come and gone unseen."""
        self.entries.clear()
        self.open_transactions.clear()
        self.completed.clear()
        self.first_unstable_offset = ALL_STABLE
        self.verifications.clear()
