"""What the leader of the commit log deletes, and when: by its own clock, and never what a commit may still name."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest
from tests.tiers.objects.commit_log import PLACE_A, TOPIC_A, claim, commit, object_id, piece
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.tiering.objects.object_sweeper import GONE_S, ObjectSweeper
from strandline.tiers.store.memory_store import MemoryStore
from strandline.tiers.store.waiting import start
from strandline.tiers.wal.checkpoint import checkpoint_key
from strandline.tiers.wal.commit_fold import CommitFold
from strandline.tiers.wal.events import RELEASED, CommitEvent, ObjectId, OffsetsMoved
from strandline.tiers.wal.wal_objects import wal_key

CLUSTER = "cluster"
LOG_ID = UUID(int=70)
TICK_S, WATCH_S, DELAY_S = 1.0, 100.0, 10.0


class Commits:
    """A commit log without a cluster."""

    is_led_here = True
    is_empty = False

    def __init__(self) -> None:
        self.fold = CommitFold()
        self.written: list[CommitEvent] = []
        self.is_away = False

    def topic(self) -> SimpleNamespace:
        return SimpleNamespace(id=LOG_ID)

    async def read_to_end(self, place: int) -> bool:
        return not self.is_away

    async def append(self, *events: CommitEvent) -> None:
        for each in events:
            self.written.append(each)
            self.fold.apply(each)


class World:
    def __init__(self) -> None:
        self.runtime, self.commits, self.store = ManualRuntime(), Commits(), MemoryStore()
        self.topics = {TOPIC_A: "a topic"}
        config = SimpleNamespace(
            remote_log_manager_task_interval_ms=TICK_S * 1000,
            strandline_object_orphan_ms=WATCH_S * 1000,
            strandline_remote_store_read_only=False,
            topic_defaults=SimpleNamespace(file_delete_delay_ms=DELAY_S * 1000),
        )
        image = SimpleNamespace(topic_by_id=self.topics.get)
        environment = SimpleNamespace(
            runtime=self.runtime, cluster_id=CLUSTER, config=lambda: config, image=lambda: image
        )
        self.checkpoints = SimpleNamespace(maybe_write=self._write_checkpoint)
        services = SimpleNamespace(may_be_replaced=False)
        parts = (environment, services, self.commits, self.checkpoints)
        self.sweeper = ObjectSweeper(*cast("tuple[Any, Any, Any, Any]", parts), lambda: self.store)

    async def _write_checkpoint(self, *_: object) -> None:
        """Do nothing."""

    def put(self, each: ObjectId) -> None:
        start(self.runtime, self.store.put(wal_key(CLUSTER, each), b"batches", deadline_s=1.0))

    def has(self, each: ObjectId) -> bool:
        return wal_key(CLUSTER, each) in self.store.objects

    def wait(self, seconds: float) -> None:
        for _ in range(int(seconds / TICK_S)):
            self.runtime.now += TICK_S
            due = [each for each in self.runtime.timers if each.due <= self.runtime.now]
            self.runtime.timers = [each for each in self.runtime.timers if each not in due]
            for each in due:
                if not each.cancelled:
                    each.callback()
            self.runtime.settle()


@pytest.fixture
def world() -> World:
    return World()


def test_an_object_between_upload_and_commit_is_left_alone(world: World) -> None:
    world.put(object_id(1))
    world.wait(WATCH_S * 0.9)
    assert world.has(object_id(1))
    world.commits.fold.apply(claim(1, 10, PLACE_A))
    assert world.commits.fold.apply(commit(object_id(1), piece(PLACE_A, 0, 5))) == (True,)
    world.wait(WATCH_S * 3)
    assert world.has(object_id(1))


def test_an_object_that_is_collected_is_condemned_first(world: World) -> None:
    world.put(object_id(1))
    world.commits.fold.apply(claim(1, 10, PLACE_A))
    began = world.runtime.monotonic()
    while world.has(object_id(1)) and world.runtime.monotonic() < began + 3 * WATCH_S:
        world.wait(TICK_S)
    assert not world.has(object_id(1))
    late = commit(object_id(1), piece(PLACE_A, 0, 5))
    assert world.commits.fold.apply(late) == (False,), "it names an object that is gone"
    assert world.runtime.monotonic() >= began + WATCH_S


def test_objects_of_a_lost_cluster_are_no_orphans_before_it_is_restored(world: World) -> None:
    """A new cluster of the old id has a commit log of its own, which names none of them."""
    lost = UUID(int=71)
    start(world.runtime, world.store.put(checkpoint_key(CLUSTER, lost, 5), b"of the lost one", deadline_s=1.0))
    start(world.runtime, world.store.put(checkpoint_key(CLUSTER, LOG_ID, 9), b"of this one", deadline_s=1.0))
    world.put(object_id(1))
    world.wait(WATCH_S * 3)
    assert world.has(object_id(1))
    world.commits.fold.restored_logs.add(lost)
    world.wait(WATCH_S * 3)
    assert not world.has(object_id(1))


def test_a_dead_object_stays_as_long_as_a_reader_may_need_it(world: World) -> None:
    world.put(object_id(1))
    world.commits.fold.apply(claim(1, 10, PLACE_A))
    world.commits.fold.apply(commit(object_id(1), piece(PLACE_A, 0, 5)))
    world.wait(5)
    world.commits.fold.apply(OffsetsMoved(RELEASED, ((*PLACE_A, 0, 5),)))
    world.wait(DELAY_S - TICK_S)
    assert world.has(object_id(1))
    world.wait(3 * TICK_S)
    assert not world.has(object_id(1))
    assert not world.commits.fold.dead, "it is forgotten, too"


def test_what_another_part_wrote_stays(world: World) -> None:
    start(world.runtime, world.store.put(f"{CLUSTER}/wal/00/notes.txt", b"of an operator", deadline_s=1.0))
    world.wait(WATCH_S * 3)
    assert world.store.objects


def test_a_log_that_cannot_be_read_to_its_end_deletes_nothing(world: World) -> None:
    world.put(object_id(1))
    world.commits.is_away = True
    world.wait(WATCH_S * 3)
    assert world.has(object_id(1))


def test_a_topic_must_be_missing_for_a_while(world: World) -> None:
    """The metadata of this node may be behind the commit log."""
    world.commits.fold.apply(claim(1, 10, PLACE_A))
    del world.topics[TOPIC_A]
    world.wait(GONE_S - 2 * TICK_S)
    world.topics[TOPIC_A] = "it came"
    world.wait(GONE_S)
    assert PLACE_A in world.commits.fold.partitions
    del world.topics[TOPIC_A]
    world.wait(GONE_S + 3 * TICK_S)
    assert PLACE_A not in world.commits.fold.partitions
