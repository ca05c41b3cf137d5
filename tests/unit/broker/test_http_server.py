"""The HTTP server keeps its limits, whatever a peer does, and leaves the loop to others while it writes a page."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.authority import Authority

from strandline.broker.metrics import http_server
from strandline.broker.metrics.http_server import HEAD_BYTES_MAX, HTTP_CONNECTIONS_MAX, OK, PLAIN, HttpServer, Page

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Server:
    """A real server on a free port, with two pages."""

    def __init__(self) -> None:
        self.made = 0
        self.server = HttpServer({"/small": self.small, "/long": self.long, "/hard": self.hard})
        self.port = 0

    def small(self) -> Page:
        return Page(OK, PLAIN, ["a small ", "page: \u00e9\n"])

    def long(self) -> Page:
        def pieces() -> Iterator[str]:
            for number in range(100_000):
                self.made = number + 1
                yield f"{number:099}\n"

        return Page(OK, PLAIN, pieces())

    def hard(self) -> Page:
        """Little to send, and much to compute."""

        def pieces() -> Iterator[str]:
            for _ in range(100):
                until = time.thread_time() + 0.0005
                while time.thread_time() < until:
                    pass
                yield "."

        return Page(OK, PLAIN, pieces())

    async def connect(self) -> Streams:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def ask(self, request: bytes) -> bytes:
        """One request on a connection of its own; everything that comes until the server hangs up."""
        reader, writer = await self.connect()
        writer.write(request)
        answer = await asyncio.wait_for(reader.read(), 20)
        writer.close()
        return answer


@pytest.fixture
async def server() -> AsyncIterator[Server]:
    made = Server()
    listening = http_server.listening_socket("127.0.0.1", 0)
    # So that what a peer has not read waits here, and not in the kernel.
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    made.port = listening.getsockname()[1]
    await made.server.start(listening)
    yield made
    await made.server.close()


def head_and_body(answer: bytes) -> tuple[bytes, bytes]:
    head, _, body = answer.partition(b"\r\n\r\n")
    return head, body


def unchunked(body: bytes) -> bytes:
    parts = []
    while True:
        size, _, body = body.partition(b"\r\n")
        if not int(size, 16):
            return b"".join(parts)
        parts.append(body[: int(size, 16)])
        body = body[int(size, 16) + 2 :]


async def test_a_page_comes_in_chunks(server: Server) -> None:
    head, body = head_and_body(await server.ask(b"GET /small?x=1 HTTP/1.1\r\nConnection: close\r\n\r\n"))
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert unchunked(body) == "a small page: \u00e9\n".encode()


async def test_an_old_client_gets_it_plain(server: Server) -> None:
    head, body = head_and_body(await server.ask(b"GET /small HTTP/1.0\r\n\r\n"))
    assert b"chunked" not in head
    assert body == "a small page: \u00e9\n".encode()


async def test_a_connection_is_kept_for_the_next_request(server: Server) -> None:
    answer = await server.ask(
        b"HEAD /small HTTP/1.1\r\n\r\nGET /small HTTP/1.1\r\n\r\nGET /nothing HTTP/1.1\r\nConnection: close\r\n\r\n"
    )
    assert answer.count(b"HTTP/1.1 200 OK") == 2
    assert answer.count(b"a small page") == 1, "HEAD has no body"
    assert b"HTTP/1.1 404 Not Found" in answer
    assert b"  /small\n  /long\n  /hard\n" in answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"POST /small HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /small HTTP/1.1\r\nContent-Length: 5\r\n\r\n", b"400"),
        (b"GET /small HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", b"400"),
        (b"GET /small\r\n\r\n", b"400"),
        (b"GET /small HTTP/2.0\r\n\r\n", b"400"),
        (b" \r\n\r\n", b"400"),
        (b"\xff\xfe\x00\r\n\r\n", b"400"),
        (b"GET /" + b"x" * HEAD_BYTES_MAX * 2 + b" HTTP/1.1\r\n\r\n", b"431"),
        (b"GET / HTTP/1.1\r\n" + b"x" * HEAD_BYTES_MAX * 2, b"431"),
    ],
)
async def test_what_is_not_served_is_told_and_hung_up_on(server: Server, request_bytes: bytes, status: bytes) -> None:
    head, body = head_and_body(await server.ask(request_bytes))
    assert head.split(b" ")[1] == status
    assert b"Connection: close" in head
    assert body


@pytest.mark.parametrize("request_bytes", [b"G", b"GET / HTTP/1.1\r\n"])
async def test_a_peer_that_does_not_finish_is_hung_up_on(
    server: Server, monkeypatch: pytest.MonkeyPatch, request_bytes: bytes
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_S_MAX", 0.05)
    assert await server.ask(request_bytes) == b""


async def test_a_peer_that_stays_silent_is_hung_up_on(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_server, "IDLE_S_MAX", 0.05)
    assert await server.ask(b"") == b""


async def test_a_peer_that_does_not_read_costs_a_buffer_and_not_a_page(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(http_server, "PAGE_S_MAX", 0.5)
    with socket.socket() as silent:
        silent.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        silent.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            silent.connect(("127.0.0.1", server.port))
        loop = asyncio.get_running_loop()
        await loop.sock_sendall(silent, b"GET /long HTTP/1.1\r\n\r\n")
        while server.server.serving != 1:  # noqa: ASYNC110  # there is nothing to wait for but the next turn
            await asyncio.sleep(0)
        while server.server.serving:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert server.made < 100_000, "no more was made than the peer's buffers hold"


@pytest.mark.lengthy("large inputs")
async def test_a_peer_that_reads_slowly_gets_the_whole_page(server: Server) -> None:
    loop, parts = asyncio.get_running_loop(), []
    with socket.socket() as peer:
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        await loop.sock_connect(peer, ("127.0.0.1", server.port))
        await loop.sock_sendall(peer, b"GET /long HTTP/1.1\r\nConnection: close\r\n\r\n")
        while part := await asyncio.wait_for(loop.sock_recv(peer, 16_384), 20):
            parts.append(part)
            for _ in range(20):  # Turns in which the server is far ahead.
                await asyncio.sleep(0)
    _, body = head_and_body(b"".join(parts))
    assert len(unchunked(body)) == 100 * 100_000


@pytest.mark.parametrize(
    ("path", "size"),
    [pytest.param("/long", 100 * 100_000, marks=pytest.mark.lengthy("large inputs")), ("/hard", 100)],
)
async def test_others_have_their_turn_while_a_page_is_made(server: Server, path: str, size: int) -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    _, body = head_and_body(await server.ask(f"GET {path} HTTP/1.1\r\nConnection: close\r\n\r\n".encode()))
    counting.cancel()
    assert len(unchunked(body)) == size
    assert turns > 20


async def test_one_connection_too_many_is_closed(server: Server) -> None:
    kept = [await server.connect() for _ in range(HTTP_CONNECTIONS_MAX)]
    for reader, writer in kept:
        writer.write(b"GET /small HTTP/1.1\r\n\r\n")
        assert await reader.readuntil(b"0\r\n\r\n")
    reader, writer = await server.connect()
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.wait_for(reader.read(), 20) == b""
    writer.close()
    for _, each in kept:
        each.close()


async def test_a_close_ends_what_is_being_sent(server: Server) -> None:
    reader, writer = await server.connect()
    writer.write(b"GET /long HTTP/1.1\r\n\r\n")
    await reader.readuntil(b"\r\n\r\n")
    await asyncio.wait_for(server.server.close(), 20)
    assert not server.server.serving
    writer.close()


# HTTPS


@pytest.fixture
async def secured(tmp_path: Path) -> AsyncIterator[tuple[Server, ssl.SSLContext]]:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.issue("node"))
    made = Server()
    made.server = HttpServer({"/small": made.small}, lambda: context)
    listening = http_server.listening_socket("127.0.0.1", 0)
    made.port = listening.getsockname()[1]
    await made.server.start(listening)
    yield made, ssl.create_default_context(cafile=str(authority.trusted))
    await made.server.close()


async def test_pages_over_tls(secured: tuple[Server, ssl.SSLContext]) -> None:
    server, context = secured
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    for _ in range(2):
        writer.write(b"GET /small HTTP/1.1\r\n\r\n")
        assert b"a small page" in await asyncio.wait_for(reader.readuntil(b"0\r\n\r\n"), 20)
    writer.close()


async def test_a_plain_request_to_https_is_closed(secured: tuple[Server, ssl.SSLContext]) -> None:
    server, _ = secured
    with contextlib.suppress(ConnectionResetError):
        assert b"HTTP/1.1" not in await server.ask(b"GET /small HTTP/1.1\r\n\r\n")
    assert server.server.refused == 1


async def test_silent_handshakes_are_counted(secured: tuple[Server, ssl.SSLContext]) -> None:
    server, context = secured
    silent = [await server.connect() for _ in range(HTTP_CONNECTIONS_MAX)]
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
    for _, each in silent:
        each.close()
