"""Checkpoints are written one after the other, and whoever waits for one is told when the disk holds it."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.unit.broker.test_replicas import World
from tests.unit.log.engine import NOON_MS, batch_of, open_log

from strandline.ids import TopicPartition
from strandline.log.checkpoints import LOG_START_OFFSETS, parse_offsets
from strandline.partition.trimming import delete_records


class Stage:
    def __init__(self, path: Path) -> None:
        self.world = World(path / "data")
        self.world.metadata.log = open_log(path / "metadata")
        self.writer = self.world.replicas.checkpoints
        self.world.create("orders", 2)
        for index in range(2):
            for _ in range(10):
                self.world.partition("orders", index).append(memoryview(batch_of([b"v"])), NOON_MS)
        self.world.runtime.settle()
        self.told: list[tuple[str, BaseException | None]] = []

    def trim(self, index: int, offset: int, who: str) -> None:
        delete_records(self.world.partition("orders", index), offset)
        self.writer.write_start_offsets(lambda error: self.told.append((who, error)))

    def on_disk(self) -> dict[TopicPartition, int]:
        path = self.world.directory.path / LOG_START_OFFSETS
        return parse_offsets(path.read_bytes()) if path.exists() else {}


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def test_nobody_is_told_before_the_disk_holds_it(stage: Stage) -> None:
    stage.trim(0, 3, "first")
    assert stage.told == []
    assert stage.on_disk() == {}
    stage.world.runtime.settle()
    assert stage.told == [("first", None)]
    assert stage.on_disk() == {TopicPartition("orders", 0): 3}
    assert stage.writer.is_idle


def test_many_who_wait_share_a_write(stage: Stage) -> None:
    for offset in range(1, 9):
        stage.trim(offset % 2, offset, f"{offset}")
    writes = 0
    while stage.world.runtime.jobs:
        assert len(stage.world.runtime.jobs) == 1, "one thread, whoever waits"
        stage.world.runtime.finish_job()
        writes += 1
    assert writes == 2, "the one that was under way, and one for all the others"
    assert [who for who, _ in stage.told] == [f"{offset}" for offset in range(1, 9)]
    assert stage.on_disk() == {TopicPartition("orders", 0): 8, TopicPartition("orders", 1): 7}


def test_who_asks_during_a_write_of_everything_waits_for_it(stage: Stage) -> None:
    """The content is the same, so there is nothing more to write; but the disk does not hold it yet."""
    delete_records(stage.world.partition("orders"), 3)
    stage.writer.write_all()
    stage.trim(0, 3, "second")
    assert stage.told == []
    stage.world.runtime.settle()
    assert stage.told == [("second", None)]
    stage.trim(0, 3, "third")
    assert stage.told[-1] == ("third", None), "it is there: nothing to wait for"


def test_a_disk_that_refuses_is_told_and_tried_again_the_next_time(stage: Stage) -> None:
    fault = stage.world.disk.fail("write_whole", errno.ENOSPC, suffix=LOG_START_OFFSETS)
    stage.trim(0, 3, "first")
    stage.world.runtime.settle()
    ((who, error),) = stage.told
    assert who == "first"
    assert isinstance(error, OSError)
    stage.world.disk.faults.remove(fault)
    stage.trim(1, 2, "second")
    stage.world.runtime.settle()
    assert stage.told[-1] == ("second", None)
    assert stage.on_disk() == {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 2}


def test_the_start_of_a_log_that_is_offline_is_not_forgotten(stage: Stage) -> None:
    stage.trim(0, 3, "first")
    stage.world.runtime.settle()
    stage.world.replicas.topics["orders"][0] = None
    stage.world.replicas.offline[TopicPartition("orders", 0)] = OSError("damaged")  # type: ignore[assignment]
    stage.trim(1, 4, "second")
    stage.writer.write_all()
    stage.world.runtime.settle()
    assert stage.on_disk() == {TopicPartition("orders", 0): 3, TopicPartition("orders", 1): 4}
