"""A crash leaves half a batch at the end: it is cut, wherever it was torn, and nothing before it is touched."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.unit.log.engine import (
    NOON_MS,
    append,
    batch_of,
    expected_indexes,
    fill,
    offsets_in,
    open_log,
    records_in,
    split,
)

from strandline.codec.columns import Compression
from strandline.codec.record_batch import parse_header

SEED = 20_241_105


def a_log(directory: Path, *, batches: int = 6, **config: int) -> tuple[Path, list[bytes]]:
    """A log's directory after its process was killed, and its batches."""
    log = open_log(directory, **config)
    for number in range(batches):
        append(log, batch_of([b"%d" % step for step in range(1 + number % 3)], codec=Compression(number % 5)))
    stored = list(log.batches())
    log.close()
    return log.active.path, stored


@pytest.mark.parametrize("filler", ["cut", "zeroes", "noise"])
def test_a_tail_torn_at_any_byte_is_cut(tmp_path: Path, filler: str) -> None:
    path, stored = a_log(tmp_path / "orders-0")
    whole = path.read_bytes()
    last = len(stored[-1])
    sound = whole[:-last]
    seed = random.Random(SEED)
    print("seed", SEED)
    for kept in range(last):
        # A kill leaves a shorter file. A power cut may leave its full length, with pages that never were written.
        lost = {"cut": b"", "zeroes": bytes(last - kept), "noise": seed.randbytes(last - kept)}[filler]
        path.write_bytes(whole[: len(sound) + kept] + lost)
        log = open_log(path.parent)
        if path.read_bytes() == whole:
            # Zeroes or noise happened to be what had been there.
            assert log.log_end_offset == parse_header(stored[-1]).last_offset + 1
        else:
            assert path.read_bytes() == sound
            assert log.log_end_offset == parse_header(stored[-1]).base_offset
            assert list(log.batches()) == stored[:-1]
        log.close()


def test_appends_go_on_behind_the_cut(tmp_path: Path) -> None:
    path, _ = a_log(tmp_path / "orders-0")
    path.write_bytes(path.read_bytes()[:-5])
    log = open_log(path.parent)
    offset = log.log_end_offset
    assert append(log, batch_of([b"new"])) == offset
    assert records_in(log)[-1].value == b"new"
    log.close()
    log = open_log(path.parent)
    assert offsets_in(log) == list(range(offset + 1))
    log.close()


def test_several_torn_batches_at_once(tmp_path: Path) -> None:
    """A power cut may take the pages of all batches that were not flushed, not just of the last one."""
    path, stored = a_log(tmp_path / "orders-0")
    lost = sum(map(len, stored[3:]))
    whole = path.read_bytes()
    path.write_bytes(whole[:-lost] + bytes(lost))
    log = open_log(path.parent)
    assert list(log.batches()) == stored[:3]
    assert path.read_bytes() == whole[:-lost]
    log.close()


def test_a_preallocated_file_is_cut_to_its_batches(tmp_path: Path) -> None:
    path, stored = a_log(tmp_path / "orders-0")
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(100_000))
    log = open_log(path.parent)
    assert path.read_bytes() == whole
    assert list(log.batches()) == stored
    log.close()


@pytest.mark.parametrize("kept", [0, 1, 11, 60, 61, 68])
def test_the_only_batch_may_be_torn(tmp_path: Path, kept: int) -> None:
    path, _ = a_log(tmp_path / "orders-0", batches=1)
    path.write_bytes(path.read_bytes()[:kept])
    log = open_log(path.parent)
    assert (log.log_start_offset, log.log_end_offset) == (0, 0)
    assert path.read_bytes() == b""
    fill(log, 2)
    assert offsets_in(log) == [0, 1]
    log.close()


def test_a_torn_tail_in_the_last_of_many_segments(tmp_path: Path) -> None:
    config = {"segment_bytes": 400, "index_interval_bytes": 100}
    log = open_log(tmp_path / "orders-0", **config)
    fill(log, 20)
    stored = list(log.batches())
    log.close()
    path = log.active.path
    path.write_bytes(path.read_bytes()[:-1])
    for recovery_point in (0, log.active.base_offset, log.log_end_offset - 1):
        again = open_log(log.directory, recovery_point=recovery_point, **config)
        assert list(again.batches()) == stored[:-1]
        again.close()


def test_recovery_rebuilds_the_indexes_as_they_would_have_been(tmp_path: Path) -> None:
    config = {"segment_bytes": 3000, "index_interval_bytes": 200}
    log = open_log(tmp_path / "orders-0", **config)
    for number in range(60):
        append(log, batch_of([b"v" * (number * 11 % 70)], timestamps=[NOON_MS + number * 17 % 200]))
    log.close()
    before = {path.name: path.read_bytes() for path in log.directory.glob("*index")}
    for path in log.directory.glob("*index"):
        path.unlink()
    again = open_log(log.directory, **config)
    again.close()
    assert {path.name: path.read_bytes() for path in log.directory.glob("*index")} == before
    for segment in log.segments:
        index, _ = expected_indexes(
            split(segment.path.read_bytes()),
            base_offset=segment.base_offset,
            interval_bytes=200,
            sealed=segment is not log.active,
        )
        assert segment.path.with_suffix(".index").read_bytes() == index


def test_a_crash_between_the_files_of_a_roll(tmp_path: Path) -> None:
    """The new segment was made, the end of the old one is torn: the log goes on from the cut, without a hole."""
    log = open_log(tmp_path / "orders-0")
    fill(log, 5)
    log.roll(NOON_MS)
    old, new = log.segments
    log.close()
    old.path.write_bytes(old.path.read_bytes()[:-1])
    again = open_log(log.directory)
    assert [segment.base_offset for segment in again.segments] == [0]
    assert again.log_end_offset == 4
    assert not new.path.exists()
    fill(again, 3)
    assert offsets_in(again) == list(range(7))
    again.close()
    again = open_log(log.directory)
    assert offsets_in(again) == list(range(7))
    again.close()


def test_recovered_records_count_as_flushed_only_after_a_flush(tmp_path: Path) -> None:
    """What a killed process wrote may be in the kernel's memory only."""
    log = open_log(tmp_path / "orders-0")
    fill(log, 5)
    log.close()
    again = open_log(log.directory, recovery_point=2)
    assert (again.flushed_offset, again.log_end_offset) == (2, 5)
    job = again.begin_flush()
    assert job is not None
    assert [segment.path for segment in job.segments] == [again.active.path]
    job.run()
    again.end_flush(job, None)
    assert again.flushed_offset == 5
    again.close()
    clean = open_log(log.directory, clean=True)
    assert clean.flushed_offset == 5
    clean.close()


@pytest.mark.parametrize("lost_bytes", [3, "whole batch"])
def test_an_older_segment_that_lost_its_end_ends_the_log(tmp_path: Path, lost_bytes: int | str) -> None:
    """The power went while both segments were only in memory, and more of the later one had reached the disk."""
    config = {"segment_bytes": 2000, "index_interval_bytes": 200}
    log = open_log(tmp_path / "orders-0", **config)
    fill(log, 60)
    log.close()
    first, second, *_ = log.segments
    batches = split(first.path.read_bytes())
    lost = len(batches[-1]) if lost_bytes == "whole batch" else int(lost_bytes)
    first.path.write_bytes(first.path.read_bytes()[:-lost])
    log = open_log(tmp_path / "orders-0", **config)
    assert log.log_end_offset == parse_header(batches[-1]).base_offset
    assert [parse_header(batch).base_offset for batch in log.batches()] == list(range(log.log_end_offset))
    assert not second.path.exists()
    log.close()
