"""SyslogSource: receives syslog over UDP and TCP. At most once: syslog has no acknowledgements."""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import logging
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from typing import Any, Final
from zoneinfo import ZoneInfo

from strandline.connect import schema
from strandline.connect.config import Config, option
from strandline.connect.failures import ConnectFailed, RetriableFailure
from strandline.connect.records import Batch, SourceOffsets, SourceRecord
from strandline.connect.source import Source
from strandline.connect.sources.listening import address_of, check_address, server_tls
from strandline.connect.sources.syslog_messages import SYSLOG_SCHEMA, SyslogFrames, parse_syslog
from strandline.connect.sources.time_zones import check_zone

log = logging.getLogger("strandline.connect")

REPORT_S: Final = 10.0
"""How often drops are logged at most."""
RECEIVE_BUFFER_BYTES: Final = 4 * 1024 * 1024
_CHUNK_BYTES: Final = 64 * 1024


class SyslogConfig(Config):
    """Settings of SyslogSource."""

    topic: str = option("Topic of the records.", importance="HIGH")
    udp_listen: str = option("Address and port for UDP; empty for none.", default="127.0.0.1:5514", check=check_address)
    tcp_listen: str = option("Address and port for TCP; empty for none.", default="127.0.0.1:5514", check=check_address)
    ssl_certificate_location: str | None = option("PEM file of the certificate chain; TLS on TCP if set.", default=None)
    ssl_key_location: str | None = option("PEM file of the private key, if it is not in that file.", default=None)
    timezone: str = option("Zone of times that have none (RFC 3164).", default="UTC", check=check_zone)
    message_max_bytes: int = option("Longest message; of a longer line the begin is kept.", default=65_536, low=480)
    queue_max_messages: int = option("Messages in memory.", default=20_000, low=1)
    queue_max_bytes: int = option("Their bytes.", default=32 * 1024 * 1024, low=65_536)
    connections_max: int = option("Open connections of TCP; one more is closed.", default=256, low=1)
    idle_timeout_ms: int = option("Time that a connection may be silent.", default=3_600_000, low=1)
    batch_max_records: int = option("Records of one batch.", default=1000, low=1)

    def check_all(self) -> Sequence[tuple[str, str]]:
        return [] if self.udp_listen or self.tcp_listen else [("tcp.listen", "neither UDP nor TCP is received")]


class _Messages:
    """A queue of messages with a bound on their number and bytes."""

    def __init__(self, messages_max: int, bytes_max: int) -> None:
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._queue: deque[tuple[bytes, str]] = deque()
        self._bytes = 0
        self._changed = asyncio.Condition()
        self._has_some = asyncio.Event()

    def add(self, message: bytes, remote: str) -> bool:
        """Append a message; return False if there is no room."""
        if len(self._queue) >= self._messages_max or self._bytes + len(message) > self._bytes_max:
            return False
        self._queue.append((message, remote))
        self._bytes += len(message)
        self._has_some.set()
        return True

    async def add_waiting(self, message: bytes, remote: str) -> None:
        """Append a message as soon as there is room."""
        async with self._changed:
            while not self.add(message, remote):
                await self._changed.wait()

    async def take(self, count_max: int) -> list[tuple[bytes, str]]:
        """Wait for messages; return the oldest."""
        while not self._queue:
            self._has_some.clear()
            await self._has_some.wait()
        found = [self._queue.popleft() for _ in range(min(count_max, len(self._queue)))]
        self._bytes -= sum(len(message) for message, _ in found)
        async with self._changed:
            self._changed.notify_all()
        return found


class SyslogSource(Source):
    """Receives syslog. `dropped` counts datagrams that came while the queue was full."""

    exactly_once = False
    Config = SyslogConfig
    config: SyslogConfig
    dropped = 0

    async def open(self) -> None:
        config = self.config
        self._messages = _Messages(config.queue_max_messages, config.queue_max_bytes)
        self._tasks: set[asyncio.Task[None]] = set()
        self._datagrams: asyncio.DatagramTransport | None = None
        self._server: asyncio.Server | None = None
        self._reported_s = 0.0
        if config.udp_listen:
            self._datagrams = await self._bind(config.udp_listen)
        if config.tcp_listen:
            host, port = address_of(config.tcp_listen)
            tls = server_tls(config.ssl_certificate_location, config.ssl_key_location)
            try:
                self._server = await asyncio.start_server(self._serve, host, port, ssl=tls, limit=_CHUNK_BYTES)
            except OSError as error:
                raise RetriableFailure(f"tcp.listen={config.tcp_listen} cannot be used: {error}") from None

    @property
    def udp_port(self) -> int:
        """The port of UDP."""
        if self._datagrams is None:
            raise ConnectFailed("UDP is not received")
        return int(self._datagrams.get_extra_info("sockname")[1])

    @property
    def tcp_port(self) -> int:
        """The port of TCP."""
        if self._server is None:
            raise ConnectFailed("TCP is not received")
        return int(self._server.sockets[0].getsockname()[1])

    async def read(self, offsets: SourceOffsets) -> AsyncIterator[Batch]:
        zone = ZoneInfo(self.config.timezone)
        while True:
            messages = await self._messages.take(self.config.batch_max_records)
            now = datetime.datetime.now(datetime.UTC)
            yield Batch([_record(parse_syslog(message, remote, now, zone)) for message, remote in messages])

    async def close(self) -> None:
        if not hasattr(self, "_messages"):
            return
        if self._datagrams is not None:
            self._datagrams.close()
        if self._server is not None:
            self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self.dropped:
            log.warning("%d datagrams of syslog were dropped, because the queue was full", self.dropped)

    def on_datagram(self, message: bytes, remote: str) -> None:
        """Take a datagram, or drop and count it."""
        message = message.rstrip(b"\r\n\0")[: self.config.message_max_bytes]
        if not message or self._messages.add(message, remote):
            return
        self.dropped += 1
        if time.monotonic() - self._reported_s > REPORT_S:
            self._reported_s = time.monotonic()
            log.warning("the queue is full: %d datagrams of syslog were dropped so far", self.dropped)

    async def _bind(self, address: str) -> asyncio.DatagramTransport:
        host, port = address_of(address)
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self), local_addr=(host, port)
            )
        except OSError as error:
            raise RetriableFailure(f"udp.listen={address} cannot be used: {error}") from None
        found = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            found.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        return transport

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        remote = _shown(writer.get_extra_info("peername"))
        try:
            if len(self._tasks) <= self.config.connections_max:
                await self._receive(reader, remote)
        except ValueError as error:
            log.warning("the connection of %s is closed: it sends %s", remote, error)
        except (OSError, TimeoutError) as error:
            log.debug("the connection of %s ended: %s", remote, error)
        except asyncio.CancelledError:
            # Only `close` cancels, and asyncio would log the cancelled callback of a connection as an error.
            pass
        finally:
            self._tasks.discard(task)
            writer.close()
            with contextlib.suppress(OSError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _receive(self, reader: asyncio.StreamReader, remote: str) -> None:
        frames = SyslogFrames(self.config.message_max_bytes)
        is_open = True
        while is_open:
            async with asyncio.timeout(self.config.idle_timeout_ms / 1000):
                data = await reader.read(_CHUNK_BYTES)
            is_open = bool(data)
            for message in frames.feed(data) if data else frames.end():
                # No more is read from the connection until there is room: its sender slows down.
                await self._messages.add_waiting(message, remote)


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, source: SyslogSource) -> None:
        self._source = source

    def datagram_received(self, data: bytes, addr: Any) -> None:
        self._source.on_datagram(data, _shown(addr))


def _shown(address: Any) -> str:
    return str(address[0]) if address else ""


def _record(value: dict[str, Any]) -> SourceRecord:
    """Return a record whose key is the host, so that a host's messages keep their order."""
    key = value["host"] or value["remote"]
    return SourceRecord(value=value, value_schema=SYSLOG_SCHEMA, key=key, key_schema=schema.STRING if key else None)
