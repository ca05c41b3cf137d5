"""Transactions in a log on a disk that loses power at any moment: whatever is left of the log, its batches alone say
which transactions are open and which were aborted, and that is what the log knows after each start."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.simulator.world.disk import CAPACITY_BYTES, SimDisk

from strandline.codec.columns import Record, encode_batch
from strandline.codec.record_batch import HEADER, is_marker, parse_header
from strandline.codec.transaction_marker import encode_marker, parse_marker
from strandline.config.topic_config import TopicConfig
from strandline.errors import DiskFailed
from strandline.ids import TopicPartition
from strandline.log.log_directory import LogDirectory
from strandline.log.log_replay import learn_marker
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.truncation import truncate_to
from strandline.partition.producers import Producers

DATA = Path("data")
NAME = TopicPartition("orders", 0)
IDS = (1, 2, 3)


def told_by_batches(log: PartitionLog) -> tuple[dict[int, int], list[tuple[int, int]]]:
    """Open transactions, and aborted ones in the order of their markers."""
    opened: dict[int, int] = {}
    aborted: list[tuple[int, int]] = []
    for batch in log.batches():
        header = parse_header(batch)
        if is_marker(header):
            marker = parse_marker(batch)
            assert marker is not None
            first_offset = opened.pop(header.producer_id, None)
            if first_offset is not None and not marker.is_commit:
                aborted.append((header.producer_id, first_offset))
        else:
            opened.setdefault(header.producer_id, header.base_offset)
    return opened, aborted


def append(log: PartitionLog, producers: Producers, batch: bytearray, now_ms: int) -> None:
    log.append(batch, HEADER.unpack_from(batch), leader_epoch=0, now_ms=now_ms)
    header = parse_header(batch)
    if is_marker(header):
        learn_marker(log, header, batch, log.active)
    else:
        producers.note_header(header, 0)


def something(rng: random.Random, now_ms: int) -> bytearray:
    producer_id = rng.choice(IDS)
    if rng.random() < 0.5:
        return encode_marker(producer_id, 0, is_commit=rng.random() < 0.3, coordinator_epoch=0, timestamp_ms=now_ms)
    records = [Record(timestamp_ms=now_ms, value=b"%d" % rng.getrandbits(40))]
    return bytearray(
        encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    )


@pytest.mark.parametrize("seed", range(120))
def test_no_kill_or_power_cut_hides_what_was_aborted(seed: int) -> None:
    rng = random.Random(seed)
    disk = SimDisk(rng)
    disk.make_directory(DATA)
    disk.sync_all()
    now_ms = 0
    for _ in range(8):
        directory = LogDirectory(DATA, disk=disk, open_files_max=8)
        producers = Producers()
        log = directory.open_log(NAME, TopicConfig(segment_ms=60), now_ms=now_ms, observer=producers)
        for _ in range(rng.randint(0, 10)):
            opened, aborted = told_by_batches(log)
            assert producers.open_transactions == opened
            assert aborted_transactions(log, 0, log.log_end_offset, may_block=True) == aborted
            now_ms += rng.randint(0, 30)
            if rng.random() < 0.1 and log.active.size_bytes:
                disk.used_bytes, disk.capacity_bytes = 0, rng.randrange(80)
            try:
                append(log, producers, something(rng, now_ms), now_ms)
            except DiskFailed:
                continue
            finally:
                disk.capacity_bytes = CAPACITY_BYTES
            if rng.random() < 0.5:
                log.flush_now()
            if rng.random() < 0.1 and log.log_end_offset > 1:
                offsets = [parse_header(batch).base_offset for batch in log.batches()]
                offset = rng.choice(offsets[len(offsets) // 2 :])
                directory.lower_recovery_point(NAME, offset)
                truncate_to(log, offset)
            if rng.random() < 0.1 and log.active.size_bytes:
                log.roll(now_ms)
            if rng.random() < 0.2:
                directory.write_checkpoints({NAME: (log, log.log_end_offset)})
        end = rng.random()
        if end < 0.3:
            log.close()
            directory.write_checkpoints({NAME: (log, log.log_end_offset)})
            directory.close(clean=True)
            if rng.random() < 0.5:
                disk.power_cut()
        elif end < 0.6:
            disk.process_died()
        else:
            disk.power_cut()
