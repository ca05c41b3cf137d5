"""Transactions on one partition: who may write into one, what readers of committed records see, and when."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS, read_bytes
from tests.unit.partition.test_partition import Waits, World, look

from strandline.codec.columns import Record, decode_batch, encode_batch
from strandline.codec.record_batch import check_batch, parse_header
from strandline.errors import (
    BehindRefused,
    ErrorCode,
    InvalidProducerEpoch,
    OutOfOrderSequence,
    StrandlineError,
    error_code,
)
from strandline.log.segment.aborted_transactions import aborted_transactions
from strandline.log.trimming import trim_now
from strandline.partition import following
from strandline.partition.following import make_follower
from strandline.partition.leading import make_leader
from strandline.partition.partition import Partition
from strandline.partition.transaction_appends import append_marker, begin_verification
from strandline.partition.verification import ONGOING, VERIFICATIONS_MAX, VerificationGuard

ID = 4001
OTHER = 4002


def transactional(producer_id: int, sequence: int, *values: bytes, epoch: int = 0) -> memoryview:
    records = [Record(timestamp_ms=NOON_MS, value=value) for value in values or (b"v",)]
    return memoryview(
        bytearray(
            encode_batch(
                records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, transactional=True
            )
        )
    )


def send(
    world: World, producer_id: int, sequence: int, *, epoch: int = 0, guard: VerificationGuard | None = None
) -> int:
    """A transactional batch of one record, its transaction verified; the offset it was given."""
    partition = world.partition
    guard = guard or begin_verification(partition, producer_id, epoch, sequence)
    return partition.append(transactional(producer_id, sequence, epoch=epoch), NOON_MS, guard=guard)[0]


def refuse_first(world: World, producer_id: int, sequence: int) -> None:
    """A producer that is not known begins in mid-sequence: the broker has it send the batch again."""
    with pytest.raises(BehindRefused) as caught:
        send(world, producer_id, sequence)
    world.partition.note_refused(transactional(producer_id, sequence), NOON_MS, error_code(caught.value))


def end(
    partition: Partition,
    producer_id: int,
    *,
    commit: bool = True,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    version: int = 1,
) -> list[Exception | None]:
    told: list[Exception | None] = []
    append_marker(
        partition,
        producer_id,
        epoch,
        is_commit=commit,
        coordinator_epoch=coordinator_epoch,
        transaction_version=version,
        now_ms=NOON_MS,
        on_committed=told.append,
    )
    return told


def refused_with(code: ErrorCode, call: Any, *arguments: Any, **named: Any) -> None:
    with pytest.raises(StrandlineError) as caught:
        call(*arguments, **named)
    assert error_code(caught.value) == code


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, flush_mode="async")


# The last stable offset


def test_an_open_transaction_holds_readers_back_until_its_marker(world: World) -> None:
    partition = world.partition
    world.append(b"plain")
    assert send(world, ID, 0) == 1
    world.append(b"plain")
    assert (partition.high_watermark, partition.last_stable_offset) == (3, 1)
    assert end(partition, ID) == [None]
    assert (partition.high_watermark, partition.last_stable_offset) == (4, 4)


def test_the_earliest_of_many_counts(world: World) -> None:
    partition = world.partition
    for at, producer_id in enumerate((1, 2, 3)):
        assert send(world, producer_id, 0) == at
    end(partition, 2)
    assert partition.last_stable_offset == 0
    end(partition, 1)
    assert partition.last_stable_offset == 2
    send(world, 1, 1)
    end(partition, 3)
    assert partition.last_stable_offset == 5
    end(partition, 1)
    assert partition.last_stable_offset == partition.log_end_offset


def test_a_marker_counts_when_it_is_committed(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    partition = world.partition
    reader = Waits()
    send(world, ID, 0)
    world.runtime.settle()
    partition.advance_listeners[reader] = None
    told = end(partition, ID)
    assert (partition.high_watermark, partition.last_stable_offset, told) == (1, 0, [])
    world.runtime.settle()
    assert (partition.high_watermark, partition.last_stable_offset, told) == (2, 2, [None])
    assert len(reader.heard) == 1
    assert reader.heard[0] > 1 << 30, "a reader who waits for many bytes looks: all of the transaction came at once"


def test_markers_that_are_committed_together_free_the_earliest_first(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    partition = world.partition
    for producer_id in (1, 2, 3):
        send(world, producer_id, 0)
    world.runtime.settle()
    for producer_id in (3, 1, 2):
        end(partition, producer_id)
    for high_watermark, stable in ((3, 0), (4, 0), (5, 1), (6, 6)):
        partition.advance(high_watermark)
        assert partition.last_stable_offset == stable


def test_what_is_deleted_at_the_start_is_not_waited_for(world: World) -> None:
    send(world, ID, 0)
    world.append(b"a", b"b")
    trim_now(world.partition.log, 2)
    assert world.partition.last_stable_offset == 2


# Who may write


def test_records_without_a_transaction_in_the_request_are_refused(world: World) -> None:
    refused_with(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, world.partition.append, transactional(ID, 0), NOON_MS)
    assert world.partition.log_end_offset == 0


def test_a_transaction_begins_only_with_a_guard(world: World) -> None:
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 0, guard=ONGOING)
    foreign = begin_verification(world.partition, OTHER, 0, 0)
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 0, guard=foreign)
    assert send(world, ID, 0) == 0
    assert begin_verification(world.partition, ID, 0, 1) is ONGOING
    assert send(world, ID, 1, guard=ONGOING) == 1


def test_a_marker_voids_the_guard(world: World) -> None:
    """The coordinator said yes, the transaction was aborted, and only then the batch comes: nobody would end it."""
    guard = begin_verification(world.partition, ID, 0, 0)
    end(world.partition, ID, commit=False)
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 0, guard=guard)
    again = begin_verification(world.partition, ID, 0, 0)
    assert again is not guard
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 0, guard=guard)
    assert send(world, ID, 0, guard=again) == 1


def test_a_guard_is_used_up_by_the_transaction_that_it_began(world: World) -> None:
    guard = begin_verification(world.partition, ID, 0, 0)
    assert send(world, ID, 0, guard=guard) == 0
    end(world.partition, ID)
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 1, guard=guard)


def test_verification_can_be_turned_off(world: World) -> None:
    world.partition.verifies_transactions = lambda: False
    assert send(world, ID, 0, guard=ONGOING) == 0


def test_records_outside_the_open_transaction_are_refused(world: World) -> None:
    send(world, ID, 0)
    refused_with(ErrorCode.INVALID_TXN_STATE, world.append, b"outside", producer_id=ID, producer_epoch=0, sequence=1)
    assert world.append(b"of another", producer_id=OTHER, producer_epoch=0, sequence=0)[0] == 1
    end(world.partition, ID)
    assert world.append(b"after it", producer_id=ID, producer_epoch=0, sequence=1)[0] == 3


def test_what_waits_for_the_answer_keeps_its_order(world: World) -> None:
    """The first of two batches is refused for now; the second must not begin the transaction."""
    partition = world.partition
    guard = begin_verification(partition, ID, 0, 0)
    assert begin_verification(partition, ID, 0, 1) is guard
    with pytest.raises(OutOfOrderSequence):
        send(world, ID, 1, guard=guard)
    assert send(world, ID, 0, guard=guard) == 0
    assert send(world, ID, 1) == 1


def test_with_an_epoch_for_each_transaction_the_first_sequence_is_zero(world: World) -> None:
    partition = world.partition
    guard = begin_verification(partition, ID, 0, 3, supports_epoch_bump=True)
    with pytest.raises(OutOfOrderSequence):
        send(world, ID, 3, guard=guard)
    refuse_first(world, OTHER, 3)
    assert send(world, OTHER, 3) == 0, "of an older client nobody knows what was deleted"


def test_a_retry_is_told_its_offset_even_after_the_marker(world: World) -> None:
    send(world, ID, 0)
    end(world.partition, ID)
    assert send(world, ID, 0, guard=ONGOING) == 0
    assert world.partition.log_end_offset == 2


def test_sequences_wrap_inside_a_transaction(world: World) -> None:
    last = 2**31 - 1
    refuse_first(world, ID, last - 1)
    assert send(world, ID, last - 1) == 0
    assert send(world, ID, last) == 1
    assert send(world, ID, 0) == 2
    assert send(world, ID, last) == 1, "it is known, not new"
    end(world.partition, ID)
    assert send(world, ID, 1) == 4
    with pytest.raises(OutOfOrderSequence):
        send(world, ID, 3)


def test_guards_are_forgotten_with_time_and_in_numbers(world: World) -> None:
    partition = world.partition
    guards = [begin_verification(partition, producer_id, 0, 0) for producer_id in range(VERIFICATIONS_MAX + 1)]
    assert len(partition.producers.verifications.guards) == VERIFICATIONS_MAX
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, 0, 0, guard=guards[0])
    assert send(world, VERIFICATIONS_MAX, 0, guard=guards[-1]) == 0
    partition.producers.expire(before_ms=world.runtime.now_ms() + 1)
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, 1, 0, guard=guards[1])


def test_a_cut_voids_guards(world: World) -> None:
    partition = world.partition
    world.append(b"a")
    guard = begin_verification(partition, ID, 0, 0)
    make_follower(partition, 2, leader_epoch=5, partition_epoch=5)
    following.truncate_to(partition, 0)
    make_leader(
        partition,
        1,
        leader_epoch=6,
        partition_epoch=6,
        replicas=[1],
        isr=[1],
        lag_max_s=30,
        is_eligible=lambda *_: True,
    )
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 0, guard=guard)


def test_a_fenced_producer_is_told_so_before_anybody_is_asked(world: World) -> None:
    send(world, ID, 0, epoch=3)
    with pytest.raises(InvalidProducerEpoch):
        begin_verification(world.partition, ID, 2, 0)
    with pytest.raises(InvalidProducerEpoch):
        send(world, ID, 0, epoch=2, guard=ONGOING)


def test_a_new_epoch_goes_on_with_the_transaction_that_is_open(world: World) -> None:
    """KIP-360: the producer was given a new epoch; what it wrote is still to be aborted, and ends with all of it."""
    partition = world.partition
    send(world, ID, 0)
    refused_with(ErrorCode.INVALID_TXN_STATE, send, world, ID, 0, epoch=1, guard=ONGOING)
    assert send(world, ID, 0, epoch=1) == 1
    assert partition.last_stable_offset == 0
    end(partition, ID, epoch=1, commit=False)
    assert aborted_transactions(partition.log, 0, 2, may_block=True) == [(ID, 0)]


def test_a_coordinators_offsets_open_a_transaction_too(world: World) -> None:
    partition = world.partition
    batch = encode_batch(
        [Record(timestamp_ms=NOON_MS, key=b"k", value=b"v")], producer_id=ID, producer_epoch=2, transactional=True
    )
    told: list[Exception | None] = []
    refused_with(ErrorCode.INVALID_TXN_STATE, partition.append_internal, batch, told.append)
    guard = begin_verification(partition, ID, 2, -1)
    partition.append_internal(batch, told.append, guard=guard)
    partition.append_internal(batch, told.append)
    assert (told, partition.last_stable_offset, partition.high_watermark) == ([None, None], 0, 2)
    end(partition, ID, epoch=2)
    assert partition.last_stable_offset == 3
    refused_with(ErrorCode.INVALID_TXN_STATE, partition.append_internal, batch, told.append, guard=guard)
    older = encode_batch(
        [Record(timestamp_ms=NOON_MS, value=b"v")], producer_id=ID, producer_epoch=1, transactional=True
    )
    refused_with(ErrorCode.INVALID_PRODUCER_EPOCH, partition.append_internal, older, told.append)


# Markers


def test_a_marker_is_kafkas(world: World) -> None:
    end(world.partition, ID, epoch=7, coordinator_epoch=3, commit=False)
    data = read_bytes(world.partition.log, 0)
    check_batch(data)
    header = parse_header(data)
    assert len(data) == 78
    assert (header.attributes, header.producer_id, header.producer_epoch, header.base_sequence) == (0x30, ID, 7, -1)
    assert (header.max_timestamp, header.leader_epoch) == (NOON_MS, 4)
    (record,) = decode_batch(data)
    assert (record.key, record.value) == (b"\0\0\0\0", b"\0\0\0\0\0\3")


def test_a_marker_carries_the_append_time_where_the_topic_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async", message_timestamp_type="LogAppendTime")
    end(world.partition, ID)
    data = read_bytes(world.partition.log, 0)
    check_batch(data)
    assert parse_header(data).attributes == 0x38


def test_an_older_coordinator_is_fenced(world: World) -> None:
    partition = world.partition
    send(world, ID, 0)
    end(partition, ID, coordinator_epoch=5)
    send(world, ID, 1)
    before = partition.log_end_offset
    refused_with(ErrorCode.TRANSACTION_COORDINATOR_FENCED, end, partition, ID, coordinator_epoch=4)
    assert (partition.log_end_offset, partition.last_stable_offset) == (before, 2)
    end(partition, ID, coordinator_epoch=5)
    assert partition.last_stable_offset == partition.log_end_offset


@pytest.mark.parametrize(
    ("version", "epoch", "is_open", "code"),
    [
        (1, 3, True, None),
        (1, 4, True, None),
        (1, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (1, 3, False, None),
        (2, 4, True, None),
        (2, 3, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 2, True, ErrorCode.INVALID_PRODUCER_EPOCH),
        (2, 3, False, None),
        (2, 2, False, ErrorCode.INVALID_PRODUCER_EPOCH),
    ],
)
def test_the_epoch_of_a_marker(world: World, version: int, epoch: int, is_open: bool, code: ErrorCode | None) -> None:
    """A producer in epoch 3. With version 2 a marker has an epoch of its own, except one that comes again."""
    partition = world.partition
    send(world, ID, 0, epoch=3)
    if not is_open:
        end(partition, ID, epoch=3)
    before = partition.log_end_offset
    if code is None:
        assert end(partition, ID, epoch=epoch, version=version) == [None]
        assert partition.log_end_offset == before + 1, "Kafka writes it again, too"
        assert partition.last_stable_offset == before + 1
    else:
        refused_with(code, end, partition, ID, epoch=epoch, version=version)
        assert partition.log_end_offset == before


def test_at_the_last_epoch_a_marker_has_that_of_its_transaction(world: World) -> None:
    send(world, ID, 0, epoch=32767)
    end(world.partition, ID, epoch=32767, version=2)
    assert world.partition.last_stable_offset == 2


def test_a_marker_with_a_new_epoch_fences_late_batches(world: World) -> None:
    send(world, ID, 0, epoch=3)
    end(world.partition, ID, epoch=4, version=2, commit=False)
    refused_with(ErrorCode.INVALID_PRODUCER_EPOCH, send, world, ID, 1, epoch=3, guard=ONGOING)
    with pytest.raises(OutOfOrderSequence):
        send(world, ID, 1, epoch=4)
    assert send(world, ID, 0, epoch=4) == 2


def test_a_marker_of_nobody_is_written_and_remembered(world: World) -> None:
    assert end(world.partition, ID, epoch=9, version=2) == [None]
    entry = world.partition.producers.entries[ID]
    assert (entry.epoch, entry.coordinator_epoch, entry.last_sequence) == (9, 0, -1)
    assert world.partition.last_stable_offset == 1


# Times


def test_times_are_looked_up_below_the_last_stable_offset(world: World) -> None:
    partition = world.partition
    world.append(b"a", timestamps=[NOON_MS - 50])
    send(world, ID, 0)
    world.append(b"b", timestamps=[NOON_MS + 50])

    def at(time_ms: int, **named: Any) -> int | None:
        return look(lambda callback: partition.offset_for_timestamp(time_ms, callback, **named), world)

    def latest(**named: Any) -> int | None:
        return look(lambda callback: partition.max_timestamp_offset(callback, **named), world)

    assert (at(NOON_MS), latest()) == (1, 2)
    assert (at(NOON_MS - 50, committed_only=True), at(NOON_MS, committed_only=True)) == (0, None)
    assert latest(committed_only=True) == 0
    end(partition, ID)
    assert (at(NOON_MS, committed_only=True), latest(committed_only=True)) == (1, 2)
