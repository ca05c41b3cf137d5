"""Partitions come and go as the metadata says, one bad log is one offline partition, and `flush.ms` is honoured."""

from __future__ import annotations

import errno
import gc
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS, batch_of
from tests.unit.log.faulty_disk import FaultyDisk
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.environment import Environment
from strandline.broker.kraft.directory_assignments import RETRY_S
from strandline.broker.lazy import Lazy
from strandline.broker.main import spare_the_collector
from strandline.broker.maintenance.storage_worker import storage_workers
from strandline.broker.replicas.replicas import OPENED_REST, OPENED_STEP, Replicas
from strandline.codec.messages.assign_replicas_to_dirs_response import AssignReplicasToDirsResponse
from strandline.codec.messages.assign_replicas_to_dirs_response import DirectoryData as DirectoryAnswered
from strandline.codec.messages.assign_replicas_to_dirs_response import PartitionData as PartitionAnswered
from strandline.codec.messages.assign_replicas_to_dirs_response import TopicData as TopicAnswered
from strandline.codec.messages.clear_elr_record import ClearElrRecord
from strandline.codec.messages.config_record import ConfigRecord
from strandline.codec.messages.partition_change_record import PartitionChangeRecord
from strandline.codec.messages.partition_record import PartitionRecord
from strandline.codec.messages.remove_topic_record import RemoveTopicRecord
from strandline.codec.messages.topic_record import TopicRecord
from strandline.config.node_config import BrokerConfig
from strandline.errors import CorruptLog, ErrorCode
from strandline.ids import TopicPartition
from strandline.log.disk import Disk
from strandline.log.flusher import Flusher
from strandline.log.log_directory import PARTITION_METADATA, LogDirectory
from strandline.log.partition_log import PartitionLog
from strandline.log.segment.segment import Segment
from strandline.log.truncation import restart_at
from strandline.partition.partition import Partition
from strandline.partition.reencoding import Reencoder
from strandline.quorum.image.cluster_image import ClusterImage
from strandline.quorum.raft.state_files import uuid_text

TOPIC_RESOURCE = 2


class World:
    """What replicas ask of a node, without its sockets, groups and controller."""

    def __init__(self, path: Path, *, disk: Disk | None = None, runtime: ManualRuntime | None = None) -> None:
        self.disk: Any = disk or FaultyDisk()
        self.runtime = runtime or ManualRuntime()
        self.flusher = Flusher(self.runtime)
        self.image = ClusterImage()
        self.directory = LogDirectory(path, disk=self.disk, open_files_max=100)
        self.forgotten: list[tuple[str, uuid.UUID]] = []
        self.asked: list[tuple[Any, Any]] = []
        """Requests to the controller, each with what takes its answer."""
        config = BrokerConfig.load("", {})
        network: Any = None
        self.environment = Environment(
            self.runtime, network, self.disk, 1, "cluster", lambda: config, lambda: self.image
        )
        self.metadata: Any = SimpleNamespace(removed_topic_ids=set(), forget_removed=lambda: None)
        dynamic_config: Any = SimpleNamespace(apply=lambda: None)
        controller: Any = SimpleNamespace(ask=self.ask)
        self.replicas = Replicas(
            self.environment,
            self.directory,
            directory_id=uuid.UUID(int=5),
            flusher=self.flusher,
            reencoder=Reencoder(self.runtime),
            metadata=self.metadata,
            dynamic_config=dynamic_config,
            controller=controller,
            broker_epoch=lambda: 0,
            workers=Lazy(lambda: storage_workers(self.runtime, self.disk)),
        )
        self.replicas.on_topic_deleted = lambda *topic: self.forgotten.append(topic)
        self.changed: list[tuple[str, ...]] = []
        self.replicas.on_topics_changed = self.changed.append
        self.offset = 0

    def ask(self, request: Any, version: int, on_answer: Any, *, timeout_s: float) -> None:
        self.asked.append((request, on_answer))

    def pass_time(self, seconds: float) -> None:
        self.runtime.now += seconds
        due = [timer for timer in self.runtime.timers if timer.due <= self.runtime.now]
        self.runtime.timers = [timer for timer in self.runtime.timers if timer not in due]
        for timer in due:
            timer.callback()

    def apply(self, *records: Any) -> None:
        for record in records:
            self.image.apply(record, self.offset)
            self.offset += 1
        done: list[bool] = []
        self.replicas.on_metadata(list(records), lambda: done.append(True))
        assert done == [True], "told when all of it is done"

    def create(self, name: str, partitions: int, **settings: str) -> uuid.UUID:
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{name}{self.offset}")
        configs = [
            ConfigRecord(resource_type=TOPIC_RESOURCE, resource_name=name, name=setting.replace("_", "."), value=value)
            for setting, value in settings.items()
        ]
        self.apply(
            TopicRecord(name=name, topic_id=topic_id),
            *configs,
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=[1],
                    isr=[1],
                    leader=1,
                    leader_epoch=0,
                    partition_epoch=0,
                    directories=[uuid.UUID(int=5)],
                )
                for index in range(partitions)
            ),
        )
        return topic_id

    def restart_with(self, name: str, partitions: int) -> uuid.UUID:
        """Start with a topic in the image whose leader is another node."""
        topic_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"another {name}")
        self.image.apply(TopicRecord(name=name, topic_id=topic_id))
        for index in range(partitions):
            self.image.apply(PartitionRecord(partition_id=index, topic_id=topic_id, replicas=[2, 1], isr=[2], leader=2))
        done: list[bool] = []
        self.replicas.open_all(lambda: done.append(True), at_once=False)
        assert done == [True]
        return topic_id

    def partition(self, name: str, index: int = 0) -> Partition:
        partition = self.replicas.topics[name][index]
        assert partition is not None
        return partition


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path / "data")
    yield world
    # Some tests open hundreds of logs, and their descriptors would stay until the collector comes.
    for each in world.replicas.all():
        for segment in each.log.segments:
            segment.abandon()


def test_flush_ms_flushes_what_waits_that_long(world: World) -> None:
    world.create("orders", 1, flush_mode="async", flush_ms="5000")
    partition = world.partition("orders")
    began = world.runtime.monotonic()

    def tick(after_s: float) -> int:
        world.replicas.timed_flushes.flush_due(began + after_s)
        world.runtime.settle()
        return partition.log.flushed_offset

    partition.append(memoryview(batch_of([b"v"])), NOON_MS)
    assert partition.high_watermark == 1, "nobody waits for it"
    assert [tick(1), tick(4.9), tick(5)] == [0, 0, 1]
    partition.append(memoryview(batch_of([b"v"])), NOON_MS)
    assert [tick(6), tick(9.9), tick(10)] == [1, 1, 2]
    syncs = world.disk.calls["datasync"]
    assert tick(60) == 2
    assert world.disk.calls["datasync"] == syncs, "nothing new, nothing to flush"


def test_without_flush_ms_only_the_kernel_decides(world: World) -> None:
    world.create("orders", 1, flush_mode="async")
    partition = world.partition("orders")
    partition.append(memoryview(batch_of([b"v"])), NOON_MS)
    world.replicas.timed_flushes.flush_due(world.runtime.monotonic() + 10**9)
    world.runtime.settle()
    assert partition.log.flushed_offset == 0


def test_a_topic_of_one_replica_flushes_before_it_answers(world: World) -> None:
    world.create("orders", 1)
    assert world.partition("orders").flush_before_ack, "flush.mode=auto with a single copy"


def test_partitions_are_found_by_name_and_by_id(world: World) -> None:
    topic_id = world.create("orders", 3)
    assert world.replicas.topics["orders"] is world.replicas.topics[topic_id.bytes]
    assert [each.index for each in world.replicas.all()] == [0, 1, 2]
    assert world.directory.topic_id_of(TopicPartition("orders", 2)) is not None


def test_a_deleted_topic_is_gone_at_once_and_its_files_soon(world: World) -> None:
    topic_id = world.create("orders", 2, file_delete_delay_ms="0")
    told: list[int] = []
    listener = SimpleNamespace(on_commit=told.append)
    partition = world.partition("orders")
    _, commits_at, _ = partition.append(memoryview(batch_of([b"v"])), NOON_MS)
    partition.when_committed(commits_at, listener)
    world.apply(RemoveTopicRecord(topic_id=topic_id))
    assert told == [3], "UNKNOWN_TOPIC_OR_PARTITION, and not silence"
    assert world.replicas.topics == {}
    assert world.forgotten == [("orders", topic_id)]
    assert world.directory.partition_directories() == []
    world.runtime.settle()
    assert [path.name for path in world.directory.path.iterdir() if path.is_dir()] == []
    # A new topic of that name begins at 0.
    world.create("orders", 1)
    assert world.partition("orders").log_end_offset == 0
    world.runtime.settle()


def test_a_deleted_topic_leaves_nothing_to_the_garbage_collector(world: World) -> None:
    """It would come one day for the garbage of thousands of topics, and keep the loop for a quarter of a second."""
    topic_id = world.create("orders", 3)
    world.partition("orders").append(memoryview(batch_of([b"v"])), NOON_MS)
    world.runtime.settle()
    gc.collect()
    gc.disable()
    try:
        world.apply(RemoveTopicRecord(topic_id=topic_id))
        world.runtime.settle()
        left = [each for each in gc.get_objects() if isinstance(each, Partition | PartitionLog | Segment)]
    finally:
        gc.enable()
    assert not [each for each in left if "orders" in repr(each)]


def test_many_new_partitions_are_announced_in_steps(world: World) -> None:
    opened: list[int] = []
    world.replicas.on_many_opened = lambda: opened.append(len(list(world.replicas.all())))
    world.create("small", 3)
    assert not opened
    world.create("large", OPENED_STEP + OPENED_REST)
    assert opened == [OPENED_STEP, 3 + OPENED_STEP + OPENED_REST]


@pytest.mark.slow
def test_the_collector_passes_over_partitions_that_were_made_after_the_start(world: World) -> None:
    """It would walk all of them again and again, and keep the loop for tenths of a second each time."""
    thresholds = gc.get_threshold()

    def walked_for(name: str) -> int:
        gc.collect()
        before = len(gc.get_objects())
        world.create(name, OPENED_STEP)
        return len(gc.get_objects()) - before

    try:
        control = walked_for("control")
        assert control > OPENED_STEP
        world.replicas.on_many_opened = spare_the_collector
        frozen = gc.get_freeze_count()
        assert walked_for("orders") < control / 10
        assert gc.get_freeze_count() > frozen + control / 2
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def test_one_bad_log_is_one_offline_partition(world: World) -> None:
    world.create("orders", 3)
    for index in range(3):
        for _ in range(3):
            world.partition("orders", index).append(memoryview(batch_of([b"v"])), NOON_MS)
        path = world.partition("orders", index).log.active.path
    world.runtime.settle()
    for each in world.replicas.all():
        each.log.close()
    damaged = bytearray(path.read_bytes())
    damaged[70] ^= 1
    path.write_bytes(damaged)
    world.directory.close(clean=False)
    again = World(world.directory.path)
    topic = world.image.topics["orders"]
    again.apply(
        TopicRecord(name="orders", topic_id=topic.id),
        *(
            PartitionRecord(
                partition_id=index,
                topic_id=topic.id,
                replicas=[1],
                isr=[1],
                leader=1,
                leader_epoch=1,
                partition_epoch=1,
                directories=[uuid.UUID(int=5)],
            )
            for index in range(3)
        ),
    )
    partitions = again.replicas.topics["orders"]
    assert [None if each is None else each.log_end_offset for each in partitions] == [3, 3, None]
    assert isinstance(again.replicas.offline[TopicPartition("orders", 2)], CorruptLog)
    assert path.read_bytes() == bytes(damaged)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_log_that_found_no_room_is_tried_again_and_not_copied_to_the_full_disk(
    world: World, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a log that may be damaged is put aside, and only while it is not in sync."""
    world.create("orders", 1)
    world.partition("orders", 0).append(memoryview(batch_of([b"v"] * 3)), NOON_MS)
    world.runtime.settle()
    for each in world.replicas.all():
        each.log.close()
    world.directory.close(clean=False)
    again = World(world.directory.path)
    open_log = again.directory.open_log

    def fail(*_: Any, **__: Any) -> PartitionLog:
        raise OSError(number, os.strerror(number))

    topic_id = world.image.topics["orders"].id
    with monkeypatch.context() as patched:
        patched.setattr(again.directory, "open_log", fail)
        again.apply(
            TopicRecord(name="orders", topic_id=topic_id),
            PartitionRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2], isr=[2], leader=2, leader_epoch=1),
        )
    assert TopicPartition("orders", 0) in again.replicas.offline
    assert again.directory.open_log == open_log
    again.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=[2], leader=2))
    opened = again.partition("orders", 0)
    strays = [path.name for path in again.directory.path.iterdir() if path.name.endswith("-stray")]
    assert not again.replicas.offline
    assert (opened.log_end_offset, len(strays)) == ((3, 0) if number == errno.ENOSPC else (0, 1))


@pytest.mark.parametrize("left", [None, "", "version: 0\ntop"], ids=["missing", "empty", "torn"])
def test_records_without_a_topic_id_are_not_taken_for_those_of_the_topic_of_that_name(
    world: World, left: str | None
) -> None:
    """A power cut may spare unflushed records, and not the unflushed file that names their topic.

    Leader epochs begin at 0 in each topic: no comparison with the leader would find other records at the same offsets.
    """
    world.create("orders", 2, flush_mode="async")
    world.partition("orders", 0).append(memoryview(batch_of([b"v"] * 3)), NOON_MS)
    _lose_topic_ids(world, left)
    again = World(world.directory.path)
    topic_id = again.restart_with("orders", 2)
    assert [again.partition("orders", index).log_end_offset for index in (0, 1)] == [0, 0]
    (stray,) = [path for path in again.directory.path.iterdir() if path.name.endswith("-stray")]
    assert stray.name.startswith("orders-0."), "an empty log is nobody's, and may be used"
    assert (stray / "00000000000000000000.log").stat().st_size > 0, "records are kept for a person"
    for index in (0, 1):
        assert again.directory.topic_id_of(TopicPartition("orders", index)) == uuid_text(topic_id)


def test_a_log_without_a_topic_id_that_begins_later_is_not_taken_for_the_topic_of_that_name(world: World) -> None:
    """Used by another topic, it would lack all that is below its beginning."""
    world.create("orders", 1, flush_mode="async")
    partition = world.partition("orders")
    partition.append(memoryview(batch_of([b"v"] * 3)), NOON_MS)
    restart_at(partition.log, 3, NOON_MS)
    _lose_topic_ids(world, None)
    again = World(world.directory.path)
    again.restart_with("orders", 1)
    assert (again.partition("orders").log_start_offset, again.partition("orders").log_end_offset) == (0, 0)


def _lose_topic_ids(world: World, left: str | None) -> None:
    """End a node as a power cut does which leaves `left` of each `partition.metadata`: None for no such file."""
    world.runtime.settle()
    for each in world.replicas.all():
        path = each.log.directory / PARTITION_METADATA
        each.log.close()
        path.unlink()
        if left is not None:
            path.write_text(left)
    world.directory.close(clean=False)


def test_who_cares_for_topics_is_told_when_one_comes_grows_moves_or_goes(world: World) -> None:
    topic_id = world.create("orders", 2)
    world.create("users", 1)
    world.apply(PartitionRecord(partition_id=2, topic_id=topic_id, replicas=[1], isr=[1], leader=1))
    world.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, replicas=[1, 2]))
    world.apply(RemoveTopicRecord(topic_id=topic_id))
    assert world.changed == [("orders",), ("users",), ("orders",), ("orders",), ("orders",)]


def test_a_new_leader_is_no_news_about_a_topic(world: World) -> None:
    topic_id = world.create("orders", 1)
    world.changed.clear()
    world.apply(PartitionChangeRecord(partition_id=0, topic_id=topic_id, leader=1))
    assert world.changed == []


def test_after_a_snapshot_any_topic_may_have_changed(world: World) -> None:
    topic_id = world.create("orders", 1)
    world.create("users", 1)
    world.changed.clear()
    world.image.apply(RemoveTopicRecord(topic_id=topic_id))
    world.replicas.on_image_replaced()
    assert world.changed == [("orders", "users")]


def test_the_controller_is_told_of_replicas_in_another_directory_until_it_knows(world: World) -> None:
    topic_id = world.create("orders", 2)
    world.pass_time(1.0)
    assert not world.asked, "it knows"
    elsewhere = [uuid.UUID(int=4)]
    for index in (0, 1):
        world.apply(PartitionChangeRecord(partition_id=index, topic_id=topic_id, directories=elsewhere))
    world.pass_time(1.0)
    ((request, on_answer),) = world.asked
    assert (request.broker_id, request.broker_epoch, request.directories[0].id.int) == (1, 0, 5)

    def told(request: Any) -> list[int]:
        (topic,) = request.directories[0].topics
        assert topic.topic_id == topic_id
        return [each.partition_index for each in topic.partitions]

    assert told(request) == [0, 1]
    on_answer(AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH), None)
    world.pass_time(RETRY_S)
    assert told(world.asked[1][0]) == [0, 1]
    world.asked[1][1](None, TimeoutError("no controller"))
    world.pass_time(RETRY_S)
    outcomes = [PartitionAnswered(0), PartitionAnswered(1, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)]
    answer = AssignReplicasToDirsResponse(directories=[DirectoryAnswered(topics=[TopicAnswered(topic_id, outcomes)])])
    world.asked[2][1](answer, None)
    world.pass_time(RETRY_S)
    assert told(world.asked[3][0]) == [1], "only what was refused"
    world.apply(PartitionChangeRecord(partition_id=1, topic_id=topic_id, directories=[uuid.UUID(int=5)]))
    world.asked[3][1](None, TimeoutError("the answer was lost"))
    world.pass_time(RETRY_S)
    assert len(world.asked) == 4, "the metadata says that it was taken"


def test_a_leader_hears_that_nobody_is_eligible_any_more(world: World) -> None:
    topic_id = world.create("orders", 1)
    world.apply(
        PartitionChangeRecord(
            partition_id=0,
            topic_id=topic_id,
            replicas=[1, 2],
            isr=[1],
            directories=[uuid.UUID(int=5), uuid.UUID(int=6)],
            eligible_leader_replicas=[2],
        )
    )
    in_sync = world.partition("orders").in_sync
    assert in_sync is not None
    assert in_sync.eligible == (2,)
    world.apply(ClearElrRecord(topic_name=""))
    assert in_sync.eligible == ()
