"""After a crash a node answers at once, and serves each partition as soon as its log has been recovered."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.broker.test_dynamic_config import STATIC, create, write

from strandline.broker.main import node_on, stop
from strandline.broker.maintenance.storage_worker import Job, JobFailed
from strandline.broker.metrics.endpoint import reasons_not_ready
from strandline.broker.node import Node
from strandline.broker.replicas import directory_health
from strandline.codec.columns import Record, encode_batch
from strandline.codec.message_codec import decode_exact
from strandline.codec.messages.describe_storage_request import DescribeStorageRequest
from strandline.codec.messages.describe_storage_response import DescribeStorageResponse
from strandline.config.node_config import BrokerConfig
from strandline.errors import ErrorCode
from strandline.handlers.k20007_describe_storage import handle
from strandline.handlers.support.absent_partitions import led_partition
from strandline.handlers.support.context import EncodedResponse
from strandline.ids import TopicPartition
from strandline.log.checkpoints import CLEAN_SHUTDOWN
from strandline.log.disk import RealDisk
from strandline.log.maintenance import worker_jobs
from strandline.partition import producers
from strandline.quorum.controller.topic_commands import TopicRef

PARTITIONS = 4
RECORDS = 3
RECORD = Record(0, 1_700_000_000_000, None, b"a record")


class HeldWorkers:
    """Workers that do nothing until the test says so."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []

    @property
    def names(self) -> list[str]:
        return [Path(job.params["directory"]).name for job in self.jobs]

    def run(self, kind: str, params: dict[str, Any], on_report: Any, on_done: Any) -> Job:
        job = Job(len(self.jobs), kind, json.loads(json.dumps(params)), on_report, on_done)
        self.jobs.append(job)
        return job

    def finish(self, *, dies: bool = False) -> None:
        """Let the oldest job come to its end."""
        job = self.jobs.pop(0)
        if dies:
            job.on_done(None, JobFailed("Worker", "the worker process ended"))
            return
        try:
            result = worker_jobs.run(
                job.kind,
                job.params,
                disk=RealDisk(),
                report=lambda _: None,
                is_stopped=lambda: False,
                sleep=lambda _: None,
            )
        except Exception as error:
            job.on_done(None, JobFailed(type(error).__name__, str(error)))
        else:
            job.on_done(result, None)

    def close(self) -> None:
        self.jobs.clear()


Story = Callable[[Node, HeldWorkers], Coroutine[Any, Any, None]]


def after_a_crash(tmp_path: Path, story: Story, *, damage: str = "", orders: int = PARTITIONS) -> None:
    """A node that finds logs which no clean stop left, and that has all of them recovered by workers."""
    config = BrokerConfig.load("", STATIC | {"num.recovery.threads.per.data.dir": "1"})

    async def first() -> None:
        node = node_on(asyncio.get_running_loop(), tmp_path, config)
        node.start()
        await create(node, "orders", orders)
        for partition in node.topics["orders"]:
            assert partition is not None
            for producer_id in range(RECORDS):
                batch = encode_batch([RECORD], producer_id=producer_id, producer_epoch=0, base_sequence=0)
                partition.append(memoryview(bytearray(batch)), node.runtime.now_ms())
        await create(node, "__consumer_offsets", 1)
        await stop(node)

    async def second() -> None:
        node = node_on(asyncio.get_running_loop(), tmp_path, config)
        held = HeldWorkers()
        node.storage.workers.loaded = held  # type: ignore[assignment]
        node.replicas.recovery.loop_logs_max = 0
        node.start()
        await asyncio.sleep(0)
        try:
            await story(node, held)
        finally:
            await stop(node)

    asyncio.run(first())
    (tmp_path / CLEAN_SHUTDOWN).unlink()
    if damage:
        file = next((tmp_path / damage).glob("*.log"))
        content = bytearray(file.read_bytes())
        content[70] ^= 1
        file.write_bytes(content)
    asyncio.run(second())


def served(node: Node) -> list[int]:
    return [each.index for each in node.topics["orders"] if each is not None]


async def stored(node: Node, topic: str) -> list[tuple[int, str | None]]:
    """What DescribeStorage tells of each partition: is it open, and if not, why not."""
    replied: asyncio.Future[EncodedResponse] = asyncio.get_running_loop().create_future()
    context: Any = SimpleNamespace(node=node, api_version=0, reply=replied.set_result)
    handle(context, DescribeStorageRequest())
    answer = decode_exact(DescribeStorageResponse, 0, (await replied).body)
    return [(part.error_code, part.error_message) for part in answer.partitions if part.topic == topic]


def test_a_node_of_one_is_ready_before_its_logs_are_recovered(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        assert node.is_ready
        assert node.image.topic_by_name("orders") is not None
        assert served(node) == []
        assert led_partition(node, "orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert reasons_not_ready(node) == ["recovering: 0 of 5 partitions, 0 of 0 MB"]
        assert await stored(node, "orders") == [(9, "recovering: 0 of 5 partitions, 0 of 0 MB")] * PARTITIONS
        assert held.names == ["__consumer_offsets-0"], "internal topics come first, and one at a time"
        held.finish()
        held.finish()
        assert served(node) == [0]
        partition = led_partition(node, "orders", 0)
        assert not isinstance(partition, ErrorCode)
        assert (partition.log_end_offset, partition.high_watermark) == (RECORDS, RECORDS)
        assert reasons_not_ready(node) == ["recovering: 2 of 5 partitions, 0 of 0 MB"]
        while held.jobs:
            held.finish()
        assert served(node) == list(range(PARTITIONS))
        assert await stored(node, "orders") == [(0, None)] * PARTITIONS
        assert reasons_not_ready(node) == []

    after_a_crash(tmp_path, story)
    assert (tmp_path / CLEAN_SHUTDOWN).exists(), "everything was recovered before the stop"


def test_what_a_client_asks_for_is_recovered_next(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        assert led_partition(node, "orders", 2) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        held.finish()
        assert held.names == ["orders-2"]

    after_a_crash(tmp_path, story)


def test_a_log_that_is_recovered_and_not_open_yet_did_not_fail(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        node.replicas.recovery.on_recovered = lambda name: None
        held.finish()
        held.finish()
        assert led_partition(node, "orders", 0) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    after_a_crash(tmp_path, story)


def test_one_of_several_brokers_waits_for_all_of_its_logs(tmp_path: Path) -> None:
    """It stays fenced until `then`, as Kafka's does: the others lead, and count on nothing that it may have lost."""

    async def story(node: Node, held: HeldWorkers) -> None:
        told: list[bool] = []
        node.replicas.open_all(lambda: told.append(True), at_once=False)
        while held.jobs:
            assert not told
            held.finish()
        assert told == [True]
        assert served(node) == list(range(PARTITIONS))

    after_a_crash(tmp_path, story)


def test_a_stop_before_the_end_is_not_marked_as_clean(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        held.finish()
        held.finish()

    after_a_crash(tmp_path, story)
    assert not (tmp_path / CLEAN_SHUTDOWN).exists()


def test_damage_takes_its_partition_offline_and_no_other(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        while held.jobs:
            held.finish()
        assert served(node) == [0, 2, 3]
        assert led_partition(node, "orders", 1) == ErrorCode.KAFKA_STORAGE_ERROR
        assert "orders-1" in str(node.log_failure("orders", 1))

    after_a_crash(tmp_path, story, damage="orders-1")


def test_a_worker_that_dies_costs_time_and_no_log(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        while held.jobs:
            held.finish(dies=True)
        assert served(node) == list(range(PARTITIONS))

    after_a_crash(tmp_path, story)


def find_no_room(held: HeldWorkers) -> None:
    """Let the oldest job fail on a full disk."""
    held.jobs.pop(0).on_done(None, JobFailed("OSError", os.strerror(errno.ENOSPC), errno.ENOSPC))


async def until_tried_again(held: HeldWorkers) -> None:
    for _ in range(5000):
        if held.jobs:
            return
        await asyncio.sleep(0.001)
    raise AssertionError("no log is recovered again")


def test_a_log_without_room_is_not_tried_again_at_once(tmp_path: Path) -> None:
    """On a full disk that would never end, and a broker of several would never be ready."""

    async def story(node: Node, held: HeldWorkers) -> None:
        full = held.names[0]
        find_no_room(held)
        for _ in range(2 * PARTITIONS):
            await asyncio.sleep(0)
            if held.jobs:
                assert held.names[0] != full
                held.finish()
        assert not held.jobs
        assert not node.replicas.recovery.is_pending
        assert [str(name) for name in node.replicas.offline] == [full]

    after_a_crash(tmp_path, story)


def test_logs_without_room_are_recovered_when_there_is_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directory_health, "PROBE_S", 0.001)

    async def story(node: Node, held: HeldWorkers) -> None:
        while held.jobs:
            find_no_room(held)
        assert len(node.replicas.offline) == 1 + PARTITIONS
        await until_tried_again(held)
        assert not node.replicas.offline, "what is being recovered is not offline"
        while held.jobs:
            held.finish()
        assert served(node) == list(range(PARTITIONS))

    after_a_crash(tmp_path, story)


def test_a_topic_that_is_deleted_while_its_log_is_recovered_again_waits_for_the_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(directory_health, "PROBE_S", 0.001)
    orders = TopicPartition("orders", 0)

    async def story(node: Node, held: HeldWorkers) -> None:
        held.finish()
        find_no_room(held)
        await until_tried_again(held)
        assert held.names == ["orders-0"]
        records, _ = node.controller.delete_topics([TopicRef("orders")])
        await write(node, records)
        assert orders in node.directory.partition_directories()
        held.finish()
        assert orders not in node.directory.partition_directories()

    after_a_crash(tmp_path, story, orders=1)


def test_a_worker_forgets_no_producer_that_the_node_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where `producer.id.count.max` is above its default, a log may hold more producers than that."""
    monkeypatch.setattr(producers, "PRODUCERS_MAX", 1)

    async def story(node: Node, held: HeldWorkers) -> None:
        while held.jobs:
            held.finish()
        known = [sorted(each.producers.entries) for each in node.topics["orders"] if each is not None]
        assert known == [list(range(RECORDS))] * PARTITIONS

    after_a_crash(tmp_path, story)


def test_a_topic_that_is_deleted_and_made_again_meanwhile_begins_empty(tmp_path: Path) -> None:
    async def story(node: Node, held: HeldWorkers) -> None:
        held.finish()
        assert held.names == ["orders-0"], "a worker has the files of this one open"
        records, _ = node.controller.delete_topics([TopicRef("orders")])
        await write(node, records)
        assert TopicPartition("orders", 0) in node.directory.partition_directories()
        assert TopicPartition("orders", 1) not in node.directory.partition_directories()
        created = asyncio.ensure_future(create(node, "orders", 2))
        for _ in range(20):
            await asyncio.sleep(0)
        while held.jobs:
            held.finish()
        await created
        assert [each and each.log_end_offset for each in node.topics["orders"]] == [0, 0]
        assert reasons_not_ready(node) == []

    after_a_crash(tmp_path, story)
