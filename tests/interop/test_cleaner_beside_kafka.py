"""The same sealed files to both cleaners, round after round: batch by batch they leave the same.

Values, tombstones, codecs, committed and aborted transactions, idempotent producers. A tombstone's or marker's horizon
is a millisecond ahead, so the round that sees it first sets it, and the next one takes what it was for.
"""

from __future__ import annotations

import random
import shutil
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from bench.brokers import Broker
from bench.clients.keyed import produce
from bench.scenarios.compaction import alter, cleaned_up_to, wait_until_clean
from confluent_kafka import Producer
from tests.clients.kafka_server import running_kafka
from tests.unit.log.cleaning_cases import read_index

from strandline.codec.columns import BatchHeader, Record, decode_batch, encode_batch
from strandline.codec.record_batch import PREFIX, PREFIX_SIZE, parse_header
from strandline.log.cleaning.clean import clean
from strandline.log.cleaning.job import CLEANED_SUFFIX, CleanedGroup, CleaningJob, SourceSegment
from strandline.log.disk import RealDisk
from strandline.log.segment.transaction_index import AbortedTransaction

pytestmark = [pytest.mark.java, pytest.mark.slow]

TOPIC: Final = "table"
ROUNDS: Final = 4
HOUR_MS: Final = 3_600_000
DELETE_RETENTION_MS: Final = 1
SETTINGS: Final = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "1.0",
    "segment.ms": str(HOUR_MS),
    "message.timestamp.after.max.ms": str(1000 * HOUR_MS),
    "delete.retention.ms": str(DELETE_RETENTION_MS),
}
KAFKA_SETTINGS: Final = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.dedupe.buffer.size": "4194304",
}


class Left(NamedTuple):
    """What a cleaner left: of each batch all that a reader or a producer can tell, and who was aborted."""

    batches: list[tuple[object, ...]]
    aborted: list[AbortedTransaction]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with running_kafka(tmp_path_factory, KAFKA_SETTINGS) as node:
        node.create_topic(TOPIC, 1, SETTINGS)
        yield node


def test_both_cleaners_leave_the_same_batches(broker: Broker, tmp_path: Path) -> None:
    rng = random.Random(10)
    writers = Writers(broker.bootstrap)
    kinds = set()
    # Markers have the time of the clock, and records roll segments by theirs: so these begin now, and go on ahead.
    first_ms = time.time_ns() // 1_000_000
    for number in range(ROUNDS):
        writers.write(rng, first_ms + 2 * number * HOUR_MS)
        # Its time is an hour on, so it begins a new segment; what lies before it may be cleaned.
        last = Record(timestamp_ms=first_ms + (2 * number + 1) * HOUR_MS + 60_000, key=b"last", value=b"%d" % number)
        with broker.connect() as connection:
            produce(connection, TOPIC, encode_batch([last]))
        copy = tmp_path / f"round-{number}"
        directory = broker.data / f"{TOPIC}-0"
        first_dirty = max(0, cleaned_up_to(broker.data / "cleaner-offset-checkpoint", TOPIC))
        shutil.copytree(directory, copy)
        active = max(bases_in(copy))
        alter(broker, TOPIC, {"min.cleanable.dirty.ratio": "0.0001"})
        wait_until_clean(broker, TOPIC, active)
        alter(broker, TOPIC, {"min.cleanable.dirty.ratio": "1.0"})
        theirs = left_in(directory, below=active)
        ours = cleaned(copy, first_dirty, active)
        assert ours.batches == theirs.batches, f"round {number}"
        assert ours.aborted == theirs.aborted, f"round {number}"
        kinds |= {(batch[2], bool(batch[-1])) for batch in ours.batches}
    attributes = {each for each, _ in kinds}
    assert any(each & 0x60 == 0x60 for each in attributes), "a marker was given a horizon"
    assert any(each & 0x60 == 0x40 for each in attributes), "a tombstone was given one"
    assert any(not has_records for _, has_records in kinds), "a producer's batch was kept without its records"


class Writers:
    """Producers of several kinds; each record has a time of its own."""

    def __init__(self, bootstrap: str) -> None:
        common = {"bootstrap.servers": bootstrap, "linger.ms": 20, "log_level": 0}
        self.plain = [Producer({**common, "compression.type": codec}) for codec in ("none", "lz4", "zstd")]
        self.idempotent = Producer({**common, "enable.idempotence": True, "compression.type": "snappy"})
        self.transactional = [Producer({**common, "transactional.id": f"t-{number}"}) for number in range(2)]
        for each in self.transactional:
            each.init_transactions(60)

    def write(self, rng: random.Random, first_ms: int) -> None:
        for step in range(12):
            for producer in (*self.plain, self.idempotent):
                self.send(producer, rng, first_ms + step)
            for producer in self.transactional:
                producer.begin_transaction()
                self.send(producer, rng, first_ms + step)
            for producer in self.transactional:
                if rng.random() < 0.5:
                    producer.commit_transaction(60)
                else:
                    producer.abort_transaction(60)

    def send(self, producer: Producer, rng: random.Random, timestamp_ms: int) -> None:
        for _ in range(rng.randint(1, 5)):
            value = None if rng.random() < 0.25 else rng.randbytes(rng.randint(0, 60))
            headers = [("h", b"1"), ("none", None)] if rng.random() < 0.3 else []
            producer.produce(TOPIC, value, b"key-%d" % rng.randrange(40), timestamp=timestamp_ms, headers=headers)
        assert producer.flush(60) == 0


def bases_in(directory: Path) -> list[int]:
    return sorted(int(path.stem) for path in directory.glob("*.log"))


def batches_in(path: Path) -> Iterator[tuple[BatchHeader, bytes]]:
    data = path.read_bytes()
    at = 0
    while at < len(data):
        size = PREFIX.unpack_from(data, at)[1] + PREFIX_SIZE
        yield parse_header(data, at), data[at : at + size]
        at += size


def told(header: BatchHeader, batch: bytes) -> tuple[object, ...]:
    """All of a batch but its base timestamp: the horizon depends on the clock, and without one we keep the old."""
    same = header.leader_epoch, header.max_timestamp, header.producer_id, header.producer_epoch, header.base_sequence
    return header.base_offset, header.last_offset, header.attributes, *same, list(decode_batch(batch))


def left_in(directory: Path, *, below: int, suffix: str = "") -> Left:
    disk = RealDisk()
    left = Left([], [])
    for path in sorted(directory.glob(f"*.log{suffix}")):
        base = int(path.name.partition(".")[0])
        if base < below:
            left.batches.extend(told(header, batch) for header, batch in batches_in(path))
            left.aborted.extend(read_index(disk, path.with_name(path.name.replace(".log", ".txnindex")), base))
    return left


def cleaned(directory: Path, first_dirty: int, active: int) -> Left:
    """What our cleaner leaves of the sealed segments in `directory`."""
    disk = RealDisk()
    bases = bases_in(directory)
    job = CleaningJob(
        directory=directory,
        segments=tuple(
            SourceSegment(
                base,
                (directory / f"{base:020d}.log").stat().st_size,
                end,
                (directory / f"{base:020d}.txnindex").exists(),
            )
            for base, end in pairwise(bases)
        ),
        log_start_offset=0,
        first_dirty_offset=first_dirty,
        end_offset=active,
        now_ms=time.time_ns() // 1_000_000,
        delete_retention_ms=DELETE_RETENTION_MS,
        segment_bytes=1 << 30,
        segment_index_bytes=10 << 20,
        index_interval_bytes=4096,
        dedupe_buffer_bytes=4 << 20,
        load_factor=0.9,
        io_buffer_bytes=512 << 10,
        io_bytes_per_s=0.0,
        aborted_later=tuple(
            each
            for each in read_index(disk, directory / f"{active:020d}.txnindex", active)
            if each.first_offset < active
        ),
        active_producers=active_producers(directory),
    )
    groups: list[CleanedGroup] = []
    clean(job, disk, on_group=groups.append, is_stopped=lambda: False, sleep=time.sleep)
    return left_in(directory, below=active, suffix=CLEANED_SUFFIX)


def active_producers(directory: Path) -> tuple[tuple[int, int, int], ...]:
    """As a broker knows them that has read the log: a marker of a newer epoch makes it forget the batches before."""
    known: dict[int, tuple[int, int]] = {}
    for base in bases_in(directory):
        for header, _ in batches_in(directory / f"{base:020d}.log"):
            if header.producer_id < 0:
                continue
            epoch, last = known.get(header.producer_id, (header.producer_epoch, -1))
            if header.producer_epoch != epoch:
                epoch, last = header.producer_epoch, -1
            known[header.producer_id] = epoch, last if header.is_control else header.last_offset
    return tuple((producer_id, *state) for producer_id, state in sorted(known.items()))
