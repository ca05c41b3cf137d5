"""A compacted topic and one that forgets, under chaos: who writes to them, who reads them while they are cleaned.

Writers say what was acknowledged where. Readers begin at the start and fold what they find, pass after pass. When the
round is over, each pass is held against what was acknowledged: a record is where it was written, or gone; the last one
of each key is there, unless a later one was written behind the end that the reader had in mind.
"""

from __future__ import annotations

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as Position

from strandline.ids import TopicPartition
from strandline.testing.client_threads import QUICK_RETRIES, ClientThread
from strandline.testing.recorder import Recorder

KEYS = 40
WRITE_PAUSE_S = 0.01
PASS_PAUSE_S = 1.0
PASS_S_MAX = 60.0
FLUSH_S_MAX = 120.0
RETENTION_MS = 10_000
RETENTION_ACTS_S = 90.0
"""After how long something must have been deleted, faults or not."""

_OWN = {
    "min.insync.replicas": "2",
    "message.timestamp.after.max.ms": str(2**63 - 1),
    "segment.ms": "3000",
    "file.delete.delay.ms": "1000",
}
TABLE_SETTINGS = {
    **_OWN,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "max.compaction.lag.ms": "5000",
}
BRIEF_SETTINGS = {**_OWN, "cleanup.policy": "delete", "retention.ms": str(RETENTION_MS)}
CLEANING_SETTINGS = {
    "log.cleaner.backoff.ms": "1000",
    "log.retention.check.interval.ms": "2000",
}
"""Of the brokers: what takes minutes elsewhere is to happen many times in a round."""


@dataclass(frozen=True, slots=True)
class Written:
    key: bytes
    value: bytes | None
    sent_s: float
    """By the wall clock, which is also the record's time."""


@dataclass
class Ledger:
    """What writers know: what was acknowledged, by partition and offset, and what nobody knows of."""

    acknowledged: dict[int, dict[int, Written]] = field(default_factory=dict)
    unknown: dict[int, list[Written]] = field(default_factory=dict)

    def wrong_with(self, partition: int, found: Mapping[bytes, tuple[int, bytes | None]], end: int) -> str:
        """What is wrong with what a reader from the start to `end` holds for each key, in words."""
        known, unknown = self.acknowledged.get(partition, {}), self.unknown.get(partition, [])
        last: dict[bytes, int] = {}
        for offset, written in sorted(known.items()):
            last[written.key] = offset
        doubtful = {(written.key, written.value) for written in unknown}
        for key, (offset, value) in found.items():
            written_there = known.get(offset)
            if written_there is None and (key, value) not in doubtful:
                return f"{key!r} is {value!r} at offset {offset} of {partition}, which nobody wrote"
            if written_there is not None and (written_there.key, written_there.value) != (key, value):
                return f"{key!r} is {value!r} at offset {offset} of {partition}, where {written_there} was written"
        for key, offset in last.items():
            if offset >= end or any(written.key == key for written in unknown):
                continue
            seen = found.get(key)
            is_tombstone = known[offset].value is None
            if seen is None and is_tombstone:
                continue
            if seen is None or seen[0] != offset:
                return f"{key!r} of {partition} is {seen}, and {known[offset]} at offset {offset} was acknowledged last"
        return ""


class TableWriter(ClientThread):
    """Puts and tombstones under keys, at a steady pace."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition], seed: str) -> None:
        super().__init__(recorder, f"writer-of-{partitions[0].topic}")
        self.partitions = tuple(partitions)
        self.ledger = Ledger()
        self._rng = random.Random(seed)
        self._numbers = 0
        self._in_flight = 0
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "enable.idempotence": True,
            "linger.ms": 5,
            "delivery.timeout.ms": 600_000,
            **QUICK_RETRIES,
        }

    def work(self) -> None:
        producer = Producer(self._settings)
        while not self.stopping.wait(WRITE_PAUSE_S):
            if self._in_flight < 500:
                self._put(producer)
            producer.poll(0)
        left = producer.flush(FLUSH_S_MAX)
        assert left == 0, f"{left} records were never acknowledged nor refused"

    def _put(self, producer: Producer) -> None:
        self._numbers += 1
        self._in_flight += 1
        topic, partition = self._rng.choice(self.partitions)
        key = b"key-%d" % self._rng.randrange(KEYS)
        value = None if self._rng.random() < 0.2 else b"%d of %s " % (self._numbers, key) * 5
        written = Written(key, value, time.time())
        callback = partial(self._on_delivery, partition, written)
        producer.produce(topic, value, key, partition, on_delivery=callback)

    def _on_delivery(self, partition: int, written: Written, error: KafkaError | None, message: Message) -> None:
        self._in_flight -= 1
        offset = message.offset()
        if error is None and offset is not None and offset >= 0:
            self.ledger.acknowledged.setdefault(partition, {})[offset] = written
        else:
            # Also one of which the broker said that it is there, and not where.
            self.ledger.unknown.setdefault(partition, []).append(written)


@dataclass(frozen=True, slots=True)
class Pass:
    partition: int
    end: int
    found: dict[bytes, tuple[int, bytes | None]]


class TableReader(ClientThread):
    """Reads the table from its start to its end, over and over."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(recorder, f"reader-of-{partitions[0].topic}")
        self.partitions = tuple(partitions)
        self.passes: list[Pass] = []
        self._settings: dict[str, Any] = {
            "bootstrap.servers": bootstrap,
            "group.id": f"readers-{partitions[0]}",
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 50,
            **QUICK_RETRIES,
        }

    def work(self) -> None:
        consumer = Consumer(self._settings)
        try:
            while not self.stopping.wait(PASS_PAUSE_S):
                for partition in self.partitions:
                    self._read(consumer, partition)
        finally:
            consumer.close()

    def read_finally(self) -> None:
        consumer = Consumer(self._settings)
        try:
            for partition in self.partitions:
                count = len(self.passes)
                deadline = time.monotonic() + 2 * PASS_S_MAX
                while len(self.passes) == count:
                    assert time.monotonic() < deadline, f"{partition} cannot be read to its end"
                    self._read(consumer, partition, is_last=True)
        finally:
            consumer.close()

    def _read(self, consumer: Consumer, partition: TopicPartition, *, is_last: bool = False) -> None:
        """One pass; one that a fault keeps up for long is given up."""
        try:
            _, end = consumer.get_watermark_offsets(Position(*partition), timeout=5.0)
        except KafkaException:
            return
        found: dict[bytes, tuple[int, bytes | None]] = {}
        consumer.assign([Position(*partition, 0)])
        deadline, position = time.monotonic() + PASS_S_MAX, 0
        while position < end and time.monotonic() < deadline and (is_last or not self.stopping.is_set()):
            for message in consumer.consume(500, 0.2):
                error = message.error()
                if error is None:
                    position = max(position, (message.offset() or 0) + 1)
                    key = message.key()
                    assert isinstance(key, bytes)
                    value = message.value()
                    found[key] = (message.offset() or 0, value)
                elif error.code() == KafkaError._PARTITION_EOF:
                    # Where the cleaner took the last ones, nothing comes before the end.
                    position = max(position, message.offset() or 0)
        if position >= end:
            self.passes.append(Pass(partition.partition, position, found))


class StartWatcher(ClientThread):
    """Asks where a topic begins that forgets: nothing may leave before its time."""

    def __init__(self, recorder: Recorder, bootstrap: str, partitions: Sequence[TopicPartition]) -> None:
        super().__init__(recorder, f"starts-of-{partitions[0].topic}")
        self.partitions = tuple(partitions)
        self.starts: list[tuple[int, int, float]] = []
        """Partition, where it begins, and by when that was so."""
        self._settings = {"bootstrap.servers": bootstrap, "group.id": f"readers-{partitions[0]}", **QUICK_RETRIES}

    def work(self) -> None:
        consumer = Consumer(dict(self._settings))
        try:
            while not self.stopping.wait(PASS_PAUSE_S):
                for topic, partition in self.partitions:
                    try:
                        start, _ = consumer.get_watermark_offsets(Position(topic, partition), timeout=5.0)
                    except KafkaException:
                        continue
                    self.starts.append((partition, start, time.time()))
        finally:
            consumer.close()

    def too_soon(self, ledger: Ledger) -> list[str]:
        """Records that were gone before their time was over."""
        wrong = []
        for partition, start, at_s in self.starts:
            for offset, written in ledger.acknowledged.get(partition, {}).items():
                if offset < start and at_s - written.sent_s < RETENTION_MS / 1000:
                    wrong.append(
                        f"offset {offset} of {partition} was gone {at_s - written.sent_s:.1f} s after it was sent"
                    )
                    break
        return wrong


@dataclass
class CleanedWorkload:
    table: TableWriter
    brief: TableWriter
    readers: list[TableReader]
    starts: StartWatcher

    @property
    def clients(self) -> list[ClientThread]:
        return [self.table, self.brief, *self.readers, self.starts]

    def judge(self, *, seconds: float, clocks_jumped: bool) -> list[str]:
        """What is wrong, in words; all clients have stopped, and nothing is written any more."""
        self.readers[0].read_finally()
        passes = [each for reader in self.readers for each in reader.passes]
        wrong = [self.table.ledger.wrong_with(each.partition, each.found, each.end) for each in passes]
        if not clocks_jumped:
            wrong += self.starts.too_soon(self.brief.ledger)
        starts = [start for _, start, _ in self.starts.starts]
        if seconds > RETENTION_ACTS_S and not any(starts):
            wrong.append(f"nothing was deleted of what has a short time in {seconds:.0f} s")
        return [each for each in wrong if each]


def table_of(topic: str) -> str:
    return f"{topic}-table"


def brief_of(topic: str) -> str:
    return f"{topic}-brief"


def cleaned_over(recorder: Recorder, bootstrap: str, topic: str, *, seed: int) -> CleanedWorkload:
    table = [TopicPartition(table_of(topic), number) for number in range(2)]
    brief = [TopicPartition(brief_of(topic), 0)]
    return CleanedWorkload(
        TableWriter(recorder, bootstrap, table, f"{seed} {topic} table"),
        TableWriter(recorder, bootstrap, brief, f"{seed} {topic} brief"),
        [TableReader(recorder, bootstrap, table)],
        StartWatcher(recorder, bootstrap, brief),
    )
