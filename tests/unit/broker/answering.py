"""A server in a simulated network that is told, request by request, what to answer; and what a channel was told."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from tests.simulator.world.loop import SimLoop
from tests.simulator.world.network import SimListening, SimNetwork
from tests.simulator.world.runtime import SimHost, SimRuntime

from strandline.broker.network.channel import Channel
from strandline.broker.network.transport import Transport

PORT = 9093
FETCH = 1


def answer(correlation_id: int, body: bytes, *, flexible: bool = True) -> bytes:
    head = struct.pack(">i", correlation_id) + (b"\0" if flexible else b"")
    return struct.pack(">i", len(head) + len(body)) + head + body


class Served:
    """A connection of the server; whole requests go to `on_request(transport, correlation_id, frame)`."""

    def __init__(self, server: Server, transport: Transport) -> None:
        self.server = server
        self.transport = transport
        self.inbox = b""

    def receive(self, view: memoryview) -> None:
        self.inbox += bytes(view)
        while len(self.inbox) >= 4 and len(self.inbox) - 4 >= (size := struct.unpack_from(">i", self.inbox)[0]):
            frame, self.inbox = self.inbox[4 : 4 + size], self.inbox[4 + size :]
            correlation_id = struct.unpack_from(">i", frame, 4)[0]
            self.server.requests.append(frame)
            self.server.on_request(self.transport, correlation_id, frame)

    def on_congested(self) -> None: ...

    def on_drained(self) -> None: ...

    def on_closed(self) -> None:
        self.server.gone += 1


class Server:
    def __init__(self, runtime: SimRuntime, network: SimNetwork) -> None:
        self.requests: list[bytes] = []
        self.transports: list[Transport] = []
        self.gone = 0
        self.on_request: Callable[[Transport, int, bytes], object] = self.echo
        self.listening: SimListening = network.of(runtime).listen("server", PORT, self.accept)
        self.listening.open()

    def accept(self, transport: Transport) -> Served:
        self.transports.append(transport)
        return Served(self, transport)

    def echo(self, transport: Transport, correlation_id: int, frame: bytes) -> None:
        transport.send(answer(correlation_id, frame))


class World:
    """A client and a server, a channel between them, and everything the channel told: (name, body, error)."""

    def __init__(self, seed: int = 1, *, serves: bool = True, **options: Any) -> None:
        self.loop = SimLoop(seed)
        self.network = SimNetwork(self.loop)
        self.server_host = SimHost(self.loop, "server")
        self.client = SimRuntime(SimHost(self.loop, "client"), 1)
        self.server = self.serve() if serves else None
        self.channel = Channel(self.client, self.network.of(self.client), "server", PORT, client_id="test", **options)
        self.told: list[tuple[str, bytes | None, BaseException | None]] = []

    def serve(self, life: int = 1) -> Server:
        self.server = Server(SimRuntime(self.server_host, life), self.network)
        return self.server

    def ask(self, name: str, *, timeout_s: float = 5.0) -> None:
        def on_answer(body: memoryview | None, error: BaseException | None) -> None:
            self.told.append((name, None if body is None else bytes(body), error))

        self.channel.ask_raw(FETCH, 12, [b"<", name.encode(), b">"], on_answer, timeout_s=timeout_s)
        assert not any(told == name for told, _, _ in self.told), "not before `ask` has returned"

    def run(self, seconds: float) -> None:
        self.loop.run_until(self.loop.now + seconds)

    @property
    def answered(self) -> list[str]:
        return [name for name, body, _ in self.told if body is not None]

    @property
    def failed(self) -> list[tuple[str, str]]:
        return [(name, type(error).__name__) for name, _, error in self.told if error is not None]
