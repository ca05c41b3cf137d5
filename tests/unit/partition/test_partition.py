"""A partition as its leader sees it: what counts as committed under each flush mode, who waits, who is refused."""

from __future__ import annotations

import errno
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.log.engine import NOON_MS, batch_of, open_log, read_bytes
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.codec.columns import Record, decode_batch, encode_batch
from strandline.codec.record_batch import check_batch, parse_header
from strandline.config.topic_config import TopicConfig
from strandline.errors import (
    BatchTooLarge,
    BehindRefused,
    CorruptBatch,
    DiskFailed,
    ErrorCode,
    InvalidBatch,
    InvalidTimestamp,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RequestError,
    error_code,
)
from strandline.log.flusher import Flusher
from strandline.log.segment.time_lookup import FoundTime
from strandline.partition.leading import make_leader
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers

EPOCH_AT = 51
SEQUENCE_AT = 53
"""Where the header of a batch has the epoch and the first sequence of its producer."""


class World:
    """A partition on a disk and a runtime that the test holds in its hands."""

    def __init__(self, path: Path, *, is_only_copy: bool = True, **config: Any) -> None:
        self.disk = FaultyDisk()
        self.runtime = ManualRuntime()
        self.flusher = Flusher(self.runtime)
        self.config = TopicConfig(**config)
        producers = Producers()
        log = open_log(path / "orders-0", disk=self.disk, observer=producers, **config)
        self.partition = Partition(
            "orders",
            0,
            uuid.UUID(int=1),
            log=log,
            producers=producers,
            flusher=self.flusher,
            config=self.config,
            leader_epoch=4,
            is_only_copy=is_only_copy,
        )

    def append(self, *values: bytes, **fields: Any) -> tuple[int, int, int]:
        return self.partition.append(memoryview(batch_of(list(values), **fields)), NOON_MS)

    @property
    def syncs(self) -> int:
        return self.flusher.flushes_started


class Waits:
    """Somebody who waits at a partition and writes down what he hears."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def on_commit(self, error_code: int) -> None:
        self.heard.append(error_code)

    def on_advance(self, size_bytes: int) -> None:
        self.heard.append(size_bytes)

    def on_gone(self) -> None:
        self.heard.append("gone")


# Flush modes


@pytest.mark.parametrize(
    ("mode", "is_only_copy", "waits"),
    [("ack", True, True), ("ack", False, True), ("auto", True, True), ("auto", False, False), ("async", True, False)],
)
def test_when_an_append_counts(tmp_path: Path, mode: str, is_only_copy: bool, waits: bool) -> None:
    world = World(tmp_path, flush_mode=mode, is_only_copy=is_only_copy)
    base_offset, commits_at, _ = world.append(b"a", b"b")
    assert (base_offset, commits_at) == (0, 2)
    assert world.partition.high_watermark == (0 if waits else 2)
    world.runtime.settle()
    assert world.partition.high_watermark == 2
    assert world.syncs == (1 if waits else 0)


def test_flush_messages_of_one_is_ack_by_another_name(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async", flush_messages=1)
    world.append(b"a")
    assert world.partition.high_watermark == 0
    world.runtime.settle()
    assert (world.partition.high_watermark, world.syncs) == (1, 1)


def test_flush_messages_flushes_in_the_background(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async", flush_messages=10)
    for number in range(1, 31):
        world.append(b"v")
        world.runtime.settle()
        assert world.partition.high_watermark == number, "nobody waits for it"
        assert world.syncs == number // 10
    assert world.partition.log.flushed_offset == 30


def test_many_appends_share_one_sync(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    waits = [Waits() for _ in range(100)]
    for each in waits:
        _, commits_at, _ = world.append(b"v")
        world.partition.when_committed(commits_at, each)
    assert not any(each.heard for each in waits)
    world.runtime.settle()
    assert all(each.heard == [0] for each in waits)
    assert world.syncs == 1


def test_nothing_is_committed_while_fewer_are_in_sync_than_is_wanted(tmp_path: Path) -> None:
    """Also where nobody who is out might be elected, which alone would hold the high watermark back."""
    world = World(tmp_path, flush_mode="ack", min_insync_replicas=2)

    def is_led(partition_epoch: int, isr: list[int]) -> None:
        make_leader(
            world.partition,
            1,
            leader_epoch=5,
            partition_epoch=partition_epoch,
            replicas=[1, 2, 3],
            isr=isr,
            lag_max_s=30,
            is_eligible=lambda *_: True,
        )

    is_led(5, [1, 2])
    before, after = Waits(), Waits()
    world.partition.when_committed(world.append(b"a")[1], before)
    is_led(6, [1])
    assert before.heard == [ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND], "nobody knows when others are back"
    world.partition.when_committed(world.append(b"b")[1], after)
    world.runtime.settle()
    assert (world.partition.high_watermark, after.heard) == (0, []), "though all that are in sync have it on disk"
    world.partition.reconfigure(TopicConfig(flush_mode="ack", min_insync_replicas=1))
    is_led(7, [1])
    world.partition.recount()
    assert (world.partition.high_watermark, after.heard) == (2, [0])


def test_who_comes_during_a_sync_waits_for_the_next(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    first, second = Waits(), Waits()
    world.partition.when_committed(world.append(b"a")[1], first)
    world.runtime.turn()
    world.partition.when_committed(world.append(b"b")[1], second)
    world.runtime.finish_job()
    assert (first.heard, second.heard) == ([0], [])
    assert world.partition.high_watermark == 1
    world.runtime.settle()
    assert second.heard == [0]


@settings(max_examples=60, deadline=None, print_blob=True)
@given(steps=st.lists(st.sampled_from(["append", "turn", "job", "roll"]), max_size=60))
def test_with_ack_nothing_is_visible_that_is_not_flushed(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str]
) -> None:
    world = World(tmp_path_factory.mktemp("world"), flush_mode="ack")
    partition = world.partition
    seen = 0
    for step in steps:
        if step == "append":
            world.append(b"v", b"w")
        elif step == "turn":
            world.runtime.turn()
        elif step == "job" and world.runtime.jobs:
            world.runtime.finish_job()
        elif step == "roll" and partition.log.active.size_bytes:
            partition.log.roll(NOON_MS)
        assert seen <= partition.high_watermark <= partition.log.flushed_offset <= partition.log_end_offset
        seen = partition.high_watermark
        piece = partition.read(
            partition.log_start_offset, size_bytes_max=1 << 20, committed_only=False, at_least_one=True, may_block=True
        )
        if piece is not None:
            assert parse_header(piece.read()).last_offset < seen
            piece.release()
    world.runtime.settle()
    assert partition.high_watermark == partition.log_end_offset
    partition.log.close()


def test_a_restart_shows_only_what_is_known_to_be_flushed(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    world.append(b"a")
    world.runtime.settle()
    world.append(b"b")
    for segment in world.partition.log.segments:
        segment.close()
    again = open_log(tmp_path / "orders-0", recovery_point=1, flush_mode="ack")
    partition = Partition(
        "orders",
        0,
        uuid.UUID(int=1),
        log=again,
        producers=Producers(),
        flusher=world.flusher,
        config=TopicConfig(flush_mode="ack"),
        leader_epoch=5,
    )
    assert (partition.high_watermark, partition.log_end_offset) == (1, 2)
    world.flusher.flush(again)
    world.runtime.settle()
    assert partition.high_watermark == 2
    again.close()


def test_the_high_watermark_never_goes_back(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async")
    world.append(b"a", b"b")
    world.partition.advance(1)
    assert world.partition.high_watermark == 2


# Who waits


def test_listeners_hear_of_bytes_when_readers_may_see_them(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    reader = Waits()
    world.partition.advance_listeners[reader] = None
    size = len(batch_of([b"v"]))
    world.append(b"v")
    world.append(b"v")
    assert reader.heard == []
    world.runtime.settle()
    assert reader.heard == [2 * size]
    world.append(b"v")
    world.runtime.settle()
    assert reader.heard == [2 * size, size]


def test_a_failed_flush_tells_all_who_wait_and_ends_the_partition(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    producer, reader = Waits(), Waits()
    world.partition.advance_listeners[reader] = None
    world.partition.when_committed(world.append(b"a")[1], producer)
    world.disk.fail("datasync", errno.EIO, suffix=".log")
    world.runtime.settle()
    assert producer.heard == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert reader.heard == ["gone"]
    assert world.partition.high_watermark == 0
    with pytest.raises(DiskFailed):
        world.append(b"b")


def test_a_full_disk_refuses_the_batch_and_nothing_else(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    world.append(b"a", producer_id=7, producer_epoch=0, sequence=0)
    fault = world.disk.fail("write_at", errno.ENOSPC, suffix=".log", partial_bytes=30)
    with pytest.raises(DiskFailed):
        world.append(b"b", producer_id=7, producer_epoch=0, sequence=1)
    fault.repaired = True
    # The producer sends it again: not a duplicate, for it was never stored.
    assert world.append(b"b", producer_id=7, producer_epoch=0, sequence=1)[0] == 1
    world.runtime.settle()
    assert world.partition.high_watermark == 2


def test_internal_appends_are_told_once_they_are_safe(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    told: list[Exception | None] = []
    batch = encode_batch([Record(timestamp_ms=NOON_MS, key=b"k", value=b"v")])
    world.partition.append_internal(batch, told.append)
    assert told == []
    world.runtime.settle()
    assert told == [None]
    world.disk.fail("datasync", errno.EIO, suffix=".log")
    world.partition.append_internal(batch, told.append)
    world.runtime.settle()
    assert isinstance(told[1], RequestError)
    assert told[1].code == ErrorCode.KAFKA_STORAGE_ERROR


# Idempotence


def test_a_duplicate_is_told_where_it_is_and_stored_once(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async")
    first = world.append(b"a", b"b", producer_id=7, producer_epoch=0, sequence=0)
    world.append(b"c", producer_id=7, producer_epoch=0, sequence=2)
    assert world.append(b"a", b"b", producer_id=7, producer_epoch=0, sequence=0) == first
    assert world.partition.log_end_offset == 3
    with pytest.raises(OutOfOrderSequence):
        world.append(b"e", producer_id=7, producer_epoch=0, sequence=5)
    assert world.partition.log_end_offset == 3


def test_a_duplicate_of_what_is_not_flushed_waits_too(tmp_path: Path) -> None:
    """The first answer was lost with its connection; the second must not come before the record is safe."""
    world = World(tmp_path, flush_mode="ack")
    _, commits_at, _ = world.append(b"a", producer_id=7, producer_epoch=0, sequence=0)
    _, again_at, _ = world.append(b"a", producer_id=7, producer_epoch=0, sequence=0)
    assert again_at == commits_at
    assert world.partition.high_watermark < again_at


def test_a_producer_id_without_a_sequence_is_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    with pytest.raises(InvalidBatch):
        world.append(b"a", producer_id=7, producer_epoch=0, sequence=-1)


# What is refused


def refused(world: World, batch: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        world.partition.append(memoryview(bytearray(batch)), NOON_MS)
    assert world.partition.log_end_offset == 0
    assert world.partition.log.active.size_bytes == 0


def test_a_batch_is_as_large_as_the_topic_allows(tmp_path: Path) -> None:
    size = len(batch_of([b"v" * 500]))
    world = World(tmp_path, max_message_bytes=size)
    refused(world, batch_of([b"v" * 501]), BatchTooLarge)
    assert world.append(b"v" * 500)[0] == 0


def test_damaged_and_control_batches_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path)
    damaged = batch_of([b"v"])
    damaged[-1] ^= 1
    refused(world, damaged, CorruptBatch)
    refused(world, encode_batch([Record(timestamp_ms=NOON_MS, key=b"\0\0\0\1", value=b"")], control=True), InvalidBatch)


def test_times_outside_the_topics_limits_are_refused(tmp_path: Path) -> None:
    world = World(tmp_path, timestamp_before_max_ms=1000, timestamp_after_max_ms=100)
    for times in ([NOON_MS - 1001], [NOON_MS + 101], [NOON_MS, NOON_MS + 101], [NOON_MS - 1001, NOON_MS]):
        refused(world, batch_of([b"v"] * len(times), timestamps=times), InvalidTimestamp)
    for number, time_ms in enumerate((NOON_MS - 1000, NOON_MS + 100, -1)):
        assert world.append(b"v", timestamps=[time_ms])[0] == number


def test_append_time_is_the_brokers(tmp_path: Path) -> None:
    world = World(tmp_path, message_timestamp_type="LogAppendTime", flush_mode="async")
    base_offset, _, append_time_ms = world.append(b"a", b"b", timestamps=[5, 900])
    assert (base_offset, append_time_ms) == (0, NOON_MS)
    stored = read_bytes(world.partition.log, 0)
    check_batch(stored)
    assert [record.timestamp_ms for record in decode_batch(stored)] == [NOON_MS, NOON_MS]
    assert world.append(b"c", timestamps=[-1])[2] == NOON_MS


@pytest.mark.parametrize(
    ("epoch", "code"), [(-1, None), (4, None), (3, ErrorCode.FENCED_LEADER_EPOCH), (5, ErrorCode.UNKNOWN_LEADER_EPOCH)]
)
def test_leader_epochs_are_fenced(tmp_path: Path, epoch: int, code: ErrorCode | None) -> None:
    world = World(tmp_path)
    if code is None:
        world.partition.check_leader_epoch(epoch)
    else:
        with pytest.raises(RequestError) as caught:
            world.partition.check_leader_epoch(epoch)
        assert caught.value.code == code


# Looking up times


def look(ask: Callable[[Callable[[FoundTime | None, BaseException | None], object]], object], world: World) -> Any:
    answers: list[tuple[FoundTime | None, BaseException | None]] = []
    ask(lambda found, error: answers.append((found, error)))
    world.runtime.settle()
    assert len(answers) == 1
    found, error = answers[0]
    assert error is None
    return found and found.offset


@pytest.mark.parametrize("cold", [False, True])
def test_times_are_looked_up_below_the_high_watermark(tmp_path: Path, cold: bool) -> None:
    world = World(tmp_path, flush_mode="ack", segment_bytes=300)
    for number in range(8):
        world.append(b"v" * 50, timestamps=[NOON_MS + number])
    world.runtime.settle()
    world.append(b"later", timestamps=[NOON_MS + 100])
    if cold:
        world.disk.fail("read_at_nowait", errno.EAGAIN, suffix=".log")
    partition = world.partition

    def at(time_ms: int) -> Any:
        answers: list[Any] = []
        partition.offset_for_timestamp(time_ms, lambda found, error: answers.append((found, error)))
        while not answers:
            assert cold, "what is in the page cache is answered at once"
            world.runtime.jobs.pop()()
            world.runtime.ready.pop()()
        ((found, error),) = answers
        assert error is None
        return found and found.offset

    assert [at(NOON_MS + number) for number in (-5, 0, 5, 7)] == [0, 0, 5, 7]
    assert at(NOON_MS + 50) is None, "the record is there, but not committed"
    world.runtime.settle()
    assert at(NOON_MS + 50) == 8
    assert all(segment.references == 0 for segment in partition.log.segments)


def test_the_latest_time(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async")
    assert look(world.partition.max_timestamp_offset, world) is None
    for time_ms in (5, 9, 9, 3):
        world.append(b"v", timestamps=[time_ms])
    assert look(world.partition.max_timestamp_offset, world) == 1


def test_reads_end_at_the_high_watermark(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    world.append(b"a")
    how = {"size_bytes_max": 1000, "committed_only": False, "at_least_one": True, "may_block": True}
    assert world.partition.read(0, **how) is None
    assert world.partition.read(1, **how) is None, "the log's end is no error, for a reader may be ahead of the commit"
    with pytest.raises(OffsetOutOfRange):
        world.partition.read(2, **how)
    world.runtime.settle()
    piece = world.partition.read(0, **how)
    assert piece is not None
    piece.release()


def test_a_retry_on_a_failed_log_is_told_at_once(tmp_path: Path) -> None:
    """It would otherwise wait for a high watermark that can no longer move."""
    world = World(tmp_path, flush_mode="ack")
    producer = {"producer_id": 7, "producer_epoch": 0, "sequence": 0}
    world.append(b"paid", **producer)
    world.partition.log.fail(DiskFailed("gone"))
    with pytest.raises(DiskFailed):
        world.append(b"paid", **producer)


def test_what_follows_a_batch_that_was_turned_away_is_turned_away_with_it(tmp_path: Path) -> None:
    """Between the first and the second of two requests in flight this node became the leader. A sequence error for the
    second would make librdkafka begin an epoch anew, for all its partitions."""
    world = World(tmp_path)
    first, second, third = (
        batch_of([b"v"], producer_id=7, producer_epoch=0, sequence=sequence) for sequence in range(3)
    )
    world.partition.append(memoryview(first), NOON_MS)
    world.partition.note_refused(memoryview(second), NOON_MS, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    with pytest.raises(BehindRefused) as caught:
        world.partition.append(memoryview(third), NOON_MS)
    assert caught.value.code is ErrorCode.NOT_ENOUGH_REPLICAS
    assert world.partition.append(memoryview(second), NOON_MS)[0] == 1
    assert world.partition.append(memoryview(third), NOON_MS)[0] == 2
    with pytest.raises(OutOfOrderSequence):
        world.partition.append(memoryview(batch_of([b"v"], producer_id=7, producer_epoch=0, sequence=9)), NOON_MS)


def numbered(sequence: int) -> bytearray:
    """A batch of a producer that the partition does not know."""
    return batch_of([b"v"], producer_id=7, producer_epoch=1, sequence=sequence)


def offset_of(world: World, batch: bytearray) -> int | None:
    """Produce as the handler does: the offset, or None if the batch was refused and may come again."""
    try:
        return world.partition.append(memoryview(batch), NOON_MS)[0]
    except (BehindRefused, CorruptBatch) as error:
        world.partition.note_refused(memoryview(batch), NOON_MS, error_code(error))
        return None


@pytest.mark.parametrize("code", [ErrorCode.CORRUPT_MESSAGE, ErrorCode.NOT_LEADER_OR_FOLLOWER])
def test_the_header_of_a_corrupt_batch_is_not_believed(tmp_path: Path, code: ErrorCode) -> None:
    """A bit of its epoch flipped on the way. Whether the checksum was looked at or not: the producer is not held to an
    epoch that it never had."""
    world = World(tmp_path)
    corrupt = numbered(457)
    corrupt[EPOCH_AT] ^= 0x20
    world.partition.note_refused(memoryview(corrupt), NOON_MS, code)
    assert [offset_of(world, numbered(457)) for _ in range(2)] == [None, 0]


def test_nothing_overtakes_a_corrupt_batch_that_was_taken_for_the_one_behind_it(tmp_path: Path) -> None:
    """Batch 456 came as 457, with a wrong checksum, and 457 was in flight behind it; twice."""
    world = World(tmp_path)
    corrupt = numbered(456)
    corrupt[SEQUENCE_AT + 3] ^= 1
    for _ in range(2):
        assert offset_of(world, corrupt) is None
        assert offset_of(world, numbered(457)) is None
    sent = [offset_of(world, numbered(sequence)) for _ in range(2) for sequence in (456, 457)]
    assert sent == [None, None, 0, 1]
