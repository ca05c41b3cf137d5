"""A small HTTP/1.1 server on the node's loop, for a scraper and for probes: GET and HEAD, nothing else.

It shares the loop with everybody who produces and fetches, so everything has a limit: connections, bytes of a request,
the time a peer may take to ask and to read, and above all what one turn of the loop may spend on a page. A page is an
iterator of pieces; a share of them is made per turn and sent in chunks, no faster than the peer reads.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

log = logging.getLogger("strandline.http")

HEAD_BYTES_MAX: Final = 8 * 1024
HTTP_CONNECTIONS_MAX: Final = 16
REQUEST_S_MAX: Final = 10.0
"""How long a peer may take to say what it wants, once it has begun."""
IDLE_S_MAX: Final = 90.0
"""How long a connection is kept for the next request; scrapers come every 15 to 60 seconds."""
PAGE_S_MAX: Final = 60.0
"""How long a peer may take to read a page."""
PAGE_SHARE_S_MAX: Final = 0.002
"""What making a page may take of one turn of the loop."""
CHUNK_BYTES: Final = 16 * 1024

PLAIN: Final = "text/plain; charset=utf-8"

OK: Final = 200
BAD_REQUEST: Final = 400
NOT_FOUND: Final = 404
METHOD_NOT_ALLOWED: Final = 405
HEAD_TOO_LARGE: Final = 431
UNAVAILABLE: Final = 503
# Python's own table of these costs a fresh process more time than all the rest of this module.
_PHRASES: Final = {
    OK: "OK",
    BAD_REQUEST: "Bad Request",
    NOT_FOUND: "Not Found",
    METHOD_NOT_ALLOWED: "Method Not Allowed",
    HEAD_TOO_LARGE: "Request Header Fields Too Large",
    UNAVAILABLE: "Service Unavailable",
}


class Page(NamedTuple):
    """An answer. `pieces` may be made while it is sent."""

    status: int
    content_type: str
    pieces: Iterable[str]


class _Request(NamedTuple):
    method: str
    path: str
    is_http_1_0: bool
    wants_close: bool


class _Refused(Exception):
    """The peer is answered with this and hung up on."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status


def listening_socket(host: str, port: int) -> socket.socket:
    """Take the address; OSError if it is not to be had."""
    family, _, _, _, address = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[
        0
    ]
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.setblocking(False)
        listening.bind(address)
    except OSError:
        listening.close()
        raise
    return listening


class HttpServer:
    def __init__(
        self, pages: Mapping[str, Callable[[], Page]], context: Callable[[], ssl.SSLContext] | None = None
    ) -> None:
        """With a `context` it speaks HTTPS; each connection asks for the one in force."""
        self._pages = pages
        self._context = context
        self._server: asyncio.Server | None = None
        self._listening: socket.socket | None = None
        self._shaking: set[asyncio.Task[None]] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self.requests = 0
        self.refused = 0

    @property
    def serving(self) -> int:
        """Connections that are open."""
        return len(self._serving)

    async def start(self, listening: socket.socket) -> None:
        if self._context is not None:
            self._listening = listening
            listening.listen(HTTP_CONNECTIONS_MAX)
            asyncio.get_running_loop().add_reader(listening.fileno(), self._on_acceptable)
            return
        self._server = await asyncio.start_server(
            self._serve, sock=listening, limit=HEAD_BYTES_MAX, backlog=HTTP_CONNECTIONS_MAX
        )

    async def close(self) -> None:
        if self._listening is not None:
            asyncio.get_running_loop().remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None
        if self._server is not None:
            self._server.close()
        serving = [*self._serving, *self._shaking]
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)

    # HTTPS: connections are accepted here, so that those in a handshake are counted, too.

    def _on_acceptable(self) -> None:
        assert self._listening is not None
        try:
            accepted, _ = self._listening.accept()
        except OSError:
            return
        if len(self._serving) + len(self._shaking) >= HTTP_CONNECTIONS_MAX:
            self.refused += 1
            accepted.close()
            return
        accepted.setblocking(False)
        task = asyncio.get_running_loop().create_task(self._shake_hands(accepted))
        self._shaking.add(task)
        task.add_done_callback(self._shaking.discard)

    async def _shake_hands(self, accepted: socket.socket) -> None:
        assert self._context is not None
        reader = asyncio.StreamReader(limit=HEAD_BYTES_MAX)
        protocol = asyncio.StreamReaderProtocol(reader, self._serve)
        try:
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, accepted, ssl=self._context(), ssl_handshake_timeout=REQUEST_S_MAX
            )
        except (OSError, asyncio.CancelledError):
            # The peer left, is too slow, or speaks no TLS.
            self.refused += 1
            accepted.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._serving) >= HTTP_CONNECTIONS_MAX:
            self.refused += 1
            writer.transport.abort()
            return
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while await self._answer_one(reader, writer):
                pass
            # The end of the last page may still be on its way to a peer that reads slowly.
            writer.close()
            async with asyncio.timeout(PAGE_S_MAX):
                await writer.wait_closed()
        except (ConnectionError, TimeoutError, asyncio.IncompleteReadError):
            # The peer left, or is too slow to be waited for.
            pass
        finally:
            self._serving.discard(task)
            writer.transport.abort()

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; whether another may follow."""
        async with asyncio.timeout(IDLE_S_MAX):
            first = await reader.read(1)
        if not first:
            return False
        try:
            async with asyncio.timeout(REQUEST_S_MAX):
                request = _parsed(first + await reader.readuntil(b"\r\n\r\n"))
        except asyncio.LimitOverrunError:
            request = None
            refusal = _Refused(HEAD_TOO_LARGE, f"a request may have {HEAD_BYTES_MAX} bytes\n")
        except _Refused as caught:
            request = None
            refusal = caught
        self.requests += 1
        async with asyncio.timeout(PAGE_S_MAX):
            if request is None:
                self.refused += 1
                page = Page(refusal.status, PLAIN, [str(refusal)])
                await self._send(writer, page, _Request("GET", "", is_http_1_0=True, wants_close=True))
                return False
            await self._send(writer, self._page(request.path), request)
        return not (request.wants_close or request.is_http_1_0)

    def _page(self, path: str) -> Page:
        make = self._pages.get(path)
        if make is None:
            known = "".join(f"  {name}\n" for name in self._pages)
            return Page(NOT_FOUND, PLAIN, [f"Nothing is here. There is:\n{known}"])
        return make()

    async def _send(self, writer: asyncio.StreamWriter, page: Page, request: _Request) -> None:
        """The head, then the pieces: a share per turn, chunked, and never more in memory than the peer is behind."""
        chunked = not request.is_http_1_0
        closing = request.wants_close or request.is_http_1_0
        lines = [
            f"HTTP/1.1 {page.status} {_PHRASES[page.status]}",
            f"Content-Type: {page.content_type}",
            "Cache-Control: no-store",
            *(["Transfer-Encoding: chunked"] if chunked else []),
            *(["Connection: close"] if closing else []),
        ]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
        if request.method == "HEAD":
            await writer.drain()
            return
        gathered: list[str] = []
        size = 0
        until = time.monotonic() + PAGE_SHARE_S_MAX
        for piece in page.pieces:
            gathered.append(piece)
            size += len(piece)
            if size >= CHUNK_BYTES:
                _write(writer, "".join(gathered), chunked)
                gathered, size = [], 0
                await writer.drain()
            if time.monotonic() >= until:
                # Drain returns at once as long as the peer reads; others have their turn all the same.
                await asyncio.sleep(0)
                until = time.monotonic() + PAGE_SHARE_S_MAX
        _write(writer, "".join(gathered), chunked)
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()


def _write(writer: asyncio.StreamWriter, text: str, chunked: bool) -> None:
    data = text.encode()
    if data and chunked:
        writer.write(b"%x\r\n%b\r\n" % (len(data), data))
    elif data:
        writer.write(data)


def _parsed(head: bytes) -> _Request:
    """Return the request line and the two headers that matter; raise _Refused for any other request."""
    first, *headers = head.decode("latin-1").split("\r\n")
    words = first.split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise _Refused(BAD_REQUEST, "this is an HTTP/1.1 endpoint; Kafka clients connect to `listeners`\n")
    method, target, version = words
    if method not in ("GET", "HEAD"):
        raise _Refused(METHOD_NOT_ALLOWED, "only GET and HEAD are served\n")
    wants_close = False
    for header in headers:
        name, _, value = header.partition(":")
        name, value = name.strip().lower(), value.strip().lower()
        if name == "connection" and "close" in value:
            wants_close = True
        elif name == "transfer-encoding" or (name == "content-length" and value != "0"):
            # Its bytes would be taken for the next request.
            raise _Refused(BAD_REQUEST, "a request with a body is not served\n")
    return _Request(method, target.partition("?")[0], version == "HTTP/1.0", wants_close)
