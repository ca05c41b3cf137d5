"""Any order of puts, tombstones, transactions, rolls and cleanings, against a plain model of what a log may forget."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tests.unit.log.cleaning_cases import COMPILED, PLAIN, TWINS, SegmentedLog, using

from strandline.codec.columns import Compression, Record, decode_batch
from strandline.codec.record_batch import BatchHeader
from strandline.codec.transaction_marker import parse_marker

DELETE_RETENTION_MS = 100
COPIES_MAX = 3
KEYS = st.sampled_from([b"a", b"b", b"c", b"", b"a-longer-key-of-more-than-sixteen-bytes"])
RECORDS = st.lists(
    st.builds(
        Record,
        offset=st.just(-1),
        timestamp_ms=st.integers(min_value=-1, max_value=2000) | st.integers(min_value=0, max_value=2**62),
        key=KEYS | st.none(),
        value=st.none() | st.binary(max_size=40),
        headers=st.just(()) | st.just((("h", b"1"), ("g", None))),
    ),
    min_size=1,
    max_size=6,
)
PRODUCERS = st.integers(min_value=1, max_value=3)
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("put"),
            RECORDS,
            st.sampled_from(list(Compression)),
            st.none() | PRODUCERS,
            st.none() | st.integers(min_value=0, max_value=2000),
        ),
        st.tuples(st.just("transact"), RECORDS, st.sampled_from([Compression.NONE, Compression.LZ4]), PRODUCERS),
        st.tuples(st.just("end"), PRODUCERS, st.booleans()),
        st.tuples(st.just("roll")),
        st.tuples(
            st.just("clean"),
            st.integers(min_value=0, max_value=150),
            st.sampled_from([24 * 3, 24 * 5, 1 << 16]),
            st.sampled_from([150, 400, 1 << 20]),
        ),
    ),
    max_size=40,
)


class Copy(NamedTuple):
    """What a follower has fetched that began with nothing at one moment, and has been away since."""

    batches: list[tuple[BatchHeader, bytes]]
    whole_below: int


class Model:
    """What was written, who committed it, and when a tombstone was first seen by the cleaner."""

    def __init__(self) -> None:
        self.open: dict[int, list[int]] = {}
        self.committed: dict[int, Record] = {}
        self.aborted: set[int] = set()
        self.seen_ms: dict[int, int] = {}
        self.sequences: dict[int, int] = {}
        self.last_data: dict[int, int] = {}
        self.copies: list[Copy] = []

    def state(self) -> dict[bytes, bytes]:
        return fold([self.committed[offset] for offset in sorted(self.committed)])


def fold(records: list[Record]) -> dict[bytes, bytes]:
    state: dict[bytes, bytes] = {}
    for each in records:
        if each.key is None:
            continue
        if each.value is None:
            state.pop(each.key, None)
        else:
            state[each.key] = each.value
    return state


def run(steps: list[tuple], directory: Path, check: Callable[[SegmentedLog, Model, int], None]) -> SegmentedLog:
    log = SegmentedLog(directory)
    model = Model()
    now_ms = 1000
    for step in steps:
        match step:
            case ("put", records, codec, producer_id, append_time_ms) if producer_id not in model.open:
                put(log, model, records, codec, producer_id, append_time_ms=append_time_ms)
            case ("transact", records, codec, producer_id):
                put(log, model, records, codec, producer_id, transactional=True)
            case ("end", producer_id, is_commit):
                ended = model.open.pop(producer_id, [])
                log.end_transaction(producer_id, is_commit=is_commit)
                if is_commit:
                    model.committed.update({offset: log.written[offset] for offset in ended})
                else:
                    model.aborted.update(ended)
            case ("roll",):
                log.roll()
                whole_below = max(log.clean_up_to, log.tombstone_horizon)
                model.copies = [*model.copies[-COPIES_MAX + 1 :], Copy(list(log.batches()), whole_below)]
            case ("clean", passed_ms, buffer_bytes, segment_bytes):
                now_ms += passed_ms
                job = log.job(
                    now_ms=now_ms,
                    dedupe_buffer_bytes=buffer_bytes,
                    segment_bytes=segment_bytes,
                    delete_retention_ms=DELETE_RETENTION_MS,
                )
                if job.segments:
                    before = {each.offset for each in log.records()}
                    log.clean(job)
                    check(log, model, now_ms)
                    for offset in before:
                        if offset < log.clean_up_to and log.written[offset].value is None:
                            model.seen_ms.setdefault(offset, now_ms)
    return log


def put(
    log: SegmentedLog,
    model: Model,
    records: list[Record],
    codec: Compression,
    producer_id: int | None,
    *,
    transactional: bool = False,
    append_time_ms: int | None = None,
) -> None:
    first = log.end_offset
    options: dict[str, int | bool | None] = {"compression": codec, "append_time_ms": append_time_ms}
    if producer_id is not None:
        sequence = model.sequences.get(producer_id, 0)
        model.sequences[producer_id] = sequence + len(records)
        options |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
    log.put(records, transactional=transactional, **options)
    offsets = list(range(first, log.end_offset))
    if transactional:
        assert producer_id is not None
        model.open.setdefault(producer_id, []).extend(offsets)
    else:
        model.committed.update({offset: log.written[offset] for offset in offsets})
    if producer_id is not None:
        model.last_data[producer_id] = log.end_offset - 1
        log.active_producers = tuple((each, 0, last) for each, last in sorted(model.last_data.items()))


def check_all(log: SegmentedLog, model: Model, now_ms: int) -> None:
    batches = list(log.batches())
    for (before, _), (after, _) in pairwise(batches):
        assert before.last_offset < after.base_offset
    present = log.records()
    offsets = {each.offset for each in present}
    # Nothing is renumbered or changed.
    assert all(each == log.written[each.offset] for each in present)
    # A reader gets each key's last state, and nothing of what was aborted.
    open_offsets = {offset for each in model.open.values() for offset in each}
    committed = [each for each in log.committed() if each.offset not in open_offsets]
    assert not model.aborted & {each.offset for each in committed}
    assert fold(committed) == model.state()
    assert open_offsets <= offsets, "nothing of an open transaction is touched"
    check_tombstones(log, model, offsets, now_ms)
    check_below(log, model, offsets)
    # The end is where it was, and so are the sequences of producers.
    assert batches[-1][0].last_offset == log.end_offset - 1
    last_offsets = {header.last_offset for header, _ in batches if not header.is_control}
    assert set(model.last_data.values()) <= last_offsets
    check_markers(batches, model)
    for copy in model.copies:
        check_copy(copy, batches, log.tombstone_horizon, model)


def check_copy(copy: Copy, batches: list[tuple[BatchHeader, bytes]], horizon: int, model: Model) -> None:
    """A follower that comes back may go on where it ended, if it has not missed what was removed."""
    for header, _ in copy.batches:
        end_offset = header.last_offset + 1
        if end_offset < horizon > copy.whole_below:
            continue
        made = [each for each in copy.batches if each[0].last_offset < end_offset]
        made += [each for each in batches if each[0].base_offset >= end_offset]
        found = [each for header, batch in made if not header.is_control for each in decode_batch(batch)]
        counted = [each for each in found if each.offset in model.committed]
        assert fold(counted) == model.state(), f"a replica goes on at {end_offset}, and {horizon} is the horizon"
        check_markers(made, model)


def check_tombstones(log: SegmentedLog, model: Model, offsets: set[int], now_ms: int) -> None:
    """A tombstone that is its key's last word is there for its time, counted from the first cleaning that saw it."""
    last_words = {each.key: each for _, each in sorted(model.committed.items()) if each.key is not None}
    for each in last_words.values():
        if each.value is None and each.offset not in offsets:
            assert each.offset in model.seen_ms, "the cleaning that sees it first keeps it"
            assert now_ms >= model.seen_ms[each.offset] + DELETE_RETENTION_MS


def check_below(log: SegmentedLog, model: Model, offsets: set[int]) -> None:
    """Of what was cleaned only last words are left."""
    seen: dict[bytes, int] = {}
    for offset in sorted(offsets):
        if offset >= log.clean_up_to or offset in model.aborted:
            continue
        key = log.written[offset].key
        assert key is not None, "a record without a key went"
        assert key not in seen, f"{key!r} is there twice, at {seen[key]} and {offset}"
        seen[key] = offset


def check_markers(batches: list[tuple[BatchHeader, bytes]], model: Model) -> None:
    """Data of a transaction that ended is followed by its marker."""
    waiting: dict[int, int] = {}
    for header, batch in batches:
        if header.is_control:
            if parse_marker(batch) is not None:
                waiting.pop(header.producer_id, None)
        elif header.is_transactional:
            waiting[header.producer_id] = header.base_offset
    assert set(waiting) <= set(model.open)


def tombstones(*keys: bytes) -> tuple[object, ...]:
    return "put", [Record(-1, 0, key, None, ()) for key in keys], Compression.NONE, None, None


A_ROUND_THAT_ENDS_IN_A_BATCH = [
    *(tombstones(b"a", b"a", b"b"), tombstones(b"a", b"c"), ("roll",), tombstones(b"a")),
    *(("clean", 0, 24 * 3, 150), ("clean", DELETE_RETENTION_MS, 24 * 3, 150)),
]
"""The second round is the first to be at the last tombstone, so it must not take it."""
A_REPLICA_IS_AWAY = [
    *(("put", [Record(-1, 0, b"a", b"1", ())], Compression.NONE, None, None), ("roll",), tombstones(b"a"), ("roll",)),
    *(("clean", 0, 1 << 16, 150), ("clean", DELETE_RETENTION_MS, 1 << 16, 150)),
]
"""What was copied at the first roll has the value, and its tombstone is removed."""
A_MARKER_IS_MISSED = [
    *(("transact", [Record(-1, 0, b"a", b"1", ())], Compression.NONE, 1), ("roll",), ("end", 1, True)),
    *(("put", [Record(-1, 0, b"a", b"2", ())], Compression.NONE, 1, None), ("roll",)),
    *(("clean", 0, 1 << 16, 150), ("roll",), ("clean", 0, 1 << 16, 150)),
    ("clean", DELETE_RETENTION_MS, 1 << 16, 150),
]


@pytest.mark.lengthy("random walks beside a model")
@pytest.mark.parametrize("twin", TWINS)
@example(steps=A_ROUND_THAT_ENDS_IN_A_BATCH)
@example(steps=A_REPLICA_IS_AWAY)
@example(steps=A_MARKER_IS_MISSED)
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_a_cleaned_log_is_the_last_word_on_every_key(twin: ModuleType, steps: list[tuple]) -> None:
    with tempfile.TemporaryDirectory() as directory, using(twin):
        run(steps, Path(directory), check_all)


@pytest.mark.lengthy("many examples, each of them costly")
@pytest.mark.skipif(COMPILED is None, reason="not compiled here: no C compiler at installation")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=STEPS)
def test_both_twins_write_the_same_bytes(steps: list[tuple]) -> None:
    def nothing(_log: SegmentedLog, _model: Model, _now_ms: int) -> None:
        return

    outcomes = []
    for twin in (PLAIN, COMPILED):
        assert twin is not None
        with tempfile.TemporaryDirectory() as directory, using(twin):
            log = run(steps, Path(directory), nothing)
            outcomes.append({name: (log.directory / name).read_bytes() for name in log.disk.names(log.directory)})
    assert outcomes[0] == outcomes[1]
