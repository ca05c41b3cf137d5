"""The real network: TCP sockets on the loop's readiness callbacks, in and out.

Connections are accepted a share per turn. Outgoing ones are made without blocking: a name is looked up in a thread,
then its addresses are tried one after the other. All sockets of a network receive into one piece of memory.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections import deque
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from strandline.broker.network.disconnects import Disconnects
from strandline.broker.network.name_lookup import LookUps
from strandline.broker.network.socket_transport import RECEIVE_BUFFER_BYTES, ReceiveBuffer, SocketTransport
from strandline.broker.network.transport import Accept, AcceptedTls, OutgoingReceiver, OutgoingTls, Piece
from strandline.config.node_config import BrokerConfig
from strandline.runtime.runtime import LoopRuntime

if TYPE_CHECKING:
    from strandline.broker.network.tls.tls_handshakes import Handshakes
    from strandline.broker.network.tls.tls_transport import TlsTransport

log = logging.getLogger("strandline.broker")

ACCEPTS_PER_TURN_MAX: Final = 64
BACKOFF_S: Final = 0.1
_OUT_OF_DESCRIPTORS: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class SocketOptions(NamedTuple):
    """What client sockets are asked to have; -1 leaves a buffer to the system, which fits it to the connection."""

    backlog: int
    send_buffer_bytes: int
    receive_buffer_bytes: int


class SocketNetwork:
    def __init__(self, runtime: LoopRuntime, options: SocketOptions) -> None:
        self.loop = runtime.loop
        self.runtime = runtime
        self.options = options
        self.hangups = Disconnects(runtime.loop)
        self._memory = memoryview(bytearray(RECEIVE_BUFFER_BYTES))
        self.outgoing_buffer = ReceiveBuffer(self._memory)
        self.look_ups = LookUps(runtime.loop)

    @classmethod
    def of(cls, runtime: LoopRuntime, config: BrokerConfig) -> SocketNetwork:
        options = SocketOptions(
            backlog=config.socket_listen_backlog_size,
            send_buffer_bytes=config.socket_send_buffer_bytes,
            receive_buffer_bytes=config.socket_receive_buffer_bytes,
        )
        return cls(runtime, options)

    @cached_property
    def handshakes(self) -> Handshakes:
        """The TLS handshakes of this loop, loaded when the first listener or connection needs them."""
        from strandline.broker.network.tls.tls_handshakes import Handshakes

        return Handshakes(self.loop, self.runtime)

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Accept,
        *,
        delay_s: Callable[[], float] | None = None,
        tls: AcceptedTls | None = None,
    ) -> SocketListening:
        return SocketListening(self, host, port, on_accept, delay_s or _no_delay, ReceiveBuffer(self._memory), tls)

    def connect(
        self, host: str, port: int, receiver: OutgoingReceiver, *, tls: OutgoingTls | None = None
    ) -> SocketOutgoing:
        return SocketOutgoing(self, host, port, receiver, tls)


def _no_delay() -> float:
    return 0.0


class SocketListening:
    def __init__(
        self,
        network: SocketNetwork,
        host: str,
        port: int,
        on_accept: Accept,
        delay_s: Callable[[], float],
        buffer: ReceiveBuffer,
        tls: AcceptedTls | None,
    ) -> None:
        self._network = network
        self._tls = tls
        self._loop = network.loop
        self._on_accept = on_accept
        self._delay_s = delay_s
        self._buffer = buffer
        self._socket: socket.socket | None = self._bind(host, port)
        bound = self._socket.getsockname()
        self.host: str = bound[0]
        self.port: int = bound[1]

    def _bind(self, host: str, port: int) -> socket.socket:
        family, _, _, _, address = socket.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listening = socket.socket(family, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if self._network.options.receive_buffer_bytes > 0:
                # Inherited by what is accepted. Later would be too late: the window is agreed on as a connection is
                # made.
                size = self._network.options.receive_buffer_bytes
                listening.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, size)
            listening.setblocking(False)
            listening.bind(address)
        except OSError:
            listening.close()
            raise
        return listening

    def open(self) -> None:
        assert self._socket is not None
        self._socket.listen(self._network.options.backlog)
        self._loop.add_reader(self._socket.fileno(), self._on_acceptable)

    def hold_back(self, is_held: bool) -> None:
        self._buffer.on_pressure(is_held)

    def close(self) -> None:
        if self._socket is not None:
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_acceptable(self) -> None:
        for _ in range(ACCEPTS_PER_TURN_MAX):
            if self._socket is None:
                return
            if delay_s := self._delay_s():
                # Those who come faster than they may wait in the kernel's queue.
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
        network = self._network
        transport: SocketTransport | TlsTransport
        if self._tls is None:
            transport = SocketTransport(self._loop, network.runtime, accepted, self._buffer, network.hangups, host)
        else:
            transport = self._secured(accepted, host, self._tls)
        receiver = self._on_accept(transport)
        if receiver is None:
            transport.close()
            return
        _prepare(accepted)
        if network.options.send_buffer_bytes > 0:
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, network.options.send_buffer_bytes)
        transport.attach(receiver)

    def _secured(self, accepted: socket.socket, host: str, tls: AcceptedTls) -> TlsTransport:
        from strandline.broker.network.tls.tls_transport import TlsTransport

        def on_secured(transport: TlsTransport) -> None:
            if transport.receiver is not None:
                tls.on_secured(transport.receiver, transport.peer_certificate)

        def on_failed(transport: TlsTransport, reason: str, kind: str) -> None:
            if transport.receiver is not None:
                tls.on_failed(transport.receiver, reason, kind)

        network = self._network
        return TlsTransport(
            self._loop,
            network.runtime,
            accepted,
            self._buffer,
            network.hangups,
            host,
            context=tls.server_context(),
            handshakes=network.handshakes,
            on_secured=on_secured,
            on_failed=on_failed,
            is_between_nodes=tls.is_between_nodes,
        )


def _prepare(stream: socket.socket) -> None:
    stream.setblocking(False)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    stream.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class SocketOutgoing:
    """A connection that is being made, then a transport that everything is handed on to."""

    def __init__(
        self, network: SocketNetwork, host: str, port: int, receiver: OutgoingReceiver, tls: OutgoingTls | None
    ) -> None:
        self._network = network
        self._loop = network.loop
        self._receiver: OutgoingReceiver | None = receiver
        self._transport: SocketTransport | TlsTransport | None = None
        self._tls = tls
        self._socket: socket.socket | None = None
        self._addresses: deque[tuple[Any, ...]] = deque()
        self.failure = ""
        self._failures: list[int] = []
        """What became of each address that was tried."""
        self.peer_host = host
        self._port = port
        try:
            numeric = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
        except (OSError, UnicodeError, OverflowError):
            network.look_ups.find(host, port, self._on_looked_up)
        else:
            self._loop.call_soon(self._on_looked_up, numeric, None)

    @property
    def peer_port(self) -> int:
        return self._port

    @property
    def is_congested(self) -> bool:
        return self._transport is not None and self._transport.is_congested

    @property
    def unsent_bytes(self) -> int:
        return 0 if self._transport is None else self._transport.unsent_bytes

    @property
    def is_refused(self) -> bool:
        return bool(self._failures) and all(each == errno.ECONNREFUSED for each in self._failures)

    # Connecting

    def _on_looked_up(self, found: list[tuple[Any, ...]] | None, error: BaseException | None) -> None:
        if self._receiver is None:
            return
        if error is not None:
            self.failure = f"{self.peer_host} is no address: {error}"
        self._addresses.extend(found or ())
        self._try_next()

    def _try_next(self) -> None:
        """Begin to connect to the next address; `on_closed` when there is none left."""
        while self._addresses:
            family, kind, protocol, _, address = self._addresses.popleft()
            try:
                stream = self._socket = socket.socket(family, kind, protocol)
                _prepare(stream)
                status = stream.connect_ex(address)
            except OSError as error:
                # Out of descriptors, or an address family that this machine does not have.
                self._forget_socket()
                self.failure = error.strerror or str(error)
                self._failures.append(error.errno or 0)
                continue
            if status in (0, errno.EINPROGRESS):
                self._loop.add_writer(stream.fileno(), self._on_connected)
                return
            self._note_failure(status)
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.on_closed()

    def _on_connected(self) -> None:
        stream, receiver = self._socket, self._receiver
        assert stream is not None
        assert receiver is not None
        self._loop.remove_writer(stream.fileno())
        status = stream.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if status == 0 and _is_self_connected(stream):
            status = errno.ECONNREFUSED
        if status:
            self._note_failure(status)
            self._try_next()
            return
        self.failure = ""
        self._socket = None
        network = self._network
        if self._tls is not None:
            self._shake_hands(stream, self._tls)
            return
        self._transport = SocketTransport(
            self._loop, network.runtime, stream, network.outgoing_buffer, network.hangups, self.peer_host
        )
        self._transport.attach(receiver)
        receiver.on_connected()

    def _shake_hands(self, stream: socket.socket, tls: OutgoingTls) -> None:
        from strandline.broker.network.tls.tls_transport import TlsTransport

        def on_secured(_: TlsTransport) -> None:
            if self._receiver is not None:
                self._receiver.on_connected()

        def on_failed(transport: TlsTransport, reason: str, _: str) -> None:
            self.failure = reason
            transport.let_go()

        network, receiver = self._network, self._receiver
        assert receiver is not None
        transport = self._transport = TlsTransport(
            self._loop,
            network.runtime,
            stream,
            network.outgoing_buffer,
            network.hangups,
            self.peer_host,
            context=tls.client_context(),
            handshakes=network.handshakes,
            on_secured=on_secured,
            on_failed=on_failed,
            hostname=self.peer_host,
            is_between_nodes=True,
        )
        transport.attach(receiver)

    def _note_failure(self, status: int) -> None:
        self.failure = os.strerror(status)
        self._failures.append(status)
        self._forget_socket()

    def _forget_socket(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    # Connected

    def send(self, data: bytes) -> None:
        assert self._transport is not None, "nothing is sent before the connection is there"
        self._transport.send(data)

    def send_pieces(self, pieces: list[Piece]) -> None:
        assert self._transport is not None, "nothing is sent before the connection is there"
        self._transport.send_pieces(pieces)

    def pause(self) -> None:
        if self._transport is not None:
            self._transport.pause()

    def resume(self) -> None:
        if self._transport is not None:
            self._transport.resume()

    def close(self) -> None:
        self._receiver = None
        self._addresses.clear()
        if self._transport is not None:
            self._transport.close()
        elif self._socket is not None:
            self._loop.remove_writer(self._socket.fileno())
            self._forget_socket()


def _is_self_connected(stream: socket.socket) -> bool:
    """A socket that tries a port of this machine without a listener may be given just this port, and meets itself."""
    try:
        return bool(stream.getsockname() == stream.getpeername())
    except OSError:
        # Reset already; the first read tells.
        return False
