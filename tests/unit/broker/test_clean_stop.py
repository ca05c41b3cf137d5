"""A clean stop syncs many logs side by side, and is marked as clean only after every sync has succeeded."""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from pathlib import Path

from tests.unit.broker.test_dynamic_config import STATIC, create
from tests.unit.log.engine import batch_of

from strandline.broker.main import node_on, stop
from strandline.broker.node import Node
from strandline.config.node_config import BrokerConfig
from strandline.log.checkpoints import CLEAN_SHUTDOWN
from strandline.log.disk import RealDisk, RealFile
from strandline.log.log_directory import LogDirectory

PARTITIONS = 24
TOGETHER = 6
"""Syncs that must be seen under way at one moment."""
MEETING_S_MAX = 10.0


class MeetingDisk(RealDisk):
    """A disk whose syncs of logs wait for each other while `is_armed`: alone, none of them would end in time."""

    def __init__(self) -> None:
        self.is_armed = False
        self.refuses = ""
        self.meeting = threading.Barrier(TOGETHER)
        self.have_met = False
        self.syncing = 0
        self.synced: set[str] = set()
        self.marked_while_syncing: int | None = None
        self.synced_when_marked: set[str] = set()

    def open(self, path: Path, *, create: bool = False) -> RealFile:
        return MeetingFile(self, path, super().open(path, create=create))

    def write_whole(self, path: Path, data: bytes, *, sync: bool = False) -> None:
        if path.name == CLEAN_SHUTDOWN:
            self.marked_while_syncing, self.synced_when_marked = self.syncing, set(self.synced)
        super().write_whole(path, data, sync=sync)

    def sync(self, path: Path) -> None:
        name = path.parent.name
        if not self.is_armed or path.suffix != ".log" or not name.startswith("orders-"):
            return
        if name == self.refuses:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        self.syncing += 1
        if not self.have_met:
            self.meeting.wait(MEETING_S_MAX)
            self.have_met = True
        self.syncing -= 1
        self.synced.add(name)


class MeetingFile(RealFile):
    __slots__ = ("_disk", "_path")

    def __init__(self, disk: MeetingDisk, path: Path, real: RealFile) -> None:
        super().__init__(real.fileno())
        self._disk = disk
        self._path = path

    def datasync(self) -> None:
        self._disk.sync(self._path)


def stopped_node(tmp_path: Path, disk: MeetingDisk) -> Node:
    """A node that was stopped with a record in each of its partitions that nothing had flushed."""

    async def main() -> Node:
        config = BrokerConfig.load("", STATIC | {"flush.mode": "async"})
        node = node_on(asyncio.get_running_loop(), tmp_path, config, disk=disk)
        node.start()
        await create(node, "orders", PARTITIONS)
        for partition in node.topics["orders"]:
            assert partition is not None
            partition.append(memoryview(bytearray(batch_of([b"a record"]))), node.runtime.now_ms())
        disk.is_armed = True
        await stop(node)
        return node

    return asyncio.run(main())


def test_logs_are_synced_side_by_side_and_all_of_them_before_the_mark(tmp_path: Path) -> None:
    disk = MeetingDisk()
    stopped_node(tmp_path, disk)
    assert disk.have_met, "one sync after the other would have waited for ever"
    assert disk.marked_while_syncing == 0
    assert disk.synced_when_marked == {f"orders-{index}" for index in range(PARTITIONS)}
    assert (tmp_path / CLEAN_SHUTDOWN).exists()


def test_a_log_that_could_not_be_synced_is_not_claimed_to_be_clean(tmp_path: Path) -> None:
    disk = MeetingDisk()
    disk.refuses = "orders-3"
    stopped_node(tmp_path, disk)
    assert len(disk.synced) == PARTITIONS - 1, "the others are synced all the same"
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()
    again = LogDirectory(tmp_path, disk=RealDisk(), open_files_max=10)
    by_partition = {name.partition: offset for name, offset in again.recovery_points.items() if name.topic == "orders"}
    assert by_partition == {index: int(index != 3) for index in range(PARTITIONS)}
    again.close(clean=False)
