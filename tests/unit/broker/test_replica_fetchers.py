"""What a follower asks its leader for acknowledges all before it, so with `flush.mode=ack` it is on disk by then.

A follower with a log on a disk, a flush that ends when the test says so, and a leader that answers what the test wants:
records, errors, a divergence, silence. Whatever happens in whichever order, no request names an offset that is not
flushed.
"""

from __future__ import annotations

import errno
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS, batch_of, open_log
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.replicas import leader_fetcher
from strandline.broker.replicas.leader_fetcher import FETCH_VERSION
from strandline.broker.replicas.replica_fetchers import ReplicaFetchers
from strandline.codec.current_leader import NO_TAGS, diverging_section, horizon_section
from strandline.codec.fetch import BEGINS_AGAIN, PartitionData, PartitionFetch, encode_fetch_response, parse_fetch
from strandline.codec.record_batch import LEADER_FIELDS, PREFIX_SIZE
from strandline.config.node_config import BrokerConfig
from strandline.config.topic_config import TopicConfig
from strandline.errors import Disconnected, DiskFailed, ErrorCode
from strandline.log.flusher import Flusher
from strandline.log.truncation import truncate_to
from strandline.partition.following import learn_high_watermark, make_follower
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers

TOPIC_ID = uuid.UUID(int=1)
LEADER = 1


class Run(bytes):
    """Batches as a leader sends them."""

    @property
    def size_bytes(self) -> int:
        return len(self)


class Leader:
    """The connection to it: what it was asked, and what it answers."""

    address = ("leader", 9092)

    def __init__(self, world: World) -> None:
        self.world = world
        self.waiting: list[Any] = []
        self.asked: list[PartitionFetch] = []

    def ask_raw(self, api_key: int, version: int, body: list[bytes], on_answer: Any, *, timeout_s: float) -> None:
        request = parse_fetch(memoryview(b"".join(body)), 0, version)
        self.asked += request.partitions
        for each in request.partitions:
            flushed = self.world.partition.log.flushed_offset
            assert each.fetch_offset <= flushed, f"{each.fetch_offset} is acknowledged, and {flushed} is flushed"
        self.waiting.append(on_answer)

    def answer(
        self, records: bytes = b"", *, code: int = 0, start: int = 0, tags: bytes = NO_TAGS, error_code: int = 0
    ) -> None:
        log = self.world.partition.log
        data = PartitionData(
            TOPIC_ID.bytes, 0, code, log.log_end_offset, -1, start, Run(records) if records else None, tags
        )
        pieces, _ = encode_fetch_response(
            [] if error_code else [data], FETCH_VERSION, session_id=9, error_code=error_code
        )
        self.waiting.pop()(memoryview(b"".join(pieces)), None)

    def lose(self) -> None:
        self.waiting.pop()(None, Disconnected("the connection is lost"))

    def close(self) -> None:
        self.waiting.clear()


class World:
    def __init__(self, path: Path, **settings: Any) -> None:
        self.runtime = ManualRuntime()
        self.disk = FaultyDisk()
        config = {"flush_mode": "ack", "segment_bytes": 300, **settings}
        producers = Producers()
        log = open_log(path / "orders-0", disk=self.disk, observer=producers, **config)
        self.partition = Partition(
            "orders",
            0,
            TOPIC_ID,
            log=log,
            producers=producers,
            flusher=Flusher(self.runtime),
            config=TopicConfig(**config),
            leader_epoch=0,
            is_only_copy=False,
        )
        self.leader = Leader(self)
        self.write_error: BaseException | None = None
        self.starts_written: list[Any] = []
        """Who is to be told that log start offsets are on disk."""
        self.may_leave = True
        connect: Any = lambda host, port: self.leader  # noqa: E731
        self.fetchers = ReplicaFetchers(
            self.runtime,
            BrokerConfig.load("", {}),
            node_id=2,
            broker_epoch=lambda: 7,
            address_of=lambda _: self.leader.address,
            connect=connect,
            write_recovery_points=lambda done: done(self.write_error),
            write_start_offsets=self.starts_written.append,
            may_leave=lambda _: self.may_leave,
        )
        self.epoch = 0
        self.begin_epoch()
        self.turn()

    def begin_epoch(self) -> None:
        self.epoch += 1
        make_follower(self.partition, LEADER, leader_epoch=self.epoch, partition_epoch=self.epoch)
        self.fetchers.follow(self.partition)

    def turn(self) -> None:
        """Do all that is ready; flushes, which are in threads, do not end."""
        while self.runtime.ready:
            self.runtime.turn()

    def let_time_pass(self) -> None:
        self.runtime.now += 60
        timers, self.runtime.timers = self.runtime.timers, []
        for each in timers:
            if not each.cancelled:
                each.callback()
        self.turn()

    def flush(self) -> None:
        while self.runtime.jobs:
            self.runtime.jobs.popleft()()
            self.turn()

    def records(self, count: int = 1) -> bytes:
        """The next batches, each of one record."""
        run = bytearray()
        for offset in range(self.partition.log_end_offset, self.partition.log_end_offset + count):
            batch = batch_of([b"%d" % offset + b"." * 60], timestamps=[NOON_MS])
            LEADER_FIELDS.pack_into(batch, 0, offset, len(batch) - PREFIX_SIZE, self.epoch)
            run += batch
        return bytes(run)


def test_the_next_fetch_waits_for_the_flush(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.leader.answer(world.records(2))
    world.turn()
    world.let_time_pass()
    assert [each.fetch_offset for each in world.leader.asked] == [0]
    world.flush()
    assert [each.fetch_offset for each in world.leader.asked] == [0, 2]


def test_a_retry_waits_for_the_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The records were appended; what came with them failed, and the partition is asked for again later."""
    world = World(tmp_path)

    def fail(*_: object) -> None:
        raise DiskFailed("no space is left")

    with monkeypatch.context() as failing:
        failing.setattr(leader_fetcher, "learn_high_watermark", fail)
        world.leader.answer(world.records(2))
    world.turn()
    world.let_time_pass()
    assert [each.fetch_offset for each in world.leader.asked] == [0]
    world.flush()
    assert [each.fetch_offset for each in world.leader.asked] == [0, 2]


def test_what_is_left_of_a_log_that_is_cut_is_flushed_before_it_is_acknowledged(tmp_path: Path) -> None:
    world = World(tmp_path)
    for _ in range(4):
        world.leader.answer(world.records(2))
        world.turn()
        world.flush()
    asked = len(world.leader.asked)
    world.leader.answer(tags=diverging_section(1, 3))
    world.turn()
    world.let_time_pass()
    assert world.partition.log_end_offset == 3
    world.flush()
    world.let_time_pass()
    world.flush()
    assert [each.fetch_offset for each in world.leader.asked[asked:]] == [3]


@pytest.mark.parametrize(("leaders_start", "left"), [(4, range(4, 4)), (5, range(5, 5)), (3, range(4))])
def test_what_parts_below_the_leaders_start_is_not_kept(tmp_path: Path, leaders_start: int, left: range) -> None:
    """The leader knows no epoch that ended below its start, so it names the start as the end of ours; records that it
    deleted there may have been others."""
    world = World(tmp_path)
    world.leader.answer(world.records(8))
    world.turn()
    world.flush()
    world.leader.answer(start=leaders_start, tags=diverging_section(1, 4))
    world.turn()
    assert range(world.partition.log_start_offset, world.partition.log_end_offset) == left


def test_a_log_is_given_up_when_the_leader_permits_it(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.leader.answer(world.records(2))
    world.turn()
    world.flush()
    assert world.fetchers.copy_again(world.partition)
    world.leader.answer()
    world.turn()
    assert world.leader.asked[-1].fetch_offset == BEGINS_AGAIN
    world.leader.answer(code=ErrorCode.REPLICA_NOT_AVAILABLE)
    world.let_time_pass()
    assert (world.leader.asked[-1].fetch_offset, world.partition.log_end_offset) == (BEGINS_AGAIN, 2)
    world.leader.answer(code=ErrorCode.OFFSET_OUT_OF_RANGE, tags=horizon_section(30))
    world.turn()
    assert (world.leader.asked[-1].fetch_offset, world.partition.log_end_offset) == (0, 0)
    assert world.partition.log.tombstone_horizon == 30


@pytest.mark.parametrize("records", [0, 4])
def test_a_replica_that_found_no_room_to_begin_anew_does_so_when_there_is_some(tmp_path: Path, records: int) -> None:
    """It has nothing to lose, and no restart would tell it more."""
    world = World(tmp_path)
    world.leader.answer(world.records(records))
    world.turn()
    world.flush()
    full = world.disk.fail("*", errno.ENOSPC)
    world.leader.answer(code=ErrorCode.OFFSET_OUT_OF_RANGE, start=900)
    world.turn()
    assert full.hits
    assert (world.partition.log.failure, world.partition.log_end_offset) == (None, records)
    full.repaired = True
    world.let_time_pass()
    world.flush()
    assert world.leader.asked[-1].fetch_offset == records
    world.leader.answer(code=ErrorCode.OFFSET_OUT_OF_RANGE, start=900)
    world.turn()
    assert world.leader.asked[-1].fetch_offset == world.partition.log_end_offset == 900


def test_a_log_is_not_given_up_while_others_are_missed(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.leader.answer(world.records(2))
    world.turn()
    world.flush()
    assert world.fetchers.copy_again(world.partition)
    world.leader.answer()
    world.turn()
    world.may_leave = False
    world.leader.answer(code=ErrorCode.REPLICA_NOT_AVAILABLE)
    world.let_time_pass()
    assert (world.leader.asked[-1].fetch_offset, world.partition.log_end_offset) == (2, 2)
    assert not world.fetchers.copy_again(world.partition)


def test_a_horizon_is_on_disk_before_records_are_appended(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.write_error = OSError("no space is left")
    world.leader.answer(world.records(2), tags=horizon_section(50))
    world.turn()
    assert (world.partition.log_end_offset, world.partition.log.tombstone_horizon) == (0, 0)
    world.write_error = None
    world.let_time_pass()
    world.leader.answer(world.records(2), tags=horizon_section(50))
    world.turn()
    assert (world.partition.log_end_offset, world.partition.log.tombstone_horizon) == (0, 50)
    world.leader.answer(world.records(2), tags=horizon_section(50))
    world.flush()
    assert world.partition.log_end_offset == 2


@pytest.fixture
def told_to_start_at_2(tmp_path: Path) -> World:
    """Of four records the leader has deleted two."""
    world = World(tmp_path)
    world.leader.answer(world.records(4))
    world.turn()
    world.flush()
    world.leader.answer(start=2)
    world.turn()
    return world


def test_a_start_is_on_disk_before_the_log_starts_there_and_the_leader_is_told(told_to_start_at_2: World) -> None:
    world, log = told_to_start_at_2, told_to_start_at_2.partition.log
    assert (log.log_start_offset, log.planned_start_offset, world.leader.waiting) == (0, 2, [])
    world.starts_written.pop()(None)
    world.turn()
    assert (log.log_start_offset, log.planned_start_offset) == (2, 0)
    assert [each.log_start_offset for each in world.leader.asked] == [0, 0, 2]


def test_a_start_that_cannot_be_written_is_followed_later(told_to_start_at_2: World) -> None:
    world, log = told_to_start_at_2, told_to_start_at_2.partition.log
    world.starts_written.pop()(OSError("no space is left"))
    world.turn()
    assert (log.log_start_offset, log.planned_start_offset) == (0, 0)
    world.let_time_pass()
    assert [each.log_start_offset for each in world.leader.asked] == [0, 0, 0]
    world.leader.answer(start=2)
    world.turn()
    world.starts_written.pop()(None)
    assert log.log_start_offset == 2


@pytest.mark.parametrize("change", ["epoch", "unfollowed", "cut"])
def test_a_start_that_was_overtaken_while_it_was_written(told_to_start_at_2: World, change: str) -> None:
    world, log = told_to_start_at_2, told_to_start_at_2.partition.log
    if change == "epoch":
        world.begin_epoch()
    elif change == "unfollowed":
        world.fetchers.unfollow(world.partition)
    else:
        truncate_to(log, 1)
    world.starts_written.pop()(None)
    world.turn()
    assert log.log_start_offset == (2 if change == "epoch" else 0)
    assert log.planned_start_offset == 0
    world.flush()
    assert len(world.leader.waiting) == (change != "unfollowed")


@pytest.mark.parametrize("seed", range(30))
def test_nothing_is_acknowledged_that_is_not_flushed(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    rng = random.Random(seed)
    fails = False

    def learn(partition: Partition, high_watermark: int) -> None:
        learn_high_watermark(partition, high_watermark)
        if fails:
            raise DiskFailed("no space is left")

    monkeypatch.setattr(leader_fetcher, "learn_high_watermark", learn)
    for _ in range(150):
        fails = rng.random() < 0.2
        world.write_error = OSError("no space is left") if rng.random() < 0.1 else None
        event = rng.choice(
            ["records", "records", "cut", "error", "session", "lost", "epoch", "time", "flush", "horizon", "start"]
        )
        if world.starts_written and rng.random() < 0.5:
            world.starts_written.pop(0)(world.write_error)
            world.turn()
        if event == "time":
            world.let_time_pass()
        elif event == "flush":
            world.flush()
        elif event == "epoch":
            world.begin_epoch()
        elif world.leader.waiting:
            if event == "records":
                world.leader.answer(world.records(rng.randrange(4)))
            elif event == "cut":
                tags = diverging_section(world.epoch, rng.randrange(world.partition.log_end_offset + 1))
                world.leader.answer(tags=tags)
            elif event == "error":
                world.leader.answer(code=ErrorCode.UNKNOWN_LEADER_EPOCH)
            elif event == "session":
                world.leader.answer(error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            elif event == "lost":
                world.leader.lose()
            elif event == "start":
                partition = world.partition
                start = rng.randint(
                    partition.log_start_offset, max(partition.log_start_offset, partition.high_watermark)
                )
                world.leader.answer(world.records(rng.randrange(2)), start=start)
            else:
                horizon = rng.randrange(1000)
                tags = horizon_section(horizon)
                if rng.random() < 0.3:
                    world.leader.answer(code=ErrorCode.OFFSET_OUT_OF_RANGE, tags=tags)
                else:
                    world.leader.answer(world.records(2), tags=tags)
        world.turn()
    # It goes on by itself.
    asked = len(world.leader.asked)
    fails, world.write_error = False, None
    for _ in range(4):
        world.flush()
        world.let_time_pass()
        world.flush()
        while world.starts_written:
            world.starts_written.pop()(None)
        if world.leader.waiting:
            world.leader.answer(world.records(1))
        world.turn()
    assert len(world.leader.asked) > asked
