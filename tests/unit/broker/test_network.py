"""Outgoing connections over real sockets: a server in a thread that is told what to do with each request."""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from strandline.broker.network.channel import Channel
from strandline.broker.network.network import SocketNetwork, SocketOptions
from strandline.runtime.runtime import LoopRuntime

WITHIN_S = 30.0


class ThreadServer:
    """Answers each request by `act(connection, correlation_id, frame)`, one connection after the other."""

    def __init__(self, act: Callable[[socket.socket, int, bytes], object], family: int = socket.AF_INET) -> None:
        self.act = act
        self.accepted = 0
        host = "127.0.0.1" if family == socket.AF_INET else "::1"
        self._listening = socket.create_server((host, 0), family=family)
        self.port = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listening.accept()
            except OSError:
                return
            self.accepted += 1
            with connection:
                while frame := self._read(connection):
                    (correlation_id,) = struct.unpack_from(">i", frame, 4)
                    try:
                        self.act(connection, correlation_id, frame)
                    except OSError:
                        break

    def _read(self, connection: socket.socket) -> bytes:
        try:
            head = connection.recv(4, socket.MSG_WAITALL)
            return connection.recv(struct.unpack(">i", head)[0], socket.MSG_WAITALL) if len(head) == 4 else b""
        except OSError:
            return b""

    def close(self) -> None:
        # Whoever sits in accept is woken by this, and not by the close alone.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join(WITHIN_S)


def frame_of(correlation_id: int, body: bytes) -> bytes:
    return struct.pack(">iib", len(body) + 5, correlation_id, 0) + body


def echo(connection: socket.socket, correlation_id: int, frame: bytes) -> None:
    connection.sendall(frame_of(correlation_id, frame))


class Asker:
    """A channel on a loop of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.loop = asyncio.new_event_loop()
        self.runtime = LoopRuntime(self.loop)
        self.network = SocketNetwork(self.runtime, SocketOptions(10, -1, -1))
        self.channel = Channel(self.runtime, self.network, host, port, client_id="test")

    def ask(self, body: bytes = b"", *, timeout_s: float = WITHIN_S) -> bytes | BaseException:
        answered: asyncio.Future[bytes | BaseException] = self.loop.create_future()

        def on_answer(view: memoryview | None, error: BaseException | None) -> None:
            answered.set_result(error if view is None else bytes(view))  # type: ignore[arg-type]

        self.channel.ask_raw(1, 12, [body], on_answer, timeout_s=timeout_s)
        return self.loop.run_until_complete(asyncio.wait_for(answered, WITHIN_S))

    def close(self) -> None:
        self.channel.close()
        self.loop.run_until_complete(asyncio.sleep(0))
        self.runtime.close()
        self.loop.close()


@pytest.fixture
def parts() -> Iterator[list[Any]]:
    """What is to be closed in the end, the last first."""
    made: list[Any] = []
    yield made
    for each in reversed(made):
        each.close()


def test_asking_by_address_and_by_name(parts: list[Any]) -> None:
    server = ThreadServer(echo)
    parts.append(server)
    for host in ("127.0.0.1", "localhost"):
        asker = Asker(host, server.port)
        body = asker.ask(b"one")
        assert isinstance(body, bytes)
        assert body.endswith(b"one")
        assert isinstance(asker.ask(b"two"), bytes)
        asker.close()
    # `localhost` may mean ::1 first, where nobody listens: then the next address is tried.
    assert server.accepted == 2


def test_a_name_that_means_nothing(parts: list[Any]) -> None:
    asker = Asker("no-such-name.invalid", 9)
    parts.append(asker)
    error = asker.ask()
    assert "no-such-name.invalid is no address" in str(error)


def test_a_port_that_nobody_has(parts: list[Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    asker = Asker("127.0.0.1", port)
    parts.append(asker)
    assert "Connection refused" in str(asker.ask())
    nonsense = Asker("127.0.0.1", 70_000)
    parts.append(nonsense)
    assert type(nonsense.ask()).__name__ == "Disconnected"


def test_ten_megabytes_come_whole(parts: list[Any]) -> None:
    big = bytes(range(256)) * 40_000
    server = ThreadServer(lambda connection, number, _: connection.sendall(frame_of(number, big)))
    parts.append(server)
    asker = Asker("127.0.0.1", server.port)
    parts.append(asker)
    for _ in range(3):
        assert asker.ask() == big


def test_a_long_request_leaves_whole(parts: list[Any]) -> None:
    server = ThreadServer(echo)
    parts.append(server)
    asker = Asker("127.0.0.1", server.port)
    parts.append(asker)
    body = b"x" * 8_000_000
    answer = asker.ask(body)
    assert isinstance(answer, bytes)
    assert answer.endswith(body)


def test_a_server_that_dies_mid_answer_is_asked_again(parts: list[Any]) -> None:
    def die(connection: socket.socket, number: int, frame: bytes) -> None:
        connection.sendall(frame_of(number, b"x" * 100_000)[:50_000])
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        server.act = echo
        raise OSError("killed")

    server = ThreadServer(die)
    parts.append(server)
    asker = Asker("127.0.0.1", server.port)
    parts.append(asker)
    assert type(asker.ask()).__name__ == "Disconnected"
    assert isinstance(asker.ask(), bytes)
    assert server.accepted == 2


def test_a_silent_server_is_left(parts: list[Any]) -> None:
    server = ThreadServer(lambda *_: None)
    parts.append(server)
    asker = Asker("127.0.0.1", server.port)
    parts.append(asker)
    assert type(asker.ask(timeout_s=0.05)).__name__ == "TimedOut"
    server.act = echo
    assert isinstance(asker.ask(), bytes), "on a new connection"


def test_closing_while_it_connects_leaves_nothing_behind(parts: list[Any]) -> None:
    asker = Asker("127.0.0.1", 9)
    parts.append(asker)
    told: list[str] = []

    class Receiver:
        def receive(self, view: memoryview) -> None:
            told.append("receive")

        def on_connected(self) -> None:
            told.append("connected")

        def on_closed(self) -> None:
            told.append("closed")

        def on_congested(self) -> None: ...

        def on_drained(self) -> None: ...

    server = ThreadServer(echo)
    parts.append(server)

    async def turns(count: int) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    for count in range(4):
        outgoing = asker.network.connect("127.0.0.1", server.port, Receiver())
        asker.loop.run_until_complete(turns(count))
        told.clear()
        outgoing.close()
        asker.loop.run_until_complete(turns(10))
        assert not told, "nothing is told after a close"


class SilentNameServer:
    """A resolver that does not answer: look-ups of names wait until `answers` is set."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers = threading.Event()
        self.asked = 0
        self.was_asked = threading.Event()
        self._real = socket.getaddrinfo
        monkeypatch.setattr(socket, "getaddrinfo", self._look_up)

    def _look_up(self, host: str, *args: Any, **kwargs: Any) -> Any:
        if kwargs.get("flags") == socket.AI_NUMERICHOST:
            return self._real(host, *args, **kwargs)
        self.asked += 1
        self.was_asked.set()
        self.answers.wait(WITHIN_S)
        raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")


async def test_names_that_are_not_answered_keep_no_thread_from_the_disk_and_no_node_from_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    silent = SilentNameServer(monkeypatch)
    loop = asyncio.get_running_loop()
    runtime = LoopRuntime(loop)
    network = SocketNetwork(runtime, SocketOptions(50, -1, -1))
    closed: asyncio.Queue[str] = asyncio.Queue()
    receiver: Any = SimpleNamespace(on_closed=lambda: closed.put_nowait("closed"))
    outgoing = [network.connect("dead.invalid", 9092, receiver) for _ in range(20)]
    synced = loop.create_future()
    runtime.in_thread(lambda: "synced", lambda result, _: synced.set_result(result))
    assert await synced == "synced"
    assert await loop.run_in_executor(None, silent.was_asked.wait, WITHIN_S)
    assert silent.asked == 1, "twenty connections to one name ask once"
    runtime.close()
    assert not silent.answers.is_set(), "it would have waited for the resolver"
    assert closed.empty()
    silent.answers.set()
    for _ in outgoing:
        assert await asyncio.wait_for(closed.get(), WITHIN_S) == "closed"
