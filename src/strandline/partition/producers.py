"""What a partition remembers of each producer: its sequences, so that a retry gets its first offset and is stored once,
and its transaction, so that a read_committed consumer does not see undecided records.

Each producer id has its epoch and its last ten batches here. A client has at most five requests in flight, and Kafka
keeps five. But Kafka begins a request when the one before is answered; here the requests of a connection wait side by
side. So the first may time out while the four after it are acknowledged. If it is sent again with more behind it, and
those answers are lost, it lies further back than five.

Only a batch that is found among these ten is a duplicate (decision 0005). A producer that is not known begins with
sequence 0. If it begins with another one, the broker refuses that batch once, with an error that clients retry: the
batch before it may have been refused, and comes again first. A producer whose state was lost, to expiration for
example, sends the same batch again, and the broker accepts it.

Entries are kept in the order of their last append, by the broker's clock: the records' own times may be years old.

A transaction is open from its first batch until its marker, and counts as undecided until that marker is committed:
`first_unstable_offset` is where the first of these begins. `on_high_watermark` learns where the high watermark is.

All of it follows from the log; a `.snapshot` file at each roll saves reading the log from its start.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Final

from strandline.codec.producer_snapshot import NOT_SAID, decode_snapshot, encode_snapshot
from strandline.codec.record_batch import (
    BASE_OFFSET,
    BASE_SEQUENCE,
    HEADER,
    MAX_TIMESTAMP,
    PRODUCER_EPOCH,
    PRODUCER_ID,
    TRANSACTIONAL,
    Buffer,
    HeaderFields,
    is_intact,
)
from strandline.codec.transaction_marker import parse_marker
from strandline.errors import BehindRefused, InvalidProducerEpoch, OutOfOrderSequence, TooManyProducers
from strandline.log.segment.transaction_index import AbortedTransaction
from strandline.partition.verification import Verifications

BATCHES_KEPT: Final = 10
SEQUENCE_MASK: Final = 0x7FFFFFFF
_HALF: Final = 1 << 30
NO_SEQUENCE: Final = -1
NO_EPOCH: Final = -1
ALL_STABLE: Final = 1 << 63
"""Where the first undecided transaction begins if there is none: behind every offset."""
REFUSED_MAX: Final = 1000
"""Producers whose rejected batch is remembered. At the limit only notes that no longer count are dropped."""
REFUSAL_COUNTS_MS: Final = 30_000
"""How long a gap is put down to a rejected batch. A producer that gave that batch up must get its error in time."""
PRODUCERS_MAX: Final = 200_000
"""Default of `producer.id.count.max`: producers that all partitions of a node remember together."""
ACTIVE_MS: Final = 300_000
"""A producer that appended less than this ago may retry: no other takes its place. `delivery.timeout.ms` is 120 s."""


class ProducerEntry:
    """One producer. Ten thousand of them may be known to one partition: nothing is kept that follows from the rest."""

    __slots__ = ("appended_ms", "coordinator_epoch", "epoch", "last_sequence", "last_timestamp_ms", "recent")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.recent: list[tuple[int, int, int]] = []
        """Batches, oldest first: (last sequence, last offset, offset delta)."""
        self.last_sequence = NO_SEQUENCE
        """Of the newest batch."""
        self.last_timestamp_ms = -1
        """Of the newest batch, as the producer set it."""
        self.appended_ms = -1
        """When the newest batch or marker was appended here, by this broker's clock; never earlier than it was."""
        self.coordinator_epoch = -1

    @property
    def batches(self) -> list[tuple[int, int, int, int]]:
        """Oldest first: (first sequence, last sequence, last offset, offset delta)."""
        return [(_first_sequence(last, delta), last, offset, delta) for last, offset, delta in self.recent]

    def find(self, base_sequence: int, last_sequence: int) -> int | None:
        """Return the base offset of the batch with exactly these sequences, if it is known."""
        for last, last_offset, delta in self.recent:
            if last == last_sequence and _first_sequence(last, delta) == base_sequence:
                return last_offset - delta
        return None

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch
        self.recent.clear()
        self.last_sequence = NO_SEQUENCE


def _is_behind(sequence: int, other: int) -> bool:
    return 0 < (sequence - other) & SEQUENCE_MASK < _HALF


def _first_sequence(last_sequence: int, offset_delta: int) -> int:
    return (last_sequence - offset_delta) & SEQUENCE_MASK if last_sequence >= 0 else NO_SEQUENCE


class ProducerLimit:
    """How many producers the partitions of a node remember, all together.

    At the limit a partition with more than its share gives up the producer that was silent for longest, and refuses a
    new one if none was silent for `ACTIVE_MS`. One with less than its share takes new ones. So a flood of producer ids
    into one partition costs the producers of others nothing, and there are never more than twice `count_max`.
    """

    __slots__ = ("count", "count_max", "partitions")

    def __init__(self, count_max: int) -> None:
        self.count_max = count_max
        self.count = 0
        self.partitions = 0
        """Partitions that remember a producer."""

    @property
    def share(self) -> int:
        return self.count_max // max(1, self.partitions)


class Producers:
    __slots__ = (
        "completed",
        "entries",
        "first_unstable_offset",
        "limit",
        "open_transactions",
        "refused",
        "verifications",
    )

    def __init__(self, limit: ProducerLimit | None = None) -> None:
        self.limit = limit or ProducerLimit(PRODUCERS_MAX)
        self.entries: OrderedDict[int, ProducerEntry] = OrderedDict()
        """The one that appended least recently comes first."""
        self.refused: dict[int, tuple[int, int, int]] = {}
        """The batch that a producer has to send next, if it was refused and may come again: its epoch, its first
        sequence, and when that was. Of a producer that is not known: the first batch of those refused."""
        self.open_transactions: dict[int, int] = {}
        """Of producers whose transaction has no marker yet: the first offset of it; the earliest first."""
        self.completed: deque[tuple[int, int]] = deque()
        """Transactions whose marker is not known to be committed: (its offset, the first offset), both growing.

        One that began later than another, whose marker is behind its own, is left out: it never is the one that counts.
        """
        self.first_unstable_offset = ALL_STABLE
        self.verifications = Verifications()
        """Producers whose coordinator is being asked, before a transaction begins here."""

    # Sequences

    def check(self, producer_id: int, epoch: int, base_sequence: int, last_sequence: int) -> int | None:
        """Return None if the batch may be appended, or the base offset that its first sending was given.

        Raises InvalidProducerEpoch for a fenced producer, OutOfOrderSequence for a gap, and BehindRefused for what may
        be a gap that a refusal made.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            if epoch < NO_EPOCH:
                raise InvalidProducerEpoch(f"producer {producer_id} sent epoch {epoch}")
            if base_sequence != 0:
                self._check_unknown(producer_id, epoch, base_sequence)
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
        # Never a duplicate by inference: that a later sequence is in the log does not prove that this one is.
        raise OutOfOrderSequence(
            f"producer {producer_id} sent sequence {base_sequence} after {newest} in epoch {epoch}"
        )

    def _check_unknown(self, producer_id: int, epoch: int, base_sequence: int) -> None:
        """Accept a producer in mid-sequence only by the batch that it sends first when it sends all of them again."""
        refused = self.refused.get(producer_id)
        if refused is None or refused[0] != epoch or refused[1] != base_sequence:
            raise BehindRefused(
                f"producer {producer_id} is not known and began with sequence {base_sequence}; send it again in order"
            )

    def check_room(self, now_ms: int) -> None:
        """Raise TooManyProducers if a producer that is not known cannot be remembered beside those in use."""
        limit = self.limit
        if limit.count >= limit.count_max and len(self.entries) >= limit.share:
            oldest = self._least_recent()
            if oldest is None or self.entries[oldest].appended_ms > now_ms - ACTIVE_MS:
                raise TooManyProducers(
                    f"{limit.count} producers are remembered and in use; producer.id.count.max is {limit.count_max}"
                )

    def _least_recent(self) -> int | None:
        """Return the producer that appended least recently and has no transaction open, if there is one."""
        for _ in range(len(self.open_transactions) + 1):
            producer_id = next(iter(self.entries), None)
            if producer_id not in self.open_transactions:
                return producer_id
            # Its marker brings it to the end once more; up to there it is in use.
            self.entries.move_to_end(producer_id)
        return None

    def _add(self, producer_id: int, epoch: int) -> ProducerEntry:
        limit = self.limit
        if not self.entries:
            limit.partitions += 1
        elif limit.count >= limit.count_max and len(self.entries) >= limit.share:
            # A leader has seen to it that this one is silent. A follower, or a log that is read again, holds the same.
            oldest = self._least_recent()
            if oldest is not None:
                del self.entries[oldest]
                limit.count -= 1
        limit.count += 1
        entry = self.entries[producer_id] = ProducerEntry(epoch)
        return entry

    def note(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset: int,
        offset_delta: int,
        timestamp_ms: int,
        now_ms: int,
    ) -> None:
        """Remember a batch that is in the log since `now_ms` at the latest. A coordinator's has no sequence."""
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, epoch)
        else:
            self.entries.move_to_end(producer_id)
            if entry.epoch != epoch:
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
        entry.appended_ms = now_ms

    def note_refused_batch(self, batch: Buffer, now_ms: int, *, is_checked: bool) -> None:
        """Note a refused batch that may come again. It may be its header alone if its checksum is known to be right."""
        header: HeaderFields = HEADER.unpack_from(batch)
        producer_id, base_sequence = header[PRODUCER_ID], header[BASE_SEQUENCE]
        if producer_id < 0:
            return
        if producer_id not in self.entries and not is_checked and not is_intact(batch):
            # The note alone decides what is accepted of a producer that is not known. Epoch and sequence of a corrupt
            # batch may be those of no batch, or of the one behind it. Nothing is noted, and nothing is accepted until
            # all batches come again. A known producer is held to what is stored: a wrong note of it does no harm.
            self.refused.pop(producer_id, None)
        elif base_sequence >= 0:
            self.note_refused(producer_id, header[PRODUCER_EPOCH], base_sequence, now_ms)

    def note_refused(self, producer_id: int, epoch: int, base_sequence: int, now_ms: int) -> None:
        """Remember that a batch was refused that may come again: too few replicas in sync, a full disk, a bad CRC."""
        entry = self.entries.get(producer_id)
        if entry is not None:
            wanted = 0 if epoch > entry.epoch else (entry.last_sequence + 1) & SEQUENCE_MASK
            if epoch < entry.epoch or base_sequence != wanted:
                return
        refused = self.refused.get(producer_id)
        if refused is not None:
            is_of_older_epoch = epoch < refused[0] and now_ms - refused[2] < REFUSAL_COUNTS_MS
            if is_of_older_epoch or self.is_behind_refused(producer_id, epoch, base_sequence, now_ms):
                return
            del self.refused[producer_id]
        elif len(self.refused) >= REFUSED_MAX:
            # Those noted first come again first. If each new note took the place of one, none would ever find its own.
            oldest = next(iter(self.refused))
            if 0 <= now_ms - self.refused[oldest][2] < REFUSAL_COUNTS_MS:
                return
            del self.refused[oldest]
        self.refused[producer_id] = (epoch, base_sequence, now_ms)

    def is_behind_refused(self, producer_id: int, epoch: int, base_sequence: int, now_ms: int) -> bool:
        """Return whether a batch is out of order only because the one before it was just rejected."""
        refused = self.refused.get(producer_id)
        return (
            refused is not None
            and refused[0] == epoch
            and now_ms - refused[2] < REFUSAL_COUNTS_MS
            and _is_behind(base_sequence, refused[1])
        )

    # Transactions

    def has_open_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether the producer has a transaction open here, in this epoch."""
        return producer_id in self.open_transactions and self.entries[producer_id].epoch == epoch

    def note_transactional(self, producer_id: int, base_offset: int) -> None:
        """Note that a transactional batch of the producer is in the log: it continues a transaction, or begins one."""
        self.verifications.end(producer_id)
        if producer_id not in self.open_transactions:
            self.open_transactions[producer_id] = base_offset
            if base_offset < self.first_unstable_offset:
                self.first_unstable_offset = base_offset

    def on_high_watermark(self, high_watermark: int) -> None:
        """Drop the transactions whose markers are committed now: they are decided for good."""
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

    def note_header(self, header: HeaderFields, now_ms: int) -> None:
        """Learn from a batch of records that is in the log since `now_ms` at the latest: one recovered, or fetched."""
        base_offset, _, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, base_sequence, _ = header
        if producer_id < 0:
            return
        is_transactional = attributes & TRANSACTIONAL
        if base_sequence >= 0 or is_transactional:
            self.note(producer_id, epoch, base_sequence, base_offset + delta, delta, max_timestamp, now_ms)
        if is_transactional:
            self.note_transactional(producer_id, base_offset)

    def note_marker(self, header: HeaderFields, batch: Buffer, now_ms: int) -> AbortedTransaction | None:
        """Learn from a control batch of a producer in the log. Return the transaction that it aborted, if it did.

        It carries no sequence. Its epoch is the producer's from here on: batches of an older one are fenced.
        """
        marker = parse_marker(batch)
        if marker is None:
            return None
        producer_id, epoch, offset = header[PRODUCER_ID], header[PRODUCER_EPOCH], header[BASE_OFFSET]
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self._add(producer_id, epoch)
            self.refused.pop(producer_id, None)
        else:
            self.entries.move_to_end(producer_id)
            if entry.epoch != epoch:
                entry.begin_epoch(epoch)
        entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp_ms = header[MAX_TIMESTAMP]
        entry.appended_ms = now_ms
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

    def batches_to_keep(self, *, below: int) -> list[tuple[int, ...]]:
        """Return what must stay in the log below an offset: producer id, epoch, the last offset of each known batch.

        A replica that copies the log, and a recovery that reads it, must know the batches that this one knows: each of
        them may come again. Of batches without a sequence only the newest stays. -1 stands for a producer with markers
        only.
        """
        kept: list[tuple[int, ...]] = []
        for producer_id, entry in self.entries.items():
            recent = entry.recent
            newest = recent[-1][1] if recent else -1
            offsets = [offset for last_sequence, offset, _ in recent[:-1] if last_sequence >= 0 and offset < below]
            if newest < below:
                offsets.append(newest)
            if offsets:
                kept.append((producer_id, entry.epoch, *offsets))
        return kept

    def expire(self, *, before_ms: int) -> None:
        """Forget producers that appended nothing since `before_ms` and have no transaction open."""
        gone = []
        for producer_id, entry in self.entries.items():
            if entry.appended_ms >= before_ms:
                break
            if producer_id not in self.open_transactions:
                gone.append(producer_id)
        for producer_id in gone:
            del self.entries[producer_id]
        self._on_forgotten(len(gone))
        self.verifications.expire(before_ms=before_ms)

    def _on_forgotten(self, count: int) -> None:
        self.limit.count -= count
        if count and not self.entries:
            self.limit.partitions -= 1

    # Snapshots

    @property
    def is_blank(self) -> bool:
        return not self.entries

    def snapshot(self) -> bytes:
        opened = self.open_transactions
        return encode_snapshot(
            (
                producer_id,
                entry.epoch,
                entry.recent,
                entry.last_timestamp_ms,
                entry.coordinator_epoch,
                opened.get(producer_id, -1),
                entry.appended_ms,
            )
            for producer_id, entry in self.entries.items()
        )

    def restore(self, data: bytes, now_ms: int) -> None:
        """Take the state of a snapshot. Raises CorruptLog if it is not one.

        Kafka's snapshots do not say when a producer appended: that counts as `now_ms`, so that none expires early.
        No snapshot says which markers lay above the high watermark: the caller learns these from the log.
        """
        entries = decode_snapshot(data)
        self.clear()
        opened = sorted((first, producer_id) for producer_id, _, _, _, _, first, _ in entries if first >= 0)
        self.open_transactions.update((producer_id, first) for first, producer_id in opened)
        for producer_id, epoch, recent, timestamp_ms, coordinator_epoch, _, appended_ms in entries:
            entry = self._add(producer_id, epoch)
            entry.recent = recent
            if recent:
                entry.last_sequence = recent[-1][0]
            entry.last_timestamp_ms = timestamp_ms
            entry.coordinator_epoch = coordinator_epoch
            # The clock may have been wrong and put right since; nothing was appended after now.
            entry.appended_ms = now_ms if appended_ms == NOT_SAID or appended_ms > now_ms else appended_ms
        self._find_first_unstable()

    def clear(self) -> None:
        """Forget everything. Verifications under way begin again, because markers may have come and gone unseen."""
        count = len(self.entries)
        self.entries.clear()
        self._on_forgotten(count)
        self.open_transactions.clear()
        self.completed.clear()
        self.first_unstable_offset = ALL_STABLE
        self.verifications.clear()


def at_most(count_max: int) -> Producers:
    """Return what a worker that recovers one log fills for its node, whose limit is `count_max`."""
    return Producers(ProducerLimit(count_max))
