"""Random histories of transactions on a partition that leads, follows, is cut, stopped and killed.

What is known of transactions follows from the log alone: a log without snapshots and indexes, read from its start,
teaches the same as the partition knows that lived through it all; and both say what a plain account of it says.
"""

from __future__ import annotations

import random
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, abandon, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.columns import Record, encode_batch
from strandline.codec.record_batch import LEADER_FIELDS, PREFIX_SIZE, parse_header
from strandline.codec.transaction_marker import encode_marker
from strandline.config.topic_config import TopicConfig
from strandline.log.flusher import Flusher
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.partition import following
from strandline.partition.following import make_follower
from strandline.partition.leading import make_leader
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers
from strandline.partition.transaction_appends import append_marker, begin_verification

IDS = (11, 12, 13, 14)
SETTINGS = {"flush_mode": "ack", "segment_bytes": 700, "index_interval_bytes": 150}


@dataclass
class Written:
    """A batch as a plain account of the log has it."""

    offset: int
    end_offset: int
    producer_id: int
    kind: str
    """plain, data, commit or abort."""


@dataclass
class Aborted:
    producer_id: int
    first_offset: int
    last_offset: int


class History:
    def __init__(self, home: Path, seed: int) -> None:
        self.random = random.Random(seed)
        self.home = home
        self.directory = home / "0" / "orders-0"
        self.lives = 0
        self.account: list[Written] = []
        self.epochs = dict.fromkeys(IDS, 0)
        self.sequences = dict.fromkeys(IDS, 0)
        self.leader_epoch = 1
        self.open(clean=False, recovery_point=0, high_watermark=0)
        self.lead()

    def open(self, *, clean: bool, recovery_point: int, high_watermark: int) -> None:
        self.log, self.partition = opened(
            self.directory, clean=clean, recovery_point=recovery_point, high_watermark=high_watermark
        )
        make_follower(self.partition, -1, leader_epoch=self.leader_epoch, partition_epoch=self.leader_epoch)

    def lead(self) -> None:
        self.leader_epoch += 1
        make_leader(
            self.partition,
            1,
            leader_epoch=self.leader_epoch,
            partition_epoch=self.leader_epoch,
            replicas=[1],
            isr=[1],
            lag_max_s=30,
            is_eligible=lambda *_: True,
        )

    def follow(self) -> None:
        self.leader_epoch += 1
        make_follower(self.partition, 2, leader_epoch=self.leader_epoch, partition_epoch=self.leader_epoch)

    # What happens

    def step(self) -> str:
        name = self.random.choices(
            ["plain", "data", "end", "advance", "cut", "turn", "stop", "kill"], [6, 12, 8, 4, 1, 2, 1, 1]
        )[0]
        getattr(self, name)()
        return name

    def plain(self) -> None:
        self.write(-1, "plain", encode_batch([Record(timestamp_ms=NOON_MS, value=b"p" * 40)]))

    def data(self) -> None:
        producer_id = self.random.choice(IDS)
        count = self.random.randint(1, 3)
        records = [Record(timestamp_ms=NOON_MS, value=b"t" * self.random.randint(1, 80))] * count
        batch = encode_batch(
            records,
            producer_id=producer_id,
            producer_epoch=self.epochs[producer_id],
            base_sequence=self.sequences[producer_id],
            transactional=True,
        )
        self.sequences[producer_id] += count
        self.write(producer_id, "data", batch)

    def end(self) -> None:
        """A marker, for a transaction that is open or for none; half of them bump the epoch, as version 2 does."""
        producer_id = self.random.choice(IDS)
        is_commit = self.random.random() < 0.5
        if self.random.random() < 0.5:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0
        epoch, coordinator_epoch = self.epochs[producer_id], self.leader_epoch
        kind = "commit" if is_commit else "abort"
        if self.partition.is_leader:
            offset = self.log.log_end_offset
            append_marker(
                self.partition,
                producer_id,
                epoch,
                is_commit=is_commit,
                coordinator_epoch=coordinator_epoch,
                transaction_version=1,
                now_ms=NOON_MS,
                on_committed=lambda _: None,
            )
            self.account.append(Written(offset, offset + 1, producer_id, kind))
            return
        marker = encode_marker(
            producer_id, epoch, is_commit=is_commit, coordinator_epoch=coordinator_epoch, timestamp_ms=NOON_MS
        )
        self.write(producer_id, kind, bytes(marker))

    def write(self, producer_id: int, kind: str, batch: bytes) -> None:
        offset = self.log.log_end_offset
        owned = bytearray(batch)
        header = parse_header(owned)
        if self.partition.is_leader:
            guard = (
                begin_verification(self.partition, producer_id, header.producer_epoch, header.base_sequence)
                if kind == "data"
                else None
            )
            self.partition.append(memoryview(owned), NOON_MS, guard=guard)
        else:
            LEADER_FIELDS.pack_into(owned, 0, offset, len(owned) - PREFIX_SIZE, self.leader_epoch)
            following.append_fetched(self.partition, memoryview(bytes(owned)))
        self.account.append(Written(offset, offset + header.last_offset_delta + 1, producer_id, kind))

    def advance(self) -> None:
        if self.partition.is_leader:
            self.log.flush_now()
        else:
            end_offset = self.log.log_end_offset
            following.learn_high_watermark(
                self.partition, self.random.randint(self.partition.high_watermark, end_offset)
            )

    def turn(self) -> None:
        if self.partition.is_leader:
            self.follow()
        else:
            self.lead()

    def cut(self) -> None:
        """What is not committed may be cut from a follower, now and then more."""
        if self.partition.is_leader:
            self.follow()
        lowest = 0 if self.random.random() < 0.2 else self.partition.high_watermark
        borders = [each.offset for each in self.account if each.offset >= lowest]
        if borders:
            offset = self.random.choice(borders)
            following.truncate_to(self.partition, offset)
            self.account = [each for each in self.account if each.offset < offset]
            self.resume_producers()

    def resume_producers(self) -> None:
        """Each goes on in an epoch of its own: what it sent last may be gone."""
        for producer_id in IDS:
            self.epochs[producer_id] += 1
            self.sequences[producer_id] = 0

    def stop(self) -> None:
        high_watermark = self.partition.high_watermark
        self.log.close()
        self.maybe_lose_snapshots()
        self.open(clean=True, recovery_point=self.log.flushed_offset, high_watermark=high_watermark)
        self.maybe_lead()

    def kill(self) -> None:
        high_watermark, recovery_point = self.partition.high_watermark, self.log.flushed_offset
        self.lives += 1
        copy = self.home / str(self.lives) / "orders-0"
        shutil.copytree(self.directory, copy)
        abandon(self.log)
        shutil.rmtree(self.directory)
        self.directory = copy
        self.maybe_lose_snapshots()
        self.open(clean=False, recovery_point=recovery_point, high_watermark=min(high_watermark, recovery_point))
        self.maybe_lead()

    def maybe_lose_snapshots(self) -> None:
        if self.random.random() < 0.3:
            for path in self.directory.glob("*.snapshot"):
                path.unlink()

    def maybe_lead(self) -> None:
        if self.random.random() < 0.5:
            self.lead()

    # What must hold

    def check_account(self) -> None:
        """Against the plain account: no snapshot, no index, no order of anything."""
        opened_at: dict[int, int] = {}
        undecided: list[int] = []
        aborted: list[Aborted] = []
        high_watermark = self.partition.high_watermark
        for each in self.account:
            if each.kind == "data":
                opened_at.setdefault(each.producer_id, each.offset)
            elif each.kind != "plain" and each.producer_id in opened_at:
                first_offset = opened_at.pop(each.producer_id)
                if each.offset >= high_watermark:
                    undecided.append(first_offset)
                if each.kind == "abort":
                    aborted.append(Aborted(each.producer_id, first_offset, each.offset))
        producers = self.partition.producers
        assert producers.open_transactions == opened_at
        assert self.partition.last_stable_offset == min([high_watermark, *opened_at.values(), *undecided])
        end_offset = self.log.log_end_offset
        for _ in range(3):
            start = self.random.randint(0, end_offset)
            stop = self.random.randint(start, end_offset)
            found = aborted_transactions(self.partition.log, start, stop, may_block=True)
            wanted = [each for each in aborted if each.last_offset >= start and each.first_offset < stop]
            assert found == [(each.producer_id, each.first_offset) for each in wanted], (start, stop)

    def check_log(self) -> None:
        """Against a copy of the log without anything but the batches."""
        copy = self.home / "copy" / "orders-0"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.directory, copy)
        for path in copy.iterdir():
            if path.suffix != ".log":
                path.unlink()
        high_watermark = self.partition.high_watermark
        log, rebuilt = opened(copy, clean=False, recovery_point=0, high_watermark=high_watermark)
        assert known(rebuilt) == known(self.partition)
        log.close()
        log, again = opened(copy, clean=True, recovery_point=log.flushed_offset, high_watermark=high_watermark)
        assert known(again) == known(self.partition)
        abandon(log)


def opened(directory: Path, *, clean: bool, recovery_point: int, high_watermark: int) -> tuple[PartitionLog, Partition]:
    producers = Producers()
    log = open_log(directory, observer=producers, clean=clean, recovery_point=recovery_point, **SETTINGS)
    partition = Partition(
        "orders",
        0,
        uuid.UUID(int=1),
        log=log,
        producers=producers,
        flusher=Flusher(ManualRuntime()),
        config=TopicConfig(**SETTINGS),
        leader_epoch=0,
        high_watermark=high_watermark,
    )
    return log, partition


def known(partition: Partition) -> dict[str, object]:
    producers = partition.producers
    return {
        "entries": {
            producer_id: (entry.epoch, entry.batches[-1:], entry.last_timestamp_ms, entry.coordinator_epoch)
            for producer_id, entry in producers.entries.items()
        },
        "open": list(producers.open_transactions.items()),
        "unstable": producers.first_unstable_offset,
        "stable": partition.last_stable_offset,
        "aborted": [(segment.base_offset, segment.transaction_index.to_bytes()) for segment in partition.log.segments],
    }


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(
            pytest.param(seed, marks=pytest.mark.lengthy("random walks beside a model"))
            for seed in (*range(1, 5), 1037)
        ),
    ],
)
def test_the_log_alone_tells_all_of_it(tmp_path: Path, seed: int) -> None:
    print("seed", seed)
    history = History(tmp_path, seed)
    for at in range(120):
        name = history.step()
        history.check_account()
        if at % 9 == 8 or name in ("cut", "stop", "kill"):
            history.check_log()
    abandon(history.log)
