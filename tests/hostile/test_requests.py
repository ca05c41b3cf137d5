"""Every API in every version, sound and spoilt: an answer or a closed connection, and the node goes on."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from tests.hostile.odd_requests import (
    UNKNOWN_TAGS,
    body_of,
    cuts,
    damages,
    every_route_and_version,
    may_wait,
    odd_message,
)
from tests.hostile.peer import Peer, answer_of, framed, header, raw_request, request, request_class
from tests.hostile.process import MIB, forget_peak, peak_resident_bytes, resident_bytes
from tests.hostile.stage import stage

from strandline.broker.network.routes import Route
from strandline.codec.message_codec import encode
from strandline.local.embedded_broker import EmbeddedBroker

SEED = 51_713
ROUTES_AND_VERSIONS = [
    pytest.param(route, version, id=f"{route.name}-{version}") for route, version in every_route_and_version()
]
GROWTH_BYTES_MAX = 48 * MIB
NEVER_TWICE_THE_SAME = (
    *("InitProducerId", "JoinGroup", "DescribeLogDirs", "GetTelemetrySubscriptions"),
    *("TransactionProgress", "ListSinks", "DescribeStorage", "MetricsHistory"),
)
"""Answers with new ids in them, with the free bytes of a disk, or with the time."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    # A group that begins at once, so that a JoinGroup by chance is answered soon.
    with stage({"target": 2}, properties={"group.initial.rebalance.delay.ms": "0"}) as log:
        yield log


class Line:
    """A connection that is made anew whenever the broker hung up."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._peer: Peer | None = None

    def settle(self, route: Route, version: int, body: bytes) -> bool:
        """Send one request; whether it was answered (with a message that is one) rather than hung up on."""
        if self._peer is None:
            self._peer = Peer(self._port)
        content = self._peer.ask_raw(raw_request(route.api_key, version, body))
        if content is None:
            self._peer.close()
            self._peer = None
            return False
        answer_of(route, version, content)
        return True

    def close(self) -> None:
        if self._peer is not None:
            assert self._peer.is_served()
            self._peer.close()


@pytest.fixture
def line(broker: EmbeddedBroker) -> Iterator[Line]:
    """Watches over the memory, too."""
    before = resident_bytes(broker.pid)
    forget_peak(broker.pid)
    made = Line(broker.port)
    yield made
    made.close()
    grown = peak_resident_bytes(broker.pid) - before
    assert grown < GROWTH_BYTES_MAX, f"memory grew by {grown / MIB:.0f} MiB"


@pytest.mark.parametrize(("route", "version"), ROUTES_AND_VERSIONS)
def test_odd_values_are_answered(line: Line, route: Route, version: int) -> None:
    rng = random.Random(f"{SEED} {route.name} {version}")
    print(f"seed {SEED}")
    answered = 0
    for _ in range(12):
        body = body_of(odd_message(route, version, rng), version)
        if body is not None:
            # A string that the format carries and the handler cannot use may still close the connection.
            answered += line.settle(route, version, body)
    assert answered, "not one odd request was answered"


@pytest.mark.parametrize(("route", "version"), ROUTES_AND_VERSIONS)
def test_an_empty_request_is_answered(line: Line, route: Route, version: int) -> None:
    message = request_class(route)()
    if route.name == "Produce":
        message.acks = -1  # type: ignore[attr-defined]
    assert line.settle(route, version, encode(message, version))


@pytest.mark.parametrize(("route", "version"), ROUTES_AND_VERSIONS)
def test_cut_and_damaged_requests(line: Line, route: Route, version: int) -> None:
    rng = random.Random(f"{SEED} spoilt {route.name} {version}")
    print(f"seed {SEED}")
    small = encode(request_class(route)(), version)
    odd = None
    while odd is None:
        odd = body_of(odd_message(route, version, rng), version, size_bytes_max=2000)
    for body in (small, odd):
        for cut in cuts(body, rng, samples=100 if body is small else 30):
            assert not line.settle(route, version, cut), f"{cut.hex()} was taken for a whole request"
    for spoilt in (*damages(small, rng, samples=12), *damages(odd, rng, samples=8)):
        if not may_wait(route, version, spoilt):
            line.settle(route, version, spoilt)
    for size in (0, 1, 7, 30, 200, 3000):
        line.settle(route, version, rng.randbytes(size))


@pytest.mark.parametrize(("route", "version"), ROUTES_AND_VERSIONS)
def test_unknown_tagged_fields_are_passed_over(broker: EmbeddedBroker, route: Route, version: int) -> None:
    message = request_class(route)()
    if route.name == "Produce":
        message.acks = -1  # type: ignore[attr-defined]
    body = encode(message, version)
    if version < route.flexible_from:
        with Peer(broker.port) as peer:
            # Without tagged fields these bytes are simply behind the message.
            assert peer.ask_raw(raw_request(route.api_key, version, body + UNKNOWN_TAGS)) is not None
        return
    assert body[-1] == 0
    tagged = header(route.api_key, version, flexible=False) + UNKNOWN_TAGS + body[:-1] + UNKNOWN_TAGS
    with Peer(broker.port) as peer:
        content = peer.ask_raw(framed(tagged))
        assert content is not None
        with Peer(broker.port) as plain:
            without = plain.ask_raw(request(message, version))
        assert without is not None
        if route.name not in NEVER_TWICE_THE_SAME:
            assert answer_of(route, version, content) == answer_of(route, version, without)
        assert peer.is_served()
