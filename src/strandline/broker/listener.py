"""Accepting connections, within limits."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
from typing import Final, NamedTuple

from strandline.broker.admission import Admission
from strandline.broker.connection import Connection
from strandline.broker.dispatch import Dispatcher
from strandline.broker.hangups import Hangups
from strandline.broker.socket_transport import ReceiveBuffer, SocketTransport
from strandline.observability.log_lines import fields
from strandline.runtime import LoopRuntime

log = logging.getLogger("strandline.broker")

ACCEPTS_PER_TURN_MAX: Final = 64
BACKOFF_S: Final = 0.1
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketOptions(NamedTuple):
    """What client sockets are asked to have; -1 leaves a buffer to the system, which fits it to the connection."""

    backlog: int
    send_buffer_bytes: int
    receive_buffer_bytes: int


class Listener:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime: LoopRuntime,
        dispatcher: Dispatcher,
        admission: Admission,
        options: SocketOptions,
    ) -> None:
        self._loop = loop
        self._runtime = runtime
        self._dispatcher = dispatcher
        self.admission = admission
        self._options = options
        self._buffer = ReceiveBuffer()
        dispatcher.on_pressure = self._buffer.on_pressure
        self._hangups = Hangups(loop)
        self._socket: socket.socket | None = None
        self._warned_at = -1

    def bind(self, host: str, port: int) -> tuple[str, int]:
        """Take the address; what was really bound (port 0 chooses one). Clients are served after `open`."""
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if self._options.receive_buffer_bytes > 0:
            # Inherited by what is accepted. Later would be too late: the window is agreed on as a connection is made.
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._options.receive_buffer_bytes)
        listening.setblocking(False)
        listening.bind(address)
        self._socket = listening
        bound = listening.getsockname()
        return bound[0], bound[1]

    def open(self) -> None:
        assert self._socket is not None
        self._socket.listen(self._options.backlog)
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if self._socket is None:
                return
            if delay_s := self.admission.delay_s(self._runtime.monotonic()):
                # Those who come faster than max.connection.creation.rate wait in the kernel's queue.
                self._pause(delay_s)
                return
            try:
                accepted, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_DESCRIPTORS:
                    raise
                self._back_off(error)
                return
            self.admission.note_creation()
            self._welcome(accepted, address[0])

    def _back_off(self, error: OSError) -> None:
        """No descriptor is free: leave the queue to the kernel for a moment instead of spinning on it."""
        log.warning("cannot accept connections: %s; raise `ulimit -n` or lower max.connections", error.strerror)
        self._pause(BACKOFF_S)

    def _pause(self, delay_s: float) -> None:
        assert self._socket is not None
        self._loop.remove_reader(self._socket.fileno())
        self._loop.call_later(delay_s, self._accept_again)

    def _accept_again(self) -> None:
        if self._socket is not None:
            self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def _welcome(self, accepted: socket.socket, host: str) -> None:
        dispatcher = self._dispatcher
        if self.admission.is_full_for(host, len(dispatcher.connections), dispatcher.connections_by_host.get(host, 0)):
            dispatcher.refusals["limit"] += 1
            if self._warned_at != dispatcher.ticks:
                # Once in a second is enough: a flood of connections is not to become a flood of lines.
                self._warned_at = dispatcher.ticks
                log.warning(
                    "%d connections; refusing one of %s: see max.connections, max.connections.per.ip, `ulimit -n`",
                    len(dispatcher.connections),
                    host,
                    extra=fields(host=host, connections=len(dispatcher.connections)),
                )
            accepted.close()
            return
        accepted.setblocking(False)
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        accepted.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._options.send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._options.send_buffer_bytes)
        transport = SocketTransport(self._loop, self._runtime, accepted, self._buffer, self._hangups, host)
        connection = Connection(dispatcher, transport)
        dispatcher.welcome(connection)
        transport.attach(connection)
