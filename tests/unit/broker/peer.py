"""A connection without a socket: a transport that writes down what it is told, and routes that start nothing real."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable
from typing import Any

from strandline.broker.network.connection import Connection, Exchange
from strandline.broker.network.dispatch import Dispatcher
from strandline.broker.network.routes import Route
from strandline.broker.network.transport import Piece

PRODUCE, FETCH, HEARTBEAT = 0, 1, 12
FRAME_MAX = 10_000


class FakeTransport:
    peer_host = "198.51.100.7"
    peer_port = 40_001

    def __init__(self) -> None:
        self.is_congested = False
        self.unsent_bytes = 0
        self.sent: list[bytes | list[Piece]] = []
        self.reading = True
        self.closed = False
        self.on_send: Callable[[], None] | None = None

    def send(self, data: bytes) -> None:
        assert not self.closed
        self.sent.append(data)
        if self.on_send is not None:
            self.on_send()

    def send_pieces(self, pieces: list[Piece]) -> None:
        assert not self.closed
        self.sent.append(pieces)

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.closed = True

    @property
    def answered(self) -> list[int]:
        """The correlation ids of the answers, in the order in which they left."""
        heads = [part if isinstance(part, bytes) else part[0] for part in self.sent]
        return [struct.unpack_from(">i", head, 4)[0] for head in heads if isinstance(head, bytes)]


class NextTurn:
    """What is to be called on the next turn of the loop; `feed` takes the turns."""

    def __init__(self) -> None:
        self.runtime = self
        self._soon: deque[Callable[[], object]] = deque()

    def call_soon(self, callback: Callable[[], object]) -> None:
        self._soon.append(callback)

    def run(self) -> None:
        while self._soon:
            self._soon.popleft()()


class Broker:
    """A real dispatcher over routes that write down what was started; the test says when each request is answered."""

    def __init__(self, *, frame_size_max: int = FRAME_MAX, inbox_bytes_max: int = 1 << 30) -> None:
        self.started: list[tuple[int, int, int, bytes]] = []
        self.open: dict[int, Exchange] = {}
        self.at_once: set[int] = set()
        """API keys that are answered while they are started."""
        self.fails: set[int] = set()
        self.on_started: Callable[[memoryview], object] = lambda view: None
        routes = {
            key: Route(key, name, (0, 20), flexible_from, "none", hot=self.route(key))
            for key, name, flexible_from in ((PRODUCE, "Produce", 9), (FETCH, "Fetch", 12), (HEARTBEAT, "Heartbeat", 4))
        }
        node: Any = NextTurn()
        self.dispatcher = Dispatcher(node, routes, frame_size_max=frame_size_max, inbox_bytes_max=inbox_bytes_max)

    def route(self, api_key: int) -> Callable[..., None]:
        def start(
            _: object, connection: Connection, view: memoryview, at: int, version: int, correlation_id: int
        ) -> None:
            self.started.append((api_key, version, correlation_id, bytes(view[at:])))
            self.on_started(view)
            if api_key in self.fails:
                raise RuntimeError("a handler with a fault of its own")
            if api_key in self.at_once:
                connection.reply_now(correlation_id, False, b"at once")
                return
            self.open[correlation_id] = connection.begin(
                correlation_id, flexible_header=False, is_produce=api_key == PRODUCE
            )

        return start

    def connect(self) -> tuple[Connection, FakeTransport]:
        transport = FakeTransport()
        connection = Connection(self.dispatcher, transport)
        self.dispatcher.limits.welcome(connection)
        return connection, transport

    def answer(self, *correlation_ids: int) -> None:
        for each in correlation_ids:
            self.open.pop(each).reply(b"body %d" % each)

    @property
    def started_ids(self) -> list[int]:
        return [correlation_id for _, _, correlation_id, _ in self.started]


def request(
    correlation_id: int, *, key: int = PRODUCE, version: int = 3, body: bytes = b"", client_id: bytes | None = b"me"
) -> bytes:
    header = struct.pack(">hhih", key, version, correlation_id, -1 if client_id is None else len(client_id))
    frame = header + (client_id or b"") + body
    return struct.pack(">i", len(frame)) + frame


def feed(connection: Connection, data: bytes, *, step: int | None = None) -> None:
    """Bytes as they come from a socket, in one shared buffer that is overwritten by whoever receives next."""
    step = step or len(data) or 1
    buffer = bytearray(step)
    for at in range(0, len(data), step):
        part = data[at : at + step]
        buffer[: len(part)] = part
        with memoryview(buffer) as whole, whole[: len(part)] as view:
            connection.receive(view)
        buffer[:] = b"\xaa" * step
        turns: Any = connection.dispatcher.node
        turns.run()
