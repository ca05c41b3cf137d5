"""Odd and spoilt requests in any order on several connections, so that they meet the state that others left behind."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.crash.harness import new_seed
from tests.hostile.odd_requests import every_route_and_version, may_wait, odd_message
from tests.hostile.peer import Peer
from tests.hostile.process import MIB, resident_bytes
from tests.hostile.stage import stage
from tests.hostile.test_decoders import spoil
from tests.hostile.test_requests import Line

from strandline.broker.routes import Route
from strandline.codec.message import encode
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from strandline.testing.embedded_broker import EmbeddedBroker

CONNECTIONS = 4
BODY_BYTES_MAX = 60_000
MEETING: dict[str, tuple[object, ...]] = {
    "group_id": ("g", "h", ""),
    "generation_id": (-1, 0, 1, 2),
    "generation_id_or_member_epoch": (-1, 0, 1, 2),
}
SHORT_TIMES = ("session_timeout_ms", "rebalance_timeout_ms")
GROWTH_BYTES_MAX = 128 * MIB


@pytest.fixture
def broker() -> Iterator[EmbeddedBroker]:
    # Sessions end within milliseconds, so that a member who never comes back keeps nobody waiting.
    properties = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "10"}
    with stage({"target": 2}, properties=properties) as log:
        yield log


def body_that_meets_others(route: Route, version: int, rng: random.Random) -> bytes:
    """An odd request whose groups and generations are often those of others."""
    message = odd_message(route, version, rng)
    for field in message.FIELDS:
        if field.present(version) and field.name in MEETING and rng.random() < 0.8:
            setattr(message, field.name, rng.choice(MEETING[field.name]))
        if field.present(version) and field.name in SHORT_TIMES:
            setattr(message, field.name, rng.choice((10, 50)))
    return encode(message, version)


def fuzz(broker: EmbeddedBroker, rounds: int) -> None:
    rng = random.Random(new_seed())
    lines = [Line(broker.port) for _ in range(CONNECTIONS)]
    before = resident_bytes(broker.pid)
    requests = answered = 0
    for _ in range(rounds):
        for route, version in every_route_and_version():
            body = body_that_meets_others(route, version, rng)
            if rng.random() < 0.4:
                body = spoil(body, rng)
                if may_wait(route, version, body):
                    continue
            if len(body) > BODY_BYTES_MAX:
                continue
            requests += 1
            answered += rng.choice(lines).settle(route, version, body)
    for line in lines:
        line.close()
    grown = resident_bytes(broker.pid) - before
    print(f"{requests} requests, {answered} answered, memory grew by {grown / MIB:.0f} MiB")
    assert answered > requests // 4
    assert grown < GROWTH_BYTES_MAX


def test_a_few_rounds(broker: EmbeddedBroker) -> None:
    fuzz(broker, 20)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_rounds(broker: EmbeddedBroker) -> None:
    fuzz(broker, 2000)


def test_an_offset_that_is_to_be_kept_longer_than_time_can_tell(broker: EmbeddedBroker) -> None:
    """Found by the rounds above: the record could not be written, and the offset was in memory all the same."""
    kept = OffsetCommitRequestPartition(partition_index=0, committed_offset=42)
    commit = OffsetCommitRequest(
        group_id="patient",
        retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name="target", partitions=[kept])],
    )
    fetch = OffsetFetchRequest(
        group_id="patient", topics=[OffsetFetchRequestTopic(name="target", partition_indexes=[0])]
    )
    with Peer(broker.port) as peer:
        assert peer.ask(commit, 3).topics[0].partitions[0].error_code == 0
        assert peer.ask(fetch, 5).topics[0].partitions[0].committed_offset == 42
