"""Bytes between a connection and a plain TCP socket, on the loop's readiness callbacks.

All sockets of a loop receive into one buffer. Answers leave by `send`, and batches from file to socket by `sendfile`,
at most `TURN_BYTES_MAX` per turn of the loop, so that one reader of old data cannot starve the others. What may not be
in the page cache is never given to sendfile: it is read in a thread first.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import Final

from strandline.broker.network.connection import release
from strandline.broker.network.disconnects import Disconnects
from strandline.broker.network.transport import Piece, Receiver
from strandline.log.segment.log_slice import LogSlice
from strandline.runtime.runtime import Runtime

RECEIVE_BUFFER_BYTES: Final = 2 * 1024 * 1024
RECEIVE_BYTES_UNDER_PRESSURE: Final = 16 * 1024
TURN_BYTES_MAX: Final = 1024 * 1024
COPY_BYTES_MAX: Final = 64 * 1024
"""A slice up to this size is read and sent together with what surrounds it: one call instead of three."""
GATHER_BYTES_MAX: Final = 256 * 1024
"""Bytes that are put together for one `send`. They are read when they are sent, and what the socket does not take is
read again: nothing of a slice waits in memory."""
SLICE_OVERHEAD_BYTES: Final = 200
"""What a slice that waits in its file takes in memory, with the bytes between it and the next one."""

MISSES_MAX: Final = 3
"""How often pages may be gone again before a part is sent from our own memory."""


class ReceiveBuffer:
    """What may be used of the one piece of memory of a loop. A view is good until the callback that got it returns."""

    def __init__(self, whole: memoryview) -> None:
        self._whole = whole
        self.view = whole

    def on_pressure(self, is_high: bool) -> None:
        """While requests fill the memory set aside for them, take little at a time: what is left over is kept."""
        self.view = self._whole[:RECEIVE_BYTES_UNDER_PRESSURE] if is_high else self._whole


class SocketTransport:
    __slots__ = (
        "_fd",
        "_filling",
        "_hangups",
        "_loop",
        "_misses",
        "_out",
        "_reading",
        "_runtime",
        "_sent",
        "_socket",
        "_writing",
        "buffer",
        "closed",
        "is_congested",
        "peer_host",
        "receiver",
        "unsent_bytes",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runtime: Runtime,
        accepted: socket.socket,
        buffer: ReceiveBuffer,
        hangups: Disconnects,
        host: str,
    ) -> None:
        self._loop = loop
        self._runtime = runtime
        self._socket = accepted
        self._fd = accepted.fileno()
        self._out: deque[Piece] | None = None
        self._sent = 0
        """Bytes of the first piece that are sent."""
        self._misses = 0
        self._reading = False
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
        # Asked for rarely, so no connection carries it about.
        try:
            return int(self._socket.getpeername()[1])
        except OSError:
            return 0

    def attach(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._hangups.watch(self._fd, self)
        self.resume()

    # In

    def _on_readable(self) -> None:
        receiver = self.receiver
        if receiver is None:
            return
        try:
            size = self._socket.recv_into(self.buffer.view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            # Reset by the peer, or timed out: the same as a close.
            size = 0
        if size == 0:
            self.pause()
            self._hangups.leave(self)
            return
        receiver.receive(self.buffer.view[:size])

    def on_hangup(self) -> None:
        """Note that the peer is gone. What it sent before is still read, unless reading is paused."""
        while self._reading and not self.closed:
            self._on_readable()
        self.let_go()

    def let_go(self) -> None:
        receiver = self.receiver
        if receiver is not None:
            self.close()
            receiver.on_closed()

    def pause(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)

    def resume(self) -> None:
        if not self._reading and not self.closed:
            self._reading = True
            self._loop.add_reader(self._fd, self._on_readable)

    # Out

    def send(self, data: bytes) -> None:
        if self.closed:
            return
        if self._out is not None:
            self._out.append(data)
            self.unsent_bytes += len(data)
            return
        try:
            sent = self._socket.send(data)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            self._lost()
            return
        if sent < len(data):
            self._out = deque((data,))
            self._sent = sent
            self._congest()

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
        if not self.is_congested:
            self._begin_congestion()
        if self.receiver is not None:
            self.receiver.on_congested()
        if not self._writing:
            self._writing = True
            self._loop.add_writer(self._fd, self._drain)

    def _begin_congestion(self) -> None:
        self.is_congested = True
        self.unsent_bytes = held_bytes(self._out or ())

    def _drain(self) -> None:
        """Send what the socket takes, up to a turn's share."""
        out = self._out
        budget = TURN_BYTES_MAX
        try:
            while out and budget > 0:
                parts = self._gather(out)
                if parts:
                    data = parts[0] if len(parts) == 1 else b"".join(parts)
                    size = len(data)
                    sent = self._socket.send(data, socket.MSG_MORE if len(parts) < len(out) else 0)
                else:
                    size = sent = self._send_file(out[0])
                    if sent < 0:
                        return
                budget -= sent
                self._advance(out, sent)
                if sent < size:
                    break
        except (BlockingIOError, InterruptedError):
            self._congest()
            return
        except OSError:
            self._lost()
            return
        if out:
            self._congest()
            return
        self._out = None
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        if self.is_congested:
            self.is_congested = False
            self.unsent_bytes = 0
            if self.receiver is not None:
                self.receiver.on_drained()

    def _gather(self, out: deque[Piece]) -> list[bytes | memoryview]:
        """Return what one `send` is to take: bytes, and small slices that the page cache holds. Empty if the first
        piece is to go by sendfile."""
        parts: list[bytes | memoryview] = []
        # A socket that was full takes little: what it leaves is read again.
        room = COPY_BYTES_MAX if self.is_congested else GATHER_BYTES_MAX
        skipped = self._sent
        for piece in out:
            if isinstance(piece, LogSlice):
                size = piece.size_bytes - skipped
                if size > COPY_BYTES_MAX or (size > room and parts):
                    break
                data = _read_small(piece, skipped, size)
                if data is None:
                    break
                parts.append(data)
            else:
                size = len(piece) - skipped
                if size > room and parts:
                    break
                parts.append(memoryview(piece)[skipped:] if skipped else piece)
            skipped = 0
            room -= size
        return parts

    def _advance(self, out: deque[Piece], sent: int) -> None:
        """Let go of the pieces that are sent, and remember how much of the next one is."""
        sent += self._sent
        while out:
            piece = out[0]
            if isinstance(piece, LogSlice):
                size = piece.size_bytes
                if sent < size:
                    break
                piece.release()
            else:
                size = len(piece)
                if sent < size:
                    break
            sent -= size
            out.popleft()
        self._sent = sent

    def _send_file(self, head: Piece) -> int:
        """Send a part of a slice; -1 if a thread must bring it into memory first."""
        assert isinstance(head, LogSlice)
        file = head.segment.file()
        position = head.position + self._sent
        size = min(head.size_bytes - self._sent, TURN_BYTES_MAX)
        if not (file.is_cached(position) and file.is_cached(position + size - 1)):
            self._fill(head, position, size)
            return -1
        sent = os.sendfile(self._fd, file.fileno(), position, size)
        if sent == 0:
            raise OSError(f"{head.segment.path} ends before {position + size}")
        self._misses = 0
        return sent

    def _fill(self, head: LogSlice, position: int, size: int) -> None:
        """Have a thread read the next part, so that the page cache holds it; sending goes on when it does.

        Nothing is kept in our own memory, however many readers of old data are slow. Only where the pages are gone
        again before they could be sent, time after time, is a small part read to be sent from here.
        """
        if not self.is_congested:
            self._begin_congestion()
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._filling = True
        self._misses += 1
        file = head.segment.file()
        if self._misses > MISSES_MAX:
            size = min(size, COPY_BYTES_MAX)
            self._runtime.in_thread(lambda: file.read_at(position, size), partial(self._filled, head, size))
        else:
            self._runtime.in_thread(lambda: file.warm(position, size), partial(self._filled, head, 0))

    def _filled(self, head: LogSlice, size: int, data: bytes | None, error: BaseException | None) -> None:
        self._filling = False
        if self.closed:
            head.release()
            return
        assert self._out is not None
        if error is not None or len(data or b"") != size:
            # The answer's length is already told; it can only be broken off.
            self._lost()
            return
        if data:
            head.position += self._sent + size
            head.size_bytes -= self._sent + size
            if not head.size_bytes:
                self._out.popleft()
                head.release()
            self._out.appendleft(data)
            self._sent = 0
        self._drain()

    # The end

    def _lost(self) -> None:
        """Notify the receiver that the peer is gone, on a later turn: our caller may be in the middle of its work."""
        receiver = self.receiver
        if receiver is not None:
            self.close()
            self._loop.call_soon(receiver.on_closed)

    def close(self) -> None:
        if self.closed:
            return
        self.closed = True
        self.pause()
        if self._writing:
            self._loop.remove_writer(self._fd)
        held = list(self._out or ())
        self._out = None
        if self._filling:
            # The thread still reads from the first one; it is released when the thread is done.
            held = held[1:]
        for piece in held:
            if isinstance(piece, LogSlice):
                piece.release()
        self._hangups.forget(self._fd)
        self._socket.close()
        # Both are freed now, and ten thousand that leave at once are no work for the garbage collector.
        self.receiver = None


def held_bytes(pieces: Iterable[Piece]) -> int:
    """Return how many bytes of memory these pieces take while they wait."""
    return sum(map(_held, pieces))


def _held(piece: Piece) -> int:
    if isinstance(piece, LogSlice):
        return SLICE_OVERHEAD_BYTES
    # A view keeps the whole block that it is a part of.
    return len(piece) if isinstance(piece, bytes) else memoryview(piece.obj).nbytes


def _read_small(piece: LogSlice, skipped: int, size: int) -> bytes | None:
    """The rest of a small slice, if the page cache holds it."""
    try:
        return piece.segment.file().read_at_nowait(piece.position + skipped, size)
    except OSError:
        # The disk cannot read it. The answer's length is told already, so sending it as a file ends the connection.
        return None
