"""Records leave a log at its end (truncate), at its start (trim) or with it (delete), while readers hold its files."""

from __future__ import annotations

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
    read_bytes,
    split,
)

from strandline.codec.record_batch import parse_header
from strandline.errors import Closed, OffsetOutOfRange
from strandline.log import truncation
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.read_verification import damage_of
from strandline.log.segment.time_lookup import find_time, run_to_end, search_latest_time
from strandline.log.trimming import trim_now
from strandline.log.truncation import begin_truncation, cancel_truncation, truncate_to

CONFIG = {"segment_bytes": 1500, "index_interval_bytes": 200}


def a_log(directory: Path, batches: int = 60) -> PartitionLog:
    log = open_log(directory, **CONFIG)
    fill(log, batches)
    assert len(log.segments) >= 4
    return log


def reopened(log: PartitionLog) -> PartitionLog:
    log.close()
    return open_log(log.directory, clean=True, **CONFIG)


@pytest.mark.parametrize("after_restart", [False, True])
def test_truncating_to_any_offset_leaves_what_is_below(tmp_path: Path, after_restart: bool) -> None:
    for offset in (59, 45, 44, 34, 33, 17, 16, 15, 1, 0):
        log = a_log(tmp_path / f"orders-{offset}")
        bases = list(log.base_offsets)
        if after_restart:
            log = reopened(log)
        truncate_to(log, offset)
        assert log.log_end_offset == offset
        assert offsets_in(log) == list(range(offset))
        assert log.base_offsets == [base for base in bases if base < offset] or log.base_offsets == [0]
        assert {path.name for path in log.directory.glob("*.log")} == {segment.path.name for segment in log.segments}
        # What comes next takes the offsets anew, and everything is found by every way.
        fill(log, 70 - offset)
        assert offsets_in(log) == list(range(70))
        for at in range(70):
            assert parse_header(read_bytes(log, at, size_bytes_max=1)).base_offset == at
        log.close()
        for segment in log.segments:
            index, time_index = expected_indexes(
                split(segment.path.read_bytes()),
                base_offset=segment.base_offset,
                interval_bytes=CONFIG["index_interval_bytes"],
                sealed=segment is not log.active,
            )
            assert segment.path.with_suffix(".index").read_bytes() == index
            if segment is not log.active:
                # A segment that was sealed once may keep an entry from then; the last one must be right.
                assert segment.path.with_suffix(".timeindex").read_bytes()[-12:] == time_index[-12:]
        again = open_log(log.directory, clean=True, **CONFIG)
        assert offsets_in(again) == list(range(70))
        again.close()


def test_what_is_to_go_is_no_damage(tmp_path: Path) -> None:
    """Batches that an earlier process wrote are held against the epochs: against those that they were written in, not
    those that are left when they are gone."""
    for offset in range(60):
        log = open_log(tmp_path / f"orders-{offset}", **CONFIG)
        for epoch in range(12):
            fill(log, 5, leader_epoch=epoch)
        log = reopened(log)
        truncate_to(log, offset)
        assert offsets_in(log) == list(range(offset))
        assert log.leader_epochs.epochs == list(range((offset + 4) // 5))
        assert not any(damage_of(segment) for segment in log.segments)
        log.close()


def test_who_checks_while_a_log_is_cut_finds_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread that reads for a consumer, or scrubs, may look at any moment: the disk is waited for on the way."""
    log = open_log(tmp_path / "orders-0", **CONFIG)
    for epoch in range(4):
        fill(log, 3, leader_epoch=epoch)
    log = reopened(log)
    truncate_segments = truncation._truncate_segments

    def look_and_truncate(log: PartitionLog, offset: int) -> None:
        assert offsets_in(log) == list(range(12))
        truncate_segments(log, offset)

    monkeypatch.setattr(truncation, "_truncate_segments", look_and_truncate)
    truncate_to(log, 6)
    assert offsets_in(log) == list(range(6))
    assert log.leader_epochs.epochs == [0, 1]
    log.close()


def test_a_segment_cut_at_its_end_still_knows_its_largest_time(tmp_path: Path) -> None:
    """The largest time may stand behind the last index entry; a look-up by time must not skip the segment then."""
    log = open_log(tmp_path / "orders-0")
    for offset, time_ms in enumerate((100, 900, 200, 300)):
        append(log, batch_of([b"%d" % offset], timestamps=[NOON_MS + time_ms]))
    truncate_to(log, 3)
    append(log, batch_of([b"3"], timestamps=[NOON_MS + 400]))
    for sealed in (False, True):
        if sealed:
            log.roll(NOON_MS)
        visible = {"start_offset": 0, "limit_offset": log.log_end_offset}
        found = find_time(log.segments, NOON_MS + 500, **visible)
        assert found is not None
        assert found.offset == 1
        latest = run_to_end(search_latest_time(log.segments, **visible))
        assert latest is not None
        assert latest.offset == 1
    log.close()


def test_truncating_beyond_the_end_changes_nothing(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    truncate_to(log, 60)
    truncate_to(log, 1000)
    assert offsets_in(log) == list(range(60))
    log.close()


def test_truncated_records_are_gone_after_a_crash_too(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    truncate_to(log, 20)
    for segment in log.segments:
        segment.close()
    again = open_log(log.directory, **CONFIG)
    assert offsets_in(again) == list(range(20))
    again.close()


@pytest.mark.parametrize("start", [0, 1, 15, 16, 17, 33, 45, 59, 60])
def test_trimming_hides_records_and_deletes_whole_segments(tmp_path: Path, start: int) -> None:
    log = a_log(tmp_path / "orders-0")
    bases = list(log.base_offsets)
    trim_now(log, start)
    assert log.log_start_offset == start
    assert offsets_in(log) == list(range(start, 60))
    kept = [base for base, following in zip(bases, [*bases[1:], 1 << 60], strict=True) if following > start]
    assert log.base_offsets == kept
    assert sorted(path.name for path in log.directory.glob("*.log")) == [f"{base:020d}.log" for base in kept]
    if start:
        with pytest.raises(OffsetOutOfRange):
            log.read(start - 1, size_bytes_max=10)
    fill(log, 3)
    assert offsets_in(log) == list(range(start, 63))
    log.close()


def test_trimming_goes_forward_only_and_not_beyond_the_end(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    trim_now(log, 30)
    for offset in (29, 61):
        with pytest.raises(OffsetOutOfRange):
            trim_now(log, offset)
    assert log.log_start_offset == 30
    log.close()


def files(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


def test_a_reader_keeps_what_trimming_deletes(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    before = read_bytes(log, 3, size_bytes_max=500)
    piece = log.read(3, size_bytes_max=500)
    second = log.read(3, size_bytes_max=500)
    assert piece is not None
    assert second is not None
    trim_now(log, 50)
    assert "00000000000000000000.log" not in files(log.directory), "no start can take it for a part of the log"
    assert "00000000000000000000.log.deleted" in files(log.directory)
    assert piece.read() == before
    piece.release()
    assert second.read() == before, "another reader still holds it"
    second.release()
    assert not [name for name in files(log.directory) if name.endswith(".deleted")]
    log.close()


def test_a_reader_keeps_what_truncating_deletes(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    before = read_bytes(log, 58)
    piece = log.read(58, size_bytes_max=500)
    assert piece is not None
    truncate_to(log, 5)
    fill(log, 70)
    assert piece.read() == before
    piece.release()
    assert not [name for name in files(log.directory) if name.endswith(".deleted")]
    log.close()


def test_a_reader_keeps_a_deleted_log(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    before = read_bytes(log, 20)
    piece = log.read(20, size_bytes_max=1 << 20)
    assert piece is not None
    held = piece.segment
    log.delete(tmp_path / "orders-0.0123-delete")
    assert not (tmp_path / "orders-0").exists()
    for segment in log.segments:
        assert segment.is_open == (segment is held), "only what a reader holds stays open"
    with pytest.raises(Closed):
        log.read(20, size_bytes_max=10)
    with pytest.raises(Closed):
        append(log, batch_of([b"v"]))
    for path in (tmp_path / "orders-0.0123-delete").iterdir():
        path.unlink()
    (tmp_path / "orders-0.0123-delete").rmdir()
    assert piece.read() == before, "the descriptor outlives the name"
    piece.release()
    assert not held.is_open


def test_a_flush_under_way_does_not_vouch_for_what_came_after_a_cut(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    fill(log, 20)
    job = log.begin_flush()
    assert job is not None
    truncate_to(log, 10)
    fill(log, 20)
    job.run()
    log.end_flush(job, None)
    assert log.flushed_offset == 10, "offsets from 10 on hold other records than the ones that were flushed"
    log.flush_now()
    assert log.flushed_offset == 30
    log.close()


def test_trimming_during_a_flush(tmp_path: Path) -> None:
    log = a_log(tmp_path / "orders-0")
    job = log.begin_flush()
    assert job is not None
    trim_now(log, 50)
    job.run()
    log.end_flush(job, None)
    assert log.flushed_offset == 60
    assert not [name for name in files(log.directory) if name.endswith(".deleted")]
    log.close()


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_counts_as_flushed_no_longer_is_flushed_again(tmp_path: Path, is_cut: bool) -> None:
    log = a_log(tmp_path / "orders-0")
    log.flush_now()
    wanted: list[int] = []
    log.on_flush_wanted = lambda: wanted.append(log.flushed_offset)
    offset = log.base_offsets[2]
    assert begin_truncation(log, offset), "the recovery point was above"
    if is_cut:
        truncate_to(log, offset)
    else:
        cancel_truncation(log)
    assert log.flushed_offset < log.log_end_offset
    assert wanted, "nobody else may ask for it, and whoever waits would wait for ever"
    log.flush_now()
    assert log.flushed_offset == log.log_end_offset == (offset if is_cut else 60)
    log.close()
