"""Peers that never ask, and peers that never finish asking: time is counted in ticks, so nobody has to wait here."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.hostile.peer import Peer, framed, header
from tests.hostile.silent_wire import Wire
from tests.hostile.stage import stage

from strandline.broker.network.connection import Connection
from strandline.broker.network.connection_limits import CLOSES_PER_TURN_MAX
from strandline.broker.network.deadlines import REQUEST_BYTES_PER_S_MIN, Deadlines
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.routes import Route

FIRST_S, PARTIAL_S = 30, 60
SILENT_REASON, PARTIAL_REASON = "no request within", "a request that was not complete"


class Room:
    """A dispatcher whose one API answers at once, or never."""

    def __init__(self, *, answers: bool = True, **deadlines: int) -> None:
        self.soon: deque[Callable[[], object]] = deque()
        self._answers = answers
        routes = {0: Route(0, "Produce", (0, 9), 99, "k00_produce", hot=self._start)}
        node: Any = SimpleNamespace(runtime=SimpleNamespace(call_soon=self.soon.append))
        self.dispatcher = Dispatcher(node, routes, frame_size_max=100 << 20, inbox_bytes_max=1 << 30)
        self.dispatcher.limits.deadlines = Deadlines(**deadlines)

    def _start(self, node: Any, connection: Any, view: Any, at: int, version: int, correlation_id: int) -> None:
        if not self._answers:
            connection.begin(correlation_id, flexible_header=False)

    def enter(self) -> tuple[Connection, Wire]:
        wire = Wire()
        connection = Connection(self.dispatcher, wire)  # type: ignore[arg-type]
        self.dispatcher.limits.welcome(connection)
        return connection, wire

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.dispatcher.limits.ticks += 1
            self.dispatcher.limits.close_stalled()
            while self.soon:
                self.soon.popleft()()


def receive(connection: Connection, content: bytes) -> None:
    connection.receive(memoryview(bytearray(content)))


def whole_request(size: int = 0) -> bytes:
    return framed(header(0, 9, flexible=False) + bytes(size))


def test_who_says_nothing_is_hung_up_on() -> None:
    room = Room()
    _, wire = room.enter()
    room.pass_time(FIRST_S - 1)
    assert not wire.closed
    room.pass_time(1)
    assert wire.closed
    assert not room.dispatcher.limits.connections


@pytest.mark.parametrize("beginning", [b"\0", b"\0\0\0\x20", whole_request()[:-1]])
def test_who_says_only_a_beginning_is_hung_up_on(beginning: bytes) -> None:
    room = Room()
    connection, wire = room.enter()
    receive(connection, beginning)
    room.pass_time(FIRST_S - 1)
    assert not wire.closed
    room.pass_time(1)
    assert wire.closed


def test_who_has_asked_once_may_be_silent() -> None:
    room = Room()
    at_once, wire_at_once = room.enter()
    receive(at_once, whole_request())
    in_crumbs, wire_in_crumbs = room.enter()
    for byte in whole_request():
        receive(in_crumbs, bytes((byte,)))
    room.pass_time(10 * PARTIAL_S)
    assert not wire_at_once.closed
    assert not wire_in_crumbs.closed


def test_a_byte_a_minute_is_hung_up_on() -> None:
    room = Room()
    connection, wire = room.enter()
    receive(connection, whole_request())
    receive(connection, whole_request(10_000)[:20])
    room.pass_time(PARTIAL_S - 1)
    receive(connection, b"\0")
    assert not wire.closed
    room.pass_time(1)
    assert wire.closed


@pytest.mark.parametrize(("bytes_per_s", "closed"), [(REQUEST_BYTES_PER_S_MIN, False), (900, True)])
def test_a_thin_line_has_its_time(bytes_per_s: int, closed: bool) -> None:
    room = Room()
    connection, wire = room.enter()
    receive(connection, whole_request(10_000_000)[:20])
    for _ in range(5 * PARTIAL_S):
        receive(connection, bytes(bytes_per_s))
        room.pass_time(1)
        if wire.closed:
            break
    assert wire.closed is closed


def test_each_request_has_its_own_time() -> None:
    room = Room()
    connection, wire = room.enter()
    stream = whole_request(30) * 20
    # There is always a request that is not whole, and never the same for long.
    receive(connection, whole_request() + stream[:7])
    for at in range(7, len(stream), 30):
        room.pass_time(PARTIAL_S // 3)
        receive(connection, stream[at : at + 30])
    assert not wire.closed


def test_who_waits_for_our_answer_is_left_alone() -> None:
    room = Room(answers=False)
    connection, wire = room.enter()
    # The second is whole and the third is not, but it is we who do not read on.
    receive(connection, whole_request() * 2 + whole_request()[:5])
    room.pass_time(10 * PARTIAL_S)
    assert not wire.closed


def test_nobody_is_hung_up_on_without_a_deadline() -> None:
    room = Room(first_request_timeout_ms=-1, partial_request_timeout_ms=-1)
    connection, wire = room.enter()
    receive(connection, b"\0")
    room.pass_time(100 * PARTIAL_S)
    assert not wire.closed


def test_ten_thousand_are_hung_up_on_a_share_in_each_turn() -> None:
    room = Room()
    wires = [room.enter()[1] for _ in range(10_000)]
    room.dispatcher.limits.ticks += FIRST_S
    room.dispatcher.limits.close_stalled()
    for turn in range(1, 10_000 // CLOSES_PER_TURN_MAX + 1):
        assert sum(wire.closed for wire in wires) == turn * CLOSES_PER_TURN_MAX
        if room.soon:
            room.soon.popleft()()
    assert all(wire.closed for wire in wires)


def test_idle_ones_are_closed_a_share_in_each_turn() -> None:
    room = Room()
    wires = [room.enter()[1] for _ in range(1000)]
    room.dispatcher.limits.ticks += 1000
    room.dispatcher.limits.close_idle(idle_s=600)
    assert sum(wire.closed for wire in wires) == CLOSES_PER_TURN_MAX
    while room.soon:
        room.soon.popleft()()
    assert all(wire.closed for wire in wires)


def test_a_real_node_hangs_up_on_the_silent_and_the_slow() -> None:
    # Long enough to ask in on a busy machine: a second is one tick, which may come at once.
    properties = {"connection.first.request.timeout.ms": "5000", "connection.partial.request.timeout.ms": "5000"}
    with stage({}, properties=properties) as log, Peer(log.port) as silent, Peer(log.port) as slow:
        with Peer(log.port) as asked:
            assert asked.is_served()
            assert slow.is_served()
            slow.send(whole_request()[:-1])
            assert silent.is_closed()
            assert slow.is_closed()
            assert asked.is_served()
        text = log.stderr_text()
        assert SILENT_REASON in text
        assert PARTIAL_REASON in text
