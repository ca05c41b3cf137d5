"""Records are counted exactly: whatever was written, aborted, thinned, cut, trimmed and opened again, by any offset.

What is counted is compared with what a reader finds who reads every batch, as a client does.
"""

from __future__ import annotations

import errno
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.engine import NOON_MS, UnsyncedDisk, append, batch_of, crash, open_log

from strandline.codec.columns import Compression, Record, decode_batch, encode_batch
from strandline.codec.record_batch import HEADER, check_run, parse_header
from strandline.codec.transaction_marker import encode_marker, parse_marker
from strandline.errors import Closed, CorruptLog
from strandline.log.disk import RealFile
from strandline.log.log_replay import learn_marker
from strandline.log.run_appends import append_fetched
from strandline.log.segment import counting, record_counts
from strandline.log.segment.counting import LogChanged, count_between, is_plain
from strandline.log.segment.record_counts import COUNTS_SUFFIX, CountsBuilder, RecordCounts
from strandline.log.segment.segment_counts import count_marker, load_counts
from strandline.log.segment.time_lookup import OPENS, Part, Step, run_to_end
from strandline.log.trimming import trim_now
from strandline.log.truncation import truncate_to
from strandline.partition.counting import Counted, count_unread
from strandline.partition.look_up import at_hand
from strandline.partition.producers import Producers

SEED = 20_261_116
T = TypeVar("T")


class Ground:
    """A partition's log, all of it committed, and who writes to it."""

    def __init__(self, directory: Path, **config: int) -> None:
        self.directory = directory
        self.config = {"segment_bytes": 900, **config}
        self.open()

    def open(self, *, clean: bool = False, recovery_point: int = 0, log_start_offset: int = 0) -> None:
        self.producers = Producers()
        self.log = open_log(
            self.directory,
            observer=self.producers,
            clean=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            **self.config,
        )
        self.producers.on_high_watermark(self.log.log_end_offset)

    @property
    def log_start_offset(self) -> int:
        return self.log.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> int:
        self.producers.on_high_watermark(self.high_watermark)
        return max(self.log.log_start_offset, min(self.producers.first_unstable_offset, self.high_watermark))

    def plain(self, records: int = 1) -> None:
        append(self.log, batch_of([b"v"] * records))

    def data(self, producer_id: int, records: int = 1) -> None:
        batch = encode_batch(
            [Record(timestamp_ms=NOON_MS, value=b"v")] * records,
            producer_id=producer_id,
            producer_epoch=0,
            base_sequence=0,
            transactional=True,
        )
        append(self.log, bytearray(batch))

    def end(self, producer_id: int, *, commit: bool) -> None:
        marker = encode_marker(producer_id, 0, is_commit=commit, coordinator_epoch=3, timestamp_ms=NOON_MS)
        offset = self.log.append(marker, HEADER.unpack_from(marker), leader_epoch=0, now_ms=NOON_MS)
        learn_marker(self.log, HEADER.unpack_from(marker), marker, self.log.active)
        count_marker(self.log.active, offset, len(marker))

    def fetch(self, *batches: bytes) -> None:
        run = memoryview(b"".join(batches))
        headers, size = check_run(run, next_offset=self.log.log_end_offset, leader_epoch=0)
        assert size == len(run)
        append_fetched(self.log, run, headers, now_ms=NOON_MS)

    def thinned(self, hole: int, offsets: list[int], *, last: int = 0, producer_id: int = -1) -> bytes:
        """A batch behind a hole, of which only some offsets are left."""
        base = self.log.log_end_offset + hole
        return encode_batch(
            [Record(offset=base + offset, timestamp_ms=NOON_MS, value=b"v") for offset in offsets],
            base_offset=base,
            leader_epoch=0,
            compression=Compression.GZIP,
            keep_offsets=True,
            last_offset_delta=max([last, *offsets]),
            producer_id=producer_id,
            producer_epoch=0 if producer_id >= 0 else -1,
            base_sequence=0 if producer_id >= 0 else -1,
            transactional=producer_id >= 0,
        )

    def restart(self) -> None:
        start = self.log.log_start_offset
        self.log.close()
        self.open(clean=True, log_start_offset=start)

    def crash(self, copy: Path) -> None:
        self.log.flush_now()
        start, end = self.log.log_start_offset, self.log.log_end_offset
        crash(self.log, copy)
        for segment in self.log.segments:
            segment.close()
        self.directory = copy
        # A hole above the recovery point would count as a loss.
        self.open(recovery_point=end, log_start_offset=start)
        assert self.log.log_end_offset == end

    def read(self, offset: int) -> Counted:
        """By reading all batches."""
        stable = self.last_stable_offset
        found: dict[int, int] = {}
        for batch in self.log.batches():
            header = parse_header(batch)
            if header.is_control:
                marker = parse_marker(batch)
                assert marker is not None
                for each in [each for each, owner in found.items() if owner == header.producer_id]:
                    if marker.is_commit:
                        found[each] = -1
                    else:
                        del found[each]
                continue
            owner = header.producer_id if header.is_transactional else -1
            found.update((record.offset, owner) for record in decode_batch(batch))
        start = max(offset, self.log.log_start_offset)
        return Counted(
            sum(1 for each in found if start <= each < stable),
            # Nothing is taken back above the last stable offset: who is aborted later may be aborted already.
            self._data(max(start, stable)),
        )

    def _data(self, start: int) -> int:
        return sum(
            1
            for batch in self.log.batches()
            if not parse_header(batch).is_control
            for record in decode_batch(batch)
            if record.offset >= start
        )

    def count(self, offset: int) -> Counted:
        return run_to_end(count_unread(self, offset))  # type: ignore[arg-type]

    def check(self) -> None:
        for offset in range(self.log.log_start_offset, self.log.log_end_offset + 1):
            assert self.count(offset) == self.read(offset), f"from {offset} of {self.log.log_end_offset}"


@pytest.fixture
def ground(tmp_path: Path) -> Ground:
    return Ground(tmp_path / "log")


@pytest.fixture(autouse=True)
def close_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts stand close together, and work is cut into small shares, so that small logs have some of each."""
    monkeypatch.setattr(record_counts, "INTERVAL_BYTES", 200)
    monkeypatch.setattr(record_counts, "FOUND_MAX", 5)
    monkeypatch.setattr(counting, "HEADERS_PER_TURN_MAX", 3)
    monkeypatch.setattr(counting, "WALK_CHUNK_BYTES", 150)
    monkeypatch.setattr(counting, "TRANSACTIONS_MAX", 2)


# Counts and their file


def test_a_plain_segment_needs_nothing(ground: Ground) -> None:
    for _ in range(50):
        ground.plain(3)
    assert len(ground.log.segments) > 3
    assert all(segment.counts is not None and segment.counts.is_plain for segment in ground.log.segments)
    assert is_plain(ground.log, 0, ground.log.log_end_offset)
    ground.restart()
    # The files of sealed segments say so, too, and are read when somebody asks.
    assert ground.count(7) == (143, 0)
    assert at_hand(count_unread(ground, 7)) == (143, 0)  # type: ignore[arg-type]
    assert is_plain(ground.log, 7, ground.log.log_end_offset)


def test_counts_are_sparse_and_survive_their_file() -> None:
    chance = random.Random(SEED)
    print("seed", SEED)
    builder = CountsBuilder(1000)
    offset, position, below = 1000, 0, {}
    total = 0
    for _ in range(2000):
        hole, span, size = chance.choice([0, 0, 3]), chance.randrange(1, 9), chance.randrange(61, 300)
        records = chance.choice([span, span, chance.randrange(0, span + 1)])
        below[offset] = total, position
        builder.add(position, size, offset + hole, offset + hole + span - 1, records)
        total += records
        offset += hole + span
        position += size
    counts = builder.counts
    data = counts.to_bytes(position)
    assert len(data) < 12 * 2 * position / record_counts.INTERVAL_BYTES + 100
    again = RecordCounts.parse(data, base_offset=1000, size_bytes=position)
    assert again.to_bytes(position) == data
    assert again.end_offset == offset == builder.next_offset
    walked = 0
    for each, (records, at) in below.items():
        count, plain = again.before(each)
        assert count.offset <= each
        assert count.records <= records
        assert count.position <= at
        if plain:
            assert count.records + each - count.offset == records
        else:
            assert at - count.position <= record_counts.INTERVAL_BYTES + 600
            walked += 1
    assert walked > 100


@pytest.mark.parametrize("damage", ["torn", "flipped", "of another size", "of a later version", "empty"])
def test_a_file_that_is_not_of_this_log_is_noticed_and_counted_anew(ground: Ground, damage: str) -> None:
    for _ in range(20):
        ground.data(1)
        ground.end(1, commit=True)
    segment = ground.log.segments[0]
    path = segment.path.with_suffix(COUNTS_SUFFIX)
    good = path.read_bytes()
    ground.restart()
    data = bytearray(good)
    if damage == "torn":
        del data[-1:]
    elif damage == "flipped":
        data[20] ^= 4
    elif damage == "of another size":
        data = bytearray(RecordCounts(0).to_bytes(segment.size_bytes + 1))
    elif damage == "of a later version":
        data[1] += 1
    else:
        data.clear()
    path.write_bytes(data)
    with pytest.raises(CorruptLog):
        RecordCounts.parse(bytes(data), base_offset=0, size_bytes=segment.size_bytes)
    assert load_counts(ground.log.segments[0]) is None
    ground.check()
    # And is written down again: the same, but that it knows where the segment ends.
    counts = load_counts(ground.log.segments[0])
    assert counts is not None
    assert (
        counts.to_bytes(0)[16:28]
        == RecordCounts.parse(good, base_offset=0, size_bytes=segment.size_bytes).to_bytes(0)[16:28]
    )


# What is not a record


def test_markers_and_aborted_records_do_not_count(ground: Ground) -> None:
    ground.plain(2)
    ground.data(1, 3)
    ground.data(2, 5)
    ground.end(1, commit=False)
    ground.plain(1)
    ground.end(2, commit=True)
    assert ground.count(0) == (8, 0)
    ground.data(3, 4)
    ground.plain(2)
    ground.data(1, 1)
    ground.end(1, commit=True)
    assert ground.count(0) == (8, 7)
    ground.check()


@pytest.mark.lengthy("large inputs")
def test_records_of_a_transaction_over_many_segments(ground: Ground) -> None:
    for _ in range(30):
        ground.data(1, 2)
        ground.plain(1)
        ground.data(2, 1)
    ground.end(1, commit=False)
    ground.check()
    ground.end(2, commit=True)
    assert len(ground.log.segments) > 5
    ground.check()
    first = ground.log.segments[0]
    assert first.counts is not None
    assert first.counts.excludes_aborted, "all of it is decided, and that is known from now on"
    ground.restart()
    ground.check()


def test_holes_and_thinned_batches(ground: Ground) -> None:
    ground.plain(3)
    ground.fetch(ground.thinned(0, [1, 4, 5], last=9))
    ground.fetch(ground.thinned(7, []))
    ground.fetch(ground.thinned(0, [0], last=40))
    ground.plain(2)
    ground.check()
    assert ground.count(0) == (9, 0)
    # The middle of a thinned batch is found by opening that one.
    assert [ground.count(3 + at).records for at in range(11)] == [6, 6, 5, 5, 5, 4, 3, 3, 3, 3, 3]


def test_a_log_that_ends_in_a_hole_goes_on_behind_it(ground: Ground) -> None:
    ground.plain(5)
    ground.fetch(ground.thinned(4, [0, 1]))
    truncate_to(ground.log, 7)
    assert ground.log.log_end_offset == 7
    ground.plain(1)
    assert ground.count(0) == (6, 0)
    ground.check()


def test_a_segment_without_its_last_batches_grows_again(ground: Ground) -> None:
    """Somebody cleaned it, and a cut takes away all that came after: the log goes on where that began."""
    for _ in range(5):
        ground.plain()
    size_bytes = ground.log.active.size_bytes
    ground.log.roll(NOON_MS)
    ground.plain(2)
    ground.log.close()
    cleaned = ground.log.segments[0].path
    os.truncate(cleaned, size_bytes * 4 // 5)
    cleaned.with_suffix(COUNTS_SUFFIX).unlink()
    ground.open(clean=True)
    assert ground.count(0) == (6, 0)
    truncate_to(ground.log, 5)
    ground.plain()
    assert ground.count(0) == (5, 0)
    ground.check()


def test_a_cut_takes_a_decision_back(ground: Ground) -> None:
    """What was known to be aborted is open again when the marker is cut off, and may be committed then."""
    ground.plain()
    ground.data(1, 3)
    ground.log.roll(NOON_MS)
    ground.end(1, commit=False)
    assert ground.count(0) == (1, 0)
    counts = ground.log.segments[0].counts
    assert counts is not None
    assert counts.excludes_aborted
    truncate_to(ground.log, 4)
    assert ground.count(0) == (1, 3)
    ground.end(1, commit=True)
    assert ground.count(0) == (4, 0)
    ground.check()


def test_a_segment_that_comes_to_its_old_size_again_does_not_find_its_old_counts(ground: Ground) -> None:
    ground.plain()
    ground.data(1)
    ground.end(1, commit=True)
    ground.plain()
    ground.data(1)
    ground.end(1, commit=True)
    ground.log.roll(NOON_MS)
    first = ground.log.segments[0]
    old_bytes = first.size_bytes
    truncate_to(ground.log, 4)
    left = old_bytes - first.size_bytes
    append(ground.log, next(batch for size in range(left) if len(batch := batch_of([b"v" * size, b""])) == left))
    ground.log.roll(NOON_MS)
    assert first.size_bytes == old_bytes
    first.counts = None
    ground.check()


@pytest.mark.lengthy("large inputs")
def test_somebody_elses_log_is_walked_over_once(ground: Ground, tmp_path: Path) -> None:
    for at in range(40):
        ground.data(1, 2)
        ground.end(1, commit=at % 3 > 0)
        ground.plain()
    ground.log.close()
    for path in ground.directory.glob("*.counts"):
        path.unlink()
    ground.open(clean=True)
    assert all(segment.counts is None for segment in ground.log.segments)
    ground.check()
    assert len(list(ground.directory.glob("*.counts"))) == len(ground.log.segments) - 1
    # The one that grows is known from here on without another walk.
    ground.plain()
    ground.data(2)
    ground.end(2, commit=True)
    assert is_hot(count_unread(ground, ground.log.active.base_offset))  # type: ignore[arg-type]
    ground.check()


def drive(search: Part[T], step: Step, meanwhile: Callable[[], None]) -> T:
    """Go on with a search, and have something happen between its steps."""
    while True:
        meanwhile()
        try:
            step = search.send(step() if callable(step) else None)
        except StopIteration as end:
            found: T = end.value
            return found


def is_hot(search: Part[T]) -> bool:
    return at_hand(search) is not None


def test_counting_keeps_up_with_a_log_that_grows_meanwhile(ground: Ground) -> None:
    for _ in range(10):
        ground.data(1)
        ground.end(1, commit=False)
    ground.log.active.counts = ground.log.active.delivered = None
    search = count_unread(ground, 0)  # type: ignore[arg-type]
    expected = ground.read(0)
    step = next(search)

    def grow() -> None:
        ground.data(5)
        ground.end(5, commit=True)

    assert drive(search, step, grow) == expected
    ground.check()


def test_a_log_that_is_cut_or_trimmed_meanwhile_is_counted_again(ground: Ground) -> None:
    for _ in range(30):
        ground.data(1)
        ground.end(1, commit=False)
        ground.plain()
    for change in (
        lambda: truncate_to(ground.log, ground.log.log_end_offset - 4),
        lambda: trim_now(ground.log, 40),
    ):
        for segment in ground.log.segments:
            segment.counts = segment.delivered = None
            segment.path.with_suffix(COUNTS_SUFFIX).unlink(missing_ok=True)
        search = count_between(ground.log, 0, ground.log.log_end_offset, excludes_aborted=True)
        step = next(search)
        change()
        with pytest.raises(LogChanged):
            drive(search, step, lambda: None)
        ground.check()


def test_a_disk_that_takes_no_counts_costs_nothing_else(tmp_path: Path) -> None:
    class Full(UnsyncedDisk):
        def open(self, path: Path, *, create: bool = False) -> RealFile:
            if path.suffix == COUNTS_SUFFIX:
                raise OSError(errno.ENOSPC, "no space left")
            return super().open(path, create=create)

        def read_whole(self, path: Path) -> bytes:
            if path.suffix == COUNTS_SUFFIX:
                raise OSError(errno.EIO, "input/output error")
            return super().read_whole(path)

    ground = Ground(tmp_path / "log")
    ground.data(1)
    ground.end(1, commit=True)
    ground.restart()
    assert (tmp_path / "log" / "00000000000000000000.counts").exists()
    ground.log.close()
    producers = Producers()
    log = open_log(tmp_path / "log", disk=Full(), observer=producers, clean=True, segment_bytes=900)
    assert log.active.counts is None
    ground.log, ground.producers = log, producers
    for _ in range(20):
        ground.data(1)
        ground.end(1, commit=True)
    assert len(log.segments) > 2
    ground.check()
    log.close()


def test_a_log_that_is_closed_meanwhile_is_left_alone(ground: Ground) -> None:
    for _ in range(10):
        ground.data(1)
        ground.end(1, commit=True)
    ground.log.active.counts = None
    search = count_between(ground.log, ground.log.active.base_offset, ground.log.log_end_offset, excludes_aborted=True)
    step = next(search)
    while callable(step) or step is OPENS:
        step = search.send(step() if callable(step) else None)
    ground.log.close()
    with pytest.raises(Closed):
        search.send(None)
    assert not any(segment.is_open for segment in ground.log.segments)


def test_a_deleted_segment_takes_its_counts_with_it(ground: Ground) -> None:
    for _ in range(60):
        ground.plain()
    names = {path.name for path in ground.directory.iterdir()}
    assert "00000000000000000000.counts" in names
    trim_now(ground.log, ground.log.base_offsets[2])
    left = {path.name for path in ground.directory.iterdir()}
    assert {name.split(".")[0] for name in left if name.endswith("counts")} <= {
        segment.path.stem for segment in ground.log.segments
    }


def test_memory_is_let_go_of_with_the_file(ground: Ground) -> None:
    for _ in range(60):
        ground.data(1)
        ground.end(1, commit=True)
    first = ground.log.segments[0]
    first.close()
    assert first.counts is not None
    assert not first.counts.has_entries
    # The end is known all the same, and so is what lies in whole segments.
    assert is_hot(count_between(ground.log, 0, first.counts.last.offset, excludes_aborted=True))  # type: ignore[arg-type]
    assert not is_hot(count_between(ground.log, 5, 9, excludes_aborted=True))  # type: ignore[arg-type]
    ground.check()


def test_a_segment_that_let_go_of_its_counts_grows_all_the_same(ground: Ground) -> None:
    """A file may be closed while a log is opened, before its last segment is known to be the one that grows."""
    for _ in range(4):
        ground.data(1)
        ground.end(1, commit=True)
    active = ground.log.active
    active.is_active = False
    active.close()
    active.is_active = True
    ground.data(1)
    ground.end(1, commit=True)
    ground.check()


# Any history


STEPS = st.one_of(
    st.tuples(st.just("plain"), st.integers(1, 4)),
    st.tuples(st.just("data"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("data"), st.integers(0, 3), st.integers(1, 3)),
    st.tuples(st.just("end"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("end"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("thinned"), st.integers(0, 5), st.sets(st.integers(0, 6), max_size=4), st.integers(-1, 3)),
    st.tuples(st.just("roll")),
    st.tuples(st.just("cut"), st.integers(1, 6)),
    st.tuples(st.just("trim"), st.integers(1, 20)),
    st.tuples(st.just("restart")),
    st.tuples(st.just("crash")),
    st.tuples(st.just("forget")),
    st.tuples(st.just("ask")),
)


@pytest.mark.lengthy("random walks beside a model")
@given(steps=st.lists(STEPS, max_size=40))
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_history_is_counted_as_it_is_read(steps: list[tuple[object, ...]], tmp_path_factory: object) -> None:
    directory = tmp_path_factory.mktemp("history")  # type: ignore[attr-defined]
    ground = Ground(directory / "0")
    copies = 0
    for name, *arguments in steps:
        log = ground.log
        if name == "thinned":
            hole, offsets, producer_id = arguments
            ground.fetch(ground.thinned(hole, sorted(offsets), producer_id=producer_id))  # type: ignore[arg-type]
        elif name == "roll":
            if log.active.size_bytes:
                log.roll(NOON_MS)
        elif name == "cut":
            bounds = [parse_header(batch).base_offset for batch in log.batches()] + [log.log_end_offset]
            truncate_to(log, max(log.log_start_offset, bounds[-min(len(bounds), int(arguments[0]))]))  # type: ignore[call-overload]
        elif name == "trim":
            # What is trimmed is decided: nobody deletes above the high watermark, and readers of it are few.
            trim_now(log, min(log.log_start_offset + int(arguments[0]), ground.last_stable_offset))  # type: ignore[call-overload]
        elif name == "crash":
            copies += 1
            ground.crash(directory / str(copies))
        elif name == "forget":
            for segment in log.segments[:-1]:
                segment.counts = segment.delivered = None
                segment.path.with_suffix(COUNTS_SUFFIX).unlink(missing_ok=True)
        elif name == "ask":
            ground.count(log.log_start_offset)
        elif name == "end":
            ground.end(arguments[0], commit=arguments[1])  # type: ignore[arg-type]
        else:
            getattr(ground, str(name))(*arguments)
    ground.check()
    ground.log.close()
    shutil.rmtree(directory)
