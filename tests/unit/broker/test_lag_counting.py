"""Records are counted for lag without holding anybody up: what is at hand at once, the rest in the background."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.unit.broker.test_lag_sampler import Stage
from tests.unit.log.engine import batch_of

from strandline.broker.coordinating import lag_counting, lag_sampler
from strandline.broker.coordinating.lag_leaders import LagLeaders
from strandline.broker.main import stop
from strandline.codec.messages.record_counts_request import PartitionPositions, RecordCountsRequest, TopicPositions
from strandline.codec.messages.record_counts_response import PartitionCounts
from strandline.handlers import k20006_record_counts
from strandline.log.segment import counting
from strandline.partition.counting import Counted
from strandline.partition.partition import Partition
from strandline.partition.transaction_appends import append_marker, begin_verification


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path)
    yield stage
    await stop(stage.node)


async def transactional(stage: Stage, transactions: int, *, commit: bool = True) -> Partition:
    """A partition with transactions of three records each."""
    if stage.node.partition("orders", 0) is None:
        await stage.create("orders")
    led = stage.node.partition("orders", 0)
    assert led is not None
    for _ in range(transactions):
        producer = led.producers.entries.get(7)
        sequence = 0 if producer is None else producer.last_sequence + 1
        guard = begin_verification(led, 7, 0, sequence)
        batch = batch_of([b"x"] * 3, producer_id=7, producer_epoch=0, sequence=sequence)
        led.append(as_transactional(batch), stage.node.runtime.now_ms(), guard=guard)
        append_marker(
            led,
            7,
            0,
            is_commit=commit,
            coordinator_epoch=1,
            transaction_version=1,
            now_ms=stage.node.runtime.now_ms(),
            on_committed=lambda _: None,
        )
    await stage.until(lambda: led.high_watermark == led.log.log_end_offset)
    return led


def as_transactional(batch: bytearray) -> bytearray:
    from crc32c import crc32c

    batch[22] |= 0x10
    batch[17:21] = crc32c(bytes(batch[21:])).to_bytes(4, "big")
    return batch


def walk_slowly(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in each turn of the loop."""
    monkeypatch.setattr(counting, "HEADERS_PER_TURN_MAX", 1)
    monkeypatch.setattr(counting, "WALK_CHUNK_BYTES", 100)


class Asking:
    """One request to the handler, as a connection has it."""

    api_version = 0

    def __init__(self, stage: Stage, offsets: list[int], *, timeout_ms: int = 0, topic: str = "orders") -> None:
        self.node = stage.node
        self.answers: list[Any] = []
        positions = TopicPositions(name=topic, partitions=[PartitionPositions(partition=0, offsets=offsets)])
        request = RecordCountsRequest(timeout_ms=timeout_ms, topics=[positions])
        k20006_record_counts.handle(self, request)  # type: ignore[arg-type]

    def reply(self, response: Any) -> None:
        self.answers.append(response)

    @property
    def partition(self) -> PartitionCounts:
        (answer,) = self.answers
        found: PartitionCounts = answer.topics[0].partitions[0]
        return found

    @property
    def records(self) -> list[int]:
        return [each.records for each in self.partition.counts]


async def ask(stage: Stage, *offsets: int, timeout_ms: int = 0) -> Asking:
    asking = Asking(stage, list(offsets), timeout_ms=timeout_ms)
    await stage.until(lambda: asking.answers)
    return asking


async def test_what_is_at_hand_is_answered_at_once(stage: Stage) -> None:
    await transactional(stage, 5)
    asking = await ask(stage, 0, 3, 4, 20)
    assert asking.records == [15, 12, 12, 0]
    assert (asking.partition.log_start_offset, asking.partition.high_watermark) == (0, 20)


async def test_what_takes_a_walk_is_counted_in_the_background(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_slowly(monkeypatch)
    led = await transactional(stage, 100)
    led.log.active.counts = None
    patient = Asking(stage, [0, 1], timeout_ms=60_000)
    impatient = Asking(stage, [0])
    await stage.until(lambda: impatient.answers)
    assert impatient.records == [-1], "it did not wait"
    assert not patient.answers
    await stage.until(lambda: patient.answers)
    assert patient.records == [300, 299]
    assert (await ask(stage, 4)).records == [297]


async def test_an_answer_does_not_wait_longer_than_it_may(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_slowly(monkeypatch)
    monkeypatch.setattr(lag_counting, "PAUSE_S", 3600.0)
    led = await transactional(stage, 10)
    led.log.active.counts = None
    assert (await ask(stage, 0, timeout_ms=20)).records == [-1]


async def test_searches_have_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_slowly(monkeypatch)
    monkeypatch.setattr(lag_counting, "PAUSE_S", 3600.0)
    monkeypatch.setattr(lag_counting, "SEARCHES_MAX", 2)
    led = await transactional(stage, 10)
    led.log.active.counts = None
    begun: list[bool] = []
    run = lag_counting.LagCounting.run

    def noted(self: lag_counting.LagCounting, search: Any, on_done: Any) -> bool:
        begun.append(run(self, search, on_done))
        return begun[-1]

    monkeypatch.setattr(lag_counting.LagCounting, "run", noted)
    for _ in range(4):
        await ask(stage, 0)
    assert begun == [True, True, False, False]


async def test_positions_have_a_limit(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(k20006_record_counts, "POSITIONS_MAX", 2)
    await transactional(stage, 2)
    assert (await ask(stage, 0, 1, 2)).records == [6, 5]


async def test_a_look_counts_records(stage: Stage) -> None:
    await transactional(stage, 4)
    led = await transactional(stage, 1, commit=False)
    await stage.commit("billing", "orders", 4)
    await stage.commit("audit", "orders", 20)
    # The first look at a segment with something aborted leaves a walk to the background.
    await stage.look()
    await stage.until(lambda: led.log.active.delivered is not None)
    seen = await stage.look()
    figures = seen["billing", "orders", 0].figures
    assert (figures.lag, figures.is_counted, figures.undecided, figures.end) == (9, True, 0, 20)
    assert seen["billing", "orders", 0].judgement.why.startswith("9 records unread, and no member reads the partition")
    assert seen["audit", "orders", 0].figures.is_counted
    await stage.commit("billing", "orders", 15)
    seen = await stage.look()
    assert seen["billing", "orders", 0].figures.lag == 0, "only a marker and what was aborted is left"
    assert seen["billing", "orders", 0].judgement.why == "caught up"


async def test_a_look_does_not_wait_for_a_walk(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_slowly(monkeypatch)
    led = await transactional(stage, 50)
    led.log.active.counts = None
    await stage.commit("billing", "orders", 0)
    seen = await stage.look()
    figures = seen["billing", "orders", 0].figures
    assert (figures.lag, figures.is_counted) == (200, False), "offsets, for now"
    await stage.until(lambda: led.log.active.counts is not None)
    figures = (await stage.look())["billing", "orders", 0].figures
    assert (figures.lag, figures.is_counted) == (150, True)
    assert figures.lag_trend == 0, "from offsets to records nothing was read"


async def test_only_some_walks_are_begun_in_each_look(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    walk_slowly(monkeypatch)
    monkeypatch.setattr(lag_sampler, "COUNTS_BEGUN_MAX", 1)
    led = await transactional(stage, 10)
    led.log.active.counts = None
    begun: list[int] = []
    begin = lag_counting.LagCounting.begin

    def noted(self: lag_counting.LagCounting, partition: Partition, offset: int, on_counted: Any) -> bool:
        begun.append(offset)
        return begin(self, partition, offset, on_counted)

    monkeypatch.setattr(lag_counting.LagCounting, "begin", noted)
    for offset in range(4):
        await stage.commit(f"group-{offset}", "orders", offset)
    await stage.look()
    assert len(begun) == 1


async def test_a_plain_topic_is_not_walked_over(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand groups cost what they did: a difference of offsets."""
    await stage.create("plain")
    await stage.write("plain", 3)
    monkeypatch.setattr(lag_counting, "count_unread", None)
    await stage.commit("billing", "plain", 5)
    figures = (await stage.look())["billing", "plain", 0].figures
    assert (figures.lag, figures.is_counted) == (25, True)


async def test_a_node_that_does_not_count_is_asked_for_offsets() -> None:
    """An older one, while a cluster is brought to this version."""
    channel = Older()
    told: list[Any] = []
    leaders = LagLeaders.__new__(LagLeaders)
    leaders._channel = lambda _: channel  # type: ignore[method-assign, assignment, return-value]
    leaders.ask(3, {("orders", 0): [5, 7]}, told.append)
    assert told == [{("orders", 0): ((2, 30), {})}]
    channel.counts = True
    leaders.ask(3, {("orders", 0): [5, 7, 5]}, told.append)
    assert told[1:] == [{("orders", 0): ((2, 30), {5: Counted(20, 1)})}]
    assert channel.asked == [[5, 7], [5, 7]]


class Older:
    """What another node says, without a network."""

    def __init__(self) -> None:
        self.counts = False
        self.asked: list[list[int]] = []

    def ask(self, request: Any, version: int, on_answer: Any, *, timeout_s: float) -> None:
        from strandline.codec.messages.list_offsets_response import (
            ListOffsetsPartitionResponse,
            ListOffsetsResponse,
            ListOffsetsTopicResponse,
        )
        from strandline.codec.messages.record_counts_response import PositionCount, RecordCountsResponse, TopicCounts
        from strandline.errors import Disconnected

        if not isinstance(request, RecordCountsRequest):
            offset = {-2: 2, -1: 30}[request.topics[0].partitions[0].timestamp]
            found = ListOffsetsPartitionResponse(partition_index=0, offset=offset)
            on_answer(ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="orders", partitions=[found])]), None)
            return
        self.asked.append(request.topics[0].partitions[0].offsets)
        if not self.counts:
            on_answer(None, Disconnected("it hung up"))
            return
        told = PartitionCounts(partition=0, log_start_offset=2, high_watermark=30)
        told.counts = [PositionCount(offset=5, records=20, undecided=1), PositionCount(offset=7)]
        on_answer(RecordCountsResponse(topics=[TopicCounts(name="orders", partitions=[told])]), None)
