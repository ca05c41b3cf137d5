"""Odd and spoilt requests in any order on several connections, so that they meet the state that others left behind."""

from __future__ import annotations

import os
import random
import struct
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.crash.harness import new_seed
from tests.fuzz.engine import keep, kept, spoil
from tests.hostile.odd_requests import may_wait, odd_message
from tests.hostile.peer import ROUTES, Peer, framed, raw_request
from tests.hostile.process import MIB, resident_bytes, standard_error
from tests.hostile.stage import stage

from strandline.broker.network.routes import Route
from strandline.codec.message_codec import encode
from strandline.codec.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from strandline.codec.messages.offset_fetch_request import OffsetFetchRequest, OffsetFetchRequestTopic
from strandline.local.embedded_broker import EmbeddedBroker

CONNECTIONS = 4
BODY_BYTES_MAX = 60_000
SHORT = 60
"""Examples for each API."""
LONG = int(os.environ.get("STRANDLINE_FUZZ_EXAMPLES") or 20_000)
POOL = 40
LOOK_EVERY = 500
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


def requests(examples: int, rng: random.Random) -> Iterator[bytes]:
    """So many requests of each API, in any order, each in any of its versions."""
    pools: dict[tuple[int, int], list[bytes]] = {}
    order = [route for route in ROUTES.values() for _ in range(examples)]
    rng.shuffle(order)
    for route in order:
        version = rng.randint(route.version_min, route.version_max)
        pool = pools.setdefault((route.api_key, version), [])
        if len(pool) < POOL or rng.random() < 0.05:
            body = body_that_meets_others(route, version, rng)
            pool[POOL - 1 :] = []
            pool.append(body)
        else:
            body = rng.choice(pool)
        if rng.random() < 0.5:
            body = spoil(body, rng)
            if may_wait(route, version, body):
                continue
        if len(body) <= BODY_BYTES_MAX:
            yield raw_request(route.api_key, version, body)


class Lines:
    """A few connections, each made anew when the broker hung up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._peers: list[Peer | None] = [None] * CONNECTIONS

    def ask(self, number: int, content: bytes) -> bool:
        """Whether the request was answered rather than hung up on."""
        peer = self._peers[number]
        if peer is None:
            peer = self._peers[number] = Peer(self._port)
        if peer.ask_raw(content) is not None:
            return True
        peer.close()
        self._peers[number] = None
        return False

    def close(self) -> None:
        for peer in self._peers:
            if peer is not None:
                peer.close()


def fuzz(broker: EmbeddedBroker, examples: int) -> None:
    rng = random.Random(new_seed())
    lines = Lines(broker.port)
    before = resident_bytes(broker.pid)
    last: deque[bytes] = deque(maxlen=LOOK_EVERY)
    asked = answered = 0
    try:
        for content in requests(examples, rng):
            last.append(content)
            asked += 1
            answered += lines.ask(rng.randrange(CONNECTIONS), content)
            if asked % LOOK_EVERY == 0:
                assert "Traceback" not in standard_error(broker.pid), "an exception of our own"
        assert "Traceback" not in standard_error(broker.pid), "an exception of our own"
    except (AssertionError, TimeoutError) as error:
        # What was asked before the last request may have made the state that it met.
        path = keep("live any", b"".join(last))
        error.add_note(f"the last {len(last)} requests are kept as {path.name}")
        raise
    finally:
        lines.close()
    grown = resident_bytes(broker.pid) - before
    print(f"{asked} requests, {answered} answered, memory grew by {grown / MIB:.0f} MiB")
    assert answered > asked // 4
    assert grown < GROWTH_BYTES_MAX


@pytest.mark.slow
def test_a_few_of_each(broker: EmbeddedBroker) -> None:
    fuzz(broker, SHORT)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_many_of_each(broker: EmbeddedBroker) -> None:
    fuzz(broker, LONG)


def frames(content: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(content):
        (size,) = struct.unpack_from(">i", content, at)
        yield framed(content[at + 4 : at + 4 + size])
        at += 4 + size


def replay(port: int, path: Path) -> None:
    """The frames of a file, one after the other; a broker may hang up on any of them, and has to answer in time."""
    lines = Lines(port)
    for content in frames(path.read_bytes()):
        lines.ask(0, content)
    lines.close()


@pytest.mark.slow
def test_what_once_broke_something(broker: EmbeddedBroker) -> None:
    """The stage tells whether an exception of ours was logged, or a turn of the loop took too long."""
    found = [path for name, path in kept() if name.startswith("live_")]
    assert found, "at least the offset that is to be kept for ever"
    for path in found:
        replay(broker.port, path)
        with Peer(broker.port) as peer:
            assert peer.is_served(), path.name


@pytest.mark.slow
def test_an_offset_that_is_to_be_kept_longer_than_time_can_tell(broker: EmbeddedBroker) -> None:
    """Found by the fuzzing above: the record could not be written, and the offset was in memory all the same."""
    kept_for_ever = OffsetCommitRequestPartition(partition_index=0, committed_offset=42)
    commit = OffsetCommitRequest(
        group_id="patient",
        retention_time_ms=2**63 - 1,
        topics=[OffsetCommitRequestTopic(name="target", partitions=[kept_for_ever])],
    )
    fetch = OffsetFetchRequest(
        group_id="patient", topics=[OffsetFetchRequestTopic(name="target", partition_indexes=[0])]
    )
    with Peer(broker.port) as peer:
        assert peer.ask(commit, 3).topics[0].partitions[0].error_code == 0
        assert peer.ask(fetch, 5).topics[0].partitions[0].committed_offset == 42
