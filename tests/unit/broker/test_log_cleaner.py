"""A node cleans its logs: which, when, what stops it, and what is set aside."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.test_dynamic_config import BROKER, STATIC, TOPIC, change, create

from strandline.broker.main import node_on, stop
from strandline.broker.maintenance import log_cleaner
from strandline.broker.maintenance.storage_worker import InlineWorkers
from strandline.broker.node import Node
from strandline.codec.columns import Record, decode_batch, encode_batch
from strandline.codec.record_batch import HEADER
from strandline.config.node_config import BrokerConfig
from strandline.errors import RequestError, StrandlineError
from strandline.log.disk import RealDisk
from strandline.log.maintenance.cleanable import Cleaned
from strandline.log.trimming import trim_now
from strandline.log.truncation import begin_truncation, truncate_to
from strandline.partition.partition import Partition
from strandline.partition.producers import Producers

SMALL: dict[str, Any] = {"cleanup_policy": "compact", "internal_segment_bytes": "1000", "file_delete_delay_ms": "0"}
NEVER = "3600000"


class OneProcess(RealDisk):
    """A disk whose jobs are done in a thread: a process for each test would take long."""

    fail_with: int | None = None

    def open(self, path: Path, *, create: bool = False) -> Any:
        if create and self.fail_with is not None and path.name.endswith(".cleaned"):
            raise OSError(self.fail_with, "No space left on device", str(path))
        return super().open(path, create=create)


def run(
    tmp_path: Path, story: Callable[[Node], Coroutine[Any, Any, None]], *, disk: RealDisk | None = None, **settings: str
) -> None:
    async def main() -> None:
        given = (
            STATIC
            | {"log.cleaner.backoff.ms": NEVER}
            | {name.replace("_", "."): each for name, each in settings.items()}
        )
        node = node_on(asyncio.get_running_loop(), tmp_path, BrokerConfig.load("", given))
        node.storage.workers.loaded = InlineWorkers(node.runtime, disk or OneProcess())
        node.start()
        try:
            await story(node)
        finally:
            await stop(node)

    asyncio.run(main())


def put(partition: Partition, keys: list[int], *, time_ms: int | None = None) -> None:
    """A batch for each record, whose value says how many there were before."""
    now_ms = partition.runtime.now_ms()
    for key in keys:
        record = Record(key=b"key %d" % key, value=b"at %d" % partition.log_end_offset, timestamp_ms=time_ms or now_ms)
        partition.append(memoryview(bytearray(encode_batch([record]))), now_ms)


def offsets(partition: Partition) -> list[int]:
    return [record.offset for batch in partition.log.batches() for record in decode_batch(batch)]


async def table(node: Node, name: str = "table", **settings: str) -> Partition:
    return await create(node, name, 1, **SMALL, **settings)


async def until(is_so: Callable[[], object]) -> None:
    for _ in range(3000):
        if is_so():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come to that")


async def flushed(partition: Partition) -> None:
    await until(lambda: partition.log.flushed_offset == partition.high_watermark == partition.log_end_offset)


async def compacted(node: Node, partition: Partition) -> Cleaned | StrandlineError | None:
    told: list[tuple[Cleaned | None, StrandlineError | None]] = []
    node.cleaner.compact(partition, lambda *end: told.append(end))
    await until(lambda: told)
    return told[0][0] or told[0][1]


def test_the_dirtiest_log_is_cleaned_first_and_then_the_others(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partitions = [await table(node, name) for name in ("first", "second", "third")]
        for partition, count in zip(partitions, (40, 80, 60), strict=True):
            put(partition, [number % 4 for number in range(count)])
            await flushed(partition)
        order: list[str] = []
        # The first two have been clean once: less of the first is dirty than of the second.
        for partition, upto in zip(partitions, (33, 22, 0), strict=True):
            node.directory.cleaner_offsets[log_cleaner._name(partition)] = next(
                base for base in partition.log.base_offsets if base >= upto
            )
        begin = node.cleaner._begin
        node.cleaner._begin = lambda partition, what: (order.append(partition.topic), begin(partition, what))[1]  # type: ignore[method-assign, func-returns-value]
        node.cleaner.look()
        await until(lambda: node.cleaner.cleanings == 2)
        assert order[:2] == ["third", "second"]
        assert "first" not in order, "less than half of it is dirty"
        assert not node.cleaner.set_aside
        assert len(offsets(partitions[2])) < 30

    run(tmp_path, story)


def test_a_silent_log_is_rolled_and_cleaned_when_it_is_due(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await table(node, max_compaction_lag_ms="1000", min_cleanable_dirty_ratio="1.0")
        put(partition, [1, 1, 2], time_ms=partition.runtime.now_ms() - 5000)
        partition.log.active.created_ms -= 5000
        await flushed(partition)
        node.cleaner.look()
        await until(lambda: partition.log.base_offsets == [0, 3])
        await flushed(partition)
        node.cleaner.look()
        await until(lambda: node.cleaner.cleanings)
        assert offsets(partition) == [1, 2]

    run(tmp_path, story)


def test_times_are_read_when_only_the_disk_knows_them(tmp_path: Path) -> None:
    async def write(node: Node) -> None:
        partition = await table(node, max_compaction_lag_ms="1000", min_cleanable_dirty_ratio="1.0")
        put(partition, [1, 1, 2], time_ms=partition.runtime.now_ms() - 5000)
        partition.log.roll(partition.runtime.now_ms())

    async def look(node: Node) -> None:
        partition = node.partition("table", 0)
        assert partition is not None
        await flushed(partition)
        assert partition.log.segments[0].first_timestamp_ms < 0
        node.cleaner.look()
        await until(lambda: node.cleaner.cleanings)
        assert offsets(partition) == [1, 2]

    run(tmp_path, write)
    run(tmp_path, look)


def test_where_it_has_come_is_known_after_a_restart(tmp_path: Path) -> None:
    async def clean(node: Node) -> None:
        partition = await table(node)
        put(partition, [number % 4 for number in range(40)])
        cleaned = await compacted(node, partition)
        assert isinstance(cleaned, Cleaned)
        assert cleaned.result.clean_up_to == 40
        path = tmp_path / "cleaner-offset-checkpoint"
        await until(lambda: path.exists() and "table 0 40" in path.read_text())

    async def look(node: Node) -> None:
        partition = node.partition("table", 0)
        assert partition is not None
        assert node.cleaner.outlook(partition, 0).clean_up_to == 40
        assert await compacted(node, partition) is None, "there is nothing to clean"

    run(tmp_path, clean)
    run(tmp_path, look)


def test_a_copy_of_a_cleaned_log_knows_each_batch_that_may_come_again(tmp_path: Path) -> None:
    """A producer without answers sends its last batches again, to a replica that has copied the log or read it anew."""

    async def story(node: Node) -> None:
        partition = await table(node)
        for sequence in range(12):
            record = Record(key=b"key 1", value=b"%d" % sequence, timestamp_ms=partition.runtime.now_ms())
            batch = encode_batch([record], producer_id=7, producer_epoch=0, base_sequence=sequence)
            partition.append(memoryview(bytearray(batch)), partition.runtime.now_ms())
        put(partition, [1])
        assert isinstance(await compacted(node, partition), Cleaned)
        assert offsets(partition) == [12], "all records of the producer are superseded"
        copy = Producers()
        for batch in partition.log.batches():
            copy.note_header(HEADER.unpack_from(batch), partition.runtime.now_ms())
        assert copy.entries[7].batches == partition.producers.entries[7].batches
        assert [copy.check(7, 0, sequence, sequence) for sequence in range(2, 12)] == list(range(2, 12))

    run(tmp_path, story)


def test_a_deleted_topic_leaves_no_note(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await table(node)
        put(partition, [number % 4 for number in range(40)])
        await compacted(node, partition)
        node.replicas._delete_topic(partition.topic_id.bytes)
        node.replicas._maybe_work_off()
        await until(lambda: partition.log.failure is not None)
        assert not node.directory.cleaner_offsets
        with pytest.raises(StrandlineError):
            node.cleaner.compact(partition, lambda *_: None)

    run(tmp_path, story)


@pytest.mark.parametrize("change_of", ["cut", "trimmed", "deleted", "not compacted"])
def test_a_log_that_changes_under_the_cleaner_is_left(tmp_path: Path, change_of: str) -> None:
    """Between the beginning and the swap: the worker's output is for another log."""

    async def story(node: Node) -> None:
        partition = await table(node, min_cleanable_dirty_ratio="0.0")
        put(partition, [number % 4 for number in range(40)])
        partition.log.roll(partition.runtime.now_ms())
        await flushed(partition)
        assert node.cleaner.begin_now(partition, node.cleaner.judge(partition))
        if change_of == "cut":
            partition.is_leader = False
            begin_truncation(partition.log, 20)
            truncate_to(partition.log, 20)
        elif change_of == "trimmed":
            trim_now(partition.log, 20)
        elif change_of == "deleted":
            node.replicas._delete_topic(partition.topic_id.bytes)
            node.replicas._maybe_work_off()
        else:
            await change(node, TOPIC, "table", cleanup_policy="delete")
        await until(lambda: not node.cleaner.running)
        assert node.cleaner.set_aside == {}
        if change_of == "cut":
            assert offsets(partition) == list(range(20))
        elif change_of == "trimmed":
            assert offsets(partition)[-1] == 39
        if change_of != "deleted":
            left = [path.name for path in partition.log.directory.iterdir()]
            assert not [name for name in left if name.endswith((".cleaned", ".swap"))]

    run(tmp_path, story)


def test_a_full_disk_sets_a_log_aside_and_a_change_brings_it_back(tmp_path: Path) -> None:
    disk = OneProcess()

    async def story(node: Node) -> None:
        partition = await table(node)
        put(partition, [number % 4 for number in range(40)])
        disk.fail_with = errno.ENOSPC
        error = await compacted(node, partition)
        assert isinstance(error, StrandlineError)
        assert "No space left" in str(error)
        outlook = node.cleaner.outlook(partition, 1000)
        assert outlook.state == "set aside"
        assert outlook.reason == str(error)
        assert 1000 < outlook.retry_ms <= 1000 + 60_000
        assert offsets(partition) == list(range(40)), "it is as it was"
        disk.fail_with = None
        rounds = node.cleaner.rounds
        node.cleaner.look()
        await until(lambda: node.cleaner.rounds > rounds)
        assert not node.cleaner.running, "not before its time"
        await change(node, TOPIC, "table", min_cleanable_dirty_ratio="0.1")
        node.cleaner.look()
        await until(lambda: node.cleaner.cleanings)
        assert node.cleaner.outlook(partition, 0).state == "idle"
        assert len(offsets(partition)) == 4

    run(tmp_path, story, disk=disk)


def test_who_changes_the_files_has_them_for_itself(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await table(node, min_cleanable_dirty_ratio="0.0")
        put(partition, [number % 4 for number in range(40)])
        partition.log.roll(partition.runtime.now_ms())
        await flushed(partition)
        node.cleaner.begin_now(partition, node.cleaner.judge(partition))
        held: list[bool] = []
        node.cleaner.hold(partition, lambda: held.append(node.cleaner.is_cleaning(partition)))
        await until(lambda: held)
        assert held == [False]
        node.cleaner.look()
        await until(lambda: node.cleaner.rounds)
        assert not node.cleaner.running
        node.cleaner.release(partition)
        node.cleaner.look()
        await until(lambda: node.cleaner.cleanings)

    run(tmp_path, story)


def test_several_goes_are_one_answer(tmp_path: Path) -> None:
    """The buffer has no room for all the keys of the log."""

    async def story(node: Node) -> None:
        partition = await table(node)
        put(partition, [number % 30 for number in range(90)])
        share = node.cleaner.share()
        node.cleaner.share = lambda: share._replace(dedupe_buffer_bytes=24 * 12)  # type: ignore[method-assign]
        cleaned = await compacted(node, partition)
        assert isinstance(cleaned, Cleaned)
        assert node.cleaner.cleanings > 2
        assert cleaned.result.clean_up_to == 90
        assert (cleaned.result.records_read, cleaned.result.records_kept) == (90, 30)
        assert cleaned.size_bytes_after < cleaned.size_bytes_before
        assert offsets(partition) == list(range(60, 90))

    run(tmp_path, story)


def test_the_outlook_says_what_is_waited_for(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await table(node, min_compaction_lag_ms="3600000")
        put(partition, [number % 4 for number in range(40)])
        await flushed(partition)
        outlook = node.cleaner.outlook(partition, partition.runtime.now_ms())
        assert (outlook.state, outlook.because, outlook.first_uncleanable) == ("idle", "lag", 0)
        assert outlook.until_ms > partition.runtime.now_ms()
        assert outlook.dirty_ratio_min == 0.5

    run(tmp_path, story)


def test_a_cleaner_that_is_off_cleans_nothing(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        partition = await table(node, min_cleanable_dirty_ratio="0.0")
        put(partition, [number % 4 for number in range(40)])
        await flushed(partition)
        node.cleaner.start()
        node.cleaner.look()
        assert node.cleaner.outlook(partition, 0).state == "off"
        assert not node.cleaner.running
        with pytest.raises(RequestError, match=r"log\.cleaner\.enable=false"):
            node.cleaner.compact(partition, lambda *_: None)

    run(tmp_path, story, log_cleaner_enable="false")


def test_a_shorter_rest_begins_at_once(tmp_path: Path) -> None:
    async def story(node: Node) -> None:
        node.cleaner.start()
        await change(node, BROKER, "", log_cleaner_backoff_ms="5")
        await until(lambda: node.cleaner.rounds >= 3)

    run(tmp_path, story)
