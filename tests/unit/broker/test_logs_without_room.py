"""A log that finds no room when it is opened is opened by the node itself as soon as the disk has room again."""

from __future__ import annotations

import errno
import uuid
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.test_replicas import World
from tests.unit.log.engine import NOON_MS, batch_of
from tests.unit.log.faulty_disk import Fault

from strandline.broker.replicas.directory_health import PROBE_NAME, PROBE_S, PROBE_S_MAX
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.errors import DiskFull
from strandline.ids import TopicPartition
from strandline.log.partition_log import PartitionLog
from strandline.partition.partition import Partition

RECORDS = 3
LOGS = 4
WRITES = ("write_at", "write_whole")


class Restarted(World):
    """A node that was killed, and finds its disk full when it starts again."""

    def __init__(self, path: Path) -> None:
        before = World(path)
        before.create("orders", LOGS)
        for each in before.replicas.all():
            each.append(memoryview(batch_of([b"v"] * RECORDS)), NOON_MS)
        before.runtime.settle()
        before.directory.write_checkpoints(
            {TopicPartition("orders", each.index): (each.log, each.high_watermark) for each in before.replicas.all()}
        )
        for each in before.replicas.all():
            each.log.close()
        before.directory.close(clean=False)
        super().__init__(path)
        self.topic_id = before.image.topics["orders"].id
        self.led: list[int] = []
        self.replicas.on_led = lambda partition: self.led.append(partition.index)
        self.faults: list[Fault] = []

    def fill(self, *, suffix: str = "") -> None:
        self.faults += [self.disk.fail(operation, errno.ENOSPC, suffix=suffix) for operation in WRITES]

    def free(self) -> None:
        for fault in self.faults:
            fault.repaired = True

    def start(self, *, leader: int = 1, replicas: tuple[int, ...] = (1,)) -> None:
        self.apply(
            TopicRecord(name="orders", topic_id=self.topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=self.topic_id,
                    replicas=list(replicas),
                    isr=[leader],
                    leader=leader,
                    leader_epoch=1,
                    directories=[uuid.UUID(int=5)] * len(replicas),
                )
                for index in range(LOGS)
            ),
        )

    def wait(self, seconds: float) -> None:
        self.pass_time(seconds)
        self.runtime.settle()

    @property
    def open_logs(self) -> list[Partition]:
        return list(self.replicas.all())

    @property
    def put_aside(self) -> list[str]:
        return [each.name for each in self.directory.path.iterdir() if each.name.endswith("-stray")]


@pytest.fixture
def world(tmp_path: Path) -> Restarted:
    return Restarted(tmp_path / "data")


def test_logs_are_opened_and_led_when_there_is_room_again(world: Restarted) -> None:
    world.fill()
    world.start()
    assert [type(failure) for failure in world.replicas.offline.values()] == [DiskFull] * LOGS
    assert world.replicas.health.is_offline, "the controller has others lead what is here"
    world.wait(PROBE_S)
    assert not world.open_logs
    world.free()
    world.wait(PROBE_S)
    assert [each.log_end_offset for each in world.open_logs] == [RECORDS] * LOGS
    assert world.led == list(range(LOGS))
    assert not world.replicas.offline
    assert not world.replicas.health.is_offline
    assert not world.put_aside


def test_a_log_follows_the_leader_that_the_metadata_names_by_then(world: Restarted) -> None:
    world.fill()
    world.start(replicas=(1, 2))
    for index in range(LOGS):
        world.apply(PartitionChangeRecord(partition_id=index, topic_id=world.topic_id, leader=2, isr=[2]))
    world.free()
    world.wait(PROBE_S)
    assert [(each.leader_id, each.log_end_offset) for each in world.open_logs] == [(2, RECORDS)] * LOGS
    assert not world.led
    assert not world.put_aside


def test_on_a_disk_that_stays_full_nothing_but_the_probe_is_tried(world: Restarted) -> None:
    world.fill()
    world.start()
    opened = world.disk.calls["open"]
    for _ in range(10):
        world.wait(PROBE_S)
    assert world.disk.calls["open"] == opened
    assert len(world.runtime.timers) == 1


def test_after_one_that_still_finds_no_room_the_others_wait_each_time_longer(
    world: Restarted, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is room for the probe, and for no log."""
    world.fill(suffix="index")
    world.start()
    tried: list[str] = []
    open_log = world.directory.open_log

    def note(name: TopicPartition, *args: Any, **options: Any) -> PartitionLog:
        tried.append(str(name))
        return open_log(name, *args, **options)

    monkeypatch.setattr(world.directory, "open_log", note)
    pauses = []
    for _ in range(LOGS + 1):
        (timer,) = world.runtime.timers
        pauses.append(timer.due - world.runtime.now)
        world.wait(pauses[-1])
    assert pauses == [PROBE_S, 2 * PROBE_S, 4 * PROBE_S, PROBE_S_MAX, PROBE_S_MAX]
    assert tried == [f"orders-{index % LOGS}" for index in range(LOGS + 1)], "none is in the way of the others"
    world.free()
    world.wait(PROBE_S_MAX)
    assert len(world.open_logs) == LOGS


def test_files_of_a_log_that_is_tried_again_and_again_do_not_add_up(world: Restarted) -> None:
    world.fill(suffix="index")
    world.start()
    world.wait(PROBE_S)
    held, counted = world.disk.open_now, world.replicas._logs.producer_limit.count
    for _ in range(10):
        world.wait(PROBE_S_MAX)
    assert (world.disk.open_now, world.replicas._logs.producer_limit.count) == (held, counted)


def test_a_partition_that_was_deleted_or_moved_meanwhile_is_not_opened(world: Restarted) -> None:
    world.fill()
    world.start()
    world.apply(PartitionChangeRecord(partition_id=0, topic_id=world.topic_id, replicas=[2], isr=[2], leader=2))
    assert TopicPartition("orders", 0) not in world.replicas.offline
    world.free()
    world.wait(PROBE_S)
    assert world.led == [1, 2, 3]
    world.fill()
    world.replicas.health.on_full("no room")
    world.apply(RemoveTopicRecord(topic_id=world.topic_id))
    world.free()
    world.wait(PROBE_S)
    assert not world.directory.partition_directories()


def test_a_node_that_stops_opens_nothing_more(world: Restarted) -> None:
    world.fill()
    world.start()
    world.free()
    world.pass_time(PROBE_S)
    world.replicas.close()
    world.runtime.settle()
    assert not world.open_logs
    assert not world.directory.disk.exists(world.directory.path / PROBE_NAME)


def test_what_the_checkpoints_know_is_kept_until_the_log_is_open(world: Restarted) -> None:
    """Without the recovery point, damage to what was flushed would pass for a torn tail, and be cut."""
    path = next((world.directory.path / "orders-0").glob("*.log"))
    content = bytearray(path.read_bytes())
    content[70] ^= 1
    world.fill(suffix="index")
    world.start()
    world.free()
    world.directory.write_checkpoints({}, world.replicas.offline)
    path.write_bytes(content)
    world.wait(PROBE_S)
    assert [str(name) for name in world.replicas.offline] == ["orders-0"]
    assert path.read_bytes() == bytes(content)
    assert [each.high_watermark for each in world.open_logs] == [RECORDS] * (LOGS - 1)


def test_a_log_whose_sync_failed_stays_offline(world: Restarted) -> None:
    """The kernel may have dropped what it could not write: a second sync would succeed without it."""
    world.disk.fail("datasync", errno.ENOSPC, times=1)
    world.start()
    world.replicas.health.on_full("no room")
    world.wait(PROBE_S)
    assert [str(name) for name in world.replicas.offline] == ["orders-0"]
