"""Fetch with read_committed: never past the last stable offset, and told which transactions to leave out."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.log.engine import NOON_MS
from tests.unit.partition.test_partition import World
from tests.unit.partition.test_transactions import end, send

from strandline.codec.columns import records_of
from strandline.codec.fetch import FetchRequest, PartitionFetch
from strandline.codec.message_codec import decode_exact
from strandline.codec.messages.fetch_response import FetchResponse, PartitionData
from strandline.handlers.support.fetching.fetch_attempt import FetchAttempt
from strandline.partition.fetch_session import FetchSession, FetchSessions
from strandline.partition.following import make_follower

VERSION = 12


class Exchange:
    """Where the answer goes."""

    def __init__(self) -> None:
        self.answers: list[FetchResponse] = []
        self.on_abandoned: Any = lambda: None
        self.connection = SimpleNamespace(quota=None)

    def reply_pieces(self, pieces: list[Any], size: int) -> None:
        body = b""
        for piece in pieces:
            if isinstance(piece, bytes):
                body += piece
            else:
                body += piece.read()
                piece.release()
        assert len(body) == size
        self.answers.append(decode_exact(FetchResponse, VERSION, body))

    @property
    def partition(self) -> PartitionData:
        (answer,) = self.answers
        return answer.responses[0].partitions[0]


def fetch(
    world: World,
    offset: int,
    *,
    isolation_level: int = 1,
    wait_ms: int = 0,
    size_bytes_min: int = 1,
    size_max: int = 1 << 20,
    sessions: FetchSessions | None = None,
) -> Exchange:
    partition = world.partition
    node: Any = SimpleNamespace(
        topics={"orders": [partition]},
        runtime=world.runtime,
        count_error=lambda *_: None,
        errors=Counter(),
        sessions=FetchSessions(Random(1), sessions_max=0) if sessions is None else sessions,
    )
    session = FetchSession(0, uses_topic_ids=False)
    asked = PartitionFetch("orders", 0, -1, offset, -1, 0, size_max)
    session.update(FetchRequest(-1, 0, 0, 0, isolation_level, 0, -1, [asked], []))
    exchange = Exchange()
    attempt = FetchAttempt(node, exchange, session, VERSION, is_full=True)  # type: ignore[arg-type]
    attempt.size_bytes_min, attempt.size_bytes_max = size_bytes_min, size_max
    attempt.isolation_level, attempt.wait_ms = isolation_level, wait_ms
    exchange.on_abandoned = attempt.abandon
    attempt.look()
    return exchange


def offsets(data: PartitionData) -> list[int]:
    return [record.offset for record in records_of(data.records or b"")]


def told(data: PartitionData) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, flush_mode="async", segment_bytes=500)


def test_nothing_from_the_last_stable_offset_on_is_sent(world: World) -> None:
    world.append(b"plain")
    send(world, 1, 0)
    world.append(b"plain")
    data = fetch(world, 0).partition
    assert (offsets(data), data.high_watermark, data.last_stable_offset) == ([0], 3, 1)
    assert data.aborted_transactions == []
    behind = fetch(world, 1).partition
    assert (offsets(behind), behind.error_code) == ([], 0)
    everything = fetch(world, 0, isolation_level=0).partition
    assert offsets(everything) == [0, 1, 2]
    assert everything.aborted_transactions is None


def test_aborted_transactions_are_named_across_segments(world: World) -> None:
    partition = world.partition
    send(world, 1, 0)
    send(world, 2, 0)
    for number in range(8):
        world.append(b"plain" * 10)
        if number == 5:
            end(partition, 2, commit=True)
    end(partition, 1, commit=False)
    assert len(partition.log.segments) > 2
    assert partition.last_stable_offset == partition.log_end_offset
    offset, seen = 0, []
    while offset < partition.log_end_offset:
        data = fetch(world, offset).partition
        found = offsets(data)
        seen += found
        assert told(data) == [(1, 0)], "its marker lies behind all that was read, in another segment"
        offset = found[-1] + 1
    assert seen == list(range(partition.log_end_offset))


def test_what_begins_behind_the_records_is_not_named(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="async", index_interval_bytes=100)
    for number in range(60):
        send(world, 1, number)
        end(world.partition, 1, commit=False)
    data = fetch(world, 0, size_max=400).partition
    assert offsets(data)
    assert len(told(data)) <= len(offsets(data)) // 2 + 3
    assert told(data)[: len(offsets(data)) // 2] == [(1, at) for at in offsets(data)[::2]][: len(offsets(data)) // 2]


def test_a_follower_and_a_restart_tell_the_same(world: World) -> None:
    partition = world.partition
    send(world, 1, 0)
    end(partition, 1, commit=False)
    send(world, 2, 0)
    before = fetch(world, 0).partition
    make_follower(partition, 2, leader_epoch=9, partition_epoch=9)
    assert fetch(world, 0).partition == before
    assert (offsets(before), told(before)) == ([0, 1], [(1, 0)])


def test_a_reader_of_many_bytes_wakes_with_the_marker(tmp_path: Path) -> None:
    world = World(tmp_path, flush_mode="ack")
    for sequence in range(30):
        send(world, 1, sequence)
    world.runtime.settle()
    exchange = fetch(world, 0, wait_ms=60_000, size_bytes_min=1000)
    world.runtime.settle()
    assert exchange.answers == []
    end(world.partition, 1)
    world.runtime.settle()
    assert offsets(exchange.partition) == list(range(31))


def test_an_index_that_is_cold_is_read_by_a_thread(world: World) -> None:
    send(world, 1, 0)
    end(world.partition, 1, commit=False)
    world.partition.log.roll(NOON_MS)
    segment = world.partition.log.segments[0]
    segment.detach()
    exchange = fetch(world, 0)
    assert exchange.answers == []
    world.runtime.settle()
    assert told(exchange.partition) == [(1, 0)]
    assert segment.references == 0


def test_a_damaged_index_is_an_error_not_a_guess(world: World) -> None:
    send(world, 1, 0)
    end(world.partition, 1, commit=False)
    world.partition.log.roll(NOON_MS)
    segment = world.partition.log.segments[0]
    segment.detach()
    path = segment.path.with_suffix(".txnindex")
    path.write_bytes(path.read_bytes()[:-1])
    exchange = fetch(world, 0)
    world.runtime.settle()
    assert (exchange.partition.error_code, exchange.partition.records) == (56, b"")
    assert segment.references == 0


def test_fetches_without_a_session_that_wait_have_a_limit(world: World) -> None:
    """Each holds what it asks for in memory; one too many is answered at once with what there is."""
    sessions = FetchSessions(Random(1), sessions_max=0)
    sessions.waiting_max = 2
    first, second = (fetch(world, 0, wait_ms=60_000, sessions=sessions) for _ in range(2))
    assert first.answers == second.answers == [], "they wait"
    assert offsets(fetch(world, 0, wait_ms=60_000, sessions=sessions).partition) == []
    first.on_abandoned()
    third = fetch(world, 0, wait_ms=60_000, sessions=sessions)
    assert third.answers == [], "there is room again"
    world.append(b"plain")
    world.runtime.turn()
    assert offsets(second.partition) == offsets(third.partition) == [0]
    assert sessions.waiting == 0
