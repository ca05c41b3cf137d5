"""A network whose links can be cut, around another one: what a partition does to the connections a node makes.

On a cut link nothing arrives: no bytes, no refusal, no end. A peer behind a broken switch looks like that. One of two
nodes makes each connection between them, so cutting those that either side makes separates them; the side that accepted
a connection receives nothing more. When a link is healed its connections end, because what was sent meanwhile is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from strandline.broker.network.transport import (
    Accept,
    AcceptedTls,
    Listening,
    Network,
    OutgoingReceiver,
    OutgoingTls,
    OutgoingTransport,
    Piece,
)
from strandline.log.segment.log_slice import LogSlice

Address = tuple[str, int]


class CutNetwork:
    def __init__(self, network: Network) -> None:
        self._network = network
        self._cut: frozenset[Address] = frozenset()
        self._outgoing: dict[int, CutOutgoing] = {}
        self._made = 0

    def listen(
        self,
        host: str,
        port: int,
        on_accept: Accept,
        *,
        delay_s: Callable[[], float] | None = None,
        tls: AcceptedTls | None = None,
    ) -> Listening:
        return self._network.listen(host, port, on_accept, delay_s=delay_s, tls=tls)

    def connect(
        self, host: str, port: int, receiver: OutgoingReceiver, *, tls: OutgoingTls | None = None
    ) -> OutgoingTransport:
        self._made += 1
        outgoing = CutOutgoing(host, port, receiver, is_cut=(host, port) in self._cut)
        number = self._made
        self._outgoing[number] = outgoing
        outgoing.on_gone = lambda: self._outgoing.pop(number, None)
        outgoing.begin(self._network, tls)
        return outgoing

    def cut(self, addresses: Collection[Address]) -> None:
        """Cut the links to these addresses, and heal all others."""
        self._cut = frozenset(addresses)
        for outgoing in list(self._outgoing.values()):
            if (outgoing.peer_host, outgoing.port) in self._cut:
                outgoing.cut()
            elif outgoing.is_cut:
                outgoing.end()


class CutOutgoing:
    """A connection of the real network, until it is cut."""

    def __init__(self, host: str, port: int, receiver: OutgoingReceiver, *, is_cut: bool) -> None:
        self.peer_host = host
        self.port = port
        self.is_cut = is_cut
        self.on_gone: Callable[[], object] = lambda: None
        self._receiver: OutgoingReceiver | None = receiver
        self._inner: OutgoingTransport | None = None

    def begin(self, network: Network, tls: OutgoingTls | None) -> None:
        if not self.is_cut:
            self._inner = network.connect(self.peer_host, self.port, self, tls=tls)

    def cut(self) -> None:
        if not self.is_cut:
            self.is_cut = True
            if self._inner is not None:
                # Unread bytes stay with the system; the peer soon cannot send any more.
                self._inner.pause()

    def end(self) -> None:
        """End the connection as if the peer had reset it."""
        self._close_inner()
        receiver, self._receiver = self._receiver, None
        self.on_gone()
        if receiver is not None:
            receiver.on_closed()

    # Calls of the connection's user

    @property
    def peer_port(self) -> int:
        return self.port

    @property
    def failure(self) -> str:
        return self._inner.failure if self._inner is not None else ""

    @property
    def is_refused(self) -> bool:
        return not self.is_cut and self._inner is not None and self._inner.is_refused

    @property
    def is_congested(self) -> bool:
        return not self.is_cut and self._inner is not None and self._inner.is_congested

    @property
    def unsent_bytes(self) -> int:
        return self._inner.unsent_bytes if self._inner is not None else 0

    def send(self, data: bytes) -> None:
        if not self.is_cut and self._inner is not None:
            self._inner.send(data)

    def send_pieces(self, pieces: list[Piece]) -> None:
        if not self.is_cut and self._inner is not None:
            self._inner.send_pieces(pieces)
            return
        for piece in pieces:
            if isinstance(piece, LogSlice):
                piece.release()

    def pause(self) -> None:
        if self._inner is not None:
            self._inner.pause()

    def resume(self) -> None:
        if not self.is_cut and self._inner is not None:
            self._inner.resume()

    def close(self) -> None:
        self._receiver = None
        self._close_inner()
        self.on_gone()

    def _close_inner(self) -> None:
        inner, self._inner = self._inner, None
        if inner is not None:
            inner.close()

    # Calls of the real connection

    def on_connected(self) -> None:
        if self.is_cut:
            # It was under way when the link was cut; the answer to it is lost.
            return
        if self._receiver is not None:
            self._receiver.on_connected()

    def receive(self, view: memoryview) -> None:
        if not self.is_cut and self._receiver is not None:
            self._receiver.receive(view)

    def on_congested(self) -> None:
        if not self.is_cut and self._receiver is not None:
            self._receiver.on_congested()

    def on_drained(self) -> None:
        if not self.is_cut and self._receiver is not None:
            self._receiver.on_drained()

    def on_closed(self) -> None:
        if self.is_cut:
            self._inner = None
            return
        receiver, self._receiver = self._receiver, None
        self.on_gone()
        if receiver is not None:
            receiver.on_closed()
