"""What was appended is read back, from every offset, within every limit."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.unit.log.engine import NOON_MS, append, batch_of, fill, offsets_in, open_log, read_bytes, records_in, split
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.codec.columns import Compression, Record, encode_batch
from strandline.codec.record_batch import check_batch, parse_header
from strandline.errors import Closed, CorruptLog, OffsetOutOfRange
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import TAIL_BATCHES_MAX, ColdRead
from strandline.log.trimming import trim_now

SHAPES = [
    pytest.param({}, id="one-segment"),
    pytest.param({"segment_bytes": 1000}, id="many-segments"),
    pytest.param({"index_interval_bytes": 150}, id="dense-index"),
    pytest.param({"segment_bytes": 2000, "index_interval_bytes": 300}, id="both"),
]


def uneven(log: PartitionLog, batches: int = 40) -> list[tuple[int, bytes]]:
    """Batches of one to five records and of several sizes: (base offset, bytes as stored)."""
    stored = []
    for number in range(batches):
        count = 1 + number % 5
        first = log.log_end_offset
        batch = batch_of([b"%d" % (first + step) + b"x" * (number * 7 % 90) for step in range(count)])
        append(log, batch)
        stored.append((first, bytes(batch)))
    return stored


@pytest.mark.parametrize("config", SHAPES)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_read_at_any_offset_begins_with_the_batch_that_holds_it(
    tmp_path: Path, config: dict[str, int], reopened: bool
) -> None:
    log = open_log(tmp_path / "orders-0", **config)
    stored = uneven(log)
    if reopened:
        # Without the places of the last batches in memory, the way goes through the index.
        log.close()
        log = open_log(tmp_path / "orders-0", clean=True, **config)
    for base_offset, batch in stored:
        for offset in range(base_offset, base_offset + parse_header(batch).record_count):
            assert split(read_bytes(log, offset))[0] == batch
    assert read_bytes(log, log.log_end_offset) == b""
    assert [record.value.split(b"x")[0] for record in records_in(log)] == [
        b"%d" % offset for offset in range(log.log_end_offset)
    ]
    log.close()


def test_offsets_and_the_leader_epoch_are_written_outside_the_crc(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    append(log, batch_of([b"a", b"b"]), leader_epoch=3)
    sent = batch_of([b"c", b"d", b"e"])
    assert append(log, bytearray(sent), leader_epoch=5) == 2
    kept = read_bytes(log, 2)
    header = parse_header(kept)
    assert (header.base_offset, header.leader_epoch, header.last_offset) == (2, 5, 4)
    assert kept[16:] == sent[16:], "everything from the magic byte on is the producer's"
    check_batch(kept)
    log.close()


@pytest.mark.parametrize("config", SHAPES)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_read_stays_below_its_limit_offset(tmp_path: Path, config: dict[str, int], reopened: bool) -> None:
    log = open_log(tmp_path / "orders-0", **config)
    stored = uneven(log, 25)
    if reopened:
        log.close()
        log = open_log(tmp_path / "orders-0", clean=True, **config)
    for start, _ in stored:
        for limit in range(start, log.log_end_offset + 1):
            batches = split(read_bytes(log, start, limit_offset=limit))
            # A batch that reaches beyond the limit may not be shown at all: its end is not committed.
            assert all(parse_header(batch).last_offset < limit for batch in batches)
            whole = [base for base, batch in stored if base >= start and parse_header(batch).last_offset < limit]
            assert bool(batches) == (start in whole)
    log.close()


@pytest.mark.parametrize("config", SHAPES)
@pytest.mark.parametrize("reopened", [False, True])
def test_a_read_stays_within_its_bytes_and_gives_the_first_batch_whole(
    tmp_path: Path, config: dict[str, int], reopened: bool
) -> None:
    log = open_log(tmp_path / "orders-0", **config)
    stored = uneven(log, 25)
    if reopened:
        log.close()
        log = open_log(tmp_path / "orders-0", clean=True, **config)
    sizes = {base: len(batch) for base, batch in stored}
    for start, first in stored:
        for size_bytes_max in (0, 1, len(first) - 1, len(first), len(first) + 1, 200, 500, 5000, 1 << 20):
            data = read_bytes(log, start, size_bytes_max=size_bytes_max)
            batches = split(data)
            assert batches[0] == first
            assert len(data) <= max(size_bytes_max, sizes[start])
            got = [parse_header(batch).base_offset for batch in batches]
            following = [base for base, _ in stored if base >= start][: len(got)]
            assert got == following, "batches follow each other without a hole"
            without = read_bytes(log, start, size_bytes_max=size_bytes_max, at_least_one=False)
            assert without == (data if len(first) <= size_bytes_max else b"")
    log.close()


def test_reading_on_from_the_last_whole_batch_reaches_everything(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=3000, index_interval_bytes=500)
    stored = uneven(log, 60)
    for size_bytes_max in (1, 100, 333, 1000, 4000):
        offset, seen = 0, []
        while data := read_bytes(log, offset, size_bytes_max=size_bytes_max):
            seen += split(data)
            offset = parse_header(seen[-1]).last_offset + 1
        assert seen == [batch for _, batch in stored]
    log.close()


def test_more_batches_than_the_tail_remembers(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, TAIL_BATCHES_MAX * 2 + 7, records=2, value_bytes=1)
    assert len(log.active.tail_positions) <= TAIL_BATCHES_MAX
    for offset in range(log.log_end_offset):
        header = parse_header(read_bytes(log, offset, size_bytes_max=1))
        assert header.base_offset <= offset <= header.last_offset
    log.close()


def test_an_offset_outside_the_log_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    for offset in (-1, 4, 1 << 40):
        with pytest.raises(OffsetOutOfRange):
            log.read(offset, size_bytes_max=100)
    trim_now(log, 2)
    with pytest.raises(OffsetOutOfRange):
        log.read(1, size_bytes_max=100)
    assert parse_header(read_bytes(log, 2)).base_offset == 2
    log.close()


@pytest.mark.parametrize("reopened", [False, True])
def test_an_offset_in_a_gap_is_served_from_the_batch_behind_the_gap(tmp_path: Path, reopened: bool) -> None:
    """Compaction leaves holes, and followers copy them. A reader that was sent only what lies before the hole would ask
    for the same offset for ever."""
    log = open_log(tmp_path / "orders-0")
    for base_offset in (0, 10, 20):
        records = [Record(timestamp_ms=NOON_MS, value=b"v") for _ in range(3)]
        batch = encode_batch(records, base_offset=base_offset, leader_epoch=0)
        log.append_as_is(batch, parse_header(batch), now_ms=NOON_MS)
    if reopened:
        log.close()
        log = open_log(tmp_path / "orders-0", clean=True)
    firsts = [parse_header(read_bytes(log, offset, size_bytes_max=1)).base_offset for offset in range(23)]
    assert firsts == [0] * 3 + [10] * 10 + [20] * 10
    log.close()


def test_a_batch_that_goes_back_is_refused_as_damage(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 3)
    batch = encode_batch([Record(timestamp_ms=NOON_MS, value=b"v")], base_offset=2)
    with pytest.raises(CorruptLog):
        log.append_as_is(batch, parse_header(batch), now_ms=NOON_MS)
    assert offsets_in(log) == [0, 1, 2]
    log.close()


def test_a_closed_log_answers_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 2)
    log.close()
    with pytest.raises(Closed):
        log.read(0, size_bytes_max=10)
    with pytest.raises(Closed):
        append(log, batch_of([b"x"]))


@pytest.mark.parametrize("codec", Compression)
def test_compressed_batches_are_stored_as_they_came(tmp_path: Path, codec: Compression) -> None:
    log = open_log(tmp_path / "orders-0")
    sent = batch_of([b"value %d" % number for number in range(50)], codec=codec)
    append(log, bytearray(sent))
    assert read_bytes(log, 25)[16:] == sent[16:]
    assert [record.value for record in records_in(log)] == [b"value %d" % number for number in range(50)]
    log.close()


def test_what_the_page_cache_lacks_is_not_waited_for(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk)
    fill(log, 20)
    log.close()
    log = open_log(tmp_path / "orders-0", disk=disk, clean=True)
    disk.fail("read_at_nowait", 0, suffix=".log")
    with pytest.raises(ColdRead):
        log.read(7, size_bytes_max=100, may_block=False)
    assert all(segment.references == 0 for segment in log.segments), "a look-up that gave up holds nothing"
    assert parse_header(read_bytes(log, 7)).base_offset == 7
    log.close()
