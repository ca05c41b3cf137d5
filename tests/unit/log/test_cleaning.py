"""The cleaner on files: what stays, what goes and when, batch by batch."""

from __future__ import annotations

import errno
import json
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.simulator.world.disk import SimDisk
from tests.unit.log.cleaning_cases import TWINS, SegmentedLog, record, using
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.codec.columns import Compression, Record
from strandline.codec.record_batch import HAS_DELETE_HORIZON, HEADER_SIZE
from strandline.codec.transaction_marker import parse_marker
from strandline.log.cleaning.clean import clean
from strandline.log.cleaning.job import CannotClean, CleanedGroup, CleaningJob, CleaningResult, CleaningStopped
from strandline.log.segment.record_counts import RecordCounts
from strandline.log.segment.transaction_index import AbortedTransaction


@pytest.fixture(params=TWINS)
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SegmentedLog]:
    with using(request.param):
        yield SegmentedLog(tmp_path)


def pairs(log: SegmentedLog) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(each.offset, each.key, each.value) for each in log.records()]


def test_the_last_record_of_each_key_stays_at_its_offset(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1"), record(b"b", b"1"), record(b"a", b"2")])
    log.put([record(b"c", b"1")])
    log.roll()
    log.put([record(b"b", b"2"), record(b"c", b"2")])
    log.put([record(b"d", b"1")])
    log.roll()
    log.put([record(b"a", b"3")])
    result, groups = log.clean()
    assert pairs(log) == [(2, b"a", b"2"), (4, b"b", b"2"), (5, b"c", b"2"), (6, b"d", b"1"), (7, b"a", b"3")]
    assert result.clean_up_to == 7
    assert (result.records_read, result.records_kept, result.map_entries) == (7, 4, 4)
    assert [(each.base_offset, each.replaced, each.end_offset, each.records) for each in groups] == [(0, (0, 4), 7, 4)]


@pytest.mark.parametrize("codec", list(Compression))
def test_a_thinned_batch_keeps_its_codec_and_what_its_header_promised(log: SegmentedLog, codec: Compression) -> None:
    kept = Record(-1, 50, b"kept", b"v" * 300, (("h", b"x"), ("none", None)))
    log.put(
        [record(b"a", b"1", 40), kept, record(b"a", b"2", 90)],
        compression=codec,
        producer_id=9,
        producer_epoch=3,
        base_sequence=17,
        leader_epoch=5,
    )
    log.roll()
    log.put([record(b"a", b"3", 95)])
    log.roll()
    log.clean()
    header, _ = next(log.batches())
    assert header.attributes == codec
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 2, 1)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.leader_epoch) == (9, 3, 17, 5)
    assert header.max_timestamp == 50
    assert log.records()[0] == kept._replace(offset=1)


def test_batches_that_stay_whole_are_the_same_bytes(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1"), record(b"b", b"1")], compression=Compression.ZSTD)
    log.put([record(b"c", b"1")])
    log.put([record(b"d", b"1")], append_time_ms=77)
    log.roll()
    before = [batch for _, batch in log.batches()]
    log.clean()
    assert [batch for _, batch in log.batches()] == before


def test_append_time_stays_the_time_of_a_thinned_batch(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1", 5), record(b"b", None, 6), record(b"c", b"1", 7)], append_time_ms=500)
    log.roll()
    log.put([record(b"a", b"2")])
    log.roll()
    log.clean()
    assert [each.timestamp_ms for each in log.records()] == [500, 500, 1]
    assert next(log.batches())[0].max_timestamp == 500


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
def test_a_tombstone_stays_until_its_horizon(log: SegmentedLog, codec: Compression) -> None:
    log.put([record(b"a", b"1", 7), record(b"b", b"1", 8)])
    log.put([record(b"a", None, 9), record(b"b", b"2", 3)], compression=codec)
    log.roll()
    log.put([record(b"z", b"1")])
    log.roll()
    log.clean(log.job(now_ms=1000))
    header = next(log.batches())[0]
    assert header.attributes & HAS_DELETE_HORIZON
    assert header.delete_horizon_ms == 1100
    assert log.records() == [Record(2, 9, b"a", None), Record(3, 3, b"b", b"2"), Record(4, 1, b"z", b"1")]
    assert header.max_timestamp == 9
    # A later round does not put it off.
    log.clean(log.job(now_ms=1099))
    assert [each.offset for each in log.records()] == [2, 3, 4]
    assert next(log.batches())[0].delete_horizon_ms == 1100
    log.clean(log.job(now_ms=1100))
    assert log.records() == [Record(3, 3, b"b", b"2"), Record(4, 1, b"z", b"1")]


def test_a_tombstone_removes_what_it_is_about_at_once(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.roll()
    log.put([record(b"a", None)])
    log.roll()
    log.clean()
    assert pairs(log) == [(1, b"a", None)]


def test_records_without_a_key_go_and_are_counted(log: SegmentedLog) -> None:
    log.put([record(None, b"1"), record(b"a", b"1"), record(None, None)])
    log.put([record(None, b"1")], compression=Compression.GZIP)
    log.put([record(b"b", b"1")])
    log.roll()
    result, _ = log.clean()
    assert pairs(log) == [(1, b"a", b"1"), (4, b"b", b"1")]
    assert result.records_without_key == 3


def test_an_empty_key_is_a_key(log: SegmentedLog) -> None:
    log.put([record(b"", b"1"), record(b"", b"2"), record(b"\0", b"3")])
    log.roll()
    log.clean()
    assert pairs(log) == [(1, b"", b"2"), (2, b"\0", b"3")]


def test_the_last_offset_of_the_round_is_still_found_when_nothing_stays(log: SegmentedLog) -> None:
    log.put([record(None, b"1"), record(None, b"2")])
    log.roll()
    log.clean()
    (header, batch), *others = log.batches()
    assert not others
    assert (header.base_offset, header.last_offset, header.record_count) == (0, 1, 0)
    assert len(batch) == HEADER_SIZE


def test_the_batch_of_an_active_producer_stays_without_its_records(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1"), record(b"a", b"2")], producer_id=4, producer_epoch=2, base_sequence=8)
    log.put([record(b"a", b"3")], producer_id=5, producer_epoch=0, base_sequence=0)
    log.put([record(b"a", b"4")])
    log.roll()
    log.active_producers = ((4, 2, 1), (5, 0, 99))
    log.clean()
    headers = [header for header, _ in log.batches()]
    assert [(each.producer_id, each.base_offset, each.last_offset, each.record_count) for each in headers] == [
        (4, 0, 1, 0),
        (-1, 3, 3, 1),
    ]
    assert headers[0].last_sequence == 9
    assert headers[0].base_timestamp == -1
    # When the producer is gone, so is its batch.
    log.active_producers = ()
    log.clean()
    assert [header.base_offset for header, _ in log.batches()] == [3]


def test_each_batch_that_an_active_producer_may_send_again_stays(log: SegmentedLog) -> None:
    for sequence, transactional in enumerate((False, False, True, False)):
        log.put([record(b"a", b"1")], producer_id=4, base_sequence=sequence, transactional=transactional)
        if transactional:
            log.end_transaction(4, is_commit=False)
    log.put([record(b"a", b"2")])
    log.roll()
    log.active_producers = ((4, 0, 1, 2, 4),)
    log.clean()
    headers = [header for header, _ in log.batches() if not header.is_control]
    assert [(each.base_offset, each.base_sequence, each.record_count) for each in headers] == [
        (1, 1, 0),
        (2, 2, 0),
        (4, 3, 0),
        (5, -1, 1),
    ]


def test_aborted_records_go_and_do_not_count_as_a_keys_last(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.put([record(b"a", b"2")], producer_id=7, base_sequence=0, transactional=True)
    log.put([record(b"b", b"1")], producer_id=8, base_sequence=0, transactional=True)
    log.end_transaction(7, is_commit=False)
    log.end_transaction(8, is_commit=True)
    log.put([record(b"c", b"1")])
    log.roll()
    log.clean()
    assert pairs(log) == [(0, b"a", b"1"), (2, b"b", b"1"), (5, b"c", b"1")]


def test_a_transaction_aborted_behind_the_range_is_known(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.put([record(b"a", b"2")], producer_id=7, base_sequence=0, transactional=True)
    log.put([record(b"b", b"1")])
    log.roll()
    log.end_transaction(7, is_commit=False)
    job = log.job()
    assert job.aborted_later == (AbortedTransaction(7, 1, 3, 4),)
    log.clean(job)
    assert pairs(log) == [(0, b"a", b"1"), (2, b"b", b"1")]


@pytest.mark.parametrize("is_commit", [False, True])
def test_a_marker_outlives_its_records_and_then_its_horizon(log: SegmentedLog, is_commit: bool) -> None:
    log.put([record(b"a", b"1")], producer_id=7, base_sequence=0, transactional=True)
    log.end_transaction(7, is_commit=is_commit, timestamp_ms=33)
    log.put([record(b"a", b"2")])
    log.roll()

    def markers() -> list[tuple[int, int | None, int]]:
        return [
            (header.base_offset, header.delete_horizon_ms, header.max_timestamp)
            for header, batch in log.batches()
            if header.is_control and parse_marker(batch)
        ]

    log.clean(log.job(now_ms=1000))  # Its record goes now, so the marker stays as it is.
    assert pairs(log) == [(2, b"a", b"2")]
    assert markers() == [(1, None, 33)]
    assert bool(log.aborted[0]) != is_commit
    log.clean(log.job(now_ms=2000))
    assert markers() == [(1, 2100, 33)]
    assert not log.aborted[0]
    log.clean(log.job(now_ms=2099))
    assert markers() == [(1, 2100, 33)]
    log.clean(log.job(now_ms=2100))
    assert markers() == []


def test_the_last_marker_of_an_active_producer_stays_without_its_record(log: SegmentedLog) -> None:
    log.end_transaction(7, is_commit=True, epoch=4)
    log.put([record(b"a", b"2")])
    log.roll()
    log.active_producers = ((7, 4, -1),)
    log.clean(log.job(now_ms=1000))
    log.clean(log.job(now_ms=5000))
    headers = [header for header, _ in log.batches()]
    assert [(each.is_control, each.producer_id, each.producer_epoch, each.record_count) for each in headers] == [
        (True, 7, 4, 0),
        (False, -1, -1, 1),
    ]
    log.active_producers = ()
    log.clean(log.job(now_ms=5000))
    assert [header.base_offset for header, _ in log.batches()] == [1]


def test_a_full_map_ends_the_round_early_and_the_next_goes_on(log: SegmentedLog) -> None:
    for value in (b"1", b"2"):
        log.put([record(b"%d" % key, value) for key in range(10)])
        log.put([record(b"%d" % key, value) for key in range(10)], compression=Compression.LZ4)
        log.roll()
    rounds = 0
    while log.clean_up_to < 40:
        before = log.clean_up_to
        result, _ = log.clean(log.job(dedupe_buffer_bytes=24 * 5, load_factor=0.9))
        assert result.map_entries <= 4
        assert result.clean_up_to > before
        rounds += 1
    assert rounds == 10
    assert pairs(log) == [(30 + key, b"%d" % key, b"2") for key in range(10)]


def test_a_buffer_without_room_for_one_key_is_refused(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.roll()
    with pytest.raises(CannotClean, match=r"log\.cleaner\.dedupe\.buffer\.size"):
        log.clean(log.job(dedupe_buffer_bytes=24))


def test_segments_are_grouped_by_size_indexes_and_offsets(log: SegmentedLog) -> None:
    for at in range(4):
        log.put([record(b"%d" % at, b"v" * 100)])
        log.roll()
    size = log.size[0]
    _, groups = log.clean(log.job(segment_bytes=2 * size))
    assert [each.replaced for each in groups] == [(0, 1), (2, 3)]
    for base in (0, 2):
        log.disk.write_whole(log.path(base, ".index"), bytes(160))
    _, groups = log.clean(log.job(segment_index_bytes=300))
    assert [each.replaced for each in groups] == [(0,), (2,)]
    _, groups = log.clean()
    assert [each.replaced for each in groups] == [(0, 2)]


def test_a_batch_larger_than_the_buffer_is_read_whole(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1"), record(b"b", b"v" * 300_000)])
    log.put([record(b"a", b"2")])
    log.roll()
    log.clean(log.job(io_buffer_bytes=1))
    assert [each.offset for each in log.records()] == [1, 2]


def test_indexes_and_counts_stand_beside_the_cleaned_segment(log: SegmentedLog) -> None:
    for at in range(200):
        log.put([record(b"%d" % (at % 150), b"v" * 400, 1000 + at)])
    log.roll()
    _, (group,) = log.clean(log.job(index_interval_bytes=1000))
    assert set(group.suffixes) == {".log", ".index", ".timeindex", ".counts"}
    index = log.disk.read_whole(log.path(0, ".index"))
    positions = {}
    at = 0
    for header, batch in log.batches():
        positions[header.last_offset] = at
        at += len(batch)
    entries = [
        (int.from_bytes(index[i : i + 4], "big"), int.from_bytes(index[i + 4 : i + 8], "big"))
        for i in range(0, len(index), 8)
    ]
    assert len(entries) > 20
    assert all(positions[offset] == position for offset, position in entries)
    times = log.disk.read_whole(log.path(0, ".timeindex"))
    assert int.from_bytes(times[-12:-4], "big") == 1199
    assert (group.max_timestamp_ms, group.offset_of_max_timestamp) == (1199, 199)
    counts = RecordCounts.parse(log.disk.read_whole(log.path(0, ".counts")), base_offset=0, size_bytes=group.size_bytes)
    assert counts.total(200) == 150


def test_a_copy_is_as_old_as_the_newest_of_its_sources(log: SegmentedLog) -> None:
    for key, modified_ms in ((b"a", 1_000_000), (b"b", 2_000_000)):
        log.put([record(key, b"1", -1)])
        log.disk.set_modified_ms(log.path(log.bases[-1]), modified_ms)
        log.roll()
    log.clean()
    assert log.disk.modified_ms(log.path(0)) == 2_000_000


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.SNAPPY])
def test_a_damaged_batch_stops_the_cleaning_and_changes_nothing(log: SegmentedLog, codec: Compression) -> None:
    log.put([record(b"a", b"1")])
    log.put([record(b"a", b"22222")], compression=codec)
    log.roll()
    path = log.path(0)
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.write_bytes(data)
    with pytest.raises(CannotClean, match=r"00000000000000000000\.log: the batch at offset 1 fails its CRC"):
        log.clean()
    assert path.read_bytes() == data
    assert log.disk.names(log.directory) == [path.name]


def test_damage_in_the_clean_part_is_found_too(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.roll()
    log.put([record(b"b", b"1")])
    log.roll()
    data = bytearray(log.path(0).read_bytes())
    data[-3] ^= 1
    log.path(0).write_bytes(data)
    with pytest.raises(CannotClean):
        log.clean(log.job(first_dirty_offset=1))
    assert not [name for name in log.disk.names(log.directory) if name.endswith(".cleaned")]


def test_a_segment_that_ends_within_a_batch_is_refused(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.put([record(b"b", b"1")])
    log.roll()
    log.size[0] -= 3
    with pytest.raises(CannotClean, match="no whole batch"):
        log.clean()


@pytest.mark.parametrize("codec", [Compression.NONE, Compression.LZ4])
@pytest.mark.parametrize("bit", [0, 1, 5, 62])
def test_a_base_offset_that_changed_is_noticed_though_no_crc_covers_it(
    log: SegmentedLog, codec: Compression, bit: int
) -> None:
    log.put([record(b"a", b"1"), record(b"b", b"1")], compression=codec)
    log.put([record(b"a", b"2"), record(b"b", b"2")], compression=codec)
    log.put([record(b"a", b"3"), record(b"b", b"3")], compression=codec)
    log.roll()
    data = bytearray(log.path(0).read_bytes())
    second = len(data) // 3
    data[second + 7 - bit // 8] ^= 1 << bit % 8
    log.path(0).write_bytes(data)
    with pytest.raises(CannotClean, match=r"\.log: a batch from \d+ to \d+ lies where offsets \d to \d belong"):
        log.clean()


def test_a_stopped_cleaning_leaves_no_file(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")])
    log.roll()
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked == 3  # The map is built by then, and the copy begun.

    with pytest.raises(CleaningStopped):
        clean(log.job(), log.disk, on_group=pytest.fail, is_stopped=is_stopped, sleep=lambda _: None)
    assert log.disk.names(log.directory) == [log.path(0).name]


def test_a_full_disk_leaves_no_file_and_passes_through(tmp_path: Path) -> None:
    disk = FaultyDisk()
    log = SegmentedLog(tmp_path, disk)
    log.put([record(b"a", b"1")])
    log.roll()
    disk.fail("write_at", errno.ENOSPC, suffix=".cleaned")
    with pytest.raises(OSError, match="No space left"):
        log.clean()
    assert log.disk.names(log.directory) == [log.path(0).name]


def test_reading_and_writing_keep_to_the_rate(log: SegmentedLog) -> None:
    log.put([record(b"a", b"v" * 100_000)])
    log.roll()
    slept: list[float] = []
    groups: list[CleanedGroup] = []
    clean(
        log.job(io_bytes_per_s=1000.0),
        log.disk,
        on_group=groups.append,
        is_stopped=lambda: False,
        sleep=slept.append,
    )
    # Read twice, written once; a piece is read again when a batch did not fit.
    assert sum(slept) >= 3 * log.size[0] / 1000


def test_values_travel_as_json(log: SegmentedLog) -> None:
    log.put([record(b"a", b"1")], producer_id=7, base_sequence=0, transactional=True)
    log.put([record(b"b", b"1")])
    log.roll()
    log.active_producers = ((7, 0, 0), (8, 2, -1), (9, 0, 0, 1))
    log.end_transaction(7, is_commit=False)
    job = log.job()
    assert CleaningJob.from_dict(json.loads(json.dumps(job.to_dict()))) == job
    result, (group,) = log.clean(job)
    assert CleaningResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert CleanedGroup.from_dict(json.loads(json.dumps(group.to_dict()))) == group


@pytest.mark.parametrize("seed", range(8))
def test_a_group_that_was_reported_survives_a_power_cut(seed: int) -> None:
    disk = SimDisk(random.Random(seed))
    disk.make_directory(Path("/log"))
    log = SegmentedLog(Path("/log"), disk)
    log.put([record(b"%d" % key, b"v" * 900, 100 + key) for key in range(50)])
    log.put([record(b"%d" % key, b"w" * 900, 200 + key) for key in range(10)], producer_id=7, transactional=True)
    log.put([record(b"z", b"z")])
    log.end_transaction(7, is_commit=False)
    log.roll()
    disk.sync_all()
    expected: dict[str, bytes] = {}

    def on_group(group: CleanedGroup) -> None:
        for suffix in group.suffixes:
            path = log.path(group.base_offset, suffix + ".cleaned")
            expected[path.name] = disk.read_whole(path)
        disk.power_cut(reordered=True)

    clean(log.job(), disk, on_group=on_group, is_stopped=lambda: False, sleep=lambda _: None)
    assert len(expected) == 5
    assert {name: disk.read_whole(log.directory / name) for name in expected} == expected
