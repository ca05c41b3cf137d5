"""The sampler on a node whose groups and logs the test fills by hand: what it sees, what it forgets, its limits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from uuid import UUID

import pytest
from tests.unit.log.engine import batch_of

from strandline.broker.coordinating import lag_sampler
from strandline.broker.coordinating.lag_judging import Judged, judged
from strandline.broker.main import node_on, stop
from strandline.codec.messages.offset_commit_value import OffsetCommitValue
from strandline.config.node_config import BrokerConfig
from strandline.coordinators.groups.classic.classic_group import ClassicGroup
from strandline.coordinators.groups.group_shard import GroupShard
from strandline.handlers import k20002_group_lag
from strandline.lag.figures import unread
from strandline.lag.samples import Sample
from strandline.lag.verdict import LagVerdict
from strandline.log.segment.segment import Segment
from strandline.partition import position_lookup
from strandline.quorum.controller.new_topics import NewTopic
from strandline.quorum.controller.topic_commands import TopicRef

CONFIG = BrokerConfig.load(
    "",
    {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "offsets.topic.num.partitions": "1",
        "group.lag.interval.ms": "0",
        "flush.mode": "async",
    },
)
MINUTE_MS = 60_000
WAIT_S = 30


class Stage:
    def __init__(self, data: Path) -> None:
        self.node = node_on(asyncio.get_running_loop(), data, CONFIG)
        self.node.start()

    async def create(self, name: str, partitions: int = 1) -> None:
        asked = [NewTopic(name=name, partition_count=partitions, replication_factor=1)]
        records, _ = self.node.controller.create_topics(asked, validate_only=False)
        await self.change(records)
        await self.until(lambda: self.node.partition(name, partitions - 1) is not None)

    async def change(self, records: list[object]) -> None:
        done = asyncio.get_running_loop().create_future()
        self.node.metadata.write(records, done.set_result)
        assert await done is None

    async def until(self, holds: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not holds():
            assert time.monotonic() < deadline
            await asyncio.sleep(0.005)

    async def shard(self) -> GroupShard:
        self.node.groups.ensure_topic()
        await self.until(lambda: self.node.partition("__consumer_offsets", 0) is not None)
        self.node.groups.load(0)
        await self.until(self.node.groups.loaded_shards)
        return self.node.groups.loaded_shards()[0]

    async def commit(self, group_id: str, topic: str, offset: int, partition: int = 0) -> None:
        shard = await self.shard()
        shard.groups.setdefault(group_id, ClassicGroup(group_id))
        found = self.node.image.topic_by_name(topic)
        assert found is not None
        shard.offsets.put(group_id, topic, partition, OffsetCommitValue(offset=offset, topic_id=found.id))

    async def write(self, topic: str, batches: int, *, age_ms: int = 0, partition: int = 0) -> None:
        """Batches of ten records."""
        led = self.node.partition(topic, partition)
        assert led is not None
        now_ms = self.node.runtime.now_ms()
        for _ in range(batches):
            led.append(batch_of([b"x" * 100] * 10, timestamps=[now_ms - age_ms] * 10), now_ms)
        await self.until(lambda: led.high_watermark == led.log.log_end_offset)

    async def look(self) -> dict[tuple[str, str, int], Judged]:
        node = self.node
        before = node.lag.rounds
        node.lag.look()
        await self.until(lambda: node.lag.rounds > before)
        return {
            (each.group_id, each.topic, each.partition): each
            for each in judged(node.environment, node.groups, node.lag)
        }


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    await stop(stage.node)


async def test_every_partition_and_group_by_itself(stage: Stage) -> None:
    await stage.create("orders", partitions=2)
    await stage.write("orders", 3, age_ms=MINUTE_MS)
    await stage.write("orders", 1, partition=1)
    await stage.commit("billing", "orders", 15)
    await stage.commit("billing", "orders", 10, partition=1)
    await stage.commit("audit", "orders", 30)
    seen = await stage.look()
    behind = seen["billing", "orders", 0].figures
    assert (behind.committed, behind.lag, behind.end) == (15, 15, 30)
    assert behind.lag_s is not None
    assert behind.lag_s >= 60
    assert seen["billing", "orders", 1].judgement.verdict is LagVerdict.OK
    assert seen["audit", "orders", 0].judgement.verdict is LagVerdict.OK
    assert len(seen) == 3


async def test_the_time_of_a_record_is_read_once(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    await stage.create("orders")
    await stage.write("orders", 3, age_ms=MINUTE_MS)
    await stage.commit("billing", "orders", 15)
    located: list[int] = []
    locate = position_lookup.locate

    def counted(segment: Segment, offset: int, *, may_block: bool) -> int | None:
        located.append(offset)
        return locate(segment, offset, may_block=may_block)

    monkeypatch.setattr(position_lookup, "locate", counted)
    for _ in range(3):
        await stage.look()
    assert located == [15]
    await stage.commit("billing", "orders", 16)
    await stage.look()
    assert located == [15, 16]


async def test_what_is_not_in_the_page_cache_is_known_at_the_next_look(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    await stage.create("orders")
    await stage.write("orders", 3, age_ms=MINUTE_MS)
    await stage.commit("billing", "orders", 15)
    locate = position_lookup.locate

    def cold(segment: Segment, offset: int, *, may_block: bool) -> int | None:
        if not may_block:
            raise lag_sampler.ColdRead
        return locate(segment, offset, may_block=True)

    monkeypatch.setattr(position_lookup, "locate", cold)
    first = await stage.look()
    assert first["billing", "orders", 0].figures.lag_s is None
    (window,) = [window for _, window in stage.node.lag.windows_of("billing")]
    await stage.until(lambda: window.standing is not None)
    second = await stage.look()
    assert (second["billing", "orders", 0].figures.lag_s or 0) >= 60


async def test_a_topic_that_was_made_anew_is_another_one(stage: Stage) -> None:
    await stage.create("orders")
    await stage.write("orders", 3)
    await stage.commit("billing", "orders", 15)
    assert await stage.look()
    old = stage.node.image.topic_by_name("orders")
    assert old is not None
    records, _ = stage.node.controller.delete_topics([TopicRef(name="orders")])
    await stage.change(records)
    await stage.create("orders")
    shard = await stage.shard()
    shard.offsets.put("billing", "orders", 0, OffsetCommitValue(offset=15, topic_id=old.id))
    assert not await stage.look(), "what was committed was committed for the other one"


async def test_groups_that_are_gone_are_forgotten(stage: Stage) -> None:
    await stage.create("orders")
    await stage.write("orders", 1)
    await stage.commit("billing", "orders", 5)
    await stage.look()
    shard = await stage.shard()
    shard.offsets.discard("billing", "orders", 0)
    assert not await stage.look()
    assert not stage.node.lag.windows_of("billing")


async def test_there_is_an_end_to_what_is_watched(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(lag_sampler, "POSITIONS_MAX", 4)
    caplog.set_level(logging.WARNING, "strandline.groups")
    await stage.create("orders")
    for number in range(6):
        await stage.commit(f"group-{number}", "orders", 0)
    for _ in range(2):
        assert len(await stage.look()) == 4
    assert len([line for line in caplog.messages if "positions of groups" in line]) == 1


async def test_an_answer_has_its_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k20002_group_lag, "POSITIONS_MAX", 4)
    await stage.create("orders", partitions=3)
    for group in ("a", "b", "c"):
        for partition in range(3):
            await stage.commit(group, "orders", 0, partition)
    await stage.look()

    class Context:
        node = stage.node
        api_version = 0

    parts = list(k20002_group_lag.encoded(Context(), ["nobody", "a", "a", "b", "c"]))  # type: ignore[arg-type]
    assert len([part for part in parts if part is not None]) == 2, "all of the first, one position of the second"


async def test_a_position_is_told_as_it_is_now_where_its_partition_is_led(stage: Stage) -> None:
    """Before any look, and after the group moved: a scrape does not wait for the next look."""
    await stage.create("orders")
    await stage.write("orders", 3)
    for committed, lag in ((15, 15), (30, 0), (40, 0), (0, 30)):
        now = stage.node.lag.now("billing", ("orders", 0), committed)
        assert now is not None
        assert unread(now) == lag
    assert stage.node.lag.now("billing", ("nowhere", 0), 1) is None


@pytest.mark.parametrize(
    ("committed", "lag"),
    [
        pytest.param(100, 7, id="it stands still: what was counted"),
        pytest.param(110, 7, id="it moved on: not more than was counted"),
        pytest.param(117, 3, id="it moved on: not more than there are offsets"),
        pytest.param(120, 0, id="it is at the end"),
        pytest.param(130, 0, id="it is behind the end"),
        pytest.param(50, 70, id="it was reset: offsets until the next look"),
        pytest.param(2, 110, id="it was reset to before the log start"),
    ],
)
async def test_a_position_of_a_partition_that_is_led_elsewhere(stage: Stage, committed: int, lag: int) -> None:
    tracked = stage.node.lag._tracked("billing", ("elsewhere", 0), UUID(int=7))
    assert stage.node.lag.now("billing", ("elsewhere", 0), committed) is None, "before the first look"
    tracked.add(Sample(1, committed=100, log_start=10, end=120, records=7))
    now = stage.node.lag.now("billing", ("elsewhere", 0), committed)
    assert now is not None
    assert unread(now) == lag
