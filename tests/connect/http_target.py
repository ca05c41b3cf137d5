"""A real HTTP server of the standard library that tests send requests to; a function decides what it answers."""

from __future__ import annotations

import ssl
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple, Self

from strandline.local.free_ports import free_port


class Request(NamedTuple):
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes
    connection: tuple[str, int]
    """The other side's address: requests of one connection have the same."""


class Reply(NamedTuple):
    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = {}
    closes: bool = False
    """Close the connection afterwards, without saying so."""


class HttpTarget:
    """A server that keeps what it was sent. It can be stopped and started again on its port."""

    def __init__(
        self, answer: Callable[[Request], Reply | None] = lambda _: None, *, certificate: Path | None = None
    ) -> None:
        """`certificate` is a file with a key and its certificate, for https."""
        self._certificate = certificate
        self.answer = answer
        """Returns a reply; None for status 200."""
        self.requests: list[Request] = []
        self.port = free_port()
        self.url = f"{'http' if certificate is None else 'https'}://127.0.0.1:{self.port}"
        self.running = 0
        self.running_max = 0
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        target = self

        class Handler(_Handler):
            pass

        Handler.target = target
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        self._server.daemon_threads = True
        if self._certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self._certificate)
            # The handshake is left to the first read, which is in the thread of its connection.
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()

    def stop(self) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def take(self, request: Request) -> Reply:
        with self._lock:
            self.requests.append(request)
            self.running += 1
            self.running_max = max(self.running, self.running_max)
        try:
            return self.answer(request) or Reply()
        finally:
            with self._lock:
                self.running -= 1

    def wait_until(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            time.sleep(0.001)

    @property
    def bodies(self) -> list[bytes]:
        return [each.body for each in self.requests]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    target: HttpTarget

    def handle(self) -> None:
        with suppress(ssl.SSLError, ConnectionError):
            super().handle()

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        request = Request(self.command, self.path, dict(self.headers), body, self.client_address)
        reply = self.target.take(request)
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(reply.body)))
        self.end_headers()
        self.wfile.write(reply.body)
        self.close_connection = self.close_connection or reply.closes

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET = _serve

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""
