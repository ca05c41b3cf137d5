"""Looks at all logs, a share per turn: what is to go is written down, then out of sight, then off the disk."""

from __future__ import annotations

import dataclasses
import errno
import random
from pathlib import Path
from typing import Any

import pytest
from tests.simulator.world.disk import SimDisk
from tests.unit.broker.test_replicas import World
from tests.unit.log.engine import NOON_MS, batch_of, open_log
from tests.unit.log.manual_runtime import ManualRuntime

from strandline.broker.maintenance.retention import SOON_S, LogRetention
from strandline.broker.maintenance.storage import LogStorage
from strandline.codec.columns import decode_batch
from strandline.errors import CorruptLog
from strandline.ids import TopicPartition
from strandline.log.checkpoints import LOG_START_OFFSETS, parse_offsets
from strandline.log.disk import Disk
from strandline.log.trimming import remove_segments
from strandline.log.truncation import begin_truncation, truncate_to
from strandline.partition.following import on_truncated
from strandline.partition.partition import Partition

HOUR_MS = 3_600_000
OLD_MS = NOON_MS - 24 * HOUR_MS
SMALL = {"internal_segment_bytes": "300", "retention_ms": str(HOUR_MS)}
NAME = TopicPartition("orders", 0)


class TiringRuntime(ManualRuntime):
    """Every look at the clock takes `look_s`."""

    look_s = 0.0

    def monotonic(self) -> float:
        self.now += self.look_s
        return self.now


class Stage:
    def __init__(
        self,
        path: Path,
        *,
        disk: Disk | None = None,
        runtime: ManualRuntime | None = None,
        metadata: Path | None = None,
    ) -> None:
        self.world = World(path, disk=disk, runtime=runtime)
        self.runtime = self.world.runtime
        self.world.metadata.log = open_log(metadata or path.with_name("metadata"), disk=disk)
        workers: Any = None
        storage = LogStorage(
            self.world.environment,
            self.world.directory,
            self.world.flusher,
            self.world.replicas,
            self.world.replicas.checkpoints,
            workers,
        )
        self.retention = LogRetention(storage)
        self.world.replicas.on_configured = self.retention.look_soon

    def create(self, *, partitions: int = 1, **settings: str) -> None:
        self.world.create("orders", partitions, **{**SMALL, **settings})

    @property
    def partition(self) -> Partition:
        return self.world.partition("orders")

    def append(self, *timestamps: int, index: int = 0) -> None:
        for time_ms in timestamps:
            batch = memoryview(batch_of([b"value"], timestamps=[time_ms]))
            self.world.partition("orders", index).append(batch, NOON_MS)
        self.runtime.settle()

    def look(self) -> None:
        self.retention.look()
        self.settle()

    def settle(self) -> None:
        """Until nothing is under way, save the next look and files that go later."""
        while True:
            self.runtime.settle()
            due = [timer for timer in self.runtime.timers if timer.due <= self.runtime.now + SOON_S]
            if not due:
                return
            self.runtime.timers = [timer for timer in self.runtime.timers if timer not in due]
            for timer in due:
                if not timer.cancelled:
                    timer.callback()

    def on_disk(self) -> int:
        path = self.world.directory.path / LOG_START_OFFSETS
        disk = self.world.disk
        return parse_offsets(disk.read_whole(path)).get(NAME, 0) if disk.exists(path) else 0


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path / "data")


def start(stage: Stage) -> int:
    return stage.partition.log_start_offset


def test_nobody_sees_a_start_that_a_power_cut_could_take_back(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.retention.look()
    stage.runtime.turn()
    assert start(stage) == 0
    assert stage.on_disk() == 0
    stage.runtime.jobs.popleft()()
    assert stage.on_disk() > 0
    assert start(stage) == 0, "the loop has not heard of it"
    planned = stage.on_disk()
    stage.settle()
    assert start(stage) == planned == stage.on_disk()
    assert stage.retention.deleted_segments > 0
    assert stage.partition.log.planned_start_offset == 0


def test_a_disk_too_full_to_note_it_gets_its_room_all_the_same(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.world.disk.fail("write_whole", errno.ENOSPC)
    stage.look()
    assert start(stage) > 0
    assert stage.partition.log.base_offsets[0] == start(stage)
    names = {path.name for path in stage.partition.log.directory.glob("*.log")}
    assert names == {f"{base:020d}.log" for base in stage.partition.log.base_offsets}


def test_a_disk_too_full_to_roll_keeps_the_last_segment_and_frees_the_others(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 10)
    last_base = stage.partition.log.active.base_offset
    fault = stage.world.disk.fail("open", errno.ENOSPC, suffix="10.log")
    stage.look()
    assert fault.hits
    assert start(stage) == last_base > 0
    assert stage.partition.log.failure is None
    assert "cannot be deleted yet" in caplog.text
    fault.repaired = True
    stage.look()
    assert start(stage) == 10


def test_the_active_segment_goes_when_its_successor_is_on_disk(stage: Stage) -> None:
    stage.create(flush_mode="async")
    stage.append(OLD_MS)
    assert stage.partition.log.flushed_offset == 0
    stage.retention.look()
    assert stage.partition.log.base_offsets == [0, 1]
    assert start(stage) == 0
    stage.settle()
    assert stage.partition.log.flushed_offset == 1
    assert start(stage) == 1
    assert stage.partition.log.base_offsets == [1]
    stage.look()
    assert stage.partition.log.base_offsets == [1], "an empty one is not rolled again and again"


def test_above_the_high_watermark_nothing_goes(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.partition.high_watermark = 5
    stage.look()
    assert 0 < start(stage) <= 5


def test_a_log_that_is_cut_meanwhile_keeps_what_it_has(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.retention.look()
    stage.runtime.turn()
    log = stage.partition.log
    begin_truncation(log, 2)
    truncate_to(log, 2)
    on_truncated(stage.partition, 10)
    stage.settle()
    assert (log.log_start_offset, log.log_end_offset) == (0, 2)


@pytest.mark.parametrize("settings", [{"retention_ms": -1}, {"cleanup_policy": ("compact",)}], ids=str)
def test_settings_that_keep_more_count_as_soon_as_they_are_known(stage: Stage, settings: dict[str, Any]) -> None:
    """Who saves records by a longer retention is not to lose them to what a slow disk still had to write down."""
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.retention.look()
    stage.runtime.turn()
    stage.runtime.jobs.popleft()()
    assert stage.on_disk() > 0
    stage.partition.reconfigure(dataclasses.replace(stage.partition.config, **settings))
    stage.settle()
    assert start(stage) == 0
    assert stage.on_disk() == 0, "nor are they gone after a crash"
    assert stage.partition.log.planned_start_offset == 0


def test_a_topic_that_is_deleted_meanwhile(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    log = stage.partition.log
    stage.retention.look()
    stage.runtime.turn()
    log.delete(log.directory.with_name("orders-0.0123-delete"))
    stage.settle()
    assert log.log_start_offset == 0


def test_a_leader_that_starts_later_meanwhile(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.retention.look()
    stage.runtime.turn()
    log = stage.partition.log
    remove_segments(log, log.cut_front(10))
    stage.settle()
    assert log.log_start_offset == 10


def test_a_look_takes_a_share_of_a_turn(tmp_path: Path) -> None:
    runtime = TiringRuntime()
    stage = Stage(tmp_path / "data", runtime=runtime)
    stage.create(partitions=20)
    for index in range(20):
        stage.append(OLD_MS, OLD_MS, OLD_MS, OLD_MS, NOON_MS, index=index)
    runtime.look_s = 0.002
    stage.retention.look()
    assert stage.retention._is_looking, "one look at the clock takes longer than the share"
    assert len(stage.retention._planned) < 20
    while stage.retention._is_looking:
        stage.settle()
    assert all(stage.world.partition("orders", index).log_start_offset > 0 for index in range(20))
    assert stage.retention.looks == 1


def test_looks_do_not_overtake_each_other(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.retention.look()
    stage.retention.look()
    stage.retention.look_soon(stage.partition)
    stage.settle()
    assert stage.retention.looks == 1
    stage.look()
    assert stage.retention.looks == 2


def test_a_closed_one_looks_no_more_and_plans_nothing(stage: Stage) -> None:
    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.retention.look()
    stage.retention.close()
    stage.settle()
    assert start(stage) == 0
    assert stage.partition.log.planned_start_offset == 0
    stage.look()
    assert start(stage) == 0


def test_a_segment_that_cannot_be_read_stays(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: object) -> int:
        raise CorruptLog("no record batch")

    stage.create()
    stage.append(*[OLD_MS] * 9, NOON_MS)
    stage.partition.log.segments[0].max_timestamp_ms = -1
    monkeypatch.setattr("strandline.broker.maintenance.retention.read_newest_ms", refuse)
    stage.look()
    assert start(stage) == 0


@pytest.mark.parametrize(
    "seed",
    [*range(4), *(pytest.param(seed, marks=pytest.mark.lengthy("random walks under faults")) for seed in range(4, 60))],
)
def test_a_start_that_was_seen_never_goes_back_and_nothing_above_it_is_lost(seed: int) -> None:
    """Kills and power cuts at any moment of looks, checkpoints, renames and removals."""
    print(f"seed {seed}")
    rng = random.Random(seed)
    disk = SimDisk(rng)
    disk.make_directory(Path("data"))
    disk.sync_all()
    seen_start = acknowledged = 0
    for life in range(6):
        stage = Stage(
            Path("data"), disk=disk, runtime=ManualRuntime(seed=rng.getrandbits(32)), metadata=Path(f"m{life}")
        )
        stage.create(file_delete_delay_ms=str(rng.choice([0, 60_000])), flush_mode=rng.choice(["ack", "async"]))
        log = stage.partition.log
        assert log.failure is None
        assert log.log_start_offset >= seen_start, "deleted records are back"
        assert log.log_end_offset >= acknowledged, "acknowledged records are gone"
        offsets = [record.offset for batch in log.batches() for record in decode_batch(batch)]
        there = [offset for offset in offsets if offset >= log.log_start_offset]
        assert there == list(range(log.log_start_offset, log.log_end_offset)), "a hole"
        runtime: Any = stage.runtime
        for _ in range(rng.randint(5, 60)):
            choice = rng.random()
            if choice < 0.35:
                batch = memoryview(batch_of([b"v"], timestamps=[rng.choice([OLD_MS, OLD_MS, OLD_MS, NOON_MS])]))
                stage.partition.append(batch, NOON_MS)
            elif choice < 0.45:
                stage.retention.look()
            elif choice < 0.7 and runtime.jobs:
                at = rng.randrange(len(runtime.jobs))
                job = runtime.jobs[at]
                del runtime.jobs[at]
                job()
            elif choice < 0.8 and runtime.timers:
                runtime.timers.pop(rng.randrange(len(runtime.timers))).callback()
            else:
                runtime.turn()
            seen_start = max(seen_start, log.log_start_offset)
            acknowledged = max(acknowledged, log.flushed_offset)
            assert log.log_start_offset <= stage.partition.high_watermark
        if rng.random() < 0.5:
            disk.process_died()
        else:
            disk.power_cut()
