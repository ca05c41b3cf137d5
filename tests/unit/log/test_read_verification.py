"""What was found on disk is checked before it is given to anybody: no changed bit is served, and all are noticed."""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS, append, batch_of, fill, index_entries, open_log, read_bytes, split

from strandline.codec.record_batch import BatchHeader, parse_header
from strandline.errors import CorruptLog, DamagedRecords
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.index import OffsetIndex
from strandline.log.segment.read_verification import PIECE_BYTES, damage_of, locate
from strandline.log.segment.segment import ColdRead
from strandline.partition.producers import Producers

SEED = 20_261_116
END = 48
CONFIG: dict[str, Any] = {"segment_bytes": 1060, "index_interval_bytes": 250}


def a_log(directory: Path) -> dict[int, bytes]:
    """A closed log of several segments and epochs: its batches by their offsets."""
    log = open_log(directory, observer=Producers(), **CONFIG)
    for epoch in (0, 3, 4):
        fill(log, 8, records=2, leader_epoch=epoch)
    batches = {parse_header(batch).base_offset: batch for batch in log.batches()}
    log.close()
    assert len(log.segments) >= 3
    return batches


def reopen(directory: Path) -> PartitionLog:
    return open_log(directory, observer=Producers(), clean=True, recovery_point=END, **CONFIG)


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def serve_all(log: PartitionLog, batches: dict[int, bytes]) -> int:
    """Ask for every offset, as a reader would, in small reads and large; how many were refused."""
    refused = 0
    for offset in range(log.log_start_offset, log.log_end_offset):
        for size_bytes_max in (1, 300):
            try:
                served = split(read_bytes(log, offset, size_bytes_max=size_bytes_max))
            except DamagedRecords:
                refused += 1
                continue
            assert served, f"offset {offset} is there"
            assert parse_header(served[0]).base_offset == offset - offset % 2, "what was asked for comes first"
            for batch in served:
                assert batches[parse_header(batch).base_offset] == batch
    return refused


def try_flip(original: Path, copy: Path, batches: dict[int, bytes], name: str, bit: int) -> None:
    shutil.copytree(original, copy)
    flip(copy / name, bit)
    try:
        log = reopen(copy)
    except CorruptLog:
        # The very last base offset: nothing is served at all.
        shutil.rmtree(copy)
        return
    assert log.log_end_offset == END
    refused = serve_all(log, batches)
    assert refused, f"bit {bit} of {name} was not noticed"
    assert refused < 2 * END - 60, "one bit does not take everything"
    assert sum(len(damage_of(segment)) for segment in log.segments) == 1
    log.close()
    shutil.rmtree(copy)


@pytest.mark.lengthy("a case for each bit of a header")
def test_every_bit_of_a_header_counts(tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    batches = a_log(original)
    name = sorted(path.name for path in original.glob("*.log"))[1]
    start = len(split((original / name).read_bytes())[0])
    for bit in [*range(8 * start, 8 * (start + 27)), *range(8 * (start + 27), 8 * (start + 61), 7)]:
        try_flip(original, tmp_path / "copy", batches, name, bit)


def test_bits_anywhere_count(tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    batches = a_log(original)
    files = sorted(original.glob("*.log"))
    seed = random.Random(SEED)
    print("seed", SEED)
    for _ in range(100):
        path = seed.choice(files)
        try_flip(original, tmp_path / "copy", batches, path.name, seed.randrange(8 * path.stat().st_size))


@pytest.mark.lengthy("a case for each bit of a header")
def test_every_bit_of_the_last_header_counts(tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    batches = a_log(original)
    path = sorted(original.glob("*.log"))[-1]
    start = path.stat().st_size - len(split(path.read_bytes())[-1])
    for bit in range(8 * start, 8 * (start + 27)):
        try_flip(original, tmp_path / "copy", batches, path.name, bit)


@pytest.mark.lengthy("a case for each bit of an index")
def test_an_index_that_changed_leads_nobody_astray(tmp_path: Path) -> None:
    original = tmp_path / "orders-0"
    batches = a_log(original)
    path = sorted(original.glob("*.index"))[1]
    for bit in range(8 * path.stat().st_size):
        copy = tmp_path / "copy"
        shutil.copytree(original, copy)
        flip(copy / path.name, bit)
        log = reopen(copy)
        serve_all(log, batches)
        log.close()
        shutil.rmtree(copy)


def test_a_reader_who_may_not_wait_leaves_the_check_to_a_thread(tmp_path: Path) -> None:
    batches = a_log(tmp_path / "orders-0")
    log = reopen(tmp_path / "orders-0")
    with pytest.raises(ColdRead):
        log.read(0, size_bytes_max=1000, may_block=False)
    locate(log.segments[0], 0, may_block=True)
    assert (
        split(read_bytes(log, 0, may_block=False))
        == split(b"".join(batches.values()))[
            : len(split((tmp_path / "orders-0" / "00000000000000000000.log").read_bytes()))
        ]
    )
    assert log.segments[0].verified_from == 0, "all of a small segment was checked"
    assert log.segments[0].unverified is None
    log.close()


def test_what_this_process_wrote_is_not_read_again(tmp_path: Path) -> None:
    a_log(tmp_path / "orders-0")
    log = reopen(tmp_path / "orders-0")
    place = log.active.size_bytes
    assert log.active.verified_from <= place
    fill(log, 1)
    piece = log.read(END, size_bytes_max=1000, may_block=False)
    assert piece is not None
    assert piece.position == place
    piece.release()
    log.roll(NOON_MS)
    assert log.active.verified_from == 0
    log.close()


def test_after_a_crash_what_recovery_read_is_not_read_again(tmp_path: Path) -> None:
    a_log(tmp_path / "orders-0")
    log = open_log(tmp_path / "orders-0", observer=Producers(), recovery_point=END, **CONFIG)
    assert log.active.verified_from == 0
    assert log.segments[0].verified_from == log.segments[0].size_bytes
    log.close()


def test_the_end_of_a_log_that_is_damaged_is_left_behind_and_the_log_goes_on(tmp_path: Path) -> None:
    batches = a_log(tmp_path / "orders-0")
    path = sorted((tmp_path / "orders-0").glob("*.log"))[-1]
    flip(path, 8 * path.stat().st_size - 20)
    log = reopen(tmp_path / "orders-0")
    assert log.log_end_offset == END
    assert len(damage_of(log.segments[-2])) == 1
    assert serve_all(log, batches)
    fill(log, 1)
    assert parse_header(read_bytes(log, END)).base_offset == END
    log.close()


def test_large_segments_are_checked_in_pieces_and_only_where_somebody_reads(tmp_path: Path) -> None:
    config = {"segment_bytes": 10 * PIECE_BYTES, "index_interval_bytes": 4096}
    log = open_log(tmp_path / "orders-0", observer=Producers(), **config)
    fill(log, 600, value_bytes=2000)
    log.close()
    log = open_log(tmp_path / "orders-0", observer=Producers(), clean=True, recovery_point=600, **config)
    segment = log.active
    tail = segment.verified_from
    assert tail > 5 * PIECE_BYTES, "only what lies behind the last entry of the index was looked at"
    piece = log.read(300, size_bytes_max=8 * PIECE_BYTES)
    assert piece is not None
    assert 0 < piece.size_bytes <= PIECE_BYTES
    piece.release()
    assert segment.unverified is not None
    [stretch] = segment.unverified.stretches
    assert stretch.end - stretch.start <= PIECE_BYTES
    offset = 0
    while offset < 600:
        headers = [parse_header(batch) for batch in split(read_bytes(log, offset, size_bytes_max=8 * PIECE_BYTES))]
        assert headers[0].base_offset == offset
        offset = headers[-1].last_offset + 1
    assert segment.verified_from == 0
    assert segment.unverified is None
    log.close()


def test_the_limit_of_a_reader_holds_where_only_a_part_is_checked(tmp_path: Path) -> None:
    a_log(tmp_path / "orders-0")
    log = reopen(tmp_path / "orders-0")
    served = split(read_bytes(log, 4, limit_offset=10))
    assert [parse_header(batch).base_offset for batch in served] == [4, 6, 8]
    log.close()


def test_records_before_the_damage_are_served_whatever_the_limit(tmp_path: Path) -> None:
    batches = a_log(tmp_path / "orders-0")
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    sizes = [len(batch) for batch in split(path.read_bytes())]
    flip(path, 8 * (sum(sizes[:6]) + 100))
    for limit in (11, 12, 13, 14, END):
        log = reopen(tmp_path / "orders-0")
        served = split(read_bytes(log, 0, limit_offset=limit))
        assert served == [batches[offset] for offset in range(0, min(limit, 12), 2)][: len(served)]
        assert len(served) >= 5
        with pytest.raises(DamagedRecords):
            log.read(12, size_bytes_max=1000)
        log.close()


def gap(log: PartitionLog, offsets: int) -> None:
    """A batch as a leader sends it whose cleaner took what was before it."""
    batch = batch_of([b"x" * 30])
    batch[:8] = (log.log_end_offset + offsets).to_bytes(8, "big")
    batch[12:16] = (0).to_bytes(4, "big")
    log.append_as_is(batch, parse_header(batch), now_ms=NOON_MS)


def test_gaps_of_the_cleaner_are_no_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", observer=Producers(), **CONFIG)
    append(log, batch_of([b"first"]))
    for step in range(60):
        gap(log, step % 3)
    end = log.log_end_offset
    headers: list[BatchHeader] = [parse_header(batch) for batch in log.batches()]
    log.close()
    log = open_log(tmp_path / "orders-0", observer=Producers(), clean=True, recovery_point=end, **CONFIG)
    assert [parse_header(batch) for batch in log.batches()] == headers
    log.close()


def test_an_index_as_kafka_writes_it_for_several_batches_at_once_is_no_damage(tmp_path: Path) -> None:
    batches = a_log(tmp_path / "orders-0")
    for path in sorted((tmp_path / "orders-0").glob("*.index"))[:-1]:
        entries = index_entries(path)
        index = OffsetIndex()
        for relative, position in entries[::2]:
            index.append(relative + 2, position)
        path.write_bytes(index.to_bytes())
    log = reopen(tmp_path / "orders-0")
    assert serve_all(log, batches) == 0
    log.close()
