"""What a partition remembers of each idempotent producer, so that a retry is told its old offset and stored once.

Of every producer id the epoch and the last ten batches are kept. A client has at most five requests in flight, and
Kafka keeps five. But Kafka begins a request when the one before is answered; here those of a connection wait side by
side. So the first may time out while the four after it are acknowledged, and when it is sent again, with more behind
it, and those answers are lost, it lies further back than five.
All of it follows from the log's batch headers; a `.snapshot` file at each roll saves reading the log from its start.

    .snapshot   version int16 = 1, crc uint32 (CRC-32C of what follows), entry count int32, then per producer:
                producer id int64, epoch int16, last sequence int32, last offset int64, offset delta int32,
                timestamp int64, coordinator epoch int32, current transaction's first offset int64 (-1: none)
"""

from __future__ import annotations

import struct
from typing import Final

from crc32c import crc32c

from strandline.codec.record_batch import CONTROL, TRANSACTIONAL, HeaderFields
from strandline.errors import CorruptLog, DuplicateSequence, InvalidProducerEpoch, OutOfOrderSequence

BATCHES_KEPT: Final = 10
SEQUENCE_MASK: Final = 0x7FFFFFFF
_HALF: Final = 1 << 30
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
SNAPSHOT_VERSION: Final = 1
REFUSED_MAX: Final = 1000
"""Producers without a batch in the log of which it is remembered what they were refused; the oldest are forgotten."""
_PREFIX = struct.Struct(">hI")
_COUNT = struct.Struct(">i")
_ENTRY = struct.Struct(">qhiqiqiq")


class ProducerEntry:
    """One producer; `batches`, oldest first: (first sequence, last sequence, last offset, offset delta, timestamp)."""

    __slots__ = ("batches", "coordinator_epoch", "epoch", "last_timestamp_ms", "restored", "transaction_first_offset")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.restored = False
        self.batches: list[tuple[int, int, int, int, int]] = []
        self.last_timestamp_ms = -1
        self.coordinator_epoch = -1
        self.transaction_first_offset = -1


class Producers:
    __slots__ = ("entries", "refused")

    def __init__(self) -> None:
        self.entries: dict[int, ProducerEntry] = {}
        self.refused: dict[int, tuple[int, int]] = {}
        """Of producers that are not known: epoch and first sequence of a batch that was refused for now."""

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
        batches = entry.batches
        newest = batches[-1][1] if batches else NO_SEQUENCE
        if base_sequence == (newest + 1) & SEQUENCE_MASK:
            return None
        for first, last, last_offset, delta, _ in batches:
            if first == base_sequence and last == last_sequence:
                return last_offset - delta
        if entry.restored and len(batches) < BATCHES_KEPT and (newest - last_sequence) & SEQUENCE_MASK < _HALF:
            # Every sequence up to the newest is in the log, but a snapshot keeps only the newest batch, so the offset
            # of this older one is not known any more. Clients take this code as a success without an offset.
            raise DuplicateSequence(f"producer {producer_id} sent sequence {base_sequence} again after a restart")
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence} after {newest} in epoch {epoch}"
        )

    def note(
        self, producer_id: int, epoch: int, base_sequence: int, last_offset: int, offset_delta: int, timestamp_ms: int
    ) -> None:
        """Remember a batch that is in the log."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(epoch)
            self.refused.pop(producer_id, None)
        elif entry.epoch != epoch:
            entry.epoch = epoch
            entry.batches.clear()
        batches = entry.batches
        batches.append(
            (base_sequence, (base_sequence + offset_delta) & SEQUENCE_MASK, last_offset, offset_delta, timestamp_ms)
        )
        if len(batches) > BATCHES_KEPT:
            del batches[0]
        entry.last_timestamp_ms = timestamp_ms

    def note_refused(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """A batch was turned away for now: too few replicas are in sync, the disk is full, another leads."""
        if producer_id in self.entries or self.refused.get(producer_id, (-1, 0))[0] >= epoch:
            return
        self.refused[producer_id] = (epoch, base_sequence)
        if len(self.refused) > REFUSED_MAX:
            del self.refused[next(iter(self.refused))]

    def note_header(self, header: HeaderFields) -> None:
        """Learn from a batch in the log, while recovering or following."""
        producer_id, epoch, base_sequence = header[9], header[10], header[11]
        if producer_id < 0:
            return
        if header[5] & CONTROL:
            # A transaction marker ends the producer's open transaction; it carries no sequence.
            entry = self.entries.setdefault(producer_id, ProducerEntry(epoch))
            if entry.epoch != epoch:
                entry.epoch = epoch
                entry.batches.clear()
            entry.transaction_first_offset = -1
            entry.last_timestamp_ms = header[8]
            return
        if base_sequence >= 0:
            self.note(producer_id, epoch, base_sequence, header[0] + header[6], header[6], header[8])
        if header[5] & TRANSACTIONAL:
            entry = self.entries[producer_id]
            if entry.transaction_first_offset < 0:
                entry.transaction_first_offset = header[0]

    def expire(self, *, before_ms: int) -> None:
        """Forget producers that wrote nothing since `before_ms` and hold no transaction open."""
        gone = [
            producer_id
            for producer_id, entry in self.entries.items()
            if entry.last_timestamp_ms < before_ms and entry.transaction_first_offset < 0
        ]
        for producer_id in gone:
            del self.entries[producer_id]

    def snapshot(self) -> bytes:
        parts = [_COUNT.pack(len(self.entries))]
        for producer_id, entry in self.entries.items():
            _, last, last_offset, delta, _ = entry.batches[-1] if entry.batches else (-1, -1, -1, 0, -1)
            parts.append(
                _ENTRY.pack(
                    producer_id,
                    entry.epoch,
                    last,
                    last_offset,
                    delta,
                    entry.last_timestamp_ms,
                    entry.coordinator_epoch,
                    entry.transaction_first_offset,
                )
            )
        body = b"".join(parts)
        return _PREFIX.pack(SNAPSHOT_VERSION, crc32c(body)) + body

    def restore(self, data: bytes) -> None:
        """Take the state of a snapshot; CorruptLog if it is not one."""
        if len(data) < _PREFIX.size + _COUNT.size:
            raise CorruptLog(f"producer snapshot of {len(data)} bytes")
        version, crc = _PREFIX.unpack_from(data)
        body = memoryview(data)[_PREFIX.size :]
        if version != SNAPSHOT_VERSION or crc32c(body) != crc:
            raise CorruptLog("producer snapshot with a wrong version or CRC")
        (count,) = _COUNT.unpack_from(body)
        if count < 0 or len(body) != _COUNT.size + count * _ENTRY.size:
            raise CorruptLog(f"producer snapshot claims {count} entries in {len(body)} bytes")
        self.entries.clear()
        for at in range(_COUNT.size, len(body), _ENTRY.size):
            producer_id, epoch, last, offset, delta, timestamp, coordinator, first = _ENTRY.unpack_from(body, at)
            entry = self.entries[producer_id] = ProducerEntry(epoch)
            entry.restored = True
            entry.last_timestamp_ms = timestamp
            entry.coordinator_epoch = coordinator
            entry.transaction_first_offset = first
            if last >= 0:
                entry.batches.append(((last - delta) & SEQUENCE_MASK, last, offset, delta, timestamp))

    def clear(self) -> None:
        self.entries.clear()
