"""Which segments a policy lets go, against the rules of Kafka written down a second time."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.log.engine import NOON_MS, append, batch_of, open_log

from strandline.config.topic_config import TopicConfig
from strandline.log.disk import RealDisk
from strandline.log.maintenance.retention import KEEP, RetentionDecision, judge, newest_ms, outlook
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.open_files import OpenFiles
from strandline.log.segment.segment import Segment
from strandline.log.segment.segment_times import HEADERS_MAX, read_newest_ms

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def a_log(segments: list[tuple[int, int | None]], *, flushed: int | None = None, **config: object) -> PartitionLog:
    """A log in memory of segments with ten offsets each, given their sizes and the times of their newest records."""
    log = PartitionLog(
        Path("orders-0"),
        TopicConfig(**config),  # type: ignore[arg-type]
        disk=RealDisk(),
        open_files=OpenFiles(RealDisk()),
    )
    for at, (size_bytes, newest) in enumerate(segments):
        segment = Segment(
            log.directory,
            at * 10,
            disk=log.disk,
            open_files=log.open_files,
            index_interval_bytes=4096,
            created_ms=0,
            want_flush=lambda: None,
            size_bytes=size_bytes,
        )
        if newest is not None:
            segment.max_timestamp_ms = newest
        log.adopt(segment)
    log.log_end_offset = len(segments) * 10 if segments[-1][0] else len(segments) * 10 - 10
    log.flushed_offset = log.log_end_offset if flushed is None else flushed
    return log


def by_kafka(log: PartitionLog, high_watermark: int, now_ms: int) -> int:
    """How many segments Kafka deletes: first those that size lets go, then of what is left those that time does."""
    segments, config = log.segments, log.config

    def prefix(first: int, may_go: list[bool]) -> int:
        count = first
        for at in range(first, len(segments)):
            is_last = at + 1 == len(segments)
            upper = log.log_end_offset if is_last else segments[at + 1].base_offset
            if high_watermark < upper or not may_go[at] or (is_last and segments[at].size_bytes == 0):
                break
            count += 1
        return count

    count = 0
    if config.retention_bytes >= 0:
        excess, verdicts = sum(segment.size_bytes for segment in segments) - config.retention_bytes, []
        for segment in segments:
            verdicts.append(excess >= 0 and excess - segment.size_bytes >= 0)
            if verdicts[-1]:
                excess -= segment.size_bytes
        count = prefix(0, verdicts)
    if config.retention_ms >= 0:
        count = prefix(count, [now_ms - segment.max_timestamp_ms > config.retention_ms for segment in segments])
    return count


sizes = st.integers(0, 5).map(lambda size: size * 100)
times = st.integers(-3, 3).map(lambda hours: NOON_MS + hours * HOUR_MS)


@given(
    st.lists(st.tuples(sizes, times), min_size=1, max_size=6),
    st.integers(-1, 4).map(lambda hours: hours * HOUR_MS if hours >= 0 else -1),
    st.integers(-1, 15).map(lambda size: size * 100 if size >= 0 else -1),
    st.integers(0, 60),
    st.integers(-2, 2),
)
def test_what_goes_is_what_kafka_deletes(
    segments: list[tuple[int, int]], retention_ms: int, retention_bytes: int, high_watermark: int, jump_hours: int
) -> None:
    # Only the last may be empty, but for what a cleaner leaves.
    log = a_log(list(segments), retention_ms=retention_ms, retention_bytes=retention_bytes)
    high_watermark, now_ms = min(high_watermark, log.log_end_offset), NOON_MS + jump_hours * HOUR_MS
    expected = by_kafka(log, high_watermark, now_ms)
    found = judge(log, high_watermark=high_watermark, now_ms=now_ms)
    if expected == len(log.segments):
        assert found == RetentionDecision(expected - 1, log.base_offsets[-1], rolls=True), "the last one follows"
    else:
        assert (found.leaves, found.rolls, found.waits_for_flush) == (expected, False, False)
        assert found.start_offset == log.base_offsets[expected]
    ahead = outlook(log, high_watermark=high_watermark, now_ms=now_ms)
    is_due = ahead.deletes_at_ms is not None and ahead.deletes_at_ms <= now_ms and not ahead.is_held
    assert is_due == (expected > 0), "the outlook and the deed agree"


@pytest.mark.parametrize(
    ("policy", "goes"), [(("delete",), 2), (("compact", "delete"), 2), (("compact",), 0), ((), 0)], ids=str
)
def test_only_where_the_policy_names_delete(policy: tuple[str, ...], goes: int) -> None:
    old = NOON_MS - 2 * HOUR_MS
    log = a_log([(100, old), (100, old), (100, NOON_MS)], retention_ms=HOUR_MS, cleanup_policy=policy)
    assert judge(log, high_watermark=30, now_ms=NOON_MS).leaves == goes
    ahead = outlook(log, high_watermark=30, now_ms=NOON_MS)
    assert ahead.because == ("time" if goes else None)


def test_to_the_millisecond() -> None:
    log = a_log([(100, NOON_MS), (100, NOON_MS)], retention_ms=HOUR_MS)
    assert judge(log, high_watermark=20, now_ms=NOON_MS + HOUR_MS) == KEEP
    assert judge(log, high_watermark=20, now_ms=NOON_MS + HOUR_MS + 1).rolls
    assert outlook(log, high_watermark=20, now_ms=NOON_MS).deletes_at_ms == NOON_MS + HOUR_MS + 1


def test_what_is_not_known_to_be_on_disk_waits() -> None:
    old = NOON_MS - 2 * HOUR_MS
    log = a_log([(100, old)] * 3 + [(100, NOON_MS)], flushed=19, retention_ms=HOUR_MS)
    assert judge(log, high_watermark=40, now_ms=NOON_MS) == RetentionDecision(1, 10, waits_for_flush=True)
    assert not outlook(log, high_watermark=40, now_ms=NOON_MS).is_held
    log.flushed_offset = 9
    assert judge(log, high_watermark=40, now_ms=NOON_MS) == RetentionDecision(0, 0, waits_for_flush=True)
    assert outlook(log, high_watermark=40, now_ms=NOON_MS).is_held


def test_what_only_files_know_is_asked_for_and_stays_until_then() -> None:
    old = NOON_MS - 2 * HOUR_MS
    log = a_log([(100, old), (100, None), (100, NOON_MS)], retention_ms=HOUR_MS)
    found = judge(log, high_watermark=30, now_ms=NOON_MS)
    assert (found.leaves, found.unknown) == (1, log.segments[1])
    log.segments[1].newest_read = 100, old
    assert judge(log, high_watermark=30, now_ms=NOON_MS) == RetentionDecision(2, 20)
    log.segments[1].newest_read = 99, old
    assert judge(log, high_watermark=30, now_ms=NOON_MS).unknown is log.segments[1], "it has grown since"
    log = a_log([(100, None), (100, None)], retention_ms=-1)
    assert judge(log, high_watermark=20, now_ms=NOON_MS) == KEEP, "nobody needs to know"


def test_the_outlook_by_size() -> None:
    log = a_log([(100, NOON_MS), (100, NOON_MS), (50, NOON_MS)], retention_bytes=200, retention_ms=HOUR_MS)
    ahead = outlook(log, high_watermark=30, now_ms=NOON_MS)
    assert (ahead.because, ahead.bytes_until, ahead.deletes_at_ms) == ("time", 50, NOON_MS + HOUR_MS + 1)
    assert (ahead.next_segment_base, ahead.next_segment_end, ahead.next_segment_bytes) == (0, 10, 100)
    assert (ahead.size_bytes, ahead.is_active) == (250, False)
    log = a_log([(100, NOON_MS), (100, NOON_MS), (100, NOON_MS)], retention_bytes=200, retention_ms=HOUR_MS)
    assert outlook(log, high_watermark=30, now_ms=NOON_MS)[5:7] == (NOON_MS, "size")
    log = a_log([(100, NOON_MS), (100, NOON_MS)], retention_bytes=200, retention_ms=-1)
    assert outlook(log, high_watermark=20, now_ms=NOON_MS)[5:9] == (None, "size", 200, 100)
    log = a_log([(0, None)], retention_ms=HOUR_MS)
    assert outlook(log, high_watermark=0, now_ms=NOON_MS)[4:7] == (None, None, None), "nothing is there to go"


# What only files know


def sealed(path: Path, times_ms: list[int]) -> Segment:
    """The first segment of a log, as a later process finds it."""
    log = open_log(path / "orders-0", segment_bytes=1 << 20, index_interval_bytes=100)
    for time_ms in times_ms:
        append(log, batch_of([b"value"], timestamps=[time_ms]))
    log.roll(NOON_MS)
    log.close()
    log = open_log(path / "orders-0", clean=True, segment_bytes=1 << 20, index_interval_bytes=100)
    assert newest_ms(log.segments[0]) is None
    return log.segments[0]


@pytest.mark.parametrize("extra", [b"", bytes(24), b"\0" * 7], ids=["whole", "preallocated", "torn"])
def test_the_newest_time_is_in_the_time_index(tmp_path: Path, extra: bytes) -> None:
    segment = sealed(tmp_path, [NOON_MS, NOON_MS + 5, NOON_MS + 70, NOON_MS + 3])
    path = segment.path.with_suffix(".timeindex")
    path.write_bytes(path.read_bytes() + extra)
    assert read_newest_ms(segment) == NOON_MS + 70


@pytest.mark.parametrize("index", [None, b""], ids=["lost", "empty"])
def test_without_a_time_index_the_batches_are_asked(tmp_path: Path, index: bytes | None) -> None:
    segment = sealed(tmp_path, [NOON_MS, NOON_MS + 5, NOON_MS + 70, NOON_MS + 3])
    path = segment.path.with_suffix(".timeindex")
    path.unlink() if index is None else path.write_bytes(index)
    assert read_newest_ms(segment) == NOON_MS + 70


def test_records_without_a_time_are_as_old_as_their_file(tmp_path: Path) -> None:
    segment = sealed(tmp_path, [-1, -1])
    assert read_newest_ms(segment) == segment.path.stat().st_mtime_ns // 1_000_000


def test_a_segment_too_long_to_read_is_no_younger_than_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert HEADERS_MAX > 2
    monkeypatch.setattr("strandline.log.segment.segment_times.HEADERS_MAX", 2)
    segment = sealed(tmp_path, [NOON_MS, NOON_MS + 5, NOON_MS + 70, NOON_MS + 3])
    segment.path.with_suffix(".timeindex").unlink()
    assert read_newest_ms(segment) == segment.path.stat().st_mtime_ns // 1_000_000
