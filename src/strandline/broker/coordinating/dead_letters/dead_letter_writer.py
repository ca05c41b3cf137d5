"""The dead letters of a share partition at work: performs what its queue says, and tells the queue what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from strandline.broker.coordinating.dead_letters.dead_letter_topics import DeadLetterTopics
from strandline.broker.coordinating.dead_letters.dead_letter_transactions import (
    CopyOutcome,
    DeadLetterTransactions,
    OpenedTransaction,
)
from strandline.broker.coordinating.dead_letters.source_reading import SourceReading, SourceRecords
from strandline.broker.environment import Environment
from strandline.codec.columns import Record, encode_batch
from strandline.coordinators.shares.dead_letters.covered_offsets import (
    CoveredOffsets,
    encode_note,
    joined,
    sink_of_share,
)
from strandline.coordinators.shares.dead_letters.dead_letter_queue import (
    Archive,
    Buried,
    Copied,
    Copy,
    DeadLetterQueue,
    Failed,
    GiveUp,
    Mark,
    Open,
    Opened,
    QueueEffect,
    QueueEvent,
    RetryDue,
    RetryLater,
    Skipped,
    Stored,
    SwitchedOff,
    Uncertain,
)
from strandline.coordinators.shares.dead_letters.dead_letter_records import DeadSource, dead_letter, size_of
from strandline.coordinators.shares.delivery.dead_ranges import DeadRange
from strandline.coordinators.shares.delivery.offset_ranges import ARCHIVING
from strandline.coordinators.shares.delivery.share_partition import SharePartition, StateWrite
from strandline.coordinators.shares.delivery.share_settings import ShareSettings
from strandline.coordinators.shares.share_state import SharePartitionKey
from strandline.errors import ErrorCode
from strandline.handlers.support.context import BrokerServices
from strandline.ids import TopicPartition
from strandline.partition.partition import Partition
from strandline.runtime.runtime import TimerHandle

log = logging.getLogger("strandline.shares")

BATCH_BYTES_MAX: Final = 768 * 1024
"""Bytes of one batch of dead letters; the first is written whatever its size."""
WARN_S: Final = 60.0


class BuryingPartition(Protocol):
    """A share partition on the broker that leads its data."""

    group_id: str
    partition: Partition
    share: SharePartition | None

    @property
    def settings(self) -> ShareSettings: ...

    def store(self, write: StateWrite, then: Callable[[ErrorCode], object]) -> None:
        """Have the share coordinator store something, and call back."""

    def on_copied(self, letters: Sequence[DeadRange]) -> None:
        """Learn that copies of records are committed to the dead-letter topic."""

    def on_buried(self) -> None:
        """Learn that no dead letter is under way now."""


class DeadLetterCounts:
    """What all share partitions of a broker count together, since its start."""

    __slots__ = ("failures", "given_up", "transactions", "written")

    def __init__(self) -> None:
        self.written = 0
        """Dead letters whose copy was committed."""
        self.given_up = 0
        """Dead letters that were archived without a copy."""
        self.transactions = 0
        self.failures = 0
        """Attempts that came to nothing."""


class DeadLetters:
    """What the dead letters of all share partitions of a broker need."""

    def __init__(self, environment: Environment, services: BrokerServices) -> None:
        self.topics = DeadLetterTopics(environment, services)
        self.transactions = DeadLetterTransactions(environment, services)
        self.counts = DeadLetterCounts()

    def writer(self, source: BuryingPartition) -> DeadLetterWriter:
        return DeadLetterWriter(source, self)

    def close(self) -> None:
        self.transactions.close()


class DeadLetterWriter:
    """The dead letters of one share partition."""

    def __init__(self, source: BuryingPartition, dead_letters: DeadLetters) -> None:
        assert source.share is not None
        partition = source.partition
        self._source = source
        self._share = source.share
        self._topics = dead_letters.topics
        self._transactions = dead_letters.transactions
        self._counts = dead_letters.counts
        self._runtime = partition.runtime
        self._sink_id = sink_of_share(SharePartitionKey(source.group_id, partition.topic_id, partition.index))
        self.queue = DeadLetterQueue(source.share.state_epoch)
        self._producer: OpenedTransaction | None = None
        self._timer: TimerHandle | None = None
        self._warned_at = -WARN_S
        self._is_closed = False

    @property
    def is_working(self) -> bool:
        return self.queue.is_working

    def add(self, ranges: Sequence[DeadRange]) -> None:
        """Take records that became dead letters."""
        now_ms, now = self._runtime.now_ms(), self._runtime.monotonic()
        known = []
        for each in ranges:
            if each.cause is not None:
                each = each._replace(ended_ms=now_ms)
            if each.acquired_at >= 0:
                each = each._replace(acquired_ms=now_ms - int((now - each.acquired_at) * 1000))
            known.append(each)
        self._step(Buried(tuple(known)))

    def close(self) -> None:
        """Forget everything: another leader goes on with what is stored."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # The queue

    def _step(self, event: QueueEvent) -> None:
        if self._is_closed:
            return
        for effect in self.queue.step(event):
            self._perform(effect)
        if not self.queue.is_working:
            self._source.on_buried()

    def _perform(self, effect: QueueEffect) -> None:
        match effect:
            case Open(needs_note=needs_note):
                self._open(needs_note)
            case Mark(batches=batches):
                self._store(self._share.rewrite(batches))
            case Copy(letters=letters, after=after):
                self._copy(letters, after)
            case Archive(batches=batches):
                self._store(self._share.archive(batches))
            case GiveUp(letters=letters, reason=reason):
                self._counts.given_up += sum(each.size for each in letters)
                log.error("%s archived without a copy: %s", self._name(letters), reason)
            case RetryLater(delay_s=delay_s, reason=reason):
                self._pause(delay_s, reason)

    def _name(self, letters: Sequence[DeadRange]) -> str:
        spans = joined((each.first, each.last) for each in letters)
        offsets = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in spans[:20])
        more = f" and {len(spans) - 20} more ranges" if len(spans) > 20 else ""
        return f"share group {self._source.group_id!r}, {self._source.partition!r}, offsets {offsets}{more}:"

    def _pause(self, delay_s: float, reason: str) -> None:
        self._counts.failures += 1
        now = self._runtime.monotonic()
        if now - self._warned_at >= WARN_S:
            self._warned_at = now
            log.warning("%s dead letters wait: %s", self._name(self.queue.waiting), reason)
        delay_s *= 0.8 + 0.4 * self._runtime.random.random()
        self._timer = self._runtime.call_later(delay_s, self._on_due)

    def _on_due(self) -> None:
        self._timer = None
        self._step(RetryDue())

    def _failed(self, reason: str, *, is_too_large: bool = False) -> None:
        ranges = self._share.ranges.ranges
        has_room = self._share.has_room(self._source.settings)
        is_blocked = not has_room and bool(ranges) and ranges[0].state == ARCHIVING
        self._step(Failed(reason, is_too_large, is_blocked))

    # The share coordinator

    def _store(self, write: StateWrite) -> None:
        self._source.store(write, lambda code: self._step(Stored(not code)))

    # Transactions

    def _open(self, needs_note: bool) -> None:
        name = self._source.settings.dead_letter_topic
        if not name:
            self._runtime.call_soon(self._step, SwitchedOff())
            return
        found = self._topics.find(name, self._place())
        if found.place is None:
            self._runtime.call_soon(self._failed, found.reason)
            return

        def on_opened(producer: OpenedTransaction | None, reason: str) -> None:
            if producer is None:
                self._failed(reason)
            else:
                self._producer = producer
                self._step(Opened(producer.last_batch_id, producer.covered))

        self._transactions.open(self._sink_id, needs_note=needs_note, on_opened=on_opened)

    def _place(self) -> TopicPartition:
        return TopicPartition(self._source.partition.topic, self._source.partition.index)

    def _copy(self, letters: tuple[DeadRange, ...], after: int) -> None:
        offsets = [(offset, each) for each in letters for offset in range(each.first, each.last + 1)]
        offsets.sort(key=lambda each: each[0])

        def on_source(found: SourceRecords | None, reason: str) -> None:
            if self._is_closed:
                return
            if found is None:
                self._failed(reason)
            else:
                self._write(offsets[: found.offsets], found, after)

        SourceReading(self._source.partition, [offset for offset, _ in offsets], on_source).look()

    def _write(self, wanted: list[tuple[int, DeadRange]], found: SourceRecords, after: int) -> None:
        """Write dead letters in one transaction, as many as fit into a batch."""
        settings, producer = self._source.settings, self._producer
        where = self._topics.find(settings.dead_letter_topic, self._place())
        if where.place is None:
            self._failed(where.reason)
            return
        assert producer is not None
        letters, records = self._letters(wanted, found, settings)
        if not records:
            self._step(Skipped(letters))
            return
        batch = encode_batch(
            records,
            producer_id=producer.producer_id,
            producer_epoch=producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        spans = joined((each.first, each.last) for each in letters)
        note = encode_note(
            CoveredOffsets(self._share.state_epoch, spans),
            group_id=self._source.group_id,
            topic=self._source.partition.topic,
            partition=self._source.partition.index,
        )
        self._transactions.copy(
            self._sink_id,
            producer,
            where.place,
            batch,
            after=after,
            note=note,
            on_copied=lambda outcome: self._on_copied(outcome, letters, len(records)),
        )

    def _letters(
        self, wanted: list[tuple[int, DeadRange]], found: SourceRecords, settings: ShareSettings
    ) -> tuple[tuple[DeadRange, ...], list[Record]]:
        """Return what one transaction covers, and its records: none for markers of transactions."""
        place, now_ms = self._place(), self._runtime.now_ms()
        source = DeadSource(
            self._source.group_id, *place, settings.delivery_count_limit, is_copied=settings.copies_dead_letters
        )
        covered: list[DeadRange] = []
        records: list[Record] = []
        size = 0
        for offset, letter in wanted:
            if offset not in found.controls:
                record = dead_letter(source, letter, offset, found.records.get(offset), now_ms=now_ms)
                size += size_of(record)
                if records and size > BATCH_BYTES_MAX:
                    break
                records.append(record)
            covered.append(letter.part(offset, offset))
        return tuple(covered), records

    def _on_copied(self, outcome: CopyOutcome, letters: tuple[DeadRange, ...], records: int) -> None:
        if self._is_closed:
            return
        self._counts.transactions += 1
        if outcome.is_committed:
            self._counts.written += records
            self._source.on_copied(letters)
            self._step(Copied(letters))
        elif outcome.is_certain:
            self._failed(outcome.reason, is_too_large=outcome.is_too_large)
        else:
            self._step(Uncertain(letters, outcome.reason))
