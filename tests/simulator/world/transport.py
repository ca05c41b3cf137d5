"""One end of a simulated connection: what the process sends waits here, and what arrives is handed over in pieces."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

from tests.simulator.world.flips import flipped
from tests.simulator.world.runtime import SimRuntime

from strandline.broker.network.transport import OutgoingReceiver, Piece, Receiver
from strandline.log.segment.log_slice import LogSlice

if TYPE_CHECKING:
    from tests.simulator.world.network import SimNetwork

FRAGMENTS_MAX: Final = 4
_POISON: Final = bytes(range(200, 240)) * 2000


class SimTransport:
    def __init__(self, network: SimNetwork, runtime: SimRuntime, host: str, port: int, *, own_port: int) -> None:
        self._network = network
        self.loop = network.loop
        self.actor = runtime.actor
        self.own_host = runtime.host.name
        self.own_port = own_port
        self.peer_host = host
        self.peer_port = port
        self.number = network.new_number()
        self.receiver: Receiver | None = None
        self.connecting: OutgoingReceiver | None = None
        self.peer: SimTransport | None = None
        self.closed = False
        self.is_congested = False
        self.failure = ""
        self.is_refused = False
        self.held: list[bytes | None] = []
        """What was sent into a way that is cut; TCP sends it again. None is the end of the stream."""
        self._out: deque[Piece] = deque()
        self._begun: LogSlice | None = None
        """The slice of which a part was sent: what follows may begin within a batch, where no bit may flip."""
        self._in_flight = 0
        self._inbox: deque[tuple[float, bytes | None]] = deque()
        self._last_at = 0.0
        self._is_reading = True
        self._is_delivery_due = False
        self._gives_up_at = 0.0
        network.transports[self.number] = self

    @property
    def is_peer_gone(self) -> bool:
        return self.peer is None or self.peer.closed

    @property
    def unsent_bytes(self) -> int:
        return sum(len(piece) for piece in self._out if not isinstance(piece, LogSlice))

    def join(self, other: SimTransport) -> None:
        self.peer = other
        other.peer = self

    def attach(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self._deliver_soon()

    def connected(self) -> None:
        connecting, self.connecting = self.connecting, None
        if connecting is not None and not self.closed:
            connecting.on_connected()
            self._deliver_soon()

    # Out

    def send(self, data: bytes) -> None:
        if self.closed:
            return
        assert self.connecting is None, "sent before the connection was there"
        self._out.append(data)
        self._pump()

    def send_pieces(self, pieces: list[Piece]) -> None:
        if self.closed:
            for piece in pieces:
                if isinstance(piece, LogSlice):
                    piece.release()
            return
        self._out.extend(pieces)
        self._pump()

    def _pump(self) -> None:
        """Give the network what fits into the window; slices are read only now, as sendfile would."""
        window = self._network.window_bytes
        taken: list[bytes] = []
        while self._out and self._in_flight < window:
            piece = self._out[0]
            size = piece.size_bytes if isinstance(piece, LogSlice) else len(piece)
            if size > window - self._in_flight < window // 2:
                # As TCP does: else a window that was cut into crumbs once is filled with crumbs for ever.
                break
            self._out.popleft()
            room = window - self._in_flight
            if isinstance(piece, LogSlice):
                part = self._read(piece, min(size, room))
                if part is None:
                    # The answer's length is told; it can only be broken off.
                    self.end_soon()
                    break
                data = part
            else:
                data = bytes(piece)
                if size > room:
                    self._out.appendleft(data[room:])
                    data = data[:room]
            self._in_flight += len(data)
            taken.append(data)
        if taken:
            self._transmit(b"".join(taken))
        if self._out and not self.closed:
            self.is_congested = True
            self.loop.call_at(self.loop.now, self.actor, self._tell_congested)

    def _read(self, piece: LogSlice, size: int) -> bytes | None:
        """Read the next part of a slice; the rest stays in its file and takes no memory, as with sendfile."""
        is_begun = piece is self._begun
        try:
            data = piece.segment.file().read_at(piece.position, size)
        except OSError:
            data = b""
        if len(data) != size:
            piece.release()
            return None
        flip_share, rng = self._network.flip_share, self._network.random
        if not is_begun and flip_share and rng.random() < flip_share:
            data = flipped(data, rng)
        piece.position += size
        piece.size_bytes -= size
        if piece.size_bytes:
            self._begun = piece
            self._out.appendleft(piece)
        else:
            piece.release()
        return data

    def _tell_congested(self) -> None:
        if not self.closed and self.is_congested and self.receiver is not None:
            self.receiver.on_congested()

    def _acknowledge(self, size: int) -> None:
        """The peer has taken so much: room for more."""
        self._in_flight -= size
        if self.closed:
            return
        if self._out:
            self._pump()
        if self.is_congested and not self._out:
            self.loop.call_at(self.loop.now, self.actor, self._tell_drained)

    def _tell_drained(self) -> None:
        if self.is_congested and not self._out and not self.closed:
            self.is_congested = False
            if self.receiver is not None:
                self.receiver.on_drained()

    def _transmit(self, data: bytes | None) -> None:
        network, peer = self._network, self.peer
        if self.held or network.is_cut(self.own_host, self.peer_host):
            if not self.held:
                low, high = network.tcp_timeout_s
                self._gives_up_at = self.loop.now + network.random.uniform(low, high)
                self.loop.call_at(self._gives_up_at, self.loop.world, self._give_up, self._gives_up_at)
            self.held.append(data)
            return
        if peer is None or peer.closed:
            if data is not None:
                # The peer does not know this connection: a reset comes back, if the way back is open.
                back_s = network.way_s(self.own_host, self.peer_host) * 2
                if not network.is_cut(self.peer_host, self.own_host):
                    self.loop.call_in(back_s, self.break_off)
            return
        rng = network.random
        if data is not None and len(data) > 1 and network.fragment_share and rng.random() < network.fragment_share:
            cuts = sorted({rng.randrange(1, len(data)) for _ in range(rng.randint(1, FRAGMENTS_MAX - 1))})
            for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
                self._send_one(peer, data[start:end])
        else:
            self._send_one(peer, data)

    def _send_one(self, peer: SimTransport, data: bytes | None) -> None:
        self._last_at = max(self._last_at, self.loop.now + self._network.way_s(self.own_host, self.peer_host))
        peer._inbox.append((self._last_at, data))
        if not peer._is_delivery_due:
            peer._is_delivery_due = True
            self.loop.call_at(self._last_at, peer.actor, peer._deliver)

    def send_held(self) -> None:
        """The way may be open again."""
        if self.held and not self._network.is_cut(self.own_host, self.peer_host):
            held, self.held = self.held, []
            for data in held:
                self._transmit(data)

    def _give_up(self, at: float) -> None:
        """TCP has sent again and again without an answer."""
        if self.held and at == self._gives_up_at:
            self.held = []
            if not self.closed:
                self.failure = "timed out"
                self.end_soon()
            else:
                self._network.transports.pop(self.number, None)

    # In

    def pause(self) -> None:
        self._is_reading = False

    def resume(self) -> None:
        if not self._is_reading:
            self._is_reading = True
            self._deliver_soon()

    def _deliver_soon(self) -> None:
        if self._inbox and not self._is_delivery_due:
            self._is_delivery_due = True
            self.loop.call_at(max(self.loop.now, self._inbox[0][0]), self.actor, self._deliver)

    def _deliver(self) -> None:
        """Hand over what has arrived."""
        self._is_delivery_due = False
        if self.closed or not self._is_reading or self.receiver is None or self.connecting is not None:
            return
        arrived: list[bytes] = []
        is_end = False
        inbox, now = self._inbox, self.loop.now
        while inbox and inbox[0][0] <= now:
            _, data = inbox.popleft()
            if data is None:
                is_end = True
                break
            arrived.append(data)
            if self._network.fragment_share:
                break
        if arrived:
            self._hand_over(arrived[0] if len(arrived) == 1 else b"".join(arrived))
        if is_end:
            self._told_closed()
        elif inbox:
            self._deliver_soon()

    def _hand_over(self, data: bytes) -> None:
        assert self.receiver is not None
        self.loop.note(data)
        if self.peer is not None:
            self.peer._acknowledge(len(data))
        buffer = bytearray(data)
        self.receiver.receive(memoryview(buffer))
        # A view must not outlive the callback that got it, so one that was kept reads nonsense from here on.
        buffer[:] = _POISON[: len(buffer)] if len(buffer) <= len(_POISON) else bytes(len(buffer))

    # The end

    def close(self) -> None:
        """Close our side: what was sent before still arrives, then the peer is notified."""
        if self.closed:
            return
        if self.peer is not None:
            self._transmit(None)
        self.vanish(keep_held=True)

    def vanish(self, *, keep_held: bool = False) -> None:
        """Drop this end without notice to the peer."""
        self.closed = True
        for piece in self._out:
            if isinstance(piece, LogSlice):
                piece.release()
        self._out.clear()
        self._inbox.clear()
        if not keep_held:
            self.held = []
        if not self.held:
            self._network.transports.pop(self.number, None)

    def break_off(self) -> None:
        """Reset: this end is notified soon, and what has not arrived by then never does."""
        if self.closed:
            return
        while self._inbox and self._network.random.random() < 0.5:
            self._inbox.pop()
        self.loop.call_at(self.loop.now, self.actor, self._told_closed)

    def end_soon(self) -> None:
        """This end fails by itself."""
        if not self.closed:
            self.loop.call_at(self.loop.now, self.actor, self._told_closed)

    def _told_closed(self) -> None:
        if self.closed:
            return
        receiver = self.receiver
        peer = self.peer
        self.vanish()
        if peer is not None and not peer.closed and not self._network.is_cut(self.own_host, self.peer_host):
            peer.break_off()
        if receiver is not None:
            receiver.on_closed()
