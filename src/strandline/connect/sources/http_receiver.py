"""An HTTP/1.1 server inside a source's task: bodies, connections, memory and time have bounds.

h11 parses. A request is looked at before its body is read, so a client without the right token cannot fill memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import h11

from strandline.connect.config import Config, Password, option
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.sources.bodies import BodyInvalid, BodyTooLarge, unpacked
from strandline.connect.sources.listening import address_of, check_address, is_loopback, server_tls

log = logging.getLogger("strandline.connect")

HEADER_BYTES_MAX: Final = 32 * 1024
IDLE_S_MAX: Final = 60.0
"""The time that a connection may be open without a request."""
SEND_S_MAX: Final = 30.0
LINGER_S_MAX: Final = 1.0
LINGER_BYTES_MAX: Final = 1024 * 1024
"""What is read and thrown away of a refused body, so that the client sees the answer and no reset."""
_CHUNK_BYTES: Final = 64 * 1024


class HttpReceiverConfig(Config):
    """Settings of every source that receives HTTP requests."""

    listen: str = option(
        "Address and port to listen on; port 0 takes a free one.", default="127.0.0.1:8088", check=check_address
    )
    bearer_token: Password | None = option("Token that each request must have in `Authorization`.", default=None)
    allow_anonymous: bool = option(
        "Whether an address that other machines reach may be without a secret.", default=False
    )
    ssl_certificate_location: str | None = option("PEM file of the certificate chain; HTTPS if set.", default=None)
    ssl_key_location: str | None = option("PEM file of the private key, if it is not in that file.", default=None)
    body_max_bytes: int = option("Largest body, packed and unpacked.", default=4 * 1024 * 1024, low=1)
    queue_max_bytes: int = option("Bodies in memory; more are answered 503.", default=64 * 1024 * 1024, low=1)
    requests_max: int = option(
        "Requests that may wait for their transaction; more are answered 503.", default=200, low=1
    )
    connections_max: int = option("Open connections; one more is closed.", default=256, low=1)
    request_timeout_ms: int = option("Time for a request to arrive.", default=15_000, low=1)
    answer_timeout_ms: int = option("Time to wait for the transaction, then 503.", default=30_000, low=1)
    batch_max_records: int = option("Records of one batch, unless one request has more.", default=1000, low=1)

    def check_all(self) -> Sequence[tuple[str, str]]:
        if not self.listen:
            return [("listen", "listen is the address and port of the server, and cannot be empty")]
        if not (is_loopback(self.listen) or self.allow_anonymous or self.has_secret()):
            return [("listen", f"{self.listen} is reached by other machines: set a secret, or allow.anonymous=true")]
        return []

    def has_secret(self) -> bool:
        """Return whether requests must prove something."""
        return bool(self.bearer_token)


@dataclass(frozen=True)
class HttpRequest:
    """A request. `headers` are by lower-case name; `body` is as it was sent."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes = b""
    body_bytes_max: int = 0

    def unpacked(self) -> bytes:
        """Return the body without gzip. Raise BodyInvalid."""
        return unpacked(self.body, self.headers.get("content-encoding", ""), self.body_bytes_max)


@dataclass(frozen=True)
class HttpAnswer:
    """An answer."""

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: tuple[tuple[str, str], ...] = ()


def refused(status: int, message: str, *headers: tuple[str, str]) -> HttpAnswer:
    """Return an answer that says in one line why a request is refused."""
    return HttpAnswer(status, message.encode() + b"\n", headers=headers)


def busy(message: str) -> HttpAnswer:
    """Return 503, which asks the sender to try again."""
    return refused(503, message, ("Retry-After", "1"))


Admit = Callable[[HttpRequest], HttpAnswer | None]
"""Looks at a request without its body; returns an answer if it is refused."""
Handle = Callable[[HttpRequest], Awaitable[HttpAnswer]]


class HttpReceiver:
    """A server that gives each admitted request to `handle`."""

    def __init__(self, config: HttpReceiverConfig, admit: Admit, handle: Handle) -> None:
        self._config = config
        self._admit = admit
        self._handle = handle
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._held_bytes = 0

    async def open(self) -> None:
        """Listen. Raise RetriableFailure if the address is taken, ConnectFailed if it is not of this machine."""
        config = self._config
        host, port = address_of(config.listen)
        tls = server_tls(config.ssl_certificate_location, config.ssl_key_location)
        try:
            self._server = await asyncio.start_server(self._serve, host, port, ssl=tls, limit=_CHUNK_BYTES)
        except OSError as error:
            raise RetriableFailure(f"listen={config.listen} cannot be used: {error.strerror or error}") from None
        log.info("receives at %s://%s:%d", "http" if tls is None else "https", host, self.port)

    @property
    def port(self) -> int:
        if self._server is None:
            raise ConnectFailed("the server does not listen")
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening, let answers that are ready leave, and close the connections."""
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=0.1)
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if len(self._tasks) <= self._config.connections_max:
                await self._serve_requests(_Wire(reader, writer))
        except (TimeoutError, OSError, h11.ProtocolError):
            log.debug("a connection ended early", exc_info=True)
        except asyncio.CancelledError:
            # Only `close` cancels, and asyncio would log the cancelled callback of a connection as an error.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_requests(self, wire: _Wire) -> None:
        may_go_on = True
        while may_go_on:
            async with asyncio.timeout(IDLE_S_MAX):
                if not await wire.wait_for_request():
                    return
            answer = await self._answer(wire)
            may_go_on = await wire.send(answer)

    def _check(self, request: HttpRequest) -> HttpAnswer | None:
        """Refuse requests without the token, and those of pages in a browser if there is no secret to know."""
        token = self._config.bearer_token
        if token:
            given = request.headers.get("authorization", "").encode("utf-8")
            if not hmac.compare_digest(given, f"Bearer {token}".encode()):
                return refused(401, "the bearer token is missing or wrong", ("WWW-Authenticate", "Bearer"))
        elif not self._config.has_secret() and "origin" in request.headers:
            return refused(403, "pages in a browser may not send requests without a secret")
        return None

    async def _answer(self, wire: _Wire) -> HttpAnswer:
        bytes_max = self._config.body_max_bytes
        body = bytearray()
        try:
            async with asyncio.timeout(self._config.request_timeout_ms / 1000):
                request = await wire.head()
                answer = self._check(request) or self._admit(request)
                if answer is not None:
                    return answer
                async for part in wire.body():
                    body += part
                    self._held_bytes += len(part)
                    if len(body) > bytes_max:
                        return refused(413, f"the body has more than {bytes_max} bytes")
                    if self._held_bytes > self._config.queue_max_bytes:
                        return busy("too many bytes wait to be written")
            return await self._handle(replace(request, body=bytes(body), body_bytes_max=bytes_max))
        except h11.RemoteProtocolError as error:
            return refused(error.error_status_hint, f"the request is malformed: {error}")
        except BodyInvalid as error:
            return refused(413 if isinstance(error, BodyTooLarge) else 400, str(error))
        finally:
            self._held_bytes -= len(body)


class _Wire:
    """One connection: requests as they arrive, answers as they leave."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._parser = h11.Connection(h11.SERVER, HEADER_BYTES_MAX)
        self._reader = reader
        self._writer = writer
        self._is_head = False

    async def wait_for_request(self) -> bool:
        """Wait for the first bytes of a request; return False if the client has closed."""
        if self._parser.trailing_data[0]:
            return True
        found = await self._reader.read(_CHUNK_BYTES)
        self._parser.receive_data(found)
        return bool(found)

    async def head(self) -> HttpRequest:
        """Return a request without its body."""
        event = await self._next()
        if not isinstance(event, h11.Request):
            raise h11.RemoteProtocolError("the client closed before its request was whole")
        headers: dict[str, str] = {}
        for raw_name, value in event.headers:
            name, text = raw_name.decode("ascii"), value.decode("latin-1")
            # Several headers of one name are a list, as HTTP has it.
            headers[name] = f"{headers[name]}, {text}" if name in headers else text
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy in front may believe the other one, and see another request behind this one.
            raise h11.RemoteProtocolError("the body has two lengths")
        self._is_head = event.method == b"HEAD"
        return HttpRequest(event.method.decode("ascii"), event.target.decode("ascii").partition("?")[0], headers)

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the parts of the body."""
        if self._parser.they_are_waiting_for_100_continue:
            self._writer.write(self._parser.send(h11.InformationalResponse(status_code=100, headers=[])))
        while isinstance(event := await self._next(), h11.Data):
            yield bytes(event.data)

    async def send(self, answer: HttpAnswer) -> bool:
        """Send an answer; return whether the connection may carry another request."""
        parser = self._parser
        headers = [("Content-Type", answer.content_type), ("Content-Length", str(len(answer.body))), *answer.headers]
        if parser.their_state is not h11.DONE:
            headers.append(("Connection", "close"))
        events: list[h11.Event] = [h11.Response(status_code=answer.status, headers=headers)]
        if answer.body and not self._is_head:
            events.append(h11.Data(data=answer.body))
        for event in [*events, h11.EndOfMessage()]:
            self._writer.write(parser.send(event) or b"")
        async with asyncio.timeout(SEND_S_MAX):
            await self._writer.drain()
        if parser.their_state in (h11.SEND_BODY, h11.ERROR):
            await self._linger()
        if parser.our_state is not h11.DONE or parser.their_state is not h11.DONE:
            return False
        parser.start_next_cycle()
        return True

    async def _next(self) -> h11.Event | type[h11.NEED_DATA] | type[h11.PAUSED]:
        while (event := self._parser.next_event()) is h11.NEED_DATA:
            self._parser.receive_data(await self._reader.read(_CHUNK_BYTES))
        return event

    async def _linger(self) -> None:
        """Read the rest of what the client sends for a moment: a reset would take the answer from it."""
        left = LINGER_BYTES_MAX
        with contextlib.suppress(TimeoutError, OSError):
            if self._writer.can_write_eof():
                self._writer.write_eof()
            async with asyncio.timeout(LINGER_S_MAX):
                while left > 0 and (found := await self._reader.read(_CHUNK_BYTES)):
                    left -= len(found)
