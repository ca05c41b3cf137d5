"""Idempotence: what is a duplicate, what is a gap, who is fenced, and what a snapshot keeps of it."""

from __future__ import annotations

import random
import tracemalloc
from itertools import pairwise

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from strandline.codec.columns import Record, encode_batch
from strandline.codec.message import encode
from strandline.codec.messages.producer_snapshot import ProducerEntry as SnapshotEntry
from strandline.codec.messages.producer_snapshot import ProducerSnapshot
from strandline.codec.record_batch import HEADER, HeaderFields
from strandline.codec.transaction_marker import encode_marker
from strandline.errors import (
    CorruptLog,
    DuplicateSequence,
    ErrorCode,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    error_code,
)
from strandline.partition.producers import ALL_STABLE, BATCHES_KEPT, REFUSAL_COUNTS_MS, Producers

ID = 4001
SEQUENCE_MAX = 2**31 - 1
SEED = 20_241_111


def sent(
    producers: Producers, first: int, count: int, *, offset: int, epoch: int = 0, producer_id: int = ID
) -> int | None:
    """A batch as the partition treats it: checked, and noted if it is new."""
    last = (first + count - 1) & SEQUENCE_MAX
    known = producers.check(producer_id, epoch, first, last)
    if known is None:
        producers.note(producer_id, epoch, first, offset + count - 1, count - 1, 1000 + offset)
    return known


def test_batches_in_order_are_new() -> None:
    producers = Producers()
    for number in range(10):
        assert sent(producers, number * 3, 3, offset=number * 3) is None


def test_the_last_batches_are_told_their_old_offset() -> None:
    producers = Producers()
    for number in range(BATCHES_KEPT + 3):
        sent(producers, number * 3, 3, offset=100 + number * 3)
    for number in range(3, BATCHES_KEPT + 3):
        assert sent(producers, number * 3, 3, offset=999) == 100 + number * 3
    with pytest.raises(OutOfOrderSequence) as caught:
        sent(producers, 6, 3, offset=999)
    assert error_code(caught.value) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_duplicate_has_the_same_borders() -> None:
    producers = Producers()
    sent(producers, 0, 3, offset=0)
    sent(producers, 3, 3, offset=3)
    for first, count in ((0, 2), (0, 4), (0, 6), (1, 2), (3, 2), (3, 4), (5, 1)):
        with pytest.raises(OutOfOrderSequence):
            sent(producers, first, count, offset=999)


@pytest.mark.parametrize("first", [4, 5, 100, SEQUENCE_MAX])
def test_a_gap_is_refused_and_changes_nothing(first: int) -> None:
    producers = Producers()
    sent(producers, 0, 3, offset=0)
    before = producers.snapshot()
    with pytest.raises(OutOfOrderSequence):
        sent(producers, first, 1, offset=3)
    assert producers.snapshot() == before
    assert sent(producers, 3, 1, offset=3) is None


@pytest.mark.parametrize("count", [1, 2, 5, 17])
def test_sequences_wrap_to_zero(count: int) -> None:
    producers = Producers()
    first = SEQUENCE_MAX - 2 * count + 1 if count > 1 else SEQUENCE_MAX - 1
    offset, sequence = 0, first
    firsts = []
    for _ in range(5):
        assert sent(producers, sequence, count, offset=offset) is None
        firsts.append((sequence, offset))
        offset += count
        sequence = (sequence + count) % (SEQUENCE_MAX + 1)
    assert any(before > after for (before, _), (after, _) in pairwise(firsts)), "it has wrapped"
    for sequence, at in firsts:
        assert sent(producers, sequence, count, offset=999) == at


def test_a_batch_may_lie_across_the_wrap() -> None:
    producers = Producers()
    sent(producers, SEQUENCE_MAX - 1, 4, offset=0)
    assert producers.entries[ID].batches[-1][:2] == (SEQUENCE_MAX - 1, 1)
    assert sent(producers, SEQUENCE_MAX - 1, 4, offset=999) == 0
    assert sent(producers, 2, 1, offset=4) is None


def test_a_new_epoch_begins_at_zero_and_fences_the_old_one() -> None:
    producers = Producers()
    sent(producers, 0, 3, offset=0, epoch=1)
    with pytest.raises(OutOfOrderSequence):
        sent(producers, 3, 1, offset=3, epoch=2)
    assert sent(producers, 0, 1, offset=3, epoch=2) is None
    with pytest.raises(InvalidProducerEpoch) as caught:
        sent(producers, 3, 1, offset=4, epoch=1)
    assert error_code(caught.value) == ErrorCode.INVALID_PRODUCER_EPOCH
    # A duplicate of the old epoch is no duplicate any more, it is fenced.
    with pytest.raises(InvalidProducerEpoch):
        sent(producers, 0, 3, offset=4, epoch=1)
    assert sent(producers, 1, 1, offset=4, epoch=2) is None


def test_producers_know_nothing_of_each_other() -> None:
    producers = Producers()
    sent(producers, 0, 3, offset=0, producer_id=1)
    assert sent(producers, 0, 3, offset=3, producer_id=2) is None
    assert sent(producers, 0, 3, offset=999, producer_id=1) == 0
    assert sent(producers, 0, 3, offset=999, producer_id=2) == 3


def test_an_unknown_producer_may_go_on_where_it_is() -> None:
    """Retention may have taken all that it wrote; the client cannot know."""
    producers = Producers()
    assert sent(producers, 77, 1, offset=0) is None
    with pytest.raises(OutOfOrderSequence):
        sent(producers, 79, 1, offset=1)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=60), st.integers(0, 3))
def test_whatever_is_sent_each_sequence_is_stored_once_and_in_order(tries: list[tuple[int, int]], near: int) -> None:
    """A client that loses answers sends anything it has sent before, again and again, near the wrap too."""
    producers = Producers()
    start = (SEQUENCE_MAX - near) & SEQUENCE_MAX
    stored: list[int] = []
    for step, count in tries:
        first = (start + step) & SEQUENCE_MAX
        try:
            known = sent(producers, first, count, offset=len(stored))
        except (OutOfOrderSequence, DuplicateSequence):
            continue
        if known is None:
            stored += [(first + each) & SEQUENCE_MAX for each in range(count)]
        else:
            assert stored[known : known + count] == [(first + each) & SEQUENCE_MAX for each in range(count)]
    assert stored == [(stored[0] + each) & SEQUENCE_MAX for each in range(len(stored))]


# Snapshots


def snapshot_of(entries: list[SnapshotEntry]) -> bytes:
    """Kafka's bytes, by the compiled message: the version in front, the CRC over all that stands behind it."""
    body = encode(ProducerSnapshot(crc=0, producer_entries=entries), 1)[4:]
    return b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body


def test_a_snapshot_is_kafkas_bytes() -> None:
    producers = Producers()
    sent(producers, 0, 3, offset=10, epoch=2, producer_id=5)
    sent(producers, 3, 2, offset=13, epoch=2, producer_id=5)
    sent(producers, 0, 1, offset=15, producer_id=2**40)
    entries = [
        SnapshotEntry(
            producer_id=5,
            epoch=2,
            last_sequence=4,
            last_offset=14,
            offset_delta=1,
            timestamp=1013,
            coordinator_epoch=-1,
            current_txn_first_offset=-1,
        ),
        SnapshotEntry(
            producer_id=2**40,
            epoch=0,
            last_sequence=0,
            last_offset=15,
            offset_delta=0,
            timestamp=1015,
            coordinator_epoch=-1,
            current_txn_first_offset=-1,
        ),
    ]
    assert producers.snapshot() == snapshot_of(entries)
    assert Producers().snapshot() == snapshot_of([])


ENTRIES = st.lists(
    st.builds(
        SnapshotEntry,
        producer_id=st.integers(0, 2**63 - 1),
        epoch=st.integers(0, 2**15 - 1),
        last_sequence=st.integers(0, SEQUENCE_MAX),
        last_offset=st.integers(2**32, 2**62),
        offset_delta=st.integers(0, 2**20),
        timestamp=st.integers(-1, 2**62),
        coordinator_epoch=st.integers(-1, 2**31 - 1),
        current_txn_first_offset=st.integers(-1, 2**62),
    ),
    max_size=20,
    unique_by=lambda entry: entry.producer_id,
)


@settings(max_examples=100, deadline=None, print_blob=True)
@given(ENTRIES)
def test_a_snapshot_comes_back_byte_by_byte(entries: list[SnapshotEntry]) -> None:
    data = snapshot_of(entries)
    producers = Producers()
    producers.restore(data)
    assert producers.snapshot() == data
    for entry in entries:
        first = (entry.last_sequence - entry.offset_delta) & SEQUENCE_MAX
        assert producers.check(entry.producer_id, entry.epoch, first, entry.last_sequence) == (
            entry.last_offset - entry.offset_delta
        )
        assert producers.open_transactions.get(entry.producer_id, -1) == entry.current_txn_first_offset
    opened = [entry.current_txn_first_offset for entry in entries if entry.current_txn_first_offset >= 0]
    assert list(producers.open_transactions.values()) == sorted(opened)
    assert producers.first_unstable_offset == min(opened, default=ALL_STABLE)


def test_damaged_snapshots_are_refused() -> None:
    producers = Producers()
    for number in range(3):
        sent(producers, 0, 1, offset=number, producer_id=number)
    data = producers.snapshot()
    for size in range(len(data)):
        with pytest.raises(CorruptLog):
            Producers().restore(data[:size])
    with pytest.raises(CorruptLog):
        Producers().restore(data + b"\x00")
    seed = random.Random(SEED)
    print("seed", SEED)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << seed.randrange(8)
        with pytest.raises(CorruptLog):
            Producers().restore(bytes(damaged))


def test_a_refused_snapshot_leaves_what_was_known() -> None:
    producers = Producers()
    sent(producers, 0, 1, offset=0)
    before = producers.snapshot()
    with pytest.raises(CorruptLog):
        producers.restore(before[:-1])
    assert producers.snapshot() == before


def test_a_restored_window_knows_duplicates_but_not_their_offsets() -> None:
    producers = Producers()
    for number in range(4):
        sent(producers, number, 1, offset=number)
    restored = Producers()
    restored.restore(producers.snapshot())
    assert sent(restored, 3, 1, offset=999) == 3
    for first in (0, 1, 2):
        with pytest.raises(DuplicateSequence) as caught:
            sent(restored, first, 1, offset=999)
        assert error_code(caught.value) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    with pytest.raises(OutOfOrderSequence):
        sent(restored, 5, 1, offset=999)
    for number in range(4, 4 + BATCHES_KEPT):
        assert sent(restored, number, 1, offset=number) is None
    # As many batches as are kept are known again: what is older than these is as out of order as ever.
    with pytest.raises(OutOfOrderSequence):
        sent(restored, 1, 1, offset=999)


def test_a_restored_window_at_the_wrap() -> None:
    producers = Producers()
    sent(producers, SEQUENCE_MAX - 1, 2, offset=0)
    sent(producers, 0, 1, offset=2)
    restored = Producers()
    restored.restore(producers.snapshot())
    with pytest.raises(DuplicateSequence):
        sent(restored, SEQUENCE_MAX - 1, 2, offset=999)
    assert sent(restored, 1, 1, offset=3) is None


# Learning from the log


def header(sequence: int, *, offset: int, count: int = 1, **attributes: bool) -> HeaderFields:
    records = [Record(timestamp_ms=1000 + offset, value=b"v")] * count
    batch = encode_batch(
        records, base_offset=offset, producer_id=ID, producer_epoch=3, base_sequence=sequence, **attributes
    )
    fields: HeaderFields = HEADER.unpack_from(batch)
    return fields


def test_the_log_teaches_the_same_as_the_appends() -> None:
    learnt, told = Producers(), Producers()
    for number in range(7):
        learnt.note_header(header(number * 2, offset=number * 2, count=2))
        sent(told, number * 2, 2, offset=number * 2, epoch=3)
    assert learnt.snapshot() == told.snapshot()
    assert learnt.entries[ID].batches == told.entries[ID].batches


def test_batches_without_a_producer_teach_nothing() -> None:
    producers = Producers()
    fields: HeaderFields = HEADER.unpack_from(encode_batch([Record(timestamp_ms=1, value=b"v")]))
    producers.note_header(fields)
    assert producers.entries == {}


def test_an_open_transaction_is_known_until_its_marker() -> None:
    producers = Producers()
    producers.note_header(header(0, offset=10, transactional=True))
    producers.note_header(header(1, offset=11, transactional=True))
    assert producers.open_transactions == {ID: 10}
    marker = encode_marker(ID, 3, is_commit=True, coordinator_epoch=5, timestamp_ms=1012)
    fields: HeaderFields = HEADER.unpack_from(marker)
    assert producers.note_marker((12, *fields[1:]), marker) is None
    assert producers.open_transactions == {}
    assert producers.check(ID, 3, 2, 2) is None, "the marker has no sequence"
    assert producers.first_unstable_offset == 10, "it may still be taken back"
    producers.on_high_watermark(12)
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(13)
    assert producers.first_unstable_offset == ALL_STABLE


def test_idle_producers_are_forgotten_but_not_their_open_transactions() -> None:
    producers = Producers()
    sent(producers, 0, 1, offset=0, producer_id=1)
    sent(producers, 0, 1, offset=500, producer_id=2)
    producers.note_header(header(0, offset=1, transactional=True))
    producers.expire(before_ms=1400)
    assert set(producers.entries) == {2, ID}


def test_an_open_transaction_outlives_its_producers_silence() -> None:
    """A day passes inside a transaction: its epoch, sequence and first offset are known when the next batch comes."""
    producers = Producers()
    producers.note_header(header(0, offset=10, transactional=True))
    producers.expire(before_ms=1 << 50)
    assert producers.check(ID, 3, 1, 1) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(ID, 3, 5, 5)
    assert producers.first_unstable_offset == 10
    marker = encode_marker(ID, 3, is_commit=True, coordinator_epoch=5, timestamp_ms=1012)
    fields: HeaderFields = HEADER.unpack_from(marker)
    producers.note_marker((12, *fields[1:]), marker)
    producers.expire(before_ms=1 << 50)
    assert producers.entries == {}
    assert producers.first_unstable_offset == 10, "until the marker is committed"


def test_ten_thousand_producers_fit_into_twenty_megabytes() -> None:
    tracemalloc.start()
    try:
        producers = Producers()
        for number in range(BATCHES_KEPT + 2):
            for producer_id in range(10_000):
                offset = 10**10 + number * 10_000 + producer_id
                producers.note(producer_id, 0, number * 500, offset, 499, 1_700_000_000_000 + offset)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(producers.entries) == 10_000
    assert size < 20_000_000


def test_what_was_refused_comes_first() -> None:
    """A producer that nobody knows sent two batches; the first was turned away, and must not be overtaken."""
    producers = Producers()
    producers.note_refused(7, 0, 0)
    producers.note_refused(7, 0, 3)
    with pytest.raises(OutOfOrderSequence):
        producers.check(7, 0, 3, 5)
    assert producers.check(7, 1, 3, 5) is None, "a new epoch has left it behind"
    assert producers.check(7, 0, 0, 2) is None
    producers.note(7, 0, 0, 2, 2, 0)
    assert producers.check(7, 0, 3, 5) is None


def test_a_gap_that_our_refusal_made_is_not_the_producers() -> None:
    producers = Producers()
    producers.note(7, 0, 0, 2, 2, 0)
    producers.note_refused(7, 0, 3, 1_000)
    producers.note_refused(7, 0, 6, 1_001)
    with pytest.raises(OutOfOrderSequence):
        producers.check(7, 0, 6, 8)
    assert producers.is_behind_refused(7, 0, 6, 2_000)
    assert not producers.is_behind_refused(7, 1, 6, 2_000), "a new epoch is another series"
    assert not producers.is_behind_refused(7, 0, 2, 2_000), "what comes before it is not behind it"
    assert not producers.is_behind_refused(7, 0, 6, 1_000 + REFUSAL_COUNTS_MS), "it was given up"
    producers.note_refused(7, 0, 3, 20_000)
    assert producers.is_behind_refused(7, 0, 6, 31_000), "it came again and was refused again"
    producers.note(7, 0, 3, 5, 2, 0)
    assert not producers.refused, "it was taken, here or by the leader that we follow"
    assert not producers.is_behind_refused(7, 0, 9, 31_000)


def test_a_gap_behind_another_one_than_was_refused_is_the_producers() -> None:
    producers = Producers()
    producers.note(7, 0, 0, 2, 2, 0)
    producers.note_refused(7, 0, 6, 1_000)
    assert not producers.is_behind_refused(7, 0, 9, 1_000), "3 to 5 were never seen"
