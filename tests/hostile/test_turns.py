"""A connection that asks without end has its share of a turn, and the others theirs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from tests.hostile.peer import framed, header
from tests.hostile.silent_wire import Wire

from strandline.broker.network.connection import REQUESTS_PER_TURN_MAX, Connection
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.routes import Route


class Loop:
    """The next turn, and the requests that were started in this one."""

    def __init__(self) -> None:
        self.soon: deque[Callable[[], object]] = deque()
        self.started: list[int] = []
        routes = {0: Route(0, "Produce", (0, 9), 99, "k00_produce", hot=self._start)}
        node: Any = SimpleNamespace(runtime=SimpleNamespace(call_soon=self.soon.append))
        self.dispatcher = Dispatcher(node, routes, frame_size_max=1000, inbox_bytes_max=1 << 20)

    def _start(self, node: Any, connection: Any, view: Any, at: int, version: int, correlation_id: int) -> None:
        self.started.append(correlation_id)

    def turn(self) -> list[int]:
        """Run what waits for the next turn; what was started."""
        self.started.clear()
        for _ in range(len(self.soon)):
            self.soon.popleft()()
        return list(self.started)


def requests(first: int, count: int) -> bytes:
    return b"".join(framed(header(0, 9, flexible=False, correlation_id=first + n)) for n in range(count))


def test_requests_that_came_together_are_started_over_several_turns() -> None:
    loop, wire = Loop(), Wire()
    connection = Connection(loop.dispatcher, wire)  # type: ignore[arg-type]
    loop.dispatcher.limits.welcome(connection)
    share = REQUESTS_PER_TURN_MAX
    content = requests(0, 2 * share + 5)
    connection.receive(memoryview(bytearray(content[:-7])))
    assert loop.started == list(range(share))
    assert not wire.reading, "what is not dealt with yet stays in the peer's buffers"
    assert loop.turn() == list(range(share, 2 * share))
    assert not wire.reading
    assert loop.turn() == list(range(2 * share, 2 * share + 4))
    assert wire.reading
    assert loop.turn() == []
    connection.receive(memoryview(bytearray(content[-7:])))
    assert loop.started == [2 * share + 4]
    assert loop.dispatcher.limits.inbox_bytes == 0


def test_exactly_a_share_needs_no_second_turn() -> None:
    loop, wire = Loop(), Wire()
    connection = Connection(loop.dispatcher, wire)  # type: ignore[arg-type]
    loop.dispatcher.limits.welcome(connection)
    connection.receive(memoryview(bytearray(requests(0, REQUESTS_PER_TURN_MAX))))
    assert len(loop.started) == REQUESTS_PER_TURN_MAX
    assert wire.reading
    assert not loop.soon


def test_nothing_is_begun_on_a_later_turn_once_the_node_stops_or_the_peer_is_gone() -> None:
    for end in ("stop", "close"):
        loop, wire = Loop(), Wire()
        connection = Connection(loop.dispatcher, wire)  # type: ignore[arg-type]
        loop.dispatcher.limits.welcome(connection)
        connection.receive(memoryview(bytearray(requests(0, 100))))
        if end == "stop":
            loop.dispatcher.limits.is_stopping = True
        else:
            connection.on_closed()
        assert loop.turn() == []
