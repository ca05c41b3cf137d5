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
from strandline.codec.message_codec import encode
from strandline.codec.messages.producer_snapshot import ProducerEntry as SnapshotEntry
from strandline.codec.messages.producer_snapshot import ProducerSnapshot
from strandline.codec.producer_snapshot import ENTRY_SIZE
from strandline.codec.record_batch import HEADER, HeaderFields
from strandline.codec.transaction_marker import encode_marker
from strandline.errors import (
    BehindRefused,
    CorruptLog,
    ErrorCode,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    TooManyProducers,
    error_code,
)
from strandline.partition.producers import (
    ACTIVE_MS,
    ALL_STABLE,
    BATCHES_KEPT,
    REFUSAL_COUNTS_MS,
    REFUSED_MAX,
    ProducerLimit,
    Producers,
)

ID = 4001
SEQUENCE_MAX = 2**31 - 1
SEED = 20_241_111
NOW_MS = 1_700_000_000_000


def sent(
    producers: Producers, first: int, count: int, *, offset: int, epoch: int = 0, producer_id: int = ID
) -> int | None:
    """A batch as the partition treats it: checked, and noted if it is new."""
    last = (first + count - 1) & SEQUENCE_MAX
    known = producers.check(producer_id, epoch, first, last)
    if known is None:
        producers.note(producer_id, epoch, first, offset + count - 1, count - 1, 1000 + offset, NOW_MS + offset)
    return known


def go_on_at(producers: Producers, first: int, *, epoch: int = 0) -> None:
    """A producer that is not known sends a batch in mid-sequence, and is refused for now."""
    with pytest.raises(BehindRefused):
        producers.check(ID, epoch, first, first)
    producers.note_refused(ID, epoch, first, NOW_MS)


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
    go_on_at(producers, first)
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
    go_on_at(producers, SEQUENCE_MAX - 1)
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
    go_on_at(producers, 77)
    assert sent(producers, 77, 1, offset=0) is None
    with pytest.raises(OutOfOrderSequence):
        sent(producers, 79, 1, offset=1)


@settings(max_examples=150, deadline=None, print_blob=True)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(1, 3)), max_size=60), st.integers(0, 3))
def test_whatever_is_sent_each_sequence_is_stored_once_and_in_order(tries: list[tuple[int, int]], near: int) -> None:
    """A client that loses answers sends anything it has sent before, again and again, near the wrap too."""
    producers = Producers()
    start = (SEQUENCE_MAX - near) & SEQUENCE_MAX
    go_on_at(producers, start)
    stored: list[int] = []
    for step, count in tries:
        first = (start + step) & SEQUENCE_MAX
        try:
            known = sent(producers, first, count, offset=len(stored))
        except (OutOfOrderSequence, BehindRefused):
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
    content, kafkas = producers.snapshot(), snapshot_of(entries)
    assert content[:2] == kafkas[:2]
    assert content[2:6] == crc32c(content[6:]).to_bytes(4, "big"), "Kafka counts all bytes behind its CRC"
    assert content[6 : len(kafkas)] == kafkas[6:], "Kafka stops reading behind its entries"
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


@pytest.mark.lengthy("many examples, each of them costly")
@settings(max_examples=100, deadline=None, print_blob=True)
@given(ENTRIES)
def test_a_snapshot_comes_back_byte_by_byte(entries: list[SnapshotEntry]) -> None:
    data = snapshot_of(entries)
    producers = Producers()
    producers.restore(data, NOW_MS)
    content = producers.snapshot()
    assert content[6 : len(data)] == data[6:]
    again = Producers()
    again.restore(content, NOW_MS + 1)
    assert again.snapshot() == content
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
        sent(producers, 1, 1, offset=3 + number, producer_id=number)
    data = producers.snapshot()
    for size in range(len(data)):
        with pytest.raises(CorruptLog):
            Producers().restore(data[:size], NOW_MS)
    with pytest.raises(CorruptLog):
        Producers().restore(data + b"\x00", NOW_MS)
    body = data[6:] + b"\x00"
    with pytest.raises(CorruptLog):
        Producers().restore(data[:2] + crc32c(body).to_bytes(4, "big") + body, NOW_MS)
    seed = random.Random(SEED)
    print("seed", SEED)
    for at in range(len(data)):
        damaged = bytearray(data)
        damaged[at] ^= 1 << seed.randrange(8)
        with pytest.raises(CorruptLog):
            Producers().restore(bytes(damaged), NOW_MS)


def test_a_refused_snapshot_leaves_what_was_known() -> None:
    producers = Producers()
    sent(producers, 0, 1, offset=0)
    before = producers.snapshot()
    with pytest.raises(CorruptLog):
        producers.restore(before[:-1], NOW_MS)
    assert producers.snapshot() == before


def test_a_restored_window_is_the_whole_window() -> None:
    producers = Producers()
    for number in range(BATCHES_KEPT + 2):
        sent(producers, number, 1, offset=number)
    restored = Producers()
    restored.restore(producers.snapshot(), NOW_MS + 10**6)
    assert restored.entries[ID].batches == producers.entries[ID].batches
    assert restored.entries[ID].appended_ms == producers.entries[ID].appended_ms
    for first in range(2, BATCHES_KEPT + 2):
        assert sent(restored, first, 1, offset=999) == first
    with pytest.raises(OutOfOrderSequence):
        sent(restored, 1, 1, offset=999)


def test_of_kafkas_snapshot_only_the_newest_batch_is_known() -> None:
    """That an older one was stored cannot be told from it: nothing says where the producer began."""
    producers = Producers()
    for number in range(4):
        sent(producers, number, 1, offset=number)
    content = producers.snapshot()
    kafkas = content[6 : 10 + ENTRY_SIZE]
    restored = Producers()
    restored.restore(content[:2] + crc32c(kafkas).to_bytes(4, "big") + kafkas, NOW_MS + 500)
    assert restored.entries[ID].appended_ms == NOW_MS + 500, "it may have been any time before"
    assert sent(restored, 3, 1, offset=999) == 3
    for first in (0, 1, 2):
        with pytest.raises(OutOfOrderSequence) as caught:
            sent(restored, first, 1, offset=999)
        assert error_code(caught.value) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert sent(restored, 4, 1, offset=4) is None


def test_a_time_that_is_to_come_is_not_believed() -> None:
    """The clock was wrong once, and put right: the producer does not stay for years."""
    producers = Producers()
    sent(producers, 0, 1, offset=10**9)
    restored = Producers()
    restored.restore(producers.snapshot(), NOW_MS)
    assert restored.entries[ID].appended_ms == NOW_MS


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
        learnt.note_header(header(number * 2, offset=number * 2, count=2), NOW_MS + number * 2)
        sent(told, number * 2, 2, offset=number * 2, epoch=3)
    assert learnt.snapshot() == told.snapshot()
    assert learnt.entries[ID].batches == told.entries[ID].batches


def test_a_cleaned_log_keeps_what_may_come_again() -> None:
    producers = Producers()
    for number in range(BATCHES_KEPT + 2):
        sent(producers, 2 * number, 2, offset=2 * number)
    every = [2 * number + 1 for number in range(2, BATCHES_KEPT + 2)]
    assert producers.batches_to_keep(below=100) == [(ID, 0, *every)]
    assert producers.batches_to_keep(below=every[4]) == [(ID, 0, *every[:4])], "the newest lies above"
    assert producers.batches_to_keep(below=every[0]) == []
    sent(producers, 0, 1, offset=50, epoch=1)
    assert producers.batches_to_keep(below=100) == [(ID, 1, 50)], "what an older epoch sent does not come again"


def test_of_batches_without_a_sequence_a_cleaned_log_keeps_the_newest() -> None:
    """A coordinator's, for a producer's transaction: none of them is a duplicate of another."""
    producers = Producers()
    for offset in range(3):
        producers.note(ID, 0, -1, offset, 0, 1000, NOW_MS)
    assert producers.batches_to_keep(below=100) == [(ID, 0, 2)]
    assert producers.batches_to_keep(below=2) == []
    marker = encode_marker(9, 0, is_commit=True, coordinator_epoch=0, timestamp_ms=1000)
    producers.note_marker(HEADER.unpack_from(marker), marker, NOW_MS)
    assert producers.batches_to_keep(below=100) == [(ID, 0, 2), (9, 0, -1)]


def test_batches_without_a_producer_teach_nothing() -> None:
    producers = Producers()
    fields: HeaderFields = HEADER.unpack_from(encode_batch([Record(timestamp_ms=1, value=b"v")]))
    producers.note_header(fields, NOW_MS)
    assert producers.entries == {}


def test_an_open_transaction_is_known_until_its_marker() -> None:
    producers = Producers()
    producers.note_header(header(0, offset=10, transactional=True), NOW_MS)
    producers.note_header(header(1, offset=11, transactional=True), NOW_MS)
    assert producers.open_transactions == {ID: 10}
    marker = encode_marker(ID, 3, is_commit=True, coordinator_epoch=5, timestamp_ms=1012)
    fields: HeaderFields = HEADER.unpack_from(marker)
    assert producers.note_marker((12, *fields[1:]), marker, NOW_MS) is None
    assert producers.open_transactions == {}
    assert producers.check(ID, 3, 2, 2) is None, "the marker has no sequence"
    assert producers.first_unstable_offset == 10, "it may still be taken back"
    producers.on_high_watermark(12)
    assert producers.first_unstable_offset == 10
    producers.on_high_watermark(13)
    assert producers.first_unstable_offset == ALL_STABLE


def test_idle_producers_are_forgotten_but_not_their_open_transactions() -> None:
    producers = Producers()
    producers.note_header(header(0, offset=1, transactional=True), NOW_MS)
    sent(producers, 0, 1, offset=2, producer_id=1)
    sent(producers, 0, 1, offset=500, producer_id=2)
    producers.expire(before_ms=NOW_MS + 400)
    assert set(producers.entries) == {2, ID}


def test_an_open_transaction_outlives_its_producers_silence() -> None:
    """A day passes inside a transaction: its epoch, sequence and first offset are known when the next batch comes."""
    producers = Producers()
    producers.note_header(header(0, offset=10, transactional=True), NOW_MS)
    producers.expire(before_ms=1 << 50)
    assert producers.check(ID, 3, 1, 1) is None
    with pytest.raises(OutOfOrderSequence):
        producers.check(ID, 3, 5, 5)
    assert producers.first_unstable_offset == 10
    marker = encode_marker(ID, 3, is_commit=True, coordinator_epoch=5, timestamp_ms=1012)
    fields: HeaderFields = HEADER.unpack_from(marker)
    producers.note_marker((12, *fields[1:]), marker, NOW_MS)
    producers.expire(before_ms=1 << 50)
    assert producers.entries == {}
    assert producers.first_unstable_offset == 10, "until the marker is committed"


@pytest.mark.lengthy("large inputs")
def test_ten_thousand_producers_fit_into_twenty_megabytes() -> None:
    tracemalloc.start()
    try:
        producers = Producers()
        for number in range(BATCHES_KEPT + 2):
            for producer_id in range(10_000):
                offset = 10**10 + number * 10_000 + producer_id
                producers.note(producer_id, 0, number * 500, offset, 499, 1_700_000_000_000 + offset, NOW_MS)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(producers.entries) == 10_000
    assert size < 20_000_000


def test_what_was_refused_comes_first() -> None:
    """A producer that nobody knows sent two batches; the first was turned away, and must not be overtaken."""
    producers = Producers()
    producers.note_refused(7, 0, 0, 1_000)
    producers.note_refused(7, 0, 3, 1_000)
    with pytest.raises(BehindRefused):
        producers.check(7, 0, 3, 5)
    assert producers.check(7, 0, 0, 2) is None
    producers.note(7, 0, 0, 2, 2, 0, NOW_MS)
    assert producers.check(7, 0, 3, 5) is None


def test_a_gap_that_our_refusal_made_is_not_the_producers() -> None:
    producers = Producers()
    producers.note(7, 0, 0, 2, 2, 0, NOW_MS)
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
    producers.note(7, 0, 3, 5, 2, 0, NOW_MS)
    assert not producers.refused, "it was taken, here or by the leader that we follow"
    assert not producers.is_behind_refused(7, 0, 9, 31_000)


def test_a_gap_behind_another_one_than_was_refused_is_the_producers() -> None:
    producers = Producers()
    producers.note(7, 0, 0, 2, 2, 0, NOW_MS)
    producers.note_refused(7, 0, 6, 1_000)
    assert not producers.is_behind_refused(7, 0, 9, 1_000), "3 to 5 were never seen"


def test_an_unknown_producer_in_mid_sequence_is_refused_until_it_begins_again() -> None:
    """Its sequence 0 was refused where nothing could be noted. Both come again, and the first of them first."""
    producers = Producers()
    go_on_at(producers, 3)
    with pytest.raises(BehindRefused):
        producers.check(ID, 0, 6, 8)
    producers.note_refused(ID, 0, 6, NOW_MS)
    assert sent(producers, 0, 3, offset=0) is None
    assert sent(producers, 3, 3, offset=3) is None
    assert sent(producers, 6, 3, offset=6) is None


def test_of_what_an_unknown_producer_sent_the_lowest_comes_first() -> None:
    producers = Producers()
    go_on_at(producers, 6)
    go_on_at(producers, 3)
    for first in (4, 6, 9):
        with pytest.raises(BehindRefused):
            producers.check(ID, 0, first, first)
        producers.note_refused(ID, 0, first, NOW_MS)
    assert producers.check(ID, 0, 3, 5) is None
    with pytest.raises(BehindRefused):
        producers.check(ID, 1, 3, 5)


def test_an_unknown_producer_goes_on_behind_what_it_gave_up() -> None:
    producers = Producers()
    go_on_at(producers, 3)
    late_ms = NOW_MS + REFUSAL_COUNTS_MS
    producers.note_refused(ID, 0, 6, late_ms - 1)
    with pytest.raises(BehindRefused):
        producers.check(ID, 0, 6, 8)
    producers.note_refused(ID, 0, 6, late_ms)
    assert producers.check(ID, 0, 6, 8) is None


def test_a_refused_batch_of_a_later_epoch_holds_an_unknown_producer_up_for_a_while_only() -> None:
    producers = Producers()
    go_on_at(producers, 3, epoch=8193)
    late_ms = NOW_MS + REFUSAL_COUNTS_MS
    producers.note_refused(ID, 1, 3, late_ms - 1)
    with pytest.raises(BehindRefused):
        producers.check(ID, 1, 3, 5)
    producers.note_refused(ID, 1, 3, late_ms)
    assert producers.check(ID, 1, 3, 5) is None


def test_refusals_are_remembered_up_to_a_number() -> None:
    producers = Producers()
    for producer_id in range(REFUSED_MAX + 10):
        producers.note_refused(producer_id, 0, 5, NOW_MS)
    assert list(producers.refused) == list(range(REFUSED_MAX)), "the first are to find their note when they come again"
    producers.note_refused(0, 0, 5, NOW_MS + 1)
    for number, clock_ms in enumerate((NOW_MS + REFUSAL_COUNTS_MS, NOW_MS - 1)):
        producers.note_refused(REFUSED_MAX + number, 0, 5, clock_ms)
        assert REFUSED_MAX + number in producers.refused, "a note that is too old, or from the future, gives way"
    assert 0 in producers.refused, "it was refused again, and is not the oldest any more"
    assert len(producers.refused) == REFUSED_MAX


def test_however_many_forgotten_producers_go_on_at_once_all_are_accepted() -> None:
    producers = Producers()
    refused = list(range(3 * REFUSED_MAX))
    for attempt in range(6):
        waiting, refused = refused, []
        for producer_id in waiting:
            try:
                sent(producers, 7, 1, offset=attempt, producer_id=producer_id)
            except BehindRefused:
                producers.note_refused(producer_id, 0, 7, NOW_MS + attempt)
                refused.append(producer_id)
    assert refused == []


# How long, and how many


def test_old_records_do_not_make_an_old_producer() -> None:
    """A backfill: the records are years old, the producer is not. Its retry is a duplicate."""
    producers = Producers()
    producers.note(ID, 0, 0, 2, 2, 1_000, NOW_MS)
    producers.expire(before_ms=NOW_MS - 1)
    assert producers.check(ID, 0, 0, 2) == 0
    producers.expire(before_ms=NOW_MS + 1)
    assert not producers.entries


def test_records_of_the_future_do_not_keep_a_producer() -> None:
    producers = Producers()
    producers.note(ID, 0, 0, 2, 2, NOW_MS * 2, NOW_MS)
    producers.expire(before_ms=NOW_MS + 1)
    assert not producers.entries


def full(count_max: int = 10) -> tuple[ProducerLimit, Producers]:
    limit = ProducerLimit(count_max)
    producers = Producers(limit)
    for number in range(count_max):
        sent(producers, 0, 1, offset=number, producer_id=number)
    return limit, producers


def test_at_the_limit_the_producer_silent_for_longest_is_forgotten() -> None:
    limit, producers = full()
    sent(producers, 1, 1, offset=100, producer_id=0)
    producers.check_room(NOW_MS + 1 + ACTIVE_MS)
    producers.note(77, 0, 0, 101, 0, 0, NOW_MS + 1 + ACTIVE_MS)
    assert list(producers.entries) == [2, 3, 4, 5, 6, 7, 8, 9, 0, 77]
    assert (limit.count, limit.partitions) == (10, 1)


def test_at_the_limit_no_producer_is_forgotten_that_may_retry() -> None:
    _, producers = full()
    with pytest.raises(TooManyProducers) as caught:
        producers.check_room(NOW_MS + ACTIVE_MS - 1)
    assert error_code(caught.value) == ErrorCode.NOT_ENOUGH_REPLICAS
    producers.check_room(NOW_MS + ACTIVE_MS)


def test_open_transactions_are_never_forgotten() -> None:
    limit = ProducerLimit(3)
    producers = Producers(limit)
    for number in range(3):
        sent(producers, 0, 1, offset=number, producer_id=number)
        if number != 1:
            producers.note_transactional(number, number)
    late_ms = NOW_MS + 10 * ACTIVE_MS
    producers.check_room(late_ms)
    producers.note(77, 0, 0, 9, 0, 0, late_ms)
    assert set(producers.entries) == {0, 2, 77}
    restored = Producers(ProducerLimit(1))
    restored.restore(producers.snapshot(), late_ms)
    assert {0, 2} <= set(restored.entries), "nor while a snapshot is read"
    producers.note_transactional(77, 9)
    with pytest.raises(TooManyProducers):
        producers.check_room(2 * late_ms)


def test_a_flood_into_one_partition_costs_the_producers_of_others_nothing() -> None:
    limit, flooded = full()
    other = Producers(limit)
    for number in range(5):
        other.check_room(NOW_MS)
        sent(other, 0, 1, offset=number, producer_id=number)
    with pytest.raises(TooManyProducers):
        flooded.check_room(NOW_MS)
    with pytest.raises(TooManyProducers):
        other.check_room(NOW_MS)
    assert (limit.count, limit.partitions) == (15, 2)
    other.clear()
    assert (limit.count, limit.partitions) == (10, 1)
    flooded.expire(before_ms=NOW_MS + 1000)
    assert (limit.count, limit.partitions) == (0, 0)


def test_a_follower_and_a_restart_stay_within_the_limit() -> None:
    """They take what the log holds, and are not asked; what was appended last is what they keep."""
    limit = ProducerLimit(10)
    producers = Producers(limit)
    for number in range(50):
        producers.note(number, 0, 0, number, 0, 0, NOW_MS)
    assert list(producers.entries) == list(range(40, 50))
    assert limit.count == 10
