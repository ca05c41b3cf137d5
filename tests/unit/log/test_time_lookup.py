"""From a time to the first record at or after it: exact inside batches, whatever the order of times and the codec."""

from __future__ import annotations

import errno
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.engine import NOON_MS, append, batch_of, open_log
from tests.unit.log.faulty_disk import FaultyDisk

from strandline.codec.columns import Compression
from strandline.errors import StrandlineError
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import WALK_CHUNK_BYTES
from strandline.log.segment.time_lookup import (
    CHUNKS_PER_TURN_MAX,
    OPENED_BYTES_MAX,
    OPENS,
    RECORDS_PER_TURN_MAX,
    FoundTime,
    Search,
    find_time,
    run_to_end,
    search_latest_time,
    search_time,
)
from strandline.log.trimming import trim_now


def look(log: PartitionLog, time_ms: int, *, start: int = 0, limit: int | None = None) -> FoundTime | None:
    return find_time(
        log.segments,
        time_ms,
        start_offset=start,
        limit_offset=log.log_end_offset if limit is None else limit,
    )


def latest(log: PartitionLog, *, start: int = 0, limit: int | None = None) -> FoundTime | None:
    end = log.log_end_offset if limit is None else limit
    walked = run_to_end(search_latest_time(log.segments, start_offset=start, limit_offset=end))
    known = run_to_end(
        search_latest_time(log.segments, start_offset=start, limit_offset=end, end_offset=log.log_end_offset)
    )
    assert walked == known, "what a segment knows of itself is what a walk over it finds"
    return known


def first_at(times: list[int], time_ms: int, start: int = 0) -> tuple[int, int] | None:
    return next(((at, times[at]) for at in range(start, len(times)) if times[at] >= time_ms), None)


BATCHES = st.lists(
    st.tuples(st.lists(st.integers(min_value=0, max_value=60), min_size=1, max_size=6), st.sampled_from(Compression)),
    min_size=1,
    max_size=25,
)


@pytest.mark.lengthy("many examples, each of them costly")
@settings(max_examples=80, deadline=None, print_blob=True)
@given(
    batches=BATCHES,
    segment_bytes=st.sampled_from([250, 600, 1 << 20]),
    interval_bytes=st.sampled_from([0, 150, 4096]),
    restart=st.sampled_from(["none", "clean", "crash"]),
)
def test_every_time_is_found_where_a_plain_search_finds_it(
    batches: list[tuple[list[int], Compression]], segment_bytes: int, interval_bytes: int, restart: str
) -> None:
    config = {"segment_bytes": segment_bytes, "index_interval_bytes": interval_bytes}
    with tempfile.TemporaryDirectory() as directory:
        log = open_log(Path(directory) / "orders-0", **config)
        times: list[int] = []
        for offsets_ms, codec in batches:
            stamps = [NOON_MS + each for each in offsets_ms]
            append(log, batch_of([b"v"] * len(stamps), timestamps=stamps, codec=codec))
            times += stamps
        if restart != "none":
            log.close()
            log = open_log(Path(directory) / "orders-0", clean=restart == "clean", **config)
        for time_ms in range(NOON_MS - 1, NOON_MS + 62):
            found = look(log, time_ms)
            assert (found and found[:2]) == first_at(times, time_ms)
        middle = len(times) // 2
        found = look(log, NOON_MS + 30, start=middle)
        assert (found and found[:2]) == first_at(times, NOON_MS + 30, middle)
        newest = latest(log)
        assert newest is not None
        assert newest[:2] == (times.index(max(times)), max(times))
        log.close()


def test_what_is_not_committed_is_not_found(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    for offset in range(6):
        append(log, batch_of([b"v"], timestamps=[NOON_MS + offset]))
    assert look(log, NOON_MS + 3, limit=4) == FoundTime(3, NOON_MS + 3, 0)
    assert look(log, NOON_MS + 4, limit=4) is None
    newest = latest(log, limit=4)
    assert newest is not None
    assert newest.offset == 3
    assert latest(log, limit=0) is None
    log.close()


def test_what_was_trimmed_is_not_found(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    append(log, batch_of([b"a", b"b", b"c"], timestamps=[NOON_MS, NOON_MS + 9, NOON_MS + 5]))
    append(log, batch_of([b"d"], timestamps=[NOON_MS + 7]))
    trim_now(log, 2)
    assert look(log, NOON_MS, start=2) == FoundTime(2, NOON_MS + 5, 0)
    assert look(log, NOON_MS + 6, start=2) == FoundTime(3, NOON_MS + 7, 0)
    assert look(log, NOON_MS + 8, start=2) is None
    log.close()


def test_the_epoch_of_the_found_record_comes_along(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    append(log, batch_of([b"a"], timestamps=[NOON_MS]), leader_epoch=2)
    append(log, batch_of([b"b"], timestamps=[NOON_MS + 1]), leader_epoch=6)
    assert look(log, NOON_MS) == FoundTime(0, NOON_MS, 2)
    assert look(log, NOON_MS + 1) == FoundTime(1, NOON_MS + 1, 6)
    log.close()


def test_an_empty_log_and_records_without_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    assert look(log, 0) is None
    assert latest(log) is None
    append(log, batch_of([b"a"], timestamps=[-1]))
    assert look(log, 0) is None
    assert latest(log) is None
    append(log, batch_of([b"b"], timestamps=[5]))
    assert look(log, 0) == FoundTime(1, 5, 0)
    assert latest(log) == FoundTime(1, 5, 0)
    log.close()


@pytest.mark.parametrize("ends", [".log", "index"])
def test_a_search_that_may_not_wait_says_so(tmp_path: Path, ends: str) -> None:
    disk = FaultyDisk()
    log = open_log(tmp_path / "orders-0", disk=disk, segment_bytes=200)
    for offset in range(10):
        append(log, batch_of([b"v" * 50], timestamps=[NOON_MS + offset]))
    if ends == ".log":
        disk.fail("read_at_nowait", errno.EAGAIN, suffix=".log")
    else:
        # Indexes of sealed segments are read from the disk when they are needed first: not by a loop.
        log.close()
        log = open_log(tmp_path / "orders-0", disk=disk, clean=True, segment_bytes=200)
    search = search_time(log.segments, NOON_MS + 4, start_offset=0, limit_offset=10)
    assert callable(next(search)), "something to be done where it may wait"
    search.close()
    assert all(segment.references == 0 for segment in log.segments), "given up half way, and nothing stays held"
    found = look(log, NOON_MS + 4)
    assert found is not None
    assert found.offset == 4
    log.close()


def steps(search: Search) -> tuple[list[str], FoundTime | None]:
    """What a search asks of its driver, in words, and what it finds."""
    asked: list[str] = []
    step: Any = None
    try:
        step = next(search)
        while True:
            asked.append("turn" if step is None else "opens" if step is OPENS else "work")
            try:
                result = step() if callable(step) else None
            except StrandlineError as error:
                step = search.throw(error)
            else:
                step = search.send(result)
    except StopIteration as end:
        return asked, end.value


@pytest.mark.parametrize("codec", list(Compression)[1:])
def test_a_large_batch_is_inflated_off_the_loop_and_read_some_records_a_turn(
    tmp_path: Path, codec: Compression
) -> None:
    log = open_log(tmp_path / "orders-0")
    count = 5 * RECORDS_PER_TURN_MAX
    append(log, batch_of([b"v" * 20] * count, timestamps=[NOON_MS + at for at in range(count)], codec=codec))
    search = search_time(log.segments, NOON_MS + count - 1, start_offset=0, limit_offset=count)
    assert steps(search) == (["opens", "work", *["turn"] * 4], FoundTime(count - 1, NOON_MS + count - 1, 0))
    log.close()


def test_small_batches_at_hand_are_found_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    append(log, batch_of([b"v"] * 100, timestamps=[NOON_MS + at for at in range(100)], codec=Compression.ZSTD))
    search = search_time(log.segments, NOON_MS + 99, start_offset=0, limit_offset=100)
    assert steps(search) == ([], FoundTime(99, NOON_MS + 99, 0))
    log.close()


def test_a_bomb_is_answered_with_its_beginning(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0")
    bomb = [b"", bytes(OPENED_BYTES_MAX), b""]
    append(log, batch_of(bomb, timestamps=[NOON_MS, NOON_MS + 1, NOON_MS + 2], codec=Compression.ZSTD))
    search = search_time(log.segments, NOON_MS + 2, start_offset=0, limit_offset=3)
    assert steps(search) == (["opens", "work"], FoundTime(0, NOON_MS + 2, 0))
    log.close()


def test_many_headers_take_many_turns(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", index_interval_bytes=1 << 30)
    value = b"v" * WALK_CHUNK_BYTES
    for at in range(3 * CHUNKS_PER_TURN_MAX):
        append(log, batch_of([value], timestamps=[NOON_MS + at]))
    last = 3 * CHUNKS_PER_TURN_MAX - 1
    search = search_time(log.segments, NOON_MS + last, start_offset=0, limit_offset=last + 1)
    assert steps(search) == (["turn"] * 2, FoundTime(last, NOON_MS + last, 0))
    log.close()


def test_a_search_goes_on_where_segments_were_trimmed_away(tmp_path: Path) -> None:
    log = open_log(tmp_path / "orders-0", segment_bytes=200, index_interval_bytes=1 << 30)
    disk_reads = FaultyDisk()
    log.close()
    log = open_log(tmp_path / "orders-0", disk=disk_reads, segment_bytes=200)
    for at in range(10):
        append(log, batch_of([b"v" * 50], timestamps=[NOON_MS + at]))
    disk_reads.fail("read_at_nowait", errno.EAGAIN, suffix=".log")
    search = search_time(list(log.segments), NOON_MS, start_offset=0, limit_offset=10)
    first = next(search)
    assert callable(first)
    trim_now(log, 9)
    # The segment that is looked at stays readable; those behind it are gone and are passed over.
    result: Any = first()
    found: FoundTime | None = None
    try:
        while True:
            step = search.send(result)
            result = step() if callable(step) else None
    except StopIteration as end:
        found = end.value
    assert found == FoundTime(0, NOON_MS, 0)
    log.close()
