"""The `.txnindex` files: Kafka's bytes, what a range finds in them, and that no stop, cut or damage loses an entry."""

from __future__ import annotations

import errno
import random
import struct
from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, abandon, append, crash, open_log
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.codec.columns import Record, encode_batch
from strandline.codec.record_batch import HEADER
from strandline.codec.transaction_marker import MARKER_SIZE, TransactionMarker, encode_marker, parse_marker
from strandline.errors import CorruptLog, DiskFailed
from strandline.log.log_replay import learn_marker
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.aborted_transactions import aborted_segments, aborted_transactions
from strandline.log.segment.segment import ColdRead
from strandline.log.segment.transaction_index import ENTRY_SIZE, AbortedTransaction, TransactionIndex
from strandline.log.trimming import trim_now
from strandline.log.truncation import truncate_to
from strandline.partition.producers import Producers

SEED = 20_261_115


def data(log: PartitionLog, producer_id: int, *, size: int = 10) -> int:
    records = [Record(timestamp_ms=NOON_MS, value=b"v" * size)]
    batch = encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)
    return append(log, bytearray(batch))


def end(log: PartitionLog, producer_id: int, *, commit: bool = False) -> int:
    marker = encode_marker(producer_id, 0, is_commit=commit, coordinator_epoch=3, timestamp_ms=NOON_MS)
    offset = log.append(marker, HEADER.unpack_from(marker), leader_epoch=0, now_ms=NOON_MS)
    learn_marker(log, HEADER.unpack_from(marker), marker, log.active)
    return offset


def aborted(log: PartitionLog) -> list[tuple[int, int]]:
    return aborted_transactions(log, 0, log.log_end_offset, may_block=True)


# The format


def test_an_entry_is_kafkas() -> None:
    index = TransactionIndex()
    index.append(AbortedTransaction(7, 100, 120, 110))
    assert index.to_bytes() == struct.pack(">hqqqq", 0, 7, 100, 120, 110) == index.unwritten
    again = TransactionIndex.parse(index.to_bytes(), base_offset=120)
    assert again.to_bytes() == index.to_bytes()
    assert not again.unwritten


@pytest.mark.parametrize(
    "content",
    [
        struct.pack(">hqqqq", 0, 7, 100, 120, 110)[:-1],
        struct.pack(">hqqqq", 1, 7, 100, 120, 110),
        struct.pack(">hqqqq", 0, 7, 100, 119, 110),
        struct.pack(">hqqqq", 0, 7, 121, 120, 110),
        struct.pack(">hqqqq", 0, 7, 100, 120, 110) * 2,
        bytes(34),
    ],
)
def test_what_cannot_be_an_index_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptLog):
        TransactionIndex.parse(content, base_offset=120)


def test_a_range_finds_what_overlaps_it() -> None:
    print("seed", SEED)
    chance = random.Random(SEED)
    entries, opened, stable_end = [], {}, 0
    index = TransactionIndex()
    for offset in range(300):
        producer_id = chance.randrange(8)
        if producer_id in opened:
            first = opened.pop(producer_id)
            stable_end = min(opened.values(), default=offset + 1)
            entries.append(AbortedTransaction(producer_id, first, offset, stable_end))
            index.append(entries[-1])
        else:
            opened[producer_id] = offset
    for _ in range(500):
        start = chance.randrange(300)
        stop = chance.randrange(start, 301)
        found: list[tuple[int, int]] = []
        index.collect(start, stop, found)
        wanted = [each for each in entries if each.last_offset >= start and each.first_offset < stop]
        assert found == [(each.producer_id, each.first_offset) for each in wanted]


def test_a_marker_is_read_back() -> None:
    for is_commit in (False, True):
        marker = encode_marker(9, 4, is_commit=is_commit, coordinator_epoch=77, timestamp_ms=NOON_MS)
        assert len(marker) == MARKER_SIZE
        assert parse_marker(marker) == TransactionMarker(is_commit, 77)
        longer = encode_batch(
            [Record(timestamp_ms=NOON_MS, key=bytes(marker[66:70]) + b"more", value=bytes(marker[71:77]) + b"more")],
            producer_id=9,
            producer_epoch=4,
            transactional=True,
            control=True,
        )
        assert parse_marker(longer) == TransactionMarker(is_commit, 77), "of a version to come"


@pytest.mark.parametrize(("key", "value"), [(b"\0\0\0\2", b"\0" * 6), (b"\0\0", b"\0" * 6), (b"\0\0\0\1", None)])
def test_other_control_records_end_nothing(key: bytes, value: bytes | None) -> None:
    batch = encode_batch([Record(timestamp_ms=1, key=key, value=value)], producer_id=9, producer_epoch=0, control=True)
    assert parse_marker(batch) is None
    assert parse_marker(batch[:70]) is None


# Files


def test_a_file_is_there_where_something_was_aborted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    data(log, 1)
    end(log, 1, commit=True)
    log.roll(NOON_MS)
    data(log, 1)
    log.roll(NOON_MS)
    end(log, 1)
    log.close()
    assert [path.name for path in log.directory.glob("*.txnindex")] == ["00000000000000000003.txnindex"]
    content = (log.directory / "00000000000000000003.txnindex").read_bytes()
    assert content == struct.pack(">hqqqq", 0, 1, 2, 3, 4), "beside the segment that holds the marker"


def test_the_last_stable_offset_is_that_of_the_others(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for producer_id in (1, 2, 3):
        data(log, producer_id)
    end(log, 2)
    end(log, 1)
    end(log, 3)
    assert list(log.active.transaction_index.stable_offsets) == [0, 2, 6]


@pytest.mark.parametrize("clean", [True, False])
def test_a_restart_knows_what_was_aborted(tmp_path: Path, clean: bool) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for producer_id in (1, 2, 3):
        data(log, producer_id)
        data(log, 9)
        if producer_id == 2:
            log.roll(NOON_MS)
        end(log, producer_id)
    before = aborted(log)
    contents = [segment.transaction_index.to_bytes() for segment in log.segments]
    assert before == [(1, 0), (2, 3), (3, 6)]
    if clean:
        log.close()
        again = open_log(tmp_path / "orders-0", observer=Producers(), clean=True)
    else:
        again = open_log(crash(log, tmp_path / "copy"), observer=Producers(), recovery_point=4)
        abandon(log)
    assert aborted(again) == before
    assert [segment.transaction_index.to_bytes() for segment in again.segments] == contents
    assert data(again, 4) == 9
    assert end(again, 4) == 10
    assert aborted(again) == [*before, (4, 9)]
    again.close()
    last = open_log(again.directory, observer=Producers(), clean=True)
    assert aborted(last) == [*before, (4, 9)]
    last.close()


@pytest.mark.parametrize(
    ("clean", "damage"), [(True, "cut"), (False, "cut"), (False, "foreign"), (False, "gone from the last")]
)
def test_a_damaged_index_is_built_anew(tmp_path: Path, damage: str, clean: bool) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    for producer_id in (1, 2, 3):
        data(log, producer_id)
        end(log, producer_id)
        log.roll(NOON_MS)
    data(log, 4)
    end(log, 4)
    log.close()
    first, *_, last = sorted(log.directory.glob("*.txnindex"))
    if damage == "cut":
        first.write_bytes(first.read_bytes()[:20])
    elif damage == "foreign":
        first.write_bytes(last.read_bytes()[:2] + b"\xff" * 32)
    else:
        last.unlink()
    again = open_log(log.directory, observer=Producers(), clean=clean, recovery_point=log.log_end_offset)
    assert aborted(again) == [(1, 0), (2, 2), (3, 4), (4, 6)]
    again.close()


def test_what_is_cut_was_not_aborted(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    data(log, 1)
    end(log, 1)
    data(log, 2)
    log.roll(NOON_MS)
    end(log, 2)
    log.roll(NOON_MS)
    truncate_to(log, 3)
    assert aborted(log) == [(1, 0)]
    assert end(log, 2, commit=True) == 3
    assert aborted(log) == [(1, 0)]
    truncate_to(log, 1)
    assert aborted(log) == []
    log.close()
    assert not any(path.stat().st_size for path in log.directory.glob("*.txnindex"))


def test_a_segment_takes_its_index_along(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    data(log, 1)
    end(log, 1)
    log.roll(NOON_MS)
    data(log, 2)
    end(log, 2)
    trim_now(log, 2)
    assert list(log.directory.glob("*.txnindex*")) == []
    assert aborted(log) == [(2, 2)]
    log.close()


def test_an_index_that_is_not_in_memory_is_left_to_a_thread(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers())
    data(log, 1)
    end(log, 1)
    log.roll(NOON_MS)
    segment = log.segments[0]
    segment.detach()
    with pytest.raises(ColdRead):
        aborted_transactions(log, 0, 2, may_block=False)
    assert aborted_segments(log, 0) == [segment]
    segment.load_transaction_index(may_block=True)
    assert aborted_transactions(log, 0, 2, may_block=False) == [(1, 0)]
    assert aborted_transactions(log, 2, 3, may_block=False) == []
    log.close()


def test_an_index_that_never_reached_the_disk_is_missed(tmp_path: Path) -> None:
    """All batches were flushed, then the segment was sealed; the power went before its index was synced."""
    log = open_log(tmp_path / "orders-0", observer=Producers())
    data(log, 1)
    end(log, 1)
    log.flush_now()
    log.roll(NOON_MS)
    copy = crash(log, tmp_path / "copy")
    (copy / "00000000000000000000.txnindex").unlink()
    again = open_log(copy, observer=Producers(), recovery_point=2)
    assert aborted(again) == [(1, 0)]
    again.close()
    abandon(log)


@pytest.mark.parametrize("ends", ["roll", "stop"])
def test_the_file_is_synced_before_the_log_counts_as_flushed(tmp_path: Path, ends: str) -> None:
    """It is not read again from the batches: a file that a power cut took would be missed by nobody."""
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk, observer=Producers())
    data(log, 1)
    end(log, 1)
    if ends == "roll":
        log.roll(NOON_MS)
    disk.fail("datasync", errno.EIO, suffix=".txnindex")
    finish = log.flush_now if ends == "roll" else log.close
    with pytest.raises(DiskFailed):
        finish()
    assert log.flushed_offset == 0
    abandon(log)


def test_a_full_disk_keeps_the_segment_and_its_entries(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk, observer=Producers())
    data(log, 1)
    end(log, 1)
    fault = disk.fail("write_at", errno.ENOSPC, suffix=".txnindex", partial_bytes=5)
    with pytest.raises(DiskFailed):
        log.roll(NOON_MS)
    assert len(log.segments) == 1
    data(log, 2)
    end(log, 2)
    fault.repaired = True
    log.roll(NOON_MS)
    assert (log.directory / "00000000000000000000.txnindex").stat().st_size == 2 * ENTRY_SIZE
    log.close()
    again = open_log(log.directory, observer=Producers(), clean=True)
    assert aborted(again) == [(1, 0), (2, 2)]
    again.close()
