"""What the records of the commit log say together, and their bytes."""

from __future__ import annotations

import random
import uuid
from collections.abc import Generator
from typing import TypeVar

import pytest
from tests.tiers.objects.commit_log import PLACE_A, PLACE_B, TOPIC_A, claim, commit, note, object_id, piece

from strandline.codec.record_batch import HEADER, BatchHeader
from strandline.codec.transaction_marker import TransactionMarker, encode_marker, parse_marker
from strandline.errors import CorruptLog, MalformedMessage
from strandline.partition.producers import Producers
from strandline.tiers.wal.checkpoint import decode_checkpoint, encode_checkpoint
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import (
    ABORTED,
    BATCH,
    COMMITTED,
    RELEASED,
    STARTS,
    TRANSACTIONAL,
    CommitEvent,
    ObjectsCondemned,
    ObjectsDeleted,
    OffsetsMoved,
    TopicsRemoved,
    decode_event,
    encode_event,
)
from strandline.tiers.wal.producer_notes import KnownProducers, RangeNotes
from strandline.tiers.wal.wal_objects import head_size, object_id_of, pack_head, unpack_head, wal_key

T = TypeVar("T")
EVENTS: list[CommitEvent] = [
    claim(3, 70, PLACE_A, PLACE_B, epoch=5),
    commit(object_id(1), piece(PLACE_A, 0, 10), piece(PLACE_B, 7, 9, notes=(note(BATCH, 4, 0, 8, 1),))),
    commit(object_id(2)),
    OffsetsMoved(STARTS, ((*PLACE_A, 5, 3),)),
    OffsetsMoved(RELEASED, ((*PLACE_A, 5, 3), (*PLACE_B, 5, 1 << 40))),
    TopicsRemoved((TOPIC_A,)),
    ObjectsCondemned((object_id(3), object_id(4))),
    ObjectsDeleted(()),
]


@pytest.mark.parametrize("event", EVENTS, ids=lambda each: type(each).__name__)
def test_a_record_says_what_was_encoded(event: CommitEvent) -> None:
    value = encode_event(event)
    assert decode_event(value) == event
    for end in range(len(value)):
        with pytest.raises(MalformedMessage):
            decode_event(value[:end])
    with pytest.raises(MalformedMessage):
        decode_event(value + b"\0")


def test_a_record_of_a_newer_writer_is_passed_over() -> None:
    value = encode_event(EVENTS[0])
    assert decode_event(bytes((99, *value[1:]))) is None
    assert decode_event(bytes((value[0], 2, *value[2:]))) is None


def fold_of(*events: CommitEvent) -> CommitFold:
    fold = CommitFold()
    for each in events:
        fold.apply(each)
    return fold


def test_only_the_leader_that_claimed_last_commits() -> None:
    fold = fold_of(claim(1, 10, PLACE_A, epoch=3))
    assert fold.apply(commit(object_id(1, broker=1, epoch=10), piece(PLACE_A, 0, 4, leader_epoch=3))) == (True,)
    assert fold.apply(claim(2, 11, PLACE_A, epoch=4)) == (True,)
    late = commit(object_id(2, broker=1, epoch=10), piece(PLACE_A, 4, 6, leader_epoch=3))
    assert fold.apply(late) == (False,)
    assert object_id(2, broker=1, epoch=10) in fold.dead, "nothing needs its object"
    assert fold.apply(commit(object_id(1, broker=2, epoch=11), piece(PLACE_A, 4, 5, leader_epoch=4))) == (True,)
    assert fold.apply(claim(1, 10, PLACE_A, epoch=3)) == (False,), "an older leader takes nothing back"
    assert fold.partitions[PLACE_A].end_offset == 5


def test_a_former_process_of_the_same_leader_is_fenced() -> None:
    """In one leader epoch, if the broker was restarted and its leadership stayed."""
    fold = fold_of(claim(1, 10, PLACE_A, epoch=3), claim(1, 12, PLACE_A, epoch=3))
    assert fold.apply(commit(object_id(1, broker=1, epoch=10), piece(PLACE_A, 0, 4, leader_epoch=3))) == (False,)
    assert fold.apply(commit(object_id(1, broker=1, epoch=12), piece(PLACE_A, 0, 4, leader_epoch=3))) == (True,)


def test_a_commit_begins_where_the_partition_ends() -> None:
    fold = fold_of(claim(1, 10, PLACE_A, PLACE_B))
    first = commit(object_id(1), piece(PLACE_A, 0, 4), piece(PLACE_B, 0, 2))
    assert fold.apply(first) == (True, True)
    assert fold.apply(first) == (False, False), "written twice, because an answer was lost"
    assert fold.apply(commit(object_id(2), piece(PLACE_A, 5, 6), piece(PLACE_B, 2, 3))) == (False, True)
    assert fold.apply(commit(object_id(3), piece(PLACE_A, 3, 6))) == (False,)
    assert fold.partitions[PLACE_A].end_offset == 4


def test_no_commit_names_an_object_that_was_condemned_nor_an_older_one() -> None:
    fold = fold_of(claim(1, 10, PLACE_A), ObjectsCondemned((object_id(5),)))
    assert object_id(5) in fold.dead
    for number in (4, 5):
        assert fold.apply(commit(object_id(number), piece(PLACE_A, 0, 1))) == (False,)
    assert fold.apply(commit(object_id(6), piece(PLACE_A, 0, 1))) == (True,)
    fold.apply(ObjectsCondemned((object_id(6),)))
    assert object_id(6) in fold.objects, "it is committed: it stays"
    assert object_id(6) not in fold.dead


def test_an_object_dies_with_its_last_range() -> None:
    fold = fold_of(claim(1, 10, PLACE_A, PLACE_B))
    fold.apply(commit(object_id(1), piece(PLACE_A, 0, 4), piece(PLACE_B, 0, 2)))
    fold.apply(commit(object_id(2), piece(PLACE_A, 4, 8)))
    fold.apply(OffsetsMoved(RELEASED, ((*PLACE_A, 0, 6),)))
    assert set(fold.objects) == {object_id(1), object_id(2)}
    fold.apply(OffsetsMoved(STARTS, ((*PLACE_B, 0, 2),)))
    assert set(fold.dead) == {object_id(1)}
    assert fold.partitions[PLACE_B].start_offset == 2
    fold.apply(OffsetsMoved(RELEASED, ((*PLACE_A, 9, 8),)))
    assert set(fold.objects) == {object_id(2)}, "another leader's word"
    fold.apply(TopicsRemoved((TOPIC_A,)))
    assert not fold.objects
    assert PLACE_A not in fold.partitions
    fold.apply(ObjectsDeleted((object_id(1), object_id(2))))
    assert not fold.dead


def test_many_writers_that_overtake_each_other_leave_one_history() -> None:
    """Leaders that believe what they like: each offset is given once, and each range has its object."""
    rng = random.Random(7)
    for _ in range(60):
        fold, numbers = CommitFold(), dict.fromkeys(range(4), 0)
        ends: dict[int, int] = {}
        epochs = dict.fromkeys(range(4), -1)
        given: set[int] = set()
        for _ in range(120):
            broker = rng.randrange(4)
            action = rng.randrange(10)
            if action == 0:
                epochs[broker] = max(epochs.values()) + rng.randrange(2)
                fold.apply(claim(broker, broker + 10, PLACE_A, epoch=epochs[broker]))
                ends[broker] = fold.partitions[PLACE_A].end_offset
            elif action == 1:
                fold.apply(ObjectsCondemned((object_id(rng.randrange(30), broker=broker, epoch=broker + 10),)))
            elif broker in ends:
                numbers[broker] += 1
                base, end = ends[broker], ends[broker] + rng.randrange(1, 4)
                one = piece(PLACE_A, base, end, leader_epoch=epochs[broker])
                event = commit(object_id(numbers[broker], broker=broker, epoch=broker + 10), one)
                (accepted,) = fold.apply(event)
                if accepted:
                    assert not given & set(range(base, end))
                    given |= set(range(base, end))
                if accepted or rng.randrange(2):
                    # A leader that is fenced goes on for a while, as if it knew nothing.
                    ends[broker] = end
                if rng.randrange(4) == 0:
                    assert fold.apply(event) == (False,)
        known = fold.partitions.get(PLACE_A)
        if known is not None:
            assert given == set(range(known.end_offset))
            assert [each.end_offset for each in known.ranges][:-1] == known.bases[1:]
            assert all(each.object_id in fold.objects for each in known.ranges)


def test_producers_of_the_notes_are_those_of_the_batches() -> None:
    """A new leader knows what one knows that saw each batch."""
    rng = random.Random(3)
    seen, known = Producers(), KnownProducers()
    sequences: dict[int, int] = {}
    opened: set[int] = set()
    offset, aborted = 0, []
    expected = []
    for _ in range(40):
        notes = RangeNotes()
        for _ in range(rng.randrange(1, 40)):
            producer_id, count = rng.randrange(5), rng.randrange(1, 4)
            is_transactional = producer_id > 2
            if producer_id in opened and rng.randrange(4) == 0:
                is_commit = bool(rng.randrange(2))
                marker = encode_marker(producer_id, 0, is_commit=is_commit, coordinator_epoch=2, timestamp_ms=offset)
                header = BatchHeader._make(HEADER.unpack_from(marker))._replace(base_offset=offset)
                assert parse_marker(marker) == TransactionMarker(is_commit, 2)
                notes.add(header, parse_marker(marker))
                expected.append(seen.note_marker(header, marker, 1000))
                opened.discard(producer_id)
                offset += 1
                continue
            base = sequences.get(producer_id, 0)
            sequences[producer_id] = base + count
            header = BatchHeader(
                offset, 100, 0, 2, 0, 16 * is_transactional, count - 1, 5, offset, producer_id, 0, base, count
            )
            notes.add(header, None)
            seen.note_header(header, 1000)
            if is_transactional:
                opened.add(producer_id)
            offset += count
        aborted += known.apply(notes.all(), 1000)
    restored = Producers()
    restored.restore(known.snapshot(), 1000)
    assert restored.open_transactions == seen.open_transactions
    assert aborted == [each for each in expected if each is not None]
    for producer_id, entry in seen.entries.items():
        found = restored.entries[producer_id]
        assert (found.epoch, found.last_sequence) == (entry.epoch, entry.last_sequence)
        assert found.recent[-5:] == entry.recent[-5:]


def test_silent_producers_are_forgotten_and_open_ones_stay() -> None:
    known = KnownProducers()
    known.apply([note(TRANSACTIONAL, 1, 0, 0, 0), note(BATCH, 2, 0, 1, 0)], 1000)
    known.apply([note(COMMITTED, 3, 0, 2, 0), note(ABORTED, 4, 0, 3, 0)], 1000 + 30 * 24 * 3_600_000)
    assert set(known.entries) == {1, 2, 3, 4}, "the first in line has a transaction open"
    known.apply([note(ABORTED, 1, 0, 4, 0)], 1000 + 30 * 24 * 3_600_000)
    assert 2 not in known.entries


def test_the_head_of_an_object_says_where_its_ranges_are() -> None:
    ranges = [piece(PLACE_A, 0, 4)._replace(position=5, crc=9, size_bytes=70), piece(PLACE_B, 2, 3)]
    head = pack_head(ranges)
    assert len(head) == head_size(2)
    assert unpack_head(head + b"batches") == [each._replace(max_timestamp_ms=-1, notes=()) for each in ranges]
    for at in range(len(head)):
        damaged = bytearray(head)
        damaged[at] ^= 1
        with pytest.raises(CorruptLog):
            unpack_head(bytes(damaged))
    with pytest.raises(CorruptLog):
        unpack_head(head[:10])


def test_keys_name_their_objects() -> None:
    each = object_id(17, broker=2, epoch=1 << 40)
    key = wal_key("cluster", each)
    assert key.startswith("cluster/wal/")
    assert object_id_of(key) == each
    assert object_id_of("cluster/wal/00/other") is None
    assert len({wal_key("c", object_id(number)).split("/")[2] for number in range(300)}) > 100, "spread"


def test_a_checkpoint_is_the_fold_it_was_made_of() -> None:
    markers = (note(TRANSACTIONAL, 4, 0, 7, 0), note(ABORTED, 4, 0, 8, 0), note(TRANSACTIONAL, 5, 0, 8, 0))
    fold = fold_of(
        claim(1, 10, PLACE_A, PLACE_B, epoch=2),
        commit(object_id(1), piece(PLACE_A, 0, 4, leader_epoch=2), piece(PLACE_B, 0, 9, leader_epoch=2, notes=markers)),
        commit(object_id(2), piece(PLACE_A, 4, 8, leader_epoch=2)),
        claim(2, 11, PLACE_A, epoch=3),
        commit(object_id(1, broker=2, epoch=11), piece(PLACE_A, 8, 9, leader_epoch=3)),
        OffsetsMoved(STARTS, ((*PLACE_A, 3, 5),)),
        ObjectsCondemned((object_id(9),)),
    )
    data = at_once(encode_checkpoint(fold, 77))
    loaded = at_once(decode_checkpoint(data, 77))
    assert at_once(encode_checkpoint(loaded, 77)) == data
    known = loaded.partitions[PLACE_A]
    assert (known.start_offset, known.end_offset, known.epochs.format()) == (5, 9, "0\n2\n2 5\n3 8\n")
    assert loaded.partitions[PLACE_B].ranges[0].aborted[0].producer_id == 4
    assert loaded.partitions[PLACE_B].producers.open_transactions == {5: 8}
    for each in (fold, loaded):
        # They go on alike.
        assert each.apply(commit(object_id(3), piece(PLACE_B, 9, 10, leader_epoch=2))) == (False,)
        assert each.apply(commit(object_id(10), piece(PLACE_B, 9, 10, leader_epoch=2))) == (True,)
        each.apply(OffsetsMoved(RELEASED, ((*PLACE_A, 3, 9), (*PLACE_B, 2, 9))))
        assert set(each.objects) == {object_id(10)}
    with pytest.raises(CorruptLog):
        at_once(decode_checkpoint(data, 78))
    for at in range(0, len(data), 7):
        with pytest.raises(CorruptLog):
            at_once(decode_checkpoint(data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], 77))


def at_once(steps: Generator[None, None, T]) -> T:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def test_topics_are_named_once() -> None:
    fold = fold_of(claim(1, 10, PLACE_A, PLACE_B, (uuid.UUID(int=9), 0)))
    assert sorted(fold.topic_ids(), key=lambda each: each.int) == sorted(
        {PLACE_A[0], PLACE_B[0], uuid.UUID(int=9)}, key=lambda each: each.int
    )
