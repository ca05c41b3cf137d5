"""Bytes between a connection and a TLS socket, on the loop's readiness callbacks; the plain one is `socket_transport`.

OpenSSL encrypts in this process, so nothing goes from file to socket: batches are read in pieces of `CHUNK_BYTES_MAX`,
encrypted and sent, at most `TURN_BYTES_MAX` per turn of the loop. A chunk that the socket does not take whole must be
offered again as it is, so one chunk of a slow reader stays in memory, and `unsent_bytes` counts it.

OpenSSL hands out one record of at most 16 KiB per call, and keeps what it has decrypted. The loop sees only the socket,
so reading goes on until OpenSSL asks for more bytes, or on the next turn.

A handshake comes first, see `tls_handshakes`. A peer that never sends a byte costs no more than a plain connection.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from strandline.broker.network.connection import release
from strandline.broker.network.disconnects import Disconnects
from strandline.broker.network.socket_transport import TURN_BYTES_MAX, ReceiveBuffer, held_bytes
from strandline.broker.network.tls.tls_handshakes import Handshakes
from strandline.broker.network.transport import Piece, Receiver
from strandline.log.segment.log_slice import LogSlice
from strandline.runtime.runtime import Runtime

CHUNK_BYTES_MAX: Final = 64 * 1024
"""Bytes that are read, encrypted and sent by one call."""
RECEIVE_TURN_BYTES_MAX: Final = 512 * 1024
"""Bytes of one connection that are decrypted in one turn of the loop."""
_HANDSHAKE_RECORD: Final = 0x16


class TlsTransport:
    __slots__ = (
        "_chunk",
        "_context",
        "_fd",
        "_filling",
        "_handshakes",
        "_hangups",
        "_has_more",
        "_hostname",
        "_is_secured",
        "_loop",
        "_on_failed",
        "_on_secured",
        "_out",
        "_reading",
        "_runtime",
        "_sent",
        "_socket",
        "_wants_read",
        "_writing",
        "buffer",
        "closed",
        "is_between_nodes",
        "is_congested",
        "is_stepping",
        "peer_host",
        "receiver",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
        stream: socket.socket,
        buffer: ReceiveBuffer,
        hangups: Disconnects,
        host: str,
        *,
        context: ssl.SSLContext,
        handshakes: Handshakes,
        on_secured: Callable[[TlsTransport], object],
        on_failed: Callable[[TlsTransport, str, str], object],
        hostname: str | None = None,
        is_between_nodes: bool = False,
    ) -> None:
        """With a `hostname` this is the side of the client, which checks it.

        `on_secured` is called when the handshake is over. `on_failed(transport, reason, kind)` is called in place of
        it, and closes the connection.
        """
        self._loop = loop
        self._runtime = runtime
        self._socket: socket.socket | ssl.SSLSocket = stream
        self._fd = stream.fileno()
        self._context: ssl.SSLContext | None = context
        self._hostname = hostname
        self._handshakes = handshakes
        self._on_secured = on_secured
        self._on_failed = on_failed
        self._is_secured = False
        self.is_between_nodes = is_between_nodes
        self.is_stepping = False
        """Whether a thread uses the socket; it is closed when the thread is done."""
        self._out: deque[Piece] | None = None
        self._sent = 0
        """Bytes of the first piece that are in a chunk, or sent."""
        self._chunk: bytes | memoryview | None = None
        """What was offered to the socket, and must be offered again as it is."""
        self._reading = True
        self._wants_read = False
        """Whether the loop watches the socket for bytes."""
        self._has_more = False
        """Whether OpenSSL may hold bytes that the loop does not see."""
        self._writing = False
        self._filling = False
        self._hangups = hangups
        self.buffer = buffer
        self.receiver: Receiver | None = None
        self.closed = False
        self.is_congested = False
        self.unsent_bytes = 0
        self.peer_host = host

    @property
    def peer_port(self) -> int:
        try:
            return int(self._socket.getpeername()[1])
        except OSError:
            return 0

    @property
    def peer_certificate(self) -> bytes | None:
        """The certificate of the peer as DER, which was checked; None if it has shown none."""
        assert isinstance(self._socket, ssl.SSLSocket)
        return self._socket.getpeercert(binary_form=True)

    def attach(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._hangups.watch(self._fd, self)
        self._handshakes.begin(self)
        if self._hostname is None:
            self._watch(True)
        else:
            self._handshakes.step(self)

    def _watch(self, wants_read: bool) -> None:
        if wants_read != self._wants_read:
            self._wants_read = wants_read
            if wants_read:
                self._loop.add_reader(self._fd, self._on_readable)
            else:
                self._loop.remove_reader(self._fd)

    def _unwatch_writes(self) -> None:
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    # The handshake

    def _on_handshake_ready(self) -> None:
        self._watch(False)
        self._unwatch_writes()
        if self.closed or self.is_stepping:
            return
        if not isinstance(self._socket, ssl.SSLSocket) and self._hostname is None:
            try:
                first = self._socket.recv(1, socket.MSG_PEEK)
            except (BlockingIOError, InterruptedError):
                self._watch(True)
                return
            except OSError:
                first = b""
            if not first:
                self._hangups.leave(self)
                return
            if first[0] != _HANDSHAKE_RECORD:
                self.fail("it does not speak TLS, and this listener does: set security.protocol=SSL or SASL_SSL")
                return
        self._handshakes.step(self)

    def take_step(self) -> str | None:
        """Go on with the handshake, in a thread; return what it waits for, `read` or `write`, None if it is over."""
        if not isinstance(self._socket, ssl.SSLSocket):
            assert self._context is not None
            self._socket = self._context.wrap_socket(
                self._socket,
                server_side=self._hostname is None,
                server_hostname=self._hostname,
                do_handshake_on_connect=False,
            )
        try:
            self._socket.do_handshake()
        except ssl.SSLWantReadError:
            return "read"
        except ssl.SSLWantWriteError:
            return "write"
        return None

    def on_step(self, wanted: str | None, error: BaseException | None) -> None:
        """Go on where the thread stopped."""
        if self.closed:
            self._close_socket()
        elif error is not None:
            self.fail(_why_failed(error, is_client=self._hostname is not None))
        elif wanted == "read":
            self._watch(True)
        elif wanted == "write":
            self._writing = True
            self._loop.add_writer(self._fd, self._on_handshake_ready)
        else:
            self._is_secured = True
            self._context = None
            self._handshakes.end(self)
            self._on_secured(self)
            if self._reading and not self.closed:
                self._watch(True)
                # The first request may have come with the end of the handshake.
                self._on_readable()

    def fail(self, reason: str, *, kind: str = "protocol") -> None:
        if not self.closed:
            self._on_failed(self, reason, kind)

    # In

    def _on_readable(self) -> None:
        if not self._is_secured:
            self._on_handshake_ready()
            return
        receiver = self.receiver
        if receiver is None:
            return
        view = self.buffer.view[:RECEIVE_TURN_BYTES_MAX]
        room, size, is_over = len(view), 0, False
        self._has_more = False
        try:
            while size < room:
                got = self._socket.recv_into(view[size:])
                if got == 0:
                    is_over = True
                    break
                size += got
            else:
                self._has_more = True
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            # What OpenSSL itself has to send, an update of its keys, goes with the next answer.
            pass
        except OSError:
            # Reset by the peer, or bytes that are no TLS: the same as a close.
            is_over = True
        if size:
            receiver.receive(view[:size])
        if self.closed:
            return
        if is_over:
            self.pause()
            self._hangups.leave(self)
        elif self._has_more and self._reading:
            self._loop.call_soon(self._go_on_reading)

    def _go_on_reading(self) -> None:
        if self._reading and self._has_more and not self.closed:
            self._on_readable()

    def on_hangup(self) -> None:
        """Note that the peer is gone. What it sent before is still read, unless reading is paused."""
        while self._is_secured and self._reading and not self.closed:
            self._on_readable()
            if not self._has_more:
                break
        self.let_go()

    def let_go(self) -> None:
        receiver = self.receiver
        if receiver is not None:
            self.close()
            receiver.on_closed()

    def pause(self) -> None:
        self._reading = False
        if self._is_secured:
            self._watch(False)

    def resume(self) -> None:
        if self.closed or self._reading:
            return
        self._reading = True
        if self._is_secured:
            self._watch(True)
            if self._has_more:
                self._loop.call_soon(self._go_on_reading)

    # Out

    def send(self, data: bytes) -> None:
        if self.closed:
            return
        if self._out is not None:
            self._out.append(data)
            self.unsent_bytes += len(data)
        elif len(data) > CHUNK_BYTES_MAX:
            self._out = deque((data,))
            self._drain()
        else:
            try:
                self._socket.send(data)
            except ssl.SSLWantWriteError:
                self._out, self._chunk = deque(), data
                self._congest()
            except OSError:
                self._lost()

    def send_pieces(self, pieces: list[Piece]) -> None:
        if self.closed:
            release(pieces)
            return
        if self._out is None:
            self._out = deque(pieces)
        else:
            self._out.extend(pieces)
            self.unsent_bytes += held_bytes(pieces)
        if not self.is_congested:
            self._drain()

    def _congest(self) -> None:
        self.is_congested = True
        self.unsent_bytes = held_bytes(self._out or ()) + len(self._chunk or b"")
        if self.receiver is not None:
            self.receiver.on_congested()
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._drain)

    def _drain(self) -> None:
        """Encrypt and send what the socket takes, up to a turn's share."""
        budget = TURN_BYTES_MAX
        try:
            while budget > 0:
                if self._chunk is None:
                    self._chunk = self._next_chunk()
                    if self._filling:
                        return
                    if self._chunk is None:
                        break
                sent = self._socket.send(self._chunk)
                budget -= sent
                self._chunk = None if sent == len(self._chunk) else memoryview(self._chunk)[sent:]
        except ssl.SSLWantWriteError:
            self._congest()
            return
        except OSError:
            self._lost()
            return
        if self._chunk is not None or self._out:
            self._congest()
            return
        self._out = None
        self._unwatch_writes()
        if self.is_congested:
            self.is_congested = False
            self.unsent_bytes = 0
            if self.receiver is not None:
                self.receiver.on_drained()

    def _next_chunk(self) -> bytes | memoryview | None:
        """Take the next bytes from the queue. None if it is empty, or if a thread has to read them first."""
        out = self._out
        parts: list[bytes | memoryview] = []
        room = CHUNK_BYTES_MAX
        while out and room > 0:
            piece = out[0]
            whole = piece.size_bytes if isinstance(piece, LogSlice) else len(piece)
            size = min(whole - self._sent, room)
            if isinstance(piece, LogSlice):
                data = _read_nowait(piece, self._sent, size)
                if data is None:
                    if not parts:
                        self._fill(piece, size)
                    break
                parts.append(data)
            else:
                parts.append(piece if size == whole else memoryview(piece)[self._sent : self._sent + size])
            room -= size
            self._sent += size
            if self._sent == whole:
                self._sent = 0
                out.popleft()
                if isinstance(piece, LogSlice):
                    piece.release()
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _fill(self, head: LogSlice, size: int) -> None:
        """Have a thread read the next chunk, and bring what follows it into the page cache."""
        self.is_congested = True
        self.unsent_bytes = held_bytes(self._out or ())
        self._unwatch_writes()
        self._filling = True
        file, position = head.segment.file(), head.position + self._sent
        ahead = min(head.size_bytes - self._sent, TURN_BYTES_MAX)

        def read() -> bytes:
            file.warm(position, ahead)
            return file.read_at(position, size)

        self._runtime.in_thread(read, partial(self._filled, head, size))

    def _filled(self, head: LogSlice, size: int, data: bytes | None, error: BaseException | None) -> None:
        self._filling = False
        if self.closed:
            head.release()
            return
        assert self._out is not None
        if error is not None or data is None or len(data) != size:
            # The answer's length is already told; it can only be broken off.
            self._lost()
            return
        self._sent += size
        if self._sent == head.size_bytes:
            self._sent = 0
            self._out.popleft()
            head.release()
        self._chunk = data
        self._drain()

    # The end

    def _lost(self) -> None:
        """Notify the receiver that the peer is gone, on a later turn: our caller may be in the middle of its work."""
        receiver = self.receiver
        if receiver is not None:
            self.close()
            self._loop.call_soon(receiver.on_closed)

    def close(self) -> None:
        """Close without waiting for the peer."""
        if self.closed:
            return
        self.closed = True
        self._watch(False)
        self._unwatch_writes()
        self._handshakes.end(self)
        held = list(self._out or ())
        self._out = None
        if self._filling:
            # The thread still reads from the first one; it is released when the thread is done.
            held = held[1:]
        release(held)
        self._hangups.forget(self._fd)
        if not self.is_stepping:
            self._close_socket()
        self.receiver = None

    def _close_socket(self) -> None:
        stream = self._socket
        if self._is_secured and self._chunk is None and isinstance(stream, ssl.SSLSocket):
            # Tells the peer that nothing was cut off. It raises, because it would wait for the peer's own word.
            with contextlib.suppress(OSError, ValueError):
                stream.unwrap()
        self._chunk = None
        stream.close()


def _read_nowait(piece: LogSlice, skipped: int, size: int) -> bytes | None:
    try:
        return piece.segment.file().read_at_nowait(piece.position + skipped, size)
    except OSError:
        # The disk cannot read it: the thread will say so, and the connection ends.
        return None


def _why_failed(error: BaseException, *, is_client: bool) -> str:
    """Return in words why a handshake failed."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of the peer is rejected: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "").replace("_", " ").lower()
        if "wrong version number" in reason and is_client:
            return "the peer does not speak TLS"
        return f"the TLS handshake failed: {reason or 'the peer closed the connection'}"
    return "the TLS handshake failed: the peer closed the connection"
